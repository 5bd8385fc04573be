"""`Event` and `CountDownLatch` between processes, for threads. `holdfast.aio` has the classes for asyncio."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast._api import event
from holdfast._api.caller import Caller
from holdfast._core.rendezvous import latch
from holdfast._net.redaction import hides_client

_T = TypeVar("_T")


class _Latch(event.BaseLatch):
    _caller: Caller
    _caller_type = Caller

    def _run(self, operation: Coroutine[Any, Any, _T]) -> _T:
        with self._in_words("count"):
            return self._caller.run(operation, self._keys[0], self._what)


class Event(_Latch):
    """A flag that processes share, with the methods of `threading.Event`.

    Waiters are notified and do not poll; all waiters of a process share one connection. Waiters return once the event is set,
    even if it is cleared at once.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL.
        name: name of the event, 1 to 512 bytes.
        keep: seconds for which the server keeps the event after the last call on it, such as set() or wait(). After that, the
            event is not set.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    @hides_client()
    def __init__(self, client: object, name: str | bytes, *, keep: float = event.KEEP, prefix: str = "hf:") -> None:
        super().__init__(client, name, "event 1", count=1, keep=keep, prefix=prefix)

    def is_set(self) -> bool:
        """Return True if the event is set, by asking the server. Raises ServerError."""
        return self._run(latch.look(self._latch)).missing == 0

    def set(self) -> None:
        """Set the event; all waiters return. Raises ServerError."""
        self._run(latch.down(self._latch, 1))

    def clear(self) -> None:
        """Clear the event: new calls of `wait` wait until it is set again. Raises ServerError."""
        self._run(latch.reset(self._latch))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set, up to ``timeout`` seconds (None: no limit). Return False on timeout.
        Raises ServerError."""
        return self._run(latch.wait(self._latch, event.patience(timeout)))


class CountDownLatch(_Latch):
    """A latch that opens when ``count`` things are done, in any processes; callers of `wait` wait for that.

    Each call of `count_down` counts once, even if its answer gets lost and it is sent again. With a name (``by``), it counts
    once for each name. Once open, the latch stays open until `reset`.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL.
        name: name of the latch, 1 to 512 bytes.
        count: number of things to be done, at least 1. All users of the latch must pass the same number.
        keep: seconds after its last use (a wait counts) for which the server keeps the latch. After that it is as new.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    @hides_client()
    def __init__(self, client: object, name: str | bytes, count: int, *, keep: float = event.KEEP, prefix: str = "hf:") -> None:
        super().__init__(client, name, "latch 1", count=count, keep=keep, prefix=prefix)

    @property
    def count(self) -> int:
        """The number of things still missing; 0 if the latch is open. Asks the server.

        Raises ServerError, and ConfigError if the latch has another ``count`` on the server.
        """
        return self._run(latch.look(self._latch)).missing

    def count_down(self, n: int = 1, *, by: str | None = None) -> int:
        """Count ``n`` things as done, and return the number still missing.

        ``by``: name of the thing or of its worker; a second call with the same name has no effect until `reset`. None: each
        call has an effect. Raises ServerError, and ConfigError if the latch has another ``count`` on the server.
        """
        return self._run(latch.down(self._latch, event.at_least_one(n, "n"), by or "")).missing

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the latch is open, up to ``timeout`` seconds (None: no limit). Return False on timeout.

        Raises ServerError, also if the server has lost the count meanwhile, and ConfigError if the latch has another ``count``
        on the server.
        """
        return self._run(latch.wait(self._latch, event.patience(timeout)))

    def reset(self) -> None:
        """Reset the latch: the ``count`` of this object is missing again. Raises ServerError."""
        self._run(latch.reset(self._latch))
