"""Lend the terminal of ``holdfast run`` to the command's process group and take it back; let Ctrl-Z stop both groups.

The command is in a process group of its own, while the shell knows only the process group of `holdfast`. So when one of the two
groups is stopped or continued, `holdfast` does the same to the other. If stdin and stdout are both the terminal, the command's
group becomes the foreground group at once. Otherwise, as in ``holdfast run ... | less``, the group of `holdfast` and less stays
in the foreground. If the command then reads from the terminal, the kernel stops it with SIGTTIN, and `holdfast` makes the
command's group the foreground group.
"""

from __future__ import annotations

import os
import signal

STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class Terminal:
    """The controlling terminal of this process. If there is none, every method does nothing."""

    fd: int
    at_once: bool
    lent_to: int

    def __init__(self) -> None:
        self.fd = -1
        self.lent_to = 0
        """Process group to which this process has lent the terminal; 0 if the terminal is not lent."""
        try:
            self.fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        except OSError:
            pass
        self.at_once = os.isatty(0) and os.isatty(1) and self.ours()
        """True if the command's group becomes the foreground group when it starts."""

    def ours(self) -> bool:
        """Return True if the process group of this process is the foreground group of the terminal."""
        return self.fd >= 0 and self._holder() == os.getpgrp()

    def lend(self, group: int) -> bool:
        """Make a process group the foreground group of the terminal.

        Do nothing and return False if the foreground group is neither this process's group nor ``group``.
        """
        if self._holder() != group and not (self.ours() and self._give(group)):
            return False
        self.lent_to = group
        return True

    def take_back(self) -> None:
        """Make this process's group the foreground group again, if the group in `lent_to` is still the foreground group."""
        if self.lent_to and self._holder() == self.lent_to:
            self._give(os.getpgrp())
        self.lent_to = 0

    def _holder(self) -> int:
        try:
            return os.tcgetpgrp(self.fd)
        except OSError:  # there is no terminal, or it was hung up
            return -1

    def _give(self, group: int) -> bool:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})  # in the background, tcsetpgrp would stop us
        try:
            os.tcsetpgrp(self.fd, group)
        except OSError:
            return False
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return True


def stop_job(signum: int) -> None:
    """Stop this process's own process group with the signal ``signum``. Return when the group is continued (SIGCONT).

    If no shell could continue the group (it is orphaned), the kernel discards the signal, and the function returns at once.
    """
    before = signal.signal(signum, signal.SIG_DFL)
    try:
        os.killpg(0, signum)
    finally:
        signal.signal(signum, before)
