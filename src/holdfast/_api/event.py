"""`Event` and `CountDownLatch` between processes, for threads and for asyncio, and what a `Barrier` shares with them."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Never, TypeVar

from holdfast._api import options
from holdfast._api.caller import AioCaller, BaseCaller, Caller
from holdfast._api.flow import complete, of_asyncio
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.spec import milliseconds
from holdfast._core.names import encoded, start
from holdfast._core.rendezvous import latch
from holdfast._core.rendezvous.latch import CountMismatch, Forgotten, LatchSpec
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient, SyncClient
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import one_place
from holdfast.errors import ConfigError, ServerError

T = TypeVar("T")

KEEP = 86400.0
"""Default of ``keep``, one day in seconds. The server keeps an unused object for this time."""

ANSWER_WITHIN = 1.0
"""Maximum seconds to wait for an answer. Without an answer, the request is sent again; the server carries it out only once."""


class Named:
    """An object that processes share under a name, on one server. It cannot be pickled: in another process, create it again
    with the same name."""

    _caller: BaseCaller
    _caller_type: type[BaseCaller]
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
        return f"{type(self).__name__} {self._name!r}"

    def __repr__(self) -> str:
        return f"<holdfast {self._what}>"

    def __reduce__(self) -> Never:
        raise TypeError(f"{self!r} cannot be pickled: make another one from the same server and name in the other process")

    @contextmanager
    def _in_words(self, parameter: str) -> Iterator[None]:
        """Translate internal errors inside the ``with`` statement into errors for users. ``parameter`` is the option for which
        all users of the object must pass the same value."""
        facts = {"name": self._name, "key": self.key}
        try:
            yield
        except KeyConflict as error:
            raise ConfigError(f"{self._what}: {error}; nothing was changed", parameter="name", **facts) from None
        except CountMismatch as error:
            raise ConfigError(
                f"{self._what} was created elsewhere with {parameter}={error.number}: all users must pass the same "
                "number; reset() changes the number to that of this object",
                parameter=parameter,
                **facts,
            ) from None
        except Forgotten:
            raise ServerError(
                f"{self._what}: the server has lost the count (by a restart, a flush or a deletion)",
                **facts,
            ) from None


class BaseLatch(Named):
    """An event or a latch. Base class for threads and for asyncio."""

    @hides_client()
    def __init__(self, client: object, name: str | bytes, kind: str, *, count: object, keep: Seconds, prefix: str) -> None:
        super().__init__(client, name, prefix, (b"waiters", b"done"))
        keep_ms = milliseconds(options.seconds(keep, "keep", 1.0))
        state, waiters, done = self._keys
        timeout = min(self._caller.timeout, ANSWER_WITHIN)
        self._latch = LatchSpec((state, waiters, done), kind, at_least_one(count, "count"), keep_ms, timeout)

    async def _run(self, operation: Coroutine[Any, Any, T]) -> T:
        with self._in_words("count"):
            return await self._caller.run(operation, self._keys[0], self._what)


class Event(BaseLatch):
    """A flag that processes share, with the methods of `threading.Event`.

    Waiters are notified and do not poll; all waiters of a process share one connection. Waiters return once the event is set,
    even if it is cleared immediately afterwards.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL.
        name: name of the event, 1 to 512 bytes.
        keep: seconds for which the server keeps the event after the last call on it, such as set() or wait(). After that, the
            event is not set.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    _caller_type = Caller

    @hides_client()
    def __init__(
        self, client: SyncClient, name: str | bytes, *, keep: Seconds = KEEP, prefix: str = "hf:", **mistaken: Never
    ) -> None:
        options.refuse_mistaken(mistaken, "Event")
        super().__init__(client, name, "event 1", count=1, keep=keep, prefix=prefix)

    def is_set(self) -> bool:
        """Return True if the event is set, by asking the server. Raises ServerError."""
        return complete(self._run(latch.read_state(self._latch))).missing == 0

    def set(self) -> None:
        """Set the event; all waiters return. Raises ServerError."""
        complete(self._run(latch.down(self._latch, 1)))

    def clear(self) -> None:
        """Clear the event: new calls of `wait` wait until it is set again. Raises ServerError."""
        complete(self._run(latch.reset(self._latch)))

    def wait(self, timeout: Seconds | None = None, **mistaken: Never) -> bool:
        """Wait until the event is set, up to ``timeout`` seconds (None: no limit). Return False on timeout.
        Raises ServerError."""
        options.refuse_mistaken(mistaken, "Event.wait")
        return complete(self._run(latch.wait(self._latch, options.checked_timeout(timeout))))


