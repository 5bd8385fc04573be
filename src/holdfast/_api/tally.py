"""The counters of a lock object, for both APIs; `holdfast._api.statistics` has the class that users see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast._clock import clock

if TYPE_CHECKING:
    from holdfast._api.statistics import LockStatistics
    from holdfast._core.lock.records import Grant


class Contender(Protocol):
    """An attempt, as the counters use it."""

    waits_since: float | None
    """Local time in seconds at which the attempt began to wait; None: it does not wait."""


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

    waiting: int
    """Number of attempts that wait now."""

    def __init__(self) -> None:
        self.waiting = 0
        self.acquisitions = self.contended = self.timeouts = self.losses = self.ended = 0
        self.total_wait = self.longest_wait = self.total_hold = self.longest_hold = 0.0

    def waits(self, attempt: Contender, now: float) -> None:
        """Note that an attempt waits for another holder from local time ``now`` on. Later calls for it change nothing."""
        if attempt.waits_since is None:
            attempt.waits_since, self.waiting = now, self.waiting + 1  # without a call, so that no signal handler runs between

    def waited(self, grant: Grant) -> None:
        """Count an acquisition as contended if it had to wait."""
        if self.gave_up(grant.attempt, grant.taken):
            self.contended += 1

    def took(self, attempt: Contender, had_to_wait: bool) -> None:
        """Count an acquisition by a `MultiLock` as contended if one of its locks was busy."""
        if had_to_wait:
            self.contended += self.gave_up(attempt)
        elif attempt.waits_since is not None:
            attempt.waits_since, self.waiting = None, self.waiting - 1

    def stayed_busy(self, attempt: Contender) -> None:
        """Count an attempt that did not get the lock."""
        self.timeouts += 1
        self.gave_up(attempt)

    def gave_up(self, attempt: Contender, at: float | None = None) -> bool:
        """End the wait of an attempt at local time ``at`` (None: now). Return False if it never waited."""
        since = attempt.waits_since
        if since is None:
            return False
        attempt.waits_since, self.waiting = None, self.waiting - 1
        seconds = (clock() if at is None else at) - since
        self.total_wait += seconds
        if seconds > self.longest_wait:  # noqa: PLR1730 - as in `count_hold`
            self.longest_wait = seconds
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
            waiting=self.waiting,
            held=max(0, self.acquisitions - self.ended),
        )
