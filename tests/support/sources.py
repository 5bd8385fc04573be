"""A digest of the sources: what is tried in turn, a few in each run and many over time, changes with it."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE, LAB = ROOT / "src" / "holdfast", ROOT / "lab" / "src" / "holdfast_lab"
"""The packages of the two distributions."""


@functools.cache
def digest() -> str:
    """Of all sources, in hexadecimal: the same until one of them changes, so what failed fails again."""
    found = hashlib.sha256()
    for path in sorted(path for package in (PACKAGE, LAB) for path in package.rglob("*") if path.suffix in {".py", ".lua"}):
        found.update(path.read_bytes())
    return found.hexdigest()


def turn(of: str) -> int:
    """A number below 2^32 that stands for the turn of ``of``."""
    return int(hashlib.sha256(f"{digest()} {of}".encode()).hexdigest()[:8], 16)
