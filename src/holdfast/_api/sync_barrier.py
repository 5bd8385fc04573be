"""`Barrier` for processes, as threading has it for threads. `_api.aio_barrier` has the same for asyncio."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

from holdfast._api import error_map, event
from holdfast._api.caller import Caller
from holdfast._api.event import BrokenBarrier
from holdfast._core.rendezvous import barrier
from holdfast._core.rendezvous.barrier import Broken, Participant
from holdfast.errors import ServerError

__all__ = ["Barrier", "BrokenBarrier"]

T = TypeVar("T")


class Barrier(event.BaseBarrier):
    """A number of participants, in whatever processes, wait for each other and go on together, again and again: as
    `threading.Barrier`.

    A participant that dies while it waits breaks the barrier for the others, at the latest ``ttl`` seconds later. So does one
    that runs out of time. All who wait then get BrokenBarrier, and so does everybody who comes, until `reset`.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL.
        name: of the barrier, 1 to 512 bytes.
        parties: how many have to come, at least one. All who use the barrier have to say the same.
        action: called by one of the participants, the last to come, when all are there and before any of them goes on. If it
            raises, the barrier is broken. Give it to all of them.
        timeout: seconds to wait where `wait` says nothing else; None: for ever.
        ttl: seconds after which a participant that gives no sign of life counts as dead. A waiter gives one by itself.
        keep: seconds after its last use for which the server keeps it, broken or not.
        prefix: start of the keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
    """

    _caller: Caller
    _caller_type = Caller

    @property
    def n_waiting(self) -> int:
        """How many wait just now. Asks the server; raises ServerError."""
        return self._run(barrier.look(self._meeting)).waiting

    @property
    def broken(self) -> bool:
        """Whether it is broken. Asks the server; raises ServerError."""
        return self._run(barrier.look(self._meeting)).broken

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the others: a number from 0 to ``parties`` - 1, another one for each. ``timeout``: seconds after which the
        barrier is broken. Raises BrokenBarrier (a threading.BrokenBarrierError), ServerError, whatever the action raises, and
        ConfigError if another number of parties is there."""
        me = Participant()
        wait = self._timeout if timeout is None else event.patience(timeout)
        try:
            found = self._run(barrier.meet(self._meeting, me, wait, acts=self._action is not None))
            if isinstance(found, int):
                return found
            assert self._action is not None
            self._action()
            return self._run(barrier.passing(self._meeting, me))
        except BaseException:
            if me.may_be_on_server:
                with contextlib.suppress(ServerError):
                    self._run(barrier.leave(self._meeting, me, "action" if me.duty else ""))
            raise

    def reset(self) -> None:
        """Make the barrier as new, with the parties of this object. Those who wait get BrokenBarrier. Raises ServerError."""
        self._run(barrier.change(self._meeting, "reset"))

    def abort(self) -> None:
        """Break the barrier: those who wait, and all who come until `reset`, get BrokenBarrier. Raises ServerError."""
        self._run(barrier.change(self._meeting, "abort"))

    def __enter__(self) -> int:
        """Wait for the others, as `wait`. The rest needs no cleaning up."""
        return self.wait()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Nothing."""

    def _run(self, operation: Coroutine[Any, Any, T]) -> T:
        key = self._keys[0]
        try:
            with self._in_words("parties"):
                return self._caller.run(operation, key, self._what)
        except Broken as broken:
            found = broken
        raise self._broken(found, self._caller.run(error_map.record_of(found.process, key), key, self._what))
