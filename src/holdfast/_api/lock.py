"""The common part of the locks of both APIs: the state of a lock object, and the operations behind its methods."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, NoReturn, TypeVar

from holdfast._api.error_map import Trouble, record_of, server_error
from holdfast._api.options import checked_wait, make_spec, refuse_mistaken
from holdfast._api.tally import Tally
from holdfast._core.lock import acquire, local_acquire
from holdfast._core.lock.local_queue import LocalQueue
from holdfast._core.lock.records import Attempt, Grant, Spec
from holdfast._core.lock.replies import PAUSED, Busy
from holdfast._core.requests import Command, WireError
from holdfast._core.retry import retry_idempotent
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import one_place, resolve
from holdfast._runtime.keeper.thread import Keeper
from holdfast._runtime.process import Process, current, describe
from holdfast.errors import ConfigError, HoldfastError, LockTimeout, NotHeld

if TYPE_CHECKING:
    from holdfast._api.lease import BaseLease
    from holdfast._api.statistics import LockStatistics
    from holdfast._net.endpoint import Endpoint, Topology

L = TypeVar("L", bound="BaseLease")


class BaseLock(Generic[L]):
    """Options and state of a lock object, for both faces."""

    _face: Literal["sync", "asyncio"]
    _home: Any
    """The driver that was used last."""
    _cluster: Topology | None = None
    _current: Any
    """The lease of the latest acquisition by this object."""
    _what = "lock"
    """Name of this kind of lock in messages."""
    _shared = True
    """A lock that one object of this process holds is handed on to others in the process."""

    @hides_client("Lock.__init__")
    def __init__(
        self,
        client: object,
        name: str | bytes,
        *,
        ttl: float = 30.0,
        wait: float | None = None,
        renew: bool = True,
        on_lost: Callable[[L], object] | None = None,
        max_hold: float | None = None,
        progress_within: float | None = None,
        label: str | None = None,
        prefix: str = "hf:",
        key: str | bytes | None = None,
        linger: float = 0.0,
        max_passes: int = 32,
        max_pass_time: float = 0.01,
        replicas: int = 0,
        quarantine: bool | float = False,
        deadlock: Literal["wait", "raise"] = "wait",
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, type(self).__name__)
        self._endpoint: Any = resolve(one_place(client, type(self).__name__), self._face)
        self._cluster = self._endpoint.cluster
        if replicas and (self._endpoint.client is not None or self._cluster is not None):
            raise ConfigError(
                "replicas needs connections that holdfast can open itself, to one server: use a plain client, or a URL",
                parameter="replicas",
            )
        if quarantine is not False and self._cluster is not None:
            raise ConfigError(
                "quarantine is for locks on one server, or behind Sentinels, not in a Cluster", parameter="quarantine"
            )
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
        """Nothing is held yet."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """Name of the lock, as given."""
        return self._spec.name

    @property
    def key(self) -> str:
        """Key of the lock on the server."""
        return self._spec.key

    def progress(self) -> None:
        """Check in, where the lock has ``progress_within``, as `Lease.progress` of the lease of the latest acquisition by this
        object. Raises NotHeld, or LeaseLost. Asks no server."""
        if self._current is None:
            raise self._not_held()
        self._current.progress()

    def statistics(self) -> LockStatistics:
        """How often this object was taken, had to wait, was lost; how long it waited, and was held. Asks no server."""
        return self._tally.now()

    def __repr__(self) -> str:
        what = f"holdfast.{'aio.' if self._face == 'asyncio' else ''}{type(self).__name__}"
        if not hasattr(self, "_spec"):  # its options were refused; a debugger or an error reporter asks all the same
            return f"<{what}, not made>"
        return f"<{what} {self.name!r} on {self._where}>"

    @property
    def _where(self) -> str:
        """Address of the server or servers, for messages."""
        return str(self._endpoint.address)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a lock cannot be pickled: another process makes its own, with the same name ({self.name!r}); to hand over one "
            "that is held, pass on what its ticket() gives"
        )

    def _busy(self, busy: Busy, holder: bytes | None, waited: float) -> LockTimeout:
        paused = busy.process == PAUSED
        who = describe(holder, busy.named, self._spec.keys[0])
        # If permits are all kept for others in the queue, no process is named.
        foreign = not busy.process and self._spec.permits is None
        left = "its key has no expiry" if busy.remaining is None else f"{busy.remaining:.1f} s of its lease left"
        why = f"busy: held by {who or 'a client of another library'}, {left}"
        if not who and not foreign:
            why = "busy, and no server has said who holds it"
        if paused:
            why = (
                "not granted: its server is new, or may have forgotten who holds it (restarted, flushed, or a replica before), "
                f"and grants none for another {busy.remaining:.1f} s (quarantine={self._spec.guard:g})"
            )
        return LockTimeout(
            f"{self._what} {self.name!r} is {why}; waited {waited:.1f} s, try again later",
            name=self.name,
            key=self.key,
            waited=waited,
            holder=who,
            foreign=foreign,
            remaining=busy.remaining if who or foreign or paused else None,
        )

    def _not_held(self) -> NotHeld:
        return NotHeld(f"lock {self.name!r} is not held by this object", name=self.name, key=self.key)

    @staticmethod
    def _at_once(attempt: Attempt) -> Grant | Busy | None:
        """Return a lease that lingers in this process, if there is one that the attempt can use, at the least cost."""
        return attempt.local_queue.retake(attempt) if attempt.local_queue is not None else None

    def _settle(self, cluster: Topology) -> None:
        """Return the server of a known Cluster that looks after this lock now."""
        shard = self._shard(cluster)
        if shard is not self._endpoint:
            self._endpoint, self._keeper, self._home = shard, None, None  # the local queue is another one, too

    def _shard(self, cluster: Topology) -> Endpoint:
        from holdfast._net.slots import slot_of  # here: most have none

        return cluster.shard(slot_of(self._spec.keys[0]))

    def _new_attempt(self, process: Process) -> Attempt:
        return self._with_gate(Attempt(self._spec, tally=self._tally), process)

    def _moved(self, attempt: Attempt, process: Process, wait: float | None) -> float | None:
        """An attempt that went astray begins again: how long it may wait."""
        left = None if wait is None or attempt.until is None else max(0.0, attempt.until - process.clock())
        attempt.token, attempt.until, attempt.turn = "", None, None
        self._with_gate(attempt, process)
        return left

    def _with_gate(self, attempt: Attempt, process: Process) -> Attempt:
        if self._shared:
            keeper = process.keeper
            if keeper is not self._keeper:
                self._keeper, self._local_queue = keeper, keeper.local_queue(self._endpoint, self._spec)
            attempt.local_queue = self._local_queue
        return attempt

    def _try(self, attempt: Attempt, wait: float | None) -> Coroutine[Any, Any, Grant | Busy]:
        """Operation behind `acquire` and ``with``; for what it raises see `_user_error`."""
        return local_acquire.acquire(attempt, wait) if self._shared else acquire.acquire(attempt, wait)

    @staticmethod
    def _abandon(attempt: Attempt) -> Coroutine[Any, Any, None]:
        """Operation that leaves nothing of an attempt behind."""
        return local_acquire.abandon(attempt)

    def _user_error(self, error: Trouble) -> HoldfastError:
        if isinstance(error, WireError):
            return server_error(self._spec, error)
        return ConfigError(f"lock {self.name!r} cannot be used: {error}; nothing was changed", parameter="name")

    async def _is_locked(self) -> bool:
        """Operation behind `locked`."""
        try:
            answer = await retry_idempotent(Command(("EXISTS", self._spec.keys[0]), self._spec.timeout))
        except WireError as error:
            raise server_error(self._spec, error) from error
        if not answer.value:
            self._found_free(self._endpoint, answer.sent)
        return bool(answer.value)

    def _found_free(self, endpoint: Endpoint, sent: float) -> None:
        """The key was gone on a server at local time ``sent`` or later. The owner of a lease of it in this process is told
        before the caller is told that the lock is free."""
        keeper = current().running_keeper
        if keeper is not None:
            keeper.gone(endpoint, self._spec.keys[0], sent)

    async def _holder(self, busy: Busy) -> bytes | None:
        """The record of the holder's process, for a message; None where it cannot be had."""
        return await record_of(busy.named, self._spec.keys[0])
