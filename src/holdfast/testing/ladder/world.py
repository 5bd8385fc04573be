"""The worlds in which the locks of the ladder are tried: a few clients, and servers that may die."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import Any, Literal

from holdfast._core.requests import Call, Now, Run, Sleep, UnixTime, WireError
from holdfast.testing.keyspace import Keyspace
from holdfast.testing.ladder.locks import HERE, KEY, TTL, LockOfLadder
from holdfast.testing.sim.network import END, Wire
from holdfast.testing.sim.server import Server
from holdfast.testing.sim.stepwise import Mishap, Step, Stepwise
from holdfast.testing.sim.virtual_time import EPOCH
from holdfast.testing.sim.worker import LATER, Worker
from holdfast.testing.sim.world import Process

WORK = 1.5
"""Seconds for which a holder works: less than its lease."""

TIME_LIMIT = 60.0
"""Seconds for which a history is watched: thirty leases. A client that still waits then would wait for ever."""

Successor = Literal["itself", "replica", "itself, late"]
"""The server that takes the place of one that has died: the server itself, restarted at once, without its memory; a replica,
which may not have received the last writes; or the server itself, without its memory, but only after the longest lease is
over."""

SCRIPTS = {path.read_text("ascii"): path.stem for path in sorted(HERE.glob("*.lua"))}
"""Their names, by their texts."""

_MOMENT = re.compile(r"\d{12,}")
_TOKEN = re.compile(r"(c\d)\.0*(\d+)")


class TellingServer(Server):
    """A server that writes into the history what each client asks of it, and what it answers."""

    def serve(self, wire: Wire, call: Call) -> list[Any]:
        replies = super().serve(wire, call)
        asked = (call.script.name.rpartition("/")[2], *call.keys, *call.args) if isinstance(call, Run) else call.args
        words = [SCRIPTS.get(str(word)) or _shown(word) for word in asked]
        if words[0] == "EVAL":
            words = [words[1], *words[3:]]  # without the number of keys
        where = ""
        if len(self.world.servers) > 1:  # there is less room then
            where = f"{self.name}: "
            words = words if len(words) <= 3 else [*words[:3], "…"]
        process = wire.process
        self.world.note("sent", process.workers[0].name, note=f"{where}{' '.join(words)} → {_shown(replies[0])}")
        return replies


def _shown(value: object) -> str:
    """Part of a command, or a reply, for people: moments in ms since the history began."""
    return _short("nil" if value is None else value.decode() if isinstance(value, bytes) else str(value))


@lru_cache(4096)
def _short(text: str) -> str:
    """The same words come in each schedule that begins alike."""
    return _TOKEN.sub(r"\1.\2", _MOMENT.sub(lambda found: str(int(found[0]) - int(EPOCH * 1000)), text))


class LadderWorld(Stepwise):
    """Stepwise, with one fault more: a server "dies", and something takes its place."""

    def __init__(self, *, faults: Iterable[str], servers: int, successor: Successor) -> None:
        super().__init__(faults=faults, budget=1, ttl=TTL)
        self.successor = successor
        for name in ["primary", "replica"] if successor == "replica" else [f"S{number + 1}" for number in range(servers)]:
            TellingServer(self, name)
        self.at(EPOCH + TIME_LIMIT, self.working.clear)

    def steps_now(self) -> list[Step]:
        """Return the steps whose order matters.

        A step that only one client sees need not be tried both before and after the steps of others, so it is taken at once.
        The choices left are the order in which servers are asked, and when sleepers wake.
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
    """Return a server's data, with its clock set to now."""
    server.keyspace.now = int(server.wall() * 1e6)
    return server.keyspace


class LadderWorker(Worker):
    """A worker for whom there is a moment between a look at the clock and what follows from it, as there always is."""

    __slots__ = ()

    def __init__(self, process: Process, name: str) -> None:
        super().__init__(process, name)
        self._do[Now] = lambda _: self._a_moment(process.clock())
        self._do[UnixTime] = lambda _: self._a_moment(process.wall())

    def _a_moment(self, shown: float) -> object:
        self._set_timer(self.process.clock(), shown)
        return LATER


class Client:
    """Takes a lock, works, writes, and gives the lock back; and writes all that into the history."""

    def __init__(self, process: Process, lock: LockOfLadder, *, retry: float, writes: bool, guarded: bool) -> None:
        self.worker = LadderWorker(process, "1")
        self.process = process
        self.lock = lock
        self.retry = retry
        """Seconds until it tries again."""
        self.writes = writes
        """It writes to what the lock protects, at the end of its work."""
        self.guarded = guarded
        """The protected resource refuses fences that are lower than one it has seen."""

    def note(self, kind: str, note: str = "", *, until: float = 0.0, fence: int = 0) -> None:
        worker = self.worker
        self.process.world.note(kind, worker.name, KEY, worker.acquisition, note=note, until=until, fence=fence)

    async def run(self, rounds: int) -> None:
        """Use the lock so many times."""
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
        """The how manieth holder this is. Nobody knows that but the judge."""
        register = self.process.world.register
        register["turns"] = register.get("turns", 0) + 1
        return register["turns"]

    def write(self, fence: int, turn: int) -> None:
        """Write to what the lock protects."""
        register = self.process.world.register
        highest = register.get(KEY, 0)
        accepted = fence >= highest or not self.guarded
        register[KEY] = max(fence, highest)
        self.note("write", "accepted" if accepted else "refused", fence=fence or turn)
