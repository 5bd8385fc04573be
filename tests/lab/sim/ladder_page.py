"""The pages about the ladder: what on them is not prose comes from the ladder itself. Run as a program, it writes that anew:

``PYTHONPATH=tests python -m lab.sim.ladder_page``
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from pathlib import Path

from holdfast_lab.ladder import RUNGS, SCENARIOS, Rung, Scenario, find, locks, survives
from holdfast_lab.ladder.rungs import by_name

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "ladder-details.md"
TABLE_PAGE = DOCS / "ladder.md"

TOO_LARGE = {("redlock", "crash of three"), ("redlock-late", "crash of three")}
"""More schedules than are worth the time."""

ALIKE = {"timestamp-clocks", "late-write"}
"""The same lock in the same place as another rung."""

_BLOCK = re.compile(r"(?<=<!-- )(lock|script|timeline): ([\w-]+) -->\n```(\w+)\n.*?^```$", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"(?<=<!-- table -->\n)(\|.*\n)+", re.MULTILINE)


def render(text: str, keep: Collection[str] = ()) -> str:
    """The page with everything on it that is not prose as it is now, but for the table and the timelines of ``keep``."""
    sources: dict[str, Callable[[str], str]] = {
        "lock": lambda name: inspect.getsource(getattr(locks, name)),
        "script": script,
        "timeline": timeline,
    }

    def block(match: re.Match[str]) -> str:
        kind, name, language = match.groups()
        if kind == "timeline" and name in keep:
            return match[0]
        return f"{kind}: {name} -->\n```{language}\n{sources[kind](name)}```"

    return _BLOCK.sub(block, text)


def timeline(name: str) -> str:
    """How a rung falls, and what it took to find that."""
    rung = by_name(name)
    found = find(rung)
    assert found is not None
    assert rung.fall is not None
    survived = survives(by_name(rung.fall.cure), rung.fall.scenario)
    searched = f"found at schedule {found.schedules}; {rung.fall.cure} survives"
    return f"{found.timeline}\n\n  {searched}: {survived.schedules} schedules, {survived.states} states, which are all\n"


def script(name: str) -> str:
    """A script without its contract."""
    text = (locks.HERE / f"{name}.lua").read_text("ascii")
    return "".join(line + "\n" for line in text.splitlines() if not line.startswith("--"))


def rows(text: str) -> dict[str, list[str]]:
    """The table as it is on the page: the cells of each lock, in the order of the scenarios."""
    (table,) = _TABLE.finditer(text)
    lines = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table[0].splitlines()]
    assert lines[0] == ["", *(scenario.name for scenario in SCENARIOS)]
    return {line[0].strip("`"): line[1:] for line in lines[2:]}


def table() -> str:
    """Which rule each lock violates in each scenario, tried anew."""
    head = ["", *(scenario.name for scenario in SCENARIOS)]
    lines = [[f"`{rung.name}`", *(cell(rung, s) for s in SCENARIOS)] for rung in RUNGS if rung.name not in ALIKE]
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *lines])


def cell(rung: Rung, scenario: Scenario) -> str:
    """One of the table."""
    if (rung.name, scenario.name) in TOO_LARGE:
        return "·"
    report = survives(rung, scenario)
    assert report.covered or report.found
    return report.found[0].violations[0].rule if report.found else "holds"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    TABLE_PAGE.write_text(_TABLE.sub(lambda _: table(), TABLE_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
