"""The program that starts the local server, watches its log, and ends it when nobody has used it for a while.

It runs alone, as ``python -I -S supervisor.py DIR REPORT_FD IDLE SERVER``, and imports nothing of holdfast, so that it starts
quickly and stays small.

The supervisor locks the directory (flock), and the server inherits that lock. So two servers never write to the same
append-only file.

The server binds the socket ``boot.sock``. Once the server answers, the supervisor renames the socket to ``server.sock``, the
path that clients use. Before the supervisor stops an unused server, it renames the socket back, and then counts the clients. A
client that connected before the renaming keeps the server running. A later client finds no socket, and starts the next server.
So the stop of an unused server disconnects no client.
"""

# Importing pathlib would double the start time of this program:
# ruff: noqa: PTH104, PTH105, PTH108, PTH110, PTH116, PTH118, PTH123
from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
import time
from typing import Any

SOCKET = "server.sock"
BOOT = "boot.sock"
LOG = "server.log"
LOG_LIMIT = 256 * 1024  # bytes; one older file is kept
PATIENCE = 8  # seconds for another server to answer or end, and for ours to end; fewer than the starting process waits
TAIL = 6  # lines of the log shown in an error


class SocketConnection:
    """A plain connection to a server's Unix socket, for the few commands that watch servers."""

    def __init__(self, path: str, timeout: float) -> None:
        """Connect to the socket. ``timeout``: seconds to wait for each reply."""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(path)
        except BaseException:
            self._socket.close()
            raise
        self._file = self._socket.makefile("rb")

    def __call__(self, *command: str) -> Any:
        """Send a command, and return the reply: str, int, None or a list of these.

        Raises OSError if the server refuses the command or disconnects.
        """
        words = [word.encode() for word in command]
        self._socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        return self._reply()

    def info(self, section: str) -> dict[str, str]:
        """Return one section of the server's INFO, as a dict of names and values."""
        return dict(line.split(":", 1) for line in self("INFO", section).splitlines() if ":" in line)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def _reply(self) -> Any:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("the server closed the connection")
        kind, rest = line[:1], line[1:-2].decode("utf-8", "replace")
        if kind == b"-":
            raise OSError(rest)
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == "-1" else self._file.read(int(rest) + 2)[:-2].decode("utf-8", "replace")
        if kind == b"*":
            return [self._reply() for _ in range(int(rest))]
        return rest


