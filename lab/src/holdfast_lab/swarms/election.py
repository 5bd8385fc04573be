"""Seeded histories of an election: candidates campaign, lead, resign, hand over and die, and observers watch.

At the end, all faults are healed, and a last candidate leads for a while. All observers must notice that this candidate leads,
and later that its term ends.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from holdfast._core.election import LISTEN_S, Elected
from holdfast._core.requests import Sleep
from holdfast.testing.history import Event
from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.judge.excuses import AMNESIA, CLOCK, FORWARD, Upsets
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.judge.verdicts import Docket
from holdfast_lab.sim.election_client import Candidate, ElectionData, Observer
from holdfast_lab.sim.faults import FAULTS
from holdfast_lab.sim.leftovers import leftovers
from holdfast_lab.sim.lock_client import spec
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.theme import PLAIN, Theme
from holdfast_lab.sim.virtual_time import EPOCH, Stuck
from holdfast_lab.sim.worker import TaskCancelled, Worker
from holdfast_lab.sim.world import Api, Process, World
from holdfast_lab.swarms.swarm import History, Swarm

LAST = "last"
"""Name of the candidate that leads at the end."""

KINDS = sorted(FAULTS.keys() - {"amnesia", "clock", "foreign", "close"})

STEPS = 60_000
APIS: tuple[Api, ...] = ("threads", "asyncio")


@dataclass(slots=True)
class Profile:
    """The parameters of a history, drawn from its seed. Times are in seconds."""

    ttl: float
    latency: float
    slow_share: float
    mishaps: float
    candidates: int
    observers: int
    crash: bool
    """True if the process of the last leader is killed; False if the leader resigns."""
    faults: list[tuple[float, str, float]] = field(default_factory=list)

    @property
    def calm(self) -> bool:
        """True if there are no faults, and no message is slow or lost."""
        return not (self.faults or self.mishaps or self.slow_share)

    @property
    def told_within(self) -> float:
        """Seconds within which observers must notice a change of the leader."""
        return 0.2 + 60 * self.latency + (0.0 if self.calm else LISTEN_S + 3.0)


def draw(rng: random.Random) -> Profile:
    choice, uniform = rng.choice, rng.random
    profile = Profile(
        ttl=choice((0.5, 1.0, 2.0, 4.0)),
        latency=choice((0.0003, 0.0003, 0.003, 0.01)),
        slow_share=choice((0.0, 0.0, 0.0, 0.02)),
        mishaps=choice((0.0, 0.0, 0.0, 0.02, 0.1)),
        candidates=choice((1, 2, 3, 4)),
        observers=choice((1, 1, 2, 3)),
        crash=uniform() < 0.3,
    )
    for kind in rng.sample(KINDS, choice((0, 0, 1, 1, 2))):
        for _ in range(choice((1, 2, 3))):
            profile.faults.append((8.0 * uniform(), kind, choice((0.01, 0.3, 1.0, 3.0)) * uniform()))
    return profile


class ElectionHistory(History[Profile]):
    """A history of an election."""

    hangs, fails = "E6", "E0"

    def __init__(self, seed: int, *, trace: bool = False, theme: Theme = PLAIN) -> None:
        profile = draw(rng := random.Random(f"election {seed}"))
        theme.redraw(seed, profile, lambda share: 8.0 * share)
        super().__init__(seed, rng, profile, trace=trace)
        world = self.world
        self.server = Server(world, rate=1 + rng.choice((0.0, 0.002, -0.002)))
        self.election = ElectionData(spec("x", ttl=profile.ttl))
        self.have_seen: set[str] = set()
        """Observers that have noticed that the last candidate leads."""
        self.led = self.enough = False
        processes = [self._process(f"c{number + 1}") for number in range(rng.choice((1, 2, 3)))]
        self.names = [f"n{number + 1}" for number in range(profile.candidates)]
        self.candidates = [self._worker(rng.choice(processes), self._take_part, name) for name in self.names]
        self.observers = [
            self._worker(rng.choice((*processes, self._process(f"d{number}"))), self._watch)
            for number in range(profile.observers)
        ]
        for at, kind, lasts in profile.faults:
            world.at(EPOCH + at, FAULTS[kind], world, rng, lasts)
        theme.begin(seed, world)

    def _process(self, name: str) -> Process:
        rng = self.rng
        offset, rate = 1000 * rng.random(), 1 + rng.choice((0.0, 0.002))
        return Process(self.world, self.server, name, api=rng.choice(APIS), offset=offset, rate=rate)

    def _worker(self, process: Process, what: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> Worker:
        worker = Worker(process, str(len(process.workers) + 1))
        worker.start(what(worker, *args))
        return worker

    async def _take_part(self, worker: Worker, name: str) -> None:
        """Run a candidate, which campaigns and leads several times."""
        candidate, rng = Candidate(worker, self.election, name), self.rng
        for _ in range(rng.choice((1, 2, 3, 4))):
            try:
                await self._lead(candidate)
                await Sleep(rng.choice((0.0, 0.1, 1.0)) * rng.random())
            except TaskCancelled:
                self.counts["election cancelled"] += 1

    async def _lead(self, candidate: Candidate) -> None:
        rng, counts = self.rng, self.counts
        term = await candidate.campaign(rng.choice((None, None, 5.0, 0.3, 0.0)))
        if term is None:
            counts["election not elected"] += 1
            return
        counts["election elected"] += 1
        try:
            await Sleep(rng.choice((0.0, 0.1, 0.5, 1.5)) * rng.random() * self.profile.ttl)
            if rng.random() < 0.3:
                await candidate.say(term, "more")
            if rng.random() < 0.4:
                counts[f"election {await candidate.hand_over(term, rng.choice(self.names))}"] += 1
                await Sleep(0.1 * rng.random())
        finally:
            if not term.is_over():
                await candidate.resign(term)

    async def _watch(self, worker: Worker) -> None:
        """Run an observer until it has seen the last candidate lead, and then the end of that candidate's term."""
        observer = Observer(worker, self.election)
        found: Elected | None = None
        while found is None or found.name != LAST:
            found = await observer.see()
            self.counts["election seen" if found else "election seen nobody"] += 1
        self.have_seen.add(worker.name)
        while found is not None:
            found = await observer.see()

    # The course of the history

    def go(self) -> None:
        world, profile = self.world, self.profile
        self._run_phases()
        there = {worker.name for worker in self.observers if worker.process.here}
        self.found += judge_seen(world.history, there, profile.told_within, profile.ttl, LAST, docket=self.docket)
        self.found += [
            Violation("E6", f"not finished: {worker.name}: {worker.asked}") for worker in world.working if worker.name in there
        ]
        if profile.calm:
            self.found += judge_gifts(world.history, self.docket)
        world.pass_time(20.0 + 2 * profile.ttl)
        self.docket.decide("E6")
        self.found += [Violation("E6", f"left behind: {what}") for what in (*leftovers(world), *nameless(world))]

    def stuck(self) -> str:
        return f"still waiting: {[(worker.name, worker.asked) for worker in self.world.working]}"

    def judge(self, coverage: Coverage | None) -> list[Violation]:
        found = judge(self.world.history, self.docket, self.profile.ttl)
        return found + super().judge(coverage)

    def _run_phases(self) -> None:
        """Run the history: first with faults, then without, and at the end with the last candidate.

        Raises Stuck if a candidate does not finish after the faults are healed.
        """
        world, profile = self.world, self.profile
        world.pass_time(9.0 if not profile.calm else 3.0)
        world.calm_down()
        world.pass_time(4.0 if not profile.calm else 0.0)
        for _ in range(600):
            if not any(worker in world.working for worker in self.candidates):
                break
            world.pass_time(1.0)
        else:
            raise Stuck
        self._worker(last := self._process("e1"), self._lead_last)
        self._pass(profile.told_within + 1.0, lambda worker: worker.name in self.have_seen)
        self.enough = True
        if profile.crash:
            self._note_end()
            last.crash()
        self._pass(profile.told_within + profile.ttl + 1.0, lambda worker: worker.done)

    def _pass(self, most: float, enough: Callable[[Worker], bool]) -> None:
        """Wait until the last candidate leads and ``enough`` is True for all living observers, at most ``most`` seconds."""
        until = self.world.now + most
        while self.world.now < until and not (self.led and all(enough(w) for w in self.observers if w.process.here)):
            self.world.pass_time(0.1)

    def _note_end(self) -> None:
        for candidate, term in self.election.terms[-1:]:
            self.world.note(
                "over", candidate.worker.name, self.election.spec.key, candidate.name, fence=term.fence, note="dies"
            )

    async def _lead_last(self, worker: Worker) -> None:
        candidate = Candidate(worker, self.election, LAST)
        term = None
        while term is None:
            term = await candidate.campaign(None)
        self.led = True
        if not self.profile.crash:
            while not self.enough:
                await Sleep(0.1)
            await candidate.resign(term)
        else:
            await Sleep(1e6)


