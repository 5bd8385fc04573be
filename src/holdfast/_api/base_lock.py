"""The base of all locks: the options and state of a lock object, and the operations of its methods."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, NoReturn, TypeVar

from holdfast._api.error_map import Trouble, cause, record_of, server_error
from holdfast._api.flow import Steps, hides_frames
from holdfast._api.foreign_words import LOCK_CALL, ForeignMethods
from holdfast._api.options import acquire_wait, checked_wait, make_spec, refuse_mistaken
from holdfast._api.tally import Tally
from holdfast._core.lock import acquire
from holdfast._core.lock.local_queue import LocalQueue
from holdfast._core.lock.owner import is_held_by
from holdfast._core.lock.records import Attempt, Grant, Registrar
from holdfast._core.lock.replies import PAUSED, Busy
from holdfast._core.lock.spec import Spec
from holdfast._core.requests import Command, WireError
from holdfast._core.retry import retry_idempotent
from holdfast._core.struct import NamedTuple
from holdfast._durations import Seconds
from holdfast._net.clients import Client
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import one_place, resolve
from holdfast._runtime.keeper.thread import Keeper
from holdfast._runtime.process import current, describe
from holdfast.errors import ConfigError, HoldfastError, LockTimeout, NotHeld

if TYPE_CHECKING:
    from holdfast._api.lease import BaseLease
    from holdfast._api.statistics import LockStatistics
    from holdfast._net.endpoint import Endpoint, Topology

L = TypeVar("L", bound="BaseLease")
T = TypeVar("T")


class MultiLockMember(NamedTuple):
    """The internals of a lock, for other internal code such as `MultiLock`. A lock reveals nothing else."""

    lock: BaseLock[Any, Any]
    """The lock object, as the user holds it."""
    spec: Spec
    wait: float | None
    """Seconds to wait for the lock; None: without a limit."""
    tally: Tally
    where: Callable[[], str]
    """Returns the address of the server or servers, for messages."""
    in_cluster: bool
    endpoint: Callable[[], Any]
    """Returns the server or servers that have the lock now."""
    locate: Callable[[], Coroutine[Any, Any, None]]
    """Looks up the server that has the lock in a Cluster."""
    driver: Callable[[], Any]
    new_attempt: Callable[[Any], Attempt]
    acquire: Callable[[Attempt, float | None], Coroutine[Any, Any, Grant | Busy]]
    abandon: Callable[[Attempt], Coroutine[Any, Any, None]]
    user_error: Callable[[Trouble], HoldfastError]
    lease_type: Callable[[Any], Any]
    """Class of the leases that users hold."""
    leave: Callable[[Any, BaseException | None], Any]
    """Releases a lease at the end of a ``with``. Arguments: the lease's internal object; the body's exception or None."""
    refuse_nested: Callable[[float | None, str], None]
    """Raises RuntimeError if the caller is inside a ``with`` of this lock. Arguments: seconds to wait, and advice."""
    detach: Callable[[Any], None]
    """Drops the record of an open ``with`` statement, given its lease's internal object. Other code then releases the lease."""
    hold: Callable[[Any, Grant], Any]
    """Makes a lease's internal object from a driver and a grant, and stores it in the lock object."""
    busy: Callable[[Busy, bytes | None, float], LockTimeout]
    holder: Callable[[Busy], Coroutine[Any, Any, bytes | None]]


def member_of(lock: Any) -> MultiLockMember:
    """Return the internals of a lock that a user has passed to holdfast, for other internal code."""
    member: MultiLockMember = lock._as_member()  # noqa: SLF001 - the only door between a lock that users hold and internal code
    return member


