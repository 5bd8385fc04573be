"""A process: a clock of its own, the keeper, and workers that carry out operations. The third driver, beside `_drive`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from holdfast._core.mutex import ACQUIRE
from holdfast._core.node import Node
from holdfast._core.renewing import Tenure
from holdfast._core.requests import (
    Answer,
    Call,
    Command,
    Delist,
    Draw,
    Enlist,
    NotSent,
    Now,
    Outcome,
    Request,
    Run,
    Sleep,
    TimedOut,
    Wait,
    WireError,
)
from holdfast._core.waiting import Waiter
from holdfast.testing.sim.wire import Line, Wire
from holdfast.testing.sim.world import EPOCH

if TYPE_CHECKING:
    from holdfast.testing.sim.lock import Lease
    from holdfast.testing.sim.server import Server
    from holdfast.testing.sim.world import Entry, World

INFINITY = float("inf")

Face = Literal["threads", "asyncio"]
"""Threads have a connection each, and close it when they are interrupted; tasks share one, and leave the reply to it."""

NO_MUTEX: AbstractContextManager[object] = nullcontext()


class Cancelled(BaseException):
    """A worker was cancelled (asyncio) or interrupted (threads)."""


class Discarded(BaseException):
    """Thrown at every request of a coroutine that is not to go on."""


@dataclass(slots=True)
class At(Request[Answer[Any]]):
    """A call to one of several servers, by its number."""

    server: int
    call: Call


class Process:
    """One client process and its keeper, on one server."""

    mutex = NO_MUTEX

    def __init__(
        self, world: World, server: Server, name: str, *, face: Face = "threads", offset: float = 0.0, rate: float = 1.0
    ) -> None:
        self.world = world
        self.server = server
        self.name = self.process_id = name
        """Hexadecimal: the public part of its tokens."""
        self.face = face
        self.here = True
        self.workers: list[Worker] = []
        self.tokens = 0
        self.is_paused = False
        self._parked: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._base = EPOCH + offset
        self._rate = rate
        self._wake_at = INFINITY
        self._wake: Entry | None = None
        self._shared: dict[Server, Wire] = {}
        self.leases: dict[Lease, float] = {}
        """Those whose end is told to the history, each with the deadline that was told last."""
        self.node = Node(self, server.name, self._line)
        world.processes.append(self)

    # Its clock

    def clock(self) -> float:
        return self._base + (self.world.now - EPOCH) * self._rate

    def true(self, local: float) -> float:
        """The true time at which its clock shows ``local``."""
        return EPOCH + (local - self._base) / self._rate

    def at(self, local: float, what: Callable[..., object], *args: Any) -> Entry:
        """Have something happen when its clock has come to ``local``, unless it is paused then, or dead."""
        return self.world.at(max(self.true(local) + 1e-6, self.world.now), self._do, what, *args)

    def soon(self, what: Callable[..., object], *args: Any) -> Entry:
        return self.world.soon(self._do, what, *args)

    def _do(self, what: Callable[..., object], *args: Any) -> None:
        if not self.busy(what, *args):
            what(*args)

    # Its life

    def busy(self, what: Callable[..., object], *args: Any) -> bool:
        """True if it cannot do this now: it is dead; or paused, and will do it when it goes on."""
        if not self.here:
            return True
        if self.is_paused:
            self._parked.append((what, args))
        return self.is_paused

    def pause(self) -> None:
        if self.here and not self.is_paused:
            self.is_paused = True
            self.world.note("paused", self.name)

    def resume(self) -> None:
        if self.here and self.is_paused:
            self.is_paused = False
            self.world.note("resumed", self.name)
            parked, self._parked = self._parked, []
            for what, args in parked:
                self._do(what, *args)

    def crash(self) -> None:
        """It is killed: its connections close, and nothing more of it happens."""
        if not self.here:
            return
        self.here = False
        self.world.note("crashed", self.name)
        for wire in [wire for server in self.world.servers for wire in server.wires if wire.process is self]:
            wire.open = False
            wire.up.send(None)

    # The keeper, as `_drive.keeper` is for threads

    @property
    def keeper(self) -> Process:
        return self

    running_keeper = keeper

    def watch(self, _endpoint: object, tenure: Tenure) -> None:
        self.node.want_record(self.clock())
        self._wake_by(self.node.renewing.watch(tenure))

    def forget(self, _endpoint: object, tenure: Tenure) -> None:
        self.node.renewing.forget(tenure.token)

    def call(self, what: Callable[[], None]) -> None:
        what()

    def record(self) -> str:
        return "{}"

    def report(self, tenure: Tenure) -> None:
        owner = tenure.owner()
        if owner is not None:
            owner.notice_loss()

    def safely(self, action: Callable[..., object], *args: Any) -> bool:
        action(*args)  # whatever it raises is a defect, and ends the history
        return True

    def _line(self, on_push: Callable[[list[Any]], None] | None = None, on_closed: Callable[[], None] | None = None) -> Line:
        return Line(self, self.server, on_push, on_closed)

    def enlist(self, waiter: Waiter, slot: Slot) -> bool:
        waiter.slot = slot
        now = self.clock()
        self.node.want_record(now)
        ready = self.node.waiting.enlist(waiter, now)
        if not ready:
            self._wake_by(now)
        return ready

    def joined(self, waiter: Waiter, answer: Answer[Any]) -> None:
        waiting = self.node.waiting
        waiting.joined(waiter, answer, self.clock())
        self._wake_by(min(waiting.round_at, waiter.refresh_at))

    def plan(self) -> None:
        """Something has happened to the keeper's books: it wakes when they say so."""
        self.tell()
        self._wake_by(self.node.next_at())

    def tell(self) -> None:
        """Write down until when its leases are believed now, where that has changed."""
        for lease in self.leases:
            lease.tell()

    def _wake_by(self, local: float) -> None:
        if local < self._wake_at:
            self._wake_at = local
            if self._wake is not None:
                self._wake[2] = None
            self._wake = self.at(local, self._turn) if local > self.clock() else self.soon(self._turn)

    def _turn(self) -> None:
        self._wake, self._wake_at = None, INFINITY
        self.node.turn(self.clock())
        self.plan()

    # The connections of its workers

    def connect(self, server: Server, who: str) -> Wire:
        """A connection to ask on. Raises NotSent."""
        shared = self._shared.get(server)
        if shared is not None and shared.open:
            return shared
        if not server.reachable:
            raise NotSent(f"no server at {server.name}", server.name)
        wire = Wire(self, server, self.name if self.face == "asyncio" else who)
        if self.face == "asyncio":
            self._shared[server] = wire
        return wire

    def token(self) -> str:
        self.tokens += 1
        return f"{self.name}.{self.tokens:04x}"


