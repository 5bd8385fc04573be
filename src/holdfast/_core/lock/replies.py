"""A lock on one server: the scripts, and what they answer.

Its records are in `_core.lock.records`; `_core.lock.acquire` acquires it, `_core.lock.release` releases it, and
`_core.lock.renewal` renews it. Sources: redis.io "Distributed Locks with Redis" for the
record (``SET key token NX PX``, compare and delete); M. Kleppmann, "How to do distributed locking" (2016), for the fence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast._core.requests import Conflict, Gone, in_the_way
from holdfast._core.struct import Struct
from holdfast._lua import Script, codes, whole_number

PAUSED = "guard"
"""Stands for a holder's process during a quarantine: no holder is known, and there may be one."""

UNKNOWN = "?"
"""Stands for a holder's process where no server has named one. Empty is another fact: a client of another library holds it."""

CLAIM_WINDOW_S = 2.0
"""Seconds a waiter has to take up a lock that was handed to it. Part of the format: `CLAIM_WINDOW_S` of the scripts is the
same."""

BLOCK = 33
"""Fences of one grant: its own, and those with which this process may pass the lock on without a trip. `BLOCK` of the
scripts is the same."""

KEEP_S = 600.0
"""Seconds the side keys of a lock outlive its last use, at least."""

GRACE_S = 0.45
"""Seconds by which a question that is under way when ``wait`` ends may overrun it: its answer may still be yes."""


class Held(Struct):
    __slots__ = __match_args__ = ("fence", "last")

    def __init__(self, fence: int, last: int) -> None:
        self.fence = fence
        self.last = last
        """The numbers from ``fence`` up to this one are the holder's."""


class Busy(NamedTuple):
    remaining: float | None
    """Seconds until the holder's key expires; None: it never does."""
    last_fence: int
    process: str
    """Public id of the holder's process; empty for a client of another library; `PAUSED`; `UNKNOWN`."""
    lingers: bool
    """The holder may keep the lock for a while after use, and gives it back when asked."""

    @property
    def named(self) -> str:
        """The id of the holder's process; empty where there is none to be asked for."""
        return "" if self.process in {PAUSED, UNKNOWN} else self.process


NO_ANSWER = Busy(0.0, 0, UNKNOWN, lingers=False)
"""Before any server has said who holds it."""


class Revoked(NamedTuple):
    """The token was declared dead."""


Reply = Held | Busy | Revoked | Gone | Conflict


def read_reply(raw: object) -> Reply:
    """One answer of acquire or refresh, see `_lua/lock/acquire.lua`."""
    assert isinstance(raw, list)
    match raw:
        case [1, int(first), int(last)]:
            return Held(first, last)
        case [0, int(ms), int(last), bytes(process), int(lingers)]:
            return Busy(None if ms == -1 else max(0, ms) / 1000, last, process.decode(), lingers == 1)
        case [codes.NO_CLAIM]:
            return Gone()
        case [codes.OTHER_FORMAT, bytes(version)] if version.rpartition(b" ")[2] == b"1":
            kind = version.decode(errors="replace").rpartition(" ")[0]
            return Conflict(f"it is used as a {kind or 'lock'}; a name is of one kind", other_kind=True)
        case _:
            return in_the_way(raw, ", not a lock")


def read_acquire(raw: object) -> Reply:
    if isinstance(raw, list) and raw[0] == 1:
        return Held(raw[1], raw[2])  # the usual answer, and a pattern match costs as much as the rest of an acquire
    reply = read_reply(raw)
    return Revoked() if isinstance(reply, Gone) else reply


def read_refresh(raw: object) -> tuple[bool, list[Reply]]:
    assert isinstance(raw, list)
    return raw[0] == 1, [read_reply(answer) for answer in raw[1:]]


def read_list(raw: object) -> list[int]:
    assert isinstance(raw, list)
    return raw


class Scripts(NamedTuple):
    """The scripts for a lock: to acquire it, to release it, to keep a place in its queue, to renew its lease."""

    acquire: Script[Any]
    release: Script[int]
    refresh: Script[Any]
    renew: Script[list[int]]


ACQUIRE: Script[Reply] = Script("lock/acquire", read_acquire)
RELEASE: Script[int] = Script("lock/release", whole_number)
RENEW: Script[list[int]] = Script("lock/renew", read_list)
REFRESH: Script[tuple[bool, list[Reply]]] = Script("lock/refresh", read_refresh)


MUTEX = Scripts(ACQUIRE, RELEASE, REFRESH, RENEW)
