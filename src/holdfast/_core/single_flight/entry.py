"""The subject of single flight (`flight`): the keys of a value, the data under them, and the answers of its scripts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from holdfast._core.lock.records import Spec, answer_within, cached_property
from holdfast._core.names import encoded, start
from holdfast._core.requests import Command, Conflict, in_the_way
from holdfast._lua import Script, codes, whole_number

MAX_SIZE = 16 * 1024 * 1024
"""Bytes of a value, at most, where nobody says otherwise."""

HEAD = 4096
"""Bytes of a value's first line, at most."""

MARK = "mark"
"""Kind of what stands for a value that could not be stored. It is stored even if memory is full."""

MAX_TAGS = 4000
"""Bytes that the tags of one value may take: they stand in its first line, of which scripts read no more than 4,096 bytes."""

LARGE = 1024 * 1024
"""Bytes that every server takes in one argument. Of more, it may close the connection instead (``proto-max-bulk-len``)."""


@dataclass(frozen=True)
class EntrySpec:
    """A key, as these operations see it. Made by `entry_spec`; may be kept, and shared by threads."""

    spec: Spec
    """The lock record of its load: its keys are load, state, floors; state and floors are those of all keys of its group."""
    value: bytes
    fresh: bytes
    invalidated_before: bytes
    waiters: bytes
    """Further keys on the server, see `_lua/single_flight/_values.lua`."""
    tries: int = 1
    """So often is asked, at least, before a server that gives no answer counts as away."""
    max_size: int = MAX_SIZE
    """Bytes that a value may have on the server. A longer one is not read."""
    keeps: bool = False
    """True: an unreadable stored value is refused. False: it counts as no value, and is loaded over."""

    @property
    def outage_budget(self) -> float:
        """Seconds within which there has to be an answer."""
        return self.tries * self.spec.timeout

    @cached_property
    def reading(self) -> Command:
        """Return the quick command that nearly always sees a fresh value: `fresh`."""
        keys = (
            (self.value, self.fresh) if self.value.endswith(b"}:value") else (self.value, self.fresh, self.invalidated_before)
        )
        return Command(("MGET", *keys), self.spec.timeout)


UNASKED = float("inf")


@dataclass(slots=True)
class Record:
    """A value that was stored."""

    kind: str
    """Kind that the writer gave it: a word of small letters, such as "v" or "error"."""
    data: bytes
    fence: int
    """Of the load that stored it."""
    left: float
    """Seconds for which it is fresh; negative: it is stale since then. `UNASKED`: nobody has asked."""


class Found(NamedTuple):
    """There is a value, and nothing for the caller to do."""

    record: Record
    stale: bool
    """Its time is over, and somebody else loads a new one."""
    waited: bool = False
    """The caller has waited for it to be loaded."""


class Loading(NamedTuple):
    """Somebody else loads it, and `LookupPolicy.wait` is over."""

    remaining: float | None
    """Seconds until the loader's lease ends, if it is not renewed; None: it has no end, and is none of ours."""
    since: float
    """Seconds since the newest load of the group began: this one, where a group has one key."""
    process: str
    """Public id of the loader's process; empty: unknown."""


class Absent(NamedTuple):
    """There is no value, and `LookupPolicy.load` was False."""


class Oversize(NamedTuple):
    """There is a value, and it has more bytes than `EntrySpec.max_size`."""

    size: int


class Granted(NamedTuple):
    fence: int
    record: Record | None


class Revoked(NamedTuple):
    """The token was declared dead."""


@dataclass(frozen=True, slots=True)
class LookupPolicy:
    """The options of a caller."""

    wait: float | None = None
    """Seconds to wait for somebody else's load; None: for ever; 0: not at all."""
    stale: float = 0.0
    """Seconds for which a value will do whose time is over, while somebody else loads a new one."""
    early: int = 0
    """How early to load before the time is over: ``-1000 * beta * log(u)``, with a new ``u`` from (0, 1] each time (XFetch)."""
    load: bool = True
    """Load it oneself, if nobody does."""
    fast_read: bool = True
    """Ask by a plain command first. False: that was done just now."""


# Answers of the scripts

Seen = Found | Loading | Absent | Oversize | Granted | Revoked


