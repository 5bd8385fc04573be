"""Single flight: of all who want the value of a key, in all processes, one loads it, and the others are told when it is there.

A key has perhaps a value, perhaps somebody who loads it, and perhaps listeners. `look` answers with the value, or grants the
load, or waits to be told; who was granted it lets the load end with `land` or `abort`. The load's lease is an ordinary lock
record, which the keeper renews; `drop` takes it away, so that what is loaded meanwhile cannot land: the lease of R. Nishtala et
al., "Scaling Memcache at Facebook" (NSDI 2013). Whoever calls these has to end a `Load`, whatever happens in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from holdfast._core.attempt import Attempt, Grant, Spec
from holdfast._core.renewing import Tenure


@dataclass(frozen=True)
class Site:
    """A key, as these operations see it. Made by `site`; may be kept, and shared by threads."""

    spec: Spec
    """The lock record of its load: its keys are load, state, floors; state and floors are all keys' of one group."""
    value: bytes
    """Key of the value on the server."""
    waiters: bytes
    """Key of its listeners."""


class Record(NamedTuple):
    """A value that was stored."""

    kind: str
    """What the caller made of it when it was stored: a word of small letters, such as "v" or "error"."""
    data: bytes
    fence: int
    """Of the load that stored it."""
    left: float
    """Seconds until its time is over; negative: it is stale for so long."""


class Found(NamedTuple):
    """There is a value, and nothing for the caller to do."""

    record: Record
    stale: bool
    """Its time is over; somebody else loads a new one."""


class Loading(NamedTuple):
    """Somebody else loads it, and `Wish.wait` is over."""

    process: str
    """Public id of his process, for `describe`."""
    since: float
    """Seconds since the newest load of the group began: his, where a group has one key."""
    remaining: float | None
    """Seconds until his lease ends, if it is not renewed; None: it has no end, and is none of ours."""


class Absent(NamedTuple):
    """There is no value, and `Wish.load` was False."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a caller wants."""

    wait: float | None = None
    """Seconds to wait for somebody else's load; None: for ever; 0: not at all."""
    stale: float = 0.0
    """Seconds for which a value will do whose time is over, while somebody loads a new one."""
    early: int = 0
    """How early to load before the time is over: ``-1000 * beta * log(u)``, with a new ``u`` from (0, 1] each time (XFetch)."""
    load: bool = True
    """Load it oneself, if nobody does."""


class Load:
    """The caller is to load the value: `land` or `abort` ends it. ``lost``: why the value will not be stored, once known."""

    __slots__ = ("__weakref__", "_tenure", "grant", "record", "site")

    def __init__(self, site: Site, grant: Grant, record: Record | None) -> None:
        self.site = site
        self.grant = grant
        self.record = record
        """What there is meanwhile: a value whose time is over, or nearly."""
        self._tenure = Tenure(grant)

    @property
    def fence(self) -> int:
        """Of this load: greater than those of all loads before it in its group."""
        return self.grant.fence

    @property
    def lost(self) -> str:
        """Why its lease is lost; empty while it is not."""
        return self._tenure.lost

    def remaining(self, now: float) -> float:
        """Seconds for which the lease may be relied on, at local time ``now``."""
        return self._tenure.remaining(now)

    def notice_loss(self) -> None:
        """Called once, by the keeper, when the lease is lost."""


def site(prefix: str, group: str | bytes, key: str | bytes, *, lease: float, timeout: float) -> Site:
    """The key ``key`` of a group (a cache; for `once` a key is a group of its own, with an empty ``key``). ``prefix``: as
    "hf:cache:". ``lease``: seconds until a load counts as crashed. Raises ConfigError."""
    raise NotImplementedError


async def look(where: Site, wish: Wish) -> Found | Load | Loading | Absent:
    """The value, or the load, or who else loads it when `Wish.wait` is over. Raises WireError when the server cannot be had,
    KeyConflict when something else is where it should be. What was begun and not answered is left behind for nobody."""
    raise NotImplementedError


async def land(
    load: Load,
    kind: str,
    data: bytes,
    *,
    ttl: float,
    stale: float = 0.0,
    tags: Iterable[str] = (),
    cost: float = 0.0,
) -> bool:
    """Store what was loaded, and tell all who wait. ``ttl``: its time, in seconds; ``stale``: how long it is kept beyond that;
    ``cost``: seconds that the load took. False if it may not be stored: the lease was lost, or the key or one of the tags was
    invalidated meanwhile. Raises WireError, and then nobody knows. Either way the load is over."""
    raise NotImplementedError


async def abort(load: Load) -> None:
    """Nothing was loaded: the next one does. The load is over. Raises no WireError: a lease ends by itself."""
    raise NotImplementedError


async def store(where: Site, kind: str, data: bytes, *, ttl: float, stale: float = 0.0, tags: Iterable[str] = ()) -> int:
    """Store a value whatever there is; a load that is under way cannot land any more. The fence of the value. Raises
    WireError."""
    raise NotImplementedError


async def drop(where: Site) -> bool:
    """Delete the value; a load that is under way cannot land any more. True if there was a value. Raises WireError."""
    raise NotImplementedError


async def invalidate(where: Site, tags: Iterable[str] = ()) -> None:
    """All values of the group with one of these tags are void, and so is what is being loaded now; without tags: all values.
    ``where``: any key of the group. Raises WireError."""
    raise NotImplementedError


_ = Attempt
