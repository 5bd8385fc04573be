"""Single flight: of all who want the value of a key, in all processes, one loads it, and the others are told when it is there.

A key has perhaps a value, perhaps somebody who loads it, and perhaps listeners. `look` answers with the value, or grants the
load, or waits to be told; who was granted it ends it with `land` or `abort`. The load's lease is an ordinary lock record, which
the keeper renews; its fence says what was begun after what. `drop` takes the lease away, so that what is being loaded cannot
land: the lease of R. Nishtala et al., "Scaling Memcache at Facebook" (NSDI 2013). A request that comes late all the same is
refused by its fence. All is decided by the server's clock, in the scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.records import Attempt, Grant, Tenure, margin, milliseconds
from holdfast._core.requests import (
    Answer,
    Conflict,
    Draw,
    Enroll,
    Leave,
    Meet,
    NotSent,
    Now,
    Refused,
    Run,
    Send,
    Sleep,
    Tend,
    Unknown,
    WireError,
    Withdraw,
)
from holdfast._core.single_flight.coalesce import Crowd, Failed, Member
from holdfast._core.single_flight.entry import (
    CANCEL_LOAD,
    DELETE,
    GET_OR_LEASE,
    HEAD,
    INVALIDATE,
    LARGE,
    MARK,
    STORE,
    Absent,
    Buried,
    Found,
    Granted,
    Loading,
    Oversize,
    Record,
    Seen,
    Site,
    Wish,
    fresh,
    marks,
    site,
)
from holdfast._core.subscription import hear
from holdfast._lua import codes

__all__ = [
    "MARK",
    "Absent",
    "Failed",
    "Found",
    "KeyConflict",
    "Load",
    "Loading",
    "Marked",
    "Record",
    "Site",
    "TooLong",
    "Wish",
    "abandon",
    "abort",
    "drop",
    "fresh",
    "invalidate",
    "land",
    "look",
    "site",
    "store",
]

AGAIN = 0.01
"""Seconds after which is asked again what was not answered."""

LAG = 1.0
"""Seconds after the leader of a crowd at which its others look for themselves."""

SPAN = 30.0
"""Seconds after which a waiter looks again, at the latest: a lease without an end is none of ours."""


class TooLong(KeyConflict):
    """There is a value, and it has more bytes than `Site.max_size`: ``size``."""

    def __init__(self, size: int) -> None:
        super().__init__(f"its value has {size:,} bytes on the server")
        self.size = size


class Marked(Exception):
    """The server has refused a value, and has stored the mark instead."""


class Charter(Tenure):
    """The lease of a load: given back otherwise than a lock."""

    __slots__ = ("site",)

    def __init__(self, site: Site, grant: Grant) -> None:
        super().__init__(grant)
        self.fence = 0  # another load of the key may begin while this one's result is on its way
        self.site = site

    def giving_back(self, *, bury: bool, timeout: float) -> Run[int]:
        return _abortion(self.site, self.token, bury=bury, timeout=timeout)


class Load:
    """The caller is to load the value: `land` or `abort` ends it. If nobody refers to it any more, its lease is given back."""

    __slots__ = ("__weakref__", "fence", "on_lost", "record", "site", "tenure", "waited")

    def __init__(self, where: Site, grant: Grant, record: Record | None) -> None:
        self.site = where
        self.fence = grant.fence
        """Greater than those of all loads of the group before it."""
        self.record = record
        """What there is meanwhile: a value whose time is over, or nearly."""
        self.waited = grant.attempt.waited
        """Its caller has waited before, for somebody else's load that came to nothing."""
        self.tenure = Charter(where, grant)
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


# Asking


async def _ask(where: Site, call: Run[Any], began: float, attempt: Attempt | None = None) -> Answer[Any]:
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
            over = await Now() + AGAIN >= began + where.patience
            if over or isinstance(error, NotSent) or (isinstance(error, Refused) and not error.transient):
                raise
            await Sleep(AGAIN)
        else:
            if attempt is not None:
                attempt.doubt = doubt
            if isinstance(answer.value, Conflict):
                raise KeyConflict(answer.value.why)
            if isinstance(answer.value, Oversize):
                raise TooLong(answer.value.size)
            return answer


