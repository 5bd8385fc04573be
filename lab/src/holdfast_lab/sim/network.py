"""Simulated connections between processes and servers. As in TCP, the messages of one direction arrive in the order of
sending.

A connection can be cut: messages that are under way then may or may not arrive. A connection can also fall silent: no
message arrives any more, and neither end notices. A server may carry out a request after the sender has closed the
connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast._core.lock.ports import Then
from holdfast._core.requests import Call, Command, NotSent, Run, Unknown, WireError
from holdfast_lab.sim.virtual_time import Entry

if TYPE_CHECKING:
    from holdfast._core.lock.node import Node

INFINITY = float("inf")


class World(Protocol):
    """The part of the simulated world that connections use: `world.World`."""

    now: float
    trace: bool

    @property
    def servers(self) -> Sequence[object]:
        """Return all servers of the world."""

    def at(self, when: float, what: Callable[..., object], *args: Any) -> Entry:
        """Plan a function call at the virtual time ``when``."""

    def soon(self, what: Callable[..., object], *args: Any) -> Entry:
        """Plan a function call after the random delay with which a thread or task wakes up."""

    def post(self, pipe: Pipe) -> None:
        """Plan the arrival of a message that was put into a pipe."""

    def note(self, kind: str, who: str = "", lock: str = "", attempt: str = "", **facts: Any) -> None:
        """Append an event to the history."""


class Client(Protocol):
    """The part of a process that its connections use (see `world.Process`). The parameter ``local`` is a time in seconds by the
    process's clock."""

    name: str
    here: bool
    is_paused: bool
    keeper_hangs: bool
    turned_away: bool
    node: Node

    @property
    def world(self) -> World:
        """Return the world that the process is in."""

    @property
    def cut_off_from(self) -> Collection[Any]:
        """Return the servers from which the process is cut off: no message arrives in either direction."""

    @property
    def far(self) -> Mapping[Any, float]:
        """Return the seconds by which each message to or from a server takes longer, by server."""

    @property
    def workers(self) -> Sequence[Worker]:
        """Return the workers of the process."""

    def clock(self) -> float:
        """Return the time that the clock of the process shows."""

    def true(self, local: float) -> float:
        """Return the virtual time at which the clock of the process shows ``local`` seconds."""

    def at(self, local: float, what: Callable[..., object], *args: Any) -> Entry:
        """Plan a function call for the time at which the clock of the process shows ``local`` seconds."""

    def soon(self, what: Callable[..., object], *args: Any) -> Entry:
        """Plan a function call of the process, after the random delay with which a thread or task wakes up."""

    def busy(self, what: Callable[..., object], *args: Any) -> bool:
        """Return True if the process cannot call ``what`` now, because it was killed or is paused."""

    def plan(self) -> None:
        """Plan the next run of the process's keeper (background thread)."""

    def tell(self) -> None:
        """Record in the history the new deadline of each lease whose deadline has changed."""


class Worker(Protocol):
    """A simulated thread or task, as its process and its world use it. `worker.Worker` implements it."""

    name: str
    acquisition: str
    asked: Any
    done: bool

    def cancel(self) -> None:
        """Throw a cancellation (task) or an interrupt (thread) into the coroutine, at the request that the worker waits for."""

    def discard(self) -> None:
        """End the coroutine of the worker without letting it send anything."""


class Server(Protocol):
    """The part of a simulated server that its connections use: `server.Server`."""

    name: str
    reachable: bool

    def accept(self, wire: Wire) -> int:
        """Accept a new connection, and return its number."""

    def receive(self, wire: Wire, message: Call | End) -> None:
        """Carry out a request that has arrived. If the server hangs, keep the request until the server resumes."""

    def serve(self, wire: Wire, call: Call) -> list[Any]:
        """Carry out a call, and return the replies to send."""

    def again(self, wire: Wire, call: Call) -> None:
        """Carry out a request once more, as for a duplicate on the network, and drop the reply."""

    def drop(self, wire: Wire) -> None:
        """Remove a connection and its subscriptions."""


class End:
    """The last message in one direction of a connection. It says that the sender has closed the connection."""


END = End()


class Pipe:
    """The messages under way in one direction of a connection."""

    __slots__ = ("arrive", "due", "messages", "stalled", "wire")

    def __init__(self, wire: Wire, arrive: Callable[[Any], None]) -> None:
        self.wire = wire
        self.arrive = arrive
        self.messages: deque[Any] = deque()
        self.due = 0.0
        """Virtual time at which the last message arrives. A world in which a search chooses the order of messages does not
        use it."""
        self.stalled = 0.0
        """Virtual time until which no message of the pipe is delivered."""

    def send(self, message: Any) -> None:
        self.messages.append(message)
        self.wire.world.post(self)

    def deliver(self) -> None:
        """Deliver the first message of the pipe. If the pipe is stalled, do so later. If the connection is silent, do
        nothing."""
        world = self.wire.world
        if self.stalled > world.now:
            world.at(self.stalled, self.deliver)
        elif self.messages and not self.wire.silent:
            self.arrive(self.messages.popleft())

    def stall(self, message: Any, seconds: float) -> None:
        """Put a message back at the front of the pipe, and delay it and all later messages by ``seconds``."""
        world = self.wire.world
        self.messages.appendleft(message)
        self.stalled = world.now + seconds
        world.at(self.stalled, self.deliver)


