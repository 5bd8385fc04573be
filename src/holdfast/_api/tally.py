"""The counters of a lock object, for both APIs; `_api.statistics` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._clock import clock

if TYPE_CHECKING:
    from holdfast._api.statistics import LockStatistics
    from holdfast._core.lock.records import Grant


class Tally:
    """The counts of one lock object."""

    __slots__ = (
        "acquisitions", "contended", "ended", "longest_hold", "longest_wait", "losses", "timeouts", "total_hold",
        "total_wait", "waiting",
    )  # fmt: skip

    def __init__(self) -> None:
        self.waiting: dict[int, float] = {}
        """Start (local seconds) of each attempt's wait for another holder, by the id of the attempt, which is not kept
        alive here."""
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
        from holdfast._api.statistics import LockStatistics  # here: most never ask

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
