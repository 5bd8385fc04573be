"""While the command runs: its signals, its terminal, its lease. The part of ``holdfast run`` between acquire and release.

The guardian (`holdfast._local.guardian.parent`) starts the command and ends it in time. This side tells it how long the lease
lasts, decides what a loss means, and stands behind it: should the guardian itself be killed or stopped, the command and all its
descendants are killed from here.
"""

from __future__ import annotations

import errno
import math
import os
import select
import signal
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast._local.guardian import program
from holdfast.cli.output import EX_LOST, EX_OSERR, EXHAUSTED
from holdfast.cli.terminal import STOPS, stop_job

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from holdfast._local.guardian.parent import Guard
    from holdfast.cli.terminal import Terminal

CONTINUED_WITHIN = 0.5
"""Seconds in which SIGCONT has been noted, if that is why we go on."""

PATIENCE = 0.2
"""Seconds that a guardian has to give a sign of life when its time to act has passed."""

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
TWICE = 0.2
"""Seconds in which a second signal of these is the same one."""

EX_MAX_RUNTIME = 124


class Lease(Protocol):
    """A lease, as it is needed here."""

    @property
    def fence(self) -> int:
        """Its number."""

    @property
    def lost(self) -> threading.Event:
        """Set when it is lost."""

    def remaining(self) -> float:
        """Seconds."""

    def check(self) -> None:
        """Raise if lost."""

    def renew(self) -> None:
        """Have the full time again."""


