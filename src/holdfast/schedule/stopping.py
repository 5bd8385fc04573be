"""Which signals stop `Schedule.run`, and what each of them does."""

from __future__ import annotations

import signal
from collections.abc import Callable


class Stopping:
    """Turns signals into a stop: the first one lets runs go on for ``wait`` seconds, the second one ends them at once.

    A SIGHUP stops, too, so that the end of a terminal or session does not cut runs short. But a closing terminal may send
    it twice, once by the shell and once by the kernel: only the first one counts. Under nohup it is ignored, as asked.
    """

    def __init__(self, stop: Callable[[float], None], wait: float) -> None:
        self._stop, self._wait = stop, wait
        self._begun = False

    @staticmethod
    def signals() -> tuple[int, ...]:
        """The numbers of those that are to be handled."""
        hangup: int | None = getattr(signal, "SIGHUP", None)  # not on Windows
        if hangup is None or signal.getsignal(hangup) is signal.SIG_IGN:
            return signal.SIGTERM, signal.SIGINT
        return signal.SIGTERM, signal.SIGINT, hangup

    def heard(self, number: int, _frame: object = None) -> None:
        """A signal has come."""
        if not self._begun:
            self._begun = True
            self._stop(self._wait)
        elif number != getattr(signal, "SIGHUP", None):
            self._stop(0.0)
