"""A simulated thread or task. It runs the library's operations, as the drivers in `_runtime` do outside the simulation."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, assert_never

from holdfast._core import permit
from holdfast._core.lock.records import AskServer, Attempt, Grant, Waiter
from holdfast._core.lock.replies import ACQUIRE
from holdfast._core.requests import (
    Answer,
    AskPlace,
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
    ServerRequest,
    Sleep,
    StopKeepAlive,
    Subscribe,
    Subscriber,
    TimedOut,
    UnixTime,
    UnregisterWaiter,
    Unsubscribe,
    Wait,
    WaitLocally,
    WireError,
)
from holdfast._core.requests import Slot as AnySlot
from holdfast_lab.sim.network import Wire

if TYPE_CHECKING:
    from holdfast_lab.sim.server import Server
    from holdfast_lab.sim.virtual_time import Entry
    from holdfast_lab.sim.world import Process


STOCK = 8
"""For one in this many tokens, the process's stock of tokens counts as empty, and the attempt draws the token itself."""

TAKING = (ACQUIRE, permit.ACQUIRE)
"""The scripts that acquire a lock or permits, or join the queue for them."""


class TaskCancelled(BaseException):
    """Raised in the coroutine of a task that was cancelled, or of a thread that was interrupted."""


class Discarded(BaseException):
    """Raised in a worker's coroutine after the history has ended, so that the coroutine ends, too."""


