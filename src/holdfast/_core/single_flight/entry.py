"""The data of single flight (`flight`): keys of a cached value, its record on the server, replies of scripts."""

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
"""Default maximum size of a value, in bytes."""

HEAD = 4096
"""Maximum length of a value's first line (its metadata), in bytes."""

MARK = "mark"
"""Kind of the small record that is stored in place of a value that the server refused, even when its memory is full."""

MAX_TAGS = 4000
"""Maximum total length of one value's tags, in bytes: they are in its first line, of which scripts read only 4,096 bytes."""

LARGE = 1024 * 1024
"""Bytes that every server accepts in one argument; with more it may close the connection (``proto-max-bulk-len``)."""


@dataclass(frozen=True)
class EntrySpec:
    """A cached key's server keys and limits, as `flight` uses them, made by `entry_spec`; immutable, shared by threads."""

    spec: Spec
    """Specification of the lock that guards the key's load.

    Its three keys are the load's lease, the state of the whole group, and the fences up to which its tags are invalidated.
    """
    value: bytes
    fresh: bytes
    invalidated_before: bytes
    waiters: bytes
    """Key on the server of the subscriptions to this value; all keys are described in `_lua/single_flight/_values.lua`."""
    tries: int
    """Minimum number of tries before a server that does not answer counts as away."""
    max_size: int
    """Maximum size, in bytes, of a value that is read from the server; a longer one raises TooLong."""
    keeps: bool
    """True: an unreadable stored value is an error. False: it counts as missing, and is replaced by a new load."""

    @property
    def outage_budget(self) -> float:
        """Seconds within which the server must answer, retries included."""
        return self.tries * self.spec.timeout

    @cached_property
    def reading(self) -> Command:
        """The plain command that reads a value if it is fresh, to be interpreted by `fresh`; cheaper than a script."""
        keys = (
            (self.value, self.fresh) if self.value.endswith(b"}:value") else (self.value, self.fresh, self.invalidated_before)
        )
        return Command(("MGET", *keys), self.spec.timeout)


UNASKED = float("inf")


@dataclass(slots=True)
class Record:
    """A value that was stored on the server, with its metadata."""

    kind: str
    """Kind that the writer gave the value: a lower-case word such as "v" or "error"."""
    data: bytes
    fence: int
    """Fence of the load that stored the value."""
    left: float
    """Seconds for which the value is still fresh; negative: stale since then; `UNASKED`: not known."""


class Found(NamedTuple):
    """Result of a lookup: a stored value, which the caller does not have to load."""

    record: Record
    stale: bool
    """True if the value has expired and another caller loads a new one."""
    waited: bool = False
    """True if the caller has waited for another caller's load of this value."""


class Loading(NamedTuple):
    """Result of a lookup: another caller loads the value, and `LookupPolicy.wait` has passed."""

    remaining: float | None
    """Seconds until the loader's lease expires unless renewed; None if it has no expiry, so another program wrote it."""
    since: float
    """Seconds since the newest load of the group began; for a group of one key, since this load began."""
    process: str
    """Public id of the loader's process; empty if unknown."""


class Absent(NamedTuple):
    """Result of a lookup: there is no value, and the caller did not want to load one (`LookupPolicy.load`)."""


class Oversize(NamedTuple):
    """A reply of the server: the value is larger than `EntrySpec.max_size`."""

    size: int


class Granted(NamedTuple):
    fence: int
    record: Record | None


class Revoked(NamedTuple):
    """A reply of the server: the token was revoked, so it cannot load the value."""


@dataclass(frozen=True, slots=True)
class LookupPolicy:
    """The options of one lookup: how long to wait, whether a stale value is accepted, and whether to load."""

    wait: float | None = None
    """Seconds to wait for another caller's load; None: without limit; 0: not at all."""
    stale: float = 0.0
    """Seconds after its expiry for which a value is still accepted while another caller loads a new one."""
    early: int = 0
    """How early to load before expiry, in thousandths of the last load's duration.
    Pass ``-1000 * beta * log(u)`` with a new random ``u`` from (0, 1] each time (XFetch); 0: not early."""
    load: bool = True
    """True: load the value if it is missing and nobody loads it."""
    fast_read: bool = True
    """True: try a plain command before the script. False: the caller has just done so."""


# Answers of the scripts

Seen = Found | Loading | Absent | Oversize | Granted | Revoked


def _record(raw: bytes, left: float) -> Record:
    head, _, data = raw.partition(b"\n")
    _, kind, fence, _ = head.split(b" ", 3)
    return Record(kind.decode(), data, int(fence), left)


def _whole(text: bytes) -> int:
    """Return the number that a text stands for, by the scripts' rules. Raises ValueError if it is not a number."""
    if len(text) > 16 or not text.isdigit():
        raise ValueError(text[:16])
    return int(text)


def fresh(values: list[bytes | None]) -> Record | None:
    """Return the value in the reply to `EntrySpec.reading` if the value is certainly fresh, else None."""
    raw, mark, floor = values if len(values) == 3 else (*values, b"0")  # in a group of one key there is no floor key
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
        return None  # written by another program


def _read_get_or_lease(raw: object) -> Seen | Conflict:
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


def _read_store(raw: object) -> int | Conflict:
    """Return the fence under which the value was stored; 0 if the store was refused; Conflict if the keys hold other data."""
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


GET_OR_LEASE: Script[Seen | Conflict] = Script("single_flight/get_or_lease", _read_get_or_lease)
STORE: Script[int | Conflict] = Script("single_flight/store", _read_store)
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
    """Return the `EntrySpec` of one key in a group, such as a cache; without ``key``, the group itself is the one key.

    All keys of a group are in one slot of a Cluster. ``prefix``: key prefix, such as "hf:cache:". ``lease``: seconds after
    which an unrenewed load counts as crashed. ``max_hold``: seconds after which a load is not renewed any more. ``tries``,
    ``max_size``, ``keeps``: see `EntrySpec`. Raises ConfigError.
    """
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
