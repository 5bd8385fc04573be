"""A simulated Redis server with its own clock. It may hang, crash, restart and lose data."""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Protocol

from holdfast._core import permit
from holdfast._core.lock.replies import ACQUIRE, BLOCK, RENEW
from holdfast._core.lock.slot_migration import single_key_form
from holdfast._core.lock.spec import milliseconds
from holdfast._core.names import PREFIX, quarantine_key
from holdfast._core.quorum.votes import DECLARE_NEW
from holdfast._core.requests import Call, Command, Refused, RunScript
from holdfast._lua import codes
from holdfast.testing.history import process_of
from holdfast.testing.keyspace import Keyspace, ReplyError
from holdfast_lab.sim import network
from holdfast_lab.sim.network import EndOfStream, PublishedMessage, Wire
from holdfast_lab.sim.permit_holders import PermitHolders
from holdfast_lab.sim.virtual_time import EPOCH

WALL = 700_000_000.0
"""Seconds by which the server's clock is ahead of virtual time, so that it shows a realistic date."""

MORE = 3
"""Index of the argument of the acquire script by which a holder asks for more fences."""

REMEMBERED = 200
"""Number of past states that a server stores. A restart without the last writes brings one of them back."""


class World(network.World, Protocol):
    """The part of `world.World` that servers use."""

    servers: list[Server]

    @property
    def mishap(self) -> Callable[[Wire, Call], bool] | None:
        """The function that injects faults into single requests as they arrive; None: no such faults."""

    def drawn_for(self, token: str) -> str:
        """Return the name that the history gives to the acquisition with this token."""


