"""Seeded histories in which an operator takes locks away from their holders, in the world of `lock`.

An operator looks at a lock, thinks for a while, and takes it away, with production's operations and scripts. If the lock has
another holder by then, that holder keeps it.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from holdfast._core.inspect.break_lock import Changed, Outcome, TakenAway, break_lock
from holdfast._core.inspect.scan import Field, look
from holdfast._core.lock.renewal import QUESTION_EVERY_S
from holdfast._core.names import PREFIX, lock_keys
from holdfast._core.requests import AskPlace, Sleep, WireError
from holdfast.testing.history import Event
from holdfast.testing.judge.coverage import Coverage
from holdfast.testing.judge.evidence import Evidence, Hold
from holdfast.testing.judge.safety_rules import Violation
from holdfast.testing.sim.process import Process
from holdfast.testing.sim.rare import PLAIN, Theme
from holdfast.testing.sim.worker import Cancelled, Worker
from holdfast.testing.sim.world import World
from holdfast.testing.swarms import lock as lock_swarm
from holdfast.testing.swarms.lock import Profile
from holdfast.testing.swarms.result import Run

OPERATOR = "b" * 12
WHERE = Field(places=1, parts=1, timeout=0.3)
TOLD_WITHIN = QUESTION_EVERY_S + 0.5
"""Seconds for a message on its way, and for the question whether it is true: a pause of who hears it apart."""


@dataclass(slots=True)
class Attack:
    """One try to take a lock away."""

    lock: str
    lease: str
    """The lease of the holder that the operator saw, by its name in the history."""
    sent: float
    came: float = float("inf")
    answer: Outcome | WireError | None = None


@dataclass(slots=True)
class Operator:
    """An operator, which takes locks away."""

    world: World
    rng: random.Random
    attacks: list[Attack] = field(default_factory=list)

    def come(self) -> None:
        """Begin, now."""
        world = self.world
        process = next((one for one in world.processes if one.name == OPERATOR), None)
        process = process or Process(world, world.servers[0], OPERATOR)
        if process.here and world.working:
            worker = Worker(process, str(len(process.workers) + 1))
            worker._do[AskPlace] = lambda request: worker._call(request.call)  # noqa: SLF001
            key = lock_keys(self.rng.choice("xxy"), "hf:", None)[0]
            worker.start(self._operate(key))

    async def _operate(self, key: bytes) -> None:
        world, rng = self.world, self.rng
        try:
            (seen,) = await look(WHERE, [key])
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
            except (WireError, Cancelled):
                fault(until=world.now + lock_swarm.ECHO)  # the request may still come
                raise
            finally:
                attack.came = world.now
                world.note("healed", name, attack.lock, note="foreign break", lease=attack.lease)
        except (WireError, Cancelled):
            return

    def _whose(self, mark: str) -> str:
        """The lease that has this mark; a token may say that its holder keeps it after use."""
        tokens = (drawn + sort for drawn in self.world.acquisitions for sort in ("", "~"))
        found = (t for t in tokens if hashlib.sha1(t.encode(), usedforsecurity=False).hexdigest().startswith(mark))
        return self.world.drawn_for(next(found, ""))


def build(seed: int, *, trace: bool = False, theme: Theme = PLAIN) -> tuple[World, Profile, Operator]:
    """The world of a seed, before anything has happened in it."""
    rng = random.Random(f"break {seed}")
    world, profile = lock_swarm.build(seed, trace=trace, rng=rng, theme=theme)
    operator = Operator(world, rng)
    for _ in range(rng.choice((1, 1, 2, 4))):
        world.plan(1 + int(150 * rng.random() ** 1.5), operator.come)
    return world, profile, operator


def simulate(seed: int, *, trace: bool = False, coverage: Coverage | None = None, theme: Theme = PLAIN) -> Run[Profile]:
    """Simulate one history and judge it. Its events are counted in ``coverage``."""
    world, profile, operator = build(seed, trace=trace, theme=theme)
    run = lock_swarm.judged(seed, world, profile, coverage)
    case = Evidence(world.history)
    run.violations += judge(operator.attacks, world.history, case)
    if coverage is not None:
        coverage.docket += case.docket
    run.counts += counts(operator.attacks)
    return run


def judge(attacks: list[Attack], history: list[Event], case: Evidence) -> Iterator[Violation]:
    """Judge the operator's attacks by rules K1 to K3.

    - K1: a lock is taken away only from the holder that the operator saw.
    - K2: the fences of that lease are below the fence that the attack returns, and those of later holders are above it.
      Excused: amnesia, and a clock that was set between the two.
    - K3: a holder that is reported as told knows of its loss. Excused: every fault that it may have felt meanwhile, except the
      attack itself.
    """
    seen = {attack.lease for attack in attacks}
    for event in history:
        if event.kind != "lost" or not event.note.startswith("it was broken"):
            continue
        case.docket.decide("K1")
        if (event.lease or event.attempt) not in seen:
            yield Violation("K1", f"{event.who} lost {event.lock!r}, and somebody else was to lose it", (event,))
    done: set[int] = set()
    for attack in attacks:
        # An attack that looked before another one was done gets the answer of that one.
        if isinstance(attack.answer, TakenAway) and attack.lock in case.scenes and attack.answer.fence not in done:
            done.add(attack.answer.fence)
            for hold in case.scenes[attack.lock].holds:
                yield from _fences(case, attack, attack.answer.fence, hold)
                if attack.answer.told and hold.lease == attack.lease:
                    yield from _told(case, attack, hold)


def _fences(case: Evidence, attack: Attack, fence: int, hold: Hold) -> Iterator[Violation]:
    asked = hold.ask.event.at if hold.ask is not None else float("-inf")
    since, until = min(attack.sent, case.granted(hold) or hold.since), max(attack.came, hold.since)
    if case.docket.decide("K2", case.disturbed(since, until, attack.lock, ("amnesia", "clock"))):
        return
    if hold.lease == attack.lease and hold.fence >= fence and _was_meant(case, attack, hold):
        yield Violation("K2", f"{hold.who} has fence {hold.fence}, and was to be kept out by {fence}", (hold.taken,))
    if asked > attack.came and hold.lease != attack.lease and hold.fence <= fence:
        yield Violation("K2", f"{hold.who} came later than fence {fence}, and has {hold.fence}", (hold.taken,))


def _was_meant(case: Evidence, attack: Attack, hold: Hold) -> bool:
    """Tell whether the grant came before the attack. A holder that did not know of it may have asked anew since."""
    granted = case.granted(hold)
    return granted is not None and granted <= attack.sent


def _told(case: Evidence, attack: Attack, hold: Hold) -> Iterator[Violation]:
    felt = [
        fault
        for fault in case.felt(hold.process, attack.sent, attack.came + TOLD_WITHIN, lock_swarm.ECHO)
        if not fault.event.note.startswith("foreign break")
    ]
    if not _was_meant(case, attack, hold) or case.docket.decide("K3", bool(felt)):
        return
    if min(hold.end, case.last) > max(attack.came, hold.since) + TOLD_WITHIN:
        text = f"{hold.who} was told at {case.ms(attack.came)} that {hold.lock!r} was taken away, and believed in it"
        yield Violation("K3", text, (hold.taken,))


def counts(attacks: list[Attack]) -> Counter[str]:
    """Count the results of the attacks."""
    found: Counter[str] = Counter()
    for attack in attacks:
        match attack.answer:
            case TakenAway(_, told, heir):
                found["break done"] += 1
                found["break told"] += told
                found["break handed over"] += bool(heir)
            case Changed():
                found["break refused"] += 1
    return found
