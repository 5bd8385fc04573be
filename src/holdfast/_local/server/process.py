"""PrivateServer: a server for one test, demo or benchmark, which ends when its owner (the process that started it) ends.

A separate program, the guardian, runs the server. The guardian waits for the end of file on a channel that only the owner holds
open. Then it ends the server and removes the server's directory. This happens even if the owner is killed by SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from pathlib import Path
from typing import Self
from urllib.parse import quote

from holdfast._clock import monotonic
from holdfast._local.guardian import program
from holdfast._local.server import binary as binaries
from holdfast._local.server.supervisor import SocketConnection, tail
from holdfast.errors import ServerError

_PATIENCE = 10.0
"""Seconds that a server may take to start, on a loaded machine or with a long append-only file."""


class PrivateServer:
    """A running server that this process has started for itself. It ends with this process.

    ``args``        additional settings, as on the server's command line: ``"--maxmemory", "10mb"``
    ``port``        number of a TCP port on 127.0.0.1; True: a free port; False: no TCP, only a Unix socket
    ``appendonly``  keep data in an append-only file, so that it survives `restart`; otherwise `restart` loses all data
    ``password``    password of the default user; None: a random one if there is a port, because every user of this
                    machine can connect to the port; empty: none
    ``binary``      path of the server program; None: holdfast finds one

    The attributes ``url``, ``pid`` (of the server itself), ``socket`` (path; there always is one), ``port`` (None without TCP)
    and ``directory`` tell how to reach the server. Raises ConfigError if there is no server program, and ServerError if the
    server does not start.
    """

    directory: Path
    socket: str
    url: str
    pid: int

    def __init__(
        self,
        *args: str,
        port: bool | int = False,
        appendonly: bool = False,
        password: str | None = None,
        binary: str | None = None,
    ) -> None:
        self._program = binary or binaries.find()
        self._args = args
        self._password = secrets.token_urlsafe(24) if password is None and port is not False else password
        # With "appendfsync no", the server passes all data to the kernel before each answer, so `kill` loses nothing. With
        # "everysec", it would wait for a slow disk.
        self._settings = {"appendonly": "yes" if appendonly else "no", "appendfsync": "no", "save": ""}
        self._owner = os.getpid()
        self.url, self.pid = "", 0
        self._guardian: subprocess.Popen[bytes] | None = None
        self._channel: tuple[socket.socket, socket.socket] | None = None  # the owner's end, and the end of the guardians
        self.port = None if port is False else (_free_port() if port is True else port)
        self.directory = _new_directory()
        self.socket = str(self.directory / "server.sock")
        _alive.add(self)
        attempts = 5 if port is True else 1  # another process may bind a free port before the server does
        for attempt in range(attempts):
            try:
                self._start()
            except ServerError as error:
                if "in use" not in str(error) or attempt == attempts - 1:
                    raise
                self.port = _free_port()
            else:
                break

    def __repr__(self) -> str:
        return f"<PrivateServer pid={self.pid} {self.directory}>"

    @property
    def address(self) -> str:
        """Return the URL without the password."""
        return f"redis://127.0.0.1:{self.port}/0" if self.port else f"unix://{self.socket}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill(self) -> None:
        """Kill the server with SIGKILL, and return when it has ended. Its directory stays, for `restart`."""
        if self._guardian is not None:
            if self._guardian.poll() is None:  # otherwise it has ended, and its number may belong to another process
                os.kill(self.pid, signal.SIGKILL)
            self._guardian.wait()
            self._guardian = None

    def pause(self) -> None:
        """Stop the server's process by SIGSTOP. The kernel still accepts connections, but no request is answered."""
        os.kill(self.pid, signal.SIGSTOP)
        status = Path(f"/proc/{self.pid}/stat")
        while status.exists() and status.read_text().rpartition(")")[2].split()[0] not in "tT":
            time.sleep(0.0005)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Start the server again at the same address, after killing it if it is still running.

        Its data survives only with ``appendonly``.
        """
        self.kill()
        self._start()

    def stop(self) -> None:
        """End the server and remove its directory. Do nothing if it was stopped before, or in a forked child."""
        if os.getpid() != self._owner or self._channel is None:
            return
        ours, theirs = self._channel
        self._channel = None
        with ours, theirs:
            ours.shutdown(socket.SHUT_WR)
            theirs.close()
            # Each `_start` creates a guardian. The last one removes the directory. When it has ended, the end of file comes.
            ours.recv(1)
        if self._guardian is not None:
            self._guardian.wait()
            self._guardian = None

    def log(self) -> str:
        """Return the last lines of the server's log."""
        return tail(str(self.directory / "server.log"))

    def let_go(self) -> None:
        """In a forked child, close the inherited channel to the guardian.

        Otherwise the server would run on until the child, too, has ended.
        """
        if self._channel is not None:
            for end in self._channel:
                end.close()
        if self._guardian is not None:
            self._guardian.returncode = 0  # the guardian is no child of this process

    def wait(self) -> int:
        """Wait until the server has ended by itself, and return its exit code; 0 if `kill` or `stop` has ended it."""
        return self._guardian.wait() if self._guardian is not None else 0

    # Start

    def _start(self) -> None:
        make_private(self.directory)
        secret = f":{quote(self._password, safe='')}@" if self._password else ""
        self.url = f"redis://{secret}127.0.0.1:{self.port}/0" if self.port else f"unix://{secret}{self.socket}"
        config = self.directory / "server.conf"
        config.touch(mode=0o600)  # created before the password is written; on a command line every user could see the password
        config.write_text("".join(f"{name} {_quoted(value)}\n" for name, value in self._configuration().items()))
        if self._channel is None:
            self._channel = socket.socketpair()
        log = self.directory / "server.log"
        log.touch(mode=0o600)
        with log.open("ab") as output:
            before = output.tell()
            command = [self._program, str(config), *self._args]
            self._guardian = subprocess.Popen(
                [binaries.interpreter(), *program.PROGRAM, "--remove", str(self.directory), "--", *command],
                stdin=self._channel[1].fileno(),
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the owner
            )
        try:
            self.pid = self._wait_until_ready(log, before)
        except BaseException:
            self.stop()
            raise

    def _configuration(self) -> dict[str, str]:
        settings = {"port": str(self.port or 0), "bind": "127.0.0.1", "dir": str(self.directory), **self._settings}
        settings |= {"unixsocket": self.socket, "unixsocketperm": "700", "daemonize": "no"}
        return settings | ({"requirepass": self._password} if self._password else {})

    def _wait_until_ready(self, log: Path, before: int) -> int:
        """Wait until the server answers on its Unix socket, and return its process id.

        ``before``: size of the log, in bytes, when the server was started, so that an error shows only later lines. Raises
        ServerError if the server ends, or does not answer within _PATIENCE seconds.
        """
        assert self._guardian is not None
        deadline = monotonic() + _PATIENCE
        while monotonic() < deadline:
            with contextlib.suppress(OSError), contextlib.closing(SocketConnection(self.socket, _PATIENCE)) as connection:
                if self._password:
                    connection("AUTH", self._password)
                connection("PING")  # refused while the server loads its file
                return int(connection.info("server")["process_id"])
            if self._guardian.poll() is not None:
                break
            time.sleep(0.002)
        said = tail(str(log), before) or "no output"
        raise ServerError(f"{self._program} did not start: {said}", address=self.socket)


def make_private(directory: Path) -> None:
    """Create a directory and its missing parents with mode 0700, whatever the umask is. Raises OSError if that fails."""
    missing = [directory, *directory.parents]
    for place in reversed([place for place in missing if not place.exists()]):
        try:
            place.mkdir(mode=0o700)
        except FileExistsError:
            continue  # created by another process; the caller checks its owner
        place.chmod(0o700)


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _new_directory() -> Path:
    """Return a new directory whose path is short enough for a socket's path, even if TMPDIR is long."""
    parent = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="holdfast-server-", dir=parent if len(os.fsencode(parent)) < 60 else "/tmp"))  # noqa: S108


def _free_port() -> int:
    """Return a free TCP port below the range from which the kernel assigns ports to outgoing connections.

    A connection of another program might use a port of that range while the server restarts.
    """
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


_alive: weakref.WeakSet[PrivateServer] = weakref.WeakSet()


def _let_go() -> None:
    for server in _alive:
        server.let_go()


os.register_at_fork(after_in_child=_let_go)
