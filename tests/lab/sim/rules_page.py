"""The table of rules and swarms on the page about the simulation. Run as a program, it writes that anew:

``PYTHONPATH=tests python -m lab.sim.rules_page``
"""

from __future__ import annotations

import re
from pathlib import Path

from holdfast_lab.judge.verdicts import in_order
from holdfast_lab.runner import SWARMS

PAGE = Path(__file__).parents[3] / "docs" / "design" / "simulation.md"

_TABLE = re.compile(r"(?<=<!-- rules -->\n)(\|.*\n)*", re.MULTILINE)


def table() -> str:
    """Which rule applies to which swarm."""
    rules = sorted({rule for swarm in SWARMS.values() for rule in swarm.rules}, key=in_order)
    lines = [f"| rule | {' | '.join(SWARMS)} |", f"|---|{':-:|' * len(SWARMS)}"]
    for rule in rules:
        cells = ("•" if rule in swarm.rules else " " for swarm in SWARMS.values())
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    return "".join(f"{line}\n" for line in lines)


def render(text: str) -> str:
    """The page with the table as it is now."""
    return _TABLE.sub(table(), text, count=1)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text("utf-8")), "utf-8")
