"""`MultiLock` acquires several locks together in one order. `MultiLease` is the lease of all of them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Never, NoReturn, TypeVar

from holdfast._api.acquisition import BaseAioLock, BaseSyncLock
from holdfast._api.base_lock import BaseLock, MultiLockMember, member_of
from holdfast._api.error_map import cause
from holdfast._api.flow import InTasks, Steps, complete, hides_frames, of_asyncio
from holdfast._api.foreign_words import MULTILEASE_METHODS, ForeignMethods
from holdfast._api.lease_core import AioCore, LeaseCore, SyncCore, UserLease
from holdfast._api.lock import AioLock, Lock
from holdfast._api.options import refuse_mistaken
from holdfast._api.rlock import Reentrant
from holdfast._api.tally import Tally
from holdfast._clock import clock
from holdfast._core.lock import multilock
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.records import INFINITY, Attempt, Grant, count_hold
from holdfast._core.lock.replies import Busy
from holdfast._core.lock.server_queue import SlotMoved
from holdfast._core.requests import ConfigMismatch, TooFew, WireError
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient, Client, SyncClient
from holdfast._net.redaction import hides_client
from holdfast._runtime.process import current
from holdfast.errors import ConfigError, HoldfastError, LeaseLost, LockTimeout, NotHeld

if TYPE_CHECKING:
    import asyncio
    import threading

M = TypeVar("M", bound="BaseMultiLease")
K = TypeVar("K", bound=BaseLock[Any, Any])

_NESTED = "leave it out of the MultiLock, or acquire all locks with one MultiLock"


def find(
    client: object, locks: object, make: type[K], kind: type[BaseLock[Any, Any]], options: dict[str, Any]
) -> list[MultiLockMember]:
    """Return the locks to be acquired, sorted by server and key. All clients use this order. Raises ConfigError."""
    if locks is None:
        client, locks = None, client
    if isinstance(locks, str | bytes) or not isinstance(locks, Iterable):
        raise _bad("pass a list of names or lock objects; for names, pass a client or URL before the list")
    found = [one if isinstance(one, BaseLock) else _named(client, one, make, options) for one in locks]
    if not found:
        raise _bad("the list is empty; pass at least one name or lock object")
    for lock in found:
        if isinstance(lock, Reentrant):
            raise _bad(f"{lock!r} is reentrant, and a MultiLock holds each lock only once: pass a Lock of the same name")
        if not isinstance(lock, kind) or isinstance(lock, BaseMultiLock):
            raise _bad(f"{lock!r} is of the wrong class: pass a Lock, FairLock, Redlock or Semaphore of {_api_of(make)}")
    mine = multilock.in_order((member_of(lock) for lock in found), _place)
    seen: set[tuple[str, bytes]] = set()
    for member in mine:
        for place in ((server, member.spec.keys[0]) for server in _servers(member)):
            if place in seen:
                raise _bad(f"{member.lock.name!r} is listed twice: the second acquisition would wait for the first")
            seen.add(place)
    return mine


def _api_of(lock_type: type[BaseLock[Any, Any]]) -> str:
    return "holdfast.aio" if issubclass(lock_type, InTasks) else "holdfast"


def _named(client: object, name: object, make: Callable[..., K], options: dict[str, Any]) -> K:
    if not isinstance(name, str | bytes):
        raise _bad(f"expected a name or a lock object, not {name!r}")
    if client is None:
        raise _bad(f"{name!r} is a name: pass its server too, as in MultiLock(client, [{name!r}, ...])")
    return make(client, name, **options)


def _bad(why: str) -> ConfigError:
    return ConfigError(f"locks: {why}", parameter="locks")


def _place(member: MultiLockMember) -> tuple[str, bytes]:
    return ", ".join(_servers(member)), member.spec.keys[0]


def _servers(member: MultiLockMember) -> list[str]:
    """Return the addresses of a lock's servers, in a form that is the same for all clients.

    For a Cluster, this is one text; for servers that vote, their sorted addresses; for a primary that is found through
    Sentinels, the addresses of the Sentinels.
    """
    where = "a Cluster" if member.in_cluster else re.sub(r" \(at [^)]*\)", "", member.where())
    return sorted(re.sub(r"\blocalhost(?=:)", "127.0.0.1", where).split(", "))


class Part:
    """One of the locks of a `MultiLock` during an attempt to acquire all of them; implements `_core.lock.multilock.Part`."""

    group: Hashable
    attempt: Attempt

    def __init__(self, whole: Whole, member: MultiLockMember, driver: Any, home: Any) -> None:
        self.member = member
        self.home = home
        self.group = _group(member)
        self.core: LeaseCore | None = None
        """The internal object of the lease of this lock; None while it is not held."""
        self._whole = whole
        self._driver = driver
        self.attempt = Attempt(member.spec)

    def begin(self) -> None:
        self.attempt = self.member.new_attempt(self._driver)
        self.attempt.slot = self._driver.slot()
        self.core = None
        self.member.refuse_nested(self._whole.wait, _NESTED)

    async def take(self, wait: float | None) -> Grant | Busy:
        self._whole.wants = self
        try:
            result: Grant | Busy = await self.member.acquire(self.attempt, wait)
        except SlotMoved:
            raise
        except (WireError, KeyConflict, TooFew, ConfigMismatch) as error:
            raise self.member.user_error(error) from cause(error)
        finally:
            self._whole.wants = None
        if isinstance(result, Busy):
            self.member.tally.stayed_busy(self.attempt)
        elif result.queued or self.attempt.waited:
            self.member.tally.waited(result)
            self._whole.waited = True
        return result

    def hold(self, grant: Grant) -> None:
        self.core = core = self.member.hold(self._driver, grant)
        core.held_lease.progressed(INFINITY)  # The ``progress_within`` seconds begin only when all locks are held.
        core.owner = self._whole.owner
        core.whole = self._whole
        self.attempt.unclaimed = None

    @property
    def lost(self) -> bool:
        return self.core is not None and self.core.expired()

    async def undo(self) -> None:
        self.member.tally.gave_up(self.attempt)
        core = self.core or self.attempt.unclaimed
        if core is None:
            await self.member.abandon(self.attempt)
        else:
            await core.let_go()
            self.core, self.attempt.unclaimed, self.attempt.may_be_on_server = None, None, False

    def hand_on(self) -> bool:
        core = self.core
        try:
            if core is None or core.hand_on():
                return True
        except NotHeld:
            return True
        core.held_lease.end()
        return False

    def giving(self) -> tuple[str, bool, bool] | None:
        assert self.core is not None
        held_lease = self.core.held_lease
        return None if held_lease.lost or self.group is None else (held_lease.token, held_lease.maybe_in_flight, True)

    async def given_back(self, known: bool | WireError | None) -> Exception | None:
        assert self.core is not None
        try:
            await (self.core.release_on_server() if known is None else self.core.release_on_server(known))
        except HoldfastError as error:
            return error
        return None


class Whole:
    """One attempt to acquire all locks, and its result. For a single lock, an `Attempt` has this role."""

    is_direct = False
    """False, because the fast path for one free lock (`_core.lock.uncontended`) cannot acquire several locks."""

    def __init__(self, owner: int) -> None:
        self.owner = owner
        """Id of the thread or task that acquires the locks."""
        self.parts: list[Part] = []
        self.wants: Part | None = None
        """The lock that is being acquired now; None between two locks."""
        self.wait: float | None = None
        """Seconds to wait for all locks; None: without a limit."""
        self.waited = False
        """True if the attempt had to wait for any of the locks."""
        self.waits_since: float | None = None
        """Local time in seconds at which the acquisition began; None once its statistics were counted."""
        self.core: BaseMultiCore | None = None
        """The internal object of the lease of all locks; None before all of them are held."""

    def begin(self, members: Sequence[MultiLockMember], drivers: Sequence[Any]) -> Any:
        """Start an attempt with these locks and their drivers, and return the driver that runs the operation."""
        main = drivers[0]
        self.parts = [
            Part(self, member, driver, None if driver.endpoint is main.endpoint else driver)
            for member, driver in zip(members, drivers, strict=True)
        ]
        return main

    def on_loss(self) -> None:
        """React to the loss of one lock, in any thread: report the loss, or end the wait for the remaining locks."""
        core, wants = self.core, self.wants
        if core is not None:
            core.notice_loss()
        elif wants is not None:
            current().keeper.abort_wait(wants.member.endpoint(), wants.attempt, multilock.PartLost())

    def leave(self) -> Coroutine[Any, Any, None]:
        """Return the operation that releases everything that this attempt has acquired."""
        return multilock.undo(self.parts)


def _group(member: MultiLockMember) -> Hashable:
    spec, endpoint = member.spec, member.endpoint()
    if isinstance(endpoint, tuple) or spec.quarantine or spec.replicas or spec.permits is not None:
        return None
    if not member.in_cluster:
        return id(endpoint)
    from holdfast._net.slots import slot_of

    return id(endpoint), slot_of(spec.keys[0])


class BaseMultiLock(Steps, Generic[M, Client]):
    """The options, the state and the flow of a `MultiLock`. Base class for threads and for asyncio."""

    _kind: type[BaseLock[Any, Any]]
    """Base class of the locks of this API. Lock objects that the user passes must be instances of it."""
    _makes: type[BaseLock[Any, Any]]
    """Class of the locks that are created for names."""
    name: Any
    _makes_core: Callable[..., BaseMultiCore]
    """Class of the internal object of the lease of all locks."""
    _members: list[MultiLockMember]
    _spec: Any
    _tally: Tally
    _on_lost: Callable[..., object] | None
    _set_up: Callable[..., None]

    @hides_client("MultiLock.__init__", 'MultiLock(client, ["a", "b"])')
    def __init__(
        self,
        client: Client | Iterable[BaseLock[Any, Client]] | None,
        locks: Iterable[str | bytes | BaseLock[Any, Client]] | None = None,
        *,
        ttl: Seconds = 30.0,
        wait: Seconds | None = None,
        renew: bool = True,
        on_lost: Callable[[M], object] | None = None,
        max_hold: Seconds | None = None,
        label: str | None = None,
        prefix: str = "hf:",
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, type(self).__name__)
        options = {"ttl": ttl, "renew": renew, "max_hold": max_hold, "prefix": prefix}
        self._members = found = find(client, locks, self._makes, self._kind, options)
        self._endpoint = found[0].endpoint()
        self._set_up(found[0].spec._replace(name=", ".join(member.lock.name for member in found)), wait, on_lost, label)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the locks, in the order in which they are acquired."""
        return tuple(member.lock.name for member in self._members)

    @hides_frames
    async def _take_all(self, whole: Whole, wait: float | None) -> BaseMultiCore | Busy:
        now = clock()
        until = None if wait is None else now + wait
        self._tally.waits(whole, now)
        while True:
            for member in self._members:
                await member.locate()
            driver = whole.begin(self._members, [member.driver() for member in self._members])
            whole.wait = wait
            try:
                blocked = await self._run_on(driver, multilock.acquire(whole.parts, wait))
            except SlotMoved:
                wait = None if until is None else max(0.0, until - clock())
                continue
            if blocked is not None:
                self._tally.stayed_busy(whole)
                return blocked
            self._current = core = self._makes_core(whole, self.name, self._on_lost, driver)
            core.start(self._tally)
            return core

    def _driver(self) -> Any:
        return self._members[0].driver()

    def _new_attempt(self, driver: Any) -> Any:  # noqa: ARG002 - each lock has its own
        return Whole(self._owner())

    async def _is_locked(self) -> bool:
        for member in self._members:
            if await self._call_user(member.lock.locked):  # type: ignore[attr-defined]
                return True
        return False

    @property
    def key(self) -> str:
        """The keys of the locks on the server, joined by commas."""
        return ", ".join(member.lock.key for member in self._members)

    @property
    def _where(self) -> str:
        return ", ".join(dict.fromkeys(member.where() for member in self._members))

    def _busy(self, busy: Busy, holder: bytes | None, waited: float) -> LockTimeout:
        assert isinstance(busy, multilock.Blocked)
        part: Any = busy.part
        error: LockTimeout = part.member.busy(busy, holder, waited)
        others = ", ".join(repr(name) for name in self.names if name != part.member.lock.name)
        if not others:
            return error
        return LockTimeout(f"{error}; released {others}", **vars(error))

    async def _holder(self, busy: Busy) -> bytes | None:
        assert isinstance(busy, multilock.Blocked)
        part: Any = busy.part
        record: bytes | None = await multilock.there(part.member.holder(busy), part.home)
        return record


