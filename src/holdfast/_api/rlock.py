"""`RLock` for threads and for asyncio: a lock that its owner can acquire again. It counts how often each owner has acquired it.

An owner is an asyncio task, or the thread if no task runs in it. The counts are kept in this process; the server does not know
them. When an owner has ended, its counts are dropped, and its locks are no longer renewed.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, MutableMapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Never, Self, TypeVar, cast

from holdfast._api.base_lock import BaseLock, L
from holdfast._api.flow import of_asyncio
from holdfast._api.lease import AioLease, AioLockLease, BaseLease, Lease, LockLease, core_of
from holdfast._api.lease_core import AioLeaseCore, Entered, LeaseCore, SyncLeaseCore
from holdfast._api.lock import AioLock, Lock
from holdfast._api.options import acquire_wait, refuse_mistaken
from holdfast._api.redlock import AioQuorumCore, AioRedlock, QuorumCore, Redlock
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient, Client, Servers, SyncClient
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import are_several
from holdfast.errors import ConfigError, HoldfastError, HoldfastWarning, LeaseLost, NotHeld

T = TypeVar("T")

Mark = str
"""Text that identifies a lock, the same for all RLock objects of that lock. It is a str, which computes its hash only once."""

ONE_SERVER = {"linger": 0.0, "replicas": 0, "quarantine": False, "deadlock": "wait"}
SEVERAL = {"max_ttl": None, "answer_within": None}
"""Options that need several servers, with their defaults. ``ONE_SERVER`` has those that need one server."""


class RLockHolding:
    """A lock held by one owner, and how many times the owner has acquired it."""

    body_count = 1
    """Value of ``count`` inside the ``async with`` body that a loss of the lease cancels; 0: there is no such body."""
    leaving = 0
    """Value of ``count`` at the start of a ``with`` exit that is running; 0 outside."""
    saved = 0
    """Value of ``count`` to restore after `Condition.wait`, which releases the lock completely meanwhile."""

    def __init__(self, core: Any, count: int = 1) -> None:
        self.core = core
        """The internal object of the lease."""
        self.count = count

    def again(self, result: T) -> T:
        """Count one more acquisition and return ``result``. The count stays right if a signal handler raises at any line."""
        before = self.count
        try:
            self.count = before + 1
            return result
        except BaseException:
            self.count = before
            raise

    @property
    def over(self) -> bool:
        """True if the lease was released through the `Lease` object, or belongs to the process that forked this one."""
        over: bool = self.core.is_over()
        return over


class Holdings(dict[Mark, RLockHolding]):
    """The locks that one owner (thread or task) holds."""

    __slots__ = ("__weakref__",)

    def mine(self, mark: Mark) -> RLockHolding | None:
        """Return the owner's holding of this lock, for one more acquisition; None if the owner does not hold the lock.

        Raises LeaseLost if the lease was lost, because the owner's outer code still relies on it.
        """
        holding = self.get(mark)
        if holding is None or holding.over:
            return None
        holding.core.check()
        return holding

    def leave(self, mark: Mark) -> RLockHolding | None:
        """Count one acquisition less. If only one is left, return the holding instead. The caller must then release its lease.

        Raises KeyError if there is no holding. With more than one acquisition, raises LeaseLost if the lease was lost, and
        NotHeld if it was released through the `Lease` object.
        """
        holding = self[mark]
        if holding.count == 1:
            return holding
        if not holding.leaving and holding.over:
            holding.core.check()
        holding.count -= 1
        holding.core.check()
        return None

    def tidy(self, mark: Mark) -> None:
        """Drop the holding of this lock if it counts one acquisition and its lease was released."""
        holding = self.get(mark)
        if holding is not None and holding.count == 1 and holding.over:
            del self[mark]

    def left(self, mark: Mark) -> None:
        """End the exit of a ``with`` statement. Only the outermost exit drops the holding, because each exit needs it."""
        holding = self.get(mark)
        if holding is not None:
            last, holding.leaving = holding.leaving == 1, 0
            if last:
                self.tidy(mark)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.holdings = Holdings()


_thread = _Thread()
_tasks: MutableMapping[Any, Holdings] = weakref.WeakKeyDictionary()


_running_loop: Callable[[], Any] | None = None
_current_task: Callable[[Any], Any]


def holdings() -> Holdings:
    """Return the locks held by the task that runs in this thread, or by the thread if no task runs."""
    loop = _running_loop() if _running_loop is not None else _find_asyncio()
    if loop is not None:
        task = _current_task(loop)
        if task is not None:
            found = _tasks.get(task)
            if found is None:
                found = _tasks[task] = Holdings()
            return found
    return _thread.holdings


def _find_asyncio() -> Any:
    """Look up asyncio's functions and return the running event loop; None if the program has not imported asyncio."""
    global _running_loop, _current_task  # A lookup at each use would cost as much as all the rest.
    if "asyncio" not in sys.modules:
        return None
    from asyncio import _get_running_loop, current_task  # The former is documented, and cheaper than an exception.

    _current_task, _running_loop = current_task, _get_running_loop
    return _running_loop()


