"""Histories: the events of one simulation, or of live processes, and their files of JSON lines.

The simulator and the `Recorder` write histories, the checkers judge them, `timeline` draws them. The kinds of events, with the
fields that they set:

======== =============================================================================================================
client   ``ask``: begins to acquire (until: end of its wait; note: "2 of 5" if it wants 2 of 5 permits); ``lined``: waits in
         the local queue of its process; ``queued``: has a position in the server's queue (since: send time of the
         request for it); ``passed``: gets the lock from another worker of its process (fence); ``taken``: acquired
         (fence; until:
         end of the lease as the holder knows it; since: send time of the first request; note: reason of the loss, if the
         process knew that the lease was lost already); ``again``: the holder acquires once more (fence); ``inner``: it
         releases that; ``busy``, ``failed``, ``cancelled``: the attempt ended without the lock; ``renewed`` (until);
         ``lost``; ``downgraded``: a writer became a reader; ``release``: the release begins; ``released``: it ended (note:
         "", "passed" if its process keeps the lock, "lost", or an error); ``write`` (fence; note: "accepted" or "refused");
         ``ticket``: the lock was handed over by a ticket (attempt: name of the ticket's lease)
process  ``crashed``, ``paused``, ``resumed``
server   known to a simulator only. ``granted`` (fence, last; until: expiry of the key; note: "deaf c1 c2", processes that wait
         in the queue without a listener at that moment); ``extended`` (as ``granted``; note: "more" if more fences were asked
         for); ``freed``; ``asked``: the holder's process was notified that another process waits; ``lowered``: a holder has
         fewer permits than before; ``limit`` (last: the number of permits from now on)
fault    ``fault`` (note: begins with a word of `FAULTS`; who: the process or server that it hits; until: its end, if known);
         ``healed``: the end of a fault
the end  ``left`` (note: what was left behind), ``end``
traced   ``sent``, ``served``, ``answered`` (note: the script or command, its reply, local and server time)
======== =============================================================================================================
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

FAULTS: Final = frozenset(
    (
        "cut",
        "lost-request",
        "lost-reply",
        "duplicate",
        "slow",
        "silence",
        "restart",
        "amnesia",
        "clock",
        "foreign",
        "refused",
        "deaf",
        "pause",
        "crash",
        "cancel",
    )
)
"""Kinds of faults: the first word in the note of each event ``fault``."""


class Event(NamedTuple):
    """One event of a history. Times are seconds of one clock: true time in a simulation, the monotonic clock in a live run."""

    at: float
    kind: str
    who: str = ""
    """Name of the worker ("p1/t2", where "p1" is its process), process or server that the event is about."""
    lock: str = ""
    attempt: str = ""
    """Name of one attempt to acquire a lock, unique in the history; never the secret token."""
    fence: int = 0
    until: float = 0.0
    since: float = 0.0
    note: str = ""
    lease: str = ""
    """Name of the attempt to which the server granted the lease, if an earlier one of the same process; empty: this attempt."""
    last: int = 0
    """Last fence of the block of fences that the server granted together, beginning with ``fence``."""


_DEFAULTS: Final[dict[str, Any]] = Event._field_defaults
_FLOATS: Final = frozenset(("at", "until", "since"))
_AT: Final = attrgetter("at")


def process_of(who: str) -> str:
    """Return the name of a worker's process: the part before "/"; a process is returned unchanged."""
    return who.partition("/")[0]


def to_line(event: Event) -> str:
    """Return an event as JSON without a newline. Default values are left out; infinite numbers are written as texts."""
    fields: dict[str, Any] = {}
    for name, value in event._asdict().items():
        if value == _DEFAULTS.get(name):
            continue
        fields[name] = str(value) if isinstance(value, float) and not math.isfinite(value) else value
    return json.dumps(fields, separators=(",", ":"))


def from_line(line: str) -> Event:
    """Return the event of a line of JSON. Raises ValueError if the line is not an event."""
    fields = json.loads(line)
    if not isinstance(fields, dict) or not fields.keys() <= set(Event._fields) or not {"at", "kind"} <= fields.keys():
        raise ValueError(f"not an event of a history: {line[:100]!r}")
    fields.update({name: float(fields[name]) for name in _FLOATS & fields.keys()})
    return Event(**fields)


def write(events: Iterable[Event], to: TextIO) -> None:
    """Append events to an open file, one line each."""
    to.writelines(to_line(event) + "\n" for event in events)


def read(path: str | Path) -> Iterator[Event]:
    """Yield the events of a file in order, except a last line without newline, whose writer was killed while writing."""
    with Path(path).open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n") and line != "\n":
                yield from_line(line)


def merge(*histories: Iterable[Event]) -> list[Event]:
    """Merge histories into one, sorted by time; events of the same time keep the order of the arguments."""
    return list(heapq.merge(*(sorted(history, key=_AT) for history in histories), key=_AT))
