"""How the demo looks: plain text for 80 columns; colour only on a terminal, and not if NO_COLOR is set."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

BOLD, GREEN, RED = "1", "32", "31"


class Check(NamedTuple):
    """Something that has to hold, and whether it did."""

    name: str
    held: bool


class Screen:
    """Writes to stdout, line by line as things happen."""

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def line(self, text: str = "") -> None:
        """A line of text."""
        if not self._silent:
            print(text, flush=True)

    def title(self, text: str) -> None:
        """The heading of a scene."""
        self.line()
        self.line(self._paint(text, BOLD))

    def check(self, check: Check) -> None:
        """A line that says whether something held."""
        self.line(f"  {self._mark(check.held)} {check.name}")

    def verdict(self, checks: Sequence[Check], seconds: float) -> None:
        """The last line, after those of the checks that did not hold."""
        self.line()
        failed = [check for check in checks if not check.held]
        if failed:
            for check in failed:
                self.check(check)
            said = self._paint(f"{len(failed)} of {len(checks)} checks did not hold", RED)
        else:
            said = self._paint(f"all {len(checks)} checks held", GREEN)
        self.line(f"Verdict: {said}, {seconds:.1f} s.")

    def _mark(self, held: bool) -> str:
        return self._paint("ok    ", GREEN) if held else self._paint("FAILED", RED)

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colour else text
