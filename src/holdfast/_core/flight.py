"""Single flight: of all who want the value of a key, in all processes, one loads it, and the others are told when it is there.

A key has perhaps a value, perhaps somebody who loads it, and perhaps listeners. `look` answers with the value, or grants the
load, or waits to be told; who was granted it ends it with `land` or `abort`. The load's lease is an ordinary lock record, which
the keeper renews; its fence says what was begun after what. `drop` takes the lease away, so that what is being loaded cannot
land: the lease of R. Nishtala et al., "Scaling Memcache at Facebook" (NSDI 2013). What was begun before a deletion and comes
all the same is refused by its fence. All is decided by the server's clock, in the scripts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast._core.acquire import KeyConflict
from holdfast._core.attempt import Attempt, Grant, Spec, answer_within, margin, milliseconds
from holdfast._core.hearing import Listener, hear, listen
from holdfast._core.hearing import Withdraw as Unlisten
from holdfast._core.names import encoded, start
from holdfast._core.renewing import Tenure
from holdfast._core.requests import Answer, Command, Conflict, Draw, NotSent, Now, Refused, Run, Sleep, Unknown, WireError
from holdfast._core.tending import Leave, Send, Tend
from holdfast._lua import Script, whole_number

AGAIN = 0.01
"""Seconds after which is asked again what was not answered."""

SPAN = 30.0
"""Seconds after which a waiter looks again, at the latest: a lease without an end is none of ours."""


@dataclass(frozen=True)
class Site:
    """A key, as these operations see it. Made by `site`; may be kept, and shared by threads."""

    spec: Spec
    """The lock record of its load: its keys are load, state, floors; state and floors are those of all keys of its group."""
    value: bytes
    fresh: bytes
    floor: bytes
    waiters: bytes
    """Further keys on the server, see `_lua/_flight.lua`."""


class Record(NamedTuple):
    """A value that was stored."""

    kind: str
    """What whoever stored it made of it: a word of small letters, such as "v" or "error"."""
    data: bytes
    fence: int
    """Of the load that stored it."""
    left: float
    """Seconds for which it is fresh; negative: it is stale since then. Infinite, where nobody has asked."""


class Found(NamedTuple):
    """There is a value, and nothing for the caller to do."""

    record: Record
    stale: bool
    """Its time is over, and somebody else loads a new one."""


class Loading(NamedTuple):
    """Somebody else loads it, and `Wish.wait` is over."""

    remaining: float | None
    """Seconds until his lease ends, if it is not renewed; None: it has no end, and is none of ours."""
    since: float
    """Seconds since the newest load of the group began: his, where a group has one key."""
    process: str
    """Public id of his process; empty: unknown."""


class Absent(NamedTuple):
    """There is no value, and `Wish.load` was False."""


class _Granted(NamedTuple):
    fence: int
    record: Record | None


class _Buried(NamedTuple):
    """The token was declared dead."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a caller wants."""

    wait: float | None = None
    """Seconds to wait for somebody else's load; None: for ever; 0: not at all."""
    stale: float = 0.0
    """Seconds for which a value will do whose time is over, while somebody else loads a new one."""
    early: int = 0
    """How early to load before the time is over: ``-1000 * beta * log(u)``, with a new ``u`` from (0, 1] each time (XFetch)."""
    load: bool = True
    """Load it oneself, if nobody does."""


class _Charter(Tenure):
    """The lease of a load: given back otherwise than a lock."""

    __slots__ = ("site",)

    def __init__(self, site: Site, grant: Grant) -> None:
        super().__init__(grant)
        self.site = site

    def giving_back(self, *, bury: bool, timeout: float) -> Run[int]:
        return _abortion(self.site, self.token, bury=bury, timeout=timeout)


class Load:
    """The caller is to load the value: `land` or `abort` ends it. If nobody refers to it any more, its lease is given back."""

    __slots__ = ("__weakref__", "fence", "on_lost", "record", "site", "tenure")

    def __init__(self, where: Site, grant: Grant, record: Record | None) -> None:
        self.site = where
        self.fence = grant.fence
        """Greater than those of all loads of the group before it."""
        self.record = record
        """What there is meanwhile: a value whose time is over, or nearly."""
        self.tenure = _Charter(where, grant)
        self.on_lost: Callable[[Load], object] | None = None
        """Called with this, by the keeper, when the lease is lost: the value will not be stored."""

    @property
    def lost(self) -> str:
        """Why its lease is lost; empty while it is not known to be."""
        return self.tenure.lost

    def remaining(self, now: float) -> float:
        """Seconds for which the lease may be relied on, at local time ``now``."""
        return self.tenure.remaining(now)

    def notice_loss(self) -> None:
        if self.on_lost is not None:
            self.on_lost(self)