def _abortion(where: Site, token: str, *, bury: bool, timeout: float) -> Run[int]:
    return _ending(where, (token, "bury" if bury else "release", 0, ""), timeout)


def _ending(where: Site, args: tuple[bytes | str | int, ...], timeout: float) -> Run[int]:
    return Run(CANCEL_LOAD, (*where.spec.keys, where.floor, where.waiters), args, timeout)


async def abandon(where: Site, attempt: Attempt) -> None:
    """A look was interrupted, or what it came to has not reached its caller: leave no lease behind, without waiting for that.
    If a copy of our request may come later, it is refused."""
    if attempt.pending:
        timeout, lease = where.spec.timeout, where.spec.ttl
        await Send(_abortion(where, attempt.token, bury=attempt.doubt, timeout=timeout), await Now() + timeout + lease)
        attempt.pending = False


# Looking


async def look(where: Site, wish: Wish, attempt: Attempt | None = None) -> Found | Load | Loading | Absent | Failed:
    """The value, or the load, or who else loads it when `Wish.wait` is over; or what a load of this process has failed with,
    that was waited for and that its loader shares (see `abort`). Raises WireError when the server cannot be had,
    KeyConflict when something else is where it should be. ``attempt``: a new one, for who may have to `abandon` it."""
    began = await Now()
    if wish.glance and not wish.early:
        record = await _glance(where, began)
        if record is not None:
            return Found(record, stale=False)
    if not wish.load:
        absent: Found | Absent = (await _ask(where, _looking(where, wish), began)).value
        return absent
    attempt = attempt or Attempt(where.spec)
    attempt.until = float("inf") if wish.wait is None else began + wish.wait
    try:
        result = await _look_or_wait(where, wish, attempt, began)
    except BaseException:
        await abandon(where, attempt)
        raise
    if not isinstance(result, Load):
        await abandon(where, attempt)
    return result._replace(waited=attempt.waited) if isinstance(result, Found) else result


async def _glance(where: Site, began: float) -> Record | None:
    """A fresh value, if a plain command shows one: nearly always, and a script takes half as long again."""
    try:
        call = where.reading
        answer = await call
    except WireError as error:
        lasting = isinstance(error, NotSent) or (isinstance(error, Refused) and not error.transient)
        if lasting or await Now() + AGAIN >= began + where.patience:
            raise
        return None
    return fresh(answer.value)


async def _look_or_wait(where: Site, wish: Wish, attempt: Attempt, now: float) -> Found | Load | Loading | Absent | Failed:
    me = Member(prefix=where.spec.prefix)
    assert attempt.until is not None
    try:
        while True:
            if me.leads and not me.hope:
                await _listen(me, min(attempt.until, now + SPAN))
            result, came = await _look_for_all(where, wish, attempt, now, me)
            if isinstance(result, Loading) and came < attempt.until:
                attempt.waited = True
                me.crowd = me.crowd or await Meet(where.value)
                told = await _wait_with(me.crowd, me, result, came, attempt.until)
                if told is not None:
                    return told
            elif isinstance(result, Load):
                return await _taken_up(result, me, attempt.until)
            elif result is not None:
                return result
            now = await Now()
    finally:
        if me.crowd is not None:
            me.crowd.leave(me)
        if me.hope:
            await Withdraw(me)


async def _look_for_all(
    where: Site, wish: Wish, attempt: Attempt, now: float, me: Member
) -> tuple[Found | Load | Loading | Absent | None, float]:
    """What `_made_of` says, and when the answer came; the others of the crowd are told, if this one leads them."""
    attempt.token = attempt.token or await Draw()
    crowd = me.crowd
    others = crowd.members if crowd is not None and me.leads else ()
    try:
        answer = await _ask(where, _looking(where, wish, attempt.token, me.hope), now, attempt)
    except WireError as error:
        if crowd is not None:
            crowd.tell(others, error)  # or each of them would wait for as long, one after the other
        raise
    result = await _made_of(where, attempt, answer)
    if crowd is not None and isinstance(result, Found) and not result.stale:
        crowd.tell(others, result)
    return result, answer.came


async def _listen(me: Member, until: float) -> None:
    me.hope = await Draw()
    await Enroll(me, until)
    me.hints.clear()


