"""Durations as users pass them: a number of seconds, a text with a unit such as ``"5m"``, or a `datetime.timedelta`."""

from __future__ import annotations

import re
from typing import Any, Protocol, TypeAlias


class Timedelta(Protocol):
    """A `datetime.timedelta`. It is declared as a protocol because importing datetime would slow down `holdfast run`."""

    def total_seconds(self) -> float:
        """Return the duration in seconds."""


Seconds: TypeAlias = float | str | Timedelta
"""A duration: seconds, a text with a unit (``"500ms"``, ``"1.5s"``, ``"5m"``, ``"2h"``, ``"1d"``), or a timedelta."""

WANTED = 'a number of seconds, a text such as "500ms", "30s", "5m", "2h" or "1d", or a timedelta'
"""Description of `Seconds` for error messages."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ms|s|m|h|d)"  # compiled at its first use, which most programs do not reach


def parsed(text: str) -> float | None:
    """Return the seconds of a text such as ``"1.5s"``, or None if ``text`` is no duration with a unit."""
    match = re.fullmatch(_DURATION, text)
    return float(match[1]) * _UNITS[match[2]] if match else None


def as_number(value: Any) -> Any:
    """Return the seconds of a text with a unit or of a timedelta. Return anything else, also a wrong text, unchanged."""
    if isinstance(value, str):
        seconds = parsed(value)
        return value if seconds is None else seconds
    total = getattr(type(value), "total_seconds", None)  # looked up on the type: the class timedelta itself is no duration
    return value if total is None else total(value)
