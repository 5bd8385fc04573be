"""Rules of schedules: each tick runs once, in one place, and none is forgotten.

A rule looks at the history, and at what the server knows in the end. ``taken`` is the beginning of a run here, ``released`` its
end (note: "ok", "cancelled", "lost"), ``lock`` the job, ``attempt`` the tick in us of the server's clock with the number of the
attempt: ``1700000000000000/1``, and an h behind it if somebody has asked for it by hand.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Protocol

from holdfast.testing.history import Event
from holdfast.testing.judge.excuses import AMNESIA, CLOCK, FORWARD, Upsets
from holdfast.testing.judge.safety_rules import Violation
from holdfast.testing.judge.verdicts import Docket

ROUNDING = 0.002
"""Seconds: leases are told in whole milliseconds."""

JUST_NOW = 1.0
"""Seconds within which what has ended may not be written down yet."""

AROUND = 4.0
"""Seconds for which a fault may delay something."""

ATTEMPTS = 3
"""Times that a tick may be run."""

BESIDE = 10
"""Runs of a job that may go on at the same time, where it allows more than one."""

ASLEEP = 10.0
"""Seconds after which everybody has asked what time it is, after the clock was set forward."""

SLACK = 2_000_000
"""Ticks of the last two seconds may be on their way (us)."""


class Terms(Protocol):
    """How the runs of a job go: what the job was declared with, as far as a rule reads it."""

    @property
    def ttl(self) -> float: ...
    @property
    def min_runtime(self) -> float: ...
    @property
    def overlap(self) -> str: ...
    @property
    def misfire(self) -> str: ...
    @property
    def on_crash(self) -> str: ...


class Entry(Protocol):
    """An entry of the log, times in us."""

    @property
    def status(self) -> str: ...
    @property
    def scheduled(self) -> int: ...
    @property
    def until(self) -> int: ...
    @property
    def started(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def fence(self) -> int: ...
    @property
    def host(self) -> str: ...


class ActiveRun(Protocol):
    """A run that goes on."""

    @property
    def scheduled(self) -> int: ...


class Facts(Protocol):
    """The facts that the server stores about a job."""

    @property
    def name(self) -> str: ...
    @property
    def last(self) -> int: ...
    @property
    def paused(self) -> bool: ...
    @property
    def queued(self) -> int: ...
    @property
    def running(self) -> Sequence[ActiveRun]: ...
    @property
    def entries(self) -> Sequence[Entry]: ...


class Stretch(NamedTuple):
    """A run, as long as its process believed in it: true times."""

    began: Event
    end: float
    how: str
    """ok, cancelled, lost, crashed, or why its lease was over."""


@dataclass(slots=True)
class Served:
    """The history of a schedule, with the facts that its rules need."""

    history: list[Event]
    facts: Sequence[Facts]
    jobs: Mapping[str, tuple[float, Terms]]
    """Seconds between two ticks, which are the multiples of that; and how the runs go."""
    now: float
    """True time of the end."""
    shown: Callable[[float], float]
    """Converts a true time to the time that the server's clock showed, in seconds."""
    steady: bool
    """Messages take about as long as they always do."""
    calm: bool
    """Nothing went wrong."""
    roomy: bool
    """A process can run all its jobs at the same time."""
    slack: float
    """Seconds by which a process that asks for something to run may not know of the tick that is due."""
    prompt: float
    """Seconds within which a tick is begun then."""
    stretches: dict[str, list[Stretch]] = field(default_factory=dict)
    docket: Docket = field(default_factory=Docket)
    upsets: Upsets = field(default_factory=lambda: Upsets(()))

    def forgot(self, since: float, until: float | None = None) -> bool:
        """The server has lost, since then, what it knew then."""
        return self.upsets.between(since, self.now if until is None else until, AMNESIA)

    def lately(self, began: Event, *kinds: str) -> bool:
        """The server has had one of these faults less than a lease before this began: it may not keep its word."""
        return self.upsets.between(began.at - self.jobs[began.lock][1].ttl, began.at, *kinds)

    def has_shown(self, at: float) -> float:
        """The latest time that its clock had shown by then: it may have been set back."""
        before = (since - ROUNDING for since, _ in self.upsets.of(CLOCK) if since <= at)
        return max(self.shown(moment) for moment in (at, *before))


