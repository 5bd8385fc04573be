"""Rules of schedules: each tick is run once, by one process, and no tick is left out.

A rule examines a history, and what the server has stored when it ends. In these histories, ``taken`` is the start of a run, and
``released`` is its end (``note``: "ok", "cancelled" or "lost"). ``lock`` is the job. ``attempt`` is the tick in microseconds of
server time, with the number of the attempt to run it, such as ``1700000000000000/1``. It ends with "h" if an operator requested
the run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Protocol

from holdfast.testing.history import Event
from holdfast_lab.judge.excuses import AMNESIA, CLOCK, FORWARD, Upsets
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.judge.verdicts import Docket

COUNTED = 1000
"""Number of missed ticks up to which the log has to have the exact number."""

ROUNDING = 0.002
"""Seconds of tolerance in comparisons of times. Leases are measured in whole milliseconds."""

JUST_NOW = 1.0
"""The log entry of a run may be missing for this many seconds after the end of the run."""

AROUND = 4.0
"""A fault may have delayed a run or its records if the fault is at most this many seconds from the start of the run."""

ATTEMPTS = 3
"""How often a tick is tried at most."""

BESIDE = 10
"""Maximum number of runs of a job at the same time, if it allows more than one."""

ASLEEP = 10.0
"""When a server's clock was set forward, every process reads the server's time again within this many seconds."""

SLACK = 2_000_000
"""Microseconds that S4 allows for the request that claims a tick. The whole limit also depends on the job's period and ttl."""


class JobTerms(Protocol):
    """The options of a job that the rules need."""

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
    """A log entry about one run or about several skipped ticks. Times are in microseconds of server time."""

    @property
    def status(self) -> str: ...
    @property
    def scheduled(self) -> int: ...
    @property
    def until(self) -> int: ...
    @property
    def ticks(self) -> int:
        """Number of ticks that the entry is about."""

    @property
    def started(self) -> int: ...
    @property
    def ended(self) -> int:
        """Time at which the run ended, or its crash was noticed."""

    @property
    def attempt(self) -> int: ...
    @property
    def fence(self) -> int: ...
    @property
    def host(self) -> str: ...


class ActiveRun(Protocol):
    """A run that has not ended."""

    @property
    def scheduled(self) -> int: ...


class JobFacts(Protocol):
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
    """A run, until its process no longer relied on its lease. Times are virtual."""

    began: Event
    end: float
    how: str
    """"ok", "cancelled", "lost", "crashed", or another reason; "goes on" if the run had not ended."""


@dataclass(slots=True)
class ServedSchedule:
    """The history of a schedule, with the server's records and the settings that the rules need."""

    history: list[Event]
    facts: Sequence[JobFacts]
    jobs: Mapping[str, tuple[float, JobTerms]]
    """Period in seconds and options of each job. Ticks are the multiples of the period."""
    now: float
    """Virtual time of the end of the history."""
    shown: Callable[[float], float]
    """Function from a virtual time to the time that the server's clock showed then, in seconds."""
    steady: bool
    """True if all messages take about the same time."""
    calm: bool
    """True if no fault happened."""
    roomy: bool
    """True if a process can run all its jobs at the same time."""
    slack: float
    """Rule S9 ignores a tick that falls due less than this many seconds before a late run of its job starts."""
    prompt: float
    """Maximum seconds from a tick to the start of its run, if there are no faults."""
    new_since: Mapping[str, float | None] | None = None
    """Server time in microseconds at which the option ``on_crash=`` of each job was reversed; infinity: never.

    The time is None if the job was redefined more than once. If `new_since` is None, all jobs keep their definitions.
    """
    stretches: dict[str, list[Stretch]] = field(default_factory=dict)
    docket: Docket = field(default_factory=Docket)
    upsets: Upsets = field(default_factory=lambda: Upsets(()))

    def forgot(self, since: float, until: float | None = None) -> bool:
        """Return whether the server lost its data between two virtual times (None: the end of the history)."""
        return self.upsets.between(since, self.now if until is None else until, AMNESIA)

    def lately(self, began: Event, *kinds: str) -> bool:
        """Return whether a fault of these kinds hit the server less than the job's ``ttl`` before the run began."""
        return self.upsets.between(began.at - self.jobs[began.lock][1].ttl, began.at, *kinds)

    def has_shown(self, at: float) -> float:
        """Return the highest time that the server's clock had shown by the virtual time ``at``.

        The clock may show less at ``at``, because it may have been set back.
        """
        before = (since - ROUNDING for since, _ in self.upsets.of(CLOCK) if since <= at)
        return max(self.shown(moment) for moment in (at, *before))


