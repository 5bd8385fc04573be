"""The text output of the demo, in lines for 80 columns, with colour only on a terminal and not if NO_COLOR is set."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

BOLD, GREEN, RED = "1", "32", "31"


class Check(NamedTuple):
    """A statement that must be true in a demo. ``held`` is True if the statement was true."""

    name: str
    held: bool


class Screen:
    """The output of a demo. It writes each line to stdout at once, or drops the line if ``silent``."""

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def line(self, text: str = "") -> None:
        if not self._silent:
            print(text, flush=True)

    def title(self, text: str) -> None:
        self.line()
        self.line(self._paint(text, BOLD))

    def check(self, check: Check) -> None:
        """Print a check with ``ok`` if it held, or ``FAILED``."""
        self.line(f"  {self._mark(check.held)} {check.name}")

    def verdict(self, checks: Sequence[Check], seconds: float) -> None:
        """Print the checks that did not hold, and the verdict as the last line."""
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
