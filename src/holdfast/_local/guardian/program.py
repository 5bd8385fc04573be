"""The guardian: a small process between an owner and a command, so that no process of the command outlives the owner.

The owner, which wants to run a command, starts the guardian, and the guardian starts the command. If a process of the command
ends, its children become children of the guardian (`holdfast._local.guardian.descendants`). Only the owner holds the other end
of the guardian's channel open. When the owner ends, even by SIGKILL, the guardian reads the end of file, and kills the command
with all its descendants.

This module is also a program, which runs a private server: ``python *PROGRAM [--remove DIR] -- CMD...``. Its channel is stdin.
On the end of file, or on SIGTERM, it kills CMD and its descendants, and removes DIR. If CMD ends by itself, the program exits
at once with CMD's exit code. Until the owner closes the channel, it can read the logs in DIR. Then a forked copy of the program
removes DIR.

`holdfast._local.guardian.guardian` is the guardian of ``holdfast run``, built from the same parts.
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
else:  # this is a program, and importing the package around it would double its start time
    import descendants  # type: ignore[import-not-found,no-redef]

TYPE_CHECKING = False  # typing is not imported, because this file is also a program that has to start quickly
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import NoReturn

MASKABLE = [s for s in signal.valid_signals() if s not in {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}]
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
PROGRAM = ("-I", "-S", "-c", f"import sys; sys.path.append({_HERE!r}); import program; sys.exit(program.main())")
"""Arguments with which the Python interpreter runs this module as a program.

The interpreter imports the module, because it would compile a script anew at each start.
"""

NAME = "hf-guardian"
"""Name of a guardian process in ps."""


def kill_margin(lease: float) -> float:
    """Return the kill margin: a running command is killed this number of seconds before the end of its lease.

    ``lease``: length of the lease, in seconds. Finding and killing all descendants takes a few milliseconds, or a few hundred
    on an overloaded machine.
    """
    return min(0.5, lease / 10)


def clock() -> float:
    """Return the time in seconds of a monotonic clock that all processes of this machine share.

    The clock also counts while the machine sleeps.
    """
    return time.clock_gettime(_CLOCK)


def send(group: int, signum: int) -> None:
    """Send a signal to a process group. Do nothing if the group is gone, or may not be signalled."""
    try:
        os.killpg(group, signum)
    except (ProcessLookupError, PermissionError):
        pass


def alive(group: int) -> bool:
    """Return True if a process group may have a member that is not a zombie.

    This is used where orphans do not become our children, such as on macOS. Zombies count as ended, because they stay forever
    in a container whose process 1 does not reap them.

    On Linux, the zombies are found in /proc. A listing may miss a member that is being forked, or may show another PID
    namespace. So a group that exists counts as ended only if two successive listings show the same zombies, and no other
    member. macOS has no /proc, but refuses a signal to a group of zombies.
    """
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        if sys.platform == "darwin":  # the answer of macOS for a group of zombies
            return False
    before = _members(group)
    return not before or any(before.values()) or _members(group) != before


def _members(group: int) -> dict[int, bool]:
    """Map the pid of each member of a process group, as /proc lists them, to False if it is a zombie, otherwise True."""
    try:
        numbers = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208 (pathlib imports slowly)
    except OSError:
        return {}
    seen = (descendants.read_process(number) for number in numbers)
    return {process.pid: not process.ended for process in seen if process is not None and process.group == group}


def exit_code(status: int) -> int:
    """Return the exit code that a shell shows for a wait status."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


