"""Parse and format durations and points in time for the command line: ``30`` (seconds), ``500ms``, ``5m``, ``2h``, ``1d``."""

from __future__ import annotations

import argparse

from holdfast._durations import parsed

_LONGEST = 10**9  # seconds, about 31 years; longer times overflow the timers of some systems


class WithUnit(float):
    """The seconds of a duration that was written with a unit, so that `Lock` does not warn that it may be in milliseconds."""


def duration(text: str) -> float:
    """Parse a duration of zero or more, and return its seconds, as `WithUnit` if it has a unit. Raises ArgumentTypeError."""
    has_unit = text[-1:].isalpha()
    seconds = parsed(text if has_unit else f"{text}s")
    if seconds is None or seconds > _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: pass 30 (seconds), 0.5, 500ms, 5m, 2h or 1d")
    return WithUnit(seconds) if has_unit else seconds


def positive_duration(text: str) -> float:
    """Parse a duration of more than zero, and return its seconds. Raises ArgumentTypeError."""
    seconds = duration(text)
    if not seconds:
        raise argparse.ArgumentTypeError(f"{text!r} is too short: pass a duration of more than zero")
    return seconds


def moment(t: float) -> str:
    """Format a Unix time as date and time in UTC, with milliseconds only if they are not zero."""
    from datetime import UTC, datetime  # imported late, because most commands print no time

    try:
        shown = datetime.fromtimestamp(t, UTC)
    except (ValueError, OverflowError, OSError):  # another program has written a number for which there is no year
        return f"{t:.0f} s since 1970"
    return f"{shown:%Y-%m-%d %H:%M:%S}" + (f".{shown.microsecond // 1000:03d}" if shown.microsecond >= 1000 else "")


def span(seconds: float) -> str:
    """Format a length of time in one unit: ``3.2 s``, ``45 s``, ``12 min``, ``5.5 h``, ``3.0 d``."""
    for unit, size, most in (("s", 1.0, 120), ("min", 60.0, 120), ("h", 3600.0, 48)):
        if seconds < size * most:
            number = seconds / size
            return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"
    return f"{seconds / 86400:.1f} d"
