"""The simulated worlds of the ladder: a few clients, and servers that may die."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import Any, Literal

from holdfast._core.requests import AskPlace, Call, Now, RunScript, ServerRequest, Sleep, UnixTime, WireError
from holdfast.testing.keyspace import Keyspace
from holdfast_lab.ladder.locks import HERE, KEY, TTL, LockOfLadder
from holdfast_lab.sim.network import END, Wire
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.stepwise import Mishap, Step, Stepwise
from holdfast_lab.sim.virtual_time import EPOCH
from holdfast_lab.sim.worker import LATER, Worker
from holdfast_lab.sim.world import Process

WORK = 1.5
"""Seconds for which a holder works. This is less than the lease."""

TIME_LIMIT = 60.0
"""Maximum length of a history in seconds: thirty times the lease."""

Successor = Literal["itself", "replica", "itself, late"]
"""The server that replaces a dead one.

- "itself": the dead server restarts at once, without its data.
- "replica": its replica takes over, and may lack the last writes.
- "itself, late": the dead server restarts without its data, after the longest lease has expired.
"""

SCRIPTS = {path.read_text("ascii"): path.stem for path in sorted(HERE.glob("*.lua"))}
"""Names of the ladder's Lua scripts, by their texts."""

_MOMENT = re.compile(r"\d{12,}")
_TOKEN = re.compile(r"(c\d)\.0*(\d+)")


class TellingServer(Server):
    """A server that records each request and its reply."""

    def serve(self, wire: Wire, call: Call) -> list[Any]:
        replies = super().serve(wire, call)
        asked = (call.script.name.rpartition("/")[2], *call.keys, *call.args) if isinstance(call, RunScript) else call.args
        words = [SCRIPTS.get(str(word)) or _shown(word) for word in asked]
        if words[0] == "EVAL":
            words = [words[1], *words[3:]]  # leave out the number of keys
        where = ""
        if len(self.world.servers) > 1:  # the columns are narrower with several servers
            where = f"{self.name}: "
            words = words if len(words) <= 3 else [*words[:3], "…"]
        process = wire.process
        self.world.note("sent", process.workers[0].name, note=f"{where}{' '.join(words)} → {_shown(replies[0])}")
        return replies


def _shown(value: object) -> str:
    """Return an argument or a reply as text for the timeline. Times are in ms since the history began."""
    return _short("nil" if value is None else value.decode() if isinstance(value, bytes) else str(value))


@lru_cache(4096)
def _short(text: str) -> str:
    """Shorten the tokens and times in a text. The results are cached, because many schedules have the same texts."""
    return _TOKEN.sub(r"\1.\2", _MOMENT.sub(lambda found: str(int(found[0]) - int(EPOCH * 1000)), text))


class LadderWorld(Stepwise):
    """A world in which the search chooses each step. Besides the faults of `Stepwise`, a server may die and be replaced."""

    def __init__(self, *, faults: Iterable[str], servers: int, successor: Successor) -> None:
        super().__init__(faults=faults, budget=1, ttl=TTL)
        self.sparse = False  # so that the number of states that a search reports includes every state
        self.successor = successor
        for name in ["primary", "replica"] if successor == "replica" else [f"S{number + 1}" for number in range(servers)]:
            TellingServer(self, name)
        self.at(EPOCH + TIME_LIMIT, self.working.clear)

    def steps_now(self) -> list[Step]:
        """Return the possible steps whose order matters.

        If a step is possible that only one client notices, return this step alone. It makes no difference whether steps of
        other clients come before or after it.
        """
        self.pipes = [pipe for pipe in self.pipes if pipe.messages]
        for entry in self.ready:
            return [Step(partial(self._take, entry))]
        for pipe in self.pipes:
            if pipe is pipe.wire.down or pipe.messages[0] is END:
                return [Step(pipe.deliver)]
        steps = [Step(pipe.deliver) for pipe in self.pipes]
        steps += [Step(partial(self._fire, entry)) for entry in self.due()]
        if self.successor == "replica" and self.servers[0].reachable:
            primary, replica = (_keyspace(server) for server in self.servers)
            if primary.dump() != replica.dump():
                steps.append(Step(lambda: replica.load(primary.dump())))
        return steps

    def _of_servers(self) -> Iterator[Mishap]:
        yield from super()._of_servers()
        for server in self.servers[:1] if self.successor == "replica" else self.servers:
            if server.reachable:
                yield "dies", server.name, partial(self._die, server)

    def _die(self, server: Server) -> None:
        server.crash()
        if self.successor == "replica":
            for process in self.processes:
                process.server = self.servers[1]
        elif self.successor == "itself":
            server.start(forgets=float("inf"))
        else:
            self.at(self.now + TTL, partial(server.start, forgets=float("inf")))


def _keyspace(server: Server) -> Keyspace:
    """Return a server's data, after setting its clock to the server's time."""
    server.keyspace.now = int(server.wall() * 1e6)
    return server.keyspace


class LadderWorker(Worker):
    """A worker for which reading the clock is a step: other workers may run before its next step, as with real threads."""

    __slots__ = ()

    def do(self, request: ServerRequest | AskPlace) -> Any:
        reply = super().do(request)
        return self._a_moment(reply) if isinstance(request, Now | UnixTime) else reply

    def _a_moment(self, shown: float) -> object:
        self._set_timer(self.process.clock(), shown)
        return LATER


class Client:
    """A client that acquires a lock, works, writes and releases the lock, and records all this."""

    def __init__(self, process: Process, lock: LockOfLadder, *, retry: float, writes: bool, checks_fences: bool) -> None:
        self.worker = LadderWorker(process, "1")
        self.process = process
        self.lock = lock
        self.retry = retry
        self.writes = writes
        self.checks_fences = checks_fences
        """True if the protected resource refuses a write with a lower fence than the highest it has seen."""

    def note(self, kind: str, note: str = "", *, until: float = 0.0, fence: int = 0) -> None:
        worker = self.worker
        self.process.world.note(kind, worker.name, KEY, worker.acquisition, note=note, until=until, fence=fence)

    async def run(self, rounds: int) -> None:
        for number in range(rounds):
            self.worker.acquisition = f"{self.worker.name}#{number + 1}"
            self.note("ask", until=float("inf"))
            try:
                while (held := await self.lock.take()) is None:
                    self.note("tries again")
                    await Sleep(self.retry)
            except WireError as error:
                self.note("failed", type(error).__name__)
                return
            self.note("taken", until=self.process.true(held.until), fence=held.fence)
            turn = self.number_of_turn()
            await Sleep(WORK)
            if self.writes and await Now() < held.until:
                self.write(held.fence, turn)
            self.note("release")
            try:
                await self.lock.give_back(held)
                self.note("released")
            except WireError as error:
                self.note("released", type(error).__name__)

    def number_of_turn(self) -> int:
        """Return the number (first: 1) of this acquisition among all clients. It replaces the fence if the lock has none."""
        register = self.process.world.register
        register["turns"] = register.get("turns", 0) + 1
        return register["turns"]

    def write(self, fence: int, turn: int) -> None:
        register = self.process.world.register
        highest = register.get(KEY, 0)
        accepted = fence >= highest or not self.checks_fences
        register[KEY] = max(fence, highest)
        self.note("write", "accepted" if accepted else "refused", fence=fence or turn)
