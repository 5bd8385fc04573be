"""The guardian of a command: `launch` forks it, `spawn` starts it as a program, `Guard` is the parent's end, `_Guardian` is it.

It is a dead man's switch. The parent tells it when the lease ends, again with each renewal; when that time comes
without a newer one - the server is gone, or the parent is stopped, swapped out, or hung - it ends the command by
itself, so that the command is dead before anybody else can hold the lock. It is itself the parent of the command, so
that there is no moment in which a started command is not guarded.
"""

from __future__ import annotations

import math
import os
import select
import signal
import sys
from typing import TYPE_CHECKING

from holdfast import _guardian

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import NoReturn

SETTLE = 0.5
"""Seconds that processes which outlive the command have to end by themselves, as ``tee`` at the end of a pipe does."""

_POLL = 0.25  # seconds: timers of poll() stop while the machine is suspended, leases do not, so look again this often


VARIABLES = ("HOLDFAST_URL", "REDIS_URL")
"""Of the environment: where the server is, or the servers."""


def has_password(urls: str) -> bool:
    """Whether one of these seems to carry one; in doubt, yes."""
    return any(":" in url.partition("://")[2].rpartition("@")[0] or "password=" in url for url in urls.split())


def scrubbed(env: Mapping[str, str], pass_url: bool = False) -> dict[str, str]:
    """The environment without URLs that carry a password: a command has no business with it, and may well print it."""
    return {k: v for k, v in env.items() if k not in VARIABLES or pass_url or not has_password(v)}


class Guard:
    """The parent's end of the channel to a guardian. Nothing here blocks, but `close`.

    To the guardian: ``deadline TERM_AT KILL_AT``, ``start FOREGROUND GRACE NAME=VALUE ...``, ``signal N``, ``term GRACE``,
    ``kill``. From it: ``pid N``, ``failed ERRNO``, ``stopped SIGNAL``, ``exited STATUS``, ``late`` (not started: the
    deadline had passed), ``ending`` (the deadline passed: TERM or KILL was sent), ``left`` (what outlives the command
    was sent TERM), ``gone`` (the whole group). One per line; times are seconds of `_guardian.clock`.
    """

    def __init__(self, channel: int, pid: int) -> None:
        self.channel, self.pid = channel, pid
        self.dead = False
        """The guardian has ended, or has not read for very long: nobody guards the command."""
        self._unread = b""

    def fileno(self) -> int:
        """For select: readable when `reports` has something to say."""
        return self.channel

    def deadline(self, term_at: float, kill_at: float) -> None:
        """TERM and KILL the group at these times, unless a later word moves them."""
        self._send(f"deadline {term_at!r} {kill_at!r}")

    def start(self, variables: str, *, grace: float, foreground: bool = False) -> None:
        """Start the command with more in its environment: ``NAME=VALUE``, or several of these with a space between them.

        ``foreground``: its group gets the terminal that stdin is. ``grace``: seconds from TERM to KILL where the
        guardian ends the group by itself.
        """
        self._send(f"start {foreground:d} {grace!r} {variables}")

    def signal(self, signum: int) -> None:
        """Pass a signal on to the group."""
        self._send(f"signal {int(signum)}")

    def term(self, grace: float) -> None:
        """TERM now, KILL after ``grace`` seconds."""
        self._send(f"term {grace!r}")

    def kill(self) -> None:
        """KILL now."""
        self._send("kill")

    def reports(self) -> list[tuple[str, int]]:
        """What the guardian has said since the last call; sets `dead` at its end."""
        data = b""
        try:
            data = os.read(self.channel, 65536)
            self.dead = self.dead or not data
        except BlockingIOError:
            pass
        except OSError:
            self.dead = True
        *lines, self._unread = (self._unread + data).split(b"\n")
        words = [line.decode().partition(" ") for line in lines]
        return [(word, int(number or 0)) for word, _, number in words]

    def close(self, *, force: bool = False) -> None:
        """Close the channel and wait for the guardian, which kills what is left. ``force``: it does not answer."""
        if self.channel < 0:
            return
        os.close(self.channel)
        self.channel = -1
        if force:
            os.kill(self.pid, signal.SIGKILL)
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:  # reaped already, by a loop for orphans
            pass

    def _send(self, line: str) -> None:
        data = os.fsencode(line) + b"\n"
        try:
            self.dead = self.dead or os.write(self.channel, data) != len(data)
        except BlockingIOError:
            self.dead = True
        except OSError:
            pass  # it has ended, but may have said more before that: `reports` will come to the end of file


