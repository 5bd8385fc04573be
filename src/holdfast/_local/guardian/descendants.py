"""Find, signal and reap the descendants of a process, whatever group, session or parent they have now.

On Linux, the process makes itself a child subreaper (prctl(2)). When the parent of a descendant ends, the subreaper becomes the
descendant's parent. So all descendants have ended when wait(2) reports ECHILD. A listing of processes may miss a process that
is just being forked, so listings are used only to find the processes to signal. Some orphans escape the subreaper: if their
parent has joined another PID namespace (nsenter), they become children of that namespace's first process.

macOS has no subreaper. On macOS, only a command's process group can be watched.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time

TYPE_CHECKING = False  # typing is not imported, because the program `_local.guardian.program` has to start quickly
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36  # from <linux/prctl.h>

_NOT_THERE = FileNotFoundError, ProcessLookupError, PermissionError
"""Errors of a read from /proc if the process has ended or is hidden. Other errors say nothing about the process."""

PROBED = 100_000
"""Maximum number of pids to ask the kernel about, at 1.7 us each, if /proc does not show this PID namespace."""


def _prctl(option: int, value: int) -> bool:
    """Call prctl(2), and return True if it succeeded. The first call loads a library, so it must come before a fork."""
    if sys.platform != "linux":
        return False
    try:
        import _ctypes  # 0.4 ms; importing ctypes takes 2 ms more, for types that are not needed here

        prctl = _ctypes.dlsym(_ctypes.dlopen(None), "prctl")  # type: ignore[arg-type]  # typeshed knows no None
        return bool(_ctypes.call_function(prctl, (option, value, 0, 0, 0)) == 0)
    except (ImportError, AttributeError, OSError):
        return False


def become_subreaper() -> bool:
    """Become the parent of all orphaned descendants from now on. Return False if the system does not support it."""
    _highest()
    return _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends.

    The kernel does so when the thread that forked this process ends, so the parent must have only one thread. The exec of a
    setuid program cancels the request.
    """
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)


class OsProcess:
    """A process, as it was at the moment of a listing. ``started``: its start in clock ticks since boot; -1 if unknown.

    The pid and the start together identify a process.
    """

    def __init__(self, pid: int, parent: int, group: int, session: int, started: int, *, ended: bool = False) -> None:
        self.pid, self.parent, self.group, self.session, self.started = pid, parent, group, session, started
        self.ended = ended

    def send(self, *signals: int) -> bool:
        """Send signals to the process, unless its pid now belongs to another process.

        Return False if this user may not signal the process, otherwise True.
        """
        try:
            # The pid of a child cannot pass to another process before this process has reaped the child.
            if self.parent == os.getpid() or self.started < 0:
                for signum in signals:
                    os.kill(self.pid, signum)
                return True
            fd = _pidfd(self.pid)
            try:
                now = read_process(self.pid)
                if now is not None and now.started == self.started:
                    for signum in signals:
                        if fd >= 0:
                            signal.pidfd_send_signal(fd, signum)
                        else:  # the pid could have passed to another process since `read_process`, but not within microseconds
                            os.kill(self.pid, signum)
            finally:
                if fd >= 0:
                    os.close(fd)
        except PermissionError:
            return False
        except OSError:  # the process has ended
            pass
        return True

    def name(self) -> str:
        """Return the name that ps shows; empty if unknown."""
        if not own_proc():
            return ""
        try:
            with open(f"/proc/{self.pid}/comm", "rb") as file:  # noqa: PTH123 (pathlib imports slowly)
                return file.read().decode(errors="replace").strip()
        except OSError:
            return ""


def _pidfd(pid: int) -> int:
    """Return a file descriptor (pidfd) of a process; -1 if the system does not support pidfds, or no descriptor is free.

    Raises ProcessLookupError if the process has ended.
    """
    if not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno == errno.ESRCH:
            raise
        return -1


_own_proc: dict[int, bool] = {}


def own_proc() -> bool:
    """Return True if /proc shows the PID namespace of this process.

    After ``unshare --pid`` without --mount-proc, for example, it shows an outer PID namespace.
    """
    me = os.getpid()  # a fork may be in another namespace
    if me not in _own_proc:
        try:
            with open("/proc/self/status", "rb") as file:  # noqa: PTH123
                alone = all(len(line.split()) == 2 for line in file if line.startswith(b"NSpid:"))
            _own_proc[me] = alone and os.readlink("/proc/self") == str(me)  # noqa: PTH115
        except OSError:
            _own_proc[me] = False
    return _own_proc[me]