# What the scripts answer

_Seen = Found | Loading | Absent | _Granted | _Buried


def _record(raw: bytes, left: float) -> Record:
    head, _, data = raw.partition(b"\n")
    _, kind, fence, _ = head.split(b" ", 3)
    return Record(kind.decode(), data, int(fence), left)


def _refusal(raw: object) -> Conflict:
    match raw:
        case [-2, bytes(key), bytes(kind)]:
            return Conflict(f"key {key.decode(errors='backslashreplace')!r} holds a {kind.decode()} of somebody else's")
        case [-3, bytes(version)]:
            return Conflict(f"it has format {version.decode(errors='replace')!r}, this release knows format 1")
        case _:
            return Conflict(f"unexpected answer {raw!r}")


def _read_look(raw: object) -> _Seen | Conflict:
    match raw:
        case [1 | 2 as what, bytes(value), int(left)]:
            return Found(_record(value, left / 1000), what == 2)
        case [3, int(fence), bytes(value), int(left)]:
            return _Granted(fence, _record(value, left / 1000) if value else None)
        case [0, int(left), int(since), bytes(process)]:
            return Loading(None if left == -1 else max(0, left) / 1000, since / 1000, process.decode())
        case [4]:
            return Absent()
        case _:
            return _Buried() if raw == [-1] else _refusal(raw)


def _read_land(raw: object) -> int | Conflict:
    """The fence under which it is stored; 0: it is not."""
    match raw:
        case [1, int(fence)]:
            return fence
        case [0 | -1]:
            return 0
        case _:
            return _refusal(raw)


def _read_number(raw: object) -> int | Conflict:
    match raw:
        case [int(number)]:
            return number
        case _:
            return _refusal(raw)


LOOK: Script[_Seen | Conflict] = Script("look", _read_look)
LAND: Script[int | Conflict] = Script("land", _read_land)
ABORT: Script[int] = Script("abort", whole_number)
DROP: Script[int | Conflict] = Script("drop", _read_number)
INVALIDATE: Script[int | Conflict] = Script("invalidate", _read_number)


# Keys


def site(
    prefix: str,
    group: str | bytes,
    key: str | bytes = b"",
    *,
    lease: float,
    timeout: float | None = None,
    max_load: float | None = None,
) -> Site:
    """The key ``key`` of a group, such as a cache; without: a group of its own. ``prefix``: such as "hf:cache:". All keys of a
    group are in one slot of a Cluster. ``lease``: seconds until a load counts as crashed; ``max_load``: until it is renewed no
    more. Raises ConfigError."""
    base = start(prefix) + b"{" + encoded(group, "name") + b"}:"
    own = b":" + encoded(key, "key") if key else b""
    spec = Spec(
        name=key.decode(errors="backslashreplace") if isinstance(key, bytes) else key,
        keys=(base + b"load" + own, base + b"state", base + b"floors"),
        ttl=lease,
        renew=True,
        max_hold=max_load,
        timeout=answer_within(lease) if timeout is None else timeout,
    )
    return Site(spec, base + b"value" + own, base + b"fresh" + own, base + b"floor", base + b"waiters" + own)


def _tags(tags: Iterable[str]) -> list[bytes]:
    return [re.sub(rb"[\x00- ]", lambda found: b"%%%02X" % found[0][0], encoded(tag, "tag")) for tag in tags]


# Asking


async def _ask(call: Run[Any], began: float, attempt: Attempt | None = None) -> Answer[Any]:
    """Ask for something that does no harm when it is done twice, until there is an answer or the time for one, from local time
    ``began`` on, is over. An absent server is an error at once. ``attempt``: what is in doubt by an answer that got lost.
    Raises WireError and KeyConflict."""
    while True:
        doubt = attempt.doubt if attempt is not None else False
        try:
            if attempt is not None:
                attempt.doubt = attempt.pending = True  # and ever after, if this is interrupted
            answer = await call
        except WireError as error:
            if attempt is not None:
                attempt.doubt = doubt or isinstance(error, Unknown)
            over = await Now() + AGAIN >= began + call.timeout
            if over or isinstance(error, NotSent) or (isinstance(error, Refused) and not error.transient):
                raise
            await Sleep(AGAIN)
        else:
            if attempt is not None:
                attempt.doubt = doubt
            if isinstance(answer.value, Conflict):
                raise KeyConflict(answer.value.why)
            return answer