class Server:
    def __init__(self, world: World, name: str = "server", *, offset: float = 0.0, rate: float = 1.0) -> None:
        self.world = world
        self.name = name
        self.keyspace = Keyspace()
        self.runs = 0
        self._run_anew()
        self.wires: list[Wire] = []
        self.reachable = True
        self.hung = False
        """True while the server is stopped, as by SIGSTOP. Requests wait until it resumes."""
        self.backlog: deque[tuple[Wire, Call | EndOfStream]] = deque()
        self.refusing = ""
        """The error with which the server answers every request except SUBSCRIBE; "": it answers as usual."""
        self.moving = False
        """True while the slot of all keys is moved: only scripts with a single key are carried out."""
        self.moves = 0
        """Number of moves that have begun."""
        self.block = BLOCK
        """Number of fences that the server reserves with each grant."""
        self.deaf = False
        """True while messages that the server publishes are lost. The server still counts them as received."""
        self.calls = 0
        self.asked_for: Counter[str] = Counter()
        """Number of runs of each script, by its name."""
        self.opened = 0
        """Number of connections that were opened."""
        self.lost = 0
        """Number of keys that the server has lost, in restarts and by FLUSHALL."""
        self.on_start: Callable[[], object] | None = None
        """Function to call after each restart."""
        self.rate = rate
        self._base = EPOCH + WALL + offset
        self._since = world.now
        self._steps: list[tuple[float, float]] = []
        self._last = 0
        self._past: deque[tuple[float, Any]] | None = None
        self._once = True
        self._holders: dict[bytes, tuple[bytes, int | None]] = {}
        self.locks: dict[bytes, bytes] = {}
        """Locks whose holders are recorded: from the key of the lock to the key of its state."""
        self.permits: dict[bytes, PermitHolders] = {}
        """Semaphores and read-write locks whose holders are recorded, by key."""
        world.servers.append(self)

    # The clock of the server

    def wall(self) -> float:
        return self._base + (self.world.now - self._since) * self.rate

    def shown(self, at: float) -> float:
        """Return the time that the server's clock showed at the virtual time ``at``."""
        steps = sum(seconds for stepped, seconds in self._steps if stepped > at)
        return self.wall() - (self.world.now - at) * self.rate - steps

    @property
    def set_back(self) -> float:
        """Seconds by which the clock was set back in all. Keys may live longer by this time."""
        return sum(-seconds for _, seconds in self._steps if seconds < 0)

    def true(self, ms: int) -> float:
        """Return the virtual time at which the server's clock shows ``ms`` milliseconds."""
        return self._since + (ms / 1000 - self._base) / self.rate

    def _tick(self) -> int:
        """Return the server time of the next command, in microseconds.

        It is later than that of the last command, unless the clock was set back by a millisecond or more.
        """
        now = int(self.wall() * 1e6)
        if now <= self._last < now + 1000:
            now = self._last + 1
        self._last = now
        return now

    def step_clock(self, seconds: float) -> None:
        """Set the server's clock forward, or back if ``seconds`` is negative.

        Expired keys are deleted first, because a real server would have deleted them before.
        """
        self.keyspace.now = self._tick()
        self.keyspace.load(self.keyspace.dump())
        self.record_changes()
        self._base = self.wall() + seconds
        self._since = self.world.now
        self._steps.append((self.world.now, seconds))

    # Connections and requests

    def accept(self, wire: Wire) -> int:
        self.opened += 1
        self.wires.append(wire)
        return self.opened

    def drop(self, wire: Wire) -> None:
        for channel in wire.channels:
            self.keyspace.subscribe(channel, -1)
        wire.channels.clear()
        if wire in self.wires:
            self.wires.remove(wire)

    def receive(self, wire: Wire, message: Call | EndOfStream) -> None:
        if not self.reachable:
            return
        if self.hung:
            self.backlog.append((wire, message))
            return
        mishap = self.world.mishap
        if isinstance(message, EndOfStream) or mishap is None or not mishap(wire, message):
            wire.carry_out(message)

    def serve(self, wire: Wire, call: Call) -> list[Any]:
        self.calls += 1
        world = self.world
        keyspace = self.keyspace
        keyspace.now = self._tick()
        more = changes = False
        if self.refusing and (isinstance(call, RunScript) or call.args[0] != "SUBSCRIBE"):
            return [Refused(self.refusing, self.name)]
        if isinstance(call, RunScript):
            self.asked_for[call.script.name] += 1
            changes = True
            more = call.script is ACQUIRE and call.args[MORE:][:1] not in {(), (0,)}
            raw = self._run(call)
        elif call.args[0] == "SUBSCRIBE":
            channel = call.args[1]
            assert isinstance(channel, bytes)
            if channel not in wire.channels:
                wire.channels.add(channel)
                keyspace.subscribe(channel, 1)
            raw = [b"subscribe", channel, len(wire.channels)]
        else:
            changes = call.args[0] != "PING"
            raw = keyspace.execute(*call.args)
        if world.trace:
            world.note("served", self.name, note=f"{call!r} -> {raw!r} at {self.wall():.6f}")
        if keyspace.published:
            self._publish()
        if self._past is not None:
            self._remember()
        if changes:
            self.record_changes(more=more)
        if isinstance(raw, ReplyError):
            return [Refused(str(raw), self.name)]
        return [raw]

    def _run(self, call: RunScript[Any]) -> Any:
        """Run a script. While the slot is moved, run the form of the script for a single key instead.

        With a real server, the client sends this form after the reply TRYAGAIN.
        """
        if not self.moving or len(call.keys) == 1:
            return self.keyspace.run(call.script, call.keys, call.args)
        sent = single_key_form(call, half=False)
        if sent is None:
            return ReplyError("TRYAGAIN Multiple keys request during rehashing of slot")
        raw = self.keyspace.run(sent.script, sent.keys, sent.args)
        return [raw] if call.script in {RENEW, permit.RENEW} else raw

    def again(self, wire: Wire, call: Call) -> None:
        if self.reachable and not (isinstance(call, Command) and call.args[0] == "SUBSCRIBE"):
            self.serve(wire, call)

    def remove_endless(self, key: bytes) -> None:
        """Delete the key of a lock if it has no expiry, as an administrator would do."""
        if self.keyspace.execute("PTTL", key) == -1:
            self.meddle("DEL", key)

    def meddle(self, *command: str | bytes | int) -> None:
        """Run a command as another program would, which may change the library's keys."""
        self.keyspace.now = self._tick()
        self.keyspace.execute(*command)
        self.record_changes()

    def visit(self, call: RunScript[Any]) -> None:
        """Run one of the library's scripts at once, without a connection."""
        self.keyspace.now = self._tick()
        self.keyspace.run(call.script, call.keys, call.args)
        self._publish()
        self.record_changes()

    def _publish(self) -> None:
        published = list(self.keyspace.published)
        self.keyspace.published.clear()
        for channel, payload in published:
            for wire in self.wires:
                if channel in wire.channels and not self.deaf:
                    wire.down.send(PublishedMessage(channel, payload))
                    if payload.startswith(f"{codes.WANTED} ".encode()):
                        self._told(payload[2:])

    def _told(self, token: bytes) -> None:
        """Record that the server told the holder of this token that another client waits."""
        for key in self.locks:
            if self.keyspace.peek(key)[0] == token:
                self.world.note("asked", self.name, key.decode(), self.whose(token))

    def record_changes(self, *, more: bool = False) -> None:
        """Record which locks were granted, extended or freed since the last call.

        ``more`` is True if the last request asked for more fences.
        """
        for key, state in self.locks.items():
            value, expires = self.keyspace.peek(key)
            before, ended = self._holders.get(key, (b"", None))
            if (before, ended) == (value, expires) and not more:
                continue
            self._holders[key] = (value, expires)
            until = float("inf") if expires is None else self.true(expires)
            lock = key.decode()
            over = ended is not None and ended < self.keyspace.now // 1000
            if before and (over or before != value):
                self.world.note("freed", self.name, lock, self.whose(before))
            if value:
                kind = "extended" if before == value and not over else "granted"
                last = int(self.keyspace.execute("HGET", state, "fence") or 0)
                fence = max(0, last - self.block + 1)
                note = self.deaf_waiters(state) if kind == "granted" else "more" if more else ""
                self.world.note(kind, self.name, lock, self.whose(value), fence=fence, last=last, until=until, note=note)

        for permits in self.permits.values():
            permits.record_changes()

    def deaf_waiters(self, state: bytes) -> str:
        waiting = self.keyspace.execute("ZRANGE", state.removesuffix(b":state") + b":queue", 0, -1)
        tokens = waiting if isinstance(waiting, list) else []
        processes = {process_of(self.whose(token)) for token in tokens}
        deaf = processes - {wire.process.name for wire in self.wires if wire.channels}
        return " ".join(("deaf", *sorted(deaf))) if deaf else ""

    def whose(self, value: bytes) -> str:
        return self.world.drawn_for(value.decode("ascii", "replace"))

    # The life of the server

    def declare(self, longest: float) -> None:
        """Declare the server new, so that it grants locks with ``quarantine=`` at once.

        ``longest`` is the longest lease of all clients, in seconds.
        """
        self.keyspace.now = self._tick()
        self.keyspace.run(DECLARE_NEW, (quarantine_key(PREFIX),), (milliseconds(longest), "", 0))

    def keep_past(self, *, once: bool = True) -> None:
        """Store past states, so that a restart can bring one of them back without the last writes.

        If ``once`` is False, each restart deletes the states that are newer than the state it brings back. So several restarts
        may lose writes.
        """
        self._past = deque(maxlen=REMEMBERED)
        self._once = once
        self._remember()

    def _remember(self) -> None:
        assert self._past is not None
        self._past.append((self.world.now, self.keyspace.dump()))

    def cut_all(self, *, requests_arrive: bool = False) -> None:
        for wire in list(self.wires):
            wire.cut(requests_arrive=requests_arrive)

    def crash(self) -> None:
        """Stop the server and cut its connections."""
        self.reachable = False
        self.hung = False
        self.backlog.clear()
        self.cut_all()

    def start(self, *, forgets: float = 0.0) -> None:
        """Start the server. It has lost the writes of the last ``forgets`` seconds; infinity: all data.

        All data is lost, too, if no stored state is at least ``forgets`` seconds old (see `keep_past`).
        """
        self.reachable = True
        self._run_anew()
        self.keyspace.now = int(self.wall() * 1e6)
        if forgets:
            before = self._keys()
            since = self.world.now - forgets
            states = [state for at, state in self._past or () if at <= since]
            if states:
                self.keyspace.load(states[-1])
            else:
                self.keyspace.clear()
            if not self._once and self._past is not None:
                while self._past and self._past[-1][0] > since:
                    self._past.pop()
                self._remember()
            self.lost += len(before - self._keys())
            for key in self.locks:
                self.remove_endless(key)
        if self.on_start is not None:
            self.on_start()
        self.record_changes()

    def flush(self) -> None:
        """Delete all keys, as FLUSHALL does."""
        self.lost += len(self._keys())
        self.keyspace.clear()
        self.record_changes()

    def _keys(self) -> set[bytes]:
        return {key for key, _, _, _ in self.keyspace.dump()}

    def _run_anew(self) -> None:
        """Set a new run id, as every start of a real server does."""
        self.runs += 1
        self.keyspace.run_id = f"{zlib.crc32(self.name.encode()):08x}{self.runs:032x}".encode()

    def hang(self) -> None:
        self.hung = True

    def wake(self) -> None:
        """Resume the server. It first carries out all waiting requests, even if their senders have given up."""
        self.hung = False
        backlog, self.backlog = self.backlog, deque()
        for wire, call in backlog:
            wire.carry_out(call)