def judge(case: Served) -> list[Violation]:
    """All that is violated."""
    case.stretches = _stretches(case)
    case.upsets = Upsets(case.history)
    return [violation for rule in RULES for violation in rule(case)]


def _stretches(case: Served) -> dict[str, list[Stretch]]:
    """The runs of each job, by when they began."""
    ends: dict[tuple[str, str, str], tuple[float, str]] = {}
    crashed: dict[str, float] = {}
    for event in case.history:
        if event.kind in {"lost", "released"}:
            ends.setdefault(
                (event.who, event.lock, event.attempt), (event.at, event.note if event.kind == "released" else "lost")
            )
        elif event.kind == "crashed":
            crashed[event.who] = event.at
    found: dict[str, list[Stretch]] = defaultdict(list)
    renewed = _renewed(case.history)
    for event in case.history:
        if event.kind == "taken":
            never = (crashed.get(event.who, case.now), "crashed" if event.who in crashed else "goes on")
            at, how = ends.get((event.who, event.lock, event.attempt), never)
            until = max(event.until, renewed.get((event.who, event.lock, event.attempt), 0.0))
            found[event.lock].append(Stretch(event, min(at, max(event.at, until)), how))
    return found


def _renewed(history: list[Event]) -> dict[tuple[str, str, str], float]:
    """Until when each run was believed to have its lease, as last renewed."""
    return {(event.who, event.lock, event.attempt): event.until for event in history if event.kind == "renewed"}


def _tick(attempt: str) -> tuple[int, int]:
    scheduled, number = attempt.rstrip("h").split("/")
    return int(scheduled), int(number)


def s1_once(case: Served) -> Iterator[Violation]:
    """No attempt at a tick is begun twice; each is begun when the one before has ended, and only if a job is to run again."""
    good = {(facts.name, entry.fence) for facts in case.facts for entry in facts.entries if entry.status == "ok"}
    for job, stretches in case.stretches.items():
        options = case.jobs[job][1]
        seen: dict[str, Stretch] = {}
        ended: dict[tuple[int, bool], Stretch] = {}
        for stretch in stretches:
            attempt = stretch.began.attempt
            scheduled, number = _tick(attempt)
            twice = seen.get(attempt)
            if not case.docket.decide("S1", twice is not None and case.forgot(twice.began.at, stretch.began.at)) and twice:
                yield _wrong("S1", f"{job} {attempt} is begun twice", twice, stretch)
            seen[attempt] = stretch
            if stretch.began.until <= stretch.began.at:
                yield _wrong("S2", f"{job} {attempt} is begun when its lease is over", stretch)
            upset = case.lately(stretch.began, AMNESIA, CLOCK)
            if stretch.began.until > stretch.began.since + ROUNDING and not upset:
                yield _wrong("S2", f"{job} {attempt} is believed in for longer than the server does", stretch)
            before = ended.get((scheduled, attempt.endswith("h")))
            if before is not None and (case.forgot(before.began.at, stretch.began.at) or case.lately(stretch.began, CLOCK)):
                before = None
            if number > 1 and options.on_crash == "leave":
                yield _wrong("S1", f"{job} {attempt}: it was to be left", stretch)
            if before is not None and before.end > stretch.began.at + ROUNDING:
                yield _wrong("S1", f"{job} {attempt} is begun while another attempt goes on", before, stretch)
            if before is not None and (job, before.began.fence) in good:
                yield _wrong("S1", f"{job} {attempt} is begun, and another attempt has been good", before, stretch)
            ended[scheduled, attempt.endswith("h")] = stretch


def s2_exclusion(case: Served) -> Iterator[Violation]:
    """Never more runs of a job at the same time than it has slots."""
    for job, stretches in case.stretches.items():
        slots = _slots(case.jobs[job][1])
        going: list[Stretch] = []
        for stretch in stretches:
            going = [other for other in going if other.end > stretch.began.at + ROUNDING]
            known = [other for other in going if not case.forgot(other.began.at, stretch.began.at)]
            known = [] if case.lately(stretch.began, CLOCK) else known
            if not case.docket.decide("S2", len(known) < slots <= len(going)) and len(known) >= slots:
                yield _wrong("S2", f"{job}: {len(going) + 1} runs at the same time", *going, stretch)
            going.append(stretch)