def _abortion(where: Site, token: str, *, bury: bool, timeout: float) -> Run[int]:
    keys = (*where.spec.keys, where.waiters)
    return Run(ABORT, keys, (token, "bury" if bury else "release"), timeout)


async def _give_up(where: Site, attempt: Attempt) -> None:
    """Leave no lease behind, without waiting for that. If a copy of our request may come later, it is refused."""
    if attempt.pending:
        attempt.pending = False
        timeout, lease = where.spec.timeout, where.spec.ttl
        await Send(_abortion(where, attempt.token, bury=attempt.doubt, timeout=timeout), await Now() + timeout + lease)


# Looking


async def look(where: Site, wish: Wish) -> Found | Load | Loading | Absent:
    """The value, or the load, or who else loads it when `Wish.wait` is over. Raises WireError when the server cannot be had,
    KeyConflict when something else is where it should be."""
    began = await Now()
    if not wish.early:
        record = await _glance(where, began)
        if record is not None:
            return Found(record, stale=False)
    if not wish.load:
        absent: Found | Absent = (await _ask(_looking(where, wish), began)).value
        return absent
    attempt = Attempt(where.spec, until=float("inf") if wish.wait is None else began + wish.wait)
    try:
        result = await _look_or_wait(where, wish, attempt, began)
    except BaseException:
        await _give_up(where, attempt)
        raise
    if not isinstance(result, Load):
        await _give_up(where, attempt)
    return result


async def _glance(where: Site, began: float) -> Record | None:
    """A fresh value, if a plain command shows one: nearly always, and a script takes half as long again."""
    try:
        answer = await Command(("MGET", where.value, where.fresh, where.floor), where.spec.timeout)
    except WireError as error:
        lasting = isinstance(error, NotSent) or (isinstance(error, Refused) and not error.transient)
        if lasting or await Now() + AGAIN >= began + where.spec.timeout:
            raise
        return None
    raw, fresh, floor = answer.value
    if raw is None or not raw.startswith(b"1 "):
        return None
    head, _, data = raw.partition(b"\n")
    _, kind, fence, _, kept, _ = head.split(b" ", 5)
    if (fresh is None and kept != b"0") or kind == b"gone" or (floor is not None and int(floor) >= int(fence)):
        return None
    return Record(kind.decode(), data, int(fence), float("inf"))


async def _look_or_wait(where: Site, wish: Wish, attempt: Attempt, now: float) -> Found | Load | Loading | Absent:
    listener: Listener | None = None
    assert attempt.until is not None
    try:
        while True:
            attempt.token = attempt.token or await Draw()
            looking = _looking(where, wish, attempt.token, listener.hope if listener is not None else "")
            answer = await _ask(looking, now, attempt)
            result = await _made_of(where, attempt, answer)
            if result is not None and not isinstance(result, Loading):
                return result
            if result is not None:
                if answer.came >= attempt.until:
                    return result
                left = SPAN if result.remaining is None else min(result.remaining + AGAIN, SPAN)
                until = min(attempt.until, answer.came + left)
                if listener is None:
                    listener = await listen(until)
                else:
                    await hear(listener, until)
            now = await Now()
    finally:
        if listener is not None:
            await Unlisten(listener)


def _looking(where: Site, wish: Wish, token: str = "", hope: str = "") -> Run[_Seen | Conflict]:
    spec = where.spec
    load, state, floors = spec.keys
    keys = (where.value, load, state, floors, where.floor, where.waiters)
    stale = milliseconds(wish.stale) if wish.stale > 0 else 0
    return Run(LOOK, keys, (token, spec.first_ms if token else 0, hope, stale, wish.early), spec.timeout)