def tail(path: str, since: int = 0) -> str:
    """Return the lines that a log file got after byte ``since``, at most the last TAIL of them; "" if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(since, os.fstat(file.fileno()).st_size - 4096))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-TAIL:]).strip()
    except OSError:
        return ""


class Supervisor:
    """The supervisor of one directory: its lock, and the server that runs in it."""

    def __init__(self, directory: str, idle: float, report: int) -> None:
        self.directory = directory
        self.idle = idle
        self.report = report
        self.lock = -1  # a descriptor only while this process holds the lock
        self.pid = 0
        self.connection: SocketConnection | None = None
        self.connected = -1
        self.kept = time.monotonic()

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def tell(self, message: str) -> None:
        """Send a message to the process that has started the supervisor. Only the first call sends its message."""
        if self.report >= 0:
            with contextlib.suppress(OSError):
                os.write(self.report, message.encode())
            os.close(self.report)
            self.report = -1

    # Start

    def own(self) -> bool:
        """Lock the directory and return True. Return False if a server is already running there and accepts connections.

        Raises TimeoutError if neither is the case within PATIENCE seconds.
        """
        lock = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with contextlib.suppress(OSError):
                    SocketConnection(self.path(SOCKET), 1).close()
                    return False
                time.sleep(0.005)
            else:
                self.lock = lock
                return True
        raise TimeoutError(f"another server holds {self.directory} and does not answer")

    def start(self, server: str) -> None:
        """Start the program ``server`` and wait until it answers. This takes long if the append-only file is long.

        Raises RuntimeError if the server ends before it answers.
        """
        self.trim_log()
        log = self.path(LOG)
        before = os.stat(log).st_size if os.path.exists(log) else 0
        for name in (SOCKET, BOOT):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(name))  # left behind by a server that was killed
        self.pid = spawn([server, *self.settings()], keep=self.lock)
        while not self.answers():
            if self.ended():
                raise RuntimeError(tail(log, before) or f"{server} ended at once")
            time.sleep(0.002)
        os.rename(self.path(BOOT), self.path(SOCKET))

    def answers(self) -> bool:
        """Return True if the server listens on its socket and has loaded its append-only file."""
        try:
            self.connection = SocketConnection(self.path(BOOT), 5)
            self.connection("PING")
        except OSError:
            self.disconnect()
            return False
        return True

    def disconnect(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def settings(self) -> list[str]:
        """Return the server's options: no TCP, no eviction of leases, and leases that survive a crash of the server.

        With ``appendfsync no``, the server passes every change to the kernel before it answers, so a crash of the server loses
        nothing. A power failure may lose changes, but it also ends all holders of locks, because they run on this machine.
        """
        return [
            *("--port", "0", "--unixsocket", self.path(BOOT), "--unixsocketperm", "700"),
            *("--dir", self.directory, "--appendonly", "yes", "--appendfsync", "no", "--save", ""),
            *("--auto-aof-rewrite-min-size", "16mb", "--maxmemory-policy", "noeviction"),
            *("--logfile", self.path(LOG), "--daemonize", "no"),
        ]

    # Watch

    def watch(self) -> None:
        """Wait until the server has ended, or must be ended because it is unused or no longer reachable."""
        pause = min(max(self.idle / 10, 0.02), 5)
        used = time.monotonic()
        while not self.ended() and self.reachable():
            if self.in_use():
                used = time.monotonic()
            elif time.monotonic() - used >= self.idle and self.closed():
                return
            self.trim_log()
            self.keep_files()
            if self.connection is not None:
                # The connection is readable when the server has closed it, because the server has ended.
                select.select([self.connection], [], [], pause)
            else:
                time.sleep(min(pause, 0.02))

    def in_use(self) -> bool:
        """Return True if a client is connected, has connected since the last call, or has left a running lease.

        Return True also if the server does not answer.
        """
        try:
            server = self.connection = self.connection or SocketConnection(self.path(SOCKET), 5)
            connected = int(server.info("stats")["total_connections_received"])
            known, self.connected = self.connected, connected
            return connected != known or int(server.info("clients")["connected_clients"]) > 1 or leases(server)
        except OSError:  # the server hangs or has ended; a late reply would be taken for that to the next command
            self.disconnect()
            return True

    def closed(self) -> bool:
        """Rename the socket of an unused server so that no client finds it, and return True.

        If the server turns out to be in use, or does not answer, rename the socket back and return False.
        """
        os.rename(self.path(SOCKET), self.path(BOOT))
        with contextlib.suppress(OSError):
            # Two replies take two iterations of the server's loop. So the server has then accepted every client that came
            # before the renaming.
            if self.connection and self.connection("PING") and not self.in_use():
                return True
        os.rename(self.path(BOOT), self.path(SOCKET))
        return False

    def reachable(self) -> bool:
        """Return True if clients still find this server. Otherwise it must end, because the next client starts another
        server."""
        return self.owned() and os.path.exists(self.path(SOCKET))

    def owned(self) -> bool:
        """Return True if the directory is still the one that this process has locked."""
        try:
            there, ours = os.stat(self.directory), os.fstat(self.lock)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def trim_log(self) -> None:
        with contextlib.suppress(OSError):
            if os.stat(self.path(LOG)).st_size > LOG_LIMIT:
                os.replace(self.path(LOG), self.path(LOG + ".1"))  # the server opens its log anew for each line

    def keep_files(self) -> None:
        """Set the modification times of all files to now, once an hour, because some programs delete old files in /tmp."""
        if time.monotonic() < self.kept + 3600:
            return
        self.kept = time.monotonic()
        for folder, _, names in os.walk(self.directory):
            for name in names:
                with contextlib.suppress(OSError):
                    os.utime(os.path.join(folder, name))

    # End

    def ended(self) -> bool:
        """Return True if no server process is running. If it has just ended, also collect its exit status."""
        if self.pid and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.pid = 0
        return not self.pid

    def end(self) -> None:
        """End the server if it still runs, and remove the socket.

        SIGTERM lets the server write its append-only file to disk first. If that takes longer than PATIENCE seconds, SIGKILL
        follows.
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not self.ended():
            os.kill(self.pid, signal.SIGTERM)
            deadline = time.monotonic() + PATIENCE
            while not self.ended() and time.monotonic() < deadline:
                time.sleep(0.002)
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.lock >= 0 and self.owned():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(SOCKET))


def leases(server: SocketConnection) -> bool:
    """Return True if the server has a key of type string with an expiry.

    This may be the lease of a lock of holdfast or of another library, or other data that a client still needs.
    """
    cursor = ""
    while cursor != "0":
        cursor, keys = server("SCAN", cursor or "0", "COUNT", "1000", "TYPE", "string")
        if any(server("PTTL", key) > 0 for key in keys):
            return True
    return False


def spawn(command: list[str], keep: int) -> int:
    """Start the server as a child process that inherits the directory's lock, and return its pid.

    ``keep``: file descriptor of the lock. On Linux, the kernel sends SIGTERM to the server when this process ends, because no
    other process would stop the server when it is unused.
    """
    try:
        import ctypes  # imported before the fork, so that the child does as little as possible

        set_death_signal = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        set_death_signal = None
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        if set_death_signal is not None:
            set_death_signal(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
            if os.getppid() != parent:
                os._exit(1)
        os.set_inheritable(keep, True)
        os.execv(command[0], command)  # noqa: S606
    except OSError as error:
        os.write(2, f"{command[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def main(directory: str, report: str, idle: str, server: str) -> int:
    """Run the supervisor until its server ends, and return the exit status.

    Write ``ok`` to the file descriptor ``report`` once a server answers in the directory, or the error if that fails. If the
    server was already running there, return at once. ``idle``: seconds without use after which the server is stopped.
    """
    os.set_inheritable(int(report), False)
    if os.fork():
        os._exit(0)  # the program detaches from its parent, so that it does not end with the parent
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o077)
    os.chdir("/")
    supervisor = Supervisor(directory, float(idle), int(report))
    try:
        if supervisor.own():
            supervisor.start(server)
            supervisor.tell("ok")
            supervisor.watch()
        else:
            supervisor.tell("ok")
    except (OSError, RuntimeError) as error:
        supervisor.tell(str(error))
        return 1
    finally:
        supervisor.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