def depth(lock: Any) -> int:
    """Return how often the calling thread or task has acquired an RLock; 0 for other kinds of locks."""
    count: int = lock._recursion_count() if isinstance(lock, Reentrant) else 0  # noqa: SLF001 - named so by threading.RLock
    return count


def unfinished(lock: object, lease: BaseLease | None, before: int) -> bool:
    """Return True if the end of a ``with`` statement did not release what its start had acquired.

    An interrupt at the first instruction of ``__exit__`` can cause this, so the code around the ``with`` has to check for it.
    ``lease``: lease that the ``with`` returned. ``before``: `depth` of the lock before the ``with``.
    """
    if lease is None:
        return False
    return depth(lock) > before if isinstance(lock, Reentrant) else not core_of(lease).is_over()


class BaseOwnedCore(LeaseCore):
    """The internal object of the lease of an RLock, which its owner (a thread or task) acquired."""

    def may_hand_over(self) -> None:
        """Raise NotHeld unless the caller owns the lock and has acquired it exactly once. Outer code may still need it."""
        mine = next((holding for holding in holdings().values() if holding.core is self), None)
        why = ""
        if mine is None:
            why = "another thread or task holds it; issue the ticket there"
        elif mine.count != 1:
            why = f"this thread or task has acquired it {mine.count} times; release it down to one acquisition first"
        if why:
            raise NotHeld(f"cannot hand over lock {self.name!r}: {why}", name=self.name, key=self.key)


class Unlisted(Entered[Any]):
    """A list that stays empty, because an RLock finds its lease by the owner, and a list would keep leases of dead threads."""

    __slots__ = ()

    def push(self, owner: int, core: Any) -> None:
        core.owner, core.inside = owner, True


_on_several_servers: dict[type, type] = {}
"""Maps an RLock class to the class of the objects that `Reentrant.__new__` makes instead if several servers are passed."""