# Rules


def judge(history: list[Event], docket: Docket, lease: float) -> list[Violation]:
    """Judge a history by the rules that hold even with faults.

    - E1: at most one candidate at a time believes that it leads. Excused: during the last lease time, the server lost its
      data or its clock was set forward. Then the fence check protects resources from the older leader.
    - E2: each leader has a higher term than all earlier leaders. Excused: the server lost its data and its clock was set.
    - E3: the terms that an observer sees never fall, and each term has one leader.
    - E6: no data is left behind.
    """
    found: list[Violation] = []
    upsets = Upsets(history)
    highest, names = 0, dict[int, str]()
    seen: dict[str, int] = {}
    for event in history:
        if event.kind == "leads":
            start = history[0].at  # then the server may issue any term
            forgot = upsets.between(start, event.at, AMNESIA) and upsets.between(start, event.at, CLOCK)
            if not docket.decide("E2", forgot) and event.fence <= highest:
                found.append(Violation("E2", f"{event.who} leads in term {event.fence}, after term {highest}", (event,)))
            highest, names[event.fence] = max(highest, event.fence), event.attempt
        unsettled = upsets.between(event.at - lease, event.at, AMNESIA, FORWARD)
        if event.kind in {"leads", "keeps"} and not docket.decide("E1", unsettled) and event.note:
            found.append(Violation("E1", f"{event.who} leads, and {event.note} believes the same", (event,)))
        if event.kind == "saw" and event.fence:
            docket.decide("E3")
            if event.fence < seen.get(event.who, 0):
                found.append(Violation("E3", f"{event.who} saw term {event.fence} after a higher one", (event,)))
            if names.get(event.fence, event.attempt) != event.attempt:
                found.append(Violation("E3", f"{event.who} saw {event.attempt} in {names[event.fence]}'s term", (event,)))
            seen[event.who] = event.fence
        if event.kind == "left":
            found.append(Violation("E6", f"left behind: {event.note}", (event,)))
    return found


