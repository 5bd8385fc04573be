"""The common base of `Event`, `CountDownLatch` and `Barrier` in both APIs: their options, checks and errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Never

from holdfast._api import options
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.records import Spec, answer_within, milliseconds
from holdfast._core.names import encoded, start
from holdfast._core.rendezvous.barrier import BarrierSpec, Broken
from holdfast._core.rendezvous.latch import CountMismatch, Forgotten, LatchSpec
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import one_place
from holdfast._runtime.process import describe
from holdfast.errors import ConfigError, HoldfastError, ServerError

KEEP = 86400.0
"""Default of ``keep``: seconds, one day, for which the server keeps an unused object."""

PLACE = 30.0

ANSWER_WITHIN = 1.0
"""Most seconds to wait for an answer. The request is then sent again, which has no further effect."""

MOST = 10_000
"""Most parties of a barrier: one run of a script notifies all of them."""

BROKEN_BY = {
    "died": "{who} gave no sign of life while the others waited for it",
    "timeout": "the wait of {who} timed out",
    "abort": "{who} aborted it",
    "action": "the action failed in {who}",
    "lost": "the server has lost the list of waiters",
}


class BrokenBarrier(HoldfastError, threading.BrokenBarrierError):
    """Raised by `Barrier.wait` if the barrier is broken, or breaks while the caller waits. All other waiters get it too."""

    name: str
    key: str
    reason: str
    """The cause: "died", "timeout", "abort", "action", "reset", or "lost" (the server has lost the list of waiters)."""
    by: str | None
    """The client that broke the barrier, as ``host:pid (label)``; None if unknown."""


class Named:
    """An object that processes share under a name, on one server. It cannot be pickled; create it from its client and name."""

    _caller: Any
    _caller_type: type[Any]
    """Class that sends the requests of this API (sync or asyncio)."""
    _name: str
    _keys: tuple[bytes, ...]

    @hides_client()
    def __init__(self, client: object, name: str | bytes, prefix: str, sides: tuple[bytes, ...]) -> None:
        self._caller = self._caller_type(one_place(client, type(self).__name__))
        self._name = name.decode(errors="backslashreplace") if isinstance(name, bytes) else str(name)
        base = start(prefix) + b"{" + encoded(name, "name") + b"}"
        self._keys = (base, *(base + b":" + side for side in sides))

    @property
    def name(self) -> str:
        """The name under which processes share the object."""
        return self._name

    @property
    def key(self) -> str:
        """The main key of the object on the server."""
        return self._keys[0].decode(errors="backslashreplace")

    @property
    def _what(self) -> str:
        """A description of the object, for messages."""
        return f"{type(self).__name__} {self._name!r}"

    def __repr__(self) -> str:
        return f"<holdfast {self._what}>"

    def __reduce__(self) -> Never:
        raise TypeError(f"{self!r} cannot be pickled: make another one from the same server and name in the other process")

    @contextmanager
    def _in_words(self, parameter: str) -> Iterator[None]:
        """Translate internal errors into those of users. ``parameter`` is the option that all users of the object must agree
        on."""
        facts = {"name": self._name, "key": self.key}
        try:
            yield
        except KeyConflict as error:
            raise ConfigError(f"{self._what}: {error}; nothing was changed", parameter="name", **facts) from None
        except CountMismatch as error:
            raise ConfigError(
                f"{self._what} was created elsewhere with {parameter}={error.number}: all users must pass the same; reset() "
                "changes it to that of this object",
                parameter=parameter,
                **facts,
            ) from None
        except Forgotten:
            raise ServerError(
                f"{self._what}: the server has lost what was counted (restarted without its data, flushed, or deleted)", **facts
            ) from None


class BaseLatch(Named):
    """An event or a latch: the part that the sync and the asyncio API share."""

    @hides_client()
    def __init__(self, client: object, name: str | bytes, kind: str, *, count: object, keep: float, prefix: str) -> None:
        super().__init__(client, name, prefix, (b"waiters", b"done"))
        keep_ms = milliseconds(options.seconds(keep, "keep", 1.0))
        state, waiters, done = self._keys
        timeout = min(self._caller.timeout, ANSWER_WITHIN)
        self._latch = LatchSpec((state, waiters, done), kind, at_least_one(count, "count"), keep_ms, timeout)


class BaseBarrier(Named):
    """A barrier: the part that the sync and the asyncio API share."""

    _error: type[BrokenBarrier] = BrokenBarrier

    @hides_client("Barrier.__init__")
    def __init__(
        self,
        client: object,
        name: str | bytes,
        parties: int,
        action: Callable[[], object] | None = None,
        timeout: float | None = None,
        *,
        ttl: float = PLACE,
        keep: float = KEEP,
        prefix: str = "hf:",
    ) -> None:
        super().__init__(client, name, prefix, (b"places", b"done", b"waiters", b"action"))
        self._action = action
        self._timeout = patience(timeout)
        number = at_least_one(parties, "parties")
        if number > MOST:
            raise ConfigError(f"parties must be at most {MOST}, not {number}", parameter="parties")
        ttl = options.seconds(ttl, "ttl", options.MIN_TTL)
        lock = self._keys[-1]
        keys = (lock, lock + b":state", lock + b":queue")
        within = min(self._caller.timeout, ANSWER_WITHIN, answer_within(ttl))
        spec = Spec(self._name, keys, ttl, renew=True, max_hold=None, timeout=within)
        self._meeting = BarrierSpec(self._keys[:-1], spec, number, milliseconds(options.seconds(keep, "keep", 1.0)))

    @property
    def parties(self) -> int:
        """The number of participants that have to wait at the barrier before all of them go on."""
        return self._meeting.parties

    def _broken(self, broken: Broken, record: bytes | None) -> BrokenBarrier:
        """Return the BrokenBarrier for an internal error. ``record`` describes the process that broke the barrier."""
        by = describe(record, broken.process)
        if broken.why == "reset":
            text = f"{self._what} was reset by {by or 'another client'} during this wait"
        else:
            why = BROKEN_BY.get(broken.why, broken.why).format(who=by or "another participant")
            text = f"{self._what} is broken: {why}; reset() makes it usable again"
        return self._error(text, name=self._name, key=self.key, reason=broken.why, by=by)


def at_least_one(value: object, parameter: str) -> int:
    """Return ``value``. Raises ConfigError if it is not a whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{parameter} must be a whole number from 1, not {value!r}", parameter=parameter)
    return value


def patience(timeout: Any) -> float | None:
    """Return the seconds to wait (None: no limit). Negative values count as 0, as in threading."""
    return None if timeout is None else max(0.0, float(timeout))
