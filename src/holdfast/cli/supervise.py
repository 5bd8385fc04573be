"""Supervise the command of ``holdfast run`` between acquire and release: its signals, its terminal and its lease.

The guardian (`holdfast._local.guardian.guardian`), a process of its own, starts the command. After each renewal, this process
sends the guardian the new end of the lease, and the guardian kills the command before that time. If the lease is lost, this
process has the guardian end the command at once. With ``--on-lost warn``, the command goes on without the lock. If the guardian
itself is killed or does not answer, this process kills the command and all its descendants.
"""

from __future__ import annotations

import errno
import math
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Protocol

from holdfast._core.struct import NamedTuple
from holdfast._local.guardian import program
from holdfast.cli.output import EX_LOST, EX_OSERR, EXHAUSTED
from holdfast.cli.terminal import STOPS, stop_job

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from holdfast._local.guardian.channel import GuardianChannel
    from holdfast.cli.terminal import Terminal

CONTINUED_WITHIN = 0.5
"""Seconds to wait for SIGCONT after this process was continued, because another thread may record the signal a little later."""

PATIENCE = 0.2
"""A guardian that has missed a deadline must answer a ping within this many seconds. Otherwise it is treated as dead."""

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
TWICE = 0.2
"""If a signal of `ENDING` arrives again within this many seconds, the second one counts as a copy and is not forwarded."""

EX_MAX_RUNTIME = 124


class Lease(Protocol):
    """The part of a lease's interface that the supervisor uses."""

    @property
    def fence(self) -> int: ...

    @property
    def lost(self) -> threading.Event:
        """An event that is set when the lease is lost."""

    def remaining(self) -> float:
        """Return the seconds until the lease ends, unless it is renewed before; 0 if it is lost."""

    def check(self) -> None: ...

    def renew(self) -> None: ...


