"""The common part of `Event`, `CountDownLatch` and `Barrier` in both APIs: options and their checks, errors."""

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
"""Seconds, a day: none of these is meant to be left alone for so long and then to be relied on."""

PLACE = 30.0

ANSWER_WITHIN = 1.0
"""Seconds: what gets no answer by then is asked again, which does no harm."""

MOST = 10_000
"""Parties of a barrier: all of them are told in one run of a script."""

BROKEN_BY = {
    "died": "{who} gave no sign of life while it was waited for",
    "timeout": "{who} ran out of time",
    "abort": "{who} aborted it",
    "action": "the action failed in {who}",
    "lost": "the server has lost who was waiting",
}


class BrokenBarrier(HoldfastError, threading.BrokenBarrierError):
    """A barrier is broken, or was while this one waited at it. The others are told so, too."""

    name: str
    key: str
    reason: str
    """The cause: "died", "timeout", "abort", "action", "reset", or "lost" (the server has lost the list of waiters)."""
    by: str | None
    """The client that broke it, as ``host:pid (label)``; None when unknown."""


class Named:
    """Something that processes share under a name, on one server. Not to be pickled: it is made from its client and name."""

    _caller: Any
    _caller_type: type[Any]
    """How this face asks a server."""
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
        """Name under which processes share the object."""
        return self._name

    @property
    def key(self) -> str:
        """The key on the server, for messages."""
        return self._keys[0].decode(errors="backslashreplace")

    @property
    def _what(self) -> str:
        """Describe the object, for messages."""
        return f"{type(self).__name__} {self._name!r}"

    def __repr__(self) -> str:
        return f"<holdfast {self._what}>"

    def __reduce__(self) -> Never:
        raise TypeError(f"{self!r} cannot be pickled: make another one from the same server and name, where it is wanted")

    @contextmanager
    def _in_words(self, parameter: str) -> Iterator[None]:
        """Errors of the operations, as the user gets them. ``parameter``: which one all users have to agree on."""
        facts = {"name": self._name, "key": self.key}
        try:
            yield
        except KeyConflict as error:
            raise ConfigError(f"{self._what}: {error}; nothing was changed", parameter="name", **facts) from None
        except CountMismatch as error:
            raise ConfigError(
                f"{self._what} was made elsewhere with {parameter}={error.number}: all who use it have to agree; reset() makes "
                "it what this one says",
                parameter=parameter,
                **facts,
            ) from None
        except Forgotten:
            raise ServerError(
                f"{self._what}: the server has lost what was counted (restarted without its data, flushed, or deleted)", **facts
            ) from None


class BaseLatch(Named):
    """An event, or a latch."""

    @hides_client()
    def __init__(self, client: object, name: str | bytes, kind: str, *, count: object, keep: float, prefix: str) -> None:
        super().__init__(client, name, prefix, (b"waiters", b"done"))
        keep_ms = milliseconds(options.seconds(keep, "keep", 1.0))
        state, waiters, done = self._keys
        timeout = min(self._caller.timeout, ANSWER_WITHIN)
        self._latch = LatchSpec((state, waiters, done), kind, at_least_one(count, "count"), keep_ms, timeout)


class BaseBarrier(Named):
    """A barrier."""

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
        """How many have to come."""
        return self._meeting.parties

    def _broken(self, broken: Broken, record: bytes | None) -> BrokenBarrier:
        """The user's error for an internal one."""
        by = describe(record, broken.process)
        if broken.why == "reset":
            text = f"{self._what} was reset by {by or 'somebody'} while this one waited"
        else:
            why = BROKEN_BY.get(broken.why, broken.why).format(who=by or "somebody")
            text = f"{self._what} is broken: {why}; reset() makes it usable again"
        return self._error(text, name=self._name, key=self.key, reason=broken.why, by=by)


def at_least_one(value: object, parameter: str) -> int:
    """A checked whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{parameter} must be a whole number from 1, not {value!r}", parameter=parameter)
    return value


def patience(timeout: Any) -> float | None:
    """Seconds to wait, as threading takes them: below nothing is nothing."""
    return None if timeout is None else max(0.0, float(timeout))