class Worker:
    """One thread or task: a coroutine that is driven. What it awaits are the requests of operations."""

    __slots__ = (
        "_asked", "_do", "_slot", "_timer", "_wires", "acquisition", "asked", "asked_to_join", "coroutine", "done", "name",
        "process", "requests", "thrown",
    )  # fmt: skip

    def __init__(self, process: Process, name: str) -> None:
        self.process = process
        self.name = f"{process.name}/{name}"
        self.coroutine: Coroutine[Any, Any, Any] | None = None
        self.done = False
        self.asked: Any = None
        """The request that is not answered yet."""
        self.requests = 0
        """Requests it has made, those that are answered at once apart."""
        self.acquisition = ""
        """Which acquisition its tokens are drawn for."""
        self.asked_to_join = 0.0
        """When (true time) this acquisition asked for a place in line first: that counts, even if the answer was lost."""
        self.thrown = ""
        """The last error that was thrown into its coroutine: it may be on its way out."""
        self._asked: object = None
        self._wires: dict[Server, Wire] = {}
        self._timer: Entry | None = None
        self._slot: Slot | None = None
        self._do: dict[type, Callable[[Any], Any]] = {
            Now: lambda _: process.clock(),
            Draw: self._draw,
            Delist: self._delist,
            Run: self._call,
            Command: self._call,
            At: self._at,
            Sleep: self._sleep,
            Enlist: self._enlist,
            Wait: self._wait,
        }
        process.workers.append(self)

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
        except StopIteration:
            self.done = True
        except Cancelled:
            self.done = True

    def cancel(self) -> None:
        """Throw a cancellation or interrupt into whatever it is doing."""
        if self.done or self.asked is None or self.coroutine is None or not self.process.here:
            return
        self._drop_timer()
        self._asked = self._slot = None
        if self.process.face == "threads":
            for wire in self._wires.values():
                if wire.in_flight:
                    wire.close("interrupted")
        self.go(None, Cancelled())

    def discard(self) -> None:
        """The history is over, or the process is dead: end the coroutine without letting it do anything any more."""
        while self.coroutine is not None and not self.done:
            try:
                self.coroutine.throw(Discarded())
            except BaseException:  # noqa: BLE001 - whatever it says to that
                self.done = True

    # What it may ask for

    def _draw(self, _request: Draw) -> str:
        token = self.process.token()
        self.process.world.acquisitions[token] = self.acquisition
        return token

    def _at(self, request: At) -> Any:
        return self._call(request.call, self.process.world.servers[request.server])

    def _call(self, call: Call, server: Server | None = None) -> Any:
        process = self.process
        server = server or process.server
        wire = self._wires.get(server)
        if wire is None or not wire.open:
            wire = self._wires[server] = process.connect(server, self.name)
        self._asked = asked = object()
        if isinstance(call, Run) and call.script is ACQUIRE and call.args[2] and not self.asked_to_join:
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

    def _sleep(self, request: Sleep) -> Any:
        self._set_timer(self.process.clock() + request.seconds, None)
        return LATER

    def _set_timer(self, local: float, reply: Any) -> None:
        self._asked = asked = object()

        def fires() -> None:
            # A process that was paused may find that both have happened: its time is up, and it was woken.
            if self._asked is asked:
                self._asked = self._timer = self._slot = None
                self.go(reply)

        self._timer = self.process.at(local, fires)

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer[2] = None
            self._timer = None

    def _delist(self, request: Delist) -> None:
        self.process.node.waiting.delist(request.waiter)

    def _enlist(self, request: Enlist) -> Any:
        if self.process.enlist(request.waiter, Slot(self)):
            return None
        return self._get(request.waiter, request.until, None)

    def _wait(self, request: Wait) -> Any:
        process = self.process
        process.world.note("queued", self.name, request.waiter.attempt.spec.key, self.acquisition, since=self.asked_to_join)
        process.joined(request.waiter, request.answer)
        return self._get(request.waiter, request.until, TimedOut())

    def _get(self, waiter: Waiter, until: float | None, instead: Outcome | None) -> Any:
        slot = waiter.slot
        assert isinstance(slot, Slot)
        slot.instead = instead
        if slot.outcomes:
            return slot.get()
        self._slot = slot
        if until is not None:
            self._set_timer(max(until, self.process.clock()), TimedOut())
        return LATER

    def woken(self, slot: Slot) -> None:
        """Something was put into a slot, and the worker has got to it."""
        if self._slot is slot and slot.outcomes:
            self._asked = self._slot = None
            self._drop_timer()
            self.go(slot.get())


class _Later:
    """The answer takes time."""


LATER = _Later()


class Slot:
    """Where a worker waits for what becomes of its waiter."""

    __slots__ = ("_worker", "instead", "outcomes")

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.outcomes: list[Outcome | None] = []
        self.instead: Outcome | None = None
        """What "the inbox listens" means just now."""

    def put(self, outcome: Outcome | None, /) -> None:
        self.outcomes.append(outcome)
        self._worker.process.soon(self._worker.woken, self)

    def get(self) -> Outcome | None:
        outcome = self.outcomes.pop(0)
        return self.instead if outcome is None else outcome
