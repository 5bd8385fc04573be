"""The guardian of a command: `launch` forks it, `spawn` starts it as a program, `Guard` is the parent's end, `_Guardian` is it.

It is a dead man's switch. The parent tells it when the lease ends, again with each renewal; when that time comes
without a newer one - the server is gone, or the parent is stopped, swapped out, or hung - it ends the command by
itself, so that the command is dead before anybody else can hold the lock. It is itself the parent of the command, so
that there is no moment in which a started command is not guarded.
"""

from __future__ import annotations

import collections
import math
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from holdfast._local.guardian import descendants
from holdfast._local.guardian import program as guardian_program

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import NoReturn

SETTLE = 0.5
"""Seconds that processes which outlive the command have to end by themselves, as ``tee`` at the end of a pipe does."""

_POLL = 0.25  # seconds: timers of poll() stop while the machine is suspended, leases do not, so look again this often
_STEP = 0.003  # seconds between two looks at what ends, at first

NAMED = 10
"""Processes of one name that are reported each; one more report stands for all others."""

VARIABLES = ("HOLDFAST_URL", "REDIS_URL")
"""Of the environment: where the server is, or the servers."""


def has_password(urls: str) -> bool:
    """Whether one of these seems to carry one; in doubt, yes."""
    if is_torn(urls):
        return "@" in urls
    return any(":" in url.rpartition("@")[0].replace("://", "", 1) or "password=" in url for url in urls.split())


def is_torn(urls: str) -> bool:
    """Whether a blank seems to stand inside of a URL, as in a password, rather than between two of them."""
    _, *others = urls.split() or [""]
    return any("://" not in url for url in others)


def scrubbed(env: Mapping[str, str], pass_url: bool = False) -> dict[str, str]:
    """The environment without URLs that carry a password: a command has no business with it, and may well print it."""
    return {k: v for k, v in env.items() if k not in VARIABLES or pass_url or not has_password(v)}


class Report(NamedTuple):
    """One line from a guardian: see `Guard`."""

    word: str
    number: int = 0
    name: str = ""


