"""Histories: the events of one simulation, or of live processes, kept in files of JSON lines.

The simulator and the recorder (`recording`) write them, the checkers judge them, `timeline` draws them. The kinds of events:

======== =============================================================================================================
client   ``ask`` (until: when its wait ends; note: "2 of 5", where there are several permits), ``lined`` (stands in the line
         of its own process), ``queued`` (at the server; since: when the joining request was sent), ``passed`` (given by
         another one of its process; fence), ``taken`` (fence; until: when the belief ends; since: when the first request
         for it was sent; note: why, if the process knew by then that the lease was lost), ``again`` (its holder takes it
         once more; fence), ``inner`` (and gives that back), ``busy``, ``failed``, ``cancelled``, ``renewed`` (until),
         ``lost``, ``downgraded`` (a writer has become a reader), ``release`` (asked
         for), ``released`` (note: "", "passed" if its process keeps the lock, "lost" or an error), ``write`` (fence; note:
         "accepted" or "refused", in the order of the register), ``ticket`` (the lock was handed over; attempt: what the
         lease of the ticket is called)
process  ``crashed``, ``paused``, ``resumed``
server   ``granted`` (fence, last; until: when the key expires; note: "deaf c1 c2", the processes that are in the queue and
         have no listener at that moment), ``extended`` (the same; note: "more" if more fences were asked for), ``freed``,
         ``asked`` (the holder's process was told that somebody waits), ``lowered`` (a holder has fewer permits than
         before), ``limit`` (last: how many permits there are from now on): only a simulator knows
fault    ``fault`` (note: what, first a word of `FAULTS`; who: whom it hits; until: when it is over, if known), ``healed``
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
"""The first words of the notes of faults: what a fault is."""


class Event(NamedTuple):
    """One thing that happened. Times are seconds on the one clock of the history: true time in a simulation, the
    machine's monotonic clock in a live run."""

    at: float
    kind: str
    who: str = ""
    """A worker ("p1/t2": its process is the part before "/"), a process, or a server."""
    lock: str = ""
    attempt: str = ""
    """Names one acquisition, unique in the history. No secret: never the token."""
    fence: int = 0
    until: float = 0.0
    since: float = 0.0
    note: str = ""
    lease: str = ""
    """The lease from the server, which one acquisition passes on to the next of its process. It is named after the acquisition
    that asked for it; empty if that is this one."""
    last: int = 0
    """The last of the fences that came with ``fence``."""


_DEFAULTS: Final[dict[str, Any]] = Event._field_defaults
_FLOATS: Final = frozenset(("at", "until", "since"))
_AT: Final = attrgetter("at")


def process_of(who: str) -> str:
    """The process of a worker; a process is its own."""
    return who.partition("/")[0]


def to_line(event: Event) -> str:
    """One line of JSON, without its end. Defaults are left out; numbers that JSON does not have are texts."""
    fields: dict[str, Any] = {}
    for name, value in event._asdict().items():
        if value == _DEFAULTS.get(name):
            continue
        fields[name] = str(value) if isinstance(value, float) and not math.isfinite(value) else value
    return json.dumps(fields, separators=(",", ":"))


def from_line(line: str) -> Event:
    """The event of a line of JSON. Raises ValueError if it is none."""
    fields = json.loads(line)
    if not isinstance(fields, dict) or not fields.keys() <= set(Event._fields) or not {"at", "kind"} <= fields.keys():
        raise ValueError(f"not an event of a history: {line[:100]!r}")
    fields.update({name: float(fields[name]) for name in _FLOATS & fields.keys()})
    return Event(**fields)


def write(events: Iterable[Event], to: TextIO) -> None:
    """Append events to a file."""
    to.writelines(to_line(event) + "\n" for event in events)


def read(path: str | Path) -> Iterator[Event]:
    """The events of a file, in its order. A last line without its end is left out: its writer was killed over it."""
    with Path(path).open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n") and line != "\n":
                yield from_line(line)


def merge(*histories: Iterable[Event]) -> list[Event]:
    """One history of several, by time; what happened at the same time stays in the order given."""
    return list(heapq.merge(*(sorted(history, key=_AT) for history in histories), key=_AT))
