"""A simulated world and its processes.

In a plain `World`, a `Weather` draws how long each message takes, and events happen in the order of their times. In a
`Stepwise` world, the exhaustive search or Hypothesis chooses each step.

A `Process` has a clock, and runs the library's keeper. A world and its processes refer to each other, so they are in one
module. Servers and connections use the world only through the protocols in `network` and `server`.
"""

from __future__ import annotations

import random
import weakref
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from heapq import heappop, heappush
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, Protocol

from holdfast._core.deadlock.wait_graph import WaitGraph
from holdfast._core.lock.local_queue import LocalQueue
from holdfast._core.lock.node import Node
from holdfast._core.lock.owner import Reference
from holdfast._core.lock.ports import LeaseOwner, LockWait
from holdfast._core.lock.records import HeldLease, Waiter
from holdfast._core.lock.renewal import register
from holdfast._core.names import PREFIX
from holdfast._core.quorum.nodes import QuorumNodes
from holdfast._core.requests import (
    Answer,
    NotSent,
    RunScript,
)
from holdfast._core.single_flight.coalesce import Coalescer
from holdfast.testing.history import Event
from holdfast.testing.keyspace import Keyspace
from holdfast_lab.sim.network import END, Line, Pipe, Wire, Worker
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.virtual_time import EPOCH, Entry, Stuck, Weather

if TYPE_CHECKING:
    from holdfast._core.lock.spec import Spec
    from holdfast._core.requests import Call, Subscriber
    from holdfast._net.endpoint import Endpoint

INFINITY = float("inf")

Api = Literal["threads", "asyncio"]
"""The API that a process uses: "threads" (sync) or "asyncio" (tasks).

Each thread has its own connection, and closes it when it is interrupted during a request. All tasks of a process share one
connection. If a task is cancelled, the connection stays open and drops the reply.
"""

GOODBYE = 0.5
"""Seconds between the orderly closing of a process and its end."""

NO_MUTEX: AbstractContextManager[object] = RLock()
"""The mutex of all processes. A simulation has one thread, so nothing ever waits for it."""


class RecordedLease(Protocol):
    """A lease that records its deadlines in the history."""

    def tell(self) -> None:
        """Record the deadline of the lease if it has changed."""


class Untold(WaitGraph):
    """A graph for the detection of deadlocks that ignores all waiters. So the process does not publish its waits."""

    def somebody_waits(self, now: float) -> None:
        pass


