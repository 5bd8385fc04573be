"""The keys of a cached value, its record on the server, and the results of a lookup, for `_core.single_flight.flight`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from holdfast._core.lock.spec import Spec, answer_within
from holdfast._core.names import encoded, start
from holdfast._core.requests import Command, Conflict, in_the_way
from holdfast._core.struct import cached_property
from holdfast._lua import Script, codes, whole_number

MAX_SIZE = 16 * 1024 * 1024
"""Maximum size of a cached value in bytes, unless the user passes another one."""

HEAD = 4096
"""Maximum size, in bytes, of the first line of a stored value, which contains its kind, fence and tags."""

MARK = "mark"
"""Kind of a small record that replaces a value which the server has refused.

It is stored even if the server's memory is full.
"""

MAX_TAGS = 4000
"""Maximum size, in bytes, of all tags of one value. They are in its first line, of which scripts read at most HEAD bytes."""

LARGE = 1024 * 1024
"""Size, in bytes, of an argument that every server accepts.

A server closes the connection after an argument that is larger than its setting ``proto-max-bulk-len``.
"""


@dataclass(frozen=True)
class EntrySpec:
    """The keys of a cached value on the server, and its limits. `entry_spec` makes the object.

    It never changes, so threads share it.
    """

    spec: Spec
    """Specification of the lock that a caller holds while it loads the value.

    Its three keys are the lock itself, the state of all values of the cache, and a table with a fence for each invalidated tag.
    A value with such a tag is invalid if the value's fence is not higher than the tag's fence.
    """
    value: bytes
    fresh: bytes
    invalidated_before: bytes
    waiters: bytes
    """Key of the subscriptions of callers that wait for this value; `_lua/single_flight/_values.lua` describes all keys."""
    tries: int
    """Number of timeouts (``spec.timeout``) after which a server that does not reply counts as unreachable."""
    max_size: int
    """Maximum size of a stored value, in bytes. A larger value counts as not readable (see `keeps`)."""
    keeps: bool
    """True if a lookup fails when the stored value is not readable. If the value is too large, the error is TooLong.

    False if such a value counts as missing, so that the caller loads a new one.
    """

    @property
    def outage_budget(self) -> float:
        """Seconds for which a request is repeated while the server does not reply."""
        return self.tries * self.spec.timeout

    @cached_property
    def reading(self) -> Command:
        """The plain command that reads a value. It costs less than a script, but shows only fresh values (see `fresh`)."""
        keys = (
            (self.value, self.fresh) if self.value.endswith(b"}:value") else (self.value, self.fresh, self.invalidated_before)
        )
        return Command(("MGET", *keys), self.spec.timeout)


UNASKED = float("inf")


@dataclass(slots=True)
class StoredValue:
    """A value as stored on the server, with its kind and fence."""

    kind: str
    """Kind of the value, chosen by the caller that stored it: a word in lower case, such as "v" or "error"."""
    data: bytes
    fence: int
    """Fence of the load that has stored the value. Loads of the same cache that have higher fences began later."""
    left: float
    """Seconds until the value becomes stale; negative: seconds since then; `UNASKED`: it is fresh, but for an unknown time."""


class FoundValue(NamedTuple):
    """Result of a lookup: a stored value, so that the caller does not have to load it."""

    record: StoredValue
    stale: bool
    """True if the value is not fresh any more. Another caller loads a new one, or this caller must not load."""
    waited: bool = False
    """True if the caller has waited for the load of this value by another caller."""


class Loading(NamedTuple):
    """Result of a lookup: another caller still loads the value, although `LookupPolicy.wait` seconds have passed."""

    remaining: float | None
    """Seconds until the other caller's lease expires, unless it is renewed; None: never, because another program wrote it."""
    since: float
    """Seconds since the start of the latest load of any key in the same cache; for `once`, of the latest load of this key."""
    process: str
    """Public id of the process that loads the value; empty if it is unknown."""


class Absent(NamedTuple):
    """Result of a lookup: there is no value, and the caller does not want to load one (`LookupPolicy.load` is False)."""


class Oversize(NamedTuple):
    """The server's reply that the stored value has ``size`` bytes, more than `EntrySpec.max_size`."""

    size: int


class LoadGranted(NamedTuple):
    fence: int
    record: StoredValue | None