class Push(NamedTuple):
    """A published message on its way from a server to a subscriber."""

    channel: bytes
    payload: bytes


class Request:
    """A call that a process has sent and that has no reply yet."""

    __slots__ = ("call", "deadline", "sent", "then")

    def __init__(self, call: Call, then: Then, sent: float, deadline: float) -> None:
        self.call = call
        self.then = then
        self.sent = sent
        self.deadline = deadline


class Wire:
    """A simulated connection of a process to a server, with a pipe of messages in each direction."""

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
        process: Client,
        server: Server,
        label: str,
        on_lost: Callable[[], None] | None = None,
        on_push: Callable[[list[Any]], None] | None = None,
    ) -> None:
        self.world = process.world
        self.process = process
        self.server = server
        self.label = label if len(self.world.servers) == 1 else f"{label} {server.name}"
        """Name of the worker or keeper that uses the connection, followed by the server's name if there are several servers."""
        self.on_lost = on_lost
        self.on_push = on_push
        self.open = True
        """True until the process closes the connection, crashes, or notices that the connection was cut."""
        self.cut_off = False
        """True once the connection is cut. Messages sent after that are lost, even if the process has not noticed the
        cut yet."""
        self.silent = False
        self.channels: set[bytes] = set()
        """Pub/sub channels that are subscribed on this connection."""
        self.in_flight: deque[Request] = deque()
        self.up = Pipe(self, self._serve)
        self.down = Pipe(self, self._receive)
        self._alarm: Entry | None = None
        self.number = server.accept(self)
        self.silent = server in process.cut_off_from
        self.distance = process.far.get(server, 0.0)
        """Additional seconds by which each message on this connection is delayed."""

    # The process's end

    def send(self, call: Call, then: Then) -> None:
        """Send a call to the server. Call ``then`` with the outcome, at most once.

        The arguments of ``then`` are the parsed reply or a WireError, and the time of sending, in seconds of the process's
        clock.
        """
        self.process.tell()
        now = self.process.clock()
        deadline = now + call.timeout
        self.in_flight.append(Request(call, then, now, deadline))
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
        elif isinstance(message, Push):
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
        """Close the process's end of the connection. Requests under way fail with Unknown, but the server may still carry
        them out."""
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

    def _serve(self, call: Call | End) -> None:
        self.server.receive(self, call)

    def carry_out(self, call: Call | End) -> None:
        """Have the server carry out a call and send the reply. If ``call`` is an `End`, drop the connection instead."""
        if isinstance(call, End):
            self.server.drop(self)
            return
        for reply in self.server.serve(self, call):
            if self.open and not self.cut_off:
                self.down.send(reply)

    def mend(self) -> None:
        """End the silence of the connection. As TCP sends lost data again, waiting messages now arrive, even if the sender
        has closed."""
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
    """Return the reply to a call in the form that operations expect. The reply of a script is parsed. The reply of a command
    and a WireError are returned unchanged."""
    if isinstance(reply, WireError):
        return reply
    return call.script.parse(reply) if isinstance(call, Run) else reply


def show(call: Call) -> str:
    """Return a call as readable text, for the trace of a history."""
    if isinstance(call, Command):
        return " ".join(part.decode() if isinstance(part, bytes) else str(part) for part in call.args)
    return f"{call.script.name} {' '.join(map(str, call.args))}"


class Line:
    """A keeper's connection to a server, which takes the place of production's `PipelinedConnection`.

    The simulated connection (wire) is opened at the first call, and again at the first call after a loss.
    """

    __slots__ = ("_on_closed", "_on_push", "backoff", "label", "opening", "process", "queued", "retry_at", "server", "wire")

    def __init__(
        self,
        process: Client,
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
        """Return a callback that calls ``then`` and plans the next run of the keeper. While the keeper hangs, the callback
        does nothing."""

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
        """Do nothing. In production, this closes a connection whose reply is overdue. In the simulation, the connection closes
        itself."""

    def next_at(self) -> float:
        return INFINITY

    def has_unread(self) -> bool:
        """Return False, because the simulation reads every message as soon as it arrives."""
        return False

    def reclaim(self) -> None:
        """Do nothing. In production, this takes back a connection that was lent to another thread, which never happens here."""

    def fail(self, why: str) -> None:
        if self.wire is not None:
            self.wire.close(why)
