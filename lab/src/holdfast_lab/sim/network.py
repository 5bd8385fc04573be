"""Simulated connections. As in TCP, the messages of one direction arrive in the order of sending.

When a connection is cut, messages under way may or may not arrive. When it falls silent, no message arrives any more, and
neither end notices. A server may carry out a request after the sender has closed the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast._core.lock.ports import Then
from holdfast._core.requests import Call, Command, NotSent, RunScript, Unknown, WireError
from holdfast_lab.sim.virtual_time import Entry

if TYPE_CHECKING:
    from holdfast._core.lock.node import Node

INFINITY = float("inf")


class World(Protocol):
    """The part of `world.World` that connections use."""

    now: float
    trace: bool

    @property
    def servers(self) -> Sequence[object]:
        """All servers of the world."""

    def at(self, when: float, what: Callable[..., object], *args: Any) -> Entry:
        """Plan a function call at the virtual time ``when``."""

    def soon(self, what: Callable[..., object], *args: Any) -> Entry:
        """Plan a function call after the random delay with which a thread or task wakes up."""

    def post(self, pipe: Pipe) -> None:
        """Plan the arrival of the message that was added to a pipe last."""

    @property
    def note(self) -> Callable[..., None]:
        """Append an event to the history, with the arguments of `world.World.note`."""


class ClientProcess(Protocol):
    """The part of `world.Process` that its connections use. The argument ``local`` is a time by the process's clock."""

    name: str
    here: bool
    is_paused: bool
    keeper_hangs: bool
    turned_away: bool
    node: Node

    @property
    def world(self) -> World:
        """The world of the process."""

    @property
    def cut_off_from(self) -> Collection[Any]:
        """The servers from which the process is cut off."""

    @property
    def far(self) -> Mapping[Any, float]:
        """Additional seconds that each message to or from a server takes."""

    @property
    def workers(self) -> Sequence[Worker]:
        """The workers of the process."""

    def clock(self) -> float:
        """Return the time of the process's clock."""

    def true(self, local: float) -> float:
        """Return the virtual time at which the process's clock shows ``local``."""

    def at(self, local: float, what: Callable[..., object], *args: Any) -> Entry:
        """Plan a function call for the time at which the process's clock shows ``local``."""

    def soon(self, what: Callable[..., object], *args: Any) -> Entry:
        """Plan a function call after the random delay with which a thread or task wakes up."""

    def busy(self, what: Callable[..., object], *args: Any) -> bool:
        """Return True if the process cannot call ``what`` now, because it was killed or is paused."""

    def plan(self) -> None:
        """Plan the next run of the process's keeper."""

    def tell(self) -> None:
        """Record the deadline of each lease whose deadline has changed."""


class Worker(Protocol):
    """The part of `worker.Worker` that its process and its world use."""

    name: str
    acquisition: str
    asked: Any
    done: bool

    def cancel(self) -> None:
        """Throw a cancellation (task) or an interrupt (thread) into the worker's coroutine."""

    def discard(self) -> None:
        """End the worker's coroutine without letting it send anything."""


class Server(Protocol):
    """The part of `server.Server` that its connections use."""

    name: str
    reachable: bool

    def accept(self, wire: Wire) -> int:
        """Accept a new connection, and return its number."""

    def receive(self, wire: Wire, message: Call | EndOfStream) -> None:
        """Carry out a request. If the server hangs, keep the request until it resumes."""

    def serve(self, wire: Wire, call: Call) -> list[Any]:
        """Carry out a call, and return the replies."""

    def again(self, wire: Wire, call: Call) -> None:
        """Carry out a duplicate of a request, and drop the reply."""

    def drop(self, wire: Wire) -> None:
        """Remove a connection and its subscriptions."""


class EndOfStream:
    """The last message in one direction: the sender has closed the connection."""


END = EndOfStream()


class Pipe:
    """The messages under way in one direction of a connection."""

    __slots__ = ("arrive", "due", "messages", "stalled", "wire")

    def __init__(self, wire: Wire, arrive: Callable[[Any], None]) -> None:
        self.wire = wire
        self.arrive = arrive
        self.messages: deque[Any] = deque()
        self.due = 0.0
        """Virtual time at which the message that was sent last arrives. `Stepwise` does not use it."""
        self.stalled = 0.0
        """Virtual time until which the pipe delivers nothing."""

    def send(self, message: Any) -> None:
        self.messages.append(message)
        self.wire.world.post(self)

    def deliver(self) -> None:
        """Deliver the first message. If the pipe is stalled, do so later."""
        world = self.wire.world
        if self.stalled > world.now:
            world.at(self.stalled, self.deliver)
        elif self.messages and not self.wire.silent:
            self.arrive(self.messages.popleft())

    def stall(self, message: Any, seconds: float) -> None:
        """Put a message back at the front of the pipe, and delay it and all later ones."""
        world = self.wire.world
        self.messages.appendleft(message)
        self.stalled = world.now + seconds
        world.at(self.stalled, self.deliver)


