"""`Event` and `CountDownLatch` for processes, for asyncio: the same as in `events`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast._api import event
from holdfast._api.caller import AioCaller
from holdfast._core.rendezvous import latch
from holdfast._net.redaction import hides_client

T = TypeVar("T")


class _Latch(event.BaseLatch):
    _caller: AioCaller
    _caller_type = AioCaller

    async def _run(self, operation: Coroutine[Any, Any, T]) -> T:
        with self._in_words("count"):
            return await self._caller.run(operation, self._keys[0], self._what)


class Event(_Latch):
    """A flag that processes share: as `threading.Event`.

    Waiters are notified and do not poll; all waiters of a process share one connection. Waiters return when it is set, even if
    it is cleared at once.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL.
        name: of the event, 1 to 512 bytes.
        keep: seconds after its last use for which the server keeps it; waiting is use. Then it is as if it had never been set.
        prefix: start of the keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
    """

    @hides_client()
    def __init__(self, client: object, name: str | bytes, *, keep: float = event.KEEP, prefix: str = "hf:") -> None:
        super().__init__(client, name, "event 1", count=1, keep=keep, prefix=prefix)

    async def is_set(self) -> bool:
        """Whether it is set. Asks the server; raises ServerError."""
        return (await self._run(latch.look(self._latch))).missing == 0

    async def set(self) -> None:
        """Set it; all who wait return. Raises ServerError."""
        await self._run(latch.down(self._latch, 1))

    async def clear(self) -> None:
        """Callers of `wait` from now on wait until it is set again. Raises ServerError."""
        await self._run(latch.reset(self._latch))

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or for ``timeout`` seconds (None: for ever): whether it was set. Raises ServerError."""
        return await self._run(latch.wait(self._latch, event.patience(timeout)))


class CountDownLatch(_Latch):
    """Opens when ``count`` things are done, wherever they are; until then, all who wait for that wait.

    Each call counts once, also when its answer gets lost; and what has a name counts once, whoever counts it down. Once open,
    it stays open until `reset`.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL.
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
    async def count(self) -> int:
        """How many are missing; 0: it is open. Asks the server. Raises ServerError, ConfigError if another count is there."""
        return (await self._run(latch.look(self._latch))).missing

    async def count_down(self, n: int = 1, *, by: str | None = None) -> int:
        """``n`` are done, and how many are missing now. ``by``: what, or who; each name counts once, until `reset`. Raises
        ServerError, and ConfigError if another count is there."""
        return (await self._run(latch.down(self._latch, event.at_least_one(n, "n"), by or ""))).missing

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is open, or for ``timeout`` seconds (None: for ever): whether it was. Raises ServerError, also when the
        server has lost what was counted, and ConfigError if another count is there."""
        return await self._run(latch.wait(self._latch, event.patience(timeout)))

    async def reset(self) -> None:
        """All are missing again: as many as this one says. Raises ServerError."""
        await self._run(latch.reset(self._latch))