def judge(case: ServedSchedule) -> list[Violation]:
    case.stretches = _stretches(case)
    case.upsets = Upsets(case.history)
    return [violation for rule in RULES for violation in rule(case)]


def _stretches(case: ServedSchedule) -> dict[str, list[Stretch]]:
    """Return the runs of each job, in the order of their starts."""
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
    """Return when the lease of each renewed run ends, by process, job and attempt."""
    return {(event.who, event.lock, event.attempt): event.until for event in history if event.kind == "renewed"}


def _tick(attempt: str) -> tuple[int, int]:
    scheduled, number = attempt.rstrip("h").split("/")
    return int(scheduled), int(number)


def s1_once(case: ServedSchedule) -> Iterator[Violation]:
    """S1: no attempt to run a tick starts twice. A further attempt starts only after the previous one has failed and ended.

    This also checks a part of S2: no run relies on its lease for longer than the server keeps it.
    """
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
                yield _wrong("S1", f"{job} {attempt} starts twice", twice, stretch)
            seen[attempt] = stretch
            if stretch.began.until <= stretch.began.at:
                yield _wrong("S2", f"{job} {attempt} starts when its lease is over", stretch)
            upset = case.lately(stretch.began, AMNESIA, CLOCK)
            if stretch.began.until > stretch.began.since + ROUNDING and not upset:
                yield _wrong("S2", f"{job} {attempt} relies on its lease for longer than the server keeps it", stretch)
            before = ended.get((scheduled, attempt.endswith("h")))
            if before is not None and (case.forgot(before.began.at, stretch.began.at) or case.lately(stretch.began, CLOCK)):
                before = None
            if number > 1 and options.on_crash == "leave" and case.new_since is None:
                yield _wrong("S1", f"{job} {attempt} starts, although on_crash is 'leave'", stretch)
            if before is not None and before.end > stretch.began.at + ROUNDING:
                yield _wrong("S1", f"{job} {attempt} starts while another attempt runs", before, stretch)
            if before is not None and (job, before.began.fence) in good:
                yield _wrong("S1", f"{job} {attempt} starts after another attempt succeeded", before, stretch)
            ended[scheduled, attempt.endswith("h")] = stretch


def s1_crashed(case: ServedSchedule) -> Iterator[Violation]:
    """S1: the job's definition at the time at which a crash is noticed decides whether the run is started again.

    A retry that has not started yet may be queued, or its request may be under way.
    """
    for facts in case.facts if case.new_since is not None else ():
        since = case.new_since[facts.name] if case.new_since is not None else None
        before = case.jobs[facts.name][1].on_crash
        after = "leave" if before == "again" else "again"
        begun = {stretch.began.attempt for stretch in case.stretches.get(facts.name, ())}
        by_hand = {_tick(attempt)[0] for attempt in begun if attempt.endswith("h")}
        known = {_tick(attempt) for attempt in begun} | {(entry.scheduled, entry.attempt) for entry in facts.entries}
        waiting = facts.queued + len(facts.running)
        for entry in facts.entries:
            if entry.status != "crashed" or entry.scheduled in by_hand:
                continue
            if case.docket.decide("S1 crashed", since is None) or since is None:
                continue
            again = (entry.scheduled, entry.attempt + 1) in known
            wanted = after if entry.ended >= since else before
            if wanted == "leave" and again:
                yield Violation("S1", f"{facts.name} {entry.scheduled}/{entry.attempt} crashed, and is started again, not left")
            if wanted == "again" and entry.attempt < ATTEMPTS and not again:
                waiting -= 1
                if waiting < 0:
                    yield Violation("S1", f"{facts.name} {entry.scheduled}/{entry.attempt} crashed, and is not started again")


