"""Fingerprints of the states of a simulated world, by which the exhaustive search recognizes a state.

A fingerprint covers everything on which the future of a history depends, and nothing else.

- Times are relative to the present time.
- Fences and other large numbers are reduced to their order, because the library only compares them.
- The state of a worker is the position of its coroutine in the code, with the local variables of each frame.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache, partial
from operator import attrgetter
from types import CodeType, CoroutineType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol

from holdfast._core.election import Candidacy, ElectionKeys
from holdfast._core.lock.local_queue import KEEPER_TURN, LocalQueue
from holdfast._core.lock.node import Node
from holdfast._core.lock.owner import nobody
from holdfast._core.lock.ports import PendingUndo
from holdfast._core.lock.records import AskServer, Attempt, Grant, HeldLease, Waiter
from holdfast._core.lock.spec import Spec
from holdfast._core.quorum.lease import NodeLease, QuorumLease
from holdfast._core.quorum.votes import (
    AllAnswered,
    HeldElsewhere,
    QuorumAttempt,
    RenewalCount,
    ServerClockEstimate,
    ServerSet,
    VoteRound,
    Yes,
    YesCount,
)
from holdfast._core.rendezvous.barrier import ActionLease as Action
from holdfast._core.rendezvous.barrier import Duty, Participant
from holdfast._core.rendezvous.latch import LatchWaiter
from holdfast._core.requests import Answer, Frame
from holdfast._core.single_flight.coalesce import CoalescedWaiter, Coalescer
from holdfast._core.single_flight.flight import EntrySpec, Load, LoadLease
from holdfast._core.struct import Struct
from holdfast._core.subscription import Listener
from holdfast._lua import Script
from holdfast.testing.keyspace import Status
from holdfast_lab.sim import election_client
from holdfast_lab.sim.lock_client import Lease, Lock
from holdfast_lab.sim.network import EndOfStream
from holdfast_lab.sim.quorum_client import Redlock, RedlockLease, ServerGroup
from holdfast_lab.sim.quorum_driver import PollRound, QuorumWorker
from holdfast_lab.sim.single_flight_client import CacheClient, Source
from holdfast_lab.sim.worker import Slot, WaitId, Worker
from holdfast_lab.sim.world import Process

if TYPE_CHECKING:
    from holdfast_lab.sim.network import Line, Wire
    from holdfast_lab.sim.stepwise import Stepwise

ABSOLUTE = 5e8
"""A larger number of seconds is a point in time; a smaller one is a duration."""

MILLISECONDS = 10**12
MICROSECONDS = 10**14
"""Integers of this size or more are fences or numbers of renewals, of which only the order matters.

