"""Drives operations on the calling thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast._clock import READ
from holdfast._core.lock.records import Attempt, Waiter
from holdfast._core.operation import drop
from holdfast._core.requests import (
    Answer,
    Call,
    Command,
    Delist,
    Draw,
    Enlist,
    Now,
    Outcome,
    Park,
    Replicate,
    Run,
    Sleep,
    TimedOut,
    Wait,
)
from holdfast._net.endpoint import Endpoint
from holdfast._net.protocol import ReplyError, check, forgotten, pack, parsed
from holdfast._runtime.drivers.keep_alive import tending
from holdfast._runtime.drivers.replication import Replicas
from holdfast._runtime.drivers.subscriptions import in_threads
from holdfast._runtime.keeper import inbox_wait
from holdfast._runtime.keeper.inbox_wait import Slot
from holdfast._runtime.process import Process

T = TypeVar("T")


class Driver:
    """Does what operations ask, on one server, for one process."""

    def __init__(self, process: Process, endpoint: Endpoint) -> None:
        self.process = process
        self.endpoint: Any = endpoint
        self._pool = process.pool(endpoint)
        self._clock = now = process.clock
        self._do: dict[type, Callable[[Any], Any]] = {
            **READ,
            Now: lambda _: now(),
            Run: self.call,
            Command: self.call,
            Replicate: Replicas(process, endpoint).ask,
            Draw: lambda _: process.token(),
            Sleep: lambda request: process.system.sleep(request.seconds),
            Park: self._park,
            Enlist: self._enlist,
            Wait: self._wait,
            Delist: self._delist,
            **in_threads(self, (endpoint,)),
            **tending(self, endpoint),
        }

    def slot(self) -> Slot:
        """Where an attempt waits."""
        return Slot()

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        """Drive an operation to its end. An interrupt (KeyboardInterrupt, or what a signal handler raises) is thrown into
        it, so that it can clean up before the interrupt goes on."""
        do = self._do
        reply: Any = None
        error: BaseException | None = None
        try:
            while True:
                try:
                    if error is None:
                        request = operation.send(reply)
                    else:
                        thrown, error = error, None
                        request = operation.throw(thrown)
                    reply = do[type(request)](request)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]
                except BaseException as caught:
                    if operation.cr_frame is None:  # type: ignore[attr-defined]
                        raise  # the operation itself has ended with it
                    error = caught
        finally:
            if operation.cr_frame is not None:  # type: ignore[attr-defined]
                drop(operation)  # an interrupt hit between two steps

    def call(self, call: Call) -> Answer[Any]:
        """Ask the server. Raises WireError."""
        sent = self._clock()
        reply = self._pool.exchange(pack(call), call.timeout)
        if type(reply) is ReplyError:
            if forgotten(reply):
                reply = self._pool.exchange(pack(call, whole=True), call.timeout)
            check(reply, self.endpoint, self._pool.clear)
        return Answer(parsed(call, reply), sent, self._clock())

    def ask(self, command: Command) -> Any:
        """The reply to a plain command, where it does not matter when. Raises WireError."""
        reply = self._pool.exchange(pack(command), command.timeout)
        if type(reply) is ReplyError:
            check(reply, self.endpoint, self._pool.clear)
        return reply

    def _delist(self, request: Delist[Waiter]) -> None:
        keeper = self.process.running_keeper
        if keeper is not None:
            keeper.delist(self.endpoint, request.waiter)

    def _park(self, request: Park[Attempt]) -> None:
        self.may_wait()
        slot = request.attempt.slot
        assert isinstance(slot, Slot)
        outcome = slot.take(request.attempt.until)
        if not (outcome is None or isinstance(outcome, TimedOut)):
            # It has inherited a place in the queue, and the keeper was quicker than whoever left that place: `_wait` reads it.
            slot.put(outcome)

    def may_wait(self) -> None:
        """Refuse what could never end."""
        if self.process.keeper.in_change():
            raise RuntimeError(
                "a signal handler cannot wait for a lock just now: it has interrupted holdfast itself, which could hand over "
                "nothing meanwhile; in a signal handler, ask with wait=0, or leave the work to another thread"
            )

    def _enlist(self, request: Enlist[Waiter]) -> Outcome | None:
        waiter = request.waiter
        self.may_wait()
        if self.process.keeper.enlist(self.endpoint, request.waiter):
            return None
        slot = waiter.attempt.slot
        assert isinstance(slot, Slot)
        outcome = None
        while outcome is None and waiter.awaits_inbox:
            outcome = slot.take(request.until)
        return outcome

    def _wait(self, request: Wait[Waiter]) -> Outcome:
        waiter, keeper = request.waiter, self.process.keeper
        if request.answer is not None:
            keeper.joined(self.endpoint, waiter, request.answer)
        outcome = None
        while outcome is None:
            outcome = inbox_wait.wait(keeper, self.endpoint, waiter, request.until)
        return outcome
