"""Read-write locks for asyncio. `holdfast` has the same for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Never

from holdfast import _face, _rwlock, aio
from holdfast._aio_lease import Lease


class WriteLease(_rwlock.BaseWriteLease, Lease):
    """The lease of a writer."""

    async def downgrade(self) -> None:
        """Go on as a reader: other readers may come in, and the lease and its fence stay. It cannot be made a writer's again.

        Raises LeaseLost, NotHeld or ServerError.
        """
        await self._driver.run(self._downgrade())


class _Side(_rwlock.Side, aio.Lock):
    @staticmethod
    def _me() -> object:
        return asyncio.current_task()

    async def release(self) -> None:
        """Give it back; anybody may. His own lease goes before those of others. Raises NotHeld (a RuntimeError) if it is not
        held, LeaseLost, ServerError."""
        await self._give_back_soon()


class WriteSide(_Side):
    """The writers' side: a `Lock` whose lease can become a reader's."""

    _lease_type = WriteLease

    async def __aenter__(self) -> WriteLease:
        """Take the lock within ``wait``. Raises LockTimeout, ServerError."""
        lease = await super().__aenter__()
        assert isinstance(lease, WriteLease)
        return lease


class RWLock:
    """A named lock that many readers hold at the same time, or one writer, anywhere.

    Use ``async with lock.read:`` and ``async with lock.write:``; each side is what a `Lock` is. Those who want it
    get it in the order in which they came: a writer who waits stops the readers who come after him, and readers who wait
    together come in together, so neither side starves. Every reader has a lease of his own: a crashed one blocks a writer until
    that ends, and no longer.

    Neither side is re-entrant, and a reader cannot become a writer: RuntimeError says so, instead of a wait without end. A
    writer can become a reader (`WriteLease.downgrade`).

    Args:
        client: as for `Lock`: one server, or a Cluster; not several servers.
        name: of the lock, 1 to 512 bytes.
        ttl: seconds of the lease, 0.05 at least; renewed while held.
        wait: seconds to wait for a busy lock; None: for ever; 0: not at all.
        renew: False leaves renewal to you (`Lease.renew`).
        on_lost: called in the loop with the lease when a lease is lost; may be a coroutine function.
        max_hold: seconds after which renewal stops, so that hung code cannot hold the lock for ever.
        progress_within: seconds within which a holder has to call ``progress()`` of his lease, again and again, or he is taken
            to hang: the lease is lost.
        label: who you are, shown to those who wait.
        prefix: start of the keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
    """

    def __init__(
        self,
        client: object,
        name: str | bytes,
        *,
        ttl: float = 30.0,
        wait: float | None = None,
        renew: bool = True,
        on_lost: Callable[[Lease], object] | None = None,
        max_hold: float | None = None,
        progress_within: float | None = None,
        label: str | None = None,
        prefix: str = "hf:",
        **mistaken: Never,
    ) -> None:
        _face.refuse_mistaken(mistaken, type(self).__name__)
        options: dict[str, Any] = {
            "ttl": ttl,
            "wait": wait,
            "renew": renew,
            "on_lost": on_lost,
            "max_hold": max_hold,
            "progress_within": progress_within,
            "label": label,
            "prefix": prefix,
        }
        self._read = _Side(self, client, name, writes=False, **options)
        self._write = WriteSide(self, client, name, writes=True, **options)

    @property
    def read(self) -> aio.Lock:
        """Its readers' side: many may hold it, while no writer does."""
        return self._read

    @property
    def write(self) -> WriteSide:
        """Its writers' side: one holds it, and no reader."""
        return self._write

    @property
    def name(self) -> str:
        """Name of the lock, as given."""
        return self._write.name

    @property
    def key(self) -> str:
        """Key of the lock on the server."""
        return self._write.key

    def __repr__(self) -> str:
        return repr(self._write).replace(type(self._write).__name__, type(self).__name__, 1)
