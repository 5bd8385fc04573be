"""A server: a keyspace with a clock of its own, listeners, and a life in which it may stop, start and forget."""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast._core.lock.records import milliseconds
from holdfast._core.lock.replies import ACQUIRE, BLOCK
from holdfast._core.names import PREFIX, guard_key
from holdfast._core.quorum.votes import DECLARE_NEW
from holdfast._core.requests import Call, Command, Refused, Run
from holdfast._lua import codes
from holdfast.testing.history import process_of
from holdfast.testing.keyspace import Keyspace, ReplyError
from holdfast.testing.sim.network import End, Push, Wire
from holdfast.testing.sim.permit_holders import Permits
from holdfast.testing.sim.world import EPOCH

if TYPE_CHECKING:
    from holdfast.testing.sim.world import World

WALL = 700_000_000.0
"""The server's clock shows so much more than true time: about what real ones do."""

MORE = 3
"""Which argument of an acquire says for how many more fences it asks."""

REMEMBERED = 200
"""States of the memory that are kept, for a restart that has lost the last of them."""


class Server:
    """One server. What it holds is in `keyspace`."""

    def __init__(self, world: World, name: str = "server", *, offset: float = 0.0, rate: float = 1.0) -> None:
        self.world = world
        self.name = name
        self.keyspace = Keyspace()
        self.runs = 0
        self._run_anew()
        self.wires: list[Wire] = []
        self.reachable = True
        self.hung = False
        """Stopped as by SIGSTOP: requests wait for it to go on."""
        self.backlog: deque[tuple[Wire, Call | End]] = deque()
        self.refusing = ""
        """If set, what it answers to every script and write: "LOADING", "BUSY", "OOM", ..."""
        self.block = BLOCK
        """Fences that come with one grant."""
        self.deaf = False
        """Published messages get lost on the way."""
        self.calls = 0
        self.asked_for: Counter[str] = Counter()
        """How often each script was run."""
        self.opened = 0
        """Connections there have been."""
        self.lost = 0
        """Keys that it has forgotten."""
        self.on_start: Callable[[], object] | None = None
        """What whoever starts it does then."""
        self.rate = rate
        self._base = EPOCH + WALL + offset
        self._since = world.now
        self._steps: list[tuple[float, float]] = []
        self._last = 0
        self._past: deque[tuple[float, Any]] | None = None
        self._once = True
        self._holders: dict[bytes, tuple[bytes, int | None]] = {}
        self.locks: dict[bytes, bytes] = {}
        """Keys of the locks of which the history is told, each with the key of its state."""
        self.permits: dict[bytes, Permits] = {}
        """The same for those that several may hold."""
        world.servers.append(self)

    # Its clock

    def wall(self) -> float:
        """What its clock shows, in seconds."""
        return self._base + (self.world.now - self._since) * self.rate

    def shown(self, at: float) -> float:
        """What its clock showed at a true time."""
        steps = sum(seconds for stepped, seconds in self._steps if stepped > at)
        return self.wall() - (self.world.now - at) * self.rate - steps

    @property
    def set_back(self) -> float:
        """Seconds by which its clock was set back, all in all: so much longer lives what it keeps."""
        return sum(-seconds for _, seconds in self._steps if seconds < 0)

    def true(self, ms: int) -> float:
        """The true time at which its clock shows so many milliseconds."""
        return self._since + (ms / 1000 - self._base) / self.rate

    def _tick(self) -> int:
        """What its clock shows to the next command, in us: each takes one at least."""
        now = int(self.wall() * 1e6)
        if now <= self._last < now + 1000:
            now = self._last + 1
        self._last = now
        return now

    def step_clock(self, seconds: float) -> None:
        """Somebody sets its clock forward or back. What has expired by then is gone: a server looks for that all the time."""
        self.keyspace.now = self._tick()
        self.keyspace.load(self.keyspace.dump())
        self.look()
        self._base = self.wall() + seconds
        self._since = self.world.now
        self._steps.append((self.world.now, seconds))

    # What it does for its clients

    def serve(self, wire: Wire, call: Call) -> list[Any]:
        """Carry out a call; what goes down the wire for it."""
        self.calls += 1
        world = self.world
        keyspace = self.keyspace
        keyspace.now = self._tick()
        if self.refusing and (isinstance(call, Run) or call.args[0] != "SUBSCRIBE"):
            return [Refused(self.refusing, self.name)]
        if isinstance(call, Run):
            self.asked_for[call.script.name] += 1
            raw = keyspace.run(call.script, call.keys, call.args)
        elif call.args[0] == "SUBSCRIBE":
            channel = call.args[1]
            assert isinstance(channel, bytes)
            if channel not in wire.channels:
                wire.channels.add(channel)
                keyspace.subscribe(channel, 1)
            raw = [b"subscribe", channel, len(wire.channels)]
        else:
            raw = keyspace.execute(*call.args)
        if world.trace:
            world.note("served", self.name, note=f"{call!r} -> {raw!r} at {self.wall():.6f}")
        if keyspace.published:
            self._publish()
        if self._past is not None:
            self._remember()
        if isinstance(call, Run) or call.args[0] not in {"PING", "SUBSCRIBE"}:
            self.look(more=isinstance(call, Run) and call.script is ACQUIRE and call.args[MORE:][:1] not in {(), (0,)})
        if isinstance(raw, ReplyError):
            return [Refused(str(raw), self.name)]
        return [raw]

    def again(self, wire: Wire, call: Call) -> None:
        """A copy of a request arrives, whose answer nobody awaits."""
        if self.reachable and not (isinstance(call, Command) and call.args[0] == "SUBSCRIBE"):
            self.serve(wire, call)

    def remove_endless(self, key: bytes) -> None:
        """An administrator removes a lock that has no expiry."""
        if self.keyspace.execute("PTTL", key) == -1:
            self.meddle("DEL", key)

    def meddle(self, *command: str | bytes | int) -> None:
        """Somebody else runs a command."""
        self.keyspace.now = self._tick()
        self.keyspace.execute(*command)
        self.look()

    def visit(self, call: Run[Any]) -> None:
        """Somebody on the spot runs a script of ours."""
        self.keyspace.now = self._tick()
        self.keyspace.run(call.script, call.keys, call.args)
        self._publish()
        self.look()

    def _publish(self) -> None:
        published = list(self.keyspace.published)
        self.keyspace.published.clear()
        for channel, payload in published:
            for wire in self.wires:
                if channel in wire.channels and not self.deaf:
                    wire.down.send(Push(channel, payload))
                    if payload.startswith(f"{codes.WANTED} ".encode()):
                        self._told(payload[2:])

    def _told(self, token: bytes) -> None:
        """The process that has the lock hears that somebody else waits for it."""
        for key in self.locks:
            if self.keyspace.peek(key)[0] == token:
                self.world.note("asked", self.name, key.decode(), self.whose(token))

    def look(self, *, more: bool = False) -> None:
        """Tell the history who holds what, where that has changed. ``more``: the holder has asked for more fences."""
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
            permits.look()

    def deaf_waiters(self, state: bytes) -> str:
        """For the history: the processes in the queue of this lock to which no connection listens now, after "deaf"."""
        waiting = self.keyspace.execute("ZRANGE", state.removesuffix(b":state") + b":queue", 0, -1)
        tokens = waiting if isinstance(waiting, list) else []
        processes = {process_of(self.whose(token)) for token in tokens}
        deaf = processes - {wire.process.name for wire in self.wires if wire.channels}
        return " ".join(("deaf", *sorted(deaf))) if deaf else ""

    def whose(self, value: bytes) -> str:
        return self.world.drawn_for(value.decode("ascii", "replace"))

    # Its life

    def declare(self, longest: float) -> None:
        """It is new, and has forgotten nothing: locks with quarantine= are granted at once."""
        self.keyspace.now = self._tick()
        self.keyspace.run(DECLARE_NEW, (guard_key(PREFIX),), (milliseconds(longest), "", 0))

    def keep_past(self, *, once: bool = True) -> None:
        """From now on, remember what the memory was, so that a restart may have lost the last of it. Not ``once``: what one
        restart has lost, no later one brings back."""
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
        """It is gone: nobody gets an answer until `start`."""
        self.reachable = False
        self.hung = False
        self.backlog.clear()
        self.cut_all()

    def start(self, *, forgets: float = 0.0) -> None:
        """It is back, without what it was told in the last ``forgets`` seconds (infinity: without anything)."""
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
        self.look()

    def flush(self) -> None:
        """Somebody empties it."""
        self.lost += len(self._keys())
        self.keyspace.clear()
        self.look()

    def _keys(self) -> set[bytes]:
        return {key for key, _, _, _ in self.keyspace.dump()}

    def _run_anew(self) -> None:
        """Another run of the same server has another id."""
        self.runs += 1
        self.keyspace.run_id = f"{zlib.crc32(self.name.encode()):08x}{self.runs:032x}".encode()

    def hang(self) -> None:
        self.hung = True

    def wake(self) -> None:
        """It goes on, and does first what has been waiting for it, whether anybody still wants it or not."""
        self.hung = False
        backlog, self.backlog = self.backlog, deque()
        for wire, call in backlog:
            wire.carry_out(call)
