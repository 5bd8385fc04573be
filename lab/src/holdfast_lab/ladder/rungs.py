"""The rungs of the ladder. Each rung is a simple lock, with the scenario that breaks it and a later rung that survives the
scenario."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from holdfast.testing.history import Event
from holdfast_lab.checkers import Violation
from holdfast_lab.explore import Report, explore
from holdfast_lab.ladder import locks, picture
from holdfast_lab.ladder.world import Client, LadderWorker, LadderWorld, Successor
from holdfast_lab.sim.state import same_in_all_states
from holdfast_lab.sim.stepwise import Stepwise
from holdfast_lab.sim.world import Process


@dataclass(frozen=True)
class Scenario:
    """The clients that use a lock, and the kinds of faults. At most one fault happens in a history, at any moment."""

    name: str
    about: str
    clients: int = 2
    rounds: int = 1
    """Number of times that each client acquires the lock."""
    faults: tuple[str, ...] = ()
    ahead: float = 0.0
    """Seconds by which the clock of each client is ahead of the clock of the client before it."""
    retry: float = 2.4
    """Seconds after which the first client tries again to acquire the lock, if another client held it."""
    apart: float = 0.0
    """Seconds by which the retry delay of each client is longer than that of the client before it. So the clients do not try
    again at the same time."""
    writes: bool = False
    """True if holders write to the protected resource at the end of their work."""


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
    """How a rung (a simple lock) fails: the scenario, the rule that the lock violates, and the later rung that survives the
    scenario."""

    scenario: Scenario
    rule: str
    """Number of the rule that the lock violates, such as ``R1``."""
    wrong: str
    """Description of the failure, in a sentence."""
    within: int
    """Maximum number of schedules that the search may need to find the failure."""
    cure: str
    """Name of the later rung that survives the same scenario."""


@dataclass(frozen=True)
class Rung:
    """A rung of the ladder: a lock, the number of servers that the lock needs, and how the lock fails. If the lock does not
    fail, ``fall`` is None."""

    name: str
    title: str
    lock: locks.LockOfLadder
    fall: Fall | None = None
    servers: int = 1
    successor: Successor = "itself"
    guarded: bool = False
    """True if the protected resource checks the fence of each write."""

    @property
    def about(self) -> str:
        """The description of the lock: the docstring of its class, as one line."""
        return " ".join(str(type(self.lock).__doc__).split())


class Found(NamedTuple):
    """A failure of a rung that the search has found: the schedule, its history and the violation."""

    schedules: int
    """Number of schedules that the search has tried, including the schedule in which the lock fails."""
    choices: list[int]
    violation: Violation
    history: list[Event]

    @property
    def timeline(self) -> str:
        """The timeline of the history, as text."""
        return picture.draw(self.history, self.violation)


def search(rung: Rung, scenario: Scenario, most: int = 1_000_000) -> Report:
    """Run the schedules (orders of events) of a scenario with a rung's lock, until one of them violates a rule or ``most``
    schedules were run."""
    return explore(lambda: build(rung, scenario), settle, most=most)


def build(rung: Rung, scenario: Scenario) -> LadderWorld:
    """Build the simulated world of a rung and a scenario, before its first step."""
    world = LadderWorld(faults=scenario.faults, servers=rung.servers, successor=rung.successor)
    for number in range(scenario.clients):
        ahead = number * scenario.ahead
        process = Process(world, world.servers[0], f"c{number + 1}", offset=ahead, ahead=ahead)
        retry = scenario.retry + number * scenario.apart
        client = Client(process, rung.lock, retry=retry, writes=scenario.writes, guarded=rung.guarded)
        client.worker.start(client.run(scenario.rounds))
    return world


def settle(world: Stepwise) -> None:
    """Record the end of a history. The rules then treat a client that still waits as waiting forever."""
    world.note("end")


@cache
def find(rung: Rung) -> Found | None:
    """Search for the failure of a rung that has a ``fall``. Return None if the search does not find the failure within
    ``fall.within`` schedules."""
    assert rung.fall is not None, f"{rung.name} is a cure"
    report = search(rung, rung.fall.scenario, rung.fall.within)
    if not report.found:
        return None
    (found,) = report.found
    return Found(report.schedules, found.choices, found.violations[0], found.history)


@cache
def survives(rung: Rung, scenario: Scenario) -> Report:
    """Run all schedules of a scenario with a rung's lock. The lock survives if the report has no violation and is complete."""
    return search(rung, scenario)


class Step(NamedTuple):
    """A step of the ladder: a rung (simple lock), its failure, and the later rung (its cure) that survives the same
    scenario."""

    rung: Rung
    fall: Fall
    found: Found | None
    cure: Rung
    survived: Report

    @property
    def held(self) -> bool:
        """True if the rung violated the expected rule, and the cure violated no rule in any schedule of the scenario."""
        as_said = self.found is not None and self.found.violation.rule == self.fall.rule
        return as_said and self.survived.covered and not self.survived.found


def climb() -> Iterator[Step]:
    """Yield a step for every rung that fails, from the lowest. For each step, search for the failure of the rung, and try the
    cure in all schedules of the scenario."""
    for rung in RUNGS:
        if rung.fall is not None:
            cure = by_name(rung.fall.cure)
            yield Step(rung, rung.fall, find(rung), cure, survives(cure, rung.fall.scenario))


def by_name(name: str) -> Rung:
    """Return the rung of this name."""
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
            "guard",
        ),
    ),
    Rung("guard", "A fence, and a resource that checks it", locks.Fenced(), guarded=True),
)
"""The rungs of the ladder, from the lowest. A rung without a ``fall`` does not fail. It is there as the cure of other rungs."""

same_in_all_states(Client, LadderWorker, *(type(rung.lock) for rung in RUNGS))