class World:
    """A world that runs its events in the order of their times, and records a history."""

    def __init__(self, rng: random.Random, weather: Weather | None = None, *, trace: bool = False) -> None:
        self.rng = rng
        self.weather = weather or Weather(rng)
        self.trace = trace
        """True if every request and reply is recorded, for people who read the history."""
        self.now = EPOCH
        """Virtual time in seconds. The clocks of processes and servers may differ from it."""
        self.history: list[Event] = []
        self.mishap: Callable[[Wire, Call], bool] | None = None
        """Function that may inject a fault into a request that arrives at a server (see `faults.mishaps`)."""
        self.acquisitions: dict[str, str] = {}
        """Name, in the history, of the acquisition that uses each token."""
        self.places: dict[str, float] = {}
        """Virtual time at which each waiter asked to join the queue, by the name of the lease that it asked for."""
        self.resource = Keyspace()
        """The protected store. It loses no data, and refuses a write with a lower fence than an earlier one."""
        self.register: dict[str, int] = {}
        """The fence of the last accepted write to the store, by lock."""
        self.working: set[Worker] = set()
        """The workers that have not finished, except those of killed processes."""
        self.processes: list[Process] = []
        self.servers: list[Server] = []
        self.closed = False
        self.rare: Counter[str] = Counter()
        """Counts of the events that a theme has caused, by name."""
        self.steps = 0
        self._planned: dict[int, list[Callable[[], object]]] = {}
        self._heap: list[Entry] = []
        self._number = 0

    def note(
        self,
        kind: str,
        who: str = "",
        lock: str = "",
        attempt: str = "",
        *,
        fence: int = 0,
        until: float = 0.0,
        since: float = 0.0,
        note: str = "",
        lease: str = "",
        last: int = 0,
    ) -> None:
        """Record an event at the current time, unless the world is closed."""
        if not self.closed:
            self.history.append(Event(self.now, kind, who, lock, attempt, fence, until, since, note, lease, last))

    def drawn_for(self, token: str) -> str:
        """Return the name of the acquisition that uses this token, or the token if no worker uses it.

        In the history, this name is also the name of the lease.
        """
        return self.acquisitions.get(token.partition("*")[0].removesuffix("~"), token)

    def lease(self, token: str, acquisition: str) -> str:
        """Return the name of the lease that an acquisition holds, or "" if both have the same name.

        The names differ if an earlier acquisition of the process got the lease from the server and handed it on.
        """
        lease = self.drawn_for(token)
        return "" if lease == acquisition else lease

    # Planned events

    def at(self, when: float, what: Callable[..., object], *args: Any) -> Entry:
        """Plan a function call at a virtual time. To call it off, set ``entry[2]`` of the result to None."""
        self._number += 1
        entry: Entry = [when, self._number, what, args]
        heappush(self._heap, entry)
        return entry

    def soon(self, what: Callable[..., object], *args: Any) -> Entry:
        """Plan a function call after the random delay with which a thread or task wakes up."""
        return self.at(self.now + self.weather.delay(), what, *args)

    def plan(self, step: int, what: Callable[[], object]) -> None:
        """Plan a function call for when the world has run ``step`` events."""
        self._planned.setdefault(step, []).append(what)

    def calm_down(self) -> None:
        """Stop injecting faults, and stop delaying messages unusually long."""
        self.mishap = None
        self.weather.slow_share = 0.0
        self._planned.clear()

    def post(self, pipe: Pipe) -> None:
        """Plan the arrival of a pipe's last message, after that of all its earlier messages."""
        due = self.now + self.weather.delay() + pipe.wire.distance
        pipe.due = due = max(pipe.due, due)
        self._number += 1
        heappush(self._heap, [due, self._number, pipe.deliver, ()])

    # Running

    def work(self, until: float, steps: int) -> bool:
        """Run the planned events until all workers have finished. Return False if a limit is reached before.

        The limits are the virtual time ``until`` and the number of events ``steps``. Raises Stuck if a worker still waits and
        no event is planned any more.
        """
        heap, working, planned = self._heap, self.working, self._planned
        while working:
            if not heap:
                raise Stuck
            at, _, what, args = heappop(heap)
            if what is None:
                continue
            if at > until or self.steps >= steps:
                return False
            if at > self.now:  # noqa: PLR1730 - in the innermost loop, max() would cost time
                self.now = at
            self.steps += 1
            what(*args)
            if self.steps in planned:
                for what in planned[self.steps]:
                    what()
        return True

    def pass_time(self, seconds: float) -> None:
        """Run the events of the next ``seconds`` of virtual time."""
        heap, until = self._heap, self.now + seconds
        while heap and heap[0][0] <= until:
            at, _, what, args = heappop(heap)
            if what is not None:
                if at > self.now:  # noqa: PLR1730 - in the innermost loop, max() would cost time
                    self.now = at
                what(*args)
        self.now = until

    def close(self) -> None:
        """End all workers. Nothing more is recorded."""
        self.closed = True
        for process in self.processes:
            for worker in process.workers:
                worker.discard()


class _Collected:
    """Replaces the keeper's list of garbage-collected owners of leases. Each owner is passed to the keeper at once."""

    def __init__(self, call: Callable[[Callable[[], None]], None]) -> None:
        self._call = call

    def __len__(self) -> int:
        return 0

    def append(self, reference: Reference) -> None:
        self._call(reference.on_collected)


