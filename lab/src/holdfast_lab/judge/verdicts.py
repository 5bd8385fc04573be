"""Counts of the cases that each rule has judged, and of those that it excused.

A rule that met no case, or excused every case, has proved nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Self


def in_order(case: str) -> tuple[str, int, str]:
    """Return a sort key of a rule: R2 comes before R10, and "R8" before "R8 line"."""
    rule, _, part = case.partition(" ")
    return rule[0], int(rule[1:]), part


class Docket:
    """Counts of judged and of excused cases, by rule. "R8" and its part "R8 line" are counted separately."""

    __slots__ = ("excused", "judged")

    def __init__(self) -> None:
        self.judged: Counter[str] = Counter()
        self.excused: Counter[str] = Counter()

    def decide(self, rule: str, excused: bool = False) -> bool:
        """Count a case of a rule as excused or as judged. Return ``excused``."""
        (self.excused if excused else self.judged)[rule] += 1
        return excused

    def judged_by(self, rule: str) -> int:
        """Return the number of cases that a rule has judged, with all parts of the rule."""
        return sum(count for case, count in self.judged.items() if case.partition(" ")[0] == rule)

    def __iadd__(self, other: Docket) -> Self:
        self.judged.update(other.judged)
        self.excused.update(other.excused)
        return self

    def __str__(self) -> str:
        rules = sorted(self.judged | self.excused, key=in_order)
        return ", ".join(f"{rule} {self.judged[rule]} ({self.excused[rule]})" for rule in rules)
