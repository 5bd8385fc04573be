"""The asyncio driver, which carries out the requests of operations in the calling task."""

from __future__ import annotations

import asyncio
import functools
from asyncio import _get_running_loop
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from holdfast._clock import wall
from holdfast._core.lock.acquire import ON_ONE_SERVER, abandon
from holdfast._core.lock.records import Attempt
from holdfast._core.lock.replies import GRACE_S
from holdfast._core.lock.uncontended import lead, leave, left, park, took, woken
from holdfast._core.operation import UNDONE, drop
from holdfast._core.requests import (
    Answer,
    AwaitNotice,
    Call,
    Command,
    GetCoalescer,
    Instant,
    KeepAlive,
    NewToken,
    Now,
    Outcome,
    Poll,
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
from holdfast._net.aio_connection import AioConnection
from holdfast._net.endpoint import Endpoint
from holdfast._net.protocol import ReplyError, check, is_noscript, pack, parsed, splice
from holdfast._net.transport import stream_to
from holdfast._runtime.drivers import keep_alive
from holdfast._runtime.drivers.replication import replicate
from holdfast._runtime.process import Process, current

if TYPE_CHECKING:
    from holdfast._core.lock.records import Grant, HeldLease, Waiter
    from holdfast._core.requests import ServerAwaited, ServerInstant, Subscriber

T = TypeVar("T")

CLEAN_UP_WITHIN_S = 1.0
"""Maximum seconds that a cancelled task waits for the clean-up of its operation, which then goes on without the task."""

_background: set[asyncio.Task[Any]] = set()  # a task to which nothing refers may be garbage-collected before it is done


class AioSlot:
    """The mailbox in which a waiting task receives outcomes, such as the hand-over of a lock.

    Another task, a thread or the keeper puts an outcome in, and wakes the task.
    """

    __slots__ = ("_clock", "_loop", "_outcomes", "_woken", "owner", "since")

    _outcomes: list[Outcome] | None
    _woken: asyncio.Future[None] | None
    owner: int
    """Id of the waiting task; 0 before the wait."""
    since: float
    """Monotonic time, in seconds, at which the wait began; 0 before the wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self._loop, self._clock = loop, clock
        self._outcomes = self._woken = None
        self.owner, self.since = 0, 0.0

    @property
    def waits(self) -> tuple[int, float] | None:
        """Return the id of the waiting task and the time at which its wait began; None before the wait."""
        return (self.owner, self.since) if self.owner else None

    def put(self, outcome: Outcome | None, /) -> bool:
        """Add an outcome, wake the waiting task, and return True.

        Return False if the event loop is closed, because no task waits then. If the outcome is a hand-over, nobody renews the
        lease, so it soon expires.
        """
        if outcome is not None:
            self._outcomes = [*(self._outcomes or []), outcome]
        try:
            if self._loop.is_closed():
                # A closed loop raises only after the future has dropped its task, which would then be destroyed here.
                return False
            if _get_running_loop() is self._loop:
                self._wake()
            else:
                self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            return False
        return True

    def gone(self) -> bool:
        """Return True if the loop is closed, so that no task waits any more."""
        return self._loop.is_closed()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def wait_locally(self, until: float | None) -> asyncio.Future[None]:
        """Return a future that is done when the waiting task is woken, or at monotonic time ``until`` (None: no time limit)."""
        self._woken = woken = self._loop.create_future()
        if not self.owner:
            self.owner, self.since = id(asyncio.current_task()), self._clock()
        if until is not None:
            timer = self._loop.call_later(max(0.0, until - self._clock()), self._wake)
            woken.add_done_callback(lambda _: timer.cancel())
        return woken

    async def get(self, until: float | None) -> Outcome | None:
        """Wait for the next outcome, and return it; None if the task was woken without one, for example to check its turn.

        Return TimedOut if no outcome has come by monotonic time ``until`` (None: wait without limit).
        """
        if not self._outcomes:
            if until is not None and self._clock() >= until:
                return TimedOut()
            await self.wait_locally(until)
        return self._outcomes.pop(0) if self._outcomes else None


class Runner:
    """The base class of drivers for one event loop. A driver runs an operation and carries out its requests."""

    process: Process
    endpoint: Any
    """The server that requests go to; a tuple if there are several."""
    servers: tuple[Endpoint, ...]
    loop: asyncio.AbstractEventLoop
    stream: Any
    """The driver's connection to the server, which is closed with the loop."""
    running: set[Any]
    """The running operations, and the attempts and leases that the driver itself handles, without an operation."""
    unwatched = False
    """True while no check for a closed event loop is scheduled for this driver."""
    is_direct: bool = False
    """True if holdfast's own connection to one server outside a Cluster is used. Otherwise, `begin` always returns None."""

    def at_once(self, request: Any) -> Any:
        """Carry out a request that needs no waiting, and return its reply."""
        raise NotImplementedError

    def awaited(self, request: Any) -> Awaitable[Any]:
        """Start to carry out a request that may have to wait, and return an awaitable of its reply."""
        raise NotImplementedError

    def begin(
        self,
        attempt: Attempt,  # noqa: ARG002 - see `Driver`
        wait: float | None,  # noqa: ARG002
        now: float,  # noqa: ARG002
        task: object,  # noqa: ARG002
    ) -> asyncio.Future[Any] | None:
        """Ask the server for a lock by one request, or wait in the local queue.

        Return a future. The caller awaits it, and then calls `finish`. Return None if only an operation can acquire the lock.
        ``wait``: seconds to wait; None: without limit. ``now``: monotonic time. ``task``: the calling task. After an exception,
        the caller runs the operation `_core.lock.acquire.abandon`. If the caller can await nothing, it calls `leave` with the
        attempt.
        """
        return None

    def finish(self, attempt: Attempt, asked: asyncio.Future[Any]) -> Grant | None:
        """Return the lock's grant, once the future of `begin` is done; None if an operation has to acquire the lock."""
        raise NotImplementedError

    async def release(self, attempt: Attempt, held_lease: HeldLease, lease: object) -> bool | None:  # noqa: ARG002 - see `Driver`
        """Release a lock by one request. Return True once the lock is released; False if it cannot be released in this way.

        Return None for any other outcome. The lease's operation then continues the release from the outcome in `Attempt.first`.
        ``lease``: the user's lease. It is abandoned if the task is cancelled, or its event loop closed, during the release.
        """
        return False

    def runs_here(self) -> bool:
        """Return True inside the driver's event loop."""
        return _get_running_loop() is self.loop

    def slot(self) -> AioSlot:
        return AioSlot(self.loop, self.process.clock)

    def is_awaited(self, tally: object) -> bool:
        """Return True if a task of this event loop waits for the lock object with this tally without an operation.

        The tasks of a closed loop wait no more. Any thread may call this method.
        """
        attempts = [one for one in [*self.running] if isinstance(one, Attempt)]
        return not self.loop.is_closed() and any(attempt.tally is tally for attempt in attempts)

    async def run(self, operation: Coroutine[Any, Any, T]) -> T:
        """Run an operation to its end, and return its result.

        If the calling task is cancelled, the operation's clean-up runs in a task of its own. CancelledError is raised when the
        clean-up is done, or after CLEAN_UP_WITHIN_S seconds.
        """
        self.running.add(operation)
        if self.unwatched:
            self._be_watched()
        try:
            request = operation.send(None)
            while True:
                try:
                    reply = self.at_once(request) if isinstance(request, Instant) else await self.awaited(request)
                except asyncio.CancelledError as cancelled:
                    await self._finish(operation, functools.partial(operation.throw, cancelled))
                    raise
                except GeneratorExit:
                    self.leave(operation)  # the task was dropped, not cancelled
                    raise
                except BaseException as error:  # noqa: BLE001 - the operation decides which errors it handles
                    request = operation.throw(error)
                else:
                    request = operation.send(reply)
        except StopIteration as stop:
            self.running.discard(operation)
            return stop.value  # type: ignore[no-any-return]
        except BaseException:
            if operation.cr_frame is None:  # type: ignore[attr-defined]
                self.running.discard(operation)
            raise

    def _be_watched(self) -> None:
        self.process.keeper.loops.watch(self)

    def leave(self, operation: Any) -> None:
        """Have the keeper end an operation, or abandon an attempt or a lease, that cannot await any more.

        If no keeper runs, the calling thread does this itself. It leaves the work to a keeper as it may be in a finaliser.
        """
        keeper = self.process.running_keeper
        if keeper is None or keeper.ended:
            self.end(operation)
        else:
            keeper.call(functools.partial(self.end, operation))

    def end(self, operation: Any, *, begun: bool = True) -> None:
        """End an operation that no task drives any more: run its clean-up, as far as that is possible without awaiting.

        If ``begun`` is False, the operation is itself a clean-up, and runs from its start. ``operation`` may also be an attempt
        or a lease, which is then abandoned. The keeper sends the requests.
        """
        try:
            if isinstance(operation, Attempt):
                drop(abandon(operation, ON_ONE_SERVER), self._at_last, begun=False)
            elif isinstance(operation, Coroutine):
                drop(operation, self._at_last, begun=begun)
            else:
                drop(operation.finish_release(), self._at_last, begun=False)
        except Exception:  # noqa: BLE001, S110 - ignored like the exception of a task that nobody awaits
            pass
        finally:
            self.running.discard(operation)

    def _at_last(self, request: object) -> Any:
        """Carry out one request of a clean-up without awaiting, and return its result; UNDONE if the request needs an await."""
        if isinstance(request, Instant):
            return self.at_once(request)
        if isinstance(request, RunOn):
            return request.home.end(request.operation, begun=False)
        return None if isinstance(request, Poll) else UNDONE  # a poll without answers

    async def clean_up(self, operation: Coroutine[Any, Any, Any]) -> None:
        """Run the clean-up of a task that was cancelled or failed. If the task is cancelled meanwhile, the clean-up goes on.

        The clean-up runs in a task of its own. This method returns when it is done, or after CLEAN_UP_WITHIN_S seconds.
        """
        self.running.add(operation)
        if self.unwatched:
            self._be_watched()
        try:
            request = operation.send(None)
        except StopIteration:
            self.running.discard(operation)
        else:
            await self._finish(operation, lambda: request)

    async def _finish(self, operation: Coroutine[Any, Any, Any], step: Callable[[], Any]) -> None:
        """Drive an operation to its end in a new task. ``step``: function that returns the operation's next request."""

        async def rest() -> None:
            try:
                request = step()
                while True:
                    try:
                        reply = self.at_once(request) if isinstance(request, Instant) else await self.awaited(request)
                    except Exception as error:  # noqa: BLE001 - as in run
                        request = operation.throw(error)
                    else:
                        request = operation.send(reply)
            except (StopIteration, asyncio.CancelledError):
                pass
            finally:
                self.running.discard(operation)
                if operation.cr_frame is not None:  # type: ignore[attr-defined]
                    self.leave(operation)  # this clean-up task was itself dropped or cancelled

        task = self.loop.create_task(rest())
        _background.add(task)
        task.add_done_callback(_background.discard)
        try:
            await asyncio.wait([task], timeout=CLEAN_UP_WITHIN_S)
        except asyncio.CancelledError:
            pass  # cancelled again: stop waiting, and let the caller raise the first cancellation

    def _wait_locally(self, request: WaitLocally[Attempt]) -> Awaitable[None]:
        slot = request.attempt.slot
        assert isinstance(slot, AioSlot)
        return slot.wait_locally(request.attempt.until)

    def _slot_of(self, listener: Subscriber) -> AioSlot:
        listener.slot = slot = listener.slot or self.slot()
        return slot  # type: ignore[return-value]

    async def _subscribe(self, request: Subscribe) -> None:
        slot, process = self._slot_of(request.listener), self.process
        while not process.subscribe(self.servers, request.listener) and process.clock() < request.until:
            await slot.get(request.until)

    def _await_notice(self, request: AwaitNotice) -> Awaitable[Outcome | None]:
        return self._slot_of(request.listener).get(request.until)


class Driver(Runner):
    """The asyncio driver of operations on one server, in one event loop."""

    def __init__(self, process: Process, endpoint: Endpoint) -> None:
        self.process = process
        self.endpoint = endpoint
        self.servers = (endpoint,)
        self.loop = asyncio.get_running_loop()
        self.running = set()
        self._clock = process.clock
        self.stream = stream_to(endpoint, process.system)
        self.is_direct = type(self) is Driver and isinstance(self.stream, AioConnection)

    def begin(self, attempt: Attempt, wait: float | None, now: float, task: object) -> asyncio.Future[Any] | None:
        if not attempt.is_direct:
            return None
        attempt.slot = AioSlot(self.loop, self._clock)
        frame = lead(attempt, self.process.tokens, now, wait)
        if frame is None:
            return self._park(attempt, wait, now, id(task))
        token, timeout = attempt.token, frame.timeout if wait is None else min(frame.timeout, wait + GRACE_S)
        packed = frame.before + token.encode() + frame.after if frame.size == len(token) else splice(frame, token)
        asked: asyncio.Future[Any] | None = self.stream.send(packed, timeout)
        if asked is None:  # there is no connection, or too many requests are unanswered, so the operation has to wait
            attempt.may_be_on_server = attempt.maybe_in_flight = False
            return None
        self._watch(attempt)
        return asked

    def _watch(self, waits: object) -> None:
        """Have an attempt or lease, which the driver handles without an operation, abandoned if the event loop is closed."""
        self.running.add(waits)
        if self.unwatched:
            self._be_watched()

    def _park(self, attempt: Attempt, wait: float | None, now: float, task: int) -> asyncio.Future[None] | None:
        """Return a future to await in the local queue; None if the attempt cannot wait there. ``task``: id of the caller."""
        slot = attempt.slot
        assert isinstance(slot, AioSlot)
        if not park(attempt, now, wait, task):
            return None
        slot.owner, slot.since = task, now
        asked = slot.wait_locally(attempt.until)
        if attempt.turn is not None:
            asked.set_result(None)
        self._watch(attempt)
        return asked

    def finish(self, attempt: Attempt, asked: asyncio.Future[Any]) -> Grant | None:
        self.running.discard(attempt)
        if attempt.entered:
            return woken(attempt, self._clock())
        attempt.first = asked.exception()  # type: ignore[assignment]  # a WireError
        if attempt.first is not None:
            return None
        grant = took(attempt, asked.result(), attempt.began, self._clock())
        if grant is None:
            self._note_first(attempt, attempt.spec.acquire_frame.run(attempt.token), asked.result(), attempt.began)
        return grant

    def _note_first(self, attempt: Attempt, call: RunScript[Any], reply: object, sent: float) -> None:
        """Store a reply as the attempt's first outcome. If the server lacks the script, note that nothing was executed."""
        if is_noscript(reply):
            attempt.may_be_on_server = attempt.maybe_in_flight = False
            return
        try:
            check(reply, self.endpoint, self.stream.drop)
            attempt.first = Answer(parsed(call, reply), sent, self._clock())
        except WireError as error:
            attempt.first = error

    async def release(self, attempt: Attempt, held_lease: HeldLease, lease: Any) -> bool | None:
        sent, token = self._clock(), held_lease.token
        here = attempt.is_direct and _get_running_loop() is self.loop
        frame = leave(attempt, held_lease, sent) if here else None
        if frame is None:
            return False
        packed = frame.before + token.encode() + frame.after if frame.size == len(token) else splice(frame, token)
        asked = self.stream.send(packed, frame.timeout)
        if asked is None:
            return None  # there is no connection, or too many requests are unanswered
        self._watch(lease)
        try:
            reply = await asked
        except WireError as error:
            attempt.first = error
            return None
        except BaseException as error:
            await self._interrupted(lease, error)
            raise
        finally:
            self.running.discard(lease)
        if left(attempt, held_lease, reply):
            return True
        self._note_first(attempt, frame.run(token), reply, sent)
        return None

    async def _interrupted(self, lease: Any, error: BaseException) -> None:
        """Abandon a lease whose release was interrupted by this error."""
        if isinstance(error, GeneratorExit):
            self.leave(lease)  # the task was dropped, so it can await nothing
        else:
            await self.clean_up(lease.finish_release())

    def at_once(self, request: ServerInstant) -> Any:  # noqa: PLR0911 - one for each kind of request
        match request:
            case NewToken():
                return self.token()
            case Now():
                return self._clock()
            case UnregisterWaiter():
                return keep_alive.unregister_waiter(self.process, self.endpoint, request.waiter)
            case Unsubscribe():
                return self.process.unsubscribe(self.servers, request.listener)
            case GetCoalescer():
                return self.process.keeper.coalescer(self.endpoint, request.key, id(self))
            case KeepAlive():
                return keep_alive.start(self.process, self.endpoint, request.held)
            case StopKeepAlive():
                return keep_alive.stop(self.process, self.endpoint, request.held_lease)
            case SendUntilAnswered():
                return self.process.keeper.send_until_answered(self.endpoint, request.call, request.until)
            case UnixTime():
                return wall()
            case _:
                assert_never(request)

    def awaited(self, request: ServerAwaited) -> Awaitable[Any]:  # noqa: PLR0911 - one for each kind of request
        match request:
            case RunScript() | Command():
                return self.call(request)
            case WaitLocally():
                return self._wait_locally(request)
            case RegisterWaiter():
                return self._register_waiter(request)
            case Wait():
                return self._wait(request)
            case Sleep():
                return asyncio.sleep(request.seconds)
            case Subscribe():
                return self._subscribe(request)
            case AwaitNotice():
                return self._await_notice(request)
            case Replicate():
                # A lock with replicas can afford a thread. If the task is cancelled, the thread runs to its end. That is
                # harmless, because the script only renews, and has nothing to renew if the lock was released meanwhile.
                return self.loop.run_in_executor(None, replicate, self.process, self.endpoint, request)
            case RunOn():
                return request.home.run(request.operation)  # type: ignore[no-any-return]
            case _:
                assert_never(request)

    def token(self) -> str:
        return self.process.token()

    async def call(self, call: Call) -> Answer[Any]:
        """Send a call to the server, and return its reply with the times of the request. Raises WireError."""
        sent = self._clock()
        packed = pack(call)
        future = self.stream.send(packed, call.timeout)
        if future is not None:
            reply = await future
        else:
            reply, sent = await self.stream.exchange(packed, call.timeout)
        if type(reply) is ReplyError:
            if is_noscript(reply):
                reply, sent = await self.stream.exchange(pack(call, whole=True), call.timeout)
            check(reply, self.endpoint, self.stream.drop)
        return Answer(parsed(call, reply), sent, self._clock())

    async def ask(self, command: Command) -> Any:
        """Return the reply to a plain command, without the times of the request. Raises WireError."""
        packed = pack(command)
        future = self.stream.send(packed, command.timeout)
        reply = await future if future is not None else (await self.stream.exchange(packed, command.timeout))[0]
        if type(reply) is ReplyError:
            check(reply, self.endpoint, self.stream.drop)
        return reply

    async def _register_waiter(self, request: RegisterWaiter[Waiter]) -> Outcome | None:
        waiter = request.waiter
        if self.process.keeper.register_waiter(self.endpoint, waiter):
            return None
        slot = waiter.attempt.slot
        assert isinstance(slot, AioSlot)
        outcome = None
        while outcome is None and waiter.awaits_inbox:
            outcome = await slot.get(request.until)
        return outcome

    async def _wait(self, request: Wait[Waiter]) -> Outcome:
        waiter = request.waiter
        if request.answer is not None:
            self.process.keeper.joined(self.endpoint, waiter, request.answer)
        slot = waiter.attempt.slot
        assert isinstance(slot, AioSlot)
        outcome: Outcome | None = None
        while outcome is None:
            outcome = await slot.get(request.until)
        return outcome


R = TypeVar("R", bound=Runner)


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop. Raises RuntimeError if asyncio runs none, as in trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "no event loop of asyncio runs here: holdfast.aio works in asyncio (also in anyio on asyncio), not in trio; "
            "without an event loop, use holdfast"
        ) from None


