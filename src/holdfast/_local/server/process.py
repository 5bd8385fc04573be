"""PrivateServer: a server of one's own for a test, a demo or a benchmark, gone afterwards however its owner ends.

It runs below the guardian program, which waits for the end of file on a channel that only the owner holds open: so it
ends, and its directory goes, even when the owner is killed with -9.
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

from holdfast._local.guardian import program
from holdfast._local.server import binary as binaries
from holdfast._local.server.supervisor import Connection, tail
from holdfast.errors import ServerError

_PATIENCE = 10.0  # seconds a server may take to start: a loaded machine, a long append-only file


class PrivateServer:
    """A running server. Several at once do not meet.

    ``args``        further settings, as on the server's command line: ``"--maxmemory", "10mb"``
    ``port``        False: a unix socket only; True: a free port on 127.0.0.1; a number: that port
    ``appendonly``  keep data in an append-only file, over `kill` and `restart`; otherwise nothing is kept
    ``password``    of the default user; None: one is made if there is a port, which every user of this machine can connect
                    to; empty: none
    ``binary``      another server program than the one that is found

    ``address`` is the URL without the password.
    ``url``, ``pid`` (of the server itself), ``socket`` (path; there always is one), ``port`` (None without TCP) and
    ``directory`` say where it is. Raises ConfigError if there is no server program, ServerError if it does not start.
    """

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
        # "no" hands all to the kernel before each answer, and `kill` takes nothing of that; "everysec" waits for a slow disk.
        self._settings = {"appendonly": "yes" if appendonly else "no", "appendfsync": "no", "save": ""}
        self._owner = os.getpid()
        self.url, self.pid = "", 0
        self._guardian: subprocess.Popen[bytes] | None = None
        self._channel: tuple[socket.socket, socket.socket] | None = None  # our end, and that of the guardians
        self.port = None if port is False else (_free_port() if port is True else port)
        self.directory = _new_directory()
        self.socket = str(self.directory / "server.sock")
        _alive.add(self)
        attempts = 5 if port is True else 1  # somebody else may take a free port before we do
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
        """The URL without the password."""
        return f"redis://127.0.0.1:{self.port}/0" if self.port else f"unix://{self.socket}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill(self) -> None:
        """Kills the server with -9, and returns when it is gone. Its directory stays, for `restart`."""
        if self._guardian is not None:
            if self._guardian.poll() is None:  # else it has ended by itself, and the number may be somebody else's
                os.kill(self.pid, signal.SIGKILL)
            self._guardian.wait()
            self._guardian = None

    def pause(self) -> None:
        """Stops the process (SIGSTOP): the kernel still accepts connections for it, but nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)
        status = Path(f"/proc/{self.pid}/stat")
        while status.exists() and status.read_text().rpartition(")")[2].split()[0] not in "tT":
            time.sleep(0.0005)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Starts it again at the same place; killed before, if it still runs. It remembers only with ``appendonly``."""
        self.kill()
        self._start()

    def stop(self) -> None:
        """Ends the server and removes its directory. Does nothing if it was stopped before, or in a forked child."""
        if os.getpid() != self._owner or self._channel is None:
            return
        ours, theirs = self._channel
        self._channel = None
        with ours, theirs:
            ours.shutdown(socket.SHUT_WR)
            theirs.close()
            ours.recv(1)  # end of file, when the last of them has ended: each `_start` had its own, who removes what is there
        if self._guardian is not None:
            self._guardian.wait()
            self._guardian = None

    def log(self) -> str:
        """Return the last lines that the server has logged."""
        return tail(str(self.directory / "server.log"))

    def let_go(self) -> None:
        """In a forked child: it must not hold the channel open, or the server would outlive its owner."""
        if self._channel is not None:
            for end in self._channel:
                end.close()
        if self._guardian is not None:
            self._guardian.returncode = 0  # not the child's to wait for

    def wait(self) -> int:
        """Returns when the server has ended by itself: its exit code."""
        return self._guardian.wait() if self._guardian is not None else 0

    # Start

    def _start(self) -> None:
        make_private(self.directory)
        secret = f":{quote(self._password, safe='')}@" if self._password else ""
        self.url = f"redis://{secret}127.0.0.1:{self.port}/0" if self.port else f"unix://{secret}{self.socket}"
        config = self.directory / "server.conf"
        config.touch(mode=0o600)  # before there is a password in it; which a command line would show to everybody
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
        """Asks on the unix socket, behind which there can be no other server; it is bound after the port."""
        assert self._guardian is not None
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), contextlib.closing(Connection(self.socket, _PATIENCE)) as connection:
                if self._password:
                    connection("AUTH", self._password)
                connection("PING")  # refused while it loads its file
                return int(connection.info("server")["process_id"])
            if self._guardian.poll() is not None:
                break
            time.sleep(0.002)
        said = tail(str(log), before) or "no output"
        raise ServerError(f"{self._program} did not start: {said}", address=self.socket)


def make_private(directory: Path) -> None:
    """Make a directory, and missing ones above it, with mode 0700, whatever the umask. Raises OSError."""
    missing = [directory, *directory.parents]
    for place in reversed([place for place in missing if not place.exists()]):
        try:
            place.mkdir(mode=0o700)
        except FileExistsError:
            continue  # somebody else's: whoever uses it checks whose it is
        place.chmod(0o700)


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _new_directory() -> Path:
    """Short enough for the path of a socket, whatever TMPDIR says."""
    parent = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="holdfast-server-", dir=parent if len(os.fsencode(parent)) < 60 else "/tmp"))  # noqa: S108


def _free_port() -> int:
    """Below the range from which the kernel takes ports for connections, which might take it between two starts."""
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
