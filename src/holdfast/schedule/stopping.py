"""The handling of signals that stop `Schedule.run`."""

from __future__ import annotations

import signal
from collections.abc import Callable


class Stopping:
    """A signal handler that stops a schedule. Runs have ``wait`` seconds to end after the first signal, none after the second.

    SIGHUP is handled like the first signal, so that runs may finish when a terminal is closed. A second SIGHUP is ignored,
    because the shell and the kernel may both send one. If SIGHUP was ignored at the start, as under nohup, it stays ignored.
    """

    def __init__(self, stop: Callable[[float], None], wait: float) -> None:
        self._stop, self._wait = stop, wait
        self._begun = False

    @staticmethod
    def signals() -> tuple[int, ...]:
        hangup: int | None = getattr(signal, "SIGHUP", None)  # not on Windows
        if hangup is None or signal.getsignal(hangup) is signal.SIG_IGN:
            return signal.SIGTERM, signal.SIGINT
        return signal.SIGTERM, signal.SIGINT, hangup

    def heard(self, number: int, _frame: object = None) -> None:
        """Stop the schedule and give its runs ``wait`` seconds. If it is stopping already, cancel its runs at once."""
        if not self._begun:
            self._begun = True
            self._stop(self._wait)
        elif number != getattr(signal, "SIGHUP", None):
            self._stop(0.0)