def read_process(pid: int) -> OsProcess | None:
    """Return the facts about a process from /proc, or from system calls if /proc hides it; None if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
        parent, group, session = map(int, fields[1:4])
        ended = fields[0] in b"ZX" and int(fields[17]) < 2  # its first thread has ended, but other threads may still run
        return OsProcess(pid, parent, group, session, int(fields[19]), ended=ended)
    except (OSError, ValueError, IndexError):
        pass
    try:
        return OsProcess(pid, 0, os.getpgid(pid), os.getsid(pid), -1)
    except OSError:
        return None


def children() -> list[OsProcess] | None:
    """Return the children of this process, zombies included; None if they cannot be determined.

    A child that is just being created may be missing.
    """
    me, numbers = os.getpid(), None
    if own_proc():
        try:
            found = [process for pid in _children_of()(me) if (process := read_process(pid)) is not None]
        except OSError:  # no descriptor is available, so the kernel is asked about each number
            pass
        else:
            for process in found:
                # With hidepid, `read_process` does not know the parent, and an orphan would not be recognised as a child.
                process.parent = me
            return found
    else:
        numbers = _translated()
    numbers = _probed() if numbers is None else numbers
    return None if numbers is None else [_child(pid, me) for pid in numbers]


def descendants() -> list[OsProcess] | None:
    """Return all descendants of this process, parents before their children; None if they cannot be determined.

    A process that is being forked, or that changes its parent, during the call may be missing. If /proc cannot be read, or does
    not show this PID namespace, the result has only the direct children. When these are killed, their own children become
    children of this process.
    """
    found = children()
    if not found or not own_proc():
        return found
    known = {os.getpid(), *(process.pid for process in found)}
    try:
        children_of = _children_of()
        for parent in found:
            for pid in children_of(parent.pid):
                process = read_process(pid) if pid not in known else None
                if process is not None:
                    process.parent = parent.pid
                    known.add(pid)
                    found.append(process)
    except OSError:
        pass
    return found


def _child(pid: int, me: int) -> OsProcess:
    try:
        return OsProcess(pid, me, os.getpgid(pid), os.getsid(pid), -1)
    except OSError:
        return OsProcess(pid, me, 0, 0, -1)


def _children_of() -> Callable[[int], Iterable[int]]:
    """Return a function that returns the pids of the children of the process with a given pid."""
    me = os.getpid()
    return _listed if os.path.exists(f"/proc/{me}/task/{me}/children") else _searched()  # noqa: PTH110


def _listed(parent: int | str) -> Iterator[int]:
    """Yield the pids of a process's children, which the kernel lists in /proc for each thread of the process.

    Raises OSError if a list cannot be read.
    """
    try:
        threads = os.listdir(f"/proc/{parent}/task")  # noqa: PTH208
    except _NOT_THERE:
        return
    for thread in threads:
        try:
            with open(f"/proc/{parent}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                yield from map(int, file.read().split())
        except _NOT_THERE:
            continue


def _searched() -> Callable[[int], Iterable[int]]:
    """Return a function that yields the pids of a process's children, for a kernel whose /proc has no lists of children.

    The function reads the parent of every process from /proc. The mount option hidepid hides processes of other users there. Of
    hidden processes, only the children of this process are found, by asking the kernel.
    """
    me, families = os.getpid(), dict[int, set[int]]()
    numbers = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208
    for process in filter(None, map(read_process, numbers)):
        families.setdefault(process.parent, set()).add(process.pid)
    with open("/proc/self/mounts", "rb") as file:  # noqa: PTH123
        hidden = b"hidepid=" in file.read()
    if hidden:
        found = _probed()
        families[me] = {pid for pid in numbers if is_child(pid)} if found is None else set(found)
    return lambda parent: families.get(parent, ())


def _translated() -> list[int] | None:
    """Return the pids of this process's children, translated from the outer PID namespace that /proc shows.

    Return None if they cannot be translated.
    """
    try:
        ours = _numbers("self")
        if ours[-1] != os.getpid() or not os.path.exists("/proc/thread-self/children"):  # noqa: PTH110
            return None
        return [_numbers(pid)[len(ours) - 1] for pid in _listed("self")]
    except (OSError, IndexError):  # one of them has ended, or is hidden (hidepid)
        return None


def _numbers(pid: int | str) -> list[int]:
    """Return the pids of one process, one for each PID namespace that it is in, the innermost last.

    Raises OSError if /proc does not show the process.
    """
    with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
        return [int(number) for line in file if line.startswith(b"NSpid:") for number in line.split()[1:]]


def _probed() -> list[int] | None:
    """Return the pids of this process's children, by asking the kernel about each possible pid.

    Return None if there are too many possible pids, or if no child is found although there are some.
    """
    first, last = 1, _highest()
    if last > PROBED:  # otherwise all numbers are probed, because numbers start over after the highest one
        first, last = os.getpid(), _newest_number()  # every descendant was forked after this process
        if not first <= last < first + PROBED:
            return None
    found = [pid for pid in range(first, last + 1) if is_child(pid)]
    return found if found or ended_child() < 0 else None


_highest_known: list[int] = []


def _highest() -> int:
    """Return the highest pid that the kernel assigns; `PROBED` + 1 if it is unknown.

    The number that was read last is remembered, because later perhaps no file descriptor is free to read it again.
    """
    try:
        with open("/proc/sys/kernel/pid_max", "rb") as file:  # noqa: PTH123
            _highest_known[:] = [int(file.read())]
    except (OSError, ValueError):
        pass
    return _highest_known[0] if _highest_known else PROBED + 1


def _newest_number() -> int:
    """Return a pid near the newest one that the kernel has assigned; 0 if it cannot be determined.

    A kernel with CONFIG_CHECKPOINT_RESTORE reports the newest pid of the caller's PID namespace, even if /proc shows another
    one. On other kernels, the function starts a thread and returns its id, because threads and processes share one sequence of
    ids. That is slower on a busy machine.
    """
    try:
        with open("/proc/sys/kernel/ns_last_pid", "rb") as file:  # noqa: PTH123
            return int(file.read())
    except (OSError, ValueError):
        pass
    import _thread

    numbers: list[int] = []
    done = _thread.allocate_lock()
    done.acquire()

    def tell() -> None:
        numbers.append(_thread.get_native_id())
        done.release()

    try:
        _thread.start_new_thread(tell, ())
    except RuntimeError:
        return 0
    done.acquire()
    return numbers[0]


def is_child(pid: int) -> bool:
    """Return True if the process with this pid is a child of the calling process: running, or ended and not reaped yet."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def has_ended(pid: int) -> bool:
    """Return True if a child has ended, reaped or not."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def ended_child() -> int:
    """Return the pid of a child that has ended and is not reaped yet; 0 if none has ended; -1 if there are no children."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return -1
    return ended.si_pid if ended is not None else 0


