"""A worker: a thread or task of a process, and its coroutine. The third driver of operations, beside those in `_runtime`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast._core import permit
from holdfast._core.lock.records import AskServer, Attempt, Grant, Waiter
from holdfast._core.lock.replies import ACQUIRE
from holdfast._core.requests import (
    Answer,
    AwaitNotice,
    Call,
    Command,
    NewToken,
    Now,
    Outcome,
    RegisterWaiter,
    Request,
    Run,
    Sleep,
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
from holdfast.testing.sim.network import Wire

if TYPE_CHECKING:
    from holdfast.testing.sim.process import Process
    from holdfast.testing.sim.server import Server
    from holdfast.testing.sim.world import Entry


TAKING = (ACQUIRE, permit.ACQUIRE)
"""What asks for a lock, or a place in its line."""


class Cancelled(BaseException):
    """A worker was cancelled (asyncio) or interrupted (threads)."""


class Discarded(BaseException):
    """Thrown at every request of a coroutine that is not to go on."""


@dataclass(slots=True)
class At(Request[Answer[Any]]):
    """A call to one of several servers, by its number."""

    server: int
    call: Call


class Worker:
    """One thread or task: a coroutine that is driven. What it awaits are the requests of operations."""

    __slots__ = (
        "_asked",
        "_do",
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
        """The request that is not answered yet."""
        self.requests = 0
        """Requests it has made, those that are answered at once apart."""
        self.acquisitions = 0
        self.acquisition = ""
        """Which acquisition its tokens are drawn for."""
        self.asked_to_join = 0.0
        """When (true time) this acquisition asked for a place in line first: that counts, even if the answer was lost."""
        self.asked_first = 0.0
        """When this acquisition sent its first request."""
        self.lined = ""
        """The last acquisition that stood in the line of its process."""
        self.inside = False
        """It is in an operation, see `operation`."""
        self.shielded = False
        """A task whose operation cleans up after a cancellation: nothing can interrupt that, as `drivers.aio` has it."""
        self.thrown = ""
        """The last error that was thrown into its coroutine: it may be on its way out."""
        self._asked: Ticket | None = None
        self._wires: dict[Server, Wire] = {}
        self._timer: Entry | None = None
        self._slot: Slot | None = None
        self._do: dict[type, Callable[[Any], Any]] = {
            Now: lambda _: process.clock(),
            UnixTime: lambda _: process.wall(),
            NewToken: self._new_token,
            UnregisterWaiter: self._unregister_waiter,
            Run: self._call,
            Command: self._call,
            At: self._at,
            Sleep: self._sleep,
            WaitLocally: self._wait_locally,
            RegisterWaiter: self._register_waiter,
            Wait: self._wait,
            Subscribe: self._enroll,
            AwaitNotice: self._hark,
            Unsubscribe: self._withdraw,
            **process.keep_alive_handlers,
        }
        process.workers.append(self)
        process.world.working.add(self)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine
        self.process.soon(self.go, None)

    def go(self, reply: Any, error: BaseException | None = None) -> None:
        """Drive the coroutine on with the answer to what it asked, until it asks for something that takes time."""
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
                    reply = self._do[type(request)](request)
                except WireError as refused:
                    error = refused
                else:
                    if reply is LATER:
                        self.asked = request
                        self.requests += 1
                        return
        except (StopIteration, Cancelled):
            self._end()

    def _end(self) -> None:
        self.done = True
        self.process.world.working.discard(self)

    def cancel(self) -> None:
        """Throw a cancellation or interrupt into whatever it is doing."""
        if self.done or self.shielded or self.asked is None or self.coroutine is None or not self.process.here:
            return
        self.shielded = self.inside and self.process.face == "asyncio"
        self._drop_timer()
        self._asked = self._slot = None
        if self.process.face == "threads":
            for wire in self._wires.values():
                if wire.in_flight:
                    wire.close("interrupted")
        self.go(None, Cancelled())

    @contextmanager
    def operation(self) -> Iterator[None]:
        """What is done inside is one operation of a lock, clean-up included."""
        self.inside = True
        try:
            yield
        finally:
            self.inside = self.shielded = False

    def discard(self) -> None:
        """The history is over, or the process is dead: end the coroutine without letting it do anything any more."""
        while self.coroutine is not None and not self.done:
            try:
                self.coroutine.throw(Discarded())
            except BaseException:  # noqa: BLE001 - whatever it says to that
                self.done = True

    # What it may ask for

    def _new_token(self, _request: NewToken) -> str:
        token = self.process.token()
        self.process.world.acquisitions[token] = self.acquisition
        return token

    def _at(self, request: At) -> Any:
        return self._call(request.call, self.process.world.servers[request.server])

    def _call(self, call: Call, server: Server | None = None) -> Any:
        process = self.process
        wire = self._wire_to(server or process.server)
        self._asked = asked = Ticket(self)
        if isinstance(call, Run) and call.script in TAKING:
            self.asked_first = self.asked_first or process.world.now
            if call.args[2] and not self.asked_to_join:
                self.asked_to_join = process.world.now

        def then(answer: Any, sent: float) -> None:
            if self._asked is not asked:
                return  # cancelled meanwhile: the reply is read, and dropped
            self._asked = None
            if isinstance(answer, WireError):
                self.go(None, answer)
            else:
                self.go(Answer(answer, sent, process.clock()))

        wire.send(call, then)
        return LATER

    def _wire_to(self, server: Server) -> Wire:
        """A connection to ask on. Raises NotSent."""
        wire = self._wires.get(server)
        if wire is None or not wire.open:
            wire = self._wires[server] = self.process.connect(server, self.name)
        return wire

    def _sleep(self, request: Sleep) -> Any:
        self._set_timer(self.process.clock() + request.seconds, None)
        return LATER

    def _set_timer(self, local: float, reply: Any) -> None:
        self._asked = asked = Ticket(self)
        self._timer = self.process.at(local, self._on_timer, asked, reply)

    def _on_timer(self, asked: Ticket, reply: Any) -> None:
        # A process that was paused may find that both have happened: its time is up, and it was woken.
        if self._asked is asked:
            self._asked = self._timer = self._slot = None
            self.go(reply)

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer[2] = None
            self._timer = None

    def _unregister_waiter(self, request: UnregisterWaiter[Waiter]) -> None:
        self.process.node.waiting.unregister_waiter(request.waiter)

    def _wait_locally(self, request: WaitLocally[Attempt]) -> Any:
        attempt = request.attempt
        if self.lined != self.acquisition:
            self.lined = self.acquisition
            self.process.world.note("lined", self.name, attempt.spec.key, self.acquisition)
        slot = attempt.slot
        assert isinstance(slot, Slot)

        def look(outcome: Outcome | None) -> bool:
            if outcome is not None:  # it has inherited a place in the queue, and was told at once: `_wait` reads it
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
        """The servers that can tell it something."""
        return [self.process.server]

    def _enroll(self, request: Subscribe) -> Any:
        listener, process = request.listener, self.process

        def enough(_outcome: object = None) -> bool:
            return sum([process.subscribe(server, listener) for server in self._told_by()]) >= listener.majority

        return None if enough() else self._get(self._placed(listener), request.until, enough, None)

    def _hark(self, request: AwaitNotice) -> Any:
        return self._get(self._placed(request.listener), request.until, lambda _outcome: True, None)

    def _placed(self, listener: Subscriber) -> Slot:
        slot = listener.slot = listener.slot or Slot(self)
        assert isinstance(slot, Slot)
        return slot

    def _withdraw(self, request: Unsubscribe) -> None:
        for node in self.process.nodes.values():
            node.listeners.pop(request.listener.listener_id, None)

    def _queued(self, attempt: Attempt, since: float) -> None:
        world = self.process.world
        lease = world.lease(attempt.token, self.acquisition)
        world.places[lease or self.acquisition] = since
        world.note("queued", self.name, attempt.spec.key, self.acquisition, since=since, lease=lease)

    def given(self, attempt: Attempt) -> None:
        """Another one of its process gives it something: the place in the queue at the server, or the lock."""
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
        late: TimedOut | None = TimedOut(),  # noqa: B008 - it has no state
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
        """Something was put into a slot, and the worker has got to it."""
        while self._slot is slot and slot.outcomes:
            outcome = slot.outcomes.pop(0)
            if slot.enough(outcome):
                self._asked = self._slot = None
                self._drop_timer()
                self.go(None if isinstance(self.asked, WaitLocally) else outcome)


class Ticket:
    """What a worker waits for: whatever comes for another one comes too late."""

    __slots__ = ("_worker",)

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def counts(self) -> bool:
        """The worker waits for this still."""
        return self._worker._asked is self  # noqa: SLF001


class _Later:
    """The answer takes time."""


LATER = _Later()


class Slot:
    """Where a worker waits for what becomes of its waiter."""

    __slots__ = ("_told", "_worker", "attempt", "enough", "outcomes")

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.attempt: Attempt | None = None
        self._told: object = None
        """What was given last, as the history knows already."""
        self.outcomes: list[Outcome | None] = []
        self.enough: Callable[[Outcome | None], bool] = bool
        """Whether that ends what the worker waits for just now."""

    @property
    def whose(self) -> str:
        return self._worker.name

    def gone(self) -> bool:
        """There are no loops to be closed here."""
        return False

    def put(self, outcome: Outcome | None, /) -> bool:
        self.outcomes.append(outcome)
        attempt = self.attempt
        if outcome is None and attempt is not None and attempt.turn is not self._told:
            self._told = attempt.turn
            self._worker.given(attempt)
        self._worker.process.soon(self._worker.woken, self)
        return True
