"""The scripts for a lock on one server, and the types of their replies.

`_core.lock.records` describes a lock, `_core.lock.acquire` acquires it, `_core.lock.release` releases it, and
`_core.lock.renewal` renews it. Sources: redis.io "Distributed Locks with Redis" for the key (``SET key token NX PX``, compare
and delete); M. Kleppmann, "How to do distributed locking" (2016), for the fence.
"""

from __future__ import annotations

from typing import Any

from holdfast._core.requests import Conflict, Gone, in_the_way
from holdfast._core.struct import NamedTuple, Struct
from holdfast._lua import Script, codes, whole_number

PAUSED = "guard"
"""Value of `Busy.process` during the quarantine of a server, when no holder is known."""

UNKNOWN = "?"
"""Value of `Busy.process` if no server has named a holder. An empty value means a client of another lock library."""

CLAIM_WINDOW_S = 2.0
"""Seconds for which the server keeps a handed-over lock for its new holder, which has to claim it by a renewal or release.

Equal to `CLAIM` in `_lua/shared/_constants.lua`, which is in milliseconds.
"""

BLOCK = 33
"""Number of fences in one grant. One is the holder's, the others are for holders that get the lock inside the same process.

Equal to `BLOCK` in `_lua/shared/_grant.lua`.
"""

KEEP_S = 600.0
"""Minimum seconds for which the server keeps a lock's state and queue after the lock was last used."""

GRACE_S = 0.45
"""Seconds to go on waiting for a reply after ``wait`` has passed, because the reply may grant the lock."""


class Held(Struct):
    """The reply that the token of the request holds the lock."""

    __slots__ = __match_args__ = ("fence", "last")

    fence: int
    last: int

    def __init__(self, fence: int, last: int) -> None:
        self.fence = fence
        self.last = last
        """Highest of the fences that the holder's process may use; ``fence`` is the lowest."""


class Busy(NamedTuple):
    """The reply that another client holds the lock."""

    remaining: float | None
    """Seconds until the holder's key expires, unless it is renewed; None: the key has no expiry."""
    last_fence: int
    process: str
    """Public id of the holder's process; empty if the holder is a client of another lock library.

    It may also be `PAUSED` or `UNKNOWN`.
    """
    lingers: bool
    """True if the lock may linger. Its holder then keeps it after the release, and hands it over when another client asks for
    it."""

    @property
    def named(self) -> str:
        """Return the public id of the holder's process; empty if the holder is unknown, or is a client of another library."""
        return "" if self.process in {PAUSED, UNKNOWN} else self.process


NO_ANSWER = Busy(0.0, 0, UNKNOWN, lingers=False)
"""The Busy value that is used until a server has replied."""


class Revoked(NamedTuple):
    """The reply that the token of the request was revoked, so that it can never acquire the lock."""


Reply = Held | Busy | Revoked | Gone | Conflict


def read_reply(raw: object) -> Reply:
    """Return the meaning of one reply of the acquire or refresh script; the replies are listed in `_lua/lock/acquire.lua`."""
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
            return Conflict(f"its name is used by a {kind or 'lock'}; a name is for one kind of object", other_kind=True)
        case _:
            return in_the_way(raw, ", not a lock")


def read_acquire(raw: object) -> Reply:
    if isinstance(raw, list) and raw[0] == 1:
        return Held(raw[1], raw[2])  # first, because a pattern match costs as much as the rest of an acquire
    reply = read_reply(raw)
    return Revoked() if isinstance(reply, Gone) else reply


def read_refresh(raw: object) -> tuple[bool, list[Reply]]:
    assert isinstance(raw, list)
    return raw[0] == 1, [read_reply(answer) for answer in raw[1:]]


def read_list(raw: object) -> list[int]:
    assert isinstance(raw, list)
    return raw


class Scripts(NamedTuple):
    """The four scripts for one kind of lock (plain lock or permits)."""

    acquire: Script[Any]
    release: Script[int]
    refresh: Script[Any]
    renew: Script[list[int]]


ACQUIRE: Script[Reply] = Script("lock/acquire", read_acquire)
RELEASE: Script[int] = Script("lock/release", whole_number)
RENEW: Script[list[int]] = Script("lock/renew", read_list)
REFRESH: Script[tuple[bool, list[Reply]]] = Script("lock/refresh", read_refresh)


MUTEX = Scripts(ACQUIRE, RELEASE, REFRESH, RENEW)