def _slots(options: Terms) -> int:
    return BESIDE if options.overlap == "allow" else 1


def s3_fences(case: Served) -> Iterator[Violation]:
    """Each run has a fence of its own; who begins when another one has ended has a greater one."""
    for job, stretches in case.stretches.items():
        fences = Counter(stretch.began.fence for stretch in stretches)
        if fences and max(fences.values()) > 1:
            yield Violation("S3", f"{job}: a fence is given twice")
        if _slots(case.jobs[job][1]) == 1:
            for before, after in pairwise(stretches):
                case.docket.decide("S3")
                if before.began.fence >= after.began.fence:
                    yield _wrong("S3", f"{job}: a fence that does not rise", before, after)


def s4_none_forgotten(case: Served) -> Iterator[Violation]:
    """Each tick that was due is in the log, runs, or waits to be run behind one that runs."""
    for facts in case.facts:
        period, options = case.jobs[facts.name]
        ranges = [(entry.scheduled, entry.until) for entry in facts.entries]
        known = {entry.scheduled for entry in facts.entries} | {run.scheduled for run in facts.running}
        now = int(case.shown(case.now) * 1e6)
        # A process that sleeps until a tick is due does not hear that the clock was set forward.
        unaware = case.upsets.between(case.now - ASLEEP, case.now, FORWARD)
        case.docket.decide("S4")
        claims = case.roomy and not case.docket.decide("S4 claims", unaware)
        if claims and facts.last < now - SLACK - int(2e6 * options.ttl) - int(1e6 * (period + 1.0)):
            yield Violation("S4", f"{facts.name}: nothing is claimed since {(now - facts.last) / 1e6:.1f} s")
        waiting = facts.queued
        # After the clock was set back, a run by hand may be older than the job.
        firsts = [first for first, _ in ranges if not case.upsets.of(CLOCK) or first % round(period * 1e6) == 0]
        tick = _after(period, min(firsts, default=now))
        while tick <= min(facts.last, now):
            if tick not in known and not any(first <= tick <= last for first, last in ranges):
                waiting -= 1
            tick = _after(period, tick)
        if waiting < 0:
            yield Violation("S4", f"{facts.name}: {-waiting} ticks are nowhere")
        if facts.queued and not facts.running and not facts.paused and not options.min_runtime and case.roomy:
            yield Violation("S4", f"{facts.name}: {facts.queued} runs wait, and none goes on")