class Guard:
    """The parent's end of the channel to a guardian. Nothing here blocks, but `take_over` and `close`.

    To the guardian: ``deadline TERM_AT KILL_AT``, ``start FOREGROUND GRACE KEEP_DAEMONS NAME=VALUE ...``, ``signal N``,
    ``term GRACE``, ``kill``, ``ping``. From it: ``pid N``, ``failed ERRNO``, ``stopped SIGNAL``, ``exited STATUS``, ``late``
    (not started: the deadline had passed; a new one and another ``start`` may follow), ``ending`` (the deadline passed: TERM or
    KILL was sent), ``left`` (what outlives the command was sent TERM), ``daemon PID NAME`` (the same for one), ``refused PID
    NAME`` (it may not be signalled), ``stuck PID NAME`` (it lives on after KILL), ``gone`` (all descendants), ``pong``. One per
    line; times are seconds of `_local.guardian.program.clock`. PID is 0 for all further processes of a name, once `NAMED` were
    reported.
    """

    def __init__(self, channel: int, pid: int, orphans: descendants.Orphans | None, stuck: int = -1) -> None:
        """``orphans``: of this process; if None, its parent looks after them, and writes to ``stuck`` who lives on."""
        self.channel, self.pid, self.orphans, self._stuck = channel, pid, orphans, stuck
        self.dead = False
        """The guardian has ended, or has not read for very long: nobody guards the command."""
        self.asked = math.inf
        """When it was asked for a sign of life that it has not given yet."""
        self._answered = -math.inf
        self._group = 0
        self._reaped = False
        """`take_over` has waited for the guardian, so its number may be another process's by now."""
        self._unread = b""

    def fileno(self) -> int:
        """For select: readable when `reports` has something to say."""
        return self.channel

    def deadline(self, term_at: float, kill_at: float) -> None:
        """TERM and KILL the group at these times, unless a later word moves them."""
        self._send(f"deadline {term_at!r} {kill_at!r}")

    def start(self, variables: str, *, grace: float, foreground: bool = False, keep_daemons: bool = False) -> None:
        """Start the command with more in its environment: ``NAME=VALUE``, or several of these with a space between them.

        ``foreground``: its group gets the terminal that stdin is. ``grace``: seconds from TERM to KILL where the
        guardian ends the command by itself. ``keep_daemons``: leave them alone if the command ends normally.
        """
        if self.orphans is not None:
            self.orphans.note(self.pid, probe=True)
        self._send(f"start {foreground:d} {grace!r} {keep_daemons:d} {variables}")

    def signal(self, signum: int) -> None:
        """Pass a signal on to the group."""
        self._send(f"signal {int(signum)}")

    def term(self, grace: float) -> None:
        """TERM now, KILL after ``grace`` seconds."""
        self._send(f"term {grace!r}")

    def kill(self) -> None:
        """KILL now."""
        self._send("kill")

    def ask(self, every: float) -> None:
        """Ask for a sign of life, if the last answer is so old: `asked` is finite until it comes.

        A guardian that is stopped, or starved, would let the command live beyond its lease.
        """
        now = guardian_program.clock()
        if self.asked == math.inf and now >= self._answered + every:
            self.asked = now
            self._send("ping")

    def reports(self) -> list[Report]:
        """Read what the guardian has said since the last call; set `dead` at its end."""
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
        reports = [Report(word, int(rest[0]) if rest else 0, rest[1] if rest[1:] else "") for word, *rest in words]
        if reports:  # whatever it says: after a stop it has more to do, before it comes to the question
            self.asked, self._answered = math.inf, guardian_program.clock()
        for report in reports:
            if report.word == "pid":
                self._group = report.number
                leader = descendants.look(self._group) if self.orphans is not None and descendants.own_proc() else None
                if self.orphans is not None and leader is not None:
                    self.orphans.since = leader.started
        return [report for report in reports if report.word != "pong"]

    def look_after_orphans(self) -> None:
        """Reap what is not the command's: to be called now and then while the guardian lives."""
        if self.orphans is not None and not self.dead:
            self.orphans.note(self.pid)

    def take_over(self, tell: Callable[[str, int, str], None]) -> None:
        """Kill the guardian and all descendants of the command, and wait for their end.

        For when it is dead, or does not answer. ``tell`` is told of each that lives on: "refused" or "stuck", number and name.
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
        """Close the channel and wait for the guardian, which kills what is left."""
        if self.channel < 0:
            return
        os.close(self.channel)
        self.channel = -1
        if self._stuck >= 0:
            os.close(self._stuck)
        if self._reaped:
            return
        try:
            self._send_child(signal.SIGCONT)  # it may be stopped, and is to end
            os.waitpid(self.pid, 0)
        except ChildProcessError:  # as in `_send_child`
            pass

    def _hear_stuck(self, tell: Callable[[str, int, str], None]) -> None:
        """Until the program has ended. A fork of this process may hold the pipe, so its end of file need not come."""
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
        """Send signals to the guardian or its program, unless somebody else has reaped it: then its number may be a stranger's.

        The kernel does if this process ignores SIGCHLD; or a host that waits for any child.
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
            pass  # it has ended, but may have said more before that: `reports` will come to the end of file


def launch(argv: Sequence[str], env: Mapping[str, str]) -> Guard:
    """Fork the guardian of a command. To be called while this process has one thread and holds nothing.

    It has a process group of its own (``kill -9 -PGID`` of the parent's job spares it), in the same session (or the
    command could not use the terminal), and ignores every signal that can be ignored.
    """
    ignored = _ignored()
    orphans = descendants.Orphans()
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
    return Guard(ours, pid, orphans)