class Group:
    """A command as the leader of its own process group, with all its descendants inside and outside the group.

    The method `reap` reaps the leader last. Until then the leader stays a zombie, so that the kernel does not give its pid,
    which is also the id of the group, to another process.
    """

    def __init__(self) -> None:
        self.subreaper = descendants.become_subreaper()
        """True if orphaned descendants become children of this process. Otherwise, only the group can be signalled."""
        self.pid = 0
        """Pid of the leader, which is also the id of the group; 0 before the start."""
        self.status: int | None = None
        """Wait status of the leader; None while it runs."""
        self.gone = False
        """True if no process of the command is left."""
        self.exec_errno = 0
        """errno of the failed exec of the command; 0 if it succeeded."""
        self._report = -1
        self.ends = 0
        """Number of descendants reaped so far."""
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
        """Fork and execute the command, which does not begin before ``announce(pid)`` has returned.

        ``tty``: file descriptor of the terminal whose foreground process group the command becomes; -1: none. ``stdin``: file
        descriptor that becomes the command's stdin. ``ignored``: signals that the command ignores from its start.
        """
        go_read, go_write = os.pipe()
        self._report, report = os.pipe()
        # A signal sent to the new process before it has reset its signals must be kept until then, not ignored.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.pid = os.fork()
            if self.pid == 0:
                descendants.die_with_parent()  # called first, because a parent that has ended never writes the byte
                os.close(go_write)
                _execute(argv, env, go_read, report, tty=tty, stdin=stdin, ignored=ignored)
            try:
                os.setpgid(self.pid, self.pid)  # the child does this, too, and the first of the two calls counts
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
        """Reap ended processes. Return the signals that have stopped the leader since the last call (job control)."""
        if not self.pid or self.gone:
            return []
        stops = self._look_at_leader() if self.status is None else []
        if self.subreaper:
            self._reap_all()
        else:
            self.gone = self.status is not None and not alive(self.pid)
        return stops

    def _look_at_leader(self) -> list[int]:
        """Return the signals that have stopped the leader since the last call, and set its status if it has ended."""
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
            except ChildProcessError:  # an ended process counts as no child in a query for stops
                pass
            end = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if end is not None:
                self.status = end.si_status << 8 if end.si_code == os.CLD_EXITED else end.si_status
        if self.status is not None:
            # exec or the end of the leader closes the other end, so this does not block
            self.exec_errno = int(os.read(self._report, 16) or b"0")
        return stops

    def _reap_all(self) -> None:
        """Reap the orphans that have ended, and the leader after all others."""
        while (pid := descendants.ended_child()) > 0:
            if pid == self.pid:
                # The leader has ended since the last check, and its status must be read before it is reaped.
                if self.status is None:
                    self._look_at_leader()
                if self._others_live():
                    return
            self.ends += descendants.reap(pid)
            self._reaped = self._reaped or pid == self.pid
        self.gone = pid < 0

    def _others_live(self) -> bool:
        """Reap processes that have ended, and return True if processes other than the leader are seen alive."""
        while True:
            others = [process.pid for process in descendants.children() or () if process.pid != self.pid]
            ended = [pid for pid in others if descendants.reap(pid)]
            if not ended:  # otherwise look again, because the children of the reaped processes have become ours
                return bool(others)
            self.ends += len(ended)

    def send(self, signum: int) -> None:
        """Send a signal to the whole group, if it still exists."""
        if self._reaped:
            try:  # the number belongs to the group as long as an unreaped child of ours is in it
                os.waitid(os.P_PGID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
        send(self.pid, signum)

    def others(self) -> list[descendants.OsProcess]:
        """Return all living descendants that can be found, without the leader, parents before their children."""
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
    """Execute the command in the forked process, as leader of a new process group, after a byte has come from the pipe ``go``.

    If the exec fails, write its errno to the pipe ``report``. The other arguments are those of `Group.start`.
    """
    try:
        os.setpgid(0, 0)
        if os.read(go, 1) != b"!":  # the guardian was killed before any other process knew of this one
            os._exit(1)
        if tty >= 0:
            try:
                os.tcsetpgrp(tty, os.getpid())  # allowed from the background, because SIGTTOU is blocked
            except OSError:
                pass
        if stdin:
            os.dup2(stdin, 0)
        for signum in MASKABLE:
            signal.signal(signum, signal.SIG_IGN if signum in ignored else signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if not argv[0]:  # Python would raise ValueError; this is the kernel's error for a name that does not exist
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        os.execvpe(argv[0], list(argv), env)  # noqa: S606
    except OSError as error:
        os.write(report, str(error.errno or 0).encode())
        os._exit(127 if isinstance(error, (FileNotFoundError, NotADirectoryError)) else 126)
    finally:
        os._exit(126)


def rename() -> None:
    """Rename this process to hf-guardian in ps, pgrep and pkill, so that ``pkill -9 -f "holdfast run"`` does not kill it."""
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
    except (OSError, ValueError):  # no /proc, so nobody sees the arguments either
        pass


def retreat(keep: Collection[int] = ()) -> int:
    """Ignore all signals except SIGCHLD, and close all file descriptors above 2 except ``keep``.

    Return a new file descriptor, which becomes readable when a signal that Python handles, such as SIGCHLD, has arrived. The
    caller must have blocked all signals.
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
    """Do nothing. `retreat` makes Python write the signal to a file descriptor."""


def noted_signals(wake: int) -> bytes:
    """Return the numbers of the signals since the last call, one byte each. ``wake``: the file descriptor from `retreat`."""
    try:
        return os.read(wake, 4096)
    except BlockingIOError:
        return b""


def empty_hands(*descriptors: int) -> None:
    """Replace these file descriptors by /dev/null.

    Otherwise the guardian would keep a pipe open that the command has closed.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for fd in descriptors:
        os.dup2(null, fd)
    os.close(null)


# ------------------------------------------------------------------------------------------------------- the program


def main() -> int:
    """Watch over a private server, as the module's docstring describes, and return the exit code."""
    arguments = sys.argv[1:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    options, command = arguments[:at], arguments[at + 1 :]
    if not command or (options and (len(options) != 2 or options[0] != "--remove")):
        sys.stderr.write("usage: program [--remove DIR] -- CMD...\n")
        return 64
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        os.setsid()  # leave the terminal, and the group that `kill -9 -PGID` of the parent's job would hit
    except OSError:
        pass  # already the leader of its own group
    rename()
    wake = retreat()
    signal.signal(signal.SIGTERM, noted)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    group = Group()
    group.start(command, os.environ, stdin=os.open(os.devnull, os.O_RDWR))
    try:
        by_itself = _until_end(group, wake)
    finally:
        group.send(signal.SIGKILL)  # the remaining members of the group, or all of it
    code = _finish(group, wake)
    if group.exec_errno:
        sys.stderr.write(f"{command[0]}: {os.strerror(group.exec_errno)}\n")
        sys.stderr.flush()
    if options:
        if by_itself and os.fork():
            os._exit(code)  # the owner gets the exit code now, but needs the directory until it closes the channel
        _remove_at_end(options[1], wait=by_itself)
    return code


def _until_end(group: Group, wake: int) -> bool:
    """Wait for the end of the command, and return True. Return False if the owner ends first, or this program gets SIGTERM."""
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
    """Return data from the owner, which the caller ignores; empty if the owner has ended."""
    try:
        return os.read(0, 65536)
    except OSError:  # the owner has ended without reading, or there is no channel at all
        return b""


def _finish(group: Group, wake: int) -> int:
    """Kill the remaining processes, wait until all have ended, and return the exit code."""
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
    for _ in range(400):  # at most 2 s
        if group.gone:
            break
        time.sleep(0.005)
        group.reap()
    return exit_code(group.status)


def _remove_at_end(directory: str, *, wait: bool) -> None:
    """Remove the directory. With ``wait``, first wait until the owner has closed the channel."""
    if wait:
        empty_hands(1, 2)  # a reader of our output must not wait for this
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
