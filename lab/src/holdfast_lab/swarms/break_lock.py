"""Seeded histories in which an operator breaks locks, that is, ends the leases of their holders.

An operator looks at a lock, waits for a while, and breaks the lease that it saw, with production's operations and scripts. If
another client holds the lock by then, that client keeps it. The world is that of the `lock` swarm.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from holdfast._core.inspect.break_lock import OtherHolder, Outcome, TakenAway, break_lock
from holdfast._core.inspect.scan import Field, read_locks
from holdfast._core.lock.renewal import QUESTION_EVERY_S
from holdfast._core.names import PREFIX, lock_keys
from holdfast._core.requests import Sleep, WireError
from holdfast.testing.history import Event
from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.judge.evidence import Evidence, Hold
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.sim.theme import PLAIN, Theme
from holdfast_lab.sim.worker import TaskCancelled, Worker
from holdfast_lab.sim.world import Process, World
from holdfast_lab.swarms.lock import ECHO, OF_A_LOCK, LockHistory
from holdfast_lab.swarms.swarm import Swarm

OPERATOR = "b" * 12
WHERE = Field(places=1, parts=1, timeout=0.3)
TOLD_WITHIN = QUESTION_EVERY_S + 0.5
"""Seconds within which a holder must learn that its lock was broken, counted from the notification.

After the notification, the holder may wait for `QUESTION_EVERY_S` before it asks the server.
"""


@dataclass(slots=True)
class Attack:
    """An operator's attempt to break a lock."""

    lock: str
    lease: str
    """The lease that the operator saw, by its name in the history."""
    sent: float
    came: float = float("inf")
    answer: Outcome | WireError | None = None


@dataclass(slots=True)
class Operator:
    """An operator that looks at locks and breaks them."""

    world: World
    rng: random.Random
    attacks: list[Attack] = field(default_factory=list)

    def come(self) -> None:
        """Start a worker that breaks a lock, unless all other workers have finished."""
        world = self.world
        process = next((one for one in world.processes if one.name == OPERATOR), None)
        process = process or Process(world, world.servers[0], OPERATOR)
        if process.here and world.working:
            worker = Worker(process, str(len(process.workers) + 1))
            key = lock_keys(self.rng.choice("xxy"), "hf:", None)[0]
            worker.start(self._operate(key))

    async def _operate(self, key: bytes) -> None:
        world, rng = self.world, self.rng
        try:
            (seen,) = await read_locks(WHERE, [key])
            sight = seen.sights[0]
            if sight is None or not sight.holds:
                return
            mark = sight.holds[0].mark
            await Sleep(rng.choice((0.0, 0.0, 0.01, 1.0)) * rng.random())
            attack = Attack(key.decode(), self._whose(mark), world.now)
            self.attacks.append(attack)
            name = world.servers[0].name
            fault = partial(world.note, "fault", name, attack.lock, note="foreign break", lease=attack.lease)
            fault(until=float("inf"))
            try:
                (attack.answer,) = await break_lock(WHERE, key, mark, "ops", prefix=PREFIX)
            except (WireError, TaskCancelled):
                fault(until=world.now + ECHO)  # the request may still arrive
                raise
            finally:
                attack.came = world.now
                world.note("healed", name, attack.lock, note="foreign break", lease=attack.lease)
        except (WireError, TaskCancelled):
            return

    def _whose(self, mark: str) -> str:
        """Return the name of the lease whose token has a SHA-1 that begins with ``mark``. With linger, a token ends in "~"."""
        tokens = (drawn + sort for drawn in self.world.acquisitions for sort in ("", "~"))
        found = (t for t in tokens if hashlib.sha1(t.encode(), usedforsecurity=False).hexdigest().startswith(mark))
        return self.world.drawn_for(next(found, ""))


class BreakHistory(LockHistory):
    """A history in which an operator breaks locks."""

    def __init__(self, seed: int, *, trace: bool = False, theme: Theme = PLAIN) -> None:
        super().__init__(seed, trace=trace, theme=theme)
        self.operator = Operator(self.world, self.rng)
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            self.world.plan(1 + int(150 * self.rng.random() ** 1.5), self.operator.come)

    def random_of(self, seed: int, theme: Theme) -> random.Random:  # noqa: ARG002 - for permits
        return random.Random(f"break {seed}")

    def judge(self, coverage: Coverage | None) -> list[Violation]:
        found, case = super().judge(coverage), Evidence(self.world.history)
        found += judge(self.operator.attacks, self.world.history, case)
        if coverage is not None:
            coverage.docket += case.docket
        self.counts += counts(self.operator.attacks)
        return found


