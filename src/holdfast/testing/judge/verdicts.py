"""How often each rule was asked for a verdict, and how often it gave none because a fault had made one impossible.

A rule that nothing ever comes before proves nothing. So does a rule that excuses everything it meets.
"""

from __future__ import annotations

from collections import Counter
from typing import Self


def in_order(case: str) -> tuple[str, int, str]:
    """A key to sort by: R2 comes before R10, and "R8" before "R8 line"."""
    rule, _, part = case.partition(" ")
    return rule[0], int(rule[1:]), part


class Docket:
    """Adds up over histories. All counts are by rule; a rule of several parts counts each: "R8", "R8 line"."""

    __slots__ = ("excused", "judged")

    def __init__(self) -> None:
        self.judged: Counter[str] = Counter()
        """Cases in which the rule would have told a violation, if there had been one."""
        self.excused: Counter[str] = Counter()
        """Cases in which it would have told none, because of a fault."""

    def decide(self, rule: str, excused: bool = False) -> bool:
        """Count a case of a rule. Returns ``excused``."""
        (self.excused if excused else self.judged)[rule] += 1
        return excused

    def judged_by(self, rule: str) -> int:
        """How many cases all parts of a rule have judged."""
        return sum(count for case, count in self.judged.items() if case.partition(" ")[0] == rule)

    def __iadd__(self, other: Docket) -> Self:
        self.judged.update(other.judged)
        self.excused.update(other.excused)
        return self

    def __str__(self) -> str:
        rules = sorted(self.judged | self.excused, key=in_order)
        return ", ".join(f"{rule} {self.judged[rule]} ({self.excused[rule]})" for rule in rules)
