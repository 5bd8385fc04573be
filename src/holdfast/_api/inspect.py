"""The facts about locks that `Inspector` returns, built from the answers of the servers."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

from holdfast._core import control_records, names
from holdfast._core.inspect import scan
from holdfast._core.inspect.scan import HolderReport, LockReports, Sight, WaiterReport

KINDS = {"semaphore", "rwlock", "event", "latch", "barrier"}
"""Kinds of objects, as the first word of their record on the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A process that holds a lock or waits for it. Host and pid are None if the server has no record of the process."""

    process: str
    """Public id of the process, new at each start; empty for a client of another library."""
    host: str | None
    pid: int | None
    label: str | None

    def __str__(self) -> str:
        if self.host is None:
            return f"process {self.process}" if self.process else "a client of another library"
        return f"{self.host}:{self.pid}" + (f" ({self.label})" if self.label else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder(Party):
    """A process that holds a lock, or permits of a semaphore."""

    since: float | None
    """Time at which this process acquired the lock, in Unix seconds of the server's clock; None: unknown. Since then, the
    process may have handed the lock on between its threads or tasks."""
    held_for: float | None
    """Seconds since the process acquired the lock; None: unknown."""
    remaining: float | None
    """Seconds until the lease expires if it is not renewed; None if the lease never expires."""
    fence: int | None
    """The last of the fences that the server has reserved for this holder; its lease may have a lower one. None: unknown."""
    weight: int
    """Number of permits that the process holds; 1 for a lock."""
    mark: str
    """A text that identifies the lease: it stays the same while the lease lasts."""

    def __str__(self) -> str:
        return Party.__str__(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter(Party):
    """A process that waits in the queue of a lock."""

    waited: float
    """Seconds for which the process has waited."""
    alive: bool | None
    """True if the process gave a sign of life lately; None if unknown."""
    weight: int
    """Number of permits that the process waits for; 1 for a lock."""

    def __str__(self) -> str:
        return Party.__str__(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockInfo:
    """A lock as the server sees it: its holders, its queue and its fence."""

    name: str
    """Name of the lock as text: bytes that are not UTF-8 are escaped."""
    key: bytes
    kind: str
    """"lock", "election", "semaphore", "rwlock", "event", "latch" or "barrier"; "foreign" for a lock of another library,
    "other" for a key that is no lock."""
    holders: tuple[Holder, ...]
    """The holders: from `Inspector.show`, up to a thousand; from `Inspector.locks`, only one of them."""
    waiters: int
    line: tuple[Waiter, ...] | None
    """The waiters in the order of the queue, from `Inspector.show`; None from `Inspector.locks`."""
    fence: int
    """The highest fence issued so far; 0 if the server has no record of any."""
    leader: str | None
    """The name of the elected candidate; None if the lock is no election, or nobody leads."""
    used: int
    """Number of permits that are held. A plain lock has one permit."""
    limit: int
    """Total number of permits: the limit of a semaphore, the number that the writer of a read-write lock takes, else 1."""
    votes: int
    """Number of servers that agree on the holders in `holders`; 0 if the lock has no holder."""
    servers: int
    """Number of servers that the lock is spread over: 1, except for a Redlock."""
    answered: int
    """Number of servers that answered."""

    @property
    def held(self) -> bool:
        """True if the lock is held; with several servers, according to a majority."""
        return bool(self.holders) and self.votes > self.servers // 2

    @property
    def holder(self) -> Holder | None:
        """The holder, or the first of several; None if there is none."""
        return self.holders[0] if self.holders else None

    def facts(self) -> dict[str, Any]:
        """Return all facts as a dictionary for JSON. It contains no token."""
        facts = {fact: getattr(self, fact) for fact in _FACTS[LockInfo]}
        facts["key"] = text(self.key)
        facts["holders"] = [_facts(holder) for holder in self.holders]
        facts["line"] = self.line and [_facts(waiter) for waiter in self.line]
        return {**facts, "held": self.held}


def _facts(one: Holder | Waiter) -> dict[str, Any]:
    return {fact: getattr(one, fact) for fact in _FACTS[type(one)]}


_FACTS = {kind: [field.name for field in dataclasses.fields(kind)] for kind in (Holder, Waiter, LockInfo)}
"""Names of the fields of each class. They replace `dataclasses.asdict`, which takes ten times as long: there may
be a hundred thousand locks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The outcome of breaking a lock. The former holder has lost it."""

    fence: int
    """A fence above those of the former holder and below all later ones. Once a resource has accepted this fence, it refuses
    writes of the former holder."""
    told: bool
    """True if the former holder's process received the notification. If False, the holder notices the loss when it next
    renews or releases the lock."""
    handed_over: bool
    """True if the lock was handed over to the next waiter."""


# From the servers' answers to facts


def describe(seen: LockReports, prefix: bytes, *, name: str | None = None, line: bool = False) -> LockInfo:
    """Return the facts about a lock. If its servers disagree, the holders that most servers name are returned."""
    sights = [sight for sight in seen.sights if sight is not None]
    votes: dict[tuple[str, ...], list[Sight]] = {}
    for sight in sights:
        votes.setdefault(tuple(hold.mark for hold in sight.holds), []).append(sight)
    agreed = max(votes.values(), key=lambda some: (bool(some[0].holds), len(some)))
    first = agreed[0]
    waiting = max(sights, key=lambda sight: sight.waiters)
    holders = tuple(_holder(hold, first, seen) for hold in first.holds)
    return LockInfo(
        name=name if name is not None else text(names.name_of(seen.key, prefix) or seen.key),
        key=seen.key,
        kind=_kind(first),
        holders=holders,
        waiters=waiting.waiters,
        line=tuple(_waiter(one, waiting.now, seen) for one in waiting.line) if line else None,
        fence=max(sight.fence for sight in sights),
        leader=first.leader or None,
        used=sum(holder.weight for holder in holders) if line and len(holders) < scan.LINE else first.used or len(holders),
        limit=first.limit or 1,
        votes=len(agreed) if holders else 0,
        servers=len(seen.sights),
        answered=len(sights),
    )


def text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")


def _kind(sight: Sight) -> str:
    if sight.type == "string":
        foreign = not sight.holds[0].process
        return "foreign" if foreign else "election" if sight.leader else "lock"
    kind = sight.format.split(" ")[0]
    if kind in KINDS:
        return kind
    return "lock" if sight.type == "none" else "other"


_read = functools.lru_cache(1000)(control_records.read)


def _party(process: str, record: bytes | None, key: bytes) -> dict[str, Any]:
    said = _read(record)
    if said is None:
        return {"process": process, "host": None, "pid": None, "label": None}
    return {"process": process, "host": said.host, "pid": said.pid, "label": said.label_of(key) or None}


def _who(one: HolderReport | WaiterReport, seen: LockReports) -> dict[str, Any]:
    record = seen.records.get(names.record_key(names.home(one.process, seen.key), one.process))
    return _party(one.process[: names.PROCESS], record, seen.key)


def _holder(hold: HolderReport, sight: Sight, seen: LockReports) -> Holder:
    ours = bool(hold.process and hold.fence)
    since = min(hold.fence / 1e6, sight.now) if ours else None
    return Holder(
        **_who(hold, seen),
        since=since,
        held_for=None if since is None else sight.now - since,
        remaining=hold.remaining,
        fence=hold.fence if ours else None,
        weight=hold.weight,
        mark=hold.mark,
    )


def _waiter(one: WaiterReport, now: float, seen: LockReports) -> Waiter:
    return Waiter(
        **_who(one, seen),
        waited=max(0.0, now - one.since),
        alive=None if one.counts is None else one.counts > 0,
        weight=one.weight,
    )