def judge(attacks: list[Attack], history: list[Event], case: Evidence) -> Iterator[Violation]:
    """Judge attempts to break locks by the rules K1 to K3.

    - K1: an attempt ends no other lease than the one that the operator saw.
    - K2: the operator gets a fence. All fences of the lease that it ended are lower, and those of later holders are higher.
      Excused: the server lost its data or its clock was set between the attempt and the acquisition of the holder.
    - K3: if the server reports that it has notified the holder, the holder notices in time that its lease is lost. Excused:
      another fault may have affected the holder in the meantime.
    """
    seen = {attack.lease for attack in attacks}
    for event in history:
        if event.kind != "lost" or not event.note.startswith("it was broken"):
            continue
        case.docket.decide("K1")
        if (event.lease or event.attempt) not in seen:
            yield Violation("K1", f"{event.who} lost {event.lock!r}, but no operator saw this lease", (event,))
    # A process that has not noticed the loss may hand the lease on, under earlier fences.
    taken = {attack.lease for attack in attacks if attack.answer is None or isinstance(attack.answer, TakenAway | WireError)}
    done: set[int] = set()
    for attack in attacks:
        # A second attack on a lease gets the answer of the first one: judge each fence once.
        if isinstance(attack.answer, TakenAway) and attack.lock in case.scenes and attack.answer.fence not in done:
            done.add(attack.answer.fence)
            for hold in case.scenes[attack.lock].holds:
                yield from _fences(case, attack, attack.answer.fence, hold, taken)
                if attack.answer.told and hold.lease == attack.lease:
                    yield from _told(case, attack, hold)


def _fences(case: Evidence, attack: Attack, fence: int, hold: Hold, taken: set[str]) -> Iterator[Violation]:
    asked = hold.ask.event.at if hold.ask is not None else float("-inf")
    since, until = min(attack.sent, case.granted(hold) or hold.since), max(attack.came, hold.since)
    if case.docket.decide("K2", case.disturbed(since, until, attack.lock, ("amnesia", "clock"))):
        return
    if hold.lease == attack.lease and hold.fence >= fence and _was_meant(case, attack, hold):
        yield Violation("K2", f"{hold.who} lost its lease with fence {hold.fence}, and the operator got {fence}", (hold.taken,))
    if asked > attack.came and hold.lease not in taken and hold.fence <= fence:
        yield Violation("K2", f"{hold.who} asked after an operator got fence {fence}, and has {hold.fence}", (hold.taken,))


def _was_meant(case: Evidence, attack: Attack, hold: Hold) -> bool:
    """Return True if this acquisition was granted before the attack, so that it was the target of the attack.

    Otherwise the acquisition may have been granted after the attack. A holder that does not know of a first grant asks again,
    and gets a second grant with the same lease.
    """
    granted = case.granted(hold)
    return granted is not None and granted <= attack.sent


def _told(case: Evidence, attack: Attack, hold: Hold) -> Iterator[Violation]:
    felt = [
        fault
        for fault in case.felt(hold.process, attack.sent, attack.came + TOLD_WITHIN, ECHO)
        if not fault.event.note.startswith("foreign break")
    ]
    if not _was_meant(case, attack, hold) or case.docket.decide("K3", bool(felt)):
        return
    if min(hold.end, case.last) > max(attack.came, hold.since) + TOLD_WITHIN:
        text = f"{hold.who} was notified at {case.ms(attack.came)} that {hold.lock!r} was broken, but still relied on it"
        yield Violation("K3", text, (hold.taken,))


def counts(attacks: list[Attack]) -> Counter[str]:
    found: Counter[str] = Counter()
    for attack in attacks:
        match attack.answer:
            case TakenAway(_, told, heir):
                found["break done"] += 1
                found["break told"] += told
                found["break handed over"] += bool(heir)
            case OtherHolder():
                found["break refused"] += 1
    return found


ENOUGH = {
    "contended": 100,
    "break done": 300,
    "break told": 150,
    "break handed over": 100,
    "break refused": 50,
    "script inspect/break_lock": 300,
}
"""Minimum counts of events in 1,000 histories in which an operator breaks locks."""

SWARM = Swarm(BreakHistory, ENOUGH, (*OF_A_LOCK, "R19", "K1", "K2", "K3"))