class BaseMultiLease(ForeignMethods):
    """The lease of several locks acquired together, as users hold it. Base class for threads and for asyncio."""

    _foreign = MULTILEASE_METHODS

    def __init__(self, core: BaseMultiCore) -> None:
        self._core: Any = core
        self.name: str = core.name
        """The names of the locks, joined by commas."""
        self.fences: dict[str, int] = core.fences
        """The fence of each lock, by the name of the lock. For two locks of the same name, the names are ``NAME on SERVER``."""

    def __repr__(self) -> str:
        return repr(self._core)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a lease cannot be pickled: it belongs to the process that acquired {self.name}")

    def remaining(self) -> float:
        """Return the seconds for which all leases are still valid without a renewal; 0.0 if one is lost or released.

        Asks no server.
        """
        left: float = self._core.remaining()
        return left

    def check(self) -> None:
        """Raise LeaseLost if one of the leases is lost, NotHeld if one of them was released. Asks no server."""
        self._core.check()

    def progress(self) -> None:
        """Report that the holder makes progress, so that ``progress_within`` starts again for each lock. Asks no server.

        Raises LeaseLost if one of the leases is lost, NotHeld if one of them was released.
        """
        self._core.progress()


class BaseMultiCore(UserLease):
    """The internal object of the lease of several locks acquired together. Base class for threads and for asyncio."""

    fences: dict[str, int]
    told_loss: bool

    def __init__(self, whole: Whole, name: str, on_lost: Callable[..., object] | None, driver: Any) -> None:
        self.driver = driver
        self.whole = whole
        self.on_lost = on_lost
        self.told_loss = False
        self.name = name
        self.cores: list[LeaseCore] = [part.core for part in whole.parts if part.core is not None]
        names = [core.name for core in self.cores]
        self.fences = {
            core.name if names.count(core.name) == 1 else f"{core.name} on {part.member.where()}": core.fence
            for core, part in zip(self.cores, whole.parts, strict=True)
        }

    def start(self, tally: Tally) -> None:
        """Count the acquisition, and have the lease of each single lock report its loss to this object."""
        tally.acquisitions += 1
        tally.took(self.whole, self.whole.waited)
        self._tally: Tally | None = tally
        self._since = clock()
        self.whole.core = self
        for core in self.cores:
            core.begin()
        if self.expired():
            self.notice_loss()

    def count_time(self) -> None:
        """Add the time for which the locks were held to the statistics. A second call does nothing."""
        tally, self._tally = self._tally, None
        if tally is not None:
            count_hold(tally, clock() - self._since)

    def __repr__(self) -> str:
        state = "lost" if self.expired() else "released" if self.is_over() else f"{self.remaining():.1f} s left"
        return f"<holdfast lease of {self.name}, fences {', '.join(map(str, self.fences.values()))}, {state}>"

    @property
    def owner(self) -> int:
        return self.whole.owner

    @owner.setter
    def owner(self, owner: int) -> None:
        self.whole.owner = owner
        for core in self.cores:
            core.owner = owner

    @property
    def inside(self) -> bool:
        return all(core.inside for core in self.cores)

    @inside.setter
    def inside(self, inside: bool) -> None:
        for core in self.cores:
            core.inside = inside

    def remaining(self) -> float:
        return min(core.remaining() for core in self.cores)

    def leave_to_keeper(self) -> None:
        """Have the keeper (background thread) release all locks, for a caller that cannot await the release."""
        self.count_time()
        for core in self.cores:
            with contextlib.suppress(NotHeld, LeaseLost):
                core.leave_to_keeper()

    def check(self) -> None:
        if self.is_over():
            raise self.not_held()
        for core in self.cores:
            core.check()

    def progress(self) -> None:
        self.check()
        for core in self.cores:
            core.progress()

    def hand_on(self) -> bool:
        """Return False, because `release_on_server` hands on or releases each of the locks."""
        return False

    def notice_loss(self) -> None:
        raise NotImplementedError

    def make_way(self) -> None:
        """Do nothing, because the lease of each single lock lets its waiters go on."""

    def first_to_tell(self) -> bool:
        told, self.told_loss = self.told_loss, True
        if not told and self._tally is not None:
            self._tally.losses += 1
            self.count_time()
        return not told

    def expired(self) -> bool:
        return any(core.expired() for core in self.cores)

    def is_over(self) -> bool:
        return all(core.is_over() for core in self.cores)

    def is_inherited(self) -> bool:
        return any(core.is_inherited() for core in self.cores)

    def may_try_release(self) -> bool:
        """Return False, because `release_on_server` must release several locks."""
        return False

    def not_held(self) -> NotHeld:
        return NotHeld(f"the lease of {self.name} was released already", name=self.name, key=self._key)

    @property
    def _key(self) -> str:
        return ", ".join(core.key for core in self.cores)

    async def renew_on_server(self, ttl: Seconds | None) -> None:
        """Renew all leases, one after the other. The public ``renew`` runs this operation."""
        if self.is_over():
            raise self.not_held()
        for part, core in zip(self.whole.parts, self.cores, strict=True):
            await multilock.there(core.renew_on_server(ttl), part.home)

    async def verify_on_server(self) -> None:
        """Ask the servers whether they still have the leases. The public ``verify`` runs this operation."""
        if self.is_over():
            raise self.not_held()
        for part, core in zip(self.whole.parts, self.cores, strict=True):
            await multilock.there(core.verify_on_server(), part.home)

    async def release_on_server(self) -> None:
        if self.is_over():
            raise self.not_held()
        self.count_time()
        await multilock.release(self.whole.parts)

    def finish_release(self) -> Coroutine[Any, Any, None]:
        """Return the operation that finishes a release which was interrupted at an unknown point."""
        self.count_time()
        return self.whole.leave()


