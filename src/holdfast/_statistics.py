"""What a lock object has counted, for both faces: how often it was taken, how long that took, and how long it was held."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast._core.attempt import Grant
from holdfast._drive.clock import clock


@dataclass(frozen=True, slots=True)
class LockStatistics:
    """What one lock object has counted since it was made; other objects of the same name, and other processes, count for
    themselves. Times are in seconds.

    ``acquisitions`` and all about holding are counted by the one who holds the lock, so they are exact. The others are
    counted by whoever waits, without a mutex, which would cost more than they are worth: where many threads give up at the
    same moment, one may be missing. The numbers are read one after the other, while others go on.
    """

    acquisitions: int
    """How often it was taken. Taking an `RLock` again does not count."""
    contended: int
    """Those of them that had to wait for another holder."""
    timeouts: int
    """How often it stayed busy, for ``wait`` or when asked without waiting."""
    losses: int
    """Leases that were lost while they were held."""
    total_wait: float
    """Time spent by those that had to wait, whether they got it or not; from when it was found busy."""
    longest_wait: float
    total_hold: float
    """Time for which it was held, from when it was taken until it was given back or lost."""
    longest_hold: float
    waiting: int
    """Threads or tasks that wait for another holder at this moment."""
    held: int
    """Leases of it that are held at this moment."""


class Tally:
    """The counts of one lock object."""

    __slots__ = (
        "acquisitions", "contended", "ended", "longest_hold", "longest_wait", "losses", "timeouts", "total_hold",
        "total_wait", "waiting",
    )  # fmt: skip

    def __init__(self) -> None:
        self.waiting: dict[int, float] = {}
        """Who waits for another holder, by the id of the attempt, which is not kept alive here; and since when (local
        seconds)."""
        self.acquisitions = self.contended = self.timeouts = self.losses = self.ended = 0
        self.total_wait = self.longest_wait = self.total_hold = self.longest_hold = 0.0

    def waits(self, attempt: object) -> None:
        """It has begun to wait for another holder; said again each time that it goes on."""
        self.waiting.setdefault(id(attempt), clock())

    def waited(self, grant: Grant) -> None:
        """Somebody has got the lock who may have had to wait."""
        if self.gave_up(grant.attempt):
            self.contended += 1

    def took(self, attempt: object, had_to_wait: bool) -> None:
        """Somebody has got several locks; or has found all of them free."""
        if not had_to_wait:
            self.waiting.pop(id(attempt), None)
        elif self.gave_up(attempt):
            self.contended += 1

    def stayed_busy(self, attempt: object) -> None:
        """It did not get the lock."""
        self.timeouts += 1
        self.gave_up(attempt)

    def gave_up(self, attempt: object) -> bool:
        """It waits no more. False: it never did."""
        since = self.waiting.pop(id(attempt), None)
        if since is None:
            return False
        seconds = clock() - since
        self.total_wait += seconds
        self.longest_wait = max(self.longest_wait, seconds)
        return True

    def held(self, seconds: float) -> None:
        """A lease has ended that was held for so long."""
        self.ended += 1
        self.total_hold += seconds
        if seconds > self.longest_hold:  # noqa: PLR1730 - half the time of max, and it is on everybody's way
            self.longest_hold = seconds

    def now(self) -> LockStatistics:
        """All of them at this moment."""
        return LockStatistics(
            acquisitions=self.acquisitions,
            contended=self.contended,
            timeouts=self.timeouts,
            losses=self.losses,
            total_wait=self.total_wait,
            longest_wait=self.longest_wait,
            total_hold=self.total_hold,
            longest_hold=self.longest_hold,
            waiting=len(self.waiting),
            held=max(0, self.acquisitions - self.ended),
        )
