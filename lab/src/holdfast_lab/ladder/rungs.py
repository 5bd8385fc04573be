"""The rungs of the ladder: each simple lock, the scenario that breaks it, and the later rung that survives it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from holdfast.testing.history import Event
from holdfast_lab.checkers import Violation
from holdfast_lab.explore import SearchReport, explore
from holdfast_lab.ladder import locks, picture
from holdfast_lab.ladder.world import Client, LadderWorker, LadderWorld, Successor
from holdfast_lab.sim.state import same_in_all_states
from holdfast_lab.sim.stepwise import Stepwise
from holdfast_lab.sim.world import Process


@dataclass(frozen=True)
class Scenario:
    """The clients of a lock, and the faults that may happen. At most one fault happens in a history."""

    name: str
    about: str
    clients: int = 2
    rounds: int = 1
    """How often each client acquires the lock."""
    faults: tuple[str, ...] = ()
    ahead: float = 0.0
    """Seconds by which each client's clock is ahead of the clock of the client before it in the list."""
    retry: float = 2.4
    """If the first client has not acquired the lock, it tries again after this many seconds."""
    apart: float = 0.0
    """Before a retry, each client waits this many seconds longer than the client before it in the list."""
    writes: bool = False
    """True if a holder writes to the protected resource at the end of its work."""


CALM = Scenario("calm", "two clients")
CRASH = Scenario("crash", "two clients; one of them may crash", faults=("crash",))
CRASH_OF_THREE = Scenario("crash of three", "three clients; one of them may crash", clients=3, faults=("crash",))
CLOCKS = Scenario("clocks", "two clients whose clocks are 5 s apart", ahead=5.0)
LOST_REPLY = Scenario("lost answer", "two clients; one answer of the server may be lost", faults=("lost-reply",))
PAUSE = Scenario("pause", "two clients, twice each; one of them may be stopped for 3 s", rounds=2, faults=("pause",))
DEATH = Scenario("death", "two clients; a server may die", faults=("dies",), retry=0.9, apart=0.2)
LATE = Scenario("late", "two clients that write; one of them may be stopped for 3 s", faults=("pause",), writes=True)

SCENARIOS = (CALM, CRASH, CRASH_OF_THREE, CLOCKS, LOST_REPLY, PAUSE, DEATH, LATE)


class Fall(NamedTuple):
    """How a rung fails."""

    scenario: Scenario
    rule: str
    """The rule that the lock violates, such as ``R1``."""
    wrong: str
    within: int
    """Maximum number of schedules that the search may run until it finds the failure."""
    cure: str
    """Name of a later rung that survives the same scenario."""


@dataclass(frozen=True)
class Rung:
    """A rung of the ladder. If ``fall`` is None, the lock does not fail."""

    name: str
    title: str
    lock: locks.LockOfLadder
    fall: Fall | None = None
    servers: int = 1
    successor: Successor = "itself"
    checks_fences: bool = False
    """True if the protected resource checks the fence of each write."""

    @property
    def about(self) -> str:
        """The docstring of the lock, as one line."""
        return " ".join(str(type(self.lock).__doc__).split())


class RungFailure(NamedTuple):
    """A failure of a rung, found by the search."""

    schedules: int
    """Number of schedules that the search tried, including the failing one."""
    choices: list[int]
    violation: Violation
    history: list[Event]

    @property
    def timeline(self) -> str:
        return picture.draw(self.history, self.violation)


def search(rung: Rung, scenario: Scenario, most: int = 1_000_000) -> SearchReport:
    """Run the schedules of a scenario with a rung's lock, until one violates a rule or ``most`` were run."""
    return explore(lambda: build(rung, scenario), settle, most=most)


def build(rung: Rung, scenario: Scenario) -> LadderWorld:
    world = LadderWorld(faults=scenario.faults, servers=rung.servers, successor=rung.successor)
    for number in range(scenario.clients):
        ahead = number * scenario.ahead
        process = Process(world, world.servers[0], f"c{number + 1}", offset=ahead, ahead=ahead)
        retry = scenario.retry + number * scenario.apart
        client = Client(process, rung.lock, retry=retry, writes=scenario.writes, checks_fences=rung.checks_fences)
        client.worker.start(client.run(scenario.rounds))
    return world


def settle(world: Stepwise) -> None:
    """Record the end of the history. Then the rules assume that a client that still waits would wait forever."""
    world.note("end")


@cache
def find(rung: Rung) -> RungFailure | None:
    """Search for the failure of a rung. Return None if the search does not find it within ``fall.within`` schedules."""
    assert rung.fall is not None, f"{rung.name} is a cure"
    report = search(rung, rung.fall.scenario, rung.fall.within)
    if not report.found:
        return None
    (found,) = report.found
    return RungFailure(report.schedules, found.choices, found.violations[0], found.history)


