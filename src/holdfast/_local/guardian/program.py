"""The guardian: a small process between a parent and a command, so that nothing of the command outlives its need.

A process that is killed with -9 cannot clean up, and PR_SET_PDEATHSIG reaches only its direct child. So a process of
its own, which nobody has a reason to kill, is the command's parent, is given all orphans among its descendants
(`holdfast._local.guardian.descendants`), and waits for the end of file on a channel that only the guarded parent holds open:
however that parent ends, the kernel closes the channel.

As a program, ``python *PROGRAM [--remove DIR] -- CMD...``, it guards a private server. Stdin is the channel.
On its end of file, or on SIGTERM, CMD and its descendants are killed and DIR removed. If CMD ends by itself the program
exits with CMD's code at once (128 + the signal for a signal), while a copy of it stays to remove DIR when the parent closes
the channel: until then the logs of a server that would not start can be read.

`holdfast._local.guardian.parent` builds the guardian of ``holdfast run`` from the same parts. Only the standard library, and
little of it.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time

if __package__:
    from holdfast._local.guardian import descendants
else:  # as a program: the package around it would cost as much again as all of this
    import descendants  # type: ignore[import-not-found,no-redef]

TYPE_CHECKING = False  # typing is not imported: this file is also a program that has to start quickly
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import NoReturn

MASKABLE = [s for s in signal.valid_signals() if s not in {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}]
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
PROGRAM = ("-I", "-S", "-c", f"import sys; sys.path.append({_HERE!r}); import program; sys.exit(program.main())")
"""Arguments of the Python that runs it as a program. Not the file: an imported module was compiled before."""

NAME = "hf-guardian"
"""Name of a guardian in ps."""


def kill_margin(lease: float) -> float:
    """Seconds before the end of a lease at which a command that still runs is killed: finding and killing all its descendants
    takes a few milliseconds, and some hundred of them on a machine that has many times more to do than processors."""
    return min(0.5, lease / 10)


def clock() -> float:
    """Seconds on a clock that all processes of this machine share, and that runs on while it is suspended."""
    return time.clock_gettime(_CLOCK)


def send(group: int, signum: int) -> None:
    """Send a signal to a process group, if there is still one that we may signal."""
    try:
        os.killpg(group, signum)
    except (ProcessLookupError, PermissionError):
        pass


def alive(group: int) -> bool:
    """Whether a process group still has a member that runs: for where there is no subreaper.

    A zombie does not count: where nobody reaps orphans, as with many a container's first process, it stays for ever. But
    a listing that shows no member of a group that exists proves nothing: one may have been forked meanwhile, or /proc is
    that of another PID namespace. So a group is gone only when it shows the same zombies twice, and nobody else.
    """
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        if sys.platform == "darwin":  # its answer for a group of zombies
            return False
    before = _members(group)
    return not before or any(before.values()) or _members(group) != before


def _members(group: int) -> dict[int, bool]:
    """The members of a group that /proc shows, and whether each of them runs."""
    try:
        numbers = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208 (pathlib imports slowly)
    except OSError:
        return {}
    seen = (descendants.look(number) for number in numbers)
    return {process.pid: not process.ended for process in seen if process is not None and process.group == group}


def exit_code(status: int) -> int:
    """Return the exit code that a shell makes of a wait status: the code itself, or 128 + the signal."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


