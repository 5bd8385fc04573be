"""The terminal of ``holdfast run``: lent to the command's process group, taken back, and Ctrl-Z passed on.

The command's group is not the shell's job: that is the group `holdfast` is in. So whatever the terminal and the shell
do to the one has to be done to the other. If both stdin and stdout are the terminal, the command gets it at once. With
``holdfast run ... | less`` it does not, for less, in the shell's job, is to read the keys; but a command that reads the
terminal nevertheless is stopped by the kernel with SIGTTIN, and is then given what it asked for.
"""

from __future__ import annotations

import os
import signal

STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class Terminal:
    """The controlling terminal. Without one, every method does nothing."""

    def __init__(self) -> None:
        self.fd = -1
        self.lent_to = 0
        """The group that was given the terminal last, 0 if none has it by us."""
        try:
            self.fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        except OSError:
            pass
        self.at_once = os.isatty(0) and os.isatty(1) and self.ours()
        """Lend it to the command from its start."""

    def ours(self) -> bool:
        """Whether our own process group is in the foreground."""
        return self.fd >= 0 and self._holder() == os.getpgrp()

    def lend(self, group: int) -> bool:
        """Give the terminal to a group, if it is ours to give; True also if the group has it already."""
        if self._holder() != group and not (self.ours() and self._give(group)):
            return False
        self.lent_to = group
        return True

    def take_back(self) -> None:
        """Take the terminal back from the group that has it by us."""
        if self.lent_to and self._holder() == self.lent_to:
            self._give(os.getpgrp())
        self.lent_to = 0

    def _holder(self) -> int:
        try:
            return os.tcgetpgrp(self.fd)
        except OSError:  # none, or hung up
            return -1

    def _give(self, group: int) -> bool:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})  # or asking from the background stops us
        try:
            os.tcsetpgrp(self.fd, group)
        except OSError:
            return False
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return True


def stop_job(signum: int) -> None:
    """Stop our whole process group, as the terminal would have; returns when it is continued.

    It returns at once where the kernel discards such a signal because no shell could continue the group (an orphaned
    process group). The caller can tell by whether a SIGCONT comes.
    """
    before = signal.signal(signum, signal.SIG_DFL)
    try:
        os.killpg(0, signum)
    finally:
        signal.signal(signum, before)