def s2_exclusion(case: ServedSchedule) -> Iterator[Violation]:
    """S2: a job has no more runs at the same time than it allows."""
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


def _slots(options: JobTerms) -> int:
    return BESIDE if options.overlap == "allow" else 1


def s3_fences(case: ServedSchedule) -> Iterator[Violation]:
    """S3: no two runs of a job have the same fence. If a job allows one run at a time, fences rise."""
    for job, stretches in case.stretches.items():
        fences = Counter(stretch.began.fence for stretch in stretches)
        if fences and max(fences.values()) > 1:
            yield Violation("S3", f"{job}: two runs have the same fence")
        if _slots(case.jobs[job][1]) == 1:
            for before, after in pairwise(stretches):
                case.docket.decide("S3")
                if before.began.fence >= after.began.fence:
                    yield _wrong("S3", f"{job}: a fence that does not rise", before, after)


def s4_none_forgotten(case: ServedSchedule) -> Iterator[Violation]:
    """S4: each tick that was due is in the log, is being run, or waits for the end of an earlier run."""
    for facts in case.facts:
        period, options = case.jobs[facts.name]
        ranges = [(entry.scheduled, entry.until) for entry in facts.entries]
        known = {entry.scheduled for entry in facts.entries} | {run.scheduled for run in facts.running}
        now = int(case.shown(case.now) * 1e6)
        # A process that sleeps until a tick is due does not notice that the clock was set forward.
        unaware = case.upsets.between(case.now - ASLEEP, case.now, FORWARD)
        case.docket.decide("S4")
        claims = case.roomy and not case.docket.decide("S4 claims", unaware)
        if claims and facts.last < now - SLACK - int(2e6 * options.ttl) - int(1e6 * (period + 1.0)):
            yield Violation("S4", f"{facts.name}: no tick was claimed for {(now - facts.last) / 1e6:.1f} s")
        waiting = facts.queued
        # After the clock was set back, a run by hand may be older than the first tick of the job.
        firsts = [first for first, _ in ranges if not case.upsets.of(CLOCK) or first % round(period * 1e6) == 0]
        tick = _after(period, min(firsts, default=now))
        while tick <= min(facts.last, now):
            if tick not in known and not any(first <= tick <= last for first, last in ranges):
                waiting -= 1
            tick = _after(period, tick)
        if waiting < 0:
            yield Violation("S4", f"{facts.name}: {-waiting} ticks neither ran nor wait")
        if facts.queued and not facts.running and not facts.paused and not options.min_runtime and case.roomy:
            yield Violation("S4", f"{facts.name}: {facts.queued} runs wait, but no run is active")


def s4_counted(case: ServedSchedule) -> Iterator[Violation]:
    """S4: a log entry about ticks that were not run has the number of these ticks.

    Ticks between the first and the last of them may have been run, or may wait.
    """
    for facts in case.facts:
        step = round(case.jobs[facts.name][0] * 1e6)
        runs = {entry.scheduled for entry in facts.entries if entry.fence} | {run.scheduled for run in facts.running}
        for entry in facts.entries:
            if entry.status not in {"skipped", "missed"} or entry.scheduled % step:
                continue
            case.docket.decide("S4 counted")
            most = entry.until // step - (entry.scheduled - 1) // step
            others = sum(entry.scheduled < tick < entry.until and tick % step == 0 for tick in runs)
            if not min(most - others - facts.queued, COUNTED) <= entry.ticks <= most:
                known = f"{facts.name} {entry.scheduled} to {entry.until}"
                yield Violation("S4", f"{known}: {most - others} ticks {entry.status}, and the log says {entry.ticks}")


def _after(period: float, tick: int) -> int:
    """Return the first tick after ``tick``, in microseconds. No code under test is used."""
    step = round(period * 1e6)
    return (tick // step + 1) * step


def s9_one_late_run(case: ServedSchedule) -> Iterator[Violation]:
    """S9: a job whose run starts late runs only once, and not again for the ticks that were due by then.

    This does not apply to jobs that run every missed tick (``misfire`` "all") or queue their ticks (``overlap`` "queue"). A
    retry of a failed run is not counted.
    """
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
                    "S9", f"{facts.name} {tick} starts {late:.2f} s late, and {later}, which was due by then, runs, too"
                )