class MultiLease(BaseMultiLease):
    """The lease of several locks acquired together, as ``with`` returns it."""

    @property
    def lost(self) -> threading.Event:
        """An event that is set when one of the leases is lost. ``if lease.lost:`` asks whether it is set."""
        return self._core.lost_event()  # type: ignore[no-any-return]

    def renew(self, ttl: Seconds | None = None, **mistaken: Never) -> None:
        """Set all leases to expire ``ttl`` seconds from now (default: their last lengths). The remaining time is not added.

        Raises LeaseLost if a lease is lost, NotHeld if all were released, ServerError if a server cannot be reached.
        """
        refuse_mistaken(mistaken, "MultiLease.renew")
        self._core.run(self._core.renew_on_server, ttl)

    def verify(self) -> None:
        """Ask the servers whether they still have all leases. `check` does not ask them. See `Lease.verify`.

        Raises LeaseLost if a lease is lost, NotHeld if all were released, ServerError if a server cannot be reached.
        """
        self._core.run(self._core.verify_on_server)

    def release(self) -> None:
        """Release all locks.

        Raises LeaseLost if a lease was lost before, NotHeld if all were released already. Raises ServerError if a server cannot
        be reached. Its locks are then free when their leases expire. The locks on other servers are released in any case.
        """
        self._core.release()


