"""The driver for threads, which carries out the requests of operations on the calling thread."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from holdfast._clock import wall
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
    Run,
    RunOn,
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
)
from holdfast._net.endpoint import Endpoint
from holdfast._net.protocol import ReplyError, check, is_noscript, pack, parsed
from holdfast._runtime.drivers import keep_alive
from holdfast._runtime.drivers.replication import replicate
from holdfast._runtime.keeper import inbox_wait
from holdfast._runtime.keeper.inbox_wait import Slot
from holdfast._runtime.process import Process

if TYPE_CHECKING:
    from holdfast._core.lock.records import Attempt, Waiter
    from holdfast._core.requests import ServerRequest, Subscriber

T = TypeVar("T")


class Runner:
    """The base class of drivers for threads. A driver runs an operation and carries out its requests; a subclass implements
    each kind of request."""

    process: Process
    endpoint: Any
    """The server that requests go to; a tuple if there are several."""
    servers: tuple[Endpoint, ...]

    def do(self, request: Any) -> Any:
        """Carry out one request of an operation, and return its reply."""
        raise NotImplementedError

    def slot(self) -> Slot:
        """Return a new object in which a thread waits for the outcome of its attempt."""
        return Slot()

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        """Run an operation to its end, and return its result.

        An exception that a signal handler raises, such as KeyboardInterrupt, is thrown into the operation, so that the
        operation cleans up. Then the exception is raised to the caller.
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

    def may_wait(self) -> None:
        """Raise RuntimeError if the caller is a signal handler that has interrupted holdfast's own code, because a wait in it
        could last forever."""
        if self.process.keeper.in_change():
            raise RuntimeError(
                "a signal handler cannot wait for a lock now: it has interrupted holdfast itself, which could not hand over "
                "the lock meanwhile. In a signal handler, pass wait=0, or leave the work to another thread"
            )

    def _wait_locally(self, request: WaitLocally[Attempt]) -> None:
        self.may_wait()
        slot = request.attempt.slot
        assert isinstance(slot, Slot)
        outcome = slot.take(request.attempt.until)
        if not (outcome is None or isinstance(outcome, TimedOut)):
            # The attempt has inherited a place in the queue, and the keeper was quicker than the waiter that left it: `_wait`
            # reads this.
            slot.put(outcome)

    def _slot_of(self, listener: Subscriber) -> Slot:
        self.may_wait()
        listener.slot = slot = listener.slot or self.slot()
        return slot  # type: ignore[return-value]

    def _subscribe(self, request: Subscribe) -> None:
        slot, process = self._slot_of(request.listener), self.process
        while not process.subscribe(self.servers, request.listener) and process.clock() < request.until:
            slot.take(request.until)

    def _await_notice(self, request: AwaitNotice) -> Outcome | None:
        return self._slot_of(request.listener).take(request.until)


class Driver(Runner):
    """The driver, of one process, for operations that threads carry out on one server."""

    def __init__(self, process: Process, endpoint: Endpoint) -> None:
        self.process = process
        self.endpoint = endpoint
        self.servers = (endpoint,)
        self._pool = process.pool(endpoint)
        self._clock = process.clock

    def do(self, request: ServerRequest) -> Any:  # noqa: C901, PLR0911, PLR0912 - one for each kind of request
        match request:
            case Run() | Command():
                return self.call(request)
            case NewToken():
                return self.token()
            case Now():
                return self._clock()
            case WaitLocally():
                return self._wait_locally(request)
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
        """Return a new token."""
        return self.process.token()

    def call(self, call: Call) -> Answer[Any]:
        """Send a call to the server, and return its reply with the times of the request. Raises WireError."""
        sent = self._clock()
        reply = self._pool.exchange(pack(call), call.timeout)
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
        self.may_wait()
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
