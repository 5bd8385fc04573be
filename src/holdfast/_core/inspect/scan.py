"""Seeing who holds what, and who waits for it, from outside: nothing is taken, nothing is written.

Locks are found with SCAN, and looked at fifty in a run, so that the server serves others in between. An operation may ask
several servers: each holds a part of the locks, as in a Cluster, or a vote for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast._core.control_records import CONTROL_RECORDS
from holdfast._core.names import home, literal, record_key, side_key
from holdfast._core.requests import AskPlace, Command, Refused, Run, WireError
from holdfast._core.retry import retry_idempotent
from holdfast._lua import Script

PAGE = 50
"""Locks that are looked at in one run of the script, at most."""

COUNT = 500
"""Keys that the server is to look at in one step of a SCAN."""

LINE = 1000
"""Holders and waiters of one lock that are listed, at most."""


class Hold(NamedTuple):
    """Somebody who has a lock, as one server says."""

    process: str
    """Public id; empty: none of ours."""
    mark: str
    """Says whether it is the same holder; nothing can be done with it."""
    remaining: float | None
    fence: int
    weight: int
    lingers: bool


class Standing(NamedTuple):
    """Somebody who waits for it."""

    process: str
    since: float
    """Unix time, by the server's clock."""
    counts: float | None
    """Seconds for which the place counts, unless there is a sign of life; None: nobody knows."""
    weight: int


class Sight(NamedTuple):
    """A lock as one server knows it."""

    now: float
    """Unix time there."""
    type: str
    format: str
    fence: int
    waiters: int
    holds: tuple[Hold, ...]
    line: tuple[Standing, ...]
    used: int
    limit: int
    leader: str
    """Name under which the holder leads, if it is a leader."""


def _hold(raw: Any) -> Hold:
    process, mark, left, fence, weight, lingers = raw
    return Hold(process.decode(), mark.decode(), None if left == -1 else max(0, left) / 1000, fence, weight, lingers == 1)


def _standing(raw: Any) -> Standing:
    process, since, left, weight = raw
    return Standing(process.decode(), since / 1e6, None if left == -1 else left / 1000, weight)


def _sights(raw: Any) -> list[Sight]:
    now, *answers = raw
    return [
        Sight(
            now / 1e6,
            kind.decode(),
            form.decode(errors="replace"),
            fence,
            waiters,
            tuple(map(_hold, holds)),
            tuple(map(_standing, line)),
            used,
            limit,
            leader.decode(errors="backslashreplace"),
        )
        for kind, form, fence, waiters, holds, line, used, limit, leader in answers
    ]


SCAN: Script[list[Sight]] = Script("inspect/scan", _sights)


@dataclass(frozen=True)
class Field:
    """The patterns and keys to look at."""

    places: int
    """Servers that each have a vote; 1, where it is one server, or a Cluster."""
    parts: int
    """Servers that each know some of the keys."""
    timeout: float
    slot_of: Callable[[bytes], int] | None = None
    """In a Cluster: keys of several slots cannot go into one run."""

    def together(self, keys: list[bytes]) -> Iterator[list[bytes]]:
        """Those that can be looked at in one run."""
        slots: dict[int, list[bytes]] = {}
        for key in keys:
            slots.setdefault(self.slot_of(key) if self.slot_of else 0, []).append(key)
        for group in slots.values():
            for at in range(0, len(group), PAGE):
                yield group[at : at + PAGE]


Records = dict[bytes, bytes | None]
"""Records that processes write about themselves, by key; None: not read yet, or none there."""


class Seen(NamedTuple):
    """A lock, and what each server knows of it; None: it has not answered."""

    key: bytes
    sights: tuple[Sight | None, ...]
    records: Records
    """Of processes, among them those that are named in it: what they say of themselves."""


def keys_of(lock: bytes) -> tuple[bytes, ...]:
    """Those that the script reads."""
    return (lock, *(side_key(lock, what) for what in (b"state", b"queue", b"hopefuls")))


