"""The guardian of a command: a process that starts the command and kills it before the lease ends, unless the lease is renewed.

`launch` forks the guardian, and `spawn` starts it as a program. `GuardianChannel` is the owner's side of the channel between
the two, and `_Guardian` is the guardian's side. After each renewal, the owner sends the guardian the new end of the lease. If
no message comes in time, the guardian ends the command by itself. That happens when the server is unreachable, or when the
owner hangs or is stopped. So the command has ended before another client can hold the lock.
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
"""Seconds after the end of the command until the processes that outlive it are sent TERM.

Some of them, such as ``tee`` at the end of a pipe, end by themselves in this time.
"""

_POLL = 0.25
"""Maximum seconds between two checks, because timers of poll() stop while the machine sleeps, and leases do not."""
_STEP = 0.003
"""Seconds between two checks of ending processes, at first."""

NAMED = 10
"""Maximum number of processes of one name that are reported singly. One more report stands for all others of that name."""

VARIABLES = ("HOLDFAST_URL", "REDIS_URL")
"""Names of environment variables that contain the URL of the server, or of several servers."""


def has_password(urls: str) -> bool:
    """Return True if one of these URLs contains a password, or may contain one."""
    if is_torn(urls):
        return "@" in urls
    return any(":" in url.rpartition("@")[0].replace("://", "", 1) or "password=" in url for url in urls.split())


def is_torn(urls: str) -> bool:
    """Return True if a blank seems to be inside a URL, as in a password, instead of between two URLs."""
    _, *others = urls.split() or [""]
    return any("://" not in url for url in others)


def scrubbed(env: Mapping[str, str], pass_url: bool = False) -> dict[str, str]:
    """Return the environment without server URLs that contain a password, because the command might print them.

    With ``pass_url``, keep these URLs.
    """
    return {k: v for k, v in env.items() if k not in VARIABLES or pass_url or not has_password(v)}


class Report(NamedTuple):
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

    At most `NAMED` processes of the same NAME are reported with their PIDs. All further ones are reported together, with PID 0.
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

    def reports(self) -> list[Report]:
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
        reports = [Report(word, int(rest[0]) if rest else 0, rest[1] if rest[1:] else "") for word, *rest in words]
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
    ignored = _ignored()
    orphans = descendants.Orphans()
    ours, theirs = _channel()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _serve(theirs, argv, env, ignored)
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
from holdfast._local.guardian import parent
parent.program(*sys.argv[2:])
"""


def program(channel: str, stuck: str, *argv: str) -> NoReturn:
    """Run the program that `spawn` starts: fork the guardian, wait until it has ended, and kill its remaining descendants.

    ``channel``: file descriptor of the guardian's end of the channel. ``argv``: the command.

    For each descendant that survives, write a line to the file descriptor ``stuck``: ``refused PID NAME`` if it may not be
    signalled, ``stuck PID NAME`` if it survives KILL. The program exits only when all descendants have ended.
    """

    def tell(word: str, process: descendants.Process) -> None:
        try:
            os.write(int(stuck), f"{word} {process.pid} {process.name()}".replace("\n", "?").encode() + b"\n")
        except OSError:  # nobody reads the pipe
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


def _ignored() -> set[int]:
    """Return the signals that this process ignores, as under nohup. The command must ignore them, too.

    SIGPIPE and SIGXFSZ are left out, because Python itself ignores them.
    """
    pythons = {signal.SIGPIPE, getattr(signal, "SIGXFSZ", signal.SIGPIPE)}
    return {s for s in guardian_program.MASKABLE if s not in pythons and signal.getsignal(s) is signal.SIG_IGN}


def _channel() -> tuple[int, int]:
    import socket

    ours, theirs = (end.detach() for end in socket.socketpair())
    os.set_blocking(ours, False)
    os.set_blocking(theirs, False)
    return ours, theirs


def _serve(channel: int, argv: Sequence[str], env: Mapping[str, str], ignored: Collection[int]) -> NoReturn:
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

    def _others(self) -> list[descendants.Process]:
        """Return all living descendants that must end, without the leader of the command's group."""
        return self._to_end(self.group.others())

    def _to_end(self, others: list[descendants.Process]) -> list[descendants.Process]:
        """Return the processes of a listing that are not kept as daemons."""
        if not self.keep_daemons or self.group.status is None:
            return others
        kept: set[int] = set()
        for process in others:  # parents come before their children
            if self._is_daemon(process) or process.parent in kept:
                kept.add(process.pid)
        return [process for process in others if process.pid not in kept]

    def _is_daemon(self, process: descendants.Process) -> bool:
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

    def _tell_of_company(self, others: list[descendants.Process]) -> None:
        """Report once, without names, that processes outlive the command and were sent TERM.

        Daemons, and processes that this user may not signal, are reported by other messages.
        """
        if not others or any(not self._is_daemon(process) and process.pid not in self.told for process in others):
            self._tell("left")

    def _tell_of(self, word: str, process: descendants.Process) -> None:
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
