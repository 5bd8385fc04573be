"""The guardian of a command: a process that starts the command and kills it before the lease ends, unless the lease is renewed.

`serve` runs the guardian in a forked process. `main` is the program that `spawn` in `holdfast._local.guardian.channel` starts.
The program has one thread, and forks the guardian. The docstring of `GuardianChannel` in that module lists the messages.
"""

from __future__ import annotations

import collections
import math
import os
import select
import signal
import time
from typing import TYPE_CHECKING

from holdfast._local.guardian import descendants
from holdfast._local.guardian import program as guardian_program

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import NoReturn

SETTLE = 0.5
"""Seconds after the end of the command until the processes that outlive it are sent TERM.

Some of them, such as ``tee`` at the end of a pipe, end by themselves in this time.
"""

_POLL = 0.25
"""Maximum seconds between two checks, because timers of poll() stop while the machine sleeps, and leases do not."""
_STEP = 0.003
"""Seconds between two checks of ending processes, at first."""

NAMED = 10
"""Maximum number of processes of one name that are reported singly. One more report stands for all others of that name."""


def main(channel: str, stuck: str, *argv: str) -> NoReturn:
    """Run the program that `channel.spawn` starts.

    Fork the guardian, wait until it has ended, and kill its remaining descendants.

    ``channel``: file descriptor of the guardian's end of the channel. ``argv``: the command.

    For each descendant that survives, write a line to the file descriptor ``stuck``: ``refused PID NAME`` if it may not be
    signalled, ``stuck PID NAME`` if it survives KILL. The program exits only when all descendants have ended.
    """

    def tell(word: str, process: descendants.OsProcess) -> None:
        try:
            os.write(int(stuck), f"{word} {process.pid} {process.name()}".replace("\n", "?").encode() + b"\n")
        except OSError:  # nobody reads the pipe
            pass

    ignored = ignored_signals()
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    os.set_inheritable(int(channel), False)
    os.set_blocking(int(stuck), False)
    orphans = descendants.Orphans()
    guardian = os.fork()
    if guardian == 0:
        serve(int(channel), argv, os.environ, ignored)
    try:
        guardian_program.rename()
        wake = guardian_program.retreat({int(stuck)})
        signal.signal(signal.SIGTERM, guardian_program.noted)  # by SIGTERM, `GuardianChannel.take_over` asks to end all
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        guardian_program.empty_hands(0, 1, 2)
        told = False
        while True:
            try:
                told = told or signal.SIGTERM in guardian_program.noted_signals(wake)
                if told or descendants.has_ended(guardian):
                    orphans.end(guardian, tell)
                    break
                orphans.note(guardian)
                select.select([wake], [], [])
            except Exception:  # noqa: BLE001 (no other process would end what the guardian has left)
                time.sleep(1)
    finally:
        os._exit(0)


def ignored_signals() -> set[int]:
    """Return the signals that this process ignores, as under nohup. The command must ignore them, too.

    SIGPIPE and SIGXFSZ are left out, because Python itself ignores them.
    """
    pythons = {signal.SIGPIPE, getattr(signal, "SIGXFSZ", signal.SIGPIPE)}
    return {s for s in guardian_program.MASKABLE if s not in pythons and signal.getsignal(s) is signal.SIG_IGN}


def serve(channel: int, argv: Sequence[str], env: Mapping[str, str], ignored: Collection[int]) -> NoReturn:
    """Run as the guardian in the forked process, and never return into the parent's code.

    ``channel``: file descriptor of the guardian's end of the channel. ``ignored``: signals that the command must ignore.
    """
    try:
        os.setpgid(0, 0)
        guardian_program.rename()
        wake = guardian_program.retreat({channel})
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _Guardian(channel, wake, argv, env, ignored).run()
    finally:
        os._exit(0)


