"""The judge: rules that a history of a lock must obey, whether the simulator or a recording of live processes wrote it.

It knows nothing of the locks it judges. The rules are in `safety_rules`, `liveness_rules` and `permit_rules`, and look at the
`evidence`; `check` asks them all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from holdfast.testing import history
from holdfast.testing.history import Event
from holdfast.testing.judge import liveness_rules, permit_rules, safety_rules
from holdfast.testing.judge.coverage import Coverage
from holdfast.testing.judge.evidence import Evidence
from holdfast.testing.judge.safety_rules import Limits, Violation

__all__ = ["RULES", "Coverage", "Limits", "Violation", "check", "main"]


def check(
    events: Iterable[Event],
    *,
    limits: Limits = safety_rules.USUAL,
    only: Collection[str] | None = None,
    coverage: Coverage | None = None,
) -> list[Violation]:
    """Return the violations in a history of ``only`` these rules (default: all). Its events are counted in ``coverage``."""
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
    "R7": ("nobody waits in vain", liveness_rules.r7_liveness),
    "R8": ("who comes first is served first", liveness_rules.r8_order_of_waiters),
    "R9": ("nothing is left behind", safety_rules.r9_nothing_left),
    "R12": ("what is over stays over", safety_rules.r12_over_is_over),
    "R13": ("the same request gets the same answer", safety_rules.r13_same_answer),
    "R14": ("who gave up gets nothing", safety_rules.r14_given_up),
    "R15": ("a release tells the truth", safety_rules.r15_released),
    "R16": ("what is kept is used, or given back", liveness_rules.r16_kept_for_somebody),
    "R17": ("no more permits than there are", permit_rules.r17_permits),
    "R18": ("what is free goes to who is next", permit_rules.r18_next),
    "R19": ("who has it may take it again", safety_rules.r19_taken_again),
}
"""By number. R11, that enough has happened, is `Coverage.missing`. There is no R10 any more: R17 is about permits."""

OF_PERMITS: Final = RULES.keys() - {"R1", "R4", "R16"}
"""Those that can be judged where several hold it at the same time."""

OF_LOCKS: Final = RULES.keys() - {"R17", "R18"}

OF_SEVERAL: Final = frozenset(("R1", "R2", "R3", "R4", "R5", "R6", "R7", "R9", "R12", "R14", "R19"))
"""Rules that can be judged where no single server knows the holder."""

EXPECTED: Final = {"taken": 2, "contended": 1}
"""Minimum counts in recorded histories: with less, a verdict means nothing."""


def main(paths: Iterable[str]) -> int:
    """Judge recorded histories together, and print the verdict. 0: nothing found; 1: violations; 2: too little happened, or
    a file cannot be read."""
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