class _SyncMultiCore(SyncCore, BaseMultiCore):
    user_type = MultiLease


class MultiLock(BaseMultiLock[MultiLease, SyncClient], BaseSyncLock[MultiLease]):  # type: ignore[type-var]
    """Several locks, held together: all of them or none.

    The locks are acquired in a fixed order, whatever the order of the list, so two MultiLocks never wait for each other in a
    cycle. If all locks are free and on one server (in a Cluster: in one slot), this costs one round trip. Semaphores, sides of
    an `RWLock`, and locks with ``replicas`` or ``quarantine`` cost a round trip each. If a lock is busy, the
    caller waits in its queue. If time runs out or an error occurs, the locks acquired so far are released. A `MultiLock` can
    replace a threading.Lock.

    Args:
        client: a client or URL, for the locks given by name; may be left out if all are lock objects.
        locks: names of locks, and lock objects, with their own servers and options: `Lock`, `FairLock`, `Redlock`,
            `Semaphore`, or a side of an `RWLock`.
        ttl: length of the leases of locks given by name, in seconds, at least 0.05; renewed while held.
        wait: seconds to wait for all locks together. None: without limit; 0: do not wait.
        renew: False if you renew the leases yourself (`MultiLease.renew`).
        on_lost: called with the lease, in a thread of its own, when a lease is lost.
        max_hold: seconds after the acquisition at which renewal stops, so that code that hangs cannot hold the locks forever.
        label: text that describes this user of the locks, shown to their waiters.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range, or a lock is listed twice; nothing was sent to the server.
    """

    _kind = BaseSyncLock
    _makes = Lock
    _makes_core = _SyncMultiCore

    @property
    def lease(self) -> MultiLease | None:
        """The lease of the latest acquisition by this object; None once it is released, and before the first acquisition."""
        return super().lease

    def locked(self) -> bool:
        """Return True if ``locked`` of one of the locks is True. Asks the servers; raises ServerError if one cannot be
        reached."""
        return complete(self._is_locked())

    def __enter__(self) -> MultiLease:
        """Acquire all locks within this object's ``wait`` and return their lease.

        Raises LockTimeout if one of the locks stays busy, ServerError if a server cannot be reached. After an error, none of
        the locks is held.
        """
        return super().__enter__()

    def _take(self, driver: Any, attempt: Any, wait: float | None, now: float) -> Any:  # noqa: ARG002 - each lock has its own
        return complete(self._take_all(attempt, wait))

    def _undo(self, attempt: Any) -> None:
        self._tally.gave_up(attempt)
        self._driver().run(attempt.leave())


