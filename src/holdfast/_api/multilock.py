"""The common base of `MultiLock` in both APIs: several locks acquired together in one order, and the lease of all of them."""

# ruff: noqa: SLF001  (a MultiLock uses internals of its locks and their leases)

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from typing import Any, Generic, Never, NoReturn, TypeVar

from holdfast._api import lock as lock_base
from holdfast._api.lease import BaseLease
from holdfast._api.options import refuse_mistaken
from holdfast._api.rlock import Reentrant
from holdfast._api.tally import Tally
from holdfast._clock import clock
from holdfast._core.lock import multilock
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.records import INFINITY, Attempt, Grant
from holdfast._core.lock.replies import Busy
from holdfast._core.lock.server_queue import SlotMoved
from holdfast._core.requests import ConfigMismatch, TooFew, WireError
from holdfast._net.redaction import hides_client
from holdfast._runtime.process import current
from holdfast.errors import ConfigError, HoldfastError, LeaseLost, LockTimeout, NotHeld

M = TypeVar("M", bound="BaseMultiLease")
K = TypeVar("K", bound=lock_base.BaseLock[Any])


def find(client: object, locks: object, kind: type[K], options: dict[str, Any]) -> list[K]:
    """Return the locks to be acquired, sorted by server and key, the one order that all clients use. Raises ConfigError."""
    if locks is None:
        client, locks = None, client
    if isinstance(locks, str | bytes) or not isinstance(locks, Iterable):
        raise _bad("locks must be a list of names or lock objects; for names, pass a client or URL before the list")
    found = [one if isinstance(one, lock_base.BaseLock) else _named(client, one, kind, options) for one in locks]
    if not found:
        raise _bad("the list is empty; pass at least one name or lock object")
    for lock in found:
        if isinstance(lock, Reentrant):
            raise _bad(f"{lock!r} is reentrant, and a MultiLock holds each lock only once: pass a Lock of the same name")
        if not isinstance(lock, kind) or isinstance(lock, BaseMultiLock):
            raise _bad(f"{lock!r} is of the wrong class: pass a {kind.__module__}.Lock, FairLock, Redlock or Semaphore")
    mine = multilock.in_order((lock for lock in found if isinstance(lock, kind)), _place)
    seen: set[tuple[str, bytes]] = set()
    for lock in mine:
        for place in ((server, lock._spec.keys[0]) for server in _servers(lock)):
            if place in seen:
                raise _bad(f"{lock.name!r} is listed twice: the second acquisition would wait for the first")
            seen.add(place)
    return mine


def _named(client: object, name: object, make: Callable[..., K], options: dict[str, Any]) -> K:
    if not isinstance(name, str | bytes):
        raise _bad(f"expected a name or a lock object, not {name!r}")
    if client is None:
        raise _bad(f"{name!r} is a name: pass its server too, as in MultiLock(client, [{name!r}, ...])")
    return make(client, name, **options)


def _bad(why: str) -> ConfigError:
    return ConfigError(f"locks: {why}", parameter="locks")


def _place(lock: lock_base.BaseLock[Any]) -> tuple[str, bytes]:
    """Return the sort key of a lock: its servers and its key."""
    return ", ".join(_servers(lock)), lock._spec.keys[0]


def _servers(lock: lock_base.BaseLock[Any]) -> list[str]:
    """Return the addresses of a lock's servers, in a form that is the same for all clients.

    That is one text for a whole Cluster, sorted addresses for servers that vote, and the addresses of the Sentinels, without
    that of their current primary.
    """
    where = "a Cluster" if lock._cluster is not None else re.sub(r" \(at [^)]*\)", "", lock._where)
    return sorted(re.sub(r"\blocalhost(?=:)", "127.0.0.1", where).split(", "))