class LoadRevoked(NamedTuple):
    """The server's reply that the caller's token was revoked, so that the caller must not load the value under this token."""


@dataclass(frozen=True, slots=True)
class LookupPolicy:
    """The options of one lookup of a cached value."""

    wait: float | None = None
    """Maximum seconds to wait while another caller loads the value; None: without limit; 0: not at all."""
    stale: float = 0.0
    """An expired value is accepted for this many seconds, while another caller loads a new one, or if `load` is False."""
    early: int = 0
    """The caller loads a new value this long before the old one becomes stale; 0: a fresh value is never replaced.

    The unit is a thousandth of the duration of the last load. For XFetch, pass ``-1000 * beta * log(u)`` with a new random
    ``u`` from (0, 1] for each lookup.
    """
    load: bool = True
    """True if this lookup may load the value, when it is missing and no other caller loads it."""
    fast_read: bool = True
    """True: try a plain command before the script, because it costs less. False: the caller has just tried the command."""


# Replies of the scripts

Seen = FoundValue | Loading | Absent | Oversize | LoadGranted | LoadRevoked


def _record(raw: bytes, left: float) -> StoredValue:
    head, _, data = raw.partition(b"\n")
    _, kind, fence, _ = head.split(b" ", 3)
    return StoredValue(kind.decode(), data, int(fence), left)


def _whole(text: bytes) -> int:
    """Return the number in a text, by the rules of the Lua scripts. Raises ValueError if the text is not a number."""
    if len(text) > 16 or not text.isdigit():
        raise ValueError(text[:16])
    return int(text)


def fresh(values: list[bytes | None]) -> StoredValue | None:
    """Return the value in the reply to `EntrySpec.reading`; None if the reply does not show that it is fresh."""
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
        return StoredValue(kind.decode(), data, number, UNASKED)
    except ValueError:
        return None  # written by another program


def _read_get_or_lease(raw: object) -> Seen | Conflict:
    match raw:
        case [1 | codes.STALE as what, bytes(value), int(left)]:
            return FoundValue(_record(value, left / 1000), what == codes.STALE)
        case [codes.LEASED, int(fence), bytes(value), int(left)]:
            return LoadGranted(fence, _record(value, left / 1000) if value else None)
        case [0, int(left), int(since), bytes(process)]:
            return Loading(None if left == -1 else max(0, left) / 1000, since / 1000, process.decode())
        case [codes.ABSENT]:
            return Absent()
        case [codes.TOO_LONG, int(size)]:
            return Oversize(size)
        case _:
            return LoadRevoked() if raw == [codes.NO_CLAIM] else in_the_way(raw)


def _read_store(raw: object) -> int | Conflict:
    """Return the fence of the stored value, or Conflict if a key holds other data.

    Return 0 if nothing was stored, because the load was invalidated or had lost its lease.
    """
    match raw:
        case [1, int(fence)]:
            return fence
        case [0 | codes.INVALIDATED]:
            return 0
        case _:
            return in_the_way(raw)


def _read_take_over(raw: object) -> int | Conflict:
    """Return the fence of the load; 0 if the token was revoked, so that the request was a late copy."""
    match raw:
        case [codes.LEASED, int(fence)]:
            return fence
        case _:
            return 0 if raw == [codes.NO_CLAIM] else in_the_way(raw)


def _read_fence(raw: object) -> int | Conflict:
    match raw:
        case [int(number)]:
            return number
        case _:
            return in_the_way(raw)


GET_OR_LEASE: Script[Seen | Conflict] = Script("single_flight/get_or_lease", _read_get_or_lease)
TAKE_OVER: Script[int | Conflict] = Script("single_flight/take_over", _read_take_over)
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
    """Return the keys and limits of one key in a group of keys, such as a cache. Raises ConfigError if a name is not valid.

    Without ``key``, the group has one key only. In a Cluster, all keys of a group are in one slot. ``prefix``: key prefix, such
    as "hf:cache:". ``lease``: seconds after which a load ends unless it is renewed; it is not renewed if its process has
    crashed. ``timeout``: seconds to wait for a reply (None: computed from ``lease``). ``max_hold``: seconds after which a load
    is no longer renewed (None: without limit). ``tries``, ``max_size``, ``keeps``: see the fields of `EntrySpec`.
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