def _record(raw: bytes, left: float) -> Record:
    head, _, data = raw.partition(b"\n")
    _, kind, fence, _ = head.split(b" ", 3)
    return Record(kind.decode(), data, int(fence), left)


def _whole(text: bytes) -> int:
    """As the scripts read a number. Raises ValueError."""
    if len(text) > 16 or not text.isdigit():
        raise ValueError(text[:16])
    return int(text)


def fresh(values: list[bytes | None]) -> Record | None:
    """Return the value that `EntrySpec.reading` has read if it is certainly fresh, else None."""
    raw, mark, floor = values if len(values) == 3 else (*values, b"0")  # a group of one key has none
    if raw is None or floor is None:
        return None
    ends = raw.find(b"\n", 0, HEAD)
    head, data = raw[: max(0, ends)], raw[ends + 1 :]
    try:
        version, kind, fence, _, kept, _ = head.split(b" ", 5)
        number = _whole(fence)
        if version != b"1" or (mark is None and kept != b"0") or _whole(floor) >= number:
            return None
        return Record(kind.decode(), data, number, UNASKED)
    except ValueError:
        return None  # somebody else's


def _read_look(raw: object) -> Seen | Conflict:
    match raw:
        case [1 | codes.STALE as what, bytes(value), int(left)]:
            return Found(_record(value, left / 1000), what == codes.STALE)
        case [codes.LEASED, int(fence), bytes(value), int(left)]:
            return Granted(fence, _record(value, left / 1000) if value else None)
        case [0, int(left), int(since), bytes(process)]:
            return Loading(None if left == -1 else max(0, left) / 1000, since / 1000, process.decode())
        case [codes.ABSENT]:
            return Absent()
        case [codes.TOO_LONG, int(size)]:
            return Oversize(size)
        case _:
            return Revoked() if raw == [codes.NO_CLAIM] else in_the_way(raw)


def _read_land(raw: object) -> int | Conflict:
    """The fence under which it is stored; 0: it is not."""
    match raw:
        case [1, int(fence)]:
            return fence
        case [0 | codes.INVALIDATED]:
            return 0
        case _:
            return in_the_way(raw)


def _read_fence(raw: object) -> int | Conflict:
    match raw:
        case [int(number)]:
            return number
        case _:
            return in_the_way(raw)


GET_OR_LEASE: Script[Seen | Conflict] = Script("single_flight/get_or_lease", _read_look)
STORE: Script[int | Conflict] = Script("single_flight/store", _read_land)
CANCEL_LOAD: Script[int] = Script("single_flight/cancel_load", whole_number)
DELETE: Script[int] = Script("single_flight/delete", whole_number)
INVALIDATE: Script[int | Conflict] = Script("single_flight/invalidate", _read_fence)


# Keys


def entry_spec(
    prefix: str,
    group: str | bytes,
    key: str | bytes = b"",
    *,
    lease: float,
    timeout: float | None = None,
    max_hold: float | None = None,
    tries: int = 1,
    max_size: int = MAX_SIZE,
    keeps: bool = False,
) -> EntrySpec:
    """The key ``key`` of a group, such as a cache; without: a group of its own. ``prefix``: such as "hf:cache:". All keys of a
    group are in one slot of a Cluster. ``lease``: seconds until a load counts as crashed; ``max_hold``: until it is renewed no
    more; ``tries``, ``max_size``, ``keeps``: see `EntrySpec`. Raises ConfigError."""
    base = start(prefix) + b"{" + encoded(group, "name") + b"}:"
    own = b":" + encoded(key, "key") if key else b""
    spec = Spec(
        name=key.decode(errors="backslashreplace") if isinstance(key, bytes) else key,
        keys=(base + b"load" + own, base + b"state", base + b"floors"),
        ttl=lease,
        renew=True,
        max_hold=max_hold,
        timeout=answer_within(lease) if timeout is None else timeout,
    )
    return EntrySpec(
        spec, base + b"value" + own, base + b"fresh" + own, base + b"floor", base + b"waiters" + own, tries, max_size, keeps
    )


def marks(tags: Iterable[str]) -> list[bytes]:
    return [re.sub(rb"[\x00- ]", lambda found: b"%%%02X" % found[0][0], encoded(tag, "tag")) for tag in tags]
