"""Durations and moments, as the command line takes and shows them: ``30`` (seconds), ``500ms``, ``5m``, ``2h``, ``1d``."""

from __future__ import annotations

import argparse
import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ms|s|m|h|d)?")
_LONGEST = 10**9  # seconds, 31 years: more overflows the timers of some systems


def duration(text: str) -> float:
    """Seconds; zero is allowed."""
    match = _DURATION.fullmatch(text)
    seconds = float(match[1]) * _UNITS[match[2] or "s"] if match else -1.0
    if not 0 <= seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: write 30 (seconds), 0.5, 500ms, 5m, 2h or 1d")
    return seconds


def positive_duration(text: str) -> float:
    """Seconds, more than zero."""
    seconds = duration(text)
    if not seconds:
        raise argparse.ArgumentTypeError(f"{text!r}: a duration of more than zero is needed here")
    return seconds


def moment(t: float) -> str:
    """A Unix time, as the clock shows it in UTC; milliseconds only where there are some."""
    from datetime import UTC, datetime  # here: most commands show none

    try:
        shown = datetime.fromtimestamp(t, UTC)
    except (ValueError, OverflowError, OSError):  # no such year; somebody else may have written the number
        return f"{t:.0f} s since 1970"
    return f"{shown:%Y-%m-%d %H:%M:%S}" + (f".{shown.microsecond // 1000:03d}" if shown.microsecond >= 1000 else "")


def span(seconds: float) -> str:
    """A length of time, for people: ``3.2 s``, ``45 s``, ``12 min``, ``5.5 h``, ``3.0 d``."""
    for unit, size, most in (("s", 1.0, 120), ("min", 60.0, 120), ("h", 3600.0, 48)):
        if seconds < size * most:
            number = seconds / size
            return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"
    return f"{seconds / 86400:.1f} d"