class Worker:
    """A simulated thread or task. It runs a coroutine, and carries out the requests that the coroutine awaits."""

    __slots__ = (
        "_slot",
        "_timer",
        "_wires",
        "acquisition",
        "acquisitions",
        "asked",
        "asked_first",
        "asked_to_join",
        "coroutine",
        "done",
        "inside",
        "lined",
        "name",
        "pending",
        "process",
        "requests",
        "shielded",
        "thrown",
    )

    def __init__(self, process: Process, name: str) -> None:
        self.process = process
        self.name = f"{process.name}/{name}"
        self.coroutine: Coroutine[Any, Any, Any] | None = None
        self.done = False
        self.asked: Any = None
        """The request that the worker waits for; None while it runs."""
        self.requests = 0
        """Number of requests that the worker has waited for."""
        self.acquisitions = 0
        self.acquisition = ""
        """Name, in the history, of the worker's current attempt to acquire a lock."""
        self.asked_to_join = 0.0
        """Virtual time at which the worker's current attempt first asked to join the server's queue; 0: not yet."""
        self.asked_first = 0.0
        """Virtual time of the first request of the worker's current attempt; 0: none yet."""
        self.lined = ""
        """Name of the last attempt that waited in the local queue."""
        self.inside = False
        """True while the worker runs an operation of the library, in ``with worker.operation():``."""
        self.shielded = False
        """True while a cancelled task cleans up. As in `drivers.aio`, it cannot be cancelled again then."""
        self.thrown = ""
        """Type of the error that was last thrown into the coroutine. The error may still propagate."""
        self.pending: WaitId | None = None
        self._wires: dict[Server, Wire] = {}
        self._timer: Entry | None = None
        self._slot: Slot | None = None
        process.workers.append(self)
        process.world.working.add(self)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine
        self.process.soon(self.go, None)

    def go(self, reply: Any, error: BaseException | None = None) -> None:
        """Resume the coroutine with a reply or an error, until it awaits a request that takes time."""
        coroutine = self.coroutine
        assert coroutine is not None
        self.asked = None
        try:
            while True:
                if error is None:
                    request = coroutine.send(reply)
                else:
                    thrown, error = error, None
                    self.thrown = type(thrown).__name__
                    request = coroutine.throw(thrown)
                try:
                    reply = self.do(request)
                except WireError as refused:
                    error = refused
                else:
                    if reply is LATER:
                        self.asked = request
                        self.requests += 1
                        return
        except (StopIteration, TaskCancelled):
            self._end()

    def _end(self) -> None:
        self.done = True
        self.process.world.working.discard(self)

    def cancel(self) -> None:
        """Throw a cancellation (task) or an interrupt (thread) into the coroutine.

        Do nothing if the worker has finished, waits for nothing, or is cleaning up.
        """
        if self.done or self.shielded or self.asked is None or self.coroutine is None or not self.process.here:
            return
        self.shielded = self.inside and self.process.api == "asyncio"
        self._drop_timer()
        self.pending = self._slot = None
        if self.process.api == "threads":
            for wire in self._wires.values():
                if wire.in_flight:
                    wire.close("interrupted")
        self.go(None, TaskCancelled())

    def operation(self) -> Worker:
        """Mark the body of ``with`` as an operation of the library. A task that is cancelled in it cleans up undisturbed."""
        return self

    def __enter__(self) -> None:
        self.inside = True

    def __exit__(self, *_: object) -> None:
        self.inside = self.shielded = False

    def discard(self) -> None:
        """End the coroutine after the history is over. It cannot send another request."""
        while self.coroutine is not None and not self.done:
            try:
                self.coroutine.throw(Discarded())
            except BaseException:  # noqa: BLE001 - the coroutine may raise anything as it ends
                self.done = True

    # The requests of operations

    def do(self, request: ServerRequest | AskPlace) -> Any:  # noqa: C901, PLR0911, PLR0912 - one for each kind of request
        """Carry out one request of an operation. Return its reply, or `LATER` if the reply arrives later."""
        process = self.process
        match request:
            case RunScript() | Command():
                return self.carry_out(request)
            case Now():
                return process.clock()
            case NewToken():
                return self._new_token()
            case Sleep():
                return self._sleep(request)
            case WaitLocally():
                return self._wait_locally(request)
            case RegisterWaiter():
                return self._register_waiter(request)
            case Wait():
                return self._wait(request)
            case UnregisterWaiter():
                return process.node.waiting.unregister_waiter(request.waiter)
            case Subscribe():
                return self._subscribe(request)
            case AwaitNotice():
                return self._await_notice(request)
            case Unsubscribe():
                return self._unsubscribe(request)
            case KeepAlive():
                return process.keep_alive(request.held)
            case StopKeepAlive():
                return process.node.renewing.forget(request.held_lease.token)
            case SendUntilAnswered():
                return process.node.send_until_answered(request.call, request.until)
            case GetCoalescer():
                return process.coalescer(request.key)
            case AskPlace():
                return self.carry_out(request.call, process.world.servers[request.place])
            case UnixTime():
                return process.wall()
            case Replicate() | RunOn():
                raise NotImplementedError(f"no history sends {request}")
            case _:
                assert_never(request)

    def _new_token(self) -> str:
        token = self.process.token()
        self.process.world.acquisitions[token] = self.acquisition
        return token

    def pop(self) -> str:
        """Return a new token for `_core.lock.uncontended.lead`. Now and then, raise IndexError, as an empty stock does."""
        if self.process.tokens % STOCK == STOCK - 1:
            raise IndexError
        return self._new_token()

    def carry_out(self, call: Call, server: Server | None = None) -> Any:
        process = self.process
        wire = self._wire_to(server or process.server)
        self.pending = asked = WaitId(self)
        if isinstance(call, RunScript) and call.script in TAKING:
            self.asked_first = self.asked_first or process.world.now
            if call.args[2] and not self.asked_to_join:
                self.asked_to_join = process.world.now

        def then(answer: Any, sent: float) -> None:
            if self.pending is not asked:
                return  # the worker was cancelled meanwhile
            self.pending = None
            if isinstance(answer, WireError):
                self.go(None, answer)
            else:
                self.go(Answer(answer, sent, process.clock()))

        wire.send(call, then)
        return LATER

    def _wire_to(self, server: Server) -> Wire:
        """Return an open connection. Raises NotSent if the server is unreachable."""
        wire = self._wires.get(server)
        if wire is None or not wire.open:
            wire = self._wires[server] = self.process.connect(server, self.name)
        return wire

    def _sleep(self, request: Sleep) -> Any:
        self._set_timer(self.process.clock() + request.seconds, None)
        return LATER

    def _set_timer(self, local: float, reply: Any) -> None:
        self.pending = asked = WaitId(self)
        self._timer = self.process.at(local, self._on_timer, asked, reply)

    def _on_timer(self, asked: WaitId, reply: Any) -> None:
        # If both fell due while the process was paused, an outcome may have woken the worker first.
        if self.pending is asked:
            self.pending = self._timer = self._slot = None
            self.go(reply)

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer[2] = None
            self._timer = None

    def _wait_locally(self, request: WaitLocally[Attempt]) -> Any:
        attempt = request.attempt
        if self.lined != self.acquisition:
            self.lined = self.acquisition
            self.process.world.note("lined", self.name, attempt.spec.key, self.acquisition)
        slot = attempt.slot
        assert isinstance(slot, Slot)

        def look(outcome: Outcome | None) -> bool:
            if outcome is not None:  # it inherited a place in the queue: `_wait` needs the outcome
                slot.outcomes.insert(0, outcome)
            return True

        return LATER if self._get(slot, attempt.until, look, None) is LATER else None

    def _register_waiter(self, request: RegisterWaiter[Waiter]) -> Any:
        waiter = request.waiter
        if self.process.register_waiter(waiter):
            return None
        return self._get(waiter.attempt.slot, request.until, lambda outcome: outcome is not None or not waiter.awaits_inbox)

    def _wait(self, request: Wait[Waiter]) -> Any:
        process, attempt = self.process, request.waiter.attempt
        if request.answer is not None:
            self._queued(attempt, self.asked_to_join)
            process.joined(request.waiter, request.answer)
        return self._get(attempt.slot, request.until, lambda outcome: outcome is not None)

    def _told_by(self) -> list[Server]:
        """Return the servers whose notifications can wake this worker."""
        return [self.process.server]

    def _subscribe(self, request: Subscribe) -> Any:
        listener, process = request.listener, self.process

        def enough(_outcome: object = None) -> bool:
            return sum([process.subscribe(server, listener) for server in self._told_by()]) >= listener.majority

        return None if enough() else self._get(self._placed(listener), request.until, enough, None)

    def _await_notice(self, request: AwaitNotice) -> Any:
        return self._get(self._placed(request.listener), request.until, lambda _outcome: True, None)

    def _placed(self, listener: Subscriber) -> Slot:
        slot = listener.slot = listener.slot or Slot(self)
        assert isinstance(slot, Slot)
        return slot

    def _unsubscribe(self, request: Unsubscribe) -> None:
        for node in self.process.nodes.values():
            node.listeners.pop(request.listener.listener_id, None)

    def _queued(self, attempt: Attempt, since: float) -> None:
        world = self.process.world
        lease = world.lease(attempt.token, self.acquisition)
        world.places[lease or self.acquisition] = since
        world.note("queued", self.name, attempt.spec.key, self.acquisition, since=since, lease=lease)

    def given(self, attempt: Attempt) -> None:
        """Record that another worker handed its lease on to this attempt, or left its place in the queue to this attempt."""
        world, given = self.process.world, attempt.turn
        if isinstance(given, AskServer) and given.place is not None:
            lease = world.lease(attempt.token, self.acquisition)
            self._queued(attempt, world.places[lease or self.acquisition])
        elif isinstance(given, Grant) and given.held_lease is not None:
            lease = world.lease(given.held_lease.token, self.acquisition)
            world.note("passed", self.name, attempt.spec.key, self.acquisition, fence=given.fence, lease=lease)

    def _get(
        self,
        slot: AnySlot | None,
        until: float | None,
        enough: Callable[[Outcome | None], bool],
        late: TimedOut | None = TimedOut(),  # noqa: B008 - `TimedOut` has no state
    ) -> Any:
        assert isinstance(slot, Slot)
        while slot.outcomes:
            outcome = slot.outcomes.pop(0)
            if enough(outcome):
                return outcome
        slot.enough = enough
        self._slot = slot
        if until is not None:
            self._set_timer(max(until, self.process.clock()), late)
        return LATER

    def woken(self, slot: Slot) -> None:
        """Resume the coroutine with the first outcome that ends the worker's wait."""
        while self._slot is slot and slot.outcomes:
            outcome = slot.outcomes.pop(0)
            if slot.enough(outcome):
                self.pending = self._slot = None
                self._drop_timer()
                self.go(None if isinstance(self.asked, WaitLocally) else outcome)