async def _introduce(where: Field, seen: list[Seen], records: Records) -> None:
    """Ask what those processes say that these locks name, each once."""
    wanted = {
        record_key(home(process, lock.key), process)
        for lock in seen
        for sight in lock.sights
        if sight is not None
        for process in (*(hold.process for hold in sight.holds), *(one.process for one in sight.line))
        if process
    }
    unknown = sorted(wanted - records.keys())
    records |= dict.fromkeys(unknown)
    size = PAGE if where.slot_of is None else 1
    for some in (unknown[at : at + size] for at in range(0, len(unknown), size)):
        for place in range(where.places):
            left = [record for record in some if records[record] is None]
            if left:
                ask = AskPlace(place, Run(CONTROL_RECORDS, tuple(left), (), where.timeout))
                try:
                    records |= dict(zip(left, (await retry_idempotent(ask)).value, strict=True))
                except WireError:
                    continue  # they are told by their ids


async def look(where: Field, keys: list[bytes], most: int = 1, records: Records | None = None) -> list[Seen]:
    """Return the facts about these locks. ``most``: so many holders of each, and so many in line, are listed; with 1, no line
    is. Raises WireError if no server answers."""
    records = {} if records is None else records
    seen = []
    for group in where.together(keys):
        call = Run(SCAN, tuple(key for lock in group for key in keys_of(lock)), (most,), where.timeout)
        sights: list[list[Sight] | list[None]] = []
        failure: WireError | None = None
        for place in range(where.places):
            try:
                sights.append((await retry_idempotent(AskPlace(place, call))).value)
            except WireError as error:
                failure = error
                sights.append([None] * len(group))
        if failure is not None and (all(answers[0] is None for answers in sights) or _for_good(failure)):
            raise failure
        seen += [Seen(key, tuple(answers), records) for key, *answers in zip(group, *sights, strict=True)]
    await _introduce(where, seen, records)
    return seen


def _for_good(error: WireError) -> bool:
    return isinstance(error, Refused) and not error.transient


class Survey:
    """All locks under a prefix, page by page, in no order. One that is taken, or given back, meanwhile may be missing."""

    def __init__(self, where: Field, match: bytes, fits: Callable[[bytes], bool]) -> None:
        self.where = where
        self.match = match
        self._fits = fits
        self.part = 0
        self.cursor: bytes | int = 0
        self._found: list[bytes] = []
        self._shown: set[bytes] = set()
        self.silent = 0
        """Servers that have not answered: what most of them know is all there is, and no more."""
        self.records: Records = {}

    @property
    def over(self) -> bool:
        """There is no further page."""
        return self.part == self.where.parts and not self._found

    def scanned(self, cursor: bytes | int, keys: list[bytes]) -> None:
        """The keys that one step of a SCAN has found."""
        for key in keys:
            if key not in self._shown and self._fits(key):  # it may find a key twice
                self._shown.add(key)
                self._found.append(key)
        done = int(cursor) == 0
        self.part, self.cursor = (self.part + 1, 0) if done else (self.part, cursor)

    def take(self) -> list[bytes]:
        """Keys of the next page; empty: go on with the SCAN."""
        some, self._found = self._found[:PAGE], self._found[PAGE:]
        return some


async def page(survey: Survey) -> list[Seen]:
    """Some more of them; perhaps none, and there are more all the same. Raises WireError."""
    where = survey.where
    keys = survey.take()
    if not keys:
        scan = Command(("SCAN", survey.cursor, "MATCH", survey.match, "COUNT", COUNT), where.timeout)
        try:
            survey.scanned(*(await retry_idempotent(AskPlace(survey.part, scan, all_of=True))).value)
        except WireError as error:
            survey.silent += 1
            if survey.silent > where.places // 2 or _for_good(error):
                raise
            survey.scanned(0, [])  # its locks are known to the others
        keys = survey.take()
    return [seen for seen in await look(where, keys, 1, survey.records) if any(map(_counts, seen.sights))]


def _counts(sight: Sight | None) -> bool:
    return sight is not None and (sight.type != "none" or sight.waiters > 0)


# Names, and patterns of them


def scan_pattern(prefix: bytes, pieces: list[bytes]) -> bytes:
    """For MATCH: keys of locks whose encoded names have these pieces, in order, and anything between two of them."""
    escaped = (literal(text) for text in (prefix, *pieces))
    return next(escaped) + b"{" + b"*".join(escaped) + b"}"
