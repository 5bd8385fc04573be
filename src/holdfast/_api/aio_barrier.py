"""`Barrier` between processes, for asyncio: participants wait for each other. `holdfast` has the class for threads."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

from holdfast._api import error_map, event
from holdfast._api.caller import AioCaller
from holdfast._core.rendezvous import barrier
from holdfast._core.rendezvous.barrier import Broken, Participant
from holdfast.errors import ServerError

T = TypeVar("T")


class BrokenBarrier(event.BrokenBarrier, asyncio.BrokenBarrierError):
    """Raised by `Barrier.wait` if the barrier is broken, or breaks meanwhile. It is also an `asyncio.BrokenBarrierError`."""


class Barrier(event.BaseBarrier):
    """A barrier between processes: ``parties`` participants wait for each other, then all go on, as at `threading.Barrier`.

    It can be used again and again. If a participant dies while it waits, this breaks the barrier at most ``ttl`` seconds later.
    So does a participant whose wait times out. All waiters then get BrokenBarrier, and so do later callers, until `reset`.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL.
        name: name of the barrier, 1 to 512 bytes.
        parties: number of participants, at least 1. All users of the barrier must pass the same number.
        action: called by the last participant when all have arrived, before any of them goes on. If it raises, the barrier is
            broken. All participants should pass it. It may be a coroutine function.
        timeout: default of the ``timeout`` of `wait`, in seconds. None: no limit.
        ttl: seconds without a sign of life after which a participant counts as dead. A waiting participant sends them itself.
        keep: seconds after its last use for which the server keeps the barrier, broken or not.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    _error = BrokenBarrier
    _caller: AioCaller
    _caller_type = AioCaller

    @property
    async def n_waiting(self) -> int:
        """The number of participants that wait now. Asks the server; raises ServerError."""
        return (await self._run(barrier.look(self._meeting))).waiting

    @property
    async def broken(self) -> bool:
        """True if the barrier is broken. Asks the server; raises ServerError."""
        return (await self._run(barrier.look(self._meeting))).broken

    async def wait(self, timeout: float | None = None) -> int:
        """Wait for the other participants, and return a number from 0 to ``parties`` - 1, a different one for each.

        If they do not all arrive within ``timeout`` seconds (None: the object's ``timeout``), the barrier is broken for all
        participants. Raises BrokenBarrier (a threading.BrokenBarrierError), ServerError, and the exceptions of the action.
        Raises ConfigError if the barrier has another number of parties on the server.
        """
        me = Participant()
        wait = self._timeout if timeout is None else event.patience(timeout)
        try:
            found = await self._run(barrier.meet(self._meeting, me, wait, acts=self._action is not None))
            if isinstance(found, int):
                return found
            assert self._action is not None
            result = self._action()
            if inspect.isawaitable(result):
                await result
            return await self._run(barrier.passing(self._meeting, me))
        except GeneratorExit:
            raise  # The coroutine is dropped with its event loop, where nothing can be awaited: its place expires.
        except BaseException:
            if me.may_be_on_server:
                with contextlib.suppress(ServerError):
                    await self._run(barrier.leave(self._meeting, me, "action" if me.duty else ""))
            raise

    async def reset(self) -> None:
        """Reset the barrier to its initial state, with this object's ``parties``. Waiters get BrokenBarrier. Raises
        ServerError."""
        await self._run(barrier.change(self._meeting, "reset"))

    async def abort(self) -> None:
        """Break the barrier: waiters, and later callers until `reset`, get BrokenBarrier. Raises ServerError."""
        await self._run(barrier.change(self._meeting, "abort"))

    async def __aenter__(self) -> int:
        """Wait for the other participants, as `wait` does, and return this one's number."""
        return await self.wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: the participant has left the barrier already."""

    async def _run(self, operation: Coroutine[Any, Any, T]) -> T:
        key = self._keys[0]
        try:
            with self._in_words("parties"):
                return await self._caller.run(operation, key, self._what)
        except Broken as broken:
            found = broken
        raise self._broken(found, await self._caller.run(error_map.record_of(found.process, key), key, self._what))