Integers from `MILLISECONDS` to `MICROSECONDS` are server times. Any other integer must be smaller.
"""

_NUMBER = re.compile(rb"\d{12,}")

WAITER = attrgetter(*(name for name in Waiter.__slots__ if name != "asked_under"))
ATTEMPT = attrgetter(*(name for name in Attempt.__slots__ if name not in {"spec", "local_queue", "unclaimed", "node"}))
HELD_LEASE = attrgetter(*(name for name in HeldLease.__slots__ if name not in {"spec", "owner"}))
LOCAL_QUEUE = attrgetter("held_lease", "asked", "linger_until", "last_reply", "late_at", "trouble", "crowded")
GRANT = attrgetter("fence", "taken", "deadline", "in_claim_window", "queued", "held_lease")
LOAD = attrgetter("fence", "record")
CANDIDATE = attrgetter("clock_estimate", "listener_id", "voted", "seen")


class Fingerprint:
    """The hash, in `value`, of everything on which the future of a world depends."""

    def __init__(self, world: Stepwise) -> None:
        self._now = world.now
        self._ms = int(world.servers[0].wall() * 1000) if world.servers else 0
        self._several = len(world.servers) > 1
        self.met: dict[int, int] = {}
        self._spans: dict[int, tuple[int, int, int, int]] = {}
        self.flat: list[Any] = []
        self._ranked: list[int] = []
        self.add_world(world)
        ranks = {value: rank for rank, value in enumerate(sorted(set(self._ranked)))}
        self.value = hash((tuple(self.flat), tuple(ranks[value] for value in self._ranked)))

    def put(self, *values: Any) -> None:
        self.flat.extend(values)

    def add(self, value: Any) -> None:
        writer = WRITERS.get(type(value))
        if writer is not None:
            writer(self, value)
        elif isinstance(value, tuple):
            self.add_items(value)
        elif isinstance(value, BaseException):
            self.put(type(value).__name__, str(value))
        elif isinstance(value, Struct) or is_dataclass(value):
            kind: Any = type(value)
            self.flat.append(kind.__name__)
            self.add_all([getattr(value, name) for name in _names(kind)])
        else:
            raise TypeError(f"cannot add a {type(value).__name__} to a state: add it to `WRITERS` or `same_in_all_states`")

    def add_items(self, values: tuple[Any, ...] | list[Any] | deque[Any]) -> None:
        self.flat += (type(values).__name__, len(values))
        self.add_all(values)

    def add_all(self, values: Iterable[Any]) -> None:
        """Add each value. To save time, the most frequent types are handled here, without a further call."""
        flat, now, several = self.flat, self._now, self._several
        for value in values:
            kind = type(value)
            if value is None or kind is bool:
                flat.append(value)
            elif kind is float and not several:
                number = round((value - now) * 1e6) if ABSOLUTE < value < 1e15 else value
                flat.append("minus one" if number == -1 else number)
            elif (kind is int and -1 < value < MILLISECONDS) or ((kind is str or kind is bytes) and len(value) < 12):
                flat.append(value)
            elif (writer := WRITERS.get(kind)) is None:
                self.add(value)
            elif writer is not _nothing:
                writer(self, value)

    def add_again(self, value: Any, writer: Callable[[Fingerprint, Any], None]) -> None:
        """Add an object that may occur several times in a state. Later occurrences copy the first one."""
        flat, ranked = self.flat, self._ranked
        span = self._spans.get(id(value))
        if span is not None:
            flat += flat[span[0] : span[1]]
            ranked += ranked[span[2] : span[3]]
            return
        begin, first = len(flat), len(ranked)
        writer(self, value)
        if not self._several:  # with several servers, an object has two forms (see `_once`)
            self._spans[id(value)] = begin, len(flat), first, len(ranked)

    def add_float(self, value: float) -> None:
        if self._several and MICROSECONDS <= value < 1e18:
            self.add_int(int(value))
            return
        self.add_number(round((value - self._now) * 1e6) if ABSOLUTE < value < 1e15 else value)

    def add_int(self, value: int) -> None:
        if value >= MICROSECONDS:
            self.flat.append("#")
            self._ranked.append(value)
        else:
            self.add_number(value - self._ms if value >= MILLISECONDS else value)

    def add_number(self, value: float) -> None:
        self.flat.append("minus one" if value == -1 else value)  # because hash(-1) == hash(-2)

    def add_text(self, value: str | bytes) -> None:
        if len(value) < 12:
            self.flat.append(value)
            return
        text, numbers = _numbers_in(value)
        self.flat.append(text)
        for number in numbers:
            self.add_int(number)

    def add_dict(self, value: dict[Any, Any]) -> None:
        self.flat.append(len(value))
        for pair in value.items():
            self.add_all(pair)

    # The parts of a world

    def add_world(self, world: Stepwise) -> None:
        self.put(world.budget, *sorted(world.struck))
        for server in world.servers:
            self.put(server.reachable, server.hung, server.refusing, server.deaf, server.runs)
            server.keyspace.now = int(server.wall() * 1e6)
            self.add(server.keyspace.dump())
        for process in world.processes:
            self.add_process(process)
        wires = {wire for server in world.servers for wire in server.wires} | {pipe.wire for pipe in world.pipes}
        for wire in sorted(wires, key=lambda wire: (wire.label, wire.server.name, wire.number)):
            self.add_wire(wire)
        for since, pipe in world.held:
            self.put(pipe.wire.label, pipe is pipe.wire.up, since < world.now)
            self.add(pipe.messages)
        self.put(*sorted(entry_name(entry) for entry in world.ready if entry[2] is not None))
        timers = [(round((entry[0] - world.now) * 1e6), entry_name(entry)) for entry in world.pending()]
        self.put(*sorted(timers))
        self.add_dict(world.register)
        self.add_dict(world.places)
        self.add_dict(world.floors)

    def add_process(self, process: Process) -> None:
        self.put(process.name, process.here, process.is_paused, process.tokens)
        if not process.here:
            return
        for what, args in process.parked:
            self.put(entry_name([0.0, 0, what, args]))
            self.add(args)
        for worker in process.workers:
            assert isinstance(worker, Worker)
            self.add_worker(worker)
        for server in sorted(process.nodes, key=lambda server: server.name):
            self.add_node(process.nodes[server])
        for local_queue in process.local_queues():
            self.add_local_queue(local_queue)
            self.add(process.node.looks_at(local_queue))
        for call in process.calls:
            self.add_promised(call)

    def add_node(self, node: Node) -> None:
        waiters = node.waiting.waiters()
        self.add_items(waiters)
        for attempt in node.waiting.departed():
            self.put(attempt.token, attempt.may_be_on_server)
        self.put(node.waiting.listening, *node.listeners)
        for waiter in waiters:
            self.put(waiter.asked_under == node.waiting.subscription(waiter.attempt.spec.prefix))
        for held_lease in sorted(node.renewing.held_leases(), key=lambda held_lease: held_lease.token):
            self.add(held_lease)
        self.add_all((node.waiting.round_at, *node.state()))
        for line in (node.commands, node.inbox):
            self.add_line(line)  # type: ignore[arg-type]

    def add_line(self, line: Line) -> None:
        self.add_all((line.wire is not None, line.opening, line.retry_at, line.backoff))
        for call, then in line.queued:
            self.add(call)
            self.add_promised(then)

    def add_local_queue(self, local_queue: LocalQueue) -> None:
        if local_queue.turn_of is KEEPER_TURN:
            self.put("keeper")
        else:
            self.add(local_queue.turn_of)
        self.add(local_queue.queue)
        held_lease = local_queue.held_lease
        if held_lease is not None:
            self.put(held_lease.last_fence - held_lease.holder_fence)
        self.add_all(LOCAL_QUEUE(local_queue))

    def add_promised(self, then: Any) -> None:
        """Add the data that the callback of a request uses, because equal requests may have different callbacks."""
        if isinstance(then, partial) and isinstance(owner := getattr(then.func, "__self__", None), PollRound):
            self.add(owner)
        for cell in getattr(then, "__closure__", None) or ():
            if callable(cell.cell_contents):
                self.add_promised(cell.cell_contents)
            elif isinstance(cell.cell_contents, PendingUndo):
                self.add(cell.cell_contents)

    def add_wire(self, wire: Wire) -> None:
        self.put(wire.label, wire.server.name, wire.open, wire.cut_off, wire.silent, *sorted(wire.channels))
        for request in wire.in_flight:
            self.add(request.call)
            self.add(request.sent)
            self.add_promised(request.then)
        for pipe in (wire.up, wire.down):
            self.put(len(pipe.messages))
            self.add_all(pipe.messages)

    def add_worker(self, worker: Worker) -> None:
        self.put(worker.name, worker.done, worker.thrown, worker.acquisition, worker.shielded)
        self.add_all((worker.asked, worker.asked_to_join, worker.asked_first))
        coroutine: Any = worker.coroutine
        while coroutine is not None and not worker.done:
            frame = getattr(coroutine, "cr_frame", None)
            if frame is None:
                break
            found = frame.f_locals
            names = [name for name in _locals(frame.f_code) if name in found]
            self.put(frame.f_code.co_name, frame.f_lasti, *names)
            self.add_all([found[name] for name in names])
            coroutine = coroutine.cr_await

    # Single things

    def add_waiter(self, waiter: Waiter) -> None:
        self.add_all(WAITER(waiter))

    def add_held_lease(self, held_lease: HeldLease) -> None:
        self.add_all(HELD_LEASE(held_lease))
        self.put(held_lease.owner is nobody)

    def add_lease(self, lease: Lease) -> None:
        self.add_held_lease(lease.held_lease)
        self.add(lease.attempt)
        self.put(lease.passed)

    def add_attempt(self, attempt: Attempt) -> None:
        slot = attempt.slot
        self.put(slot.whose if isinstance(slot, Slot) else "", attempt.local_queue is None, attempt.unclaimed is None)
        self.add_all(ATTEMPT(attempt))

    def add_grant(self, grant: Grant) -> None:
        self.add_text(grant.attempt.token)
        self.put(grant.last - grant.fence)
        self.add_all(GRANT(grant))

    def add_load(self, load: Load) -> None:
        self.add_held_lease(load.held_lease)
        self.add_all(LOAD(load))

    def add_listener(self, listener: Listener) -> None:
        self.add_text(listener.listener_id)
        self.put(bool(listener.hints))
        for name in ("leads", "found", "seen", "pending", "duty"):  # a listener has some of these
            self.add(getattr(listener, name, None))
        self.add(listener.slot)

    def add_coalescer(self, coalescer: Coalescer) -> None:
        self.put(*(member.slot.whose if isinstance(member.slot, Slot) else "" for member in coalescer.members))

    def add_quorum_attempt(self, attempt: QuorumAttempt) -> None:
        self.add_attempt(attempt)
        self.add_all(CANDIDATE(attempt))
        self.put(*sorted(attempt.listening_on), *sorted(node.address for node in attempt.hints))  # type: ignore[attr-defined]

    def add_clock_estimate(self, clock_estimate: ServerClockEstimate) -> None:
        self.add_int(clock_estimate.hint(self._now, 0))

    def add_node_lease(self, node_lease: NodeLease) -> None:
        self.add_held_lease(node_lease)
        self.put(node_lease.believed)

    def add_quorum_lease(self, quorum_lease: QuorumLease) -> None:
        self.add_held_lease(quorum_lease)
        self.add_text(quorum_lease.listener_id)
        self.put(*sorted(quorum_lease.servers()))
        self.put(*sorted(quorum_lease.doubtful))
        self.add_dict(quorum_lease.node_leases)

    def add_yes_count(self, yes_count: YesCount) -> None:
        self.put(type(yes_count).__name__, yes_count.yes)
        for number, answer in sorted(yes_count.answers.items()):
            self.put(number)
            if isinstance(answer, Answer):
                reply = answer.value  # the server's time is not read any more
                self.add(reply._replace(time=0) if isinstance(reply, Yes | HeldElsewhere) else reply)
                self.add_float(answer.sent)
            else:
                self.add(answer)

    def add_all_answered(self, all_answered: AllAnswered) -> None:
        self.put(*sorted(all_answered.awaited))
        self.add_dict(all_answered.answers)

    def add_lead(self, turn: AskServer) -> None:
        self.add_text(turn.place.attempt.token if turn.place is not None else "")


@lru_cache(4096)
def _numbers_in(value: str | bytes) -> tuple[bytes, tuple[int, ...]]:
    """Replace each number of 12 digits or more by "#". Return the text and these numbers."""
    text = value.encode() if isinstance(value, str) else bytes(value)
    return _NUMBER.sub(b"#", text), tuple(map(int, _NUMBER.findall(text)))


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """Return the names of the attributes that make up the state of a `Struct` or a dataclass."""
    return getattr(kind, "__match_args__", ()) if issubclass(kind, Struct) else tuple(field.name for field in fields(kind))


@cache
def _locals(code: CodeType) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars)))


def entry_name(entry: list[Any]) -> str:
    """Return a name of a planned event: the object that it concerns, and the function that is called."""
    what, args = entry[2], entry[3]
    inner = args[0] if args and callable(args[0]) else what
    owner = getattr(inner, "__self__", None)
    name = getattr(owner, "label", None) or getattr(owner, "name", "")
    return f"{name} {getattr(inner, '__qualname__', '?')}"


def _plain(fingerprint: Fingerprint, value: Any) -> None:
    fingerprint.flat.append(value)


def _nothing(_fingerprint: Fingerprint, _value: Any) -> None:
    """Write nothing, for values that never change or are added elsewhere."""


def same_in_all_states(*types: type) -> None:
    """Leave objects of these types out of fingerprints: they never change, or are added elsewhere."""
    WRITERS.update(dict.fromkeys(types, _nothing))


def _once(writer: Callable[[Fingerprint, Any], None]) -> Callable[[Fingerprint, Any], None]:
    """Return a function that calls ``writer`` for an object once per fingerprint, and later adds only the object's number."""

    def write(fingerprint: Fingerprint, value: Any) -> None:
        met = fingerprint.met
        number = met.get(id(value))
        if number is None:
            met[id(value)] = len(met)
            writer(fingerprint, value)
        else:
            fingerprint.flat.append(number)

    return write