def _after(period: float, tick: int) -> int:
    """The tick after this time, by the rule that the docs have, and not by the code that is judged."""
    step = round(period * 1e6)
    return (tick // step + 1) * step


def s9_one_late_run(case: Served) -> Iterator[Violation]:
    """When a tick begins, no later tick that was due at that moment is run, too: after any pause, one run of a job starts late.
    That is not promised where each tick is wanted, or waits in a queue. A retry is an attempt, not a tick."""
    for facts in case.facts:
        period, options = case.jobs[facts.name]
        if options.overlap == "queue" or options.misfire == "all":
            continue
        runs = sorted(
            (entry.scheduled, entry.started)
            for entry in facts.entries
            if entry.fence and entry.attempt == 1 and entry.scheduled % round(period * 1e6) == 0
        )
        for (tick, started), (later, _) in pairwise(runs):
            unaware = any(0 <= started / 1e6 - case.shown(at) <= ASLEEP for at, _ in case.upsets.of(FORWARD))
            if not case.docket.decide("S9", unaware) and later <= started - case.slack * 1e6:
                late = (started - tick) / 1e6
                yield Violation(
                    "S9", f"{facts.name} {tick} begins {late:.2f} s late, and {later}, which was due then, is run, too"
                )


def s5_written(case: Served) -> Iterator[Violation]:
    """The log says what has happened to each run, once."""
    for facts in case.facts:
        entries = [entry for entry in facts.entries if entry.status not in {"skipped", "missed"}]
        log = Counter((entry.scheduled, entry.attempt, entry.fence) for entry in entries)
        running = {run.scheduled for run in facts.running}
        if log and max(log.values()) > 1:
            yield Violation("S5", f"{facts.name}: the end of a run is written down twice")
        for stretch in case.stretches.get(facts.name, ()):
            known = (*_tick(stretch.began.attempt), stretch.began.fence)
            if stretch.how == "goes on" or stretch.end >= case.now - JUST_NOW:
                continue
            # Set back, the clock lets what has died keep its lease for so much longer.
            kept = known[0] in running and case.upsets.between(stretch.began.at, case.now, CLOCK)
            forgot = case.forgot(stretch.began.at - case.jobs[facts.name][1].ttl)
            if not case.docket.decide("S5", forgot or kept) and known not in log:
                yield _wrong("S5", f"{facts.name} {stretch.began.attempt} is not in the log", stretch)
        if any(entry.status == "crashed" and entry.attempt > ATTEMPTS for entry in entries):
            yield Violation("S5", f"{facts.name}: begun again too often")


def s7_nothing_made_up(case: Served) -> Iterator[Violation]:
    """No run counts as crashed that was given to nobody, or has ended well; in peace, none does, and no tick is missed."""
    for facts in case.facts:
        begun = {stretch.began.fence: stretch for stretch in case.stretches.get(facts.name, ())}
        for entry in facts.entries:
            run = begun.get(entry.fence)
            if entry.status == "crashed":
                wrong = run is None or run.how in {"ok", "cancelled"}
                upset = run is not None and case.upsets.between(run.began.at, run.end, CLOCK)
                if case.docket.decide("S7", wrong and (upset or _delayed(case, entry))):
                    pass
                elif run is None:
                    yield Violation("S7", f"{facts.name} {entry.scheduled}/{entry.attempt}: given to nobody")
                elif wrong:
                    yield _wrong("S7", f"{facts.name} {entry.scheduled}/{entry.attempt}: its end got lost", run)
            peace = not case.docket.decide("S7 peace", not (case.calm and case.roomy))
            if peace and entry.status in {"crashed", "missed"}:
                yield Violation("S7", f"{facts.name}: {entry.status}, and nothing has gone wrong")


def _delayed(case: Served, entry: Entry) -> bool:
    """Something may have taken longer than a lease, for the process that had this run."""
    quick = {"lost-reply", "lost-request", "duplicate", "cut"}
    whose = {entry.host.removeprefix("process "), "server"}
    around = [
        event.note
        for event in case.history
        if event.kind == "fault" and event.who in whose and abs(case.shown(event.at) - entry.started / 1e6) < AROUND
    ]
    return not case.steady or len([note for note in around if note.startswith("lost")]) > 1 or not quick.issuperset(around)


def s6_prompt(case: Served) -> Iterator[Violation]:
    """No run begins before its time; in peace, where nothing is in its way, it begins at once."""
    for job, stretches in case.stretches.items():
        for stretch in stretches:
            scheduled, number = _tick(stretch.began.attempt)
            shown = case.shown(stretch.began.at)
            case.docket.decide("S6")
            if case.has_shown(stretch.began.at) < scheduled / 1e6:
                yield _wrong("S6", f"{job} {stretch.began.attempt} begins too early", stretch)
            free = case.jobs[job][1].overlap != "queue" and number == 1 and not stretch.began.attempt.endswith("h")
            if not free or case.docket.decide("S6 prompt", not (case.calm and case.prompt < float("inf"))):
                continue
            if shown - scheduled / 1e6 > case.prompt + 0.1:
                yield _wrong("S6", f"{job} {stretch.began.attempt} begins {shown - scheduled / 1e6:.2f} s late", stretch)


def _wrong(rule: str, text: str, *stretches: Stretch) -> Violation:
    return Violation(rule, text, tuple(stretch.began for stretch in stretches))


RULES = (s1_once, s2_exclusion, s3_fences, s4_none_forgotten, s5_written, s6_prompt, s7_nothing_made_up, s9_one_late_run)