class Reentrant(BaseLock[L, Client]):
    """A mixin with the options and state that make a lock reentrant, for both APIs."""

    _several = False

    @hides_client("RLock.__init__")
    def __init__(
        self,
        client: Client | Servers[Client],
        name: str | bytes,
        *,
        ttl: Seconds = 30.0,
        wait: Seconds | None = None,
        renew: bool = True,
        on_lost: Callable[[L], object] | None = None,
        max_hold: Seconds | None = None,
        progress_within: Seconds | None = None,
        label: str | None = None,
        prefix: str = "hf:",
        key: str | bytes | None = None,
        linger: Seconds = 0.0,
        max_passes: int = 32,
        max_pass_time: Seconds = 0.01,
        replicas: int = 0,
        quarantine: bool | Seconds = False,
        deadlock: Literal["wait", "raise"] = "wait",
        max_ttl: Seconds | None = None,
        answer_within: Seconds | None = None,
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, type(self).__name__)
        options = {
            "ttl": ttl, "wait": wait, "renew": renew, "on_lost": on_lost, "max_hold": max_hold, "label": label, "key": key,
            "prefix": prefix, "linger": linger, "max_passes": max_passes, "max_pass_time": max_pass_time,
            "quarantine": quarantine, "replicas": replicas, "max_ttl": max_ttl, "answer_within": answer_within,
            "progress_within": progress_within, "deadlock": deadlock,
        }  # fmt: skip
        super().__init__(client, name, **self._fitting(options))  # type: ignore[arg-type]  # super() may be a BaseRedlock

    if not TYPE_CHECKING:  # For type checkers, the options are those of __init__.

        def __new__(cls, client: object, *_args: Any, **_options: Any) -> Self:
            several = _on_several_servers.get(cls)
            return object.__new__(several if several is not None and are_several(client) else cls)

        __new__.__wrapped__ = __init__  # For the signature that help() shows.

    def _start(self) -> None:
        super()._start()
        self._entered: Any = Unlisted()
        # All lock objects for one server share one endpoint or Cluster object, and each lease keeps it alive, so its id is
        # unique.
        place = self._cluster or self._endpoint
        places = place if isinstance(place, tuple) else (place,)
        self._mark: Mark = " ".join((self._api, *(f"{id(one):x}" for one in places), self._spec.keys[0].decode("latin-1")))

    def _fitting(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options that fit the number of servers. Raises ConfigError if an option that does not fit is set."""
        for name, default in (ONE_SERVER if self._several else SEVERAL).items():
            if options.pop(name) != default:
                only = "one server" if self._several else "several servers"
                raise ConfigError(f"{name} works only with an RLock on {only}", parameter=name)
        return {name: value for name, value in options.items() if not (name in SEVERAL and value is None)}

    def _live(self) -> Any:
        holding = holdings().get(self._mark)
        return None if holding is None or holding.over else holding.core

    @property
    def lease(self) -> L | None:
        """The lease that the calling thread or task has acquired and not released; None if there is none."""
        core = self._live()
        return None if core is None else core.user_lease()

    def _took(self, core: Any) -> None:
        if core is not None:
            mine = holdings()
            before = mine.get(self._mark)
            mine[self._mark] = RLockHolding(core, 1 if before is None else before.saved or 1)

    _current: Any = property(_live, _took)
    """The lease of the calling thread or task. Setting it stores the lease with its owner, not in this lock object."""

    def _acquired_again(self, blocking: bool, timeout: Seconds) -> bool:
        """Acquire the lock once more and return True if the caller holds it; else return False."""
        held = holdings()
        mine = held.mine(self._mark) if self._mark in held else None
        if mine is None:
            return False
        acquire_wait(self._wait, blocking, timeout)
        return mine.again(True)

    def _held(self) -> RLockHolding:
        holding = holdings().get(self._mark)
        if holding is None or holding.over:
            raise self._not_held()
        return holding

    def _inside(self) -> RLockHolding:
        """Return the caller's holding at the end of a ``with``, even if its lease was released in the body."""
        holding = holdings().get(self._mark)
        if holding is None:
            raise self._not_held()
        return holding

    def _not_held(self) -> NotHeld:
        return NotHeld(
            f"cannot release un-acquired lock {self.name!r}: this thread or task does not hold it (at {self._where})",
            name=self.name,
            key=self.key,
        )

    def _step_out(self, error: BaseException | None) -> None:
        """Count one acquisition less at the end of an inner ``with``. The lock stays held."""
        try:
            holdings().leave(self._mark)
        except NotHeld:
            pass  # The lease was released inside the body.
        except LeaseLost as lost:
            if error is None:
                raise
            error.add_note(str(lost))

    def _is_owned(self) -> bool:
        """Return True if the caller holds the lock. threading.Condition calls this."""
        return self._live() is not None

    def _recursion_count(self) -> int:
        """Return how often the caller has acquired the lock, as a threading.RLock does."""
        holding = holdings().get(self._mark)
        return 0 if holding is None or holding.over else holding.count


class _SyncOwnedCore(BaseOwnedCore, SyncLeaseCore):
    """The internal object of the lease of an RLock, of a thread."""


class RLock(Reentrant[LockLease, SyncClient], Lock):
    """A `Lock` that its owner can acquire again, for functions that call each other.

    The owner is the asyncio task that acquired the lock, or the thread if no task runs in it. Only the owner can release the
    lock, which is free when it is released as often as it was acquired. Acquiring the lock again needs no round trip and
    returns the same lease, with the same fence. All RLock objects of one name and server count as one lock. If the lease was
    lost, acquiring the lock again raises LeaseLost.

    Args:
        client: as for `Lock`; or a list or dictionary of several servers, as for `Redlock`.
        max_ttl: as for `Redlock`, with several servers only.
        answer_within: as for `Redlock`, with several servers only. ``linger``, ``replicas``, ``quarantine`` and ``deadlock``
            work with one server only. All other options are as for `Lock`.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    _core_type: type[SyncLeaseCore] = _SyncOwnedCore

    def acquire(self, blocking: bool = True, timeout: Seconds = -1, **mistaken: Never) -> bool:
        """Acquire the lock and return True; return False if it stays busy. ``timeout`` is in seconds.

        A caller that holds the lock already acquires it again at once. Works like threading.RLock.acquire, except that without
        arguments it waits as long as this object's ``wait`` option allows. Raises LeaseLost if the caller held the lock and
        lost it, ServerError if the server cannot be reached.
        """
        refuse_mistaken(mistaken, "acquire")
        return self._acquired_again(blocking, timeout) or super().acquire(blocking, timeout)

    def release(self) -> None:
        """Release one acquisition; the lock is free when all acquisitions are released.

        Raises NotHeld (a RuntimeError) if this thread or task does not hold the lock, LeaseLost if the lease was lost before.
        Raises ServerError if the server cannot be reached. The lock is then free when the lease expires.
        """
        count = 0
        try:
            mine = holdings()
            held = mine.get(self._mark)
            if held is None:
                raise self._not_held()
            count = held.count
            if mine.leave(self._mark) is not None:
                self._release_last(mine, held)
        except HoldfastError:
            raise
        except BaseException:
            # An exception of an interrupt or a signal handler can come at any line.
            self._once_less(count)
            raise

    def _release_last(self, mine: Holdings, held: RLockHolding) -> None:
        try:
            held.core.release()
        except NotHeld:
            raise  # The user has released the lease itself. The end of an outer ``with`` still needs this `RLockHolding`.
        except BaseException:
            mine.tidy(self._mark)
            raise
        del mine[self._mark]

    def _once_less(self, count: int) -> None:
        """Finish an interrupted `release`. ``count``: acquisitions before the release; 0: nothing was changed yet."""
        mine = holdings()
        held = mine.get(self._mark)
        if held is not None:
            count = count or held.count
            if count > 1:
                held.count = count - 1
            else:
                held.core.finish_interrupted_release()
                mine.tidy(self._mark)

    def __enter__(self) -> LockLease:
        """Acquire the lock within this object's ``wait`` and return the lease.

        A caller that holds the lock already acquires it again at once. Raises LockTimeout if the lock stays busy, LeaseLost if
        the caller held it and lost it, ServerError if the server cannot be reached.
        """
        mine = holdings().mine(self._mark)
        if mine is None:
            return super().__enter__()
        return mine.again(cast("LockLease", mine.core.user_lease()))  # The lease first: an interrupt in it must count nothing.

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Release the acquisition that this ``with`` made.

        If the lease was lost and the body succeeded, LeaseLost is raised. If the body raised an exception, LeaseLost is added
        to it as a note. If the server cannot be reached, only a warning is issued, and the lock is free when the lease expires.
        """
        try:
            holding = self._inside()
            holding.leaving = holding.count
            if holding.count > 1:
                self._step_out(error)
            else:
                self._leave(holding.core, error)
        except (HoldfastError, HoldfastWarning):
            raise
        except BaseException:
            # An exception of an interrupt or a signal handler can come at any line.
            self._interrupted(self._inside())
            raise
        finally:
            holdings().left(self._mark)

    def _interrupted(self, holding: RLockHolding) -> None:
        """Finish the end of a ``with`` statement that was interrupted at an unknown point."""
        holding.leaving = holding.leaving or holding.count
        if holding.leaving > 1:
            holding.count = holding.leaving - 1
        else:
            holding.core.finish_interrupted_release()

    def _release_save(self) -> int:
        """Release the lock completely and return how often it was acquired. threading.Condition calls this."""
        holding = self._held()
        holding.saved = holding.count
        holding.core.release()
        return holding.saved

    def _acquire_restore(self, count: int) -> None:
        """Acquire the lock again ``count`` times, without a time limit. threading.Condition calls this."""
        super().acquire(timeout=threading.TIMEOUT_MAX)
        self._held().count = count


class _OnSeveralServers(RLock, Redlock):
    _core_type = QuorumCore
    _lease_type = Lease  # type: ignore[assignment]  # without tickets
    _several = True


# The name that users see in messages and in type(lock).
_OnSeveralServers.__name__ = _OnSeveralServers.__qualname__ = "RLock"
_on_several_servers[RLock] = _OnSeveralServers


class _AioOwnedCore(BaseOwnedCore, AioLeaseCore):
    """The internal object of the lease of an RLock, of a task."""


@of_asyncio
class AioRLock(Reentrant[AioLockLease, AsyncClient], AioLock):
    """A `Lock` that its owner can acquire again, for functions that call each other.

    The owner is the asyncio task that acquired the lock, or the thread if no task runs in it. Only the owner can release the
    lock, which is free when it is released as often as it was acquired. Acquiring the lock again needs no round trip and
    returns the same lease, with the same fence. All RLock objects of one name and server count as one lock. If the lease was
    lost, acquiring the lock again raises LeaseLost.

    Args:
        client: as for `Lock`; or a list or dictionary of several servers, as for `Redlock`.
        max_ttl: as for `Redlock`, with several servers only.
        answer_within: as for `Redlock`, with several servers only. ``linger``, ``replicas``, ``quarantine`` and ``deadlock``
            work with one server only. All other options are as for `Lock`.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    _core_type: type[AioLeaseCore] = _AioOwnedCore

    async def acquire(self, blocking: bool = True, timeout: Seconds = -1, **mistaken: Never) -> bool:
        """Acquire the lock and return True; return False if it stays busy. ``timeout`` is in seconds.

        A caller that holds the lock already acquires it again at once. Works like threading.RLock.acquire, except that without
        arguments it waits as long as this object's ``wait`` option allows. Raises LeaseLost if the caller held the lock and
        lost it, ServerError if the server cannot be reached.
        """
        refuse_mistaken(mistaken, "acquire")
        return self._acquired_again(blocking, timeout) or await super().acquire(blocking, timeout)

    async def release(self) -> None:
        """Release one acquisition; the lock is free when all acquisitions are released.

        Raises NotHeld (a RuntimeError) if this thread or task does not hold the lock, LeaseLost if the lease was lost before.
        Raises ServerError if the server cannot be reached. The lock is then free when the lease expires.
        """
        mine = holdings()
        try:
            holding = mine.leave(self._mark)
        except KeyError:
            raise self._not_held() from None
        if holding is not None:
            try:
                await holding.core.release()
            except NotHeld:
                raise  # The user has released the lease itself. The end of an outer ``with`` still needs this `RLockHolding`.
            except BaseException:
                mine.tidy(self._mark)
                raise
            del mine[self._mark]

    async def __aenter__(self) -> AioLockLease:
        """Acquire the lock within this object's ``wait`` and return the lease.

        A caller that holds the lock already acquires it again at once. Raises LockTimeout if the lock stays busy, LeaseLost if
        the caller held it and lost it, ServerError if the server cannot be reached.
        """
        mine = holdings().mine(self._mark)
        if mine is None:
            return await super().__aenter__()
        core = mine.core
        lease: AioLockLease = core.user_lease()
        mine.again(lease)
        if core.body_task is None:
            core.body_task, mine.body_count = self._this_task(), mine.count
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the acquisition that this ``async with`` made.

        If the lease was lost and the body succeeded, or was cancelled because of the loss, LeaseLost is raised. If the body
        raised an exception, LeaseLost is added to it as a note. If the server cannot be reached, only a warning is issued, and
        the lock is free when the lease expires.
        """
        holding = self._inside()
        core = holding.core
        if holding.count == holding.body_count:
            core.body_task, holding.body_count = None, 0
        error = core.end_of_body(error)
        holding.leaving = holding.count
        try:
            if holding.count > 1:
                self._step_out(error)
            else:
                await self._leave(core, error)
        finally:
            holdings().left(self._mark)


class _AioOnSeveralServers(AioRLock, AioRedlock):
    _core_type = AioQuorumCore
    _lease_type = AioLease  # type: ignore[assignment]  # without tickets
    _several = True


_AioOnSeveralServers.__name__ = _AioOnSeveralServers.__qualname__ = (
    "RLock"  # The name that users see in messages and in type(lock).
)
_on_several_servers[AioRLock] = _AioOnSeveralServers