@of_asyncio
class AioMultiLease(BaseMultiLease):
    """The lease of several locks acquired together, as ``async with`` returns it."""

    @property
    def lost(self) -> asyncio.Event:
        """An event that is set when one of the leases is lost. ``if lease.lost:`` asks whether it is set."""
        return self._core.lost_event()  # type: ignore[no-any-return]

    async def renew(self, ttl: Seconds | None = None, **mistaken: Never) -> None:
        """Set all leases to expire ``ttl`` seconds from now (default: their last lengths). The remaining time is not added.

        Raises LeaseLost if a lease is lost, NotHeld if all were released, ServerError if a server cannot be reached.
        """
        refuse_mistaken(mistaken, "MultiLease.renew")
        await self._core.run(self._core.renew_on_server, ttl)

    async def verify(self) -> None:
        """Ask the servers whether they still have all leases. `check` does not ask them. See `Lease.verify`.

        Raises LeaseLost if a lease is lost, NotHeld if all were released, ServerError if a server cannot be reached.
        """
        await self._core.run(self._core.verify_on_server)

    async def release(self) -> None:
        """Release all locks.

        Raises LeaseLost if a lease was lost before, NotHeld if all were released already. Raises ServerError if a server cannot
        be reached. Its locks are then free when their leases expire. The locks on other servers are released in any case.
        """
        await self._core.release()


