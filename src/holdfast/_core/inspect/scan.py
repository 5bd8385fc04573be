"""List the holders and waiters of locks on one or more servers, without writing to a server.

The command SCAN finds the locks. A script reads up to fifty locks at a time, so that the server can serve other clients in
between. Of several servers, either each has some of the locks (a Cluster), or each has a vote about each lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast._core.control_records import CONTROL_RECORDS
from holdfast._core.names import home, literal, record_key, side_key
from holdfast._core.requests import AskPlace, Command, Refused, RunScript, WireError
from holdfast._core.retry import retry_idempotent
from holdfast._lua import Script

PAGE = 50
"""Maximum number of locks that one run of the inspection script reads."""

COUNT = 500
"""Number of keys that the server examines in one step of a SCAN (its argument COUNT)."""

LINE = 1000
"""Maximum number of holders, and also of waiters, that are listed for one lock."""


class HolderReport(NamedTuple):
    """One holder of a lock, as one server reports it."""

    process: str
    """Public id of the holder's process; empty if the holder is a client of another lock library."""
    mark: str
    """Hash of the holder's token, which shows whether two replies name the same holder, and does not reveal the token."""
    remaining: float | None
    """Seconds until the lease expires, unless it is renewed; None: it never expires."""
    fence: int
    weight: int
    lingers: bool


class WaiterReport(NamedTuple):
    """One waiter for a lock, as one server reports it."""

    process: str
    since: float
    """Unix time, in seconds by the server's clock, at which the wait began."""
    counts: float | None
    """Seconds until the server drops the waiter from the queue, unless the waiter's process refreshes it; None: unknown."""
    weight: int


class Sight(NamedTuple):
    """The state of one lock, as one server reports it."""

    now: float
    """Unix time, in seconds by the server's clock, at which the server made this report."""
    type: str
    format: str
    fence: int
    waiters: int
    holds: tuple[HolderReport, ...]
    line: tuple[WaiterReport, ...]
    used: int
    limit: int
    leader: str
    """Name of the elected leader, if the lock is that of an election and its holder has proclaimed itself; otherwise empty."""


def _hold(raw: Any) -> HolderReport:
    process, mark, left, fence, weight, lingers = raw
    return HolderReport(
        process.decode(), mark.decode(), None if left == -1 else max(0, left) / 1000, fence, weight, lingers == 1
    )


def _standing(raw: Any) -> WaiterReport:
    process, since, left, weight = raw
    return WaiterReport(process.decode(), since / 1e6, None if left == -1 else left / 1000, weight)


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
    """The servers that an inspection asks, and the rule by which keys are grouped into requests."""

    places: int
    """Number of servers that vote about each lock; 1 for a single server or a Cluster."""
    parts: int
    """Number of servers on which a SCAN is run. Each of them has some of the keys."""
    timeout: float
    slot_of: Callable[[bytes], int] | None = None
    """Function that returns the Cluster slot of a key, because a script may read keys of one slot only; None: no Cluster."""

    def together(self, keys: list[bytes]) -> Iterator[list[bytes]]:
        """Split the keys of locks into groups, each of which one run of the inspection script can read."""
        slots: dict[int, list[bytes]] = {}
        for key in keys:
            slots.setdefault(self.slot_of(key) if self.slot_of else 0, []).append(key)
        for group in slots.values():
            for at in range(0, len(group), PAGE):
                yield group[at : at + PAGE]


Records = dict[bytes, bytes | None]
"""Process records (texts that processes write about themselves), by key; None: not read yet, or missing on the server."""


class LockReports(NamedTuple):
    """One lock, with the report of each server about it. A report is None if the server has not replied."""

    key: bytes
    sights: tuple[Sight | None, ...]
    records: Records
    """Process records of the holders and waiters of this lock. The dict may also contain the records of other processes."""


def keys_of(lock: bytes) -> tuple[bytes, ...]:
    """Return the keys that the inspection script reads for one lock."""
    return (lock, *(side_key(lock, what) for what in (b"state", b"queue", b"hopefuls")))


