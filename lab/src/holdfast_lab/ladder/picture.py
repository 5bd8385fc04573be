"""Draw the timeline of a lock's failure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.testing.history import Event
from holdfast_lab import timeline
from holdfast_lab.checkers import RULES, Violation

_NUMBER = re.compile(r"\d+")


def draw(history: Sequence[Event], violation: Violation) -> str:
    names = {event.who: f"C{event.who[1]}" for event in history if event.lock}
    title = RULES[violation.rule][0]
    verdict = Violation(violation.rule, f"does not hold: {title}", violation.events)
    return timeline.draw(matters(history, violation), [verdict], names=names)


def matters(history: Sequence[Event], violation: Violation) -> list[Event]:
    """Return the events to draw, up to the violation. Leave out each attempt that only repeats the attempt before it."""
    if violation.rule == "R7":
        (asked,) = violation.events
        events = [*_told(history), Event(history[-1].at, "still waits", asked.who, asked.lock)]
    else:
        events = _told(history)
        last = max(events.index(accused) for accused in violation.events)
        events = events[: last + 1]
    return _without_repetition(events)


def _told(history: Sequence[Event]) -> list[Event]:
    """Leave out the events "released" and "end". If a server dies, add its name to the text of that event."""
    told = [event for event in history if event.kind not in {"released", "end"}]
    return [e._replace(note=f"{e.who} {e.note}") if e.kind == "fault" and e.note == "dies" else e for e in told]


def _without_repetition(events: Sequence[Event]) -> list[Event]:
    """Leave out each failed attempt that ran like the failed attempt before it."""
    dropped: set[int] = set()
    tries: dict[str, list[int]] = {}
    before: dict[str, list[str]] = {}
    for number, event in enumerate(events):
        if event.kind in {"sent", "tries again"}:
            tries.setdefault(event.who, []).append(number)
        if event.kind == "tries again":
            this = tries.pop(event.who)
            went = [_pattern(events[n].note) for n in this]
            if before.get(event.who) == went:
                dropped.update(this)
            before[event.who] = went
        elif event.kind in {"ask", "taken"}:
            before.pop(event.who, None)
            tries.pop(event.who, None)
    return [event for number, event in enumerate(events) if number not in dropped]


def _pattern(note: str) -> str:
    """Replace the numbers of a request by #, but keep those of its reply, so that two attempts can be compared."""
    asked, _, reply = note.partition(" → ")
    return f"{_NUMBER.sub('#', asked)} → {reply}"