class WaitId:
    """The identity of one wait of a worker. A reply to an earlier wait has another identity, and is ignored."""

    __slots__ = ("_worker",)

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def counts(self) -> bool:
        """True while the worker is in this wait."""
        return self._worker.pending is self


class _LaterType:
    """The type of `LATER`. A method returns `LATER` if the reply to a request arrives later."""


LATER = _LaterType()


class Slot:
    """A mailbox for the outcomes of a worker's wait, such as a grant."""

    __slots__ = ("_told", "_worker", "attempt", "enough", "outcomes")

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.attempt: Attempt | None = None
        self._told: object = None
        """The turn that was recorded last. No turn is recorded twice."""
        self.outcomes: list[Outcome | None] = []
        self.enough: Callable[[Outcome | None], bool] = bool
        """Function that tells whether an outcome ends the current wait."""

    @property
    def whose(self) -> str:
        return self._worker.name

    def gone(self) -> bool:
        """Return False. Outside the simulation, True means that the waiter's event loop was closed."""
        return False

    def put(self, outcome: Outcome | None, /) -> bool:
        self.outcomes.append(outcome)
        attempt = self.attempt
        if outcome is None and attempt is not None and attempt.turn is not self._told:
            self._told = attempt.turn
            self._worker.given(attempt)
        self._worker.process.soon(self._worker.woken, self)
        return True
