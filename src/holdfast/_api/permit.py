"""The common base of semaphores and read-write locks in both APIs: locks that several holders can hold at the same time."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any

from holdfast._api import error_map
from holdfast._api.acquisition import BaseAioLock, BaseSyncLock
from holdfast._api.base_lock import BaseLock, L
from holdfast._api.lease_core import Entered
from holdfast._core import permit
from holdfast._core.lock.acquire import KeyConflict, key_conflict
from holdfast._core.lock.spec import Permits
from holdfast._core.permit import ALL, Count
from holdfast._core.requests import Conflict, WireError
from holdfast._net.clients import AsyncClient, Client, SyncClient
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import are_several, on_one_server
from holdfast.errors import ConfigError, HoldfastError, ReleasedTooOften

NO_MAJORITIES = (
    "permits cannot be counted by majorities, and several servers have no common queue in which every waiter gets its turn"
)


class HeldPermits:
    """The leases held by a semaphore object or one side of a read-write lock, and the thread or task that acquired each."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()  # Reentrant: a signal handler may release, too. The list is consistent after each line.
        self._cores: list[Any] = []
        """The leases that were acquired and not removed yet, oldest first; some may have been released meanwhile."""

    def add(self, core: Any, owner: object) -> None:
        core.taker = weakref.ref(owner)
        with self._mutex:
            for over in [one for one in self._cores if one.is_over()]:
                self._remove(over)
            self._cores.append(core)

    def live(self) -> list[Any]:
        """Return the leases that are not released, oldest first."""
        return [core for core in self._cores if not core.is_over()]

    def latest(self) -> Any:
        return next(reversed(self.live()), None)

    def held_by(self, owner: object) -> Any:
        mine = [core for core in self.live() if core.taker() is owner]
        return mine[-1] if mine else None

    def preferred(self, owner: object, entered: Entered[Any]) -> list[Any]:
        """Return the leases that are still held, in reverse order of their future release: the last one is released first.

        Leases from `acquire` are released first, then those of an open ``with``. In both cases, the leases of the caller,
        ``owner``, are released before those of other threads or tasks.
        """
        held = self.live()
        mine = [core for core in held if core.taker() is owner]
        # Of the others' leases, release the oldest first: a thread with a newer one may be just about to enter its ``with``.
        others = [core for core in reversed(held) if core not in mine]
        return sorted([*others, *mine], key=lambda core: core not in entered)

    def claim(self, n: int, owner: object, entered: Entered[Any], claimed: list[Any]) -> int:
        """Remove the ``n`` leases that the caller has to release and add them to ``claimed``.

        Return the number of leases that this object held before. If there were fewer than ``n``, remove nothing. Threads that
        release at the same time get different leases.
        """
        with self._mutex:
            while len(held := self.preferred(owner, entered)) >= n:
                claimed += held[-n:]
                taken = [self._remove(core) for core in held[-n:]]
                if all(taken):
                    break
                self.unclaim(claimed)  # A signal handler has claimed one of them meanwhile.
                claimed.clear()
            return len(held)

    def unclaim(self, claimed: list[Any]) -> None:
        """Put claimed leases back after a failed release, so that those that were not released are still held."""
        with self._mutex:
            for core in reversed(claimed):
                self._remove(core)
                self._cores.insert(0, core)

    def _remove(self, core: Any) -> bool:
        try:
            self._cores.remove(core)
        except ValueError:
            return False
        return True


class PermitsLock(BaseLock[L, Client]):
    """A lock whose permits several holders can have at the same time. Permits are not handed on inside a process."""

    _shared = False
    _permits: Permits
    _what = "semaphore"
    _entered: Entered[Any]

    @hides_client()
    def __init__(
        self, client: Client, name: str | bytes, wanted: Permits, held: HeldPermits | None = None, **options: Any
    ) -> None:
        if are_several(client):
            raise on_one_server(f"a {self._what}", NO_MAJORITIES, "use a Redlock there, if one holder at a time is enough")
        self._permits = wanted
        self._held = held or HeldPermits()
        super().__init__(client, name, **options)

    def _set_up(self, spec: Any, *rest: Any) -> None:
        super()._set_up(spec._replace(permits=self._permits), *rest)

    def _me(self) -> object:
        """Return the calling thread or task as an object, because its id may be reused after its end."""
        raise NotImplementedError

    def _keep(self, core: Any) -> None:
        self._held.add(core, self._me())

    def _live(self) -> Any:
        return self._held.latest()

    def _claim(self, n: int, claimed: list[Any]) -> None:
        """Add to ``claimed`` the ``n`` leases that the caller has to release. Raises NotHeld if there are fewer."""
        if n < 1:
            raise ValueError("n must be one or more")
        held = self._held.claim(n, self._me(), self._entered, claimed)
        if held < n:
            raise ReleasedTooOften(
                f"{self._what} {self.name!r} was released too often: this object holds {held} acquisitions, not {n}",
                name=self.name,
                key=self.key,
            )

    async def _give_back(self, n: int, claimed: list[Any]) -> None:
        """Release ``n`` acquisitions, whose leases are added to ``claimed``. If a release fails, the rest still follow."""
        try:
            self._claim(n, claimed)
            async with contextlib.AsyncExitStack() as stack:
                for core in claimed:
                    stack.push_async_callback(self._call_user, core.release)
        except BaseException:
            self._held.unclaim(claimed)
            raise

    def _finish_giving_back(self, n: int, claimed: list[Any]) -> None:
        """Finish a `release` that an interrupt has ended at any line. ``claimed``: the leases that it had chosen so far."""
        chosen = claimed or self._held.preferred(self._me(), self._entered)[-n:]
        for core in chosen if len(chosen) == n else ():
            core.finish_interrupted_release()

    def progress(self) -> None:
        core = self._held.latest()
        if core is None:
            raise self._not_held()
        core.progress()

    progress.__doc__ = BaseLock.progress.__doc__

    def _user_error(self, error: error_map.Trouble) -> HoldfastError:
        if isinstance(error, KeyConflict):
            limit = self._permits.limit
            said = "" if limit in {None, ALL} else f" with limit={limit}"
            return ConfigError(
                f"{self._what} {self.name!r}{said} cannot be used: {error}; nothing was changed", parameter="name"
            )
        return super()._user_error(error)

    async def _count(self, limit: int | None = None) -> Count:
        """Ask the server for the semaphore's counts. If ``limit`` is not None, set the limit first."""
        try:
            count = await permit.count(self._spec, self._permits.kind, limit)
        except WireError as error:
            raise self._user_error(error) from error_map.cause(error)
        if isinstance(count, Conflict):
            raise self._user_error(await key_conflict(count, self._spec))
        return count or Count(self._permits.limit or 0, 0, 0)

    async def _is_locked(self) -> bool:
        """Return True if an acquisition by this object would have to wait. `locked` runs this operation."""
        count = await self._count()
        return count.waiting > 0 or count.used + self._permits.wanted > count.limit


class BaseSyncPermits(PermitsLock[L, SyncClient], BaseSyncLock[L]):
    """A `PermitsLock` of threads."""

    _me = staticmethod(threading.current_thread)


class BaseAioPermits(PermitsLock[L, AsyncClient], BaseAioLock[L]):
    """A `PermitsLock` of asyncio."""

    def _me(self) -> object:
        return self._this_task()