def kept(process: Process, endpoint: Endpoint, kind: Callable[[Process, Endpoint], R]) -> R:
    """Return the running loop's driver for this server, which ``kind`` creates at its first use.

    All tasks of the loop share the driver's connection.
    """
    loop = running_loop()
    drivers = process.drivers.get(loop)
    if drivers is None:
        for other in [*_finalisers]:  # copied, because loops of other threads come and go meanwhile
            if other.is_closed():
                process.drivers.pop(other, None)
                _finalisers.pop(other, None)
        drivers = process.drivers[loop] = {}
        _close_with_loop(loop)
    driver: Any = drivers.get(endpoint)
    if driver is None:
        driver = drivers[endpoint] = kind(process, endpoint)
        driver.unwatched = True
    return driver  # type: ignore[no-any-return]  # one kind of driver for each endpoint


_finalisers: dict[asyncio.AbstractEventLoop, AsyncGenerator[None, None]] = {}


def _close_with_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Have the connections of a loop closed when asyncio.run, or another runner, calls ``loop.shutdown_asyncgens()``.

    That method closes all unfinished asynchronous generators. So this function starts a generator that closes the connections
    at its own end.
    """

    async def finaliser() -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            _finalisers.pop(loop, None)
            for driver in current().drivers.pop(loop, {}).values():
                await driver.stream.close()

    _finalisers[loop] = generator = finaliser()
    try:
        generator.__anext__().send(None)  # starts the generator, which awaits nothing before its yield
    except StopIteration:
        pass


async def close() -> None:
    """Close holdfast's connections that belong to the running event loop."""
    finaliser = _finalisers.pop(asyncio.get_running_loop(), None)
    if finaliser is not None:
        await finaliser.aclose()


async def close_to(endpoints: Sequence[Endpoint]) -> None:
    """Close the running event loop's connections to these servers.

    If a server belongs to a Cluster, the connections to all servers of the Cluster are closed.
    """
    for endpoint, driver in [*current().drivers.get(asyncio.get_running_loop(), {}).items()]:
        if endpoint.is_among(endpoints):
            await driver.stream.close()