def _copied(writer: Callable[[Fingerprint, Any], None]) -> Callable[[Fingerprint, Any], None]:
    """Return a function that calls ``writer`` for an object once per fingerprint, and later adds a copy of its output."""

    def write(fingerprint: Fingerprint, value: Any) -> None:
        fingerprint.add_again(value, writer)

    return write


WRITERS: dict[type, Callable[[Fingerprint, Any], None]] = {
    type(None): _plain,
    bool: _plain,
    float: Fingerprint.add_float,
    int: Fingerprint.add_int,
    bytes: Fingerprint.add_text,
    str: Fingerprint.add_text,
    dict: Fingerprint.add_dict,
    **dict.fromkeys((tuple, list, deque), Fingerprint.add_items),
    set: lambda fingerprint, members: fingerprint.put(*sorted(members)),
    Waiter: _copied(Fingerprint.add_waiter),
    HeldLease: _copied(Fingerprint.add_held_lease),
    Attempt: _copied(Fingerprint.add_attempt),
    Grant: Fingerprint.add_grant,
    AskServer: Fingerprint.add_lead,
    Slot: lambda fingerprint, slot: fingerprint.add(slot.outcomes),
    Lease: _copied(Fingerprint.add_lease),
    LoadLease: Fingerprint.add_held_lease,
    Load: Fingerprint.add_load,
    CoalescedWaiter: Fingerprint.add_listener,
    LatchWaiter: Fingerprint.add_listener,
    Participant: Fingerprint.add_listener,
    Action: Fingerprint.add_held_lease,
    Duty: lambda fingerprint, duty: fingerprint.add_held_lease(duty.held_lease),
    Coalescer: Fingerprint.add_coalescer,
    Listener: Fingerprint.add_listener,
    Candidacy: Fingerprint.add_attempt,
    election_client.Term: Fingerprint.add_lease,
    election_client.Observer: lambda fingerprint, observer: fingerprint.add(observer.watch),
    Source: lambda fingerprint, source: fingerprint.put(source.version),
    Script: lambda fingerprint, script: fingerprint.put(script.name),
    Status: Fingerprint.add_text,
    QuorumAttempt: _once(Fingerprint.add_quorum_attempt),
    ServerClockEstimate: Fingerprint.add_clock_estimate,
    NodeLease: Fingerprint.add_node_lease,
    QuorumLease: _once(Fingerprint.add_quorum_lease),
    YesCount: Fingerprint.add_yes_count,
    VoteRound: _once(Fingerprint.add_yes_count),
    RenewalCount: Fingerprint.add_yes_count,
    AllAnswered: Fingerprint.add_all_answered,
    PollRound: lambda fingerprint, poll: fingerprint.put(poll.over, poll.waits, poll.counts),
    RedlockLease: _once(Fingerprint.add_lease),
    WaitId: lambda fingerprint, ticket: fingerprint.put(ticket.counts),
}
same_in_all_states(
    Frame,
    type,
    type(Protocol),
    CoroutineType,
    FunctionType,
    Lock,
    Redlock,
    ServerGroup,
    Spec,
    EntrySpec,
    CacheClient,
    ServerSet,
    Process,
    Worker,
    QuorumWorker,
    EndOfStream,
    LocalQueue,
)
same_in_all_states(ElectionKeys, election_client.Candidate, election_client.ElectionData)