async def _wait_with(crowd: Crowd, me: Member, loading: Loading, now: float, until: float) -> Found | Failed | None:
    """Wait with all of this process, until there may be something to look at.

    Return the value that one of them has found meanwhile.
    """
    left = SPAN if loading.remaining is None else min(loading.remaining + AGAIN, SPAN)
    crowd.join(me)
    if me.leads:
        if me.hope:  # else it is not listed, and has to look once more
            await hear(me, min(until, now + left))
    else:
        await hear(me, min(until, now + left + LAG))
    return await _verdict(me, until)


async def _taken_up(load: Load, me: Member, until: float) -> Found | Load | Failed:
    """The load that its own look was granted: what others could not reach is no trouble of this one's."""
    try:
        told = await _told(me, until)
    except BaseException:
        await _over(load)  # and `abandon` gives its lease back
        raise
    if isinstance(told, Found | Failed):
        await abort(load)  # granted just when the load ended whose failure it gets
        return told
    return load


async def _verdict(me: Member, until: float) -> Found | Failed | None:
    """As `_told`. Raises what the others have raised."""
    told = await _told(me, until)
    if isinstance(told, WireError):
        raise told
    return told


async def _told(me: Member, until: float) -> Found | Failed | WireError | None:
    """Return the answer that others of this process left for this one; where it is held, if that is known."""
    while me.held:
        me.overdue = True
        if me.held:  # still: else nobody would wake it any more
            await hear(me, until)
        if me.held and await Now() >= until:
            break
    me.overdue = False
    found: Found | Failed | WireError | None = me.found
    return found


def _looking(where: Site, wish: Wish, token: str = "", hope: str = "") -> Run[Seen | Conflict]:
    spec = where.spec
    load, state, floors = spec.keys
    keys = (where.value, load, state, floors, where.floor, where.waiters)
    stale = milliseconds(wish.stale) if wish.stale > 0 else 0
    unread = "keep" if where.keeps else "void"
    args = (token, spec.first_ms if token else 0, hope, stale, wish.early, where.max_size + HEAD, unread)
    return Run(GET_OR_LEASE, keys, args, spec.timeout)


async def _made_of(where: Site, attempt: Attempt, answer: Answer[Seen]) -> Found | Load | Loading | Absent | None:
    """Return the meaning of an answer to the caller; None: look again, under another token."""
    seen = answer.value
    if isinstance(seen, Granted):
        deadline = answer.sent + attempt.spec.first_ttl - margin(attempt.spec.first_ttl)
        if answer.came < deadline:
            load = Load(where, Grant(attempt, seen.fence, answer.came, deadline, last=seen.fence), seen.record)
            await Tend(load)
            return load
    elif not isinstance(seen, Buried):
        assert not isinstance(seen, Oversize)  # `_ask` has raised that
        # Nothing of ours is there, unless an earlier copy of the request is still under way.
        attempt.pending = attempt.doubt
        return seen
    await abandon(where, attempt)  # the answer took so long that the lease is over
    attempt.token, attempt.doubt = "", False
    return None


# Ending a load


async def land(
    load: Load,
    kind: str,
    data: bytes,
    *,
    ttl: float,
    stale: float = 0.0,
    tags: Iterable[str] = (),
    cost: float = 0.0,
    mark: bytes | None = None,
) -> bool:
    """Store what was loaded, and tell all who wait. ``ttl``: seconds for which it is fresh; ``stale``: for which it is kept
    beyond that; ``cost``: that the load took. False if it may not be stored: the lease is lost, or the key, or one of the tags,
    was invalidated meanwhile. ``mark``: is stored, as of kind `MARK`, where the server refuses the data; raises Marked then.
    Raises WireError, and then nobody knows, and the keeper goes on. The load is over anyhow."""
    tenure, large = load.tenure, len(data) > LARGE
    token = (tenure.token, load.fence, "bury" if tenure.doubt else "release")
    landing = _landing(load.site, token, _Cargo(kind, data, ttl, stale, tags, cost))
    refused: WireError | None = None
    try:
        now = await Now()
        if tenure.remaining(now) > 0:
            try:
                # Once, if it is large: what the server closes the connection for does not get better by repetition.
                answer = await _ask(load.site, landing, now - load.site.patience if large else now)
            except WireError as error:
                if mark is None or not ((isinstance(error, Refused) and not error.transient) or large):
                    raise
                refused, landing = error, _landing(load.site, token, _Cargo(MARK, mark, ttl, stale, tags, cost))
                answer = await _ask(load.site, landing, await Now())
            await _over(load)
            if refused is not None and answer.value:
                raise Marked(str(refused)) from refused
            return bool(answer.value)
    except Marked:
        raise
    except BaseException as error:
        # A large value is not left to the keeper: a server that closes its connection would end the renewals on it.
        hope = (isinstance(error, NotSent | Unknown) or (isinstance(error, Refused) and error.transient)) and (
            not large or refused is not None
        )
        await _over(load, leave=not hope)
        if hope:  # it has been loaded, and may be stored yet
            await Send(landing, tenure.deadline)
        raise
    await _over(load, leave=True)
    return False