class Interrupted(BaseException):
    """A signal came while there was no command yet to pass it on to."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class Signals:
    """The signals that are passed on: read from a descriptor, or raised as `Interrupted` while `raising`."""

    def __init__(self) -> None:
        self.raising = False
        self._early: list[int] = []
        self.wake, tell = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(tell, False)
        signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
        for signum in FORWARDED:
            if signal.getsignal(signum) is not signal.SIG_IGN:  # ignored by somebody's wish, as with nohup
                signal.signal(signum, self._handle)
        signal.signal(signal.SIGCONT, program.noted)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, there would be no exit codes
        # The command may have the terminal with `stty tostop` while we have something to say: we must not be stopped.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)

    def start_raising(self) -> None:
        """From now on a signal interrupts; so does one that has come already."""
        self.raising = True
        if self._early:
            self.raising = False
            raise Interrupted(self._early[0])

    def take(self) -> bytes:
        """Numbers of the signals since the last call."""
        return program.noted_signals(self.wake)

    def take_continued(self) -> bytes:
        """The same after a stop, with SIGCONT, unless nobody could stop us: the kernel may give it to another thread, which
        notes it a little later."""
        taken, deadline = self.take(), program.clock() + CONTINUED_WITHIN
        while signal.SIGCONT not in taken and (left := deadline - program.clock()) > 0:
            select.select([self.wake], [], [], left)
            taken += self.take()
        return taken

    def _handle(self, signum: int, _frame: object) -> None:
        self._early.append(signum)
        if self.raising:
            self.raising = False  # once: what follows is clean-up
            raise Interrupted(signum)


class Terms(NamedTuple):
    """On what terms the command runs; times in seconds."""

    ttl: float
    kill_after: float
    on_lost: str
    max_runtime: float
    keep_daemons: bool = False
    fences: tuple[str, ...] = ("HOLDFAST_FENCE",)
    """Under which names its environment has the fence."""

    @property
    def margin(self) -> float:
        """How long before the end of the lease KILL is sent."""
        return program.kill_margin(self.ttl)


class Result:
    """How it ended. ``cause``: why we ended it, or empty; ``status``: wait status, None if never started or unknown."""

    def __init__(self) -> None:
        self.cause = ""
        self.status: int | None = None
        self.exec_errno = 0
        self.lost = False
        self.late = False
        """The command was not started, because the lease had run out before: ask for the lock again."""
        self.borrowed_terminal = False

    def exit_code(self) -> int:
        """The exit code for it."""
        if self.cause == "lost":
            return EX_LOST
        if self.cause == "max-runtime":
            return EX_MAX_RUNTIME
        if self.exec_errno:
            if self.exec_errno in EXHAUSTED:
                return EX_OSERR
            return 127 if self.exec_errno in {errno.ENOENT, errno.ENOTDIR} else 126
        if self.status is None:  # the guardian was killed, and we killed the command
            return 128 + signal.SIGKILL
        return program.exit_code(self.status)

    def died_of(self, signum: int) -> bool:
        """Whether the command was ended by this signal."""
        return self.status is not None and os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signum


class Supervisor:
    """Runs one command under one lease."""

    def __init__(
        self,
        *,
        guard: Guard,
        signals: Signals,
        terminal: Terminal,
        lease: Lease,
        terms: Terms,
        error: Callable[[str], None],
        notice: Callable[[str], None],
    ) -> None:
        self.guard, self.signals, self.terminal, self.lease, self.terms = guard, signals, terminal, lease, terms
        self.error, self.notice = error, notice
        self.result = Result()
        self.pid = 0
        self.passed: dict[int, float] = {}
        """When a signal was passed on last."""
        self.started = self.over = False
        self.refused = False
        """Some process may not be signalled, and was named."""
        self.confirmed = -math.inf
        """End of the lease as last told to the guardian."""
        self.kill_at = self.doom = math.inf
        """When the guardian has to have sent KILL: because of the lease, and because we asked for TERM."""
        self.overdue_at = math.inf

    def run(self) -> Result:
        """Start the command, return when all of its group is gone."""
        signal.signal(signal.SIGTSTP, program.noted)  # before the start: or it would stop us and not the command
        self._start()
        if not self.over:
            self._watch()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        self.terminal.take_back()
        return self.result

    def _watch(self) -> None:
        # From here the command's copies are the only ones: if it closes its stdout, who reads that sees the end.
        program.empty_hands(0, 1)
        poll = select.poll()
        poll.register(self.signals.wake, select.POLLIN)
        poll.register(self.guard, select.POLLIN)
        every = min(self.terms.ttl / 10, 0.25)
        while not self.over:
            due = self._second_line() - program.clock()
            poll.poll(1000 * (min(every, max(due, 0.01)) if due > -1 else every) + 1)
            self._forward(self.signals.take())
            while heard := self.guard.reports():
                for report in heard:
                    if report.name or report.word in {"daemon", "refused", "stuck"}:
                        self._told_of(*report)
                    else:
                        getattr(self, f"_heard_{report.word}")(report.number)
            if self.guard.dead and not self.over:
                self._unguarded()
            if not self.over:
                self.guard.look_after_orphans()
                self._look_at_lease()
                self._look_at_clock(program.clock())
                self.guard.ask(self.terms.ttl / 12)

    def _start(self) -> None:
        # A lease that another holder has handed over is short at first, and may be too short to begin with.
        if 0 < self.lease.remaining() < 0.9 * self.terms.ttl:
            self.lease.renew()
        self._look_at_lease()
        if self.result.lost or (self.confirmed == -math.inf and self.terms.on_lost != "warn"):
            self._heard_late()
            return
        self.result.borrowed_terminal = self.terminal.at_once and self.terminal.ours()
        self.guard.start(
            " ".join(f"{name}={self.lease.fence}" for name in self.terms.fences),
            grace=self.terms.kill_after,
            foreground=self.result.borrowed_terminal,
            keep_daemons=self.terms.keep_daemons,
        )
        self.started = True
        self.overdue_at = program.clock() + self.terms.max_runtime

    def _forward(self, signals: bytes) -> None:
        """timeout(1) sends each signal twice, to us and to our group; for many commands a second one means: at once."""
        now = program.clock()
        for signum in signals:
            if now >= self.passed.get(signum, -math.inf) + TWICE or signum not in ENDING:
                self.passed[signum] = now
                self.guard.signal(signum)

    # Reports of the guardian: see `Guard`.

    def _heard_pid(self, pid: int) -> None:
        self.pid = pid
        self.terminal.lent_to = pid if self.result.borrowed_terminal else 0

    def _heard_failed(self, error: int) -> None:
        self.result.exec_errno = error

    def _heard_exited(self, status: int) -> None:
        self.result.status = status

    def _heard_stopped(self, signum: int) -> None:
        """The command was stopped. If by the terminal, the shell must learn of it: our whole job stops, too."""
        if signum not in STOPS:
            return  # somebody's kill -STOP: theirs to continue
        if signum != signal.SIGTSTP and self.terminal.lend(self.pid):
            self.guard.signal(signal.SIGCONT)  # it was in the background, and wanted the terminal
            return
        wants_it = self.terminal.lent_to != 0 or signum != signal.SIGTSTP
        self.terminal.take_back()
        stop_job(signum)
        since = self.signals.take_continued()
        if signal.SIGCONT not in since and signum != signal.SIGTSTP:
            # Nobody can stop us, nor give us the terminal: what the kernel does with such a group.
            self.guard.signal(signal.SIGHUP)
        if wants_it:
            self.terminal.lend(self.pid)
        self._forward(since.replace(bytes([signal.SIGCONT]), b""))
        self.guard.signal(signal.SIGCONT)

    def _heard_late(self, _: int = 0) -> None:
        """Not an end: nothing has run, so the caller may ask for the lock again."""
        self.result.late = self.over = True

    def _heard_ending(self, _: int = 0) -> None:
        self._end("lost", "the lease could not be renewed in time: the command was ended before it runs out")

    def _heard_left(self, _: int) -> None:
        if not self.result.cause:
            self.notice(f"the command left {'other ' if self.refused else ''}processes behind; they were sent TERM")

    def _heard_gone(self, _: int) -> None:
        self.over = True

    def _told_of(self, word: str, pid: int, name: str) -> None:
        """A line for one process, or for all further ones of a name."""
        name = name or "of unknown name"
        who = f"process {pid} ({name})"
        if word == "refused":
            self.refused = True
        if pid == 0:  # for all further ones
            if word == "refused":
                self.error(f"more processes ({name}) were not signalled; they are not listed")
            elif word == "stuck":
                self.error(f"more processes ({name}) have not ended after KILL; they are not listed")
            elif not self.result.cause:
                self.notice(f"the command left more daemons behind ({name}); they were sent TERM and are not listed")
        elif word == "refused":
            self.error(f"{who} was not signalled, since it is another user's; waiting for its end")
        elif word == "stuck":
            self.error(f"{who} has not ended after KILL: it hangs in the kernel, or is traced; waiting for its end")
        elif not self.result.cause:
            hint = "" if self.terms.keep_daemons else " (--keep-daemons leaves it alone)"
            self.notice(f"the command left a daemon behind, {who}; it was sent TERM{hint}")

    # Our own findings.

    def _end(self, cause: str, why: str) -> None:
        """Take note of why the command is ended: the first reason counts."""
        if not self.result.cause:
            self.result.cause = cause
            self.error(why)

    def _look_at_lease(self) -> None:
        """Tell the guardian of every renewal, and find out about a loss."""
        if self.result.lost:
            return
        now = program.clock()  # before remaining(): what passes in between makes the deadline early, not late
        remaining = self.lease.remaining()
        if self.lease.lost.is_set():
            self.result.lost = True
            if self.started:
                self._lost(now)
        elif self.started and self.guard.asked < math.inf:
            pass  # a guardian that gives no sign of life may be stopped: what it knows of the lease is what counts
        elif remaining > 0 and self.terms.on_lost != "warn" and now + remaining > self.confirmed + 0.005:
            self.confirmed = now + remaining
            self.kill_at = self.confirmed - self.terms.margin
            kill = self.terms.on_lost == "kill"
            self.guard.deadline(math.inf if kill else self.confirmed - self.terms.kill_after, self.kill_at)

    def _why_lost(self) -> str:
        try:
            self.lease.check()
        except Exception as error:  # noqa: BLE001 (whatever it is, it is the reason)
            return str(error)
        return "the lock was lost"

    def _lost(self, now: float) -> None:
        reason = self._why_lost()
        if self.terms.on_lost == "warn":
            self.notice(f"{reason}; the command runs on, without the lock")
        elif self.terms.on_lost == "kill":
            self._end("lost", f"{reason}; the command was sent KILL")
            self.doom = now
            self.guard.kill()
        else:
            self._end("lost", f"{reason}; the command was sent TERM")
            self._term(now)

    def _term(self, now: float) -> None:
        self.doom = min(self.doom, now + self.terms.kill_after)
        self.guard.term(self.terms.kill_after)

    def _second_line(self) -> float:
        """When to act in the guardian's place: should it not have done so, it is stopped or starved."""
        if not self.pid:  # a guardian that is late starts nothing, and the lock is asked for again: it need not be ended
            return self.guard.asked + 3 * self.terms.ttl
        return min(self.kill_at + self.terms.margin / 2, self.doom + 0.5, self.guard.asked + self.terms.ttl)

    def _look_at_clock(self, now: float) -> None:
        if now >= self.overdue_at:
            self.overdue_at = math.inf
            self._end("max-runtime", f"still running after {self.terms.max_runtime:g} s: sent TERM")
            self._term(now)
        if now < self._second_line():
            return
        if self.pid:
            program.send(self.pid, signal.SIGKILL)
        if now >= self.guard.asked + PATIENCE:
            what = "was killed" if self.pid else "was not started"
            self._end("lost", f"the guardian process does not answer: the command {what}")
            self._unguarded()
        elif now >= self.kill_at:
            self._heard_ending()
        self.guard.ask(0.0)

    def _unguarded(self) -> None:
        """The guardian is gone, or good for nothing. Nobody would end the command if we were killed: so it ends now."""
        self._end("unguarded", "the guardian process has died: the command was killed")
        while not self.over:
            try:
                self.guard.take_over(self._told_of)
                self.over = True
            except Exception as error:  # noqa: BLE001 (whatever it is, the lock is not given back beside a living command)
                self.error(f"cannot end the command yet: {error!r}")
                time.sleep(1)
        if self.lease.lost.is_set() and not self.result.lost:
            self.result.lost = True
            self.result.cause = "lost"
            self.error(f"{self._why_lost()}; that was before all processes of the command had ended")
