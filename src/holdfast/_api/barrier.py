"""`Barrier`, at which processes wait for each other. For threads and for asyncio."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar

from holdfast._api import error_map, options
from holdfast._api.broken_barrier import BROKEN_BY, BrokenBarrier
from holdfast._api.caller import AioCaller, Caller
from holdfast._api.event import ANSWER_WITHIN, KEEP, Named, at_least_one
from holdfast._api.flow import InTasks, InThreads, Steps, complete, hides_frames, of_asyncio
from holdfast._api.foreign_words import ASYNC_WITH, WITH
from holdfast._core.lock.spec import Spec, answer_within, milliseconds
from holdfast._core.rendezvous import barrier
from holdfast._core.rendezvous.barrier import BarrierBroken, BarrierSpec, Participant
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient, Client, SyncClient
from holdfast._net.redaction import hides_client
from holdfast._runtime.process import describe
from holdfast.errors import ConfigError, ServerError

__all__ = ["AioBarrier", "Barrier", "BrokenBarrier"]

T = TypeVar("T")

PLACE = 30.0
"""Default of ``ttl``: seconds for which a participant that has given no sign of life still counts as waiting."""

MOST = 10_000
"""Maximum number of participants of a barrier, because one run of a script notifies all of them."""


class BaseBarrier(Named, Steps, Generic[Client]):
    """A barrier. Base class for threads and for asyncio."""

    _error: Any
    """Class of the error that is raised if the barrier is broken."""

    @hides_client("Barrier.__init__")
    def __init__(
        self,
        client: Client,
        name: str | bytes,
        parties: int,
        action: Callable[[], object] | None = None,
        timeout: Seconds | None = None,
        *,
        ttl: Seconds = PLACE,
        keep: Seconds = KEEP,
        prefix: str = "hf:",
        **mistaken: Never,
    ) -> None:
        options.refuse_mistaken(mistaken, "Barrier")
        super().__init__(client, name, prefix, (b"places", b"done", b"waiters", b"action"))
        self._action = action
        self._timeout = options.checked_timeout(timeout)
        number = at_least_one(parties, "parties")
        if number > MOST:
            raise ConfigError(f"parties must be at most {MOST}, not {number}", parameter="parties")
        ttl = options.seconds(ttl, "ttl", options.MIN_TTL)
        lock = self._keys[-1]
        keys = (lock, lock + b":state", lock + b":queue")
        within = min(self._caller.timeout, ANSWER_WITHIN, answer_within(ttl))
        spec = Spec(self._name, keys, ttl, renew=True, max_hold=None, timeout=within)
        self._meeting = BarrierSpec(self._keys[:-1], spec, number, milliseconds(options.seconds(keep, "keep", 1.0)))

    @property
    def parties(self) -> int:
        """The number of participants that have to wait at the barrier before all of them go on."""
        return self._meeting.parties

    def _broken(self, broken: BarrierBroken, record: bytes | None) -> BrokenBarrier:
        """Return the BrokenBarrier for an internal error. ``record`` describes the process that broke the barrier."""
        by = describe(record, broken.process)
        if broken.why == "reset":
            text = f"{self._what} was reset by {by or 'another client'} during this wait"
        else:
            why = BROKEN_BY.get(broken.why, broken.why).format(who=by or "another participant")
            text = f"{self._what} is broken: {why}; reset() makes it usable again"
        error: type[BrokenBarrier] = self._error
        return error(text, name=self._name, key=self.key, reason=broken.why, by=by)

    @hides_frames
    async def _wait(self, timeout: Seconds | None) -> int:
        me = Participant()
        wait = self._timeout if timeout is None else options.checked_timeout(timeout)
        try:
            found = await self._run(barrier.meet(self._meeting, me, wait, acts=self._action is not None))
            if isinstance(found, int):
                return found
            assert self._action is not None
            await self._call_user(self._action)
            return await self._run(barrier.passing(self._meeting, me))
        except self._dropped:
            raise  # The coroutine is dropped with its event loop. Nothing can be awaited: its place at the barrier expires.
        except BaseException:
            if me.may_be_on_server:
                with contextlib.suppress(ServerError):
                    await self._run(barrier.leave(self._meeting, me, "action" if me.duty else ""))
            raise

    async def _run(self, operation: Coroutine[Any, Any, T]) -> T:
        key = self._keys[0]
        try:
            with self._in_words("parties"):
                return await self._caller.run(operation, key, self._what)
        except BarrierBroken as broken:
            found = broken
        raise self._broken(found, await self._caller.run(error_map.record_of(found.process, key), key, self._what))


class Barrier(InThreads, BaseBarrier[SyncClient]):
    """A barrier between processes: ``parties`` participants wait for each other, then all go on, as at `threading.Barrier`.

    It can be used again and again. If a participant dies while it waits, the barrier is broken at most ``ttl`` seconds later.
    It is also broken if the wait of a participant times out. All waiters then get BrokenBarrier, and so do later callers, until
    `reset`.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL.
        name: name of the barrier, 1 to 512 bytes.
        parties: number of participants, 1 to 10,000. All users of the barrier must pass the same number.
        action: called by the last participant when all have arrived, before any of them goes on. If the action
            raises, the barrier is broken. All participants should pass it.
        timeout: default of the ``timeout`` of `wait`, in seconds. None: no limit.
        ttl: seconds without a sign of life after which a participant counts as dead. A waiting participant sends signs of life
            by itself.
        keep: seconds after its last use for which the server keeps the barrier, broken or not.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    if not TYPE_CHECKING:
        __aenter__ = ASYNC_WITH

    _caller_type = Caller
    _error = BrokenBarrier

    @property
    def n_waiting(self) -> int:
        """The number of participants that wait now. Asks the server; raises ServerError."""
        return complete(self._run(barrier.read_state(self._meeting))).waiting

    @property
    def broken(self) -> bool:
        """True if the barrier is broken. Asks the server; raises ServerError."""
        return complete(self._run(barrier.read_state(self._meeting))).broken

    def wait(self, timeout: Seconds | None = None, **mistaken: Never) -> int:
        """Wait for the other participants. Each call returns a different number from 0 to ``parties`` - 1.

        If they do not all arrive within ``timeout`` seconds (None: the object's ``timeout``), the barrier is broken for all
        participants. Raises BrokenBarrier (a threading.BrokenBarrierError), ServerError, and the exceptions of the action.
        Raises ConfigError if the barrier has another number of parties on the server.
        """
        options.refuse_mistaken(mistaken, "Barrier.wait")
        return complete(self._wait(timeout))

    def reset(self) -> None:
        """Reset the barrier to its initial state, with this object's ``parties``. Waiters get BrokenBarrier. Raises
        ServerError."""
        complete(self._run(barrier.change(self._meeting, "reset")))

    def abort(self) -> None:
        """Break the barrier: waiters, and later callers until `reset`, get BrokenBarrier. Raises ServerError."""
        complete(self._run(barrier.change(self._meeting, "abort")))

    def __enter__(self) -> int:
        """Wait for the other participants, as `wait` does, and return the number of this participant."""
        return self.wait()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Do nothing, because the participant has left the barrier already."""


@of_asyncio
class AioBarrier(InTasks, BaseBarrier[AsyncClient]):
    """A barrier between processes: ``parties`` participants wait for each other, then all go on, as at `threading.Barrier`.

    It can be used again and again. If a participant dies while it waits, the barrier is broken at most ``ttl`` seconds later.
    It is also broken if the wait of a participant times out. All waiters then get BrokenBarrier, and so do later callers, until
    `reset`.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL.
        name: name of the barrier, 1 to 512 bytes.
        parties: number of participants, 1 to 10,000. All users of the barrier must pass the same number.
        action: called by the last participant when all have arrived, before any of them goes on. If the action
            raises, the barrier is broken. All participants should pass it. It may be a coroutine function.
        timeout: default of the ``timeout`` of `wait`, in seconds. None: no limit.
        ttl: seconds without a sign of life after which a participant counts as dead. A waiting participant sends signs of life
            by itself.
        keep: seconds after its last use for which the server keeps the barrier, broken or not.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    if not TYPE_CHECKING:
        __enter__ = WITH

    _caller_type = AioCaller

    @property
    async def n_waiting(self) -> int:
        """The number of participants that wait now. Asks the server; raises ServerError."""
        return (await self._run(barrier.read_state(self._meeting))).waiting

    @property
    async def broken(self) -> bool:
        """True if the barrier is broken. Asks the server; raises ServerError."""
        return (await self._run(barrier.read_state(self._meeting))).broken

    async def wait(self, timeout: Seconds | None = None, **mistaken: Never) -> int:
        """Wait for the other participants. Each call returns a different number from 0 to ``parties`` - 1.

        If they do not all arrive within ``timeout`` seconds (None: the object's ``timeout``), the barrier is broken for all
        participants. Raises BrokenBarrier (a threading.BrokenBarrierError), ServerError, and the exceptions of the action.
        Raises ConfigError if the barrier has another number of parties on the server.
        """
        options.refuse_mistaken(mistaken, "Barrier.wait")
        return await self._wait(timeout)

    async def reset(self) -> None:
        """Reset the barrier to its initial state, with this object's ``parties``. Waiters get BrokenBarrier. Raises
        ServerError."""
        await self._run(barrier.change(self._meeting, "reset"))

    async def abort(self) -> None:
        """Break the barrier: waiters, and later callers until `reset`, get BrokenBarrier. Raises ServerError."""
        await self._run(barrier.change(self._meeting, "abort"))

    async def __aenter__(self) -> int:
        """Wait for the other participants, as `wait` does, and return the number of this participant."""
        return await self.wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing, because the participant has left the barrier already."""

    @property
    def _error(self) -> type[BrokenBarrier]:
        from holdfast._api.asyncio_errors import BrokenBarrier  # Imported late: programs of threads need no asyncio.

        return BrokenBarrier
