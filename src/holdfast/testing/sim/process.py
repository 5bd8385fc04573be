"""A simulated process with its own clock, and with a keeper (background thread) that uses production's bookkeeping."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from holdfast._core.deadlock.wait_graph import WaitGraph
from holdfast._core.lock.local_queue import LocalQueue
from holdfast._core.lock.node import Node
from holdfast._core.lock.ports import Wait
from holdfast._core.lock.records import Held, HeldLease, Waiter
from holdfast._core.names import PREFIX
from holdfast._core.quorum.nodes import QuorumNodes
from holdfast._core.requests import (
    Answer,
    GetCoalescer,
    KeepAlive,
    NotSent,
    Run,
    SendUntilAnswered,
    StopKeepAlive,
)
from holdfast._core.single_flight.coalesce import Coalescer
from holdfast.testing.sim.network import END, Line, Wire
from holdfast.testing.sim.world import EPOCH

if TYPE_CHECKING:
    import random

    from holdfast._core.lock.records import Spec
    from holdfast._core.requests import Subscriber
    from holdfast._net.endpoint import Endpoint
    from holdfast.testing.sim.server import Server
    from holdfast.testing.sim.worker import Worker
    from holdfast.testing.sim.world import Entry, World

INFINITY = float("inf")

Face = Literal["threads", "asyncio"]
"""The API that a simulated process uses: sync (threads) or asyncio (tasks).