@cache
def survives(rung: Rung, scenario: Scenario) -> SearchReport:
    """Run all schedules of a scenario. The lock survives if the report has no violation, and ``covered`` is True."""
    return search(rung, scenario)


class FailingRung(NamedTuple):
    """A rung that fails, and its cure."""

    rung: Rung
    fall: Fall
    found: RungFailure | None
    cure: Rung
    survived: SearchReport

    @property
    def held(self) -> bool:
        """True if the rung violated the expected rule, and the cure survived."""
        as_said = self.found is not None and self.found.violation.rule == self.fall.rule
        return as_said and self.survived.covered and not self.survived.found


def climb() -> Iterator[FailingRung]:
    """Yield a step for every rung that fails, from the lowest."""
    for rung in RUNGS:
        if rung.fall is not None:
            cure = by_name(rung.fall.cure)
            yield FailingRung(rung, rung.fall, find(rung), cure, survives(cure, rung.fall.scenario))


def by_name(name: str) -> Rung:
    (rung,) = (rung for rung in RUNGS if rung.name == name)
    return rung


RUNGS = (
    Rung(
        "flag",
        "A flag, read and then written",
        locks.Flag(),
        Fall(
            CALM,
            "R1",
            "Both read before either writes: two holders.",
            10,
            "setnx",
        ),
    ),
    Rung(
        "setnx",
        "SETNX without expiry",
        locks.SetNx(),
        Fall(
            CRASH,
            "R7",
            "The holder crashes, and no client ever deletes the key: the lock stays held forever.",
            100,
            "set-nx-px",
        ),
    ),
    Rung(
        "setnx-expire",
        "SETNX, then EXPIRE",
        locks.SetNxExpire(),
        Fall(
            CRASH,
            "R7",
            "The client crashes between the two commands: the key has no expiry, and the lock stays held forever.",
            200,
            "set-nx-px",
        ),
    ),
    Rung(
        "timestamp",
        "A timestamp in the key, and DEL when it has passed",
        locks.Timestamp(),
        Fall(
            CRASH_OF_THREE,
            "R1",
            "Two clients see an expired time. One deletes the key and acquires the lock; the other then deletes that lock.",
            500,
            "timestamp-getset",
        ),
    ),
    Rung("timestamp-getset", "A timestamp, swapped with GETSET", locks.TimestampGetSet()),
    Rung(
        "timestamp-clocks",
        "The same, with clocks 5 s apart",
        locks.TimestampGetSet(),
        Fall(
            CLOCKS,
            "R1",
            "A client whose clock is ahead sees a held lock as expired, and acquires it, too.",
            10,
            "set-nx-px",
        ),
    ),
    Rung(
        "timestamp-equal",
        "A timestamp as the mark of its owner",
        locks.TimestampIsMine(),
        Fall(
            LOST_REPLY,
            "R1",
            "Two clients write the same time in ms. One got no answer, finds that time in the key, and believes it is its own.",
            100,
            "token-script",
        ),
    ),
    Rung(
        "set-nx-px",
        "SET NX PX, without a token",
        locks.SetNxPx(),
        Fall(
            PAUSE,
            "R1",
            "A holder that was stopped releases a lock that it no longer holds, and so frees the lock of the next holder.",
            200,
            "token-script",
        ),
    ),
    Rung(
        "token-compare",
        "A token, compared by the client",
        locks.Token(),
        Fall(
            PAUSE,
            "R1",
            "A holder that was stopped between GET and DEL deletes the lock of the next holder.",
            200,
            "token-script",
        ),
    ),
    Rung("token-script", "A token, compared by a script", locks.TokenScript()),
    Rung(
        "replica",
        "The same, on a primary with a replica",
        locks.TokenScript(),
        Fall(
            DEATH,
            "R1",
            "The primary dies before the replica has received the lock; the replica grants it a second time.",
            100,
            "redlock-late",
        ),
        successor="replica",
    ),
    Rung(
        "redlock",
        "Redlock, and a server that restarts without its data",
        locks.Redlock(),
        Fall(
            DEATH,
            "R1",
            "One of the two servers that voted for the holder restarts without its data, and votes for another client.",
            1000,
            "redlock-late",
        ),
        servers=3,
    ),
    Rung(
        "redlock-late",
        "Redlock, and restarts that are delayed",
        locks.Redlock(),
        servers=3,
        successor="itself, late",
    ),
    Rung(
        "late-write",
        "Any lease, and a holder that writes late",
        locks.TokenScript(),
        Fall(
            LATE,
            "R4",
            "A holder that was stopped between reading the clock and writing overwrites the write of the next holder.",
            100,
            "fence-check",
        ),
    ),
    Rung("fence-check", "A fence, and a resource that checks it", locks.Fenced(), checks_fences=True),
)
"""The rungs, from the lowest. A rung without a ``fall`` is the cure of other rungs."""

same_in_all_states(Client, LadderWorker, *(type(rung.lock) for rung in RUNGS))
