"""The driver for threads, which carries out the requests of operations on the calling thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from holdfast._clock import wall
from holdfast._core.lock.local_queue import RECALL_WITHIN_S
from holdfast._core.lock.replies import GRACE_S
from holdfast._core.lock.uncontended import lead, leave, left, park, took, woken
from holdfast._core.operation import drop
from holdfast._core.requests import (
    Answer,
    AwaitNotice,
    Call,
    Command,
    GetCoalescer,
    KeepAlive,
    NewToken,
    Now,
    Outcome,
    RegisterWaiter,
    Replicate,
    RunOn,
    RunScript,
    SendUntilAnswered,
    Sleep,
    StopKeepAlive,
    Subscribe,
    TimedOut,
    UnixTime,
    UnregisterWaiter,
    Unsubscribe,
    Wait,
    WaitLocally,
    WireError,
)
from holdfast._net.endpoint import Endpoint
from holdfast._net.protocol import ReplyError, check, is_noscript, pack, parsed, splice
from holdfast._net.sync_pool import Pool
from holdfast._runtime.drivers import keep_alive
from holdfast._runtime.drivers.replication import replicate
from holdfast._runtime.keeper import inbox_wait
from holdfast._runtime.keeper.inbox_wait import Slot
from holdfast._runtime.process import Process

if TYPE_CHECKING:
    from holdfast._core.lock.records import Attempt, Grant, HeldLease, Waiter
    from holdfast._core.requests import ServerRequest, Subscriber

T = TypeVar("T")


def runs_event_loop() -> bool:
    asyncio = sys.modules.get("asyncio")  # not imported, because programs with threads need no asyncio
    try:
        return asyncio is not None and asyncio.get_running_loop() is not None
    except RuntimeError:
        return False


class Runner:
    """The base class of drivers for threads. A driver runs an operation and carries out its requests."""

    process: Process
    endpoint: Any
    """The server that requests go to; a tuple if there are several."""
    servers: tuple[Endpoint, ...]
    is_direct: bool = False
    """True if holdfast's own connections to one server outside a Cluster are used. Otherwise, `acquire` returns None."""

    def do(self, request: Any) -> Any:
        """Carry out one request of an operation, and return its reply."""
        raise NotImplementedError

    def acquire(self, attempt: Attempt, wait: float | None, now: float) -> Grant | None:  # noqa: ARG002 - for drivers that can
        """Acquire a lock by one request, or by a lease that is handed on in this process.

        Return None if neither succeeds. The caller then runs the operation that acquires the lock. ``wait``: seconds to wait;
        None: without limit. ``now``: monotonic time. After an exception, the caller runs the operation
        `_core.lock.acquire.abandon`.
        """
        return None

    def release(self, attempt: Attempt, held_lease: HeldLease, lease: object) -> bool | None:  # noqa: ARG002 - for drivers that can
        """Release a lock by one request. Return True once the lock is released; False if it cannot be released in this way.

        Return None for any other outcome. The lease's operation then continues the release from the outcome in `Attempt.first`.
        After an exception, the caller revokes the token of the lease. ``lease``: the user's lease.
        """
        return False

    def slot(self) -> Slot:
        return Slot()

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        """Run an operation to its end, and return its result.

        An exception that a signal handler raises, such as KeyboardInterrupt, is thrown into the operation, which then cleans
        up. After that, the exception is raised to the caller.
        """
        do = self.do
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
                    reply = do(request)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]
                except BaseException as caught:
                    if operation.cr_frame is None:  # type: ignore[attr-defined]
                        raise  # the operation itself has ended by it
                    error = caught
        finally:
            if operation.cr_frame is not None:  # type: ignore[attr-defined]
                drop(operation)  # an interrupt came between two steps

    def may_wait(self, until: float | None) -> None:
        """Raise RuntimeError if the calling code must not wait until monotonic time ``until`` (None: without limit).

        A signal handler that has interrupted holdfast's own code must not wait, because the wait could last forever. Code in an
        event loop must wait only briefly, because it blocks all tasks, and one of these may hold the lock. Jupyter is excepted,
        because the tasks of its event loop hold no locks.
        """
        if self.process.keeper.in_change():
            raise RuntimeError(
                "a signal handler cannot wait for a lock now: it has interrupted holdfast itself, and no lock can be "
                "handed over before the handler returns. In a signal handler, pass wait=0, or leave the work to another thread"
            )
        # With ``wait=0``, a lock waits only for an answer of the server. Any blocking client does that in an event loop, too.
        long = until is None or until > self.process.clock() + RECALL_WITHIN_S
        if long and runs_event_loop() and "ipykernel" not in sys.modules:
            raise RuntimeError(
                "waiting here would block the event loop that runs in this thread, and all of its tasks: use the same name of "
                "holdfast.aio and await it, or call this in another thread (asyncio.to_thread)"
            )

    def _wait_locally(self, attempt: Attempt) -> None:
        self.may_wait(attempt.until)
        slot = attempt.slot
        assert isinstance(slot, Slot)
        outcome = slot.take(attempt.until)
        if not (outcome is None or isinstance(outcome, TimedOut)):
            # The attempt has inherited a place in the queue, and the keeper was quicker than the waiter that left the place.
            # `_wait` reads this outcome.
            slot.put(outcome)

    def _slot_of(self, listener: Subscriber, until: float | None) -> Slot:
        self.may_wait(until)
        listener.slot = slot = listener.slot or self.slot()
        return slot  # type: ignore[return-value]

    def _subscribe(self, request: Subscribe) -> None:
        slot, process = self._slot_of(request.listener, request.until), self.process
        while not process.subscribe(self.servers, request.listener) and process.clock() < request.until:
            slot.take(request.until)

    def _await_notice(self, request: AwaitNotice) -> Outcome | None:
        return self._slot_of(request.listener, request.until).take(request.until)