def launch(argv: Sequence[str], env: Mapping[str, str]) -> Guard:
    """Fork the guardian of a command. To be called while this process has one thread and holds nothing.

    It has a process group of its own (``kill -9 -PGID`` of the parent's job spares it), in the same session (or the
    command could not use the terminal), and ignores every signal that can be ignored.
    """
    ignored = _ignored()
    ours, theirs = _channel()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _serve(theirs, argv, env, ignored)
        try:
            os.setpgid(pid, pid)  # here too: whoever comes first
        except OSError:
            pass
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(theirs)
    return Guard(ours, pid)


def spawn(argv: Sequence[str], env: Mapping[str, str], *, output: int, directory: str | None = None) -> Guard:
    """The same for a process with threads, which must not go on in a fork of itself: the guardian is a program, 20 ms later.

    The command's stdin is empty, its stdout and stderr are ``output``; it starts in ``directory``. Raises OSError.
    """
    import subprocess

    ours, theirs = _channel()
    home = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 (pathlib imports slowly)
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, home, str(theirs), *argv],
            env=env,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[theirs],
            process_group=0,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    process.returncode = 0  # `Guard.close` waits for it
    return Guard(ours, process.pid)


_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from holdfast import _guard; _guard.program(*sys.argv[2:])"


def program(channel: str, *argv: str) -> NoReturn:
    """Of the process that `spawn` starts."""
    ignored = _ignored()
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    os.set_inheritable(int(channel), False)
    _serve(int(channel), argv, os.environ, ignored)


def _ignored() -> set[int]:
    """Python itself ignores PIPE and XFSZ. What else is ignored was somebody's wish, as with nohup, and stays so."""
    pythons = {signal.SIGPIPE, getattr(signal, "SIGXFSZ", signal.SIGPIPE)}
    return {s for s in _guardian.MASKABLE if s not in pythons and signal.getsignal(s) is signal.SIG_IGN}


def _channel() -> tuple[int, int]:
    import socket

    ours, theirs = (end.detach() for end in socket.socketpair())
    os.set_blocking(ours, False)
    os.set_blocking(theirs, False)
    return ours, theirs


def _serve(channel: int, argv: Sequence[str], env: Mapping[str, str], ignored: Collection[int]) -> NoReturn:
    """In the forked process: be the guardian, and never return into the parent's code."""
    try:
        os.setpgid(0, 0)
        wake = _guardian.retreat({channel})
        try:
            with open("/proc/self/comm", "w") as file:  # noqa: PTH123
                file.write("hf-guardian")  # `pkill -9 holdfast` means the parent
        except OSError:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _Guardian(channel, wake, argv, env, ignored).run()
    finally:
        os._exit(0)


