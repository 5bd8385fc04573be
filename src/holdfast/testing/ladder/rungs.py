"""The rungs: each with its lock, what breaks that, and which later rung survives the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from holdfast.testing.checkers import Violation
from holdfast.testing.explore import Report, explore
from holdfast.testing.history import Event
from holdfast.testing.ladder import locks, picture
from holdfast.testing.ladder.world import Client, LadderWorker, LadderWorld, Successor
from holdfast.testing.sim.state import same_in_all_states
from holdfast.testing.sim.stepwise import Stepwise
from holdfast.testing.sim.world import Process


@dataclass(frozen=True)
class Scenario:
    """The clients of a lock, and the faults: at most one of ``faults`` happens, once, at any moment."""

    name: str
    about: str
    clients: int = 2
    rounds: int = 1
    """Times that each client takes the lock."""
    faults: tuple[str, ...] = ()
    ahead: float = 0.0
    """Seconds by which each client's clock is ahead of the one before."""
    retry: float = 2.4
    """Seconds after which the first client tries again, if it did not get the lock."""
    apart: float = 0.0
    """By which each client waits longer than the one before: it stands for a random delay."""
    writes: bool = False
    """Holders write to what the lock protects, at the end of their work."""


CALM = Scenario("calm", "two clients")
CRASH = Scenario("crash", "two clients, of which one may crash", faults=("crash",))
CRASH_OF_THREE = Scenario("crash of three", "three clients, of which one may crash", clients=3, faults=("crash",))
CLOCKS = Scenario("clocks", "two clients whose clocks are 5 s apart", ahead=5.0)
LOST_REPLY = Scenario("lost answer", "two clients; one answer of the server may get lost", faults=("lost-reply",))
PAUSE = Scenario("pause", "two clients, twice each; one of them may be stopped for 3 s", rounds=2, faults=("pause",))
DEATH = Scenario("death", "two clients; a server may die", faults=("dies",), retry=0.9, apart=0.2)
LATE = Scenario("late", "two clients that write; one of them may be stopped for 3 s", faults=("pause",), writes=True)

SCENARIOS = (CALM, CRASH, CRASH_OF_THREE, CLOCKS, LOST_REPLY, PAUSE, DEATH, LATE)


class Fall(NamedTuple):
    """How a rung breaks."""

    scenario: Scenario
    rule: str
    """The rule that it violates."""
    wrong: str
    """A description of the failure."""
    within: int
    """Schedules within which the search has to find it."""
    cure: str
    """The rung that survives the same scenario."""


@dataclass(frozen=True)
class Rung:
    """A lock, and where it runs."""

    name: str
    title: str
    lock: locks.LockOfLadder
    fall: Fall | None = None
    servers: int = 1
    successor: Successor = "itself"
    guarded: bool = False
    """The protected resource checks the fence."""

    @property
    def about(self) -> str:
        """The description of the lock, in a line or two."""
        return " ".join(str(type(self.lock).__doc__).split())


class Found(NamedTuple):
    """A failure that the search has found."""

    schedules: int
    """How many schedules it has tried, this one included."""
    choices: list[int]
    violation: Violation
    history: list[Event]

    @property
    def timeline(self) -> str:
        """The history, drawn."""
        return picture.draw(self.history, self.violation)


def search(rung: Rung, scenario: Scenario, most: int = 1_000_000) -> Report:
    """Run all schedules of a scenario, up to the first that violates a rule."""
    return explore(lambda: build(rung, scenario), settle, most=most)


def build(rung: Rung, scenario: Scenario) -> LadderWorld:
    """Make a world in which the lock of this rung is used, before anything has happened."""
    world = LadderWorld(faults=scenario.faults, servers=rung.servers, successor=rung.successor)
    for number in range(scenario.clients):
        ahead = number * scenario.ahead
        process = Process(world, world.servers[0], f"c{number + 1}", offset=ahead, ahead=ahead)
        retry = scenario.retry + number * scenario.apart
        client = Client(process, rung.lock, retry=retry, writes=scenario.writes, guarded=rung.guarded)
        client.worker.start(client.run(scenario.rounds))
    return world


def settle(world: Stepwise) -> None:
    """Note the end: a client that still waits has waited for longer than any should."""
    world.note("end")


@cache
def find(rung: Rung) -> Found | None:
    """Search for the failure of a rung; None if it was not found within as many schedules as it is said to take."""
    assert rung.fall is not None, f"{rung.name} is a cure"
    report = search(rung, rung.fall.scenario, rung.fall.within)
    if not report.found:
        return None
    (found,) = report.found
    return Found(report.schedules, found.choices, found.violations[0], found.history)


@cache
def survives(rung: Rung, scenario: Scenario) -> Report:
    """Search all schedules of a scenario with this lock: it survives if all are covered, and nothing is found."""
    return search(rung, scenario)


class Step(NamedTuple):
    """One rung climbed: how it falls, and the one that survives."""

    rung: Rung
    fall: Fall
    found: Found | None
    cure: Rung
    survived: Report

    @property
    def held(self) -> bool:
        """All went as it is said to."""
        as_said = self.found is not None and self.found.violation.rule == self.fall.rule
        return as_said and self.survived.covered and not self.survived.found


def climb() -> Iterator[Step]:
    """Every rung that breaks, from the lowest."""
    for rung in RUNGS:
        if rung.fall is not None:
            cure = by_name(rung.fall.cure)
            yield Step(rung, rung.fall, find(rung), cure, survives(cure, rung.fall.scenario))


def by_name(name: str) -> Rung:
    """The rung of that name."""
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
            "The holder crashes, and nobody ever deletes the key: the lock is dead for ever.",
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
            "The client crashes between the two commands: the key has no expiry, and the lock is dead for ever.",
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
            "Two see that the time has passed. One deletes the key and takes the lock; the other then deletes that lock.",
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
            "To the client whose clock is ahead, a live lock looks expired: it steals it.",
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
            "Two clients write the same millisecond. The one that got no answer finds it in the key, and takes it for its own.",
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
            "A holder that was stopped gives back what is not its own any more: it frees the lock of the next one.",
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
            "Stopped between GET and DEL, a holder deletes what is not its own any more.",
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
            "The primary dies before the replica has heard of the lock; the replica gives it away again.",
            100,
            "redlock-late",
        ),
        successor="replica",
    ),
    Rung(
        "redlock",
        "Redlock, and a server that forgets",
        locks.Redlock(),
        Fall(
            DEATH,
            "R1",
            "One of the two servers that voted for the holder restarts without its memory, and votes for another one.",
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
            "Stopped between its look at the clock and its write, a holder writes over what the next one has written.",
            100,
            "guard",
        ),
    ),
    Rung("guard", "A fence, and a guard that checks it", locks.Fenced(), guarded=True),
)
"""From the lowest. Those without a fall are cures of others."""

same_in_all_states(Client, LadderWorker, *(type(rung.lock) for rung in RUNGS))