class BaseLock(Steps, ForeignMethods, Generic[L, Client]):
    """The options and the state of a lock object. Base class for threads and for asyncio."""

    if not TYPE_CHECKING:
        __call__ = LOCK_CALL

    _home: Any
    """The driver that was used last. It runs operations for one process and server."""
    _cluster: Topology | None = None
    _core_type: Callable[..., Any]
    """Class of the internal object of a lease. It is a subclass of `LeaseCore`."""
    _lease_type: Callable[[Any], Any]
    """Class of the leases that users hold."""
    _current: Any
    """The internal object of the lease of the latest acquisition by this object; None before the first acquisition."""
    _caller: str
    """Word for what waits for a lock, in error messages: "thread" or "task"."""
    _again = "use holdfast.RLock, which its holder may acquire again"
    """Advice, in error messages, for a caller that holds the lock already."""
    _what = "lock"
    """Word for this kind of lock in error messages."""
    _shared = True
    """True if a released lock is handed on to the next waiter of this process, without asking the server."""
    _own_operation = False
    """True in a subclass that overrides `_try`. It cannot use `_core.lock.uncontended`, the fast path for a free lock."""
    _strategy = acquire.ON_ONE_SERVER
    """Functions that ask the server or servers for the lock."""

    @hides_client("Lock.__init__")
    def __init__(
        self,
        client: Client,
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
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, type(self).__name__)
        self._endpoint: Any = resolve(one_place(client, type(self).__name__), self._api)
        self._cluster = self._endpoint.cluster
        if replicas and (self._endpoint.client is not None or self._cluster is not None):
            raise ConfigError(
                "replicas needs one server, to which holdfast can open connections itself: pass a URL or a plain client",
                parameter="replicas",
            )
        if quarantine is not False and self._cluster is not None:
            raise ConfigError("quarantine does not work in a Cluster: pass one server, or Sentinels", parameter="quarantine")
        spec = make_spec(
            name,
            self._endpoint.timeout,
            ttl=ttl,
            renew=renew,
            max_hold=max_hold,
            prefix=prefix,
            key=key,
            linger=linger,
            max_passes=max_passes,
            max_pass_time=max_pass_time,
            replicas=replicas,
            quarantine=quarantine,
            deadlock=deadlock,
            progress_within=progress_within,
        )
        self._set_up(spec, wait, on_lost, label)

    def _set_up(self, spec: Spec, wait: object, on_lost: Callable[..., object] | None, label: str | None) -> None:
        self._spec = spec
        self._wait = checked_wait(wait)
        self._keeper: Keeper | None = None
        self._local_queue: LocalQueue | None = None
        self._node: Registrar | None = None
        """The part of the keeper that renews the leases of this lock; None before the first attempt."""
        self._is_direct = False
        """True if attempts can use `_core.lock.uncontended`, the fast path for a free lock."""
        self._tally = Tally()
        if on_lost is not None and not callable(on_lost):
            raise ConfigError("on_lost must be callable", parameter="on_lost")
        self._on_lost = on_lost
        if label is not None:
            if not isinstance(label, str) or len(label) > 200 or not label.isprintable():
                raise ConfigError("label must be printable text of at most 200 characters", parameter="label")
            self._spec = spec._replace(label=label)
        self._start()

    def _start(self) -> None:
        raise NotImplementedError

    def _as_member(self) -> MultiLockMember:
        return MultiLockMember(
            lock=self,
            spec=self._spec,
            wait=self._wait,
            tally=self._tally,
            where=lambda: self._where,
            in_cluster=self._cluster is not None,
            endpoint=lambda: self._endpoint,
            locate=self._find_server,
            driver=self._driver,
            new_attempt=self._new_attempt,
            acquire=self._try,
            abandon=self._abandon,
            user_error=self._user_error,
            lease_type=self._lease_type,
            leave=self._leave,
            refuse_nested=self._refuse_nested,
            detach=self._detach,
            hold=self._hold,
            busy=self._busy,
            holder=self._holder,
        )

    async def _find_server(self) -> None:
        """Look up the server that has the lock's slot in a Cluster. Called before each use, because slots move."""
        cluster = self._cluster
        if cluster is None:
            return
        if not cluster.known:
            try:
                await self._in_background(cluster.refresh, self._endpoint.timeout)
            except WireError as error:
                raise self._user_error(error) from cause(error)
        self._settle(cluster)

    @hides_frames
    async def _ask(self, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        await self._find_server()
        return await self._run_on(self._driver(), operation())

    def _driver(self) -> Any:
        """Return the driver that runs operations on the lock's server, in this process and event loop."""
        raise NotImplementedError

    def _new_attempt(self, driver: Any) -> Attempt:
        """Return a new attempt to acquire the lock."""
        raise NotImplementedError

    def _leave(self, core: Any, error: BaseException | None) -> Any:
        raise NotImplementedError

    def _detach(self, core: Any) -> None:
        raise NotImplementedError

    def _hold(self, driver: Any, grant: Grant) -> Any:
        core = self._core_type(driver.process, driver.endpoint, grant, self._on_lost, self._lease_type, driver)
        self._keep(core)
        return core

    def _keep(self, core: Any) -> None:
        """Store the internal object of a new lease as the latest one of this lock object."""
        raise NotImplementedError

    def _live(self) -> Any:
        """Return the internal object of the latest lease of this lock object; None if there is none, or it was released."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The name of the lock, as passed."""
        return self._spec.name

    @property
    def key(self) -> str:
        """The key of the lock on the server."""
        return self._spec.key

    def _held_core(self) -> Any:
        """Return the internal object of the latest lease. Raises NotHeld if there is none, or it was released."""
        core = self._live()
        if core is None:
            raise self._not_held()
        return core

    def progress(self) -> None:
        """Report that the holder makes progress, so that its ``progress_within`` seconds start again. Asks no server.

        The report is about the latest acquisition by this object. Raises NotHeld if this object holds nothing, LeaseLost if the
        lease is lost.
        """
        if self._current is None:
            raise self._not_held()
        self._current.progress()

    def statistics(self) -> LockStatistics:
        """Return the counts and times of this object's acquisitions, waits and losses of the lock. Asks no server."""
        return self._tally.now()

    def __repr__(self) -> str:
        what = f"holdfast.{'aio.' if self._api == 'asyncio' else ''}{type(self).__name__}"
        if not hasattr(self, "_spec"):  # The options were refused, but a debugger or an error reporter still calls repr().
            return f"<{what}, not made>"
        return f"<{what} {self.name!r} on {self._where}>"

    @property
    def _where(self) -> str:
        return str(self._endpoint.address)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a lock cannot be pickled: create a lock of the same name ({self.name!r}) in the other process; to hand over a "
            "lock that is held, send the ticket that ticket() returns"
        )

    def _busy(self, busy: Busy, holder: bytes | None, waited: float) -> LockTimeout:
        paused = busy.process == PAUSED
        who = describe(holder, busy.named, self._spec.keys[0])
        # The server names no process when all free permits are reserved for earlier waiters.
        foreign = not busy.process and self._spec.permits is None
        left = "its key has no expiry" if busy.remaining is None else f"{busy.remaining:.1f} s of its lease left"
        holding = f"this process, {who}" if busy.named == current().id else who or "a client of another library"
        why = f"busy: held by {holding}, {left}"
        if not who and not foreign:
            why = "busy, and no server named its holder"
        advice = "try again later"
        if paused:
            why = (
                "not granted: its server is new or may have lost data (restarted, flushed, or a former replica), and grants no "
                f"lock for another {busy.remaining:.1f} s (quarantine={self._spec.quarantine:g})"
            )
        elif self._is_callers():
            why, advice = f"busy: this {self._caller} holds it already, {left}", "use holdfast.RLock to acquire a lock again"
        return LockTimeout(
            f"{self._what} {self.name!r} is {why}; waited {waited:.1f} s, {advice} (at {self._where})",
            name=self.name,
            key=self.key,
            waited=waited,
            holder=who,
            foreign=foreign,
            remaining=busy.remaining if who or foreign or paused else None,
        )

    def _acquire_wait(self, blocking: bool, timeout: Seconds) -> float | None:
        return acquire_wait(self._wait, blocking, timeout)

    def _not_held(self) -> NotHeld:
        core, why = self._current, "is not held by this object: it was released before"
        if not self._tally.acquisitions:
            why = "has not been acquired by this object"
        elif core is not None and core.is_inherited():
            why = "is not held by this process: the lease belongs to the process that forked this one"
        return NotHeld(f"lock {self.name!r} {why} (at {self._where})", name=self.name, key=self.key)

    def _is_callers(self, *, inside: bool = False) -> bool:
        """Return True if the calling thread or task holds the lock; False for permits. ``inside``: only in a ``with`` of it."""
        keeper, queue = self._keeper, self._local_queue
        if keeper is None or self._spec.permits is not None:  # others may release the permits that this caller waits for
            return False
        held = None if queue is None else queue.held_lease
        if held is None and not isinstance(self._endpoint, tuple):
            held = keeper.lease_of(self._endpoint, self._spec.keys[0])  # acquired by a FairLock, which has no local queue
        return held is not None and is_held_by(held, self._owner(), inside=inside)

    def _refuse_nested(self, wait: float | None, again: str = "") -> None:
        """Raise RuntimeError if the caller would wait for itself forever, because it is inside a ``with`` of this lock.

        ``again``: advice for the caller, in place of `_again`.
        """
        if wait is None and self._is_callers(inside=True):
            raise RuntimeError(
                f"lock {self.name!r} is held by this very {self._caller}, in a `with` statement around this call, so the "
                f"call would wait for itself: {again or self._again}"
            )

    @staticmethod
    def _at_once(attempt: Attempt) -> Grant | Busy | None:
        """Return a grant of the lease that lingers in this process; None if the attempt cannot use it.

        This function never returns Busy, although its type allows it.
        """
        queue = attempt.local_queue
        return None if queue is None or queue.held_lease is None else queue.retake(attempt)

    def _settle(self, cluster: Topology) -> None:
        """Use the server of the Cluster that now has this lock's slot."""
        shard = self._shard(cluster)
        if shard is not self._endpoint:
            self._endpoint, self._keeper, self._home = shard, None, None  # Without a keeper, the local queue is looked up anew.

    def _shard(self, cluster: Topology) -> Endpoint:
        from holdfast._net.slots import slot_of  # Imported late: most programs use no Cluster.

        return cluster.shard(slot_of(self._spec.keys[0]))

    def _find_keeper(self, driver: Any) -> None:
        """Look up the keeper of the process, and its local queue and node (state for one server) for this lock."""
        keeper, spec = driver.process.keeper, self._spec
        self._local_queue = keeper.local_queue(self._endpoint, spec) if self._shared else None
        alone = self._strategy is acquire.ON_ONE_SERVER and not self._own_operation
        plain = alone and spec.permits is None and not spec.replicas
        self._is_direct = driver.is_direct and plain
        self._node = keeper.node(self._endpoint)
        if alone and spec.permits is None:
            keeper.foreign_locks.note(self._endpoint, spec)
        self._keeper = keeper

    def _moved(self, attempt: Attempt, driver: Any, wait: float | None) -> float | None:
        """Reset an attempt after the lock's slot has moved. Return the seconds that it may still wait; None: no limit."""
        left = None if wait is None or attempt.until is None else max(0.0, attempt.until - driver.process.clock())
        attempt.token, attempt.until, attempt.turn = "", None, None
        self._find_keeper(driver)
        attempt.local_queue, attempt.node = self._local_queue, self._node
        return left

    def _try(self, attempt: Attempt, wait: float | None) -> Coroutine[Any, Any, Grant | Busy]:
        """Return the operation that acquires the lock, waiting up to ``wait`` seconds. `_user_error` translates its errors."""
        return acquire.acquire(attempt, wait, self._strategy)

    def _abandon(self, attempt: Attempt) -> Coroutine[Any, Any, None]:
        """Return the operation that removes all traces of an attempt, in the process and on the server."""
        return acquire.abandon(attempt, self._strategy)

    def _user_error(self, error: Trouble) -> HoldfastError:
        if isinstance(error, WireError):
            return server_error(self._spec, error)
        return ConfigError(f"lock {self.name!r} cannot be used: {error}; nothing was changed", parameter="name")

    async def _is_locked(self) -> bool:
        """Return True if any client holds the lock, by asking the server. `locked` runs this operation."""
        try:
            answer = await retry_idempotent(Command(("EXISTS", self._spec.keys[0]), self._spec.timeout))
        except WireError as error:
            raise server_error(self._spec, error) from cause(error)
        if not answer.value:
            self._found_free(self._endpoint, answer.sent)
        return bool(answer.value)

    def _found_free(self, endpoint: Endpoint, sent: float) -> None:
        """Tell the keeper that the lock's key was gone on a server at monotonic time ``sent``, in seconds.

        If this process has a lease of that lock, the lease is lost. Its owner is notified before the caller learns that the
        lock is free.
        """
        keeper = current().running_keeper
        if keeper is not None:
            keeper.gone(endpoint, self._spec.keys[0], sent)

    async def _holder(self, busy: Busy) -> bytes | None:
        return await record_of(busy.named, self._spec.keys[0])
