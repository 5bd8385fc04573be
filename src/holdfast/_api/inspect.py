"""The facts that `inspect` shows about a lock, put together from the answers of the servers. `inspector` is where it looks."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

from holdfast._core import control_records, names
from holdfast._core.inspect import scan
from holdfast._core.inspect.scan import Hold, Seen, Sight, Standing

KINDS = {"semaphore", "rwlock", "event", "latch", "barrier"}
"""Words that the format of a record may begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A process. If it has written nothing about itself yet, only its id is known."""

    process: str
    """Public id, new with each start; empty: a peer that is none of ours, and says nothing about itself."""
    host: str | None
    pid: int | None
    label: str | None

    def __str__(self) -> str:
        if self.host is None:
            return f"process {self.process}" if self.process else "somebody else's program"
        return f"{self.host}:{self.pid}" + (f" ({self.label})" if self.label else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder(Party):
    """A holder of a lock, or of a permit."""

    since: float | None
    """Unix time by the server's clock; None: unknown. Inside its process it may have been passed on since."""
    held_for: float | None
    """Seconds since then."""
    remaining: float | None
    """Seconds until the lease ends, unless it is renewed; None: it has no end."""
    fence: int | None
    """The last one that the server has issued to it."""
    weight: int
    mark: str
    """The same for as long as it is the same lease."""

    __str__ = Party.__str__


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter(Party):
    """A process in the queue."""

    waited: float
    """Seconds."""
    alive: bool | None
    """There was a sign of life lately; None: unknown."""
    weight: int

    __str__ = Party.__str__


@dataclass(frozen=True, slots=True, kw_only=True)
class LockInfo:
    """A lock as the server knows it."""

    name: str
    """Name of the lock as text: bytes that are not UTF-8 are escaped."""
    key: bytes
    kind: str
    """"lock", "election", "semaphore", "rwlock", "event", "latch", "barrier"; "foreign": a lock of another library; "other":
    no lock."""
    holders: tuple[Holder, ...]
    """All holders, from `show`; `locks` gives one of them."""
    waiters: int
    line: tuple[Waiter, ...] | None
    """Waiters in the order of the queue; None where they were not asked for (see `show`)."""
    fence: int
    """The highest fence issued; 0 if the server remembers none."""
    leader: str | None
    """The name under which the holder was elected."""
    used: int
    limit: int
    """Permits of a semaphore; of a read-write lock, which a writer takes all of; else 1."""
    votes: int
    servers: int
    """So many servers, of so many, know it to be held by that holder."""
    answered: int
    """So many could be asked."""

    @property
    def held(self) -> bool:
        """Somebody has it: of several servers, a majority says so."""
        return bool(self.holders) and self.votes > self.servers // 2

    @property
    def holder(self) -> Holder | None:
        """The one who has it, or the first."""
        return self.holders[0] if self.holders else None

    def facts(self) -> dict[str, Any]:
        """All of it, for JSON: no token is in there."""
        facts = {fact: getattr(self, fact) for fact in _FACTS[LockInfo]}
        facts["key"] = text(self.key)
        facts["holders"] = [_facts(holder) for holder in self.holders]
        facts["line"] = self.line and [_facts(waiter) for waiter in self.line]
        return {**facts, "held": self.held}


def _facts(one: Holder | Waiter) -> dict[str, Any]:
    return {fact: getattr(one, fact) for fact in _FACTS[type(one)]}


_FACTS = {kind: [field.name for field in dataclasses.fields(kind)] for kind in (Holder, Waiter, LockInfo)}
"""Names; `dataclasses.asdict` takes ten times as long, and there may be a hundred thousand locks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A lock was taken away from its holder."""

    fence: int
    """Above the fences of the old holder, below all later ones. A resource that accepts it refuses the old holder at once."""
    told: bool
    """Whether the holder's process was listening, and knows. If not, it finds out at its next renewal."""
    handed_over: bool
    """The next in line has it."""


# From what the servers say


def describe(seen: Seen, prefix: bytes, *, name: str | None = None, line: bool = False) -> LockInfo:
    """Return the facts about a lock. If several servers vote, these are the facts of a majority, or of most of them."""
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
    """Return bytes as text, for people and for JSON."""
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


def _who(one: Hold | Standing, seen: Seen) -> dict[str, Any]:
    record = seen.records.get(names.record_key(names.home(one.process, seen.key), one.process))
    return _party(one.process[: names.PROCESS], record, seen.key)


def _holder(hold: Hold, sight: Sight, seen: Seen) -> Holder:
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


def _waiter(one: Standing, now: float, seen: Seen) -> Waiter:
    return Waiter(
        **_who(one, seen),
        waited=max(0.0, now - one.since),
        alive=None if one.counts is None else one.counts > 0,
        weight=one.weight,
    )
