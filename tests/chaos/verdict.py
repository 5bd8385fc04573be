"""The verdict on a run: whether it obeyed the rules, and whether enough has happened for that to mean something."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

from chaos.run import ChaosRun, Struck
from holdfast.testing import history
from holdfast.testing.history import Event, process_of
from holdfast_lab.checkers import RULES, Coverage, Violation
from holdfast_lab.judge.evidence import INFINITY, Ask, Evidence, Hold
from holdfast_lab.judge.safety_rules import USUAL

OVERRUN = 1.0
"""Seconds after the end of its wait within which everybody has an answer, whatever is broken."""


@dataclass
class Report:
    """One run, or several together."""

    acquisitions: int = 0
    faults: int = 0
    while_held: Counter[str] = field(default_factory=Counter)
    """By name, those that hit while somebody held a lock."""
    contended: int = 0
    expired: int = 0
    """Beliefs that ended before their holders were done."""
    refused: int = 0
    gap: float = 0.0
    """Longest time between two acquisitions of the same lock, in seconds."""
    overrun: float = 0.0
    """Longest time from the end of a wait to its answer, counted only while the process ran."""
    errors: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)
    """Violations, each with all that is needed to look into it."""

    def __iadd__(self, other: Report) -> Self:
        self.acquisitions += other.acquisitions
        self.faults += other.faults
        self.while_held += other.while_held
        self.contended += other.contended
        self.expired += other.expired
        self.refused += other.refused
        self.gap = max(self.gap, other.gap)
        self.overrun = max(self.overrun, other.overrun)
        self.errors += other.errors
        self.found += other.found
        return self

    def __str__(self) -> str:
        return (
            f"{self.acquisitions} acquisitions ({self.contended} contended), {self.faults} faults, {self.refused} stale writes "
            f"refused, longest gap {self.gap:.2f} s, longest overrun of a wait {max(0.0, self.overrun):.2f} s; "
            f"{self.expired} leases expired in use; {', '.join(f'{count} {name}' for name, count in self.errors.items())}"
        )

    def missing(self, minimum: Mapping[str, int], faults: Iterable[str] = ()) -> list[str]:
        """Return the events of which there were too few: then the run is invalid.

        Each of ``faults`` has to have hit while a lock was held.
        """
        counts: dict[str, int] = {name: getattr(self, name) for name in minimum}
        few = [f"{name}: {counts[name]} of {least}" for name, least in minimum.items() if counts[name] < least]
        return few + [f"{fault}, while a lock was held" for fault in faults if not self.while_held[fault]]


def judge(run: ChaosRun) -> Report:
    events = history.merge(*(history.read(path) for path in sorted(run.folder.iterdir()) if _is_history(path.name)))
    case = Evidence(events)
    coverage = Coverage()
    coverage.add(case)
    violations = [violation for _, rule in RULES.values() for violation in rule(case, USUAL)]
    stalls = [event for event in events if event.kind == "stalled"]
    violations += _unanswered(case, stalls)
    holds = case.holds()
    report = Report(
        acquisitions=coverage.taken,
        faults=len(run.struck),
        while_held=Counter(struck.name for struck in run.struck if _held(holds, struck)),
        contended=coverage.contended,
        expired=coverage.expired,
        refused=coverage.refused,
        gap=_longest_gap(case, run.healed),
        overrun=max((late(stalls, ask) for ask in case.asks), default=0.0),
        errors=Counter(event.note.partition(":")[0] for event in events if event.kind == "failed"),
    )
    texts = [_told(case, violation) for violation in violations[:20]] + run.complaints
    if texts:
        report.found = [_context(run, case), *texts]
    return report


def _is_history(name: str) -> bool:
    return name in {"register", "faults"} or name.startswith("worker-")


def late(stalls: list[Event], ask: Ask) -> float:
    """Seconds from the end of its wait to the answer. Time in which its process did not run, by the ``stalls``, does not
    count."""
    until, ended = ask.event.until, ask.ended
    mine = (stall for stall in stalls if stall.who == process_of(ask.event.who))
    return ended - until - sum(max(0.0, min(stall.at, ended) - max(stall.since, until)) for stall in mine)


def _unanswered(case: Evidence, stalls: list[Event]) -> list[Violation]:
    """Every wait ends, with the lock or an error, within a second of its time."""
    found = []
    for ask in case.asks:
        over = late(stalls, ask)
        if over > OVERRUN:
            text = f"{ask.event.who} had its answer {over:.3f} s after the end of its wait: {ask.outcome or 'none'}"
            found.append(Violation("R7", text, (ask.event,)))
    return found


def _held(holds: list[Hold], struck: Struck) -> bool:
    return any(hold.since <= struck.at < hold.end for hold in holds)


def _longest_gap(case: Evidence, healed: float) -> float:
    times: defaultdict[str, list[float]] = defaultdict(list)
    for lock, scene in case.scenes.items():
        times[lock] = sorted(hold.since for hold in scene.holds if hold.since <= healed)
    return max((later - earlier for taken in times.values() for earlier, later in pairwise(taken)), default=INFINITY)


def _told(case: Evidence, violation: Violation) -> str:
    lines = [f"{violation.rule} ({RULES[violation.rule][0]}) {violation.text}"]
    return "\n".join([*lines, *(f"    {case.ms(event.at):>14} {history.to_line(event)}" for event in violation.events)])


def _context(run: ChaosRun, case: Evidence) -> str:
    """Return the facts that are needed to run it again, and the faults of the run."""
    first = [json.dumps(run.topology.name), f"seed {run.seed}", f"history in {run.folder}"]
    return "\n".join([", ".join(first), *(f"    {case.ms(s.at):>14} to {case.ms(s.until):>14} {s.name}" for s in run.struck)])
