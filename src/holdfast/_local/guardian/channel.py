"""The owner's side of the channel to a guardian: start the guardian of a command, and send it the end of each lease.

`launch` forks the guardian (`holdfast._local.guardian.guardian`), and `spawn` starts it as a program. After each renewal, the
owner sends the guardian the new end of the lease. If no message comes in time, the guardian ends the command by itself. That
happens when the server is unreachable, or when the owner hangs or is stopped. So the command has ended before another client
can hold the lock.
"""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from holdfast._local.guardian import descendants, guardian
from holdfast._local.guardian import program as guardian_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class GuardianReport(NamedTuple):
    """One message from a guardian: a word, such as "exited", and what follows it.

    The docstring of `GuardianChannel` lists the words.
    """

    word: str
    number: int = 0
    name: str = ""


class GuardianChannel:
    """The owner's end of the channel to a guardian. Only `take_over` and `close` block.

    Each message is a line. Times are seconds of `_local.guardian.program.clock`.

    Messages to the guardian: ``deadline TERM_AT KILL_AT``, ``start FOREGROUND GRACE KEEP_DAEMONS NAME=VALUE ...``, ``signal
    N``, ``term GRACE``, ``kill``, ``ping``.

    Messages from the guardian:

    * ``pid N``, ``failed ERRNO``, ``stopped SIGNAL``, ``exited STATUS`` (the state of the command)
    * ``pong`` (the answer to ``ping``)
    * ``late`` (not started, because the deadline had passed; a new deadline and ``start`` may follow)
    * ``ending`` (the deadline passed, and TERM or KILL was sent), ``gone`` (all descendants have ended)
    * ``left`` (processes that outlive the command were sent TERM), ``daemon PID NAME`` (one of them is a daemon)
    * ``refused PID NAME`` (a process that may not be signalled), ``stuck PID NAME`` (a process that survives KILL)

    At most `guardian.NAMED` processes of the same NAME are reported with their PIDs. All further ones are reported together,
    with PID 0.
    """

    orphans: descendants.Orphans | None
    pid: int
    asked: float
    channel: int
    dead: bool

    def __init__(self, channel: int, pid: int, orphans: descendants.Orphans | None, stuck: int = -1) -> None:
        """Store the file descriptor of the channel to a guardian, and the guardian's pid.

        ``orphans``: object that kills the guardian's descendants if the guardian is killed. None: the program that forked the
        guardian kills them, and reports survivors through the pipe with the file descriptor ``stuck``.
        """
        self.channel, self.pid, self.orphans, self._stuck = channel, pid, orphans, stuck
        self.dead = False
        """True if the guardian has ended, or has not read its messages for very long. The command could then outlive the
        lease."""
        self.asked = math.inf
        """Time of the unanswered ``ping`` to the guardian, in seconds of `program.clock`; infinity if no ping is unanswered."""
        self._answered = -math.inf
        self._group = 0
        self._reaped = False
        """True if `take_over` has reaped the guardian, so that its pid may belong to another process."""
        self._unread = b""

    def fileno(self) -> int:
        """Return the file descriptor for select. It is readable when `reports` has something to return."""
        return self.channel

    def deadline(self, term_at: float, kill_at: float) -> None:
        """Have the guardian send TERM and KILL to the command at these times, in seconds of `program.clock`.

        A later call changes the times.
        """
        self._send(f"deadline {term_at!r} {kill_at!r}")

    def start(self, variables: str, *, grace: float, foreground: bool = False, keep_daemons: bool = False) -> None:
        """Have the guardian start the command.

        ``variables``: ``NAME=VALUE`` pairs for the command's environment, separated by spaces. ``foreground``: whether the
        command's process group becomes the foreground group of the terminal on stdin. ``grace``: seconds from TERM to KILL, if
        the guardian ends the command by itself. ``keep_daemons``: whether the command's daemons are kept when it ends normally.
        """
        if self.orphans is not None:
            self.orphans.note(self.pid, probe=True)
        self._send(f"start {foreground:d} {grace!r} {keep_daemons:d} {variables}")

    def signal(self, signum: int) -> None:
        self._send(f"signal {int(signum)}")

    def term(self, grace: float) -> None:
        """Have the guardian send TERM now, and KILL after ``grace`` seconds."""
        self._send(f"term {grace!r}")

    def kill(self) -> None:
        self._send("kill")

    def ask(self, every: float) -> None:
        """Send a ping to the guardian if its last message is older than ``every`` seconds.

        The attribute `asked` then has the time of the ping, until any message arrives. A guardian that does not answer, because
        it is stopped or gets no processor time, could let the command outlive its lease.
        """
        now = guardian_program.clock()
        if self.asked == math.inf and now >= self._answered + every:
            self.asked = now
            self._send("ping")

    def reports(self) -> list[GuardianReport]:
        """Return the messages from the guardian since the last call. Set `dead` if the guardian has closed the channel."""
        data = b""
        try:
            data = os.read(self.channel, 65536)
            self.dead = self.dead or not data
        except BlockingIOError:
            pass
        except OSError:
            self.dead = True
        *lines, self._unread = (self._unread + data).split(b"\n")
        words = [line.decode(errors="replace").split(" ", 2) for line in lines]
        reports = [GuardianReport(word, int(rest[0]) if rest else 0, rest[1] if rest[1:] else "") for word, *rest in words]
        if reports:  # any message counts as an answer, because a guardian that was stopped reads the ping only after other work
            self.asked, self._answered = math.inf, guardian_program.clock()
        for report in reports:
            if report.word == "pid":
                self._group = report.number
                leader = descendants.read_process(self._group) if self.orphans is not None and descendants.own_proc() else None
                if self.orphans is not None and leader is not None:
                    self.orphans.since = leader.started
        return [report for report in reports if report.word != "pong"]

    def look_after_orphans(self) -> None:
        """Reap children of this process that are not descendants of the command. Call this regularly while the guardian
        lives."""
        if self.orphans is not None and not self.dead:
            self.orphans.note(self.pid)

    def take_over(self, tell: Callable[[str, int, str], None]) -> None:
        """Kill the guardian and all descendants of the command, and wait until they have ended.

        Call this when the guardian is dead or does not answer. ``tell(kind, pid, name)`` is called for each process that does
        not end. ``kind`` is "refused" if it may not be signalled, and "stuck" if it survives KILL.
        """
        if self.orphans is not None:
            self.orphans.end(self.pid, lambda word, process: tell(word, process.pid, process.name()))
            self._reaped = True
            while self._group and not self.orphans.subreaper and guardian_program.alive(self._group):
                guardian_program.send(self._group, signal.SIGKILL)
                time.sleep(0.01)
        elif self.channel >= 0:
            self._send_child(signal.SIGTERM, signal.SIGCONT)
            self._hear_stuck(tell)
        self.dead = True
        self.close()

    def close(self) -> None:
        """Close the channel and wait until the guardian has killed the remaining processes and ended."""
        if self.channel < 0:
            return
        os.close(self.channel)
        self.channel = -1
        if self._stuck >= 0:
            os.close(self._stuck)
        if self._reaped:
            return
        try:
            self._send_child(signal.SIGCONT)  # the guardian may be stopped, and must run to end
            os.waitpid(self.pid, 0)
        except ChildProcessError:  # reaped by other code, as in `_send_child`
            pass

    def _hear_stuck(self, tell: Callable[[str, int, str], None]) -> None:
        """Pass the lines about processes that do not end to ``tell``, until the guardian's program has ended.

        The end of file is not awaited, because a fork of this process may hold the pipe open.
        """
        poll = select.poll()
        poll.register(self._stuck, select.POLLIN)
        os.set_blocking(self._stuck, False)
        unread, ended = b"", False
        while not ended:
            poll.poll(50)
            ended = descendants.has_ended(self.pid)
            try:
                data = os.read(self._stuck, 65536)
            except BlockingIOError:
                continue
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                word, pid, name = line.decode(errors="replace").split(" ", 2)
                tell(word, int(pid), name)
            ended = ended or not data

    def _send_child(self, *signals: int) -> None:
        """Send signals to the child process: the guardian, or the program that forked it.

        If the child has been reaped, nothing is sent, because its pid may belong to another process. The kernel reaps it if
        this process ignores SIGCHLD, and other code that waits for any child may reap it.
        """
        for signum in signals:
            if descendants.is_child(self.pid):
                os.kill(self.pid, signum)

    def _send(self, line: str) -> None:
        data = os.fsencode(line) + b"\n"
        try:
            self.dead = self.dead or os.write(self.channel, data) != len(data)
        except BlockingIOError:
            self.dead = True
        except OSError:
            pass  # the guardian has ended, but `reports` may still have to read its last messages