class Group:
    """A command, leader of a process group of its own, and all of its descendants, in that group or not.

    `reap` is the only place that reaps. The leader stays a zombie until nobody else is left, so that its number, which is
    also the group's, cannot become another process's.
    """

    def __init__(self) -> None:
        self.subreaper = descendants.become_subreaper()
        """Without it, descendants outside the group are out of reach, and members of it are known by a listing only."""
        self.pid = 0
        """Of the leader, and the number of the group; 0 before the start."""
        self.status: int | None = None
        """Wait status of the leader, once it has ended."""
        self.gone = False
        """Nobody is left."""
        self.exec_errno = 0
        """Why the command could not be executed; 0 if it was."""
        self._report = -1
        self.ends = 0
        """Descendants reaped so far. If none was since the last look, no chain has moved on by forking."""
        self._reaped = False

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        announce: Callable[[int], None] | None = None,
        tty: int = -1,
        stdin: int = 0,
        ignored: Collection[int] = (),
    ) -> None:
        """Fork and execute. The command does not begin before ``announce(pid)`` has returned.

        ``tty``: make the group the foreground of this terminal. ``ignored``: signals the command shall ignore.
        """
        go_read, go_write = os.pipe()
        self._report, report = os.pipe()
        # A signal sent to the new process before it has reset its signals must wait for that, not be ignored.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.pid = os.fork()
            if self.pid == 0:
                descendants.die_with_parent()  # before the word, which a parent that has ended cannot give
                os.close(go_write)
                _execute(argv, env, go_read, report, tty=tty, stdin=stdin, ignored=ignored)
            try:
                os.setpgid(self.pid, self.pid)  # here too: whoever comes first
            except OSError:
                pass
            if announce is not None:
                announce(self.pid)
            os.write(go_write, b"!")
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for fd in (go_read, go_write, report):
                os.close(fd)

    def reap(self) -> list[int]:
        """Take what the kernel has to say; returns the signal of each stop of the leader: nobody else's is job control."""
        if not self.pid or self.gone:
            return []
        stops = self._look_at_leader() if self.status is None else []
        if self.subreaper:
            self._reap_all()
        else:
            self.gone = self.status is not None and not alive(self.pid)
        return stops

    def _look_at_leader(self) -> list[int]:
        """Its stops; sets its status when it has ended."""
        stops: list[int] = []
        if not self.subreaper:
            while self.status is None and (found := os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED))[0]:
                if os.WIFSTOPPED(found[1]):
                    stops.append(os.WSTOPSIG(found[1]))
                else:
                    self.status = found[1]
        else:
            try:
                while (stop := os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG)) is not None:
                    stops.append(stop.si_status)
            except ChildProcessError:  # who has ended is no child, to a question that is not about ends
                pass
            end = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if end is not None:
                self.status = end.si_status << 8 if end.si_code == os.CLD_EXITED else end.si_status
        if self.status is not None:
            # The other end is closed by exec or by the end of the leader, so this does not block.
            self.exec_errno = int(os.read(self._report, 16) or b"0")
        return stops

    def _reap_all(self) -> None:
        """Reap orphans that have ended, and the leader as the last of all."""
        while (pid := descendants.ended_child()) > 0:
            if pid == self.pid:
                if self.status is None:  # it has ended since the look at it, and once reaped could not say how
                    self._look_at_leader()
                if self._others_live():
                    return
            self.ends += descendants.reap(pid)
            self._reaped = self._reaped or pid == self.pid
        self.gone = pid < 0

    def _others_live(self) -> bool:
        """Whether the leader, which has ended, has living company; reaps what has ended of it.

        False also where that cannot be known. Then, and if a listing has missed somebody, the kernel still does not say
        that there are no children.
        """
        while True:
            others = [process.pid for process in descendants.children() or () if process.pid != self.pid]
            ended = [pid for pid in others if descendants.reap(pid)]
            if not ended:  # of those that had, the children came to us meanwhile
                return bool(others)
            self.ends += len(ended)

    def send(self, signum: int) -> None:
        """Send a signal to the whole group, if it is still there."""
        if self._reaped:
            try:  # the number is the group's as long as a child of ours, reaped by nobody else, is in it
                os.waitid(os.P_PGID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
        send(self.pid, signum)

    def others(self) -> list[descendants.Process]:
        """All that live but the leader, parents before their children; those that can be found."""
        found = (descendants.descendants() or []) if self.subreaper else []
        return [process for process in found if process.pid != self.pid and not process.ended]


def _execute(
    argv: Sequence[str],
    env: Mapping[str, str],
    go: int,
    report: int,
    *,
    tty: int,
    stdin: int,
    ignored: Collection[int],
) -> NoReturn:
    """In the new process: become the leader of a group, wait for the word, execute."""
    try:
        os.setpgid(0, 0)
        if os.read(go, 1) != b"!":  # the guardian was killed before anybody else knew of this process
            os._exit(1)
        if tty >= 0:
            try:
                os.tcsetpgrp(tty, os.getpid())  # allowed from the background because SIGTTOU is blocked
            except OSError:
                pass
        if stdin:
            os.dup2(stdin, 0)
        for signum in MASKABLE:
            signal.signal(signum, signal.SIG_IGN if signum in ignored else signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if not argv[0]:  # for which Python has a ValueError, and the kernel the same as for any name that is not there
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        os.execvpe(argv[0], list(argv), env)  # noqa: S606
    except OSError as error:
        os.write(report, str(error.errno or 0).encode())
        os._exit(127 if isinstance(error, (FileNotFoundError, NotADirectoryError)) else 126)
    finally:
        os._exit(126)


def rename() -> None:
    """Let ps, pgrep and pkill know this process as hf-guardian: ``pkill -9 -f "holdfast run"`` must spare it.

    Its arguments are overwritten where they stand in its memory; a program under a new name would start 20 ms later.
    """
    try:
        with open("/proc/self/comm", "w") as file:  # noqa: PTH123
            file.write(NAME)
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
            start, end = map(int, file.read().rpartition(b")")[2].split()[45:47])
        memory = os.open("/proc/self/mem", os.O_WRONLY)
        try:
            os.pwrite(memory, NAME.encode()[: end - start - 1].ljust(end - start, b"\0"), start)
        finally:
            os.close(memory)
    except (OSError, ValueError):  # no /proc; then nobody sees its arguments either
        pass


def retreat(keep: Collection[int] = ()) -> int:
    """Make this process one that minds nothing but its channel; returns a descriptor that is readable after a signal.

    To be called with all signals blocked. Descriptors above 2 are closed, but those to ``keep``.
    """
    try:
        descriptors = [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208
    except OSError:
        descriptors = list(range(3, 1024))
    for fd in descriptors:
        if fd > 2 and fd not in keep:
            try:
                os.close(fd)
            except OSError:
                pass
    for signum in MASKABLE:
        signal.signal(signum, signal.SIG_IGN)
    wake, tell = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, noted)
    return wake


def noted(signum: int, frame: object) -> None:
    """Signal handler for those who read the wake-up descriptor: what counts is the byte there."""


def noted_signals(wake: int) -> bytes:
    """Numbers of the signals since the last call."""
    try:
        return os.read(wake, 4096)
    except BlockingIOError:
        return b""


def empty_hands(*descriptors: int) -> None:
    """Let go of standard streams, so that who is at their other ends sees what the command does with its copies."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in descriptors:
        os.dup2(null, fd)
    os.close(null)


# ------------------------------------------------------------------------------------------------------- the program


def main() -> int:
    """Guard a private server: see the top of this file."""
    arguments = sys.argv[1:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    options, command = arguments[:at], arguments[at + 1 :]
    if not command or (options and (len(options) != 2 or options[0] != "--remove")):
        sys.stderr.write("usage: program [--remove DIR] -- CMD...\n")
        return 64
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        os.setsid()  # away from the terminal, and from the group that `kill -9 -PGID` of the parent's job would hit
    except OSError:
        pass  # already leader of a group of its own
    rename()
    wake = retreat()
    signal.signal(signal.SIGTERM, noted)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    group = Group()
    group.start(command, os.environ, stdin=os.open(os.devnull, os.O_RDWR))
    try:
        by_itself = _until_end(group, wake)
    finally:
        group.send(signal.SIGKILL)  # others of the group, or all of it
    code = _finish(group, wake)
    if group.exec_errno:
        sys.stderr.write(f"{command[0]}: {os.strerror(group.exec_errno)}\n")
        sys.stderr.flush()
    if options:
        if by_itself and os.fork():
            os._exit(code)  # that is news for the parent now, while the directory is needed until it lets go
        _remove_at_end(options[1], wait=by_itself)
    return code


def _until_end(group: Group, wake: int) -> bool:
    """Wait for the end of the command (True), or of the parent or its patience (False)."""
    while True:
        group.reap()
        if group.status is not None:
            return True
        ready, _, _ = select.select([0, wake], [], [])
        if wake in ready and signal.SIGTERM in noted_signals(wake):
            return False
        if 0 in ready and not _read_channel():
            return False


def _read_channel() -> bytes:
    """Read what the parent has sent, which does not matter; empty when the parent has ended."""
    try:
        return os.read(0, 65536)
    except OSError:  # a socket that was reset, or no channel at all
        return b""


def _finish(group: Group, wake: int) -> int:
    """Kill what is left, wait until all of it is gone; the exit code."""
    step = 0.002
    while True:
        group.reap()
        if group.status is not None and (group.gone or not group.subreaper):
            break
        for process in group.others():  # they may still be writing to the directory
            process.send(signal.SIGKILL)
        select.select([wake], [], [], step)
        noted_signals(wake)
        step = min(step * 1.5, 0.1)
    for _ in range(400):  # 2 s at most
        if group.gone:
            break
        time.sleep(0.005)
        group.reap()
    return exit_code(group.status)


def _remove_at_end(directory: str, *, wait: bool) -> None:
    """Remove the directory, with ``wait`` not before the parent has closed the channel."""
    if wait:
        empty_hands(1, 2)  # who reads our output to its end must not wait for this
        while _read_channel():
            pass
    for where, directories, files in os.walk(directory, topdown=False):  # shutil would take longer to import
        for name in (*directories, *files):
            path = os.path.join(where, name)  # noqa: PTH118
            _let_go(os.rmdir if name in directories and not os.path.islink(path) else os.unlink, path)  # noqa: PTH114
    _let_go(os.rmdir, directory)


def _let_go(remove: Callable[[str], None], path: str) -> None:
    try:
        remove(path)
    except OSError:
        pass