def spawn(argv: Sequence[str], env: Mapping[str, str], *, output: int, directory: str | None = None) -> Guard:
    """The same for a process with threads, which must not go on in a fork of itself: the guardian is a program, 20 ms later.

    The command's stdin is empty, its stdout and stderr are ``output``; it starts in ``directory``. Raises OSError. The program
    forks the guardian and is the second line behind it, so that this process need not be given anybody's orphans.
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
    process.returncode = 0  # `Guard.close` waits for it
    return Guard(ours, process.pid, None, stuck)


_PROGRAM = """
import sys
sys.path.append(sys.argv[1])
from holdfast._local.guardian import parent
parent.program(*sys.argv[2:])
"""


def program(channel: str, stuck: str, *argv: str) -> NoReturn:
    """Of the process that `spawn` starts: fork the guardian; when it has ended, end what it has left.

    A line ``refused PID NAME`` or ``stuck PID NAME`` in ``stuck`` for each that lives on. In no case does it end before them.
    """

    def tell(word: str, process: descendants.Process) -> None:
        try:
            os.write(int(stuck), f"{word} {process.pid} {process.name()}".replace("\n", "?").encode() + b"\n")
        except OSError:  # nobody reads it
            pass

    ignored = _ignored()
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    os.set_inheritable(int(channel), False)
    os.set_blocking(int(stuck), False)
    orphans = descendants.Orphans()
    guardian = os.fork()
    if guardian == 0:
        _serve(int(channel), argv, os.environ, ignored)
    try:
        guardian_program.rename()
        wake = guardian_program.retreat({int(stuck)})
        signal.signal(signal.SIGTERM, guardian_program.noted)  # the word to take over
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
            except Exception:  # noqa: BLE001 (whatever it is, nobody else would end what the guardian has left)
                time.sleep(1)
    finally:
        os._exit(0)


def _ignored() -> set[int]:
    """Python itself ignores PIPE and XFSZ. Other ignored signals were somebody's wish, as with nohup, and stay ignored."""
    pythons = {signal.SIGPIPE, getattr(signal, "SIGXFSZ", signal.SIGPIPE)}
    return {s for s in guardian_program.MASKABLE if s not in pythons and signal.getsignal(s) is signal.SIG_IGN}


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
        guardian_program.rename()
        wake = guardian_program.retreat({channel})
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _Guardian(channel, wake, argv, env, ignored).run()
    finally:
        os._exit(0)


