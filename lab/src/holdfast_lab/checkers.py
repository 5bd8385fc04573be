"""Check the history of a lock, simulated or recorded by live processes, against the rules of correct locks.

The rules are in `judge.safety_rules`, `judge.liveness_rules` and `judge.permit_rules`. They see only the history, arranged by
`judge.evidence`, and not the code of the locks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from holdfast.testing import history
from holdfast.testing.history import Event
from holdfast_lab.judge import liveness_rules, permit_rules, safety_rules
from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.judge.evidence import Evidence
from holdfast_lab.judge.safety_rules import Limits, Violation

__all__ = ["RULES", "Coverage", "Limits", "Violation", "check", "main"]


def check(
    events: Iterable[Event],
    *,
    limits: Limits = safety_rules.USUAL,
    only: Collection[str] | None = None,
    coverage: Coverage | None = None,
) -> list[Violation]:
    """Return the violations of the rules in ``only``, such as {"R1", "R2"}.

    If ``only`` is None, ``limits`` determines the rules: those for one server, for several servers, or for permits. The numbers
    of events and verdicts are added to ``coverage``.
    """
    if only is None:
        only = OF_SEVERAL if limits.quorum > 1 else OF_PERMITS if limits.permits else OF_LOCKS
    case = Evidence(events)
    if coverage is not None:
        coverage.add(case)
    found: list[Violation] = []
    for name, (_, rule) in RULES.items():
        if name in only:
            found += rule(case, limits)
    if coverage is not None:
        coverage.docket += case.docket
    return found


RULES: Final[dict[str, tuple[str, Callable[[Evidence, Limits], Iterator[Violation]]]]] = {
    "R1": ("one holder at a time", safety_rules.r1_exclusion),
    "R2": ("fences are unique", safety_rules.r2_unique_fences),
    "R3": ("fences grow in real time", safety_rules.r3_order_of_fences),
    "R4": ("the register refuses late writes", safety_rules.r4_register),
    "R5": ("no belief beyond the server's expiry", safety_rules.r5_within_the_lease),
    "R6": ("a loss is noticed in time", liveness_rules.r6_loss_is_noticed),
    "R7": ("no waiter waits in vain", liveness_rules.r7_liveness),
    "R8": ("waiters are served in order", liveness_rules.r8_order_of_waiters),
    "R9": ("nothing is left behind", safety_rules.r9_nothing_left),
    "R12": ("an ended lease stays ended", safety_rules.r12_over_is_over),
    "R13": ("a repeated request gets the same answer", safety_rules.r13_same_answer),
    "R14": ("a waiter that gave up gets no lock", safety_rules.r14_given_up),
    "R15": ("a release reports the truth", safety_rules.r15_released),
    "R16": ("a kept lease is used or released", liveness_rules.r16_kept_for_somebody),
    "R17": ("no more permits than the limit", permit_rules.r17_permits),
    "R18": ("free permits go to the first waiter", permit_rules.r18_next),
    "R19": ("a holder may acquire its lock again", safety_rules.r19_taken_again),
}
"""Rules by number, each with a title and the function that yields its violations.

R10 and R11 are not in this table. R17 has replaced R10. `Coverage.missing` checks R11 ("enough has happened").
"""

OF_PERMITS: Final = RULES.keys() - {"R1", "R4", "R16"}
"""Rules of locks with several holders at the same time."""

OF_LOCKS: Final = RULES.keys() - {"R17", "R18"}

OF_SEVERAL: Final = frozenset(("R1", "R2", "R3", "R4", "R5", "R6", "R7", "R9", "R12", "R14", "R19"))
"""Rules of a lock on a majority of servers, where no single server knows the holder."""

EXPECTED: Final = {"taken": 2, "contended": 1}
"""Minimum counts of events in recorded histories. With fewer events, the check proves nothing."""


def main(paths: Iterable[str]) -> int:
    """Check recorded histories together, print the verdict of each rule, and return the exit code.

    The exit code is 0 without violations, 1 with violations, and 2 if too little happened or a file cannot be read.
    """
    try:
        events = history.merge(*(history.read(Path(path)) for path in paths))
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    coverage = Coverage()
    found = check(events, coverage=coverage)
    for name, (title, _) in RULES.items():
        broken = [violation for violation in found if violation.rule == name]
        fine = "ok" if coverage.docket.judged_by(name) else "nothing to judge"
        print(f"{name:<4}{title:<40}{f'VIOLATED {len(broken)} times' if broken else fine}")
        for violation in broken[:5]:
            print(f"      {violation.text}")
    print(coverage)
    if found:
        return 1
    missing = coverage.missing(EXPECTED | ({"refused": 1} if coverage.written else {}))
    if missing:
        print(f"INVALID, too little happened: {', '.join(missing)}")
    return 2 if missing else 0