class _Guardian:
    """The guardian process. Its messages are described at `GuardianChannel`."""

    def __init__(self, channel: int, wake: int, argv: Sequence[str], env: Mapping[str, str], ignored: Collection[int]) -> None:
        self.channel, self.wake = channel, wake
        self.argv, self.env, self.ignored = argv, env, ignored
        self.group = guardian_program.Group()
        self.session = os.getsid(0)  # the command's session, too, because the leader of a group cannot create one
        self.term_at = self.kill_at = math.inf
        self.grace = 0.0
        self.keep_daemons = False
        self.doom = self.half = math.inf
        """Time at which KILL follows a TERM that was sent, even if the lease is renewed meanwhile; infinity: no TERM was sent.

        ``half``: the time halfway between the TERM and the KILL. Both are seconds of `program.clock`.
        """
        self.settled_at = math.inf
        """Time at which processes that outlive the command are sent TERM; infinity while the command runs."""
        self.killed_at = math.inf
        self.passed_term_at = self.passed_hup_at = -math.inf
        self.interrupted = False
        """True if the command was sent a signal to end it, so that its daemons are not kept."""
        self.termed: set[tuple[int, int]] = set()
        self.told: set[int] = set()
        self.named: dict[tuple[str, str], int] = collections.defaultdict(int)
        """Number of processes reported so far, by report word (such as "stuck") and process name."""
        self.company: tuple[set[int], int] | None = None
        self.step = _STEP
        self.over = False
        self._unread = b""

    def run(self) -> None:
        """Serve until all descendants of the command have ended, or until the owner has ended without starting the command."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        poll.register(self.channel, select.POLLIN)
        while not self.over:
            for fd, _ in poll.poll(self._timeout() * 1000):
                if fd == self.wake:
                    guardian_program.noted_signals(self.wake)
                elif not self._listen():
                    poll.unregister(self.channel)
                    self._kill()
                    self.over = not self.group.pid
            for signum in self.group.reap():
                self._tell(f"stopped {signum}")
            self._act(guardian_program.clock())

    def _timeout(self) -> float:
        """Return the maximum seconds to wait for a message or a signal: the time until the next TERM, KILL or check is due."""
        if not self.group.pid:  # the owner may send the start late
            return 60.0
        now = guardian_program.clock()
        due = min(self.kill_at, self.doom)
        if self.doom == math.inf:
            due = min(due, self.term_at, self.settled_at)
        elif now < self.half:
            due = min(due, self.half)
        left = min(max(due - now, 0.0) + 0.0005, _POLL) if due < math.inf else 60.0
        # While processes have to end, check often, because nothing notifies this process when a descendant's parent ends.
        if min(self.settled_at, self.doom, self.killed_at) < math.inf:
            self.step = min(self.step * 1.5, 0.1)
            left = self.step if self.killed_at < math.inf else min(left, self.step)
        return left

    def _act(self, now: float) -> None:
        group = self.group
        if not group.pid or self.over:
            return
        if group.status is not None and self.settled_at == math.inf:
            self._tell(f"failed {group.exec_errno}" if group.exec_errno else f"exited {group.status}")
            self._settle(now)
        if group.gone or (self.keep_daemons and group.status is not None and self._only_daemons()):
            self._tell("gone")
            self.over = True
        elif self.killed_at < math.inf:
            self._kill_all(now)
        elif now >= min(self.kill_at, self.doom):
            if self.doom == math.inf:
                self._tell("ending")
            self._kill()
        elif self.doom == math.inf and now >= self.term_at:
            self._tell("ending")
            self._term(self.grace)
        elif self.doom == math.inf and now >= self.settled_at:
            company = self._others()
            self._term(self.grace)
            self._tell_of_company(company)
        elif self.doom < math.inf or (self.interrupted and group.status is not None):
            self._term_outsiders(now)

    def _settle(self, now: float) -> None:
        """Handle the end of the command. Processes that outlive the command have SETTLE seconds to end, and then get TERM.

        Daemons are kept only if the command ended normally.
        """
        self.settled_at = now + SETTLE
        self.step = _STEP
        self.interrupted = self.interrupted or now < self.passed_hup_at + self.grace
        normal = self.group.status is not None and os.WIFEXITED(self.group.status) and not self.interrupted
        self.keep_daemons = self.keep_daemons and normal and self.doom == math.inf

    def _listen(self) -> bool:
        """Carry out the owner's messages. Return False if the owner has closed the channel."""
        try:
            data = os.read(self.channel, 65536)
        except BlockingIOError:
            return True
        except OSError:  # the owner has ended without having read all messages
            data = b""
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            word, _, rest = os.fsdecode(line).partition(" ")
            if word == "deadline":
                self.term_at, self.kill_at = map(float, rest.split())
            elif word == "start":
                self._start(*rest.split(" ", 3))
            elif word == "signal" and self.group.pid:
                self._pass_on(int(rest))
            elif word == "term" and self.group.pid and self.doom == math.inf:
                self._term(float(rest))
            elif word == "kill":
                self._kill()
            elif word == "ping":
                self._tell("pong")
        return bool(data)

    def _start(self, foreground: str, grace: str, keep_daemons: str, variables: str) -> None:
        self.grace, self.keep_daemons = float(grace), keep_daemons == "1"
        # The deadline may have passed if the owner was stopped for long just after it had acquired the lock.
        if guardian_program.clock() >= min(self.term_at, self.kill_at):
            self._tell("late")
            self.term_at = self.kill_at = math.inf  # their lease is over, and the owner may send the times of a new one
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
        except OSError as error:  # no process can be created
            self._tell(f"failed {error.errno}")
            self._tell("gone")
            self.over = True
        guardian_program.empty_hands(0, 1, 2)

    def _pass_on(self, signum: int) -> None:
        """Send the command's group a signal that the owner has received. The command decides how it reacts."""
        self.group.send(signum)
        if signum == signal.SIGTERM:
            self.passed_term_at = guardian_program.clock()
        if signum == signal.SIGHUP:  # many programs take SIGHUP as the order to reload their configuration
            self.passed_hup_at = guardian_program.clock()
        elif signum in {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}:
            self.interrupted = True

    def _term(self, grace: float) -> None:
        """Send TERM to the command's group, and KILL ``grace`` seconds later.

        If the owner's TERM was passed on within the last ``grace`` seconds, send no second TERM. After a second one, many
        programs end without cleaning up.
        """
        now = guardian_program.clock()
        self.doom, self.half, self.step = now + grace, now + grace / 2, _STEP
        if now >= self.passed_term_at + grace:
            self.group.send(signal.SIGTERM)
        self.group.send(signal.SIGCONT)  # a stopped command could not react to TERM
        self._tell_of_refusals()
        self._term_outsiders(now)

    def _tell_of_refusals(self) -> None:
        """Report the processes of the command's group that this user may not signal.

        A signal to the whole group does not show which processes it did not reach.
        """
        leader = descendants.read_process(self.group.pid) if self.group.status is None else None
        for process in [*([leader] if leader is not None else []), *self._others()]:
            if process.group == self.group.pid and not process.send(0):
                self._tell_of("refused", process)

    def _term_outsiders(self, now: float) -> None:
        """Send TERM, once, to the descendants outside the command's process group.

        A descendant whose parent is alive gets TERM only after half of the grace time, because programs such as timeout(1) and
        su(1) pass TERM on to their children. Another guardian and its descendants get no TERM from here, because the ``holdfast
        run`` that started that guardian sends TERM to them.
        """
        of_other_guardians: set[int] = set()
        for process in self._others():  # parents come before their children
            orphan = process.parent == os.getpid()
            if process.parent in of_other_guardians or (
                not orphan and process.pid == process.group and process.name() == guardian_program.NAME
            ):
                of_other_guardians.add(process.pid)
                continue
            name = process.pid, process.started
            if process.group == self.group.pid or name in self.termed or not (orphan or now >= self.half):
                continue
            self.termed.add(name)
            if not process.send(signal.SIGTERM, signal.SIGCONT):
                self._tell_of("refused", process)
            elif self.group.status is not None and self._is_daemon(process):
                self._tell_of("daemon", process)

    def _kill(self) -> None:
        """Begin to send KILL to all descendants. `_act` repeats this until all have ended."""
        if self.group.pid and self.killed_at == math.inf:
            self.killed_at = guardian_program.clock()
            self.keep_daemons = self.keep_daemons and self.doom <= self.killed_at
            self.step = _STEP
            self._kill_all(self.killed_at)

    def _kill_all(self, now: float) -> None:
        """Send KILL to all descendants once. Processes that are forked meanwhile are killed in the next call."""
        self.group.send(signal.SIGKILL)
        seen: set[int] = set()
        for _ in range(20):
            others = [process for process in self._others() if process.pid not in seen]
            for process in others:
                seen.add(process.pid)
                if not process.send(signal.SIGKILL):
                    self._tell_of("refused", process)
                elif now >= self.killed_at + 1:
                    self._tell_of("stuck", process)
            if not others:
                break
        self._tell_of_refusals()
        leader = descendants.read_process(self.group.pid) if self.group.status is None and now >= self.killed_at + 1 else None
        if leader is not None:
            self._tell_of("stuck", leader)

    def _others(self) -> list[descendants.OsProcess]:
        """Return all living descendants that must end, without the leader of the command's group."""
        return self._to_end(self.group.others())

    def _to_end(self, others: list[descendants.OsProcess]) -> list[descendants.OsProcess]:
        """Return the processes of a listing that are not kept as daemons."""
        if not self.keep_daemons or self.group.status is None:
            return others
        kept: set[int] = set()
        for process in others:  # parents come before their children
            if self._is_daemon(process) or process.parent in kept:
                kept.add(process.pid)
        return [process for process in others if process.pid not in kept]

    def _is_daemon(self, process: descendants.OsProcess) -> bool:
        """Return True if a process is a daemon: an orphan in another session than the command's. Valid only after the command's
        end."""
        return process.parent == os.getpid() and process.session != self.session

    def _only_daemons(self) -> bool:
        """Return True if some processes are left, and all of them are daemons or descendants of daemons.

        One listing of the processes may miss a process that is just being forked. So the result is True only if two successive
        listings show the same processes, and none of them ended in between.
        """
        found = self.group.others()
        self.group.reap()  # processes that have ended meanwhile count, too
        before, self.company = self.company, ({process.pid for process in found}, self.group.ends)
        return bool(found) and self.company == before and not self._to_end(found)

    def _tell_of_company(self, others: list[descendants.OsProcess]) -> None:
        """Report once, without names, that processes outlive the command and were sent TERM.

        Daemons, and processes that this user may not signal, are reported by other messages.
        """
        if not others or any(not self._is_daemon(process) and process.pid not in self.told for process in others):
            self._tell("left")

    def _tell_of(self, word: str, process: descendants.OsProcess) -> None:
        """Report a process to the owner. ``word``: kind of the report, such as "stuck".

        Of each name, only the first `NAMED` processes are reported singly.
        """
        if process.pid not in self.told:
            self.told.add(process.pid)
            name = process.name().replace("\n", "?")
            self.named[word, name] += 1
            if self.named[word, name] <= NAMED + 1:
                self._tell(f"{word} {process.pid if self.named[word, name] <= NAMED else 0} {name}")

    def _tell(self, line: str) -> None:
        try:
            os.write(self.channel, line.encode() + b"\n")
        except OSError:
            pass  # the owner has ended, or was stopped for very long; it will see the end of file