class _Guardian:
    """The process itself. The protocol is described at `Guard`."""

    def __init__(self, channel: int, wake: int, argv: Sequence[str], env: Mapping[str, str], ignored: Collection[int]) -> None:
        self.channel, self.wake = channel, wake
        self.argv, self.env, self.ignored = argv, env, ignored
        self.group = guardian_program.Group()
        self.session = os.getsid(0)  # the command's, too: the leader of a group cannot make one
        self.term_at = self.kill_at = math.inf
        self.grace = 0.0
        self.keep_daemons = False
        self.doom = self.half = math.inf
        """When KILL follows the TERM that was sent, whatever becomes of the lease meanwhile; and half of the time to it."""
        self.settled_at = math.inf
        """When what outlives the command is sent TERM."""
        self.killed_at = math.inf
        self.passed_term_at = self.passed_hup_at = -math.inf
        self.interrupted = False
        """It was sent a signal that means its end: what it leaves then is nothing to keep."""
        self.termed: set[tuple[int, int]] = set()
        self.told: set[int] = set()
        self.named: dict[tuple[str, str], int] = collections.defaultdict(int)
        """How many processes of a name the parent could have been told of."""
        self.company: tuple[set[int], int] | None = None
        self.step = _STEP
        self.over = False
        self._unread = b""

    def run(self) -> None:
        """Serve until all descendants are gone, or until there is no parent and nothing to guard."""
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
        """Seconds until there is something to do, unless something happens before."""
        if not self.group.pid:  # the parent may be late with the start, too
            return 60.0
        now = guardian_program.clock()
        due = min(self.kill_at, self.doom)
        if self.doom == math.inf:
            due = min(due, self.term_at, self.settled_at)
        elif now < self.half:
            due = min(due, self.half)
        left = min(max(due - now, 0.0) + 0.0005, _POLL) if due < math.inf else 60.0
        if min(self.settled_at, self.doom, self.killed_at) < math.inf:  # nobody tells when a parent of another has ended
            self.step = min(self.step * 1.5, 0.1)
            left = self.step if self.killed_at < math.inf else min(left, self.step)
        return left

    def _act(self, now: float) -> None:
        """Do what is due."""
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
        """The command has ended: what it has left is given a moment, and daemons are kept only if it ended normally."""
        self.settled_at = now + SETTLE
        self.step = _STEP
        self.interrupted = self.interrupted or now < self.passed_hup_at + self.grace
        normal = self.group.status is not None and os.WIFEXITED(self.group.status) and not self.interrupted
        self.keep_daemons = self.keep_daemons and normal and self.doom == math.inf

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
        if guardian_program.clock() >= min(self.term_at, self.kill_at):  # the parent was stopped just after its acquire
            self._tell("late")
            self.term_at = self.kill_at = math.inf  # of a lease that is over; the parent may come with a new one
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
        guardian_program.empty_hands(0, 1, 2)

    def _pass_on(self, signum: int) -> None:
        """Send the group a signal that the parent was sent. The rest is the command's own affair."""
        self.group.send(signum)
        if signum == signal.SIGTERM:
            self.passed_term_at = guardian_program.clock()
        if signum == signal.SIGHUP:  # with many it means: read your configuration anew
            self.passed_hup_at = guardian_program.clock()
        elif signum in {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}:
            self.interrupted = True

    def _term(self, grace: float) -> None:
        """TERM to the command's group, once: many programs take a second one for an order to quit at once."""
        now = guardian_program.clock()
        self.doom, self.half, self.step = now + grace, now + grace / 2, _STEP
        if now >= self.passed_term_at + grace:
            self.group.send(signal.SIGTERM)
        self.group.send(signal.SIGCONT)  # a stopped command could not obey
        self._tell_of_refusals()
        self._term_outsiders(now)

    def _tell_of_refusals(self) -> None:
        """Name those of the command's group that may not be signalled: a signal to a group does not say whom it left out."""
        leader = descendants.look(self.group.pid) if self.group.status is None else None
        for process in [*([leader] if leader is not None else []), *self._others()]:
            if process.group == self.group.pid and not process.send(0):
                self._tell_of("refused", process)

    def _term_outsiders(self, now: float) -> None:
        """TERM to those who did not get it with the group, once.

        While its parent lives, that is the parent's to pass on, as timeout(1), su(1) and another holdfast do; a shell
        leaves it to us. After half of the time nobody waits for parents any more. Another guardian and what is below it are
        not sent TERM at all: that guardian's parent has it sent once, and gives its command a time of its own.
        """
        guarded: set[int] = set()
        for process in self._others():  # parents come before their children
            orphan = process.parent == os.getpid()
            if process.parent in guarded or (
                not orphan and process.pid == process.group and process.name() == guardian_program.NAME
            ):
                guarded.add(process.pid)
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
        """KILL to all of them, until nobody is left."""
        if self.group.pid and self.killed_at == math.inf:
            self.killed_at = guardian_program.clock()
            self.keep_daemons = self.keep_daemons and self.doom <= self.killed_at
            self.step = _STEP
            self._kill_all(self.killed_at)

    def _kill_all(self, now: float) -> None:
        """One round; those who are forked meanwhile are in the next one, at once if somebody new was seen."""
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
        leader = descendants.look(self.group.pid) if self.group.status is None and now >= self.killed_at + 1 else None
        if leader is not None:
            self._tell_of("stuck", leader)

    def _others(self) -> list[descendants.Process]:
        """All who have to end and may live yet, but the leader."""
        return self._to_end(self.group.others())

    def _to_end(self, others: list[descendants.Process]) -> list[descendants.Process]:
        """Those of a listing that are not kept."""
        if not self.keep_daemons or self.group.status is None:
            return others
        kept: set[int] = set()
        for process in others:  # parents come before their children
            if self._is_daemon(process) or process.parent in kept:
                kept.add(process.pid)
        return [process for process in others if process.pid not in kept]

    def _is_daemon(self, process: descendants.Process) -> bool:
        """An orphan in another session than the command's. It is one only when the command has ended."""
        return process.parent == os.getpid() and process.session != self.session

    def _only_daemons(self) -> bool:
        """Whether somebody is left, and nobody but daemons and theirs.

        A listing may miss a process that is just being forked, and one that shows nobody shows nothing. So two looks have to
        show the same ones, and nobody may have ended in between: a chain that forks anew moves on by ending. The second of
        these listings is the one that counts: in another one, after them, a link may have just ended that both have shown.
        """
        found = self.group.others()
        self.group.reap()  # who has ended meanwhile counts, too
        before, self.company = self.company, ({process.pid for process in found}, self.group.ends)
        return bool(found) and self.company == before and not self._to_end(found)

    def _tell_of_company(self, others: list[descendants.Process]) -> None:
        """They were sent TERM. Daemons are named each, and so are those that may not be signalled."""
        if not others or any(not self._is_daemon(process) and process.pid not in self.told for process in others):
            self._tell("left")

    def _tell_of(self, word: str, process: descendants.Process) -> None:
        """Name a process, unless many of its name were: each link of a chain that forks anew is a process of its own."""
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
            pass  # no parent, or one that has been stopped for very long: it will see the end of file
