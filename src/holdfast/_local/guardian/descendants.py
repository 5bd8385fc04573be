"""The descendants of a process: finding, signalling and reaping them, whatever group, session or parent they have now.

A process that is a child subreaper (Linux, prctl(2)) becomes the parent of each descendant whose own parent has ended. So
it has no children any more (ECHILD) exactly when all of its descendants are gone: a fact of the kernel, which no listing
of processes can race with; but for orphans in a PID namespace of others that a descendant has joined (nsenter), which go to
its first process. Listings serve to find whom to signal. If some descendants are to be left alone, two of the ways have to
agree.

macOS has no subreaper. There, only a command's process group can be watched.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time

TYPE_CHECKING = False  # typing is not imported: the program `_local.guardian.program` has to start quickly
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>

_NOT_THERE = FileNotFoundError, ProcessLookupError, PermissionError
"""Errors of /proc for a process that has ended, or is hidden. Any other error says nothing about it."""

PROBED = 100_000
"""Process numbers that are asked about one by one where no /proc shows this PID namespace: 1.7 us each."""


def _prctl(option: int, value: int) -> bool:
    """Call prctl(2); whether it worked. The first call loads what it needs: make it before a fork."""
    if sys.platform != "linux":
        return False
    try:
        import _ctypes  # 0.4 ms; the package around it takes 2 ms more, for types that nobody needs here

        prctl = _ctypes.dlsym(_ctypes.dlopen(None), "prctl")  # type: ignore[arg-type]  # typeshed knows no None
        return bool(_ctypes.call_function(prctl, (option, value, 0, 0, 0)) == 0)
    except (ImportError, AttributeError, OSError):
        return False


def become_subreaper() -> bool:
    """Be given all orphans among the descendants from now on; False where the system has no such thing."""
    return _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Be killed when the parent ends. The parent is a thread, so it must have one only. Void after exec of a setuid program."""
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A process as it was seen. ``started``: in ticks since the boot, -1 if unknown; with the number it names it for good."""

    def __init__(self, pid: int, parent: int, group: int, session: int, started: int, *, ended: bool = False) -> None:
        self.pid, self.parent, self.group, self.session, self.started = pid, parent, group, session, started
        self.ended = ended
        """It is a zombie."""

    def send(self, *signals: int) -> bool:
        """Send it signals, unless the number is another process's by now; False if it may not be signalled."""
        try:
            if self.parent == os.getpid() or self.started < 0:  # its number cannot pass to another before it is reaped
                for signum in signals:
                    os.kill(self.pid, signum)
                return True
            fd = _pidfd(self.pid)
            try:
                now = look(self.pid)
                if now is not None and now.started == self.started:
                    for signum in signals:
                        if fd >= 0:
                            signal.pidfd_send_signal(fd, signum)
                        else:  # its number could pass to another since `look`: not within microseconds
                            os.kill(self.pid, signum)
            finally:
                if fd >= 0:
                    os.close(fd)
        except PermissionError:
            return False
        except OSError:  # it has ended
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
    """A descriptor of a process; -1 where this Python, the kernel or a sandbox has none, or none is left. Raises
    ProcessLookupError if it has ended."""
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
    """Whether /proc is there and shows this PID namespace, not the one around it (``unshare --pid`` without --mount-proc)."""
    me = os.getpid()  # a fork may be in another one
    if me not in _own_proc:
        try:
            with open("/proc/self/status", "rb") as file:  # noqa: PTH123
                alone = all(len(line.split()) == 2 for line in file if line.startswith(b"NSpid:"))
            _own_proc[me] = alone and os.readlink("/proc/self") == str(me)  # noqa: PTH115
        except OSError:
            _own_proc[me] = False
    return _own_proc[me]


def look(pid: int) -> Process | None:
    """Read the facts about a process from /proc, or ask the kernel where /proc is hidden (hidepid); None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
        parent, group, session = map(int, fields[1:4])
        ended = fields[0] in b"ZX" and int(fields[17]) < 2  # its first thread has ended; others may run on
        return Process(pid, parent, group, session, int(fields[19]), ended=ended)
    except (OSError, ValueError, IndexError):
        pass
    try:
        return Process(pid, 0, os.getpgid(pid), os.getsid(pid), -1)
    except OSError:
        return None


def children() -> list[Process] | None:
    """The children of this process, zombies included; None if they cannot be known. One that is new may be missing."""
    me, numbers = os.getpid(), None
    if own_proc():
        try:
            found = [process for pid in _children_of()(me) if (process := look(pid)) is not None]
        except OSError:  # no descriptor is to be had, so the kernel is asked about each number
            pass
        else:
            for process in found:
                process.parent = me  # with hidepid `look` cannot tell: an orphan would get its TERM late, and be no daemon
            return found
    else:
        numbers = _translated()
    numbers = _probed() if numbers is None else numbers
    return None if numbers is None else [_child(pid, me) for pid in numbers]


def descendants() -> list[Process] | None:
    """All processes below this one, parents before their children; None if they cannot be known.

    One that is forked, or given another parent, in this very moment may be missing. Without a /proc of this PID namespace,
    or a descriptor for it, these are the children only: kill them, and theirs are children, too.
    """
    found = children()
    if not found or not own_proc():
        return found
    known = {os.getpid(), *(process.pid for process in found)}
    try:
        children_of = _children_of()
        for parent in found:
            for pid in children_of(parent.pid):
                process = look(pid) if pid not in known else None
                if process is not None:
                    process.parent = parent.pid
                    known.add(pid)
                    found.append(process)
    except OSError:
        pass
    return found


def _child(pid: int, me: int) -> Process:
    try:
        return Process(pid, me, os.getpgid(pid), os.getsid(pid), -1)
    except OSError:
        return Process(pid, me, 0, 0, -1)


def _children_of() -> Callable[[int], Iterable[int]]:
    """Says the numbers of the children of a process."""
    me = os.getpid()
    return _listed if os.path.exists(f"/proc/{me}/task/{me}/children") else _searched()  # noqa: PTH110


def _listed(parent: int | str) -> Iterator[int]:
    """Children of a process, from the kernel's lists, one for each of its threads. Raises OSError if it cannot read them."""
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
    """The same for a kernel without such lists: from who says whose child it is, of all processes.

    Those that /proc hides (hidepid: other users', and those that protect their memory) do not say. The kernel is asked which of
    them are children of this process, as where there is no /proc of this PID namespace; theirs are not known.
    """
    me, families = os.getpid(), dict[int, set[int]]()
    numbers = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208
    for process in filter(None, map(look, numbers)):
        families.setdefault(process.parent, set()).add(process.pid)
    with open("/proc/self/mounts", "rb") as file:  # noqa: PTH123
        hidden = b"hidepid=" in file.read()
    if hidden:
        found = _probed()
        families[me] = {pid for pid in numbers if is_child(pid)} if found is None else set(found)
    return lambda parent: families.get(parent, ())