def judge_seen(
    history: list[Event], observers: set[str], within: float, lease: float, last: str, *, docket: Docket
) -> list[Violation]:
    """Check that each observer learns in time of a candidate's election (E4), and of the end of the term (E5).

    ``last`` is the name of the candidate. If it was elected several times, its latest term counts. The time limit is ``within``
    seconds. For E5, it is longer by ``lease`` seconds if the candidate died or lost its lease.
    """
    found = []
    led = next((event for event in reversed(history) if event.kind == "leads" and event.attempt == last), None)
    if led is None:
        return [Violation("E4", "the last candidate was not elected")]
    over = next((event for event in history if event.kind == "over" and event.fence == led.fence), None)
    docket.judged.update(E4=len(observers), E5=len(observers) if over is not None else 0)
    for who in sorted(observers):
        mine = [event for event in history if event.kind == "saw" and event.who == who]
        if not any(event.fence == led.fence and event.at <= led.at + within for event in mine):
            found.append(Violation("E4", f"{who} has not seen in time that {last} leads", (led,)))
        until = 0.0 if over is None else over.at + within + (lease if over.note in {"dies", "lost"} else 0.0)
        if over is not None and not any(not event.fence and led.at < event.at <= until for event in mine):
            found.append(Violation("E5", f"{who} has not seen in time that {last} leads no more", (over,)))
    return found


LATE = 0.2
"""Seconds within which a candidate learns that a leader has handed over to it, if there are no faults."""


def judge_gifts(history: list[Event], docket: Docket) -> list[Violation]:
    """Check, in a history without faults, that a candidate to which a leader hands over is elected next (E7).

    Excused: the candidate stopped waiting before it could learn of its election.
    """
    found = []
    for number, event in enumerate(history):
        if event.kind == "over" and event.note.startswith("to "):
            to = event.note[3:]
            asked = [e for e in history[:number] if e.kind == "ask" and e.who.rpartition("/")[2] == to[1:]]
            if docket.decide("E7", bool(asked) and asked[-1].until < event.at + LATE):
                continue  # it had stopped waiting before it could learn of its election
            after = next((later for later in history[number:] if later.kind == "leads" and later.fence > event.fence), None)
            # The next leader may be elected before this leader gets the reply to its hand-over.
            mine = next((e for e in history if e.kind == "leads" and e.fence > event.fence), after)
            if mine is None or mine.attempt != to:
                found.append(
                    Violation("E7", f"{event.attempt} handed over to {to}, and {mine and mine.attempt} leads", (event,))
                )
    return found


def nameless(world: World) -> list[str]:
    """Return names of candidates that the server has not deleted, although they have no position in the queue."""
    found = []
    for server in world.servers:
        for key, kind, value, _ in server.keyspace.dump():
            if kind == b"hash":
                fields = {name for name, _ in value}
                found += [f"{n.decode()} in {key.decode()}" for n in fields if n[:3] == b"as:" and b"at:" + n[3:] not in fields]
    return found


ENOUGH = {
    "election seen": 4000,
    "election seen nobody": 1500,
    "election elected": 2500,
    "election not elected": 400,
    "election handed": 150,
    "election kept": 400,
    "election cancelled": 5,
    **{f"script election/{name}": 200 for name in ("join", "proclaim", "observe", "transfer", "notify_observers")},
}
"""Minimum counts of events in 1,000 histories of elections."""

SWARM = Swarm(ElectionHistory, ENOUGH, ("E1", "E2", "E3", "E4", "E5", "E6", "E7"))