class Part:
    """One of the locks of a `MultiLock` during an attempt to acquire all of them; implements `_core.lock.multilock.Part`."""

    def __init__(self, whole: Whole, lock: Any, driver: Any, home: Any) -> None:
        self.lock = lock
        self.home = home
        self.group = _group(lock)
        self.lease: BaseLease | None = None
        self._whole = whole
        self._driver = driver
        self.attempt = Attempt(lock._spec)

    def begin(self) -> None:
        self.attempt = self.lock._new_attempt(self._driver.process)
        self.attempt.slot = self._driver.slot()
        self.lease = None

    async def take(self, wait: float | None) -> Grant | Busy:
        self._whole.wants = self
        try:
            result: Grant | Busy = await self.lock._try(self.attempt, wait)
        except SlotMoved:
            raise
        except (WireError, KeyConflict, TooFew, ConfigMismatch) as error:
            raise self.lock._user_error(error) from error
        finally:
            self._whole.wants = None
        if isinstance(result, Busy):
            self.lock._tally.stayed_busy(self.attempt)
        elif result.queued or self.attempt.waited:
            self.lock._tally.waited(result)
            self._whole.waited = True
        return result

    def hold(self, grant: Grant) -> None:
        lock = self.lock
        self.lease = lease = lock._lease_type(self._driver, grant, lock._on_lost)
        lease._held_lease.progressed(INFINITY)  # The time for `progress` starts when all locks are held.
        lock._keep(lease)
        lease._owner = self._whole.owner
        lease._whole = self._whole
        self.attempt.unclaimed = None

    @property
    def lost(self) -> bool:
        return self.lease is not None and self.lease._expired()

    async def undo(self) -> None:
        self.lock._tally.gave_up(self.attempt)
        lease = self.lease or self.attempt.unclaimed
        if lease is None:
            await self.lock._abandon(self.attempt)
        else:
            await lease._let_go()
            self.lease, self.attempt.unclaimed, self.attempt.may_be_on_server = None, None, False

    def hand_on(self) -> bool:
        lease = self.lease
        try:
            if lease is None or lease._hand_on():
                return True
        except NotHeld:
            return True
        lease._held_lease.end()
        return False

    def giving(self) -> tuple[str, bool, bool] | None:
        assert self.lease is not None
        held_lease = self.lease._held_lease
        return None if held_lease.lost or self.group is None else (held_lease.token, held_lease.maybe_in_flight, True)

    async def given_back(self, known: bool | WireError | None) -> Exception | None:
        assert self.lease is not None
        try:
            await (self.lease._release() if known is None else self.lease._release(known))
        except HoldfastError as error:
            return error
        return None


class Whole:
    """One attempt to acquire all locks, and its result. It takes the place that an `Attempt` has for a single lock."""

    def __init__(self, owner: int) -> None:
        self.owner = owner
        """Id of the thread or task that acquires the locks."""
        self.parts: list[Part] = []
        self.wants: Part | None = None
        """The lock that is being acquired now; None between two locks."""
        self.waited = False
        """True if the attempt had to wait for any of the locks."""
        self.lease: BaseMultiLease | None = None

    def begin(self, locks: Sequence[Any], drivers: Sequence[Any]) -> Any:
        """Start an attempt with these locks and their drivers, and return the driver that runs the whole operation."""
        main = drivers[0]
        self.parts = [
            Part(self, lock, driver, None if driver.endpoint is main.endpoint else driver)
            for lock, driver in zip(locks, drivers, strict=True)
        ]
        return main

    def on_loss(self) -> None:
        """React to the loss of one lock, in any thread: report the loss, or end the wait for the remaining locks."""
        lease, wants = self.lease, self.wants
        if lease is not None:
            lease.notice_loss()
        elif wants is not None:
            current().keeper.abort_wait(wants.lock._endpoint, wants.attempt, multilock.PartLost())

    def leave(self) -> Coroutine[Any, Any, None]:
        """Return the operation that releases everything that this attempt has acquired."""
        return multilock.undo(self.parts)


def _group(lock: Any) -> Hashable:
    spec, endpoint = lock._spec, lock._endpoint
    if isinstance(endpoint, tuple) or spec.guard or spec.replicas or spec.permits is not None:
        return None
    if lock._cluster is None:
        return id(endpoint)
    from holdfast._net.slots import slot_of

    return id(endpoint), slot_of(spec.keys[0])