def launch(argv: Sequence[str], env: Mapping[str, str]) -> GuardianChannel:
    """Fork the guardian of a command. Call this while the process has only one thread and holds no lock.

    The guardian is in a process group of its own, so that a SIGKILL to this process's group does not kill it. It stays in the
    session of this process, so that the command can use the terminal.
    """
    ignored = guardian.ignored_signals()
    orphans = descendants.Orphans()
    ours, theirs = _channel()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            guardian.serve(theirs, argv, env, ignored)
        try:
            os.setpgid(pid, pid)  # the child does this, too; the first of the two calls counts
        except OSError:
            pass
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(theirs)
    return GuardianChannel(ours, pid, orphans)


def spawn(argv: Sequence[str], env: Mapping[str, str], *, output: int, directory: str | None = None) -> GuardianChannel:
    """Start the guardian as a new program, for a process that has threads and therefore must not fork without exec.

    This takes 20 ms longer than `launch`. The command's stdin is empty. ``output``: file descriptor of its stdout and stderr.
    ``directory``: its working directory; None: that of this process. Raises OSError if the program cannot be started.
    """
    import subprocess

    ours, theirs = _channel()
    stuck, tell = os.pipe()
    home = os.path.abspath(f"{__file__}/../../../..")  # noqa: PTH100 (pathlib imports slowly)
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, home, str(theirs), str(tell), *argv],
            env=env,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[theirs, tell],
            process_group=0,
        )
    except BaseException:
        os.close(ours)
        os.close(stuck)
        raise
    finally:
        os.close(theirs)
        os.close(tell)
    process.returncode = 0  # `GuardianChannel.close` waits for the process
    return GuardianChannel(ours, process.pid, None, stuck)


_PROGRAM = """
import sys
sys.path.append(sys.argv[1])
from holdfast._local.guardian import guardian
guardian.main(*sys.argv[2:])
"""


def _channel() -> tuple[int, int]:
    import socket

    ours, theirs = (end.detach() for end in socket.socketpair())
    os.set_blocking(ours, False)
    os.set_blocking(theirs, False)
    return ours, theirs
