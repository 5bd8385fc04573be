"""A server that may be away: for a moment it is not asked again, so that not each call of an outage waits for it."""

from __future__ import annotations

from holdfast._clock import clock
from holdfast._core.requests import Refused
from holdfast._log import logger
from holdfast.errors import ConfigError, ServerError

log = logger("holdfast.cache")

RETRY = 1.0
"""Seconds for which a server that was away is not asked again by this object; then one caller asks."""

FULL = {"OOM", "MISCONF", "NOREPLICAS"}
"""Refusals of a server that cannot store anything just now: it might as well be away."""


class Away(Exception):
    """The server is away, and it is to be done without."""


class Outage:
    """Whether the server of a cache is away, and what is made of that: ``down`` is "load" or "raise"."""

    def __init__(self, what: str, down: str) -> None:
        if down not in {"load", "raise"}:
            raise ConfigError(f"down must be 'load' or 'raise', not {down!r}", parameter="down")
        self._what, self._down = what, down
        self._until = 0.0
        self.error: ServerError | None = None
        """Error of the last request that found the server away; None while the server answers."""

    def keep_off(self, error: ServerError) -> None:
        """Let one caller ask each `RETRY` seconds. Raises Away, or ServerError, for the others."""
        now = clock()
        if now >= self._until:
            self._until = now + RETRY
            return
        if self._down == "load":
            raise Away
        raise ServerError(
            f"{self._what}: the server was away a moment ago, and is asked again in {self._until - now:.1f} s; then: {error}",
            address=error.address,
        ) from error

    def begins(self, error: ServerError) -> None:
        """The server could not be asked. Raises Away, or the error."""
        cause = error.__cause__
        if isinstance(cause, Refused) and not (cause.transient or cause.code in FULL):
            raise error  # it is there, and will say the same the next time
        first, self.error, self._until = self.error is None, error, clock() + RETRY
        if first:
            then = "loads go on without it" if self._down == "load" else "calls fail"
            log.warning("%s: the server is away, %s until it is back: %s", self._what, then, error)
        if self._down == "raise":
            raise error
        raise Away from error

    def ends(self) -> None:
        """It has answered."""
        self.error = None
        log.info("%s: the server is back", self._what)