def _translated() -> list[int] | None:
    """Children, from a /proc of a PID namespace around this one: it shows ours, too, by other numbers. None if it is none."""
    try:
        ours = _numbers("self")
        if ours[-1] != os.getpid() or not os.path.exists("/proc/thread-self/children"):  # noqa: PTH110
            return None
        return [_numbers(pid)[len(ours) - 1] for pid in _listed("self")]
    except (OSError, IndexError):  # one of them has ended, or is hidden (hidepid)
        return None


def _numbers(pid: int | str) -> list[int]:
    """Those of a process in each PID namespace that it is in, the innermost last. Raises OSError."""
    with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
        return [int(number) for line in file if line.startswith(b"NSpid:") for number in line.split()[1:]]


def _probed() -> list[int] | None:
    """Children, by asking the kernel about each number that a process may have; None if there are too many of them."""
    try:
        with open("/proc/sys/kernel/pid_max", "rb") as file:  # noqa: PTH123
            newest = int(file.read())
    except (OSError, ValueError):
        newest = PROBED + 1
    if newest > PROBED:  # else they are few enough to ask about all: numbers are given anew when the last one has been used
        newest = _newest_number()
        if not os.getpid() <= newest <= PROBED:
            return None
    return [pid for pid in range(1, newest + 1) if is_child(pid)]


def _newest_number() -> int:
    """The number that was given to a process last, or would be given now. 0: it cannot be known.

    A kernel that can be asked (CONFIG_CHECKPOINT_RESTORE) answers for the PID namespace of who asks, whatever /proc is mounted.
    Else a new thread tells, since threads are numbered like processes; but on a busy machine it is a while before it runs, and
    who asks may have to kill something before the end of a lease.
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
    """Whether it is a child of this process, or was one that has ended and is not reaped yet: its number is still its own."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def has_ended(pid: int) -> bool:
    """Whether a child has ended, reaped or not."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def ended_child() -> int:
    """Number of a child that has ended and is not reaped yet; 0 if none has; -1 if there are no children at all."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return -1
    return ended.si_pid if ended is not None else 0


def reap(pid: int) -> bool:
    """Take a child that has ended off the kernel's table; False if it has not ended, or was no child."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None
    except ChildProcessError:
        return False


class Orphans:
    """The second line behind a guardian: when it is killed, its descendants become this process's children, and are ended.

    Make it before the fork of the guardian. Other children of this process are left alone: those that it had before
    (``exec holdfast run`` in a shell with jobs), and orphans that come from these, or come because it is process 1.
    """

    def __init__(self) -> None:
        self.subreaper = become_subreaper()
        self.since = -1
        """When the command was started, as in `Process`: what is older is not its descendant."""
        self._others: set[int] = set()
        if self.subreaper and ended_child() >= 0:
            self.note(0, probe=True)

    def note(self, guardian: int, *, probe: bool = False) -> None:
        """Reap other children that have ended, remember those that live. For while the guardian lives.

        ``probe``: also where that means to ask about many numbers.
        """
        if not self.subreaper:
            return
        while (pid := ended_child()) > 0 and pid != guardian:
            self._others.discard(pid)
            reap(pid)
        if probe or own_proc():
            found = children()
            # A guardian becomes a zombie in the moment in which it gives its children away: they are not among these.
            if found is not None and not (guardian and has_ended(guardian)):
                self._others = {process.pid for process in found} - {guardian}

    def end(self, guardian: int, tell: Callable[[str, Process], None]) -> None:
        """Kill the guardian and all that it leaves; return when they are gone. ``tell`` is told of what may not be signalled
        ("refused") or survives KILL ("stuck")."""
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
            # Beside children from before, the kernel does not say that nobody else is left, and a listing may miss a process
            # that is just being forked. So two have to show nobody, and nobody ends in between: a chain moves on by ending.
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

    def _left(self) -> list[Process] | None:
        """Find what the guardian has left behind; None if that cannot be known."""
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