class Process:
    """A client process with its keeper. It uses one server, or several servers that vote."""

    mutex = NO_MUTEX
    looks = True
    """True, so that the keeper never starts its check for long leases. This check is not simulated."""
    closing = False

    def __init__(
        self,
        world: World,
        server: Server,
        name: str,
        *,
        api: Api = "threads",
        offset: float = 0.0,
        rate: float = 1.0,
        ahead: float = 0.0,
    ) -> None:
        self.world = world
        self.server = server
        self.name = self.process_id = name
        """The process id. Each token of the process begins with it, so this part of the token is not secret."""
        self.api = api
        self.here = True
        self.workers: list[Worker] = []
        self.tokens = 0
        self.luck: random.Random | None = None
        """Random numbers for the secret part of tokens; None: tokens differ only by their number."""
        self.is_paused = False
        self.keeper_hangs = False
        """True once the keeper hangs. It then does nothing any more, but the workers go on."""
        self.parked: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        """Function calls that became due while the process was paused. The process makes them when it resumes."""
        self.cut_off_from: set[Server] = set()
        """Servers whose connections to the process stay open, but carry no message."""
        self.far: dict[Server, float] = {}
        """Additional seconds that each message to or from a server takes."""
        self.turned_away = False
        """True while servers accept no new connection of the process."""
        self._base = EPOCH + offset
        self._rate = rate
        self.ahead = ahead
        """Seconds by which the process's wall clock is ahead of virtual time."""
        self.wake_at = INFINITY
        self.collected = _Collected(self.call)
        self._wake: Entry | None = None
        self._shared: dict[Server, Wire] = {}
        self.leases: dict[RecordedLease, float] = {}
        """The last recorded deadline of each lease, in seconds of the process's clock."""
        self.calls: deque[Callable[[], None]] = deque()
        """Functions that the keeper calls at its next run."""
        self.node = Node(self, server.name, partial(self._line, server))
        """The keeper's state for the server, or for the first of several servers."""
        self.nodes: dict[Server, Node] = {server: self.node}
        self.node.wait_graph = Untold(self.node)
        self._board: QuorumNodes | None = None
        self._local_queues: dict[bytes, LocalQueue] = {}
        self._coalescers: dict[bytes, Coalescer] = {}
        world.processes.append(self)

    @staticmethod
    def in_change() -> bool:
        """Return False: no signal or garbage collection interrupts a change of the state."""
        return False

    # The clock of the process

    def clock(self) -> float:
        return self._base + (self.world.now - EPOCH) * self._rate

    def wall(self) -> float:
        return self.world.now + self.ahead

    def true(self, local: float) -> float:
        """Return the virtual time at which the process's clock shows ``local`` seconds."""
        return EPOCH + (local - self._base) / self._rate

    def at(self, local: float, what: Callable[..., object], *args: Any) -> Entry:
        """Plan a function call for the moment at which the process's clock shows ``local`` seconds.

        A process that is paused then makes the call when it resumes. A killed process does not make it.
        """
        return self.world.at(max(self.true(local) + 1e-6, self.world.now), self._do, what, *args)

    def soon(self, what: Callable[..., object], *args: Any) -> Entry:
        return self.world.soon(self._do, what, *args)

    def _do(self, what: Callable[..., object], *args: Any) -> None:
        if self.here and not self.is_paused:
            what(*args)
        else:
            self.busy(what, *args)

    # The life of the process

    def busy(self, what: Callable[..., object], *args: Any) -> bool:
        """Return True if the process cannot call ``what`` now, because it is dead or paused.

        A paused process makes the call when it resumes.
        """
        if not self.here:
            return True
        if self.is_paused:
            self.parked.append((what, args))
        return self.is_paused

    def pause(self) -> None:
        if self.here and not self.is_paused:
            self.is_paused = True
            self.world.note("paused", self.name)

    def resume(self) -> None:
        if self.here and self.is_paused:
            self.is_paused = False
            self.world.note("resumed", self.name)
            parked, self.parked = self.parked, []
            for what, args in parked:
                self._do(what, *args)

    def hang_keeper(self) -> None:
        """Let the keeper hang from now on: it renews no lease, reads no message and reports no loss."""
        if self.here and not self.keeper_hangs:
            self.keeper_hangs = True
            self.world.note("fault", self.name, until=INFINITY, note="hung: its keeper")

    def close(self) -> None:
        """Close the process in an orderly way, as the library's `keeper.thread` does.

        All waiters fail with NotSent, and the process releases its locks. It ends `GOODBYE` seconds later.
        """
        for node in self.nodes.values():
            node.close(NotSent("holdfast was closed", node.address))
        if self._board is not None:
            self._board.close(NotSent("holdfast was closed", self.server.name))
        parts = [(node, *node.farewell()) for node in self.nodes.values()]
        for held_lease in [held_lease for _, lost, _ in parts for held_lease in lost]:
            self.report(held_lease)
        for node, _, calls in parts:
            for call in calls:
                node.commands.call(call, lambda _answer, _sent: None)
        self.world.at(self.world.now + GOODBYE, self.crash)

    def crash(self) -> None:
        """Kill the process: its connections close, and its workers stop."""
        if not self.here:
            return
        self.here = False
        self.world.working.difference_update(self.workers)
        self.world.note("crashed", self.name)
        for wire in [wire for server in self.world.servers for wire in server.wires if wire.process is self]:
            wire.open = False
            wire.up.send(END)

    # The methods of the keeper, in the place of `_runtime.keeper.thread`

    @property
    def keeper(self) -> Process:
        return self

    running_keeper = keeper

    def node_on(self, server: Server) -> Node:
        """Return the keeper's state for this server."""
        node = self.nodes.get(server)
        if node is None:
            node = self.nodes[server] = Node(self, server.name, partial(self._line, server))
            node.wait_graph = Untold(node)
        return node

    def _node(self, endpoint: Endpoint) -> Node:
        return self.node_on(self.world.servers[endpoint.port]) if endpoint.port else self.node

    def watch(self, endpoint: Endpoint, held_lease: HeldLease) -> None:
        for lost in register(self._node(endpoint), held_lease, self.clock()):
            self.report(lost)

    def attend(self, at: float) -> None:
        self.wake_by(at)

    def keep_alive(self, held: LeaseOwner) -> None:
        held.held_lease.owner = weakref.ref(held)
        self.node.want_record(self.clock(), held.held_lease.spec.prefix)
        self.wake_by(self.node.renewing.watch(held.held_lease))

    def coalescer(self, key: bytes) -> Coalescer:
        return self._coalescers.setdefault(key, Coalescer(self.mutex))

    def forget(self, endpoint: Endpoint, held_lease: HeldLease) -> None:
        self._node(endpoint).renewing.forget(held_lease.token)

    def send_until_answered(self, endpoint: Endpoint, call: RunScript[int], until: float) -> None:
        self._node(endpoint).send_until_answered(call, until)

    def call(self, what: Callable[[], None]) -> None:
        self.calls.append(what)
        if len(self.calls) == 1:
            self.soon(self._do_calls)

    def _do_calls(self) -> None:
        if self.keeper_hangs:
            return
        while self.calls:
            self.calls.popleft()()
        self.plan()

    def local_queue(self, spec: Spec) -> LocalQueue:
        """Return the local queue of a lock, which all objects for this lock in the process share."""
        local_queue = self._local_queues.get(spec.keys[0])
        if local_queue is None:
            local_queue = self._local_queues[spec.keys[0]] = self.node.local_queue(spec)
        return local_queue

    def quorum_nodes(self) -> QuorumNodes:
        """Return the keeper's state for all servers, which vote together."""
        if self._board is None:
            self._board = QuorumNodes(tuple(self.node_on(server) for server in self.world.servers))
        return self._board

    def quorum_queue(self, spec: Spec) -> LocalQueue:
        """Return the local queue of a lock that all servers vote on."""
        local_queue = self._local_queues.get(spec.keys[0])
        if local_queue is None:
            local_queue = self._local_queues[spec.keys[0]] = self.quorum_nodes().local_queue(spec)
        return local_queue

    def local_queues(self) -> list[LocalQueue]:
        return list(self._local_queues.values())

    def nodes_at(self, address: str) -> list[Node]:
        return [node for node in self.nodes.values() if node.address == address]

    def record(self, waits: Sequence[LockWait], labels: Mapping[bytes, str]) -> str:  # noqa: ARG002 - no code reads the record
        return "{}"

    def report(self, held_lease: HeldLease) -> None:
        whole = held_lease.lost_with_it()
        owner = whole.owner() if whole is not None else None
        if owner is not None:
            owner.notice_loss()

    def safely(self, action: Callable[..., object], *args: Any) -> bool:
        action(*args)  # an error is a defect, and ends the history
        return True

    def _line(
        self,
        server: Server,
        on_push: Callable[[list[Any]], None] | None = None,
        on_closed: Callable[[], None] | None = None,
    ) -> Line:
        return Line(self, server, on_push, on_closed)

    def register_waiter(self, waiter: Waiter) -> bool:
        now = self.clock()
        ready = self.node.register_waiter(waiter, now)
        if not ready:
            self.wake_by(now)
        return ready

    def subscribe(self, server: Server, listener: Subscriber) -> bool:
        """Subscribe a listener. Return True if the process's inbox is subscribed already."""
        node = self.node_on(server)
        node.want_record(self.clock(), listener.prefix, needs_record=listener.needs_record)
        node.listeners[listener.listener_id] = listener
        self.wake_by(self.clock())
        return node.reachable(listener.prefix)

    def joined(self, waiter: Waiter, answer: Answer[Any]) -> None:
        waiting = self.node.waiting
        waiting.joined(waiter, answer, self.clock())
        self.wake_by(min(waiting.round_at, waiter.refresh_at))

    def warm_up(self) -> None:
        """Prepare the keeper as if it had run for a while: subscribed, with its process record written."""
        node = self.node
        node.record_at = EPOCH + 1e6
        node.be_reachable(PREFIX)
        self._cancel_turn()
        node.turn(self.clock())

    def plan(self) -> None:
        """Plan the next run of the keeper. This must follow each change of its state."""
        self.tell()
        self.wake_by(self.node.next_at() if len(self.nodes) == 1 else min(node.next_at() for node in self.nodes.values()))

    def tell(self) -> None:
        """Record the deadline of each lease whose deadline has changed."""
        for lease in self.leases:
            lease.tell()

    def wake_by(self, local: float) -> None:
        if local < self.wake_at:
            self._cancel_turn()
            self.wake_at = local
            self._wake = self.at(local, self._turn) if local > self.clock() else self.soon(self._turn)

    def _cancel_turn(self) -> None:
        if self._wake is not None:
            self._wake[2] = None
        self._wake, self.wake_at = None, INFINITY

    def _turn(self) -> None:
        self._wake, self.wake_at = None, INFINITY
        if self.keeper_hangs:
            return
        for node in list(self.nodes.values()):
            node.turn(self.clock())
        self.plan()

    # The connections of its workers

    def connect(self, server: Server, who: str) -> Wire:
        """Return a connection for a worker. All tasks of a process share one; each thread has its own.

        Raises NotSent if the server is unreachable, or accepts no new connection of the process.
        """
        shared = self._shared.get(server)
        if shared is not None and shared.open:
            return shared
        if not server.reachable or self.turned_away:
            raise NotSent(f"no server at {server.name}", server.name)
        wire = Wire(self, server, self.name if self.api == "asyncio" else who)
        if self.api == "asyncio":
            self._shared[server] = wire
        return wire

    def token(self) -> str:
        self.tokens += 1
        chance = "" if self.luck is None else f"{self.luck.getrandbits(16):04x}"
        return f"{self.name}.{self.tokens:04x}{chance}"
