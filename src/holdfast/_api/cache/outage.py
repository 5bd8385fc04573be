"""The behaviour of a cache while its server is unreachable. One call per second asks the server; the others need not wait."""

from __future__ import annotations

from holdfast._clock import clock
from holdfast._log import logger
from holdfast.errors import ConfigError, ServerError

log = logger("holdfast.cache")

RETRY = 1.0
"""Seconds between two requests of a cache object to an unreachable server, whichever caller makes them."""

FULL = {"OOM", "MISCONF", "NOREPLICAS"}
"""Error codes of a server that cannot store anything at the moment. The cache treats such a server as unreachable."""


class Away(Exception):
    """The server is unreachable, and the cache works without it (``down="load"``)."""


class Outage:
    """The state of a cache's server: reachable or not.

    ``what``: name of the cache, for messages. ``down``: what a call does while the server is unreachable. With "load", it goes
    on without the server; with "raise", it raises ServerError.
    """

    def __init__(self, what: str, down: str) -> None:
        if down not in {"load", "raise"}:
            raise ConfigError(f"down must be 'load' or 'raise', not {down!r}", parameter="down")
        self._what, self._down = what, down
        self._until = 0.0
        self.error: ServerError | None = None
        """Error of the last request that found the server unreachable; None while the server answers."""

    def keep_off(self, error: ServerError) -> None:
        """Let one caller every `RETRY` seconds ask the server. For the others, raise Away, or ServerError if ``down`` is
        "raise"."""
        now = clock()
        if now >= self._until:
            self._until = now + RETRY
            return
        if self._down == "load":
            raise Away
        raise ServerError(
            f"{self._what}: the server was away a moment ago, and is asked again in {self._until - now:.1f} s; "
            f"its error was: {error}",
            address=error.address,
        ) from error

    def begins(self, error: ServerError) -> None:
        """Record that the server cannot be reached, and raise Away, or ``error`` if ``down`` is "raise".

        If the server was reached and has refused the request for good, only raise ``error``.
        """
        if error.code and not (error._transient or error.code in FULL):  # noqa: SLF001 - for holdfast only
            raise error  # The server is reachable, and would answer the same again.
        first, self.error, self._until = self.error is None, error, clock() + RETRY
        if first:
            then = "loads go on without it" if self._down == "load" else "calls fail"
            log.warning("%s: the server is away, %s until it is back: %s", self._what, then, error)
        if self._down == "raise":
            raise error
        raise Away from error

    def ends(self) -> None:
        self.error = None
        log.info("%s: the server is back", self._what)
