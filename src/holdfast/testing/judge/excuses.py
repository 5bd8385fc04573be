"""When servers lost their memory, or had their clocks set: what a rule may excuse, told as narrowly as it can be."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.testing.history import Event

AMNESIA, CLOCK, FORWARD = "amnesia", "clock", "clock forward"
"""Memory that was lost; a clock that was set, and one that was set forward: only then, what a server keeps ends too soon."""


class Upsets:
    """Those of a history."""

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
        """One of these kinds in this time, or still going on: a server that is down has not forgotten yet."""
        return any(kind in kinds and at <= until and end >= since for kind, at, end in self._spans)

    def of(self, kind: str) -> list[tuple[float, float]]:
        """From when to when they lasted."""
        return [(at, end) for which, at, end in self._spans if which == kind]