def s5_written(case: ServedSchedule) -> Iterator[Violation]:
    """S5: the log has exactly one entry about each run that has ended."""
    for facts in case.facts:
        entries = [entry for entry in facts.entries if entry.status not in {"skipped", "missed"}]
        log = Counter((entry.scheduled, entry.attempt, entry.fence) for entry in entries)
        running = {run.scheduled for run in facts.running}
        if log and max(log.values()) > 1:
            yield Violation("S5", f"{facts.name}: the log has two entries about a run")
        for stretch in case.stretches.get(facts.name, ()):
            known = (*_tick(stretch.began.attempt), stretch.began.fence)
            if stretch.how == "goes on" or stretch.end >= case.now - JUST_NOW:
                continue
            # If the clock was set back, a dead process keeps its lease for longer.
            kept = known[0] in running and case.upsets.between(stretch.began.at, case.now, CLOCK)
            forgot = case.forgot(stretch.began.at - case.jobs[facts.name][1].ttl)
            if not case.docket.decide("S5", forgot or kept) and known not in log:
                yield _wrong("S5", f"{facts.name} {stretch.began.attempt} is not in the log", stretch)
        if any(entry.status == "crashed" and entry.attempt > ATTEMPTS for entry in entries):
            yield Violation("S5", f"{facts.name}: a tick was tried too often")


def s7_nothing_made_up(case: ServedSchedule) -> Iterator[Violation]:
    """S7: if the log says that a run crashed, the run has started, and has neither succeeded nor been cancelled.

    Without faults, no run crashes and no tick is missed.
    """
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
                    yield Violation("S7", f"{facts.name} {entry.scheduled}/{entry.attempt}: no process had this run")
                elif wrong:
                    yield _wrong("S7", f"{facts.name} {entry.scheduled}/{entry.attempt}: its end was lost", run)
            peace = not case.docket.decide("S7 peace", not (case.calm and case.roomy))
            if peace and entry.status in {"crashed", "missed"}:
                yield Violation("S7", f"{facts.name}: {entry.status}, although no fault happened")


def _delayed(case: ServedSchedule, entry: Entry) -> bool:
    """Return whether faults may have delayed a request of the run's process for longer than the lease of the run."""
    quick = {"lost-reply", "lost-request", "duplicate", "cut"}
    whose = {entry.host.removeprefix("process "), "server"}
    around = [
        event.note
        for event in case.history
        if event.kind == "fault" and event.who in whose and abs(case.shown(event.at) - entry.started / 1e6) < AROUND
    ]
    return not case.steady or len([note for note in around if note.startswith("lost")]) > 1 or not quick.issuperset(around)


def s6_prompt(case: ServedSchedule) -> Iterator[Violation]:
    """S6: no run starts before its tick. Without faults, a run starts at once, unless it must wait for an earlier run."""
    for job, stretches in case.stretches.items():
        for stretch in stretches:
            scheduled, number = _tick(stretch.began.attempt)
            shown = case.shown(stretch.began.at)
            case.docket.decide("S6")
            if case.has_shown(stretch.began.at) < scheduled / 1e6:
                yield _wrong("S6", f"{job} {stretch.began.attempt} starts too early", stretch)
            free = case.jobs[job][1].overlap != "queue" and number == 1 and not stretch.began.attempt.endswith("h")
            if not free or case.docket.decide("S6 prompt", not (case.calm and case.prompt < float("inf"))):
                continue
            if shown - scheduled / 1e6 > case.prompt + 0.1:
                yield _wrong("S6", f"{job} {stretch.began.attempt} starts {shown - scheduled / 1e6:.2f} s late", stretch)


def _wrong(rule: str, text: str, *stretches: Stretch) -> Violation:
    return Violation(rule, text, tuple(stretch.began for stretch in stretches))


RULES = (
    s1_once,
    s1_crashed,
    s2_exclusion,
    s3_fences,
    s4_none_forgotten,
    s4_counted,
    s5_written,
    s6_prompt,
    s7_nothing_made_up,
    s9_one_late_run,
)