async def _made_of(where: Site, attempt: Attempt, answer: Answer[_Seen]) -> Found | Load | Loading | Absent | None:
    """What an answer means to the caller; None: to look again, under another token."""
    seen = answer.value
    if isinstance(seen, _Granted):
        deadline = answer.sent + attempt.spec.first_ttl - margin(attempt.spec.first_ttl)
        if answer.came < deadline:
            load = Load(where, Grant(attempt, seen.fence, answer.came, deadline, last=seen.fence), seen.record)
            await Tend(load)
            return load
    elif not isinstance(seen, _Buried):
        # Nothing of ours is there, unless an earlier copy of the request is still under way.
        attempt.pending = attempt.doubt
        return seen
    await _give_up(where, attempt)  # the answer took so long that the lease is over
    attempt.token, attempt.doubt = "", False
    return None


# Ending a load


async def land(
    load: Load, kind: str, data: bytes, *, ttl: float, stale: float = 0.0, tags: Iterable[str] = (), cost: float = 0.0
) -> bool:
    """Store what was loaded, and tell all who wait. ``ttl``: seconds for which it is fresh; ``stale``: for which it is kept
    beyond that; ``cost``: that the load took. False if it may not be stored: the lease is lost, or the key, or one of the tags,
    was invalidated meanwhile. Raises WireError, and then nobody knows. The load is over, whatever comes of it."""
    tenure = load.tenure
    try:
        now = await Now()
        if tenure.remaining(now) > 0:
            token = (tenure.token, load.fence, "bury" if tenure.doubt else "release")
            answer = await _ask(_landing(load.site, token, _Cargo(kind, data, ttl, stale, tags, cost)), now)
            await _over(load)
            return bool(answer.value)
    except BaseException:
        await _over(load, leave=True)
        raise
    await _over(load, leave=True)
    return False


async def abort(load: Load) -> None:
    """Nothing was loaded: whoever looks next does. The load is over. Raises no WireError: a lease ends by itself."""
    await _over(load)
    tenure = load.tenure
    try:
        await tenure.giving_back(bury=tenure.doubt, timeout=tenure.spec.timeout)
    except WireError:
        await _over(load, leave=True)
    except BaseException:
        await _over(load, leave=True)
        raise


async def _over(load: Load, *, leave: bool = False) -> None:
    """``leave``: and its lease may still be there."""
    tenure = load.tenure
    tenure.end()
    await Leave(tenure)
    if leave:
        until = await Now() + tenure.spec.timeout + tenure.ttl
        await Send(tenure.giving_back(bury=True, timeout=tenure.spec.timeout), until)


class _Cargo(NamedTuple):
    """What is stored."""

    kind: str
    data: bytes
    ttl: float
    stale: float
    tags: Iterable[str]
    cost: float = 0.0


def _landing(where: Site, token: tuple[str, int, str], cargo: _Cargo) -> Run[int | Conflict]:
    load, state, floors = where.spec.keys
    keys = (where.value, where.fresh, load, state, floors, where.floor, where.waiters)
    kept = milliseconds(cargo.stale) if cargo.stale > 0 else 0
    marks = b"".join(b" " + tag for tag in _tags(cargo.tags))
    cost = max(0, int(cargo.cost * 1e6))
    return Run(LAND, keys, (*token, cargo.kind, milliseconds(cargo.ttl), kept, cost, marks, cargo.data), where.spec.timeout)


# Without a load


async def store(where: Site, kind: str, data: bytes, *, ttl: float, stale: float = 0.0, tags: Iterable[str] = ()) -> int:
    """Store a value, whatever there is; what is being loaded cannot land any more. The fence of the value. Raises WireError."""
    call = _landing(where, ("", 0, "release"), _Cargo(kind, data, ttl, stale, tags))
    return int((await _ask(call, await Now())).value)


async def drop(where: Site) -> bool:
    """Delete the value; a load that is under way cannot land any more. True if there was a value. Raises WireError."""
    load, state, floors = where.spec.keys
    call = Run(DROP, (where.value, where.fresh, load, state, floors, where.waiters), (), where.spec.timeout)
    return bool((await _ask(call, await Now())).value)


async def invalidate(where: Site, tags: Iterable[str] | None = None) -> None:
    """All values of the group with one of these tags are void, and so is what is being loaded now; None: all values. ``where``:
    any key of the group. Raises WireError."""
    _, state, floors = where.spec.keys
    marks = (b"",) if tags is None else tuple(_tags(tags))
    if marks:
        await _ask(Run(INVALIDATE, (state, floors, where.floor), marks, where.spec.timeout), await Now())
