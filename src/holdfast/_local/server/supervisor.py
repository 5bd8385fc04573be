"""The program above the local server: starts it, looks after its log, and ends it when nobody has used it for a while.

Runs alone, as ``python -I -S supervisor.py DIR REPORT_FD IDLE SERVER``: it imports nothing of holdfast, so that it
starts quickly and stays small. `start` runs it; `Connection` is used by the other modules here too.

A lock (flock) decides which supervisor may run in a directory: it is on the directory itself, held by this process and
inherited by the server: while either of them lives, nobody else starts one, so no two servers ever share an append-only file.

The server binds ``boot.sock``. It is renamed to ``server.sock``, where everybody looks for it, once it answers, and
back before an unused server is stopped: whoever connected before that is seen and keeps the server alive, whoever comes
later finds no socket, and waits for the next server. So nobody is ever disconnected by a stop for want of use.
"""

# pathlib would double the time this program takes to start:
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
PATIENCE = 8  # seconds, fewer than starters have: for another server to answer or end, and for ours to end
TAIL = 6  # lines of the log shown in an error


class Connection:
    """A plain connection to a server's unix socket, for the few commands that servers are watched with."""

    def __init__(self, path: str, timeout: float) -> None:
        """``timeout``: seconds to wait for each reply."""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(path)
        except BaseException:
            self._socket.close()
            raise
        self._file = self._socket.makefile("rb")

    def __call__(self, *command: str) -> Any:
        """Sends a command, returns the reply: str, int, None or a list of these. OSError if refused or cut off."""
        words = [word.encode() for word in command]
        self._socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        return self._reply()

    def info(self, section: str) -> dict[str, str]:
        """One section of INFO."""
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
    """The last lines of a log, of what was written after the byte ``since``."""
    try:
        with open(path, "rb") as file:
            file.seek(max(since, os.fstat(file.fileno()).st_size - 4096))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-TAIL:]).strip()
    except OSError:
        return ""


class Supervisor:
    """One directory, its lock, and the server that runs in it."""

    def __init__(self, directory: str, idle: float, report: int) -> None:
        self.directory = directory
        self.idle = idle
        self.report = report
        self.lock = -1  # only if it is ours
        self.pid = 0
        self.connection: Connection | None = None
        self.connected = -1
        self.kept = time.monotonic()

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def tell(self, message: str) -> None:
        """Answers the starter, once; it may be gone, that is no reason to stop."""
        if self.report >= 0:
            with contextlib.suppress(OSError):
                os.write(self.report, message.encode())
            os.close(self.report)
            self.report = -1

    # Start

    def own(self) -> bool:
        """Takes the directory. False if another server runs in it, which then serves as well as ours."""
        lock = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with contextlib.suppress(OSError):
                    Connection(self.path(SOCKET), 1).close()
                    return False
                time.sleep(0.005)
            else:
                self.lock = lock
                return True
        raise TimeoutError(f"another server holds {self.directory} and does not answer")

    def start(self, server: str) -> None:
        """Starts the server and waits until it answers; with a long append-only file that may take a while."""
        self.trim_log()
        log = self.path(LOG)
        before = os.stat(log).st_size if os.path.exists(log) else 0
        for name in (SOCKET, BOOT):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(name))  # left by a server that was killed
        self.pid = spawn([server, *self.settings()], keep=self.lock)
        while not self.answers():
            if self.ended():
                raise RuntimeError(tail(log, before) or f"{server} ended at once")
            time.sleep(0.002)
        os.rename(self.path(BOOT), self.path(SOCKET))

    def answers(self) -> bool:
        """Whether there is a socket, and a server behind it that has loaded its file."""
        try:
            self.connection = Connection(self.path(BOOT), 5)
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
        """Never TCP; never a lease evicted; leases survive a crash of the server.

        ``appendfsync no``, since it alone hands every change to the kernel before the answer (``everysec`` puts that off
        while the disk is slow). It loses more in a power failure, but that ends all holders too: they are on this machine.
        """
        return [
            *("--port", "0", "--unixsocket", self.path(BOOT), "--unixsocketperm", "700"),
            *("--dir", self.directory, "--appendonly", "yes", "--appendfsync", "no", "--save", ""),
            *("--auto-aof-rewrite-min-size", "16mb", "--maxmemory-policy", "noeviction"),
            *("--logfile", self.path(LOG), "--daemonize", "no"),
        ]

    # Watch

    def watch(self) -> None:
        """Wait until the server has ended, or has to be ended."""
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
                select.select([self.connection], [], [], pause)  # readable: the server has closed it, so it has ended
            else:
                time.sleep(min(pause, 0.02))

    def in_use(self) -> bool:
        """Has anybody connected since the last look, or is connected now; or does a lease run? Yes, when in doubt."""
        try:
            server = self.connection = self.connection or Connection(self.path(SOCKET), 5)
            connected = int(server.info("stats")["total_connections_received"])
            known, self.connected = self.connected, connected
            return connected != known or int(server.info("clients")["connected_clients"]) > 1 or leases(server)
        except OSError:  # it hangs, or has ended; a connection that owes a reply is of no more use
            self.disconnect()
            return True

    def closed(self) -> bool:
        """Takes the socket away. False, and it is back, if somebody has connected in the meantime."""
        os.rename(self.path(SOCKET), self.path(BOOT))
        with contextlib.suppress(OSError):
            # Two replies, from two rounds of the server's loop: by then it has accepted all who came before the rename.
            if self.connection and self.connection("PING") and not self.in_use():
                return True
        os.rename(self.path(BOOT), self.path(SOCKET))
        return False

    def reachable(self) -> bool:
        """Whether others still find us. If not, we must give way: the next one to come starts a server."""
        return self.owned() and os.path.exists(self.path(SOCKET))

    def owned(self) -> bool:
        """Whether the directory is still the one that we have locked."""
        try:
            there, ours = os.stat(self.directory), os.fstat(self.lock)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def trim_log(self) -> None:
        with contextlib.suppress(OSError):
            if os.stat(self.path(LOG)).st_size > LOG_LIMIT:
                os.replace(self.path(LOG), self.path(LOG + ".1"))  # the server opens it anew for each line

    def keep_files(self) -> None:
        """Once an hour, so that programs that clear old files out of /tmp see ours in use."""
        if time.monotonic() < self.kept + 3600:
            return
        self.kept = time.monotonic()
        for folder, _, names in os.walk(self.directory):
            for name in names:
                with contextlib.suppress(OSError):
                    os.utime(os.path.join(folder, name))

    # End

    def ended(self) -> bool:
        """Whether the server process has ended; reaps it."""
        if self.pid and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.pid = 0
        return not self.pid

    def end(self) -> None:
        """Ends the server if it still runs: gently, since it then puts its file on disk; and removes the socket."""
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


def leases(server: Connection) -> bool:
    """Whether a lock is held, by any program: a string with an expiry. A file that we keep beside a lock is not one."""
    cursor = ""
    while cursor != "0":
        cursor, keys = server("SCAN", cursor or "0", "COUNT", "1000", "TYPE", "string")
        if any(server("PTTL", key) > 0 for key in keys):
            return True
    return False


def spawn(command: list[str], keep: int) -> int:
    """Starts the server with the directory's lock. It ends with us (on Linux), or nobody would stop it when unused."""
    try:
        import ctypes  # before the fork: the child does as little as possible

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
    """Reports one line to the starter: ``ok``, or what went wrong. Returns the exit status."""
    os.set_inheritable(int(report), False)
    if os.fork():
        os._exit(0)  # so that we are nobody's child, and end with nobody
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