class BaseMultiLock(Generic[M]):
    """The options and the state of a `MultiLock`: the part that the sync and the asyncio API share."""

    _kind: type[lock_base.BaseLock[Any]]
    """Class of the locks that are created for names, and that lock objects passed by the user must have."""
    _locks: list[Any]
    _spec: Any
    _set_up: Callable[..., None]

    @hides_client("MultiLock.__init__")
    def __init__(
        self,
        client: object,
        locks: Iterable[object] | None = None,
        *,
        ttl: float = 30.0,
        wait: float | None = None,
        renew: bool = True,
        on_lost: Callable[[M], object] | None = None,
        max_hold: float | None = None,
        label: str | None = None,
        prefix: str = "hf:",
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, type(self).__name__)
        options = {"ttl": ttl, "renew": renew, "max_hold": max_hold, "prefix": prefix}
        self._locks = found = find(client, locks, self._kind, options)
        self._endpoint = found[0]._endpoint
        self._set_up(found[0]._spec._replace(name=", ".join(lock.name for lock in found)), wait, on_lost, label)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the locks, in the order in which they are acquired."""
        return tuple(lock.name for lock in self._locks)

    @property
    def key(self) -> str:
        """The keys of the locks on the server, joined by commas."""
        return ", ".join(lock.key for lock in self._locks)

    @property
    def _where(self) -> str:
        return ", ".join(dict.fromkeys(lock._where for lock in self._locks))

    def _busy(self, busy: Busy, holder: bytes | None, waited: float) -> LockTimeout:
        assert isinstance(busy, multilock.Blocked)
        part: Any = busy.part
        error: LockTimeout = part.lock._busy(busy, holder, waited)
        others = ", ".join(repr(name) for name in self.names if name != part.lock.name)
        if not others:
            return error
        return LockTimeout(f"{error}; released {others}", **vars(error))

    async def _holder(self, busy: Busy) -> bytes | None:
        assert isinstance(busy, multilock.Blocked)
        part: Any = busy.part
        record: bytes | None = await multilock.there(part.lock._holder(busy), part.home)
        return record


class BaseMultiLease:
    """The lease of several locks acquired together: the part that the sync and the asyncio API share."""

    def __init__(self, whole: Whole, name: str, on_lost: Callable[..., object] | None) -> None:
        self._whole = whole
        self._on_lost = on_lost
        self._told_loss = False
        self.name = name
        """The names of the locks, joined by commas."""
        self._leases: list[BaseLease] = [part.lease for part in whole.parts if part.lease is not None]
        names = [lease.name for lease in self._leases]
        self.fences: dict[str, int] = {
            lease.name if names.count(lease.name) == 1 else f"{lease.name} on {part.lock._where}": lease.fence
            for lease, part in zip(self._leases, whole.parts, strict=True)
        }
        """The fence of each lock, by the name of the lock. If two locks have the same name, ``on`` and the server follow it."""

    def _start(self, tally: Tally) -> None:
        """Count the acquisition, and start to receive the losses of the single locks."""
        tally.acquisitions += 1
        tally.took(self._whole, self._whole.waited)
        self._tally: Tally | None = tally
        self._since = clock()
        self._whole.lease = self
        for lease in self._leases:
            lease._begin()
        if self._expired():
            self.notice_loss()

    def _count(self) -> None:
        """Add the time for which the locks were held to the statistics, once."""
        tally, self._tally = self._tally, None
        if tally is not None:
            tally.held(clock() - self._since)

    def __repr__(self) -> str:
        state = "lost" if self._expired() else "released" if self._is_over() else f"{self.remaining():.1f} s left"
        return f"<holdfast lease of {self.name}, fences {', '.join(map(str, self.fences.values()))}, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a lease cannot be pickled: it belongs to the process that acquired {self.name}")

    @property
    def _owner(self) -> int:
        return self._whole.owner

    @_owner.setter
    def _owner(self, owner: int) -> None:
        self._whole.owner = owner
        for lease in self._leases:
            lease._owner = owner

    def remaining(self) -> float:
        """Return the seconds for which all leases are still valid if they are not renewed; 0.0 if one is lost or released.

        Asks no server.
        """
        return min(lease.remaining() for lease in self._leases)

    def _leave_to_keeper(self) -> None:
        """Have the keeper (background thread) release all locks, where the caller cannot await the release."""
        self._count()
        for lease in self._leases:
            with contextlib.suppress(NotHeld, LeaseLost):
                lease._leave_to_keeper()

    def check(self) -> None:
        """Raise LeaseLost if one of the leases is lost, NotHeld if they were released. Asks no server."""
        if self._is_over():
            raise self._not_held()
        for lease in self._leases:
            lease.check()

    def progress(self) -> None:
        """Report that the holder makes progress: the ``progress_within`` seconds of each lock start again. Asks no server.

        Raises LeaseLost if one of the leases is lost, NotHeld if they were released.
        """
        self.check()
        for lease in self._leases:
            lease.progress()

    def _no_ticket(self) -> ConfigError:
        return ConfigError(
            f"a lease of several locks ({self.name}) has no ticket: acquire each with its own lock object", parameter="ticket"
        )

    def notice_loss(self) -> None:
        raise NotImplementedError

    def _make_way(self) -> None:
        """Do nothing: the lease of each single lock lets its waiters go on."""

    def _first_to_tell(self) -> bool:
        told, self._told_loss = self._told_loss, True
        if not told and self._tally is not None:
            self._tally.losses += 1
            self._count()
        return not told

    def _expired(self) -> bool:
        """Return True if one of the leases is lost."""
        return any(lease._expired() for lease in self._leases)

    def _is_over(self) -> bool:
        """Return True if all leases were released."""
        return all(lease._is_over() for lease in self._leases)

    def _not_held(self) -> NotHeld:
        return NotHeld(f"the lease of {self.name} was released already", name=self.name, key=self._key)

    @property
    def _key(self) -> str:
        return ", ".join(lease.key for lease in self._leases)

    async def _renew(self, ttl: float | None) -> None:
        """Renew all leases, one after the other. `renew` runs this operation."""
        if self._is_over():
            raise self._not_held()
        for part, lease in zip(self._whole.parts, self._leases, strict=True):
            await multilock.there(lease._renew(ttl), part.home)

    async def _release(self) -> None:
        """Release all leases. `release` runs this operation."""
        if self._is_over():
            raise self._not_held()
        self._count()
        await multilock.release(self._whole.parts)

    def _abandoned(self) -> Coroutine[Any, Any, None]:
        """Return the operation that finishes a release which was interrupted at an unknown point."""
        self._count()
        return self._whole.leave()