def reap(pid: int) -> bool:
    """Reap a child that has ended. Return False if the child has not ended, or the process is not a child."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None
    except ChildProcessError:
        return False


class Orphans:
    """The part of an owner that kills the descendants of its guardian, if the guardian itself was killed.

    The descendants are then children of this process. Create this object before the fork of the guardian. `end` kills the
    descendants, and spares all other children of this process. A shell that has executed ``exec holdfast run`` may have left
    other children, and process 1 gets the orphans of other programs.
    """

    subreaper: bool

    def __init__(self) -> None:
        self.subreaper = become_subreaper()
        self.since = -1
        """Start of the command, in clock ticks since boot; -1: not started. A process that is older is not a descendant."""
        self._others: set[int] = set()
        if self.subreaper and ended_child() >= 0:
            self.note(0, probe=True)

    def note(self, guardian: int, *, probe: bool = False) -> None:
        """Reap the ended children of this process, and record the living ones, so that `end` spares them.

        ``guardian``: pid of the guardian, which is excepted. Call this while the guardian lives. Until it ends, its descendants
        are not children of this process. If /proc does not show this PID namespace, living children are recorded only with
        ``probe``. The kernel is then asked about each possible pid, which is slow.
        """
        if not self.subreaper:
            return
        while (pid := ended_child()) > 0 and pid != guardian:
            self._others.discard(pid)
            reap(pid)
        if probe or own_proc():
            found = children()
            # A guardian becomes a zombie when its children pass to this process. So if it is no zombie yet, its children are
            # not among those found.
            if found is not None and not (guardian and has_ended(guardian)):
                self._others = {process.pid for process in found} - {guardian}

    def end(self, guardian: int, tell: Callable[[str, OsProcess], None]) -> None:
        """Kill the guardian and all its descendants, and return when they have ended.

        ``tell`` is called for each process that may not be signalled ("refused") or survives KILL ("stuck").
        """
        if is_child(guardian):
            os.kill(guardian, signal.SIGKILL)
            os.waitpid(guardian, 0)
        seen, told, step, before = set[int](), set[int](), 0.001, True
        while self.subreaper:
            left = self._left()
            moved = bool(left)
            while not left and (pid := ended_child()) != 0:
                if pid < 0:
                    return
                self._others.discard(pid)
                moved = reap(pid)
            # While this process has other children, wait(2) cannot report ECHILD, and a listing may miss a process that is
            # just being forked. So two listings must show none. No process may end in between, because it may have forked
            # another one.
            if left == [] and not moved and not before:
                return
            before = moved or left is None
            step = min(step * 1.5, 0.3) if seen.issuperset(process.pid for process in left or ()) else 0.001
            for process in left or ():
                seen.add(process.pid)
                refused = not process.send(signal.SIGKILL)
                if not reap(process.pid) and process.pid not in told and (refused or step > 0.25):
                    told.add(process.pid)
                    tell("refused" if refused else "stuck", process)
            time.sleep(step)

    def _left(self) -> list[OsProcess] | None:
        """Return the processes that the guardian has left behind; None if they cannot be determined."""
        found = descendants()
        if found is None:
            return None
        spared, left = set(self._others), []
        for process in found:
            of_others = process.pid in spared or process.parent in spared
            if of_others or (process.parent == os.getpid() and 0 <= process.started < self.since):
                spared.add(process.pid)
            else:
                left.append(process)
        return left