class _AioMultiCore(AioCore, BaseMultiCore):
    user_type = AioMultiLease


@of_asyncio
class AioMultiLock(BaseMultiLock[AioMultiLease, AsyncClient], BaseAioLock[AioMultiLease]):  # type: ignore[type-var]
    """Several locks, held together: all of them or none.

    The locks are acquired in a fixed order, whatever the order of the list, so two MultiLocks never wait for each other in a
    cycle. If all locks are free and on one server (in a Cluster: in one slot), this costs one round trip. Semaphores, sides of
    an `RWLock`, and locks with ``replicas`` or ``quarantine`` cost a round trip each. If a lock is busy, the
    caller waits in its queue. If time runs out or an error occurs, the locks acquired so far are released. A `MultiLock` can
    replace an asyncio.Lock.

    If a lease is lost, the body of ``async with`` is cancelled and LeaseLost is raised.

    Args:
        client: a client or URL, for the locks given by name; may be left out if all are lock objects.
        locks: names of locks, and lock objects, with their own servers and options: `Lock`, `FairLock`, `Redlock`,
            `Semaphore`, or a side of an `RWLock`.
        ttl: length of the leases of locks given by name, in seconds, at least 0.05; renewed while held.
        wait: seconds to wait for all locks together. None: without limit; 0: do not wait.
        renew: False if you renew the leases yourself (`MultiLease.renew`).
        on_lost: called in the loop with the lease when a lease is lost; may be a coroutine function.
        max_hold: seconds after the acquisition at which renewal stops, so that code that hangs cannot hold the locks forever.
        label: text that describes this user of the locks, shown to their waiters.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range, or a lock is listed twice; nothing was sent to the server.
    """

    _kind = BaseAioLock
    _makes = AioLock
    _makes_core = _AioMultiCore

    @property
    def lease(self) -> AioMultiLease | None:
        """The lease of the latest acquisition by this object; None once it is released, and before the first acquisition."""
        return super().lease

    async def locked(self) -> bool:
        """Return True if ``locked`` of one of the locks is True. Asks the servers; raises ServerError if one cannot be
        reached."""
        return await self._is_locked()

    async def __aenter__(self) -> AioMultiLease:
        """Acquire all locks within this object's ``wait`` and return their lease.

        Raises LockTimeout if one of the locks stays busy, ServerError if a server cannot be reached. After an error, none of
        the locks is held.
        """
        return await super().__aenter__()

    async def _take(self, driver: Any, attempt: Any, wait: float | None) -> Any:  # noqa: ARG002 - each lock has its own
        return await self._take_all(attempt, wait)

    async def _undo(self, driver: Any, attempt: Any) -> None:  # noqa: ARG002 - the attempt knows its drivers
        self._tally.gave_up(attempt)
        await self._driver().run(attempt.leave())