@of_asyncio
class AioEvent(BaseLatch):
    """A flag that processes share, with the methods of `threading.Event`.

    Waiters are notified and do not poll; all waiters of a process share one connection. Waiters return once the event is set,
    even if it is cleared immediately afterwards.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL.
        name: name of the event, 1 to 512 bytes.
        keep: seconds for which the server keeps the event after the last call on it, such as set() or wait(). After that, the
            event is not set.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    _caller_type = AioCaller

    @hides_client("Event.__init__")
    def __init__(
        self, client: AsyncClient, name: str | bytes, *, keep: Seconds = KEEP, prefix: str = "hf:", **mistaken: Never
    ) -> None:
        options.refuse_mistaken(mistaken, "Event")
        super().__init__(client, name, "event 1", count=1, keep=keep, prefix=prefix)

    async def is_set(self) -> bool:
        """Return True if the event is set, by asking the server. Raises ServerError."""
        return (await self._run(latch.read_state(self._latch))).missing == 0

    async def set(self) -> None:
        """Set the event; all waiters return. Raises ServerError."""
        await self._run(latch.down(self._latch, 1))

    async def clear(self) -> None:
        """Clear the event: new calls of `wait` wait until it is set again. Raises ServerError."""
        await self._run(latch.reset(self._latch))

    async def wait(self, timeout: Seconds | None = None, **mistaken: Never) -> bool:
        """Wait until the event is set, up to ``timeout`` seconds (None: no limit). Return False on timeout.
        Raises ServerError."""
        options.refuse_mistaken(mistaken, "Event.wait")
        return await self._run(latch.wait(self._latch, options.checked_timeout(timeout)))


class CountDownLatch(BaseLatch):
    """A latch that opens when ``count`` things are done, in any processes. `wait` waits until the latch is open.

    Each call of `count_down` counts once, even if its answer is lost and the request is sent again. Of the calls with the same
    name (``by``), only the first counts. Once open, the latch stays open until `reset`.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL.
        name: name of the latch, 1 to 512 bytes.
        count: number of things to be done, at least 1. All users of the latch must pass the same number.
        keep: seconds after its last use, such as a wait, for which the server keeps the latch. After that, it starts again with
            nothing counted.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    _caller_type = Caller

    @hides_client()
    def __init__(
        self,
        client: SyncClient,
        name: str | bytes,
        count: int,
        *,
        keep: Seconds = KEEP,
        prefix: str = "hf:",
        **mistaken: Never,
    ) -> None:
        options.refuse_mistaken(mistaken, "CountDownLatch")
        super().__init__(client, name, "latch 1", count=count, keep=keep, prefix=prefix)

    @property
    def count(self) -> int:
        """The number of things still missing; 0 if the latch is open. Asks the server.

        Raises ServerError, and ConfigError if the latch has another ``count`` on the server.
        """
        return complete(self._run(latch.read_state(self._latch))).missing

    def count_down(self, n: int = 1, *, by: str | None = None, **mistaken: Never) -> int:
        """Count ``n`` things as done, and return the number still missing.

        ``by``: name of the thing or of its worker; a second call with the same name has no effect until `reset`. None: each
        call has an effect. Raises ServerError, and ConfigError if the latch has another ``count`` on the server.
        """
        options.refuse_mistaken(mistaken, "CountDownLatch.count_down")
        return complete(self._run(latch.down(self._latch, at_least_one(n, "n"), by or ""))).missing

    def wait(self, timeout: Seconds | None = None, **mistaken: Never) -> bool:
        """Wait until the latch is open, up to ``timeout`` seconds (None: no limit). Return False on timeout.

        Raises ServerError, also if the server has lost the count meanwhile, and ConfigError if the latch has another ``count``
        on the server.
        """
        options.refuse_mistaken(mistaken, "CountDownLatch.wait")
        return complete(self._run(latch.wait(self._latch, options.checked_timeout(timeout))))

    def reset(self) -> None:
        """Reset the latch: its count is the ``count`` of this object again. Raises ServerError."""
        complete(self._run(latch.reset(self._latch)))


@of_asyncio
class AioCountDownLatch(BaseLatch):
    """A latch that opens when ``count`` things are done, in any processes. `wait` waits until the latch is open.

    Each call of `count_down` counts once, even if its answer is lost and the request is sent again. Of the calls with the same
    name (``by``), only the first counts. Once open, the latch stays open until `reset`.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL.
        name: name of the latch, 1 to 512 bytes.
        count: number of things to be done, at least 1. All users of the latch must pass the same number.
        keep: seconds after its last use, such as a wait, for which the server keeps the latch. After that, it starts again with
            nothing counted.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    _caller_type = AioCaller

    @hides_client("CountDownLatch.__init__")
    def __init__(
        self,
        client: AsyncClient,
        name: str | bytes,
        count: int,
        *,
        keep: Seconds = KEEP,
        prefix: str = "hf:",
        **mistaken: Never,
    ) -> None:
        options.refuse_mistaken(mistaken, "CountDownLatch")
        super().__init__(client, name, "latch 1", count=count, keep=keep, prefix=prefix)

    @property
    async def count(self) -> int:
        """The number of things still missing; 0 if the latch is open. Asks the server.

        Raises ServerError, and ConfigError if the latch has another ``count`` on the server.
        """
        return (await self._run(latch.read_state(self._latch))).missing

    async def count_down(self, n: int = 1, *, by: str | None = None, **mistaken: Never) -> int:
        """Count ``n`` things as done, and return the number still missing.

        ``by``: name of the thing or of its worker; a second call with the same name has no effect until `reset`. None: each
        call has an effect. Raises ServerError, and ConfigError if the latch has another ``count`` on the server.
        """
        options.refuse_mistaken(mistaken, "CountDownLatch.count_down")
        return (await self._run(latch.down(self._latch, at_least_one(n, "n"), by or ""))).missing

    async def wait(self, timeout: Seconds | None = None, **mistaken: Never) -> bool:
        """Wait until the latch is open, up to ``timeout`` seconds (None: no limit). Return False on timeout.

        Raises ServerError, also if the server has lost the count meanwhile, and ConfigError if the latch has another ``count``
        on the server.
        """
        options.refuse_mistaken(mistaken, "CountDownLatch.wait")
        return await self._run(latch.wait(self._latch, options.checked_timeout(timeout)))

    async def reset(self) -> None:
        """Reset the latch: its count is the ``count`` of this object again. Raises ServerError."""
        await self._run(latch.reset(self._latch))


def at_least_one(value: object, parameter: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{parameter} must be a whole number from 1, not {value!r}", parameter=parameter)
    return value