async def abort(load: Load, failure: Exception | None = None, tags: Iterable[str] = ()) -> None:
    """Nothing was loaded: whoever looks next does. The load is over. Raises no WireError: a lease ends by itself.

    ``failure``: is shared with all of this process who wait for this load now, unless the lease is lost, or the key or one of
    ``tags`` was invalidated since the load began. Then they may have come after that, and what is true now may not fail."""
    tenure, crowd, shared = load.tenure, None, None
    held: list[Member] = []
    try:
        await _over(load)
        if failure is not None:
            crowd = await Meet(load.site.value)
            crowd.hold(held)
        marked = b"".join(b" " + tag for tag in marks(tags))
        how, fence = "bury" if tenure.doubt else "release", load.fence if held else 0
        call = _ending(load.site, (tenure.token, how, fence, marked), tenure.spec.timeout)
        answer = await call
        if failure is not None and answer.value == codes.STILL_VALID:
            shared = Failed(failure)
    except WireError:
        await _over(load, leave=True)
    except BaseException:
        await _over(load, leave=True)
        raise
    finally:
        if crowd is not None:
            crowd.settle(held, shared)


async def _over(load: Load, *, leave: bool = False) -> None:
    """``leave``: and its lease may still be there."""
    tenure = load.tenure
    tenure.end()
    await Leave(tenure)
    if leave:
        until = await Now() + tenure.spec.timeout + tenure.ttl
        await Send(tenure.giving_back(bury=True, timeout=tenure.spec.timeout), until)


class _Cargo(NamedTuple):
    """The value to store."""

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
    tags = b"".join(b" " + tag for tag in marks(cargo.tags))
    cost = max(0, int(cargo.cost * 1e6))
    return Run(STORE, keys, (*token, cargo.kind, milliseconds(cargo.ttl), kept, cost, tags, cargo.data), where.spec.timeout)


# Without a load


async def store(where: Site, kind: str, data: bytes, *, ttl: float, stale: float = 0.0, tags: Iterable[str] = ()) -> int:
    """Store a value, whatever there is; what is being loaded cannot land any more. The fence of the value. Raises WireError."""
    attempt = Attempt(where.spec, await Draw())
    call = _landing(where, (attempt.token, 0, "release"), _Cargo(kind, data, ttl, stale, tags))
    try:
        answer = await _ask(where, call, await Now(), attempt)
        if attempt.doubt:  # a copy of the request may come later, and would store it again over something newer
            await _ask(where, _abortion(where, attempt.token, bury=True, timeout=where.spec.timeout), await Now())
    except BaseException:
        await abandon(where, attempt)
        raise
    return int(answer.value)


async def drop(where: Site) -> bool:
    """Delete the value; a load that is under way cannot land any more. True if there was a value. Raises WireError."""
    load, state, _ = where.spec.keys
    call = Run(DELETE, (where.value, where.fresh, load, state, where.waiters), (), where.spec.timeout)
    return bool((await _ask(where, call, await Now())).value)


async def invalidate(where: Site, tags: Iterable[str] | None = None) -> None:
    """All values of the group with one of these tags are void, and so is what is being loaded now; None: all values. ``where``:
    any key of the group. Raises WireError."""
    _, state, floors = where.spec.keys
    which = (b"",) if tags is None else tuple(marks(tags))
    if which:
        await _ask(where, Run(INVALIDATE, (state, floors, where.floor), which, where.spec.timeout), await Now())
