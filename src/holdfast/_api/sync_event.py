"""`Event` and `CountDownLatch` for processes, as threading has them for threads. `_api.aio_event` has the same for asyncio."""

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
    """A flag that processes share: as `threading.Event`.

    Waiters are notified and do not poll; all waiters of a process share one connection. Waiters return when it is set, even if
    it is cleared at once.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL.
        name: of the event, 1 to 512 bytes.
        keep: seconds after its last use for which the server keeps it; waiting is use. Then it is as if it had never been set.
        prefix: start of the keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
    """

    @hides_client()
    def __init__(self, client: object, name: str | bytes, *, keep: float = event.KEEP, prefix: str = "hf:") -> None:
        super().__init__(client, name, "event 1", count=1, keep=keep, prefix=prefix)

    def is_set(self) -> bool:
        """Whether it is set. Asks the server; raises ServerError."""
        return self._run(latch.look(self._latch)).missing == 0

    def set(self) -> None:
        """Set it; all who wait return. Raises ServerError."""
        self._run(latch.down(self._latch, 1))

    def clear(self) -> None:
        """Callers of `wait` from now on wait until it is set again. Raises ServerError."""
        self._run(latch.reset(self._latch))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or for ``timeout`` seconds (None: for ever): whether it was set. Raises ServerError."""
        return self._run(latch.wait(self._latch, event.patience(timeout)))


class CountDownLatch(_Latch):
    """Opens when ``count`` things are done, wherever they are; until then, all who wait for that wait.

    Each call counts once, also when its answer gets lost; and what has a name counts once, whoever counts it down. Once open,
    it stays open until `reset`.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL.
        name: of the latch, 1 to 512 bytes.
        count: how many there are, at least one. All who use the latch have to say the same.
        keep: seconds after its last use for which the server keeps it; waiting is use. Then it is as new.
        prefix: start of the keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
    """

    @hides_client()
    def __init__(self, client: object, name: str | bytes, count: int, *, keep: float = event.KEEP, prefix: str = "hf:") -> None:
        super().__init__(client, name, "latch 1", count=count, keep=keep, prefix=prefix)

    @property
    def count(self) -> int:
        """How many are missing; 0: it is open. Asks the server. Raises ServerError, ConfigError if another count is there."""
        return self._run(latch.look(self._latch)).missing

    def count_down(self, n: int = 1, *, by: str | None = None) -> int:
        """``n`` are done, and how many are missing now. ``by``: what, or who; each name counts once, until `reset`. Raises
        ServerError, and ConfigError if another count is there."""
        return self._run(latch.down(self._latch, event.at_least_one(n, "n"), by or "")).missing

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is open, or for ``timeout`` seconds (None: for ever): whether it was. Raises ServerError, also when the
        server has lost what was counted, and ConfigError if another count is there."""
        return self._run(latch.wait(self._latch, event.patience(timeout)))

    def reset(self) -> None:
        """All are missing again: as many as this one says. Raises ServerError."""
        self._run(latch.reset(self._latch))