class Interrupted(BaseException):
    """Raised by a signal that arrives before the command has started, so that it ends the wait for the lock."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class Signals:
    """Receiver of the signals to forward to the command. While ``raising`` is True, a signal raises `Interrupted` instead."""

    wake: int
    raising: bool

    def __init__(self) -> None:
        self.raising = False
        self._early: list[int] = []
        self.wake, tell = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(tell, False)
        signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
        for signum in FORWARDED:
            if signal.getsignal(signum) is not signal.SIG_IGN:  # a signal that the caller ignores, as nohup does, stays so
                signal.signal(signum, self._handle)
        signal.signal(signal.SIGCONT, program.noted)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if SIGCHLD were ignored, there would be no exit codes
        # While the command has the terminal under `stty tostop`, a message printed by this process must not stop it.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)

    def start_raising(self) -> None:
        """Let the next signal raise `Interrupted`. If a signal has arrived already, raise `Interrupted` at once."""
        self.raising = True
        if self._early:
            self.raising = False
            raise Interrupted(self._early[0])

    def take(self) -> bytes:
        """Return the numbers of the signals that arrived since the last call, as bytes."""
        return program.noted_signals(self.wake)

    def take_continued(self) -> bytes:
        """Return the signals that arrived since the last call, after this process was stopped and continued.

        Wait up to CONTINUED_WITHIN seconds for SIGCONT. If the process could not be stopped, the result has no SIGCONT.
        """
        taken, deadline = self.take(), program.clock() + CONTINUED_WITHIN
        while signal.SIGCONT not in taken and (left := deadline - program.clock()) > 0:
            select.select([self.wake], [], [], left)
            taken += self.take()
        return taken

    def _handle(self, signum: int, _frame: object) -> None:
        self._early.append(signum)
        if self.raising:
            self.raising = False  # only the first signal interrupts, so that the clean-up after it is not interrupted
            raise Interrupted(signum)


class CommandOptions(NamedTuple):
    """Settings of ``holdfast run`` that control how the command runs and is ended. Times are in seconds."""

    ttl: float
    kill_after: float
    on_lost: str
    max_runtime: float
    keep_daemons: bool = False
    fences: tuple[str, ...] = ("HOLDFAST_FENCE",)
    """Environment variables in which the command finds the fence."""

    @property
    def margin(self) -> float:
        """Seconds before the end of the lease at which SIGKILL is sent."""
        return program.kill_margin(self.ttl)


class CommandResult:
    """The outcome of one run of the command.

    ``cause``: reason why the supervisor ended the command; empty if the command ended by itself. ``status``: the wait status of
    the command; None if it was never started or its status is unknown.
    """

    def __init__(self) -> None:
        self.cause = ""
        self.status: int | None = None
        self.exec_errno = 0
        self.lost = False
        self.late = False
        """True if the lease expired before the command was started. The caller may then acquire the lock again."""
        self.borrowed_terminal = False

    def exit_code(self) -> int:
        if self.cause == "lost":
            return EX_LOST
        if self.cause == "max-runtime":
            return EX_MAX_RUNTIME
        if self.exec_errno:
            if self.exec_errno in EXHAUSTED:
                return EX_OSERR
            return 127 if self.exec_errno in {errno.ENOENT, errno.ENOTDIR} else 126
        if self.status is None:  # the guardian was killed, so the supervisor has killed the command
            return 128 + signal.SIGKILL
        return program.exit_code(self.status)

    def died_of(self, signum: int) -> bool:
        return self.status is not None and os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signum


class Supervisor:
    """The supervisor of one command under one lease. It forwards signals, and does what ``--on-lost`` says about a lost
    lease."""

    guardian: GuardianChannel
    lease: Lease
    signals: Signals
    terminal: Terminal
    terms: CommandOptions
    error: Callable[[str], None]
    notice: Callable[[str], None]
    result: CommandResult
    started: bool
    pid: int
    refused: bool
    confirmed: float
    kill_at: float
    doom: float
    overdue_at: float
    over: bool

    def __init__(
        self,
        *,
        guardian: GuardianChannel,
        signals: Signals,
        terminal: Terminal,
        lease: Lease,
        terms: CommandOptions,
        error: Callable[[str], None],
        notice: Callable[[str], None],
    ) -> None:
        self.guardian, self.signals, self.terminal, self.lease, self.terms = guardian, signals, terminal, lease, terms
        self.error, self.notice = error, notice
        self.result = CommandResult()
        self.pid = 0
        self.passed: dict[int, float] = {}
        """For each signal number, the monotonic time, in seconds, at which the signal was last forwarded to the command."""
        self.started = self.over = False
        self.refused = False
        """True once a message has reported a process that this user may not signal."""
        self.confirmed = -math.inf
        """End of the lease that was last sent to the guardian, in seconds of monotonic time."""
        self.kill_at = self.doom = math.inf
        """Monotonic times, in seconds, by which the guardian must have sent SIGKILL to the command; infinity: no such time.

        ``kill_at`` is shortly before the end of the lease. ``doom`` is the end of the grace time after a SIGTERM that the
        supervisor has requested.
        """
        self.overdue_at = math.inf

    def run(self) -> CommandResult:
        """Start the command, and return its outcome when all its processes, except kept daemons, have ended.

        If the lease expired before the start, return a result whose `late` is True.
        """
        signal.signal(signal.SIGTSTP, program.noted)  # otherwise Ctrl-Z would stop only this process
        self._start()
        if not self.over:
            self._watch()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        self.terminal.take_back()
        return self.result

    def _watch(self) -> None:
        # From here on, only the command has stdin and stdout open. When it closes stdout, the reader sees the end of file.
        program.empty_hands(0, 1)
        poll = select.poll()
        poll.register(self.signals.wake, select.POLLIN)
        poll.register(self.guardian, select.POLLIN)
        every = min(self.terms.ttl / 10, 0.25)
        while not self.over:
            due = self._second_line() - program.clock()
            poll.poll(1000 * (min(every, max(due, 0.01)) if due > -1 else every) + 1)
            self._forward(self.signals.take())
            while heard := self.guardian.reports():
                for report in heard:
                    if report.name or report.word in {"daemon", "refused", "stuck"}:
                        self._told_of(*report)
                    else:
                        getattr(self, f"_heard_{report.word}")(report.number)
            if self.guardian.dead and not self.over:
                self._unguarded()
            if not self.over:
                self.guardian.look_after_orphans()
                self._look_at_lease()
                self._look_at_clock(program.clock())
                self.guardian.ask(self.terms.ttl / 12)

    def _start(self) -> None:
        # A lease that was handed over by another holder is short at first, perhaps too short to start the command.
        if 0 < self.lease.remaining() < 0.9 * self.terms.ttl:
            self.lease.renew()
        self._look_at_lease()
        if self.result.lost or (self.confirmed == -math.inf and self.terms.on_lost != "warn"):
            self._heard_late()
            return
        self.result.borrowed_terminal = self.terminal.at_once and self.terminal.ours()
        self.guardian.start(
            " ".join(f"{name}={self.lease.fence}" for name in self.terms.fences),
            grace=self.terms.kill_after,
            foreground=self.result.borrowed_terminal,
            keep_daemons=self.terms.keep_daemons,
        )
        self.started = True
        self.overdue_at = program.clock() + self.terms.max_runtime

    def _forward(self, signals: bytes) -> None:
        """Forward signals to the command. If a terminating signal comes twice within `TWICE` seconds, forward it only once.

        timeout(1) sends its signal to this process and also to the process group, so the signal comes twice. Many commands
        would end without cleaning up after a second signal.
        """
        now = program.clock()
        for signum in signals:
            if now >= self.passed.get(signum, -math.inf) + TWICE or signum not in ENDING:
                self.passed[signum] = now
                self.guardian.signal(signum)

    # Handlers of the guardian's reports, which the class `GuardianChannel` lists.

    def _heard_pid(self, pid: int) -> None:
        self.pid = pid
        self.terminal.lent_to = pid if self.result.borrowed_terminal else 0

    def _heard_failed(self, error: int) -> None:
        self.result.exec_errno = error

    def _heard_exited(self, status: int) -> None:
        self.result.status = status

    def _heard_stopped(self, signum: int) -> None:
        """Handle a stop of the command. If the terminal caused it (Ctrl-Z), stop this process's own group, so that the shell
        notices."""
        if signum not in STOPS:
            return  # kill -STOP by another process, which continues the command itself
        if signum != signal.SIGTSTP and self.terminal.lend(self.pid):
            self.guardian.signal(signal.SIGCONT)  # the command was in the background and needed the terminal
            return
        wants_it = self.terminal.lent_to != 0 or signum != signal.SIGTSTP
        self.terminal.take_back()
        stop_job(signum)
        since = self.signals.take_continued()
        if signal.SIGCONT not in since and signum != signal.SIGTSTP:
            # No shell can stop our group or bring it to the foreground, because it is orphaned. The command gets SIGHUP, which
            # the kernel would send to a stopped orphaned group.
            self.guardian.signal(signal.SIGHUP)
        if wants_it:
            self.terminal.lend(self.pid)
        self._forward(since.replace(bytes([signal.SIGCONT]), b""))
        self.guardian.signal(signal.SIGCONT)

    def _heard_late(self, _: int = 0) -> None:
        """Handle the report that the lease expired before the command was started. The caller may acquire the lock again."""
        self.result.late = self.over = True

    def _heard_ending(self, _: int = 0) -> None:
        self._end("lost", "the lease could not be renewed in time; the command was ended before the lease expires")

    def _heard_left(self, _: int) -> None:
        if not self.result.cause:
            self.notice(f"the command left {'other ' if self.refused else ''}processes behind; they were sent TERM")

    def _heard_gone(self, _: int) -> None:
        self.over = True

    def _told_of(self, word: str, pid: int, name: str) -> None:
        """Print what the guardian reports about one process. If ``pid`` is 0, it is about all other processes of this name.

        ``word``: kind of the report, such as "stuck".
        """
        name = name or "of unknown name"
        who = f"process {pid} ({name})"
        if word == "refused":
            self.refused = True
        if pid == 0:
            if word == "refused":
                self.error(f"more processes ({name}) were not signalled; they are not listed")
            elif word == "stuck":
                self.error(f"more processes ({name}) have not ended after KILL; they are not listed")
            elif not self.result.cause:
                self.notice(f"the command left more daemons behind ({name}); they were sent TERM and are not listed")
        elif word == "refused":
            self.error(f"{who} was not signalled, because it belongs to another user; waiting for it to end")
        elif word == "stuck":
            self.error(f"{who} has not ended after KILL: it hangs in the kernel, or is traced; waiting for it to end")
        elif not self.result.cause:
            hint = "" if self.terms.keep_daemons else " (--keep-daemons leaves it alone)"
            self.notice(f"the command left a daemon behind, {who}; it was sent TERM{hint}")

    # Checks of the lease, the clock and the guardian.

    def _end(self, cause: str, why: str) -> None:
        """Record and print why the command is being ended. After the first call, do nothing.

        ``cause``: word for `CommandResult.cause`, such as "lost". ``why``: message to print.
        """
        if not self.result.cause:
            self.result.cause = cause
            self.error(why)

    def _look_at_lease(self) -> None:
        """If the lease was renewed, send the guardian its new end. If the lease is lost, do what ``--on-lost`` says.

        With ``--on-lost warn``, the guardian gets no end of the lease.
        """
        if self.result.lost:
            return
        now = program.clock()  # read before remaining(), so that a delay in between makes the deadline early, not late
        remaining = self.lease.remaining()
        if self.lease.lost.is_set():
            self.result.lost = True
            if self.started:
                self._lost(now)
        elif self.started and self.guardian.asked < math.inf:
            pass  # a guardian that does not answer may be stopped, so only the last deadline that it knows counts
        elif remaining > 0 and self.terms.on_lost != "warn" and now + remaining > self.confirmed + 0.005:
            self.confirmed = now + remaining
            self.kill_at = self.confirmed - self.terms.margin
            kill = self.terms.on_lost == "kill"
            self.guardian.deadline(math.inf if kill else self.confirmed - self.terms.kill_after, self.kill_at)

    def _why_lost(self) -> str:
        try:
            self.lease.check()
        except Exception as error:  # noqa: BLE001 (any exception is the reason)
            return str(error)
        return "the lock was lost"

    def _lost(self, now: float) -> None:
        reason = self._why_lost()
        if self.terms.on_lost == "warn":
            self.notice(f"{reason}; the command goes on without the lock")
        elif self.terms.on_lost == "kill":
            self._end("lost", f"{reason}; the command was sent KILL")
            self.doom = now
            self.guardian.kill()
        else:
            self._end("lost", f"{reason}; the command was sent TERM")
            self._term(now)

    def _term(self, now: float) -> None:
        self.doom = min(self.doom, now + self.terms.kill_after)
        self.guardian.term(self.terms.kill_after)

    def _second_line(self) -> float:
        """Return the monotonic time, in seconds, at which this process kills the command if the guardian does not answer."""
        if not self.pid:  # a guardian that is late starts no command, so nothing has to be ended
            return self.guardian.asked + 3 * self.terms.ttl
        return min(self.kill_at + self.terms.margin / 2, self.doom + 0.5, self.guardian.asked + self.terms.ttl)

    def _look_at_clock(self, now: float) -> None:
        if now >= self.overdue_at:
            self.overdue_at = math.inf
            self._end("max-runtime", f"the command still ran after {self.terms.max_runtime:g} s; it was sent TERM")
            self._term(now)
        if now < self._second_line():
            return
        if self.pid:
            program.send(self.pid, signal.SIGKILL)
        if now >= self.guardian.asked + PATIENCE:
            what = "was killed" if self.pid else "was not started"
            self._end("lost", f"the guardian process does not answer: the command {what}")
            self._unguarded()
        elif now >= self.kill_at:
            self._heard_ending()
        self.guardian.ask(0.0)

    def _unguarded(self) -> None:
        """Kill the command and its descendants, because the guardian is dead or does not answer.

        If this process were killed now, nothing would end the command.
        """
        self._end("unguarded", "the guardian process has died: the command was killed")
        while not self.over:
            try:
                self.guardian.take_over(self._told_of)
                self.over = True
            except Exception as error:  # noqa: BLE001 (the lock must not be released while the command lives)
                self.error(f"cannot end the command yet, trying again: {error!r}")
                time.sleep(1)
        if self.lease.lost.is_set() and not self.result.lost:
            self.result.lost = True
            self.result.cause = "lost"
            self.error(f"{self._why_lost()}; this was before all processes of the command had ended")