Each thread has its own connection, and closes the connection when it is interrupted. All tasks share one connection, which
drops the reply to a cancelled task.
"""

GOODBYE = 0.5
"""Seconds between the orderly close of a process and its end."""

NO_MUTEX: AbstractContextManager[object] = nullcontext()


class Told(Protocol):
    """A lease that records its deadlines in the history."""

    def tell(self) -> None:
        """Record the deadline of the lease in the history if it has changed."""


class Untold(WaitGraph):
    """A wait graph (the data of deadlock detection) that ignores waiters, and so publishes nothing."""

    def somebody_waits(self, now: float) -> None:
        pass


class Process:
    """A simulated client process with its keeper (background thread). Uses one server, or several that vote."""

    mutex = NO_MUTEX

    def __init__(
        self,
        world: World,
        server: Server,
        name: str,
        *,
        face: Face = "threads",
        offset: float = 0.0,
        rate: float = 1.0,
        ahead: float = 0.0,
    ) -> None:
        self.world = world
        self.server = server
        self.name = self.process_id = name
        """The process id: the public part of the process's tokens, in hexadecimal."""
        self.face = face
        self.here = True
        self.workers: list[Worker] = []
        self.tokens = 0
        self.luck: random.Random | None = None
        """Source of the random part of the process's tokens; None if the tokens are only numbered."""
        self.is_paused = False
        self.keeper_hangs = False
        """True once the process's keeper hangs: it does nothing any more, while the workers go on."""
        self.parked: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        """Function calls that fell due while the process was paused, and that it makes when it resumes."""
        self.cut_off_from: set[Server] = set()
        """Servers that are unreachable from the process: connections stay open, but no message arrives."""
        self.far: dict[Server, float] = {}
        """Seconds that each message between the process and a server is delayed in addition, by server."""
        self._base = EPOCH + offset
        self._rate = rate
        self.ahead = ahead
        """Seconds by which the process's wall clock is ahead of virtual time."""
        self._wake_at = INFINITY
        self._wake: Entry | None = None
        self._shared: dict[Server, Wire] = {}
        self.leases: dict[Told, float] = {}
        """The deadline (local seconds) that was last recorded in the history, by lease."""
        self.calls: deque[Callable[[], None]] = deque()
        """Functions that the keeper calls when it runs next."""
        self.node = Node(self, server.name, partial(self._line, server))
        """The keeper's state for the process's server; with several servers, for the first of them."""
        self.nodes: dict[Server, Node] = {server: self.node}
        self.node.wait_graph = Untold(self.node)
        self._board: QuorumNodes | None = None
        self._local_queues: dict[bytes, LocalQueue] = {}
        self.coalescers: dict[bytes, Coalescer] = {}
        self.keep_alive_handlers: dict[type, Callable[[Any], Any]] = {
            KeepAlive: lambda request: self._keep_alive(request.held),
            StopKeepAlive: lambda request: self.node.renewing.forget(request.held_lease.token),
            SendUntilAnswered: lambda request: self.node.send_until_answered(request.call, request.until),
            GetCoalescer: lambda request: self.coalescers.setdefault(request.key, Coalescer(self.mutex)),
        }
        """Handlers of the requests that workers leave to the keeper, by type of request."""
        world.processes.append(self)

    @staticmethod
    def in_change() -> bool:
        """Return False: in the simulation, no signal or garbage collection interrupts a change of the state."""
        return False

    # The clock of the process

    def clock(self) -> float:
        return self._base + (self.world.now - EPOCH) * self._rate

    def wall(self) -> float:
        """Return the time that the process's wall clock shows, in seconds."""
        return self.world.now + self.ahead

    def true(self, local: float) -> float:
        """Return the virtual time at which the process's clock shows ``local`` seconds."""
        return EPOCH + (local - self._base) / self._rate

    def at(self, local: float, what: Callable[..., object], *args: Any) -> Entry:
        """Plan a function call for the moment at which the process's clock shows ``local`` seconds; return the entry.

        If the process is paused then, it makes the call when it resumes. A killed process makes no calls.
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
        """Return True if the process cannot call ``what`` now, because it was killed or is paused.

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
        """Close the process in an orderly way, as `keeper.thread` does.

        The waiters fail with NotSent, the held locks are released, and the process ends `GOODBYE` seconds later.
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
        """Kill the process: its connections close, and none of its workers goes on."""
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
        """Return the keeper's state for a server, created at the first use."""
        node = self.nodes.get(server)
        if node is None:
            node = self.nodes[server] = Node(self, server.name, partial(self._line, server))
            node.wait_graph = Untold(node)
        return node

    def _node(self, endpoint: Endpoint) -> Node:
        return self.node_on(self.world.servers[endpoint.port]) if endpoint.port else self.node

    def watch(self, endpoint: Endpoint, held_lease: HeldLease, *, hurry: bool = True) -> None:  # noqa: ARG002 - no hurry here
        node = self._node(endpoint)
        node.want_record(self.clock(), held_lease.spec.prefix)
        self.wake_by(node.renewing.watch(held_lease))

    def _keep_alive(self, held: Held) -> None:
        held.held_lease.owner = weakref.ref(held)
        self.node.want_record(self.clock(), held.held_lease.spec.prefix)
        self.wake_by(self.node.renewing.watch(held.held_lease))

    def forget(self, endpoint: Endpoint, held_lease: HeldLease) -> None:
        self._node(endpoint).renewing.forget(held_lease.token)

    def send_until_answered(self, endpoint: Endpoint, call: Run[int], until: float) -> None:
        self._node(endpoint).send_until_answered(call, until)

    def refer(self, owner: Any, on_collected: Callable[[], None]) -> Callable[[], Any]:
        return weakref.ref(owner, lambda _: self.call(on_collected))

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
        """Return the local queue of a lock, which all lock objects for this lock in the process share."""
        local_queue = self._local_queues.get(spec.keys[0])
        if local_queue is None:
            local_queue = self._local_queues[spec.keys[0]] = self.node.local_queue(spec)
        return local_queue

    def quorum_queue(self, spec: Spec) -> LocalQueue:
        """Return the local queue of a lock that all servers vote on."""
        if self._board is None:
            self._board = QuorumNodes(tuple(self.node_on(server) for server in self.world.servers))
        local_queue = self._local_queues.get(spec.keys[0])
        if local_queue is None:
            local_queue = self._local_queues[spec.keys[0]] = self._board.local_queue(spec)
        return local_queue

    def local_queues(self) -> list[LocalQueue]:
        return list(self._local_queues.values())

    def record(self, waits: Sequence[Wait], labels: Mapping[bytes, str]) -> str:  # noqa: ARG002 - no code reads the record
        return "{}"

    def report(self, held_lease: HeldLease) -> None:
        whole = held_lease.lost_with_it()
        owner = whole.owner() if whole is not None else None
        if owner is not None:
            owner.notice_loss()

    def safely(self, action: Callable[..., object], *args: Any) -> bool:
        action(*args)  # an error is a defect, and ends the history, so do not catch it
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
        """Subscribe a listener to notifications of a server. Return True if the process's inbox is subscribed already."""
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
        """Set the keeper up as if it had run for a while: its inbox is subscribed, and the process record is written."""
        node = self.node
        node._record_at = EPOCH + 1e6  # noqa: SLF001
        node._reachable_prefixes.add(PREFIX)  # noqa: SLF001
        node._tend_inboxes(self.clock())  # noqa: SLF001

    def plan(self) -> None:
        """Plan the time at which the keeper runs next, after its state may have changed."""
        self.tell()
        self.wake_by(min(node.next_at() for node in self.nodes.values()))

    def tell(self) -> None:
        """Record in the history the deadlines of leases that have changed."""
        for lease in self.leases:
            lease.tell()

    def wake_by(self, local: float) -> None:
        if local < self._wake_at:
            self._wake_at = local
            if self._wake is not None:
                self._wake[2] = None
            self._wake = self.at(local, self._turn) if local > self.clock() else self.soon(self._turn)

    def _turn(self) -> None:
        self._wake, self._wake_at = None, INFINITY
        if self.keeper_hangs:
            return
        for node in list(self.nodes.values()):
            node.turn(self.clock())
        self.plan()

    # The connections of its workers

    def connect(self, server: Server, who: str) -> Wire:
        """Return a connection to ``server`` for a worker; tasks share one. Raise NotSent if the server is unreachable."""
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
        chance = "" if self.luck is None else f"{self.luck.getrandbits(16):04x}"
        return f"{self.name}.{self.tokens:04x}{chance}"