class Driver(Runner):
    """The driver of operations on one server, in the calling thread."""

    def __init__(self, process: Process, endpoint: Endpoint) -> None:
        self.process = process
        self.endpoint = endpoint
        self.servers = (endpoint,)
        self._pool = process.pool(endpoint)
        self._clock = process.clock
        self.is_direct = type(self) is Driver and isinstance(self._pool, Pool)

    def acquire(self, attempt: Attempt, wait: float | None, now: float) -> Grant | None:
        frame = lead(attempt, self.process.tokens, now, wait)
        if frame is None:
            attempt.slot = attempt.slot or self.slot()
            if not park(attempt, now, wait, threading.get_ident()):
                return None
            if attempt.turn is None:
                self._wait_locally(attempt)
            return woken(attempt, self._clock())
        timeout = frame.timeout if wait is None else min(frame.timeout, wait + GRACE_S)
        token = attempt.token
        packed = frame.before + token.encode() + frame.after if frame.size == len(token) else splice(frame, token)
        try:
            reply = self._pool.exchange(packed, timeout)
        except WireError as error:
            attempt.first = error
            return None
        grant = took(attempt, reply, now, self._clock())
        if grant is None:
            attempt.first = self._outcome(frame.run(attempt.token), reply, now)
        return grant

    def release(self, attempt: Attempt, held_lease: HeldLease, lease: object) -> bool | None:  # noqa: ARG002 - for asyncio
        sent, token = self._clock(), held_lease.token
        frame = leave(attempt, held_lease, sent) if attempt.is_direct else None
        if frame is None:
            return False
        packed = frame.before + token.encode() + frame.after if frame.size == len(token) else splice(frame, token)
        try:
            reply = self._pool.exchange(packed, frame.timeout)
        except WireError as error:
            attempt.first = error
            return None
        if left(attempt, held_lease, reply):
            return True
        attempt.first = self._outcome(frame.run(held_lease.token), reply, sent)
        return None

    def _outcome(self, call: RunScript[Any], reply: object, sent: float) -> Answer[Any] | WireError:
        """Convert a reply to an answer or an error. If the server does not have the script, send its text first."""
        try:
            return self._answer(call, reply, sent)
        except WireError as error:
            return error

    def do(self, request: ServerRequest) -> Any:  # noqa: C901, PLR0911, PLR0912 - one for each kind of request
        match request:
            case RunScript() | Command():
                return self.call(request)
            case NewToken():
                return self.token()
            case Now():
                return self._clock()
            case WaitLocally():
                return self._wait_locally(request.attempt)
            case RegisterWaiter():
                return self._register_waiter(request)
            case Wait():
                return self._wait(request)
            case UnregisterWaiter():
                return keep_alive.unregister_waiter(self.process, self.endpoint, request.waiter)
            case Sleep():
                return self.process.system.sleep(request.seconds)
            case Subscribe():
                return self._subscribe(request)
            case AwaitNotice():
                return self._await_notice(request)
            case Unsubscribe():
                return self.process.unsubscribe(self.servers, request.listener)
            case GetCoalescer():
                return self.process.keeper.coalescer(self.endpoint, request.key, 0)
            case KeepAlive():
                return keep_alive.start(self.process, self.endpoint, request.held)
            case StopKeepAlive():
                return keep_alive.stop(self.process, self.endpoint, request.held_lease)
            case SendUntilAnswered():
                return self.process.keeper.send_until_answered(self.endpoint, request.call, request.until)
            case Replicate():
                return replicate(self.process, self.endpoint, request)
            case RunOn():
                return request.home.run(request.operation)
            case UnixTime():
                return wall()
            case _:
                assert_never(request)

    def token(self) -> str:
        return self.process.token()

    def call(self, call: Call) -> Answer[Any]:
        """Send a call to the server, and return its reply with the times of the request. Raises WireError."""
        sent = self._clock()
        return self._answer(call, self._pool.exchange(pack(call), call.timeout), sent)

    def _answer(self, call: Call, reply: object, sent: float) -> Answer[Any]:
        """Convert a reply to an answer. If the server does not have the script, send its text first. Raises WireError."""
        if type(reply) is ReplyError:
            if is_noscript(reply):
                reply = self._pool.exchange(pack(call, whole=True), call.timeout)
            check(reply, self.endpoint, self._pool.clear)
        return Answer(parsed(call, reply), sent, self._clock())

    def ask(self, command: Command) -> Any:
        """Return the reply to a plain command, without the times of the request. Raises WireError."""
        reply = self._pool.exchange(pack(command), command.timeout)
        if type(reply) is ReplyError:
            check(reply, self.endpoint, self._pool.clear)
        return reply

    def _register_waiter(self, request: RegisterWaiter[Waiter]) -> Outcome | None:
        waiter = request.waiter
        self.may_wait(request.until)
        if self.process.keeper.register_waiter(self.endpoint, request.waiter):
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
