"""`Barrier` for processes, for asyncio: the same as in `barrier`."""

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
    """The barrier is broken. Also an `asyncio.BrokenBarrierError`."""


class Barrier(event.BaseBarrier):
    """A number of participants, in whatever processes, wait for each other and go on together, again and again: as
    `threading.Barrier`.

    A participant that dies while it waits breaks the barrier for the others, at the latest ``ttl`` seconds later. So does one
    that runs out of time. All who wait then get BrokenBarrier, and so does everybody who comes, until `reset`.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL.
        name: of the barrier, 1 to 512 bytes.
        parties: how many have to come, at least one. All who use the barrier have to say the same.
        action: called by one of the participants, the last to come, when all are there and before any of them goes on. If it
            raises, the barrier is broken. Give it to all of them. It may be a coroutine function.
        timeout: seconds to wait where `wait` says nothing else; None: for ever.
        ttl: seconds after which a participant that gives no sign of life counts as dead. A waiter gives one by itself.
        keep: seconds after its last use for which the server keeps it, broken or not.
        prefix: start of the keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
    """

    _error = BrokenBarrier
    _caller: AioCaller
    _caller_type = AioCaller

    @property
    async def n_waiting(self) -> int:
        """How many wait just now. Asks the server; raises ServerError."""
        return (await self._run(barrier.look(self._meeting))).waiting

    @property
    async def broken(self) -> bool:
        """Whether it is broken. Asks the server; raises ServerError."""
        return (await self._run(barrier.look(self._meeting))).broken

    async def wait(self, timeout: float | None = None) -> int:
        """Wait for the others: a number from 0 to ``parties`` - 1, another one for each. ``timeout``: seconds after which the
        barrier is broken. Raises BrokenBarrier (a threading.BrokenBarrierError), ServerError, whatever the action raises, and
        ConfigError if another number of parties is there."""
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
            raise  # dropped with its event loop, where nothing can be awaited: its place ends by itself
        except BaseException:
            if me.may_be_on_server:
                with contextlib.suppress(ServerError):
                    await self._run(barrier.leave(self._meeting, me, "action" if me.duty else ""))
            raise

    async def reset(self) -> None:
        """Make the barrier as new, with the parties of this object. Those who wait get BrokenBarrier. Raises ServerError."""
        await self._run(barrier.change(self._meeting, "reset"))

    async def abort(self) -> None:
        """Break the barrier: those who wait, and all who come until `reset`, get BrokenBarrier. Raises ServerError."""
        await self._run(barrier.change(self._meeting, "abort"))

    async def __aenter__(self) -> int:
        """Wait for the others, as `wait`. The rest needs no cleaning up."""
        return await self.wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing."""

    async def _run(self, operation: Coroutine[Any, Any, T]) -> T:
        key = self._keys[0]
        try:
            with self._in_words("parties"):
                return await self._caller.run(operation, key, self._what)
        except Broken as broken:
            found = broken
        raise self._broken(found, await self._caller.run(error_map.record_of(found.process, key), key, self._what))