async def _introduce(where: Field, seen: list[LockReports], records: Records) -> None:
    """Read the process records of all holders and waiters of these locks into ``records``, except those that it already has."""
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
                ask = AskPlace(place, RunScript(CONTROL_RECORDS, tuple(left), (), where.timeout))
                try:
                    records |= dict(zip(left, (await retry_idempotent(ask)).value, strict=True))
                except WireError:
                    continue  # these processes are shown by their ids


async def read_locks(where: Field, keys: list[bytes], most: int = 1, records: Records | None = None) -> list[LockReports]:
    """Return the state of the locks with these keys.

    Raises WireError if no server replies, or if the last error is a refusal for good, such as a missing permission. ``most``:
    maximum number of holders, and also of waiters, to list for each lock; 1: list no waiters. ``records``: process records that
    were read before, to which new ones are added; None: none.
    """
    records = {} if records is None else records
    seen = []
    for group in where.together(keys):
        call = RunScript(SCAN, tuple(key for lock in group for key in keys_of(lock)), (most,), where.timeout)
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
        seen += [LockReports(key, tuple(answers), records) for key, *answers in zip(group, *sights, strict=True)]
    await _introduce(where, seen, records)
    return seen


def _for_good(error: WireError) -> bool:
    return isinstance(error, Refused) and not error.transient


class Survey:
    """An iteration over all locks under a prefix, in pages without any order.

    A lock that is acquired or released during the iteration may be missing.
    """

    def __init__(self, where: Field, match: bytes, fits: Callable[[bytes], bool]) -> None:
        self.where = where
        self.match = match
        self._fits = fits
        self.part = 0
        self.cursor: bytes | int = 0
        self._found: list[bytes] = []
        self._shown: set[bytes] = set()
        self.silent = 0
        """Number of servers that did not reply so far. Of several voting servers, a majority must reply."""
        self.records: Records = {}

    @property
    def over(self) -> bool:
        return self.part == self.where.parts and not self._found

    def scanned(self, cursor: bytes | int, keys: list[bytes]) -> None:
        """Add the keys that one step of a SCAN returned. ``cursor``: where the next step begins; 0: this step was the last."""
        for key in keys:
            if key not in self._shown and self._fits(key):  # SCAN may return a key twice
                self._shown.add(key)
                self._found.append(key)
        done = int(cursor) == 0
        self.part, self.cursor = (self.part + 1, 0) if done else (self.part, cursor)

    def take(self) -> list[bytes]:
        """Remove the next page of lock keys from this survey, and return it; empty if the next step of the SCAN is due."""
        some, self._found = self._found[:PAGE], self._found[PAGE:]
        return some


async def page(survey: Survey) -> list[LockReports]:
    """Return the next page of locks of a survey. A page may be empty although further pages follow.

    Raises WireError if too few servers reply, or if one refuses for good, for example for lack of a permission.
    """
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
            survey.scanned(0, [])  # the other servers know its locks
        keys = survey.take()
    return [seen for seen in await read_locks(where, keys, 1, survey.records) if any(map(_counts, seen.sights))]


async def keys_on(where: Field, match: bytes) -> set[bytes]:
    """Return all keys that match a pattern, from each server of a Cluster. Raises WireError if one of them does not reply."""
    found: set[bytes] = set()
    for part in range(where.parts):
        cursor: bytes | int | None = 0
        while cursor is not None:
            scan = Command(("SCAN", cursor, "MATCH", match, "COUNT", COUNT), where.timeout)
            after, keys = (await retry_idempotent(AskPlace(part, scan, all_of=True))).value
            found.update(keys)
            cursor = after if int(after) else None
    return found


def _counts(sight: Sight | None) -> bool:
    return sight is not None and (sight.type != "none" or sight.waiters > 0)


# Names of locks, and patterns that match them


def scan_pattern(prefix: bytes, pieces: list[bytes]) -> bytes:
    """Return the pattern for SCAN that matches the keys of locks whose encoded names contain these pieces, in this order."""
    escaped = (literal(text) for text in (prefix, *pieces))
    return next(escaped) + b"{" + b"*".join(escaped) + b"}"