class PublishedMessage(NamedTuple):
    """A published message on its way to a subscriber."""

    channel: bytes
    payload: bytes


class UnansweredCall:
    """A call that has no reply yet."""

    __slots__ = ("call", "deadline", "sent", "then")

    def __init__(self, call: Call, then: Then, sent: float, deadline: float) -> None:
        self.call = call
        self.then = then
        self.sent = sent
        self.deadline = deadline


class Wire:
    """A connection of a process to a server, with a pipe in each direction."""

    __slots__ = (
        "_alarm",
        "channels",
        "cut_off",
        "distance",
        "down",
        "in_flight",
        "label",
        "number",
        "on_lost",
        "on_push",
        "open",
        "process",
        "server",
        "silent",
        "up",
        "world",
    )

    def __init__(
        self,
        process: ClientProcess,
        server: Server,
        label: str,
        on_lost: Callable[[], None] | None = None,
        on_push: Callable[[list[Any]], None] | None = None,
    ) -> None:
        self.world = process.world
        self.process = process
        self.server = server
        self.label = label if len(self.world.servers) == 1 else f"{label} {server.name}"
        """Name of the worker, process or keeper that uses the connection. With several servers, the server's name follows."""
        self.on_lost = on_lost
        self.on_push = on_push
        self.open = True
        """False once the process has closed the connection, has noticed that it was cut, or has crashed."""
        self.cut_off = False
        """True once the connection is cut. Later messages are lost, even if the process has not noticed the cut."""
        self.silent = False
        self.channels: set[bytes] = set()
        """Channels that are subscribed on this connection."""
        self.in_flight: deque[UnansweredCall] = deque()
        self.up = Pipe(self, partial(server.receive, self))
        self.down = Pipe(self, self._receive)
        self._alarm: Entry | None = None
        self.number = server.accept(self)
        self.silent = server in process.cut_off_from
        self.distance = process.far.get(server, 0.0)
        """Seconds by which each message is additionally delayed."""

    # The process's end

    def send(self, call: Call, then: Then) -> None:
        """Send a call. ``then`` is called with the outcome, at most once.

        The outcome is the parsed reply or a WireError, with the time of sending by the process's clock.
        """
        self.process.tell()
        now = self.process.clock()
        deadline = now + call.timeout
        self.in_flight.append(UnansweredCall(call, then, now, deadline))
        if self.world.trace:
            self.world.note("sent", self.process.name, note=f"{show(call)} at local {now:.6f}")
        if not self.cut_off:
            self.up.send(call)
        if self._alarm is None or self._alarm[2] is None or self._alarm[0] > self.process.true(deadline):
            self._set_alarm(deadline)

    def _set_alarm(self, deadline: float) -> None:
        if self._alarm is not None:
            self._alarm[2] = None
        self._alarm = self.process.at(deadline, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        if not self.in_flight or not self.open:
            return
        first = min(request.deadline for request in self.in_flight)
        if first <= self.process.clock():
            self.close("no answer in time")
        else:
            self._set_alarm(first)

    def _receive(self, message: Any) -> None:
        process = self.process
        if not self.open or ((process.is_paused or not process.here) and process.busy(self._receive, message)):
            return
        if message is END:
            self.close("the connection was closed")
        elif isinstance(message, PublishedMessage):
            if self.on_push is not None:
                self.on_push([b"message", message.channel, message.payload])
        else:
            request = self.in_flight.popleft()  # a reply without a request would be a defect of the simulation
            if self.world.trace:
                self.world.note("answered", self.process.name, note=f"{show(request.call)} -> {message!r}")
            if not self.in_flight and self._alarm is not None:
                self._alarm[2] = None
            request.then(typed(request.call, message), request.sent)

    def close(self, why: str) -> None:
        """Close the process's end. Requests under way fail with Unknown, but the server may still carry them out."""
        if not self.open:
            return
        self.open = False
        if self.silent:
            self.world.note("healed", self.process.name, note="silence")
        if self._alarm is not None:
            self._alarm[2] = None
        self.down.messages.clear()
        if not self.cut_off:
            self.up.send(END)
        failed, self.in_flight = self.in_flight, deque()
        if self.on_lost is not None:
            self.on_lost()
        for request in failed:
            request.then(Unknown(f"{self.server.name}: {why}", self.server.name), request.sent)

    # The server's end

    def carry_out(self, call: Call | EndOfStream) -> None:
        """Let the server carry out a call, and send the reply."""
        if isinstance(call, EndOfStream):
            self.server.drop(self)
            return
        for reply in self.server.serve(self, call):
            if self.open and not self.cut_off:
                self.down.send(reply)

    def mend(self) -> None:
        """End the silence. Waiting messages arrive even if the sender has closed, because TCP sends lost data again."""
        self.silent = False
        for pipe in (self.up, self.down):
            for _ in pipe.messages:
                self.world.soon(pipe.deliver)

    def cut(self, *, requests_arrive: bool = False) -> None:
        """Cut the connection. Replies under way are lost. Requests under way arrive only if ``requests_arrive`` is True."""
        if self.open and not self.cut_off:
            if requests_arrive:
                self.up.send(END)
            self.cut_off = True
            self.down.messages.clear()
            self.down.send(END)
        if not requests_arrive:
            self.up.messages.clear()
            self.server.drop(self)


def typed(call: Call, reply: Any) -> Any:
    """Return a reply as operations expect it. The reply of a script is parsed. All other replies are unchanged."""
    if isinstance(reply, WireError):
        return reply
    return call.script.parse(reply) if isinstance(call, RunScript) else reply


def show(call: Call) -> str:
    if isinstance(call, Command):
        return " ".join(part.decode() if isinstance(part, bytes) else str(part) for part in call.args)
    return f"{call.script.name} {' '.join(map(str, call.args))}"


class Line:
    """A keeper's connection to a server. It replaces the library's `PipelinedConnection`.

    The keeper opens the connection at its first call, and again at the first call after the connection was lost.
    """

    __slots__ = ("_on_closed", "_on_push", "backoff", "label", "opening", "process", "queued", "retry_at", "server", "wire")

    def __init__(
        self,
        process: ClientProcess,
        server: Server,
        on_push: Callable[[list[Any]], None] | None = None,
        on_closed: Callable[[], None] | None = None,
    ) -> None:
        self.process = process
        self.server = server
        self.wire: Wire | None = None
        self.label = f"{process.name} {'inbox' if on_push else 'keeper'}"
        self._on_push = on_push
        self._on_closed = on_closed
        self.opening = False
        self.queued: list[tuple[Call, Then]] = []
        self.retry_at = 0.0
        self.backoff = 0.0

    def call(self, call: Call, then: Then) -> None:
        if self.process.keeper_hangs:
            return
        if self.wire is not None:
            self.wire.send(call, self._planning(then))
            return
        now = self.process.clock()
        if not self.opening and now < self.retry_at:
            then(NotSent(f"no connection to {self.server.name}", self.server.name), now)
            return
        self.queued.append((call, then))
        if not self.opening:
            self.opening = True
            self.process.soon(self._opened)

    def _opened(self) -> None:
        if self.process.keeper_hangs:
            return
        self.opening = False
        queued, self.queued = self.queued, []
        if not self.server.reachable or self.process.turned_away:
            self.backoff = min(1.0, max(0.05, 2 * self.backoff))
            now = self.process.clock()
            self.retry_at = now + self.backoff
            for _, then in queued:
                then(NotSent(f"no server at {self.server.name}", self.server.name), now)
            self.process.plan()
            return
        self.backoff = 0.0
        self.wire = Wire(self.process, self.server, self.label, self._lost, self._pushed if self._on_push else None)
        for call, then in queued:
            self.wire.send(call, self._planning(then))

    def _planning(self, then: Then) -> Then:
        """Return a callback that calls ``then`` and plans the next run of the keeper, unless the keeper hangs."""

        def planning(answer: Any, sent: float) -> None:
            if not self.process.keeper_hangs:
                then(answer, sent)
                self.process.plan()

        return planning

    def _pushed(self, reply: list[Any]) -> None:
        assert self._on_push is not None
        if not self.process.keeper_hangs:
            self._on_push(reply)
            self.process.plan()

    def _lost(self) -> None:
        self.wire = None
        if self._on_closed is not None and not self.process.keeper_hangs:
            self._on_closed()
            self.process.plan()

    def overdue(self, now: float) -> None:
        """Do nothing. A `Wire` closes itself when a reply is overdue."""

    def next_at(self) -> float:
        return INFINITY

    def has_unread(self) -> bool:
        """Return False: every message is read as soon as it arrives."""
        return False

    def reclaim(self) -> None:
        """Do nothing: a connection is never lent to another thread."""

    def fail(self, why: str) -> None:
        if self.wire is not None:
            self.wire.close(why)
