"""The times at which servers lost their data or had their clocks set, which excuse some violations."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.testing.history import Event

AMNESIA, CLOCK, FORWARD = "amnesia", "clock", "clock forward"
"""Kinds of faults: a server lost its data; a server's clock was set; a server's clock was set forward.

If the clock was set forward, keys expired early.
"""


class Upsets:
    """The losses of data and the changes of clocks in a history."""

    def __init__(self, history: Iterable[Event]) -> None:
        self._spans: list[tuple[str, float, float]] = []
        for event in history:
            kind = event.note.partition(" ")[0].rstrip(":")
            if event.kind == "fault" and kind in {AMNESIA, CLOCK}:
                span = event.at, max(event.at, event.until)
                self._spans.append((kind, *span))
                if event.note.startswith(FORWARD):
                    self._spans.append((FORWARD, *span))

    def between(self, since: float, until: float, *kinds: str) -> bool:
        """Return whether a fault of these kinds happened, or still lasted, between two virtual times."""
        return any(kind in kinds and at <= until and end >= since for kind, at, end in self._spans)

    def of(self, kind: str) -> list[tuple[float, float]]:
        """Return the start and end of each fault of this kind."""
        return [(at, end) for which, at, end in self._spans if which == kind]
