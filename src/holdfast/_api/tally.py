"""The counters of a lock object, for both APIs; `holdfast._api.statistics` has the class that users see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._clock import clock

if TYPE_CHECKING:
    from holdfast._api.statistics import LockStatistics
    from holdfast._core.lock.records import Grant


class Tally:
    """The counters behind `Lock.statistics`, one object for each lock object. Times are in seconds."""

    __slots__ = (
        "acquisitions", "contended", "ended", "longest_hold", "longest_wait", "losses", "timeouts", "total_hold",
        "total_wait", "waiting",
    )  # fmt: skip

    acquisitions: int
    ended: int
    losses: int
    longest_hold: float
    total_hold: float
    contended: int
    timeouts: int
    total_wait: float
    longest_wait: float

    def __init__(self) -> None:
        self.waiting: dict[int, float] = {}
        """Local time in seconds at which each attempt began to wait. The key is the attempt's id, which does not keep it
        alive."""
        self.acquisitions = self.contended = self.timeouts = self.losses = self.ended = 0
        self.total_wait = self.longest_wait = self.total_hold = self.longest_hold = 0.0

    def waits(self, attempt: object, now: float) -> None:
        """Note that an attempt waits for another holder from local time ``now`` on. Later calls for it change nothing."""
        self.waiting.setdefault(id(attempt), now)

    def waited(self, grant: Grant) -> None:
        """Count an acquisition as contended if it had to wait."""
        if self.gave_up(grant.attempt, grant.taken):
            self.contended += 1

    def took(self, attempt: object, had_to_wait: bool) -> None:
        """Count an acquisition by a `MultiLock` as contended if one of its locks was busy."""
        if not had_to_wait:
            self.waiting.pop(id(attempt), None)
        elif self.gave_up(attempt):
            self.contended += 1

    def stayed_busy(self, attempt: object) -> None:
        """Count an attempt that did not get the lock."""
        self.timeouts += 1
        self.gave_up(attempt)

    def gave_up(self, attempt: object, at: float | None = None) -> bool:
        """End the wait of an attempt at local time ``at`` (None: now). Return False if it never waited."""
        since = self.waiting.pop(id(attempt), None)
        if since is None:
            return False
        seconds = (clock() if at is None else at) - since
        self.total_wait += seconds
        self.longest_wait = max(self.longest_wait, seconds)
        return True

    def now(self) -> LockStatistics:
        from holdfast._api.statistics import LockStatistics  # Imported late: most programs never ask for it.

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
