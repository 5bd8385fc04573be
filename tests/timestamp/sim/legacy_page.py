"""The page about the timestamp lock: its timelines come from the simulator. Run as a program, it writes them anew:

``PYTHONPATH=tests python -m timestamp.sim.legacy_page``
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from holdfast_lab.ladder import find, survives
from timestamp.sim.timestamps import FALLS

PAGE = Path(__file__).parents[3] / "docs" / "legacy-faults.md"

_BLOCK = re.compile(r"(?<=<!-- timeline: )([\w-]+) -->\n```text\n.*?^```$", re.MULTILINE | re.DOTALL)


def render(text: str, keep: Collection[str] = ()) -> str:
    """The page with its timelines as they are now, but for those of ``keep``."""
    return _BLOCK.sub(lambda match: match[0] if match[1] in keep else f"{match[1]} -->\n```text\n{timeline(match[1])}```", text)


def timeline(name: str) -> str:
    """How the lock falls, and what it took to find that."""
    rung, cure = FALLS[name]
    found = find(rung)
    assert found is not None
    assert rung.fall is not None
    said = f"found at schedule {found.schedules}"
    if cure is not None:
        report = survives(cure, rung.fall.scenario)
        assert report.covered
        assert not report.found
        said += f"; {cure.name} survives: {report.schedules} schedules, {report.states} states, which are all"
    return f"{found.timeline}\n\n  {said}\n"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
