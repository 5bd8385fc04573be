"""Histories, which are lists of events, of one simulation or of live processes, and the files of JSON lines that store them.

The simulator and the `Recorder` write histories. `holdfast_lab.checkers` judges a history by rules, and `holdfast_lab.timeline`
draws it. The lists below name the kinds of events, and the fields of `Event` that a kind uses in its own way.

A client records, about a lock:

- ``ask``: the client begins to acquire (``until``: end of its wait; ``note``: "2 of 5" if it wants 2 of 5 permits)
- ``lined``: the client waits in the local queue of its process
- ``queued``: the client has a position in the server's queue (``since``: time at which its request to join was sent)
- ``passed``: another worker of its process hands the lock on to the client (``fence``)
- ``taken``: the client has acquired the lock (``fence``; ``until``: end of the lease, as the client knows it; ``since``:
  time at which its first request was sent; ``note``: reason of the loss, if the process knew already that the lease was
  lost)
- ``busy``, ``failed``, ``cancelled``: the attempt ended without the lock
- ``again``, ``inner``: the holder acquires the lock once more (``fence``), and releases this further acquisition
- ``renewed``: the lease was renewed (``until``: its new end; ``since``: if a live process finds that the new end is earlier
  than the old one, the time at which the request for the new end was sent)
- ``lost``: the holder noticed the loss of the lock
- ``downgraded``: a writer became a reader
- ``write``: a write to the protected resource (``fence``; ``note``: "accepted" or "refused")
- ``release``: a release begins
- ``released``: the release ended (``note``: "" on success, "passed" if the process keeps the lock, "lost", or an error)
- ``ticket``: the holder turned its lease into a ticket, which holds the lock from then on (``attempt``: name of that lease)

About a process: ``crashed``, ``paused``, ``resumed``.

A simulated server records, about a lock:

- ``granted``: the server granted it (``fence`` and ``last``: first and last reserved fence; ``until``: expiry of the key;
  ``note``: "deaf c1 c2", where c1 and c2 are processes in the queue that had no subscription at that moment)
- ``extended``: the server extended the lease (fields as in ``granted``; ``note``: "more" if further fences were requested)
- ``freed``: the lock became free
- ``asked``: the server notified the holder's process that another process waits
- ``lowered``: a holder has fewer permits than before; ``limit``: the limit of permits was set (``last``: the new limit)

About faults, the end, and messages:

- ``fault``: a fault begins (``note``: begins with a word of `FAULTS`; ``who``: the process or server that it hits;
  ``until``: its end, if known); ``healed``: a fault ends
- ``left``: data was left behind (``note``: which data); ``end``: the history ends
- ``sent``, ``served``, ``answered``: a request is sent, carried out and answered, if the history is traced (``note``: the
  script or command, its reply, and the times of client and server)
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
"""Kinds of faults. The note of each event ``fault`` begins with one of these words."""


class Event(NamedTuple):
    """One event of a history. Its times are seconds of virtual time in a simulation, and of the monotonic clock in a live
    run."""

    at: float
    kind: str
    who: str = ""
    """Name of the worker, process or server that the event is about. "p1/t2" is a worker of the process "p1"."""
    lock: str = ""
    attempt: str = ""
    """Name of one attempt to acquire a lock, unique in the history; never the secret token."""
    fence: int = 0
    until: float = 0.0
    since: float = 0.0
    note: str = ""
    lease: str = ""
    """Name of the earlier attempt of the same process that got the lease from the server; "" if this attempt got it."""
    last: int = 0
    """Last of the consecutive fences that the server reserved with one grant; ``fence`` is the first."""


_DEFAULTS: Final[dict[str, Any]] = Event._field_defaults
_FLOATS: Final = frozenset(("at", "until", "since"))
_AT: Final = attrgetter("at")


def process_of(who: str) -> str:
    """Return the process in a worker's name, which is the part before "/". A process's own name is returned unchanged."""
    return who.partition("/")[0]


def to_line(event: Event) -> str:
    """Return an event as a line of JSON, without a newline and without fields that have default values.

    Infinity is written as a string.
    """
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
    """Yield the events of a file in order. A last line without a newline is skipped: its writer was killed while writing it."""
    with Path(path).open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n") and line != "\n":
                yield from_line(line)


def merge(*histories: Iterable[Event]) -> list[Event]:
    """Merge histories into one, sorted by time. Events of the same time are in the order of the arguments."""
    return list(heapq.merge(*(sorted(history, key=_AT) for history in histories), key=_AT))
