"""The levels of the tests of a capability: `tests/CAPABILITY/LEVEL`. Fixtures ask for the level of a test."""

from __future__ import annotations

from pathlib import Path

LEVELS = {
    "unit": "without a server",
    "sim": "in the simulator, and its deliberate defects",
    "conformance": "the scripts, on every server and in memory",
    "live": "as users do, on real servers",
    "faults": "with lost replies, killed processes, cut connections",
}
"""Each level, and how its tests try the code."""


def level(path: Path) -> str:
    """Return the level of a file of tests: the name of its folder."""
    return path.parent.name