class _Guardian:
    """The process itself. The protocol is described at `Guard`."""

    def __init__(self, channel: int, wake: int, argv: Sequence[str], env: Mapping[str, str], ignored: Collection[int]) -> None:
        self.channel, self.wake = channel, wake
        self.argv, self.env, self.ignored = argv, env, ignored
        self.group = _guardian.Group()
        self.term_at = self.kill_at = math.inf
        self.grace = 0.0
        self.doom = math.inf
        """When KILL follows the TERM that was sent, whatever becomes of the lease meanwhile."""
        self.settled_at = math.inf
        """When what outlives the command is sent TERM."""
        self.step = 0.005  # seconds between two looks at what outlives the command: nobody tells of its end
        self.killed = self.over = False
        self._unread = b""

    def run(self) -> None:
        """Serve until the group is gone, or until there is no parent and nothing to guard."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        poll.register(self.channel, select.POLLIN)
        while not self.over:
            for fd, _ in poll.poll(self._timeout() * 1000):
                if fd == self.wake:
                    _guardian.noted_signals(self.wake)
                elif not self._listen():
                    poll.unregister(self.channel)
                    self._kill()
                    self.over = not self.group.pid
            for signum in self.group.reap():
                self._tell(f"stopped {signum}")
            self._act(_guardian.clock())

    def _timeout(self) -> float:
        """Seconds until there is something to do, unless something happens before."""
        if self.settled_at < math.inf:
            self.step = min(self.step * 1.5, 0.1)
            return self.step
        due = min(self.kill_at, self.doom, self.term_at if self.doom == math.inf else math.inf)
        if self.killed or due == math.inf:
            return 60.0
        return min(max(due - _guardian.clock(), 0.0) + 0.0005, _POLL)

    def _act(self, now: float) -> None:
        """Do what is due."""
        group = self.group
        if not group.pid or self.over:
            return
        if group.status is not None and self.settled_at == math.inf:
            self._tell(f"failed {group.exec_errno}" if group.exec_errno else f"exited {group.status}")
            self.settled_at = now + SETTLE
        if group.status is not None and not _guardian.alive(group.pid):
            self._tell("gone")
            self.over = True
        elif self.killed:
            pass
        elif now >= min(self.kill_at, self.doom):
            if self.doom == math.inf:
                self._tell("ending")
            self._kill()
        elif self.doom == math.inf and now >= min(self.term_at, self.settled_at):
            self._tell("ending" if now >= self.term_at else "left")
            self._term(self.grace)

    def _listen(self) -> bool:
        """Obey what the parent has sent; False when there is no parent any more."""
        try:
            data = os.read(self.channel, 65536)
        except BlockingIOError:
            return True
        except OSError:  # reset: it ended without having read all of ours
            data = b""
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            word, _, rest = os.fsdecode(line).partition(" ")
            if word == "deadline":
                self.term_at, self.kill_at = map(float, rest.split())
            elif word == "start":
                self._start(*rest.split(" ", 2))
            elif word == "signal" and self.group.pid:
                _guardian.send(self.group.pid, int(rest))
            elif word == "term" and self.group.pid and self.doom == math.inf:
                self._term(float(rest))
            elif word == "kill":
                self._kill()
        return bool(data)

    def _start(self, foreground: str, grace: str, variables: str) -> None:
        self.grace = float(grace)
        if _guardian.clock() >= min(self.term_at, self.kill_at):  # the parent was stopped just after its acquire
            self._tell("late")
            self.over = True
            return
        env = {**self.env, **dict(variable.split("=", 1) for variable in variables.split(" "))}
        try:
            self.group.start(
                self.argv,
                env,
                announce=lambda pid: self._tell(f"pid {pid}"),
                tty=int(foreground) - 1,
                ignored=self.ignored,
            )
        except OSError as error:  # no process to be had
            self._tell(f"failed {error.errno}")
            self._tell("gone")
            self.over = True
        _guardian.empty_hands(0, 1, 2)

    def _term(self, grace: float) -> None:
        self.doom = _guardian.clock() + grace
        _guardian.send(self.group.pid, signal.SIGTERM)
        _guardian.send(self.group.pid, signal.SIGCONT)  # a stopped command could not obey

    def _kill(self) -> None:
        if self.group.pid and not self.killed:
            self.killed = True
            _guardian.send(self.group.pid, signal.SIGKILL)

    def _tell(self, line: str) -> None:
        try:
            os.write(self.channel, line.encode() + b"\n")
        except OSError:
            pass  # no parent, or one that has been stopped for very long: it will see the end of file
