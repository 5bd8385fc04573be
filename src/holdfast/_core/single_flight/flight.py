"""Single flight. If callers in any processes want the same value, one of them loads it, and the others wait for it.

`get_or_lease` returns the value if there is one. Otherwise it grants the load to the first caller, and lets the others wait.
The caller that got the load ends it with `store_loaded` or `cancel_load`, which notifies the others. While it loads, it holds a
lease like that of a lock, which the keeper (background thread) renews. Each load has a fence, higher than that of every earlier
load.

If `delete` or `invalidate` is called during a load, the value of the load is not stored. `delete` revokes the lease of the
load, as in R. Nishtala et al., "Scaling Memcache at Facebook" (NSDI 2013). `invalidate` makes the fences of all earlier loads
invalid, so that the server refuses their late requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.owner import Owner
from holdfast._core.lock.records import Attempt, Grant, HeldLease
from holdfast._core.lock.spec import margin, milliseconds
from holdfast._core.requests import (
    Answer,
    Conflict,
    GetCoalescer,
    KeepAlive,
    NewToken,
    NotSent,
    Now,
    Refused,
    RunScript,
    SendUntilAnswered,
    Sleep,
    StopKeepAlive,
    Subscribe,
    Unknown,
    Unsubscribe,
    WireError,
)
from holdfast._core.single_flight.coalesce import CoalescedWaiter, Coalescer, Failed
from holdfast._core.single_flight.entry import (
    CANCEL_LOAD,
    DELETE,
    GET_OR_LEASE,
    HEAD,
    INVALIDATE,
    LARGE,
    MARK,
    STORE,
    TAKE_OVER,
    Absent,
    EntrySpec,
    FoundValue,
    LoadGranted,
    Loading,
    LoadRevoked,
    LookupPolicy,
    Oversize,
    Seen,
    StoredValue,
    entry_spec,
    fresh,
    marks,
)
from holdfast._core.subscription import await_notice
from holdfast._lua import codes

__all__ = [
    "MARK",
    "Absent",
    "EntrySpec",
    "Failed",
    "FoundValue",
    "KeyConflict",
    "Load",
    "Loading",
    "LookupPolicy",
    "Marked",
    "StoredValue",
    "TooLong",
    "abandon",
    "cancel_load",
    "delete",
    "entry_spec",
    "fresh",
    "get_or_lease",
    "invalidate",
    "store",
    "store_loaded",
]

RETRY_AFTER_S = 0.01
"""Seconds before a request without a reply is sent again."""

LEADER_LAG_S = 1.0
"""The other callers of a process wait this many seconds longer than the leader, which asks the server for all of them.

They ask only if the leader has not shared a result with them.
"""

LISTEN_S = 30.0
"""Maximum seconds after which a waiting caller asks the server again.

It is not enough to ask when the load's lease ends, because another program may have written a lease that never expires.
"""


class TooLong(KeyConflict):
    """Raised if the stored value has ``size`` bytes, more than `EntrySpec.max_size`, and `EntrySpec.keeps` is True."""

    def __init__(self, size: int) -> None:
        super().__init__(f"its value has {size:,} bytes on the server")
        self.size = size


class Marked(Exception):
    """Raised if the server has refused to store a value, and a small record of kind `MARK` was stored in its place."""


class LoadLease(HeldLease):
    """The lease of a load. The script that cancels loads releases it, not the script that releases locks."""

    __slots__ = ("entry",)

    entry: EntrySpec

    def __init__(self, entry: EntrySpec, grant: Grant) -> None:
        super().__init__(grant)
        self.fence = 0  # the next load may begin while this one's result is stored, which does not mean that a lease is lost
        self.entry = entry

    def giving_back(self, *, revoke: bool, timeout: float) -> RunScript[int]:
        return _cancellation(self.entry, self.token, revoke=revoke, timeout=timeout)


class Load(Owner):
    """A load that was granted to the caller, which loads the value, and then calls `store_loaded` or `cancel_load`.

    If the object is garbage-collected before one of these calls, its lease is released.
    """

    __slots__ = ("__weakref__", "entry", "fence", "held_lease", "on_lost", "record", "waited")

    entry: EntrySpec
    fence: int
    record: StoredValue | None
    waited: bool
    held_lease: LoadLease

    def __init__(self, entry: EntrySpec, grant: Grant, record: StoredValue | None) -> None:
        self.entry = entry
        self.fence = grant.fence
        """Fence of this load, which is higher than those of all earlier loads of the same group of keys."""
        self.record = record
        """Value that is stored now, and is stale or will be stale soon; None: there is no value."""
        self.waited = grant.attempt.waited
        """True if the caller has waited for another caller's load, which ended without a value."""
        self.held_lease = LoadLease(entry, grant)
        self.on_lost: Callable[[Load], object] | None = None
        """Function that the keeper (background thread) calls with this object if the lease is lost; None: no function."""

    @property
    def lost(self) -> str:
        """Reason why the lease of this load was lost; empty while no loss is known."""
        return self.held_lease.lost

    def remaining(self, now: float) -> float:
        return self.held_lease.remaining(now)

    def notice_loss(self) -> None:
        if self.on_lost is not None:
            self.on_lost(self)


# Asking


async def _ask(entry: EntrySpec, call: RunScript[Any], began: float, attempt: Attempt | None = None) -> Answer[Any]:
    """Send a request until the server replies or the outage budget is used up. Carrying it out twice must do no harm.

    The budget, `EntrySpec.outage_budget`, counts from monotonic time ``began``. If there is no connection, the error is raised
    at once.
    ``attempt``: attempt in which to note whether a copy of the request may still arrive; None: no note. Raises WireError,
    KeyConflict or TooLong.
    """
    while True:
        doubt = attempt.maybe_in_flight if attempt is not None else False
        try:
            if attempt is not None:
                # set before the request is sent, so that it stays set if the wait is interrupted
                attempt.maybe_in_flight = attempt.may_be_on_server = True
            answer = await call
        except WireError as error:
            if attempt is not None:
                attempt.maybe_in_flight = doubt or isinstance(error, Unknown)
            over = await Now() + RETRY_AFTER_S >= began + entry.outage_budget
            if over or isinstance(error, NotSent) or (isinstance(error, Refused) and not error.transient):
                raise
            await Sleep(RETRY_AFTER_S)
        else:
            if attempt is not None:
                attempt.maybe_in_flight = doubt
            if isinstance(answer.value, Conflict):
                raise KeyConflict(answer.value.why)
            if isinstance(answer.value, Oversize):
                raise TooLong(answer.value.size)
            return answer


def _cancellation(entry: EntrySpec, token: str, *, revoke: bool, timeout: float) -> RunScript[int]:
    return _ending(entry, (token, "bury" if revoke else "release", 0, ""), timeout)


def _ending(entry: EntrySpec, args: tuple[bytes | str | int, ...], timeout: float) -> RunScript[int]:
    return RunScript(CANCEL_LOAD, (*entry.spec.keys, entry.invalidated_before, entry.waiters), args, timeout)


async def abandon(entry: EntrySpec, attempt: Attempt) -> None:
    """Have the keeper (background thread) release the load that an interrupted lookup may have got.

    This function does not wait for the release. The server also refuses a late copy of the lookup's request.
    """
    if attempt.may_be_on_server:
        timeout, lease = entry.spec.timeout, entry.spec.ttl
        await SendUntilAnswered(
            _cancellation(entry, attempt.token, revoke=attempt.maybe_in_flight, timeout=timeout), await Now() + timeout + lease
        )
        attempt.may_be_on_server = False


# Looking


async def get_or_lease(
    entry: EntrySpec, policy: LookupPolicy, attempt: Attempt | None = None
) -> FoundValue | Load | Loading | Absent | Failed:
    """Return the stored value, or grant the load of a missing value to the caller, or wait while another caller loads it.

    FoundValue contains the value. Load means that the caller has to load the value. Loading means that another caller still
    loads it after `LookupPolicy.wait` seconds. Absent means that there is no value, and the caller does not load it.
    Failed means that a load in this process, for which the caller waited, has failed (see `cancel_load`).

    ``attempt``: a new attempt, which the caller passes if it may have to `abandon` it; None: create one. Raises WireError or
    KeyConflict.
    """
    began = await Now()
    if policy.fast_read and not policy.early:
        record = await _fast_read(entry, began)
        if record is not None:
            return FoundValue(record, stale=False)
    if not policy.load:
        absent: FoundValue | Absent = (await _ask(entry, _lookup(entry, policy), began)).value
        return absent
    attempt = attempt or Attempt(entry.spec)
    attempt.until = float("inf") if policy.wait is None else began + policy.wait
    try:
        result = await _get_or_wait(entry, policy, attempt, began)
    except BaseException:
        await abandon(entry, attempt)
        raise
    if not isinstance(result, Load):
        await abandon(entry, attempt)
    return result._replace(waited=attempt.waited) if isinstance(result, FoundValue) else result


async def _fast_read(entry: EntrySpec, began: float) -> StoredValue | None:
    """Read the value with a plain command, and return it if it is fresh. Return None if the slower script has to be run.

    ``began``: monotonic time at which the lookup began.
    """
    try:
        call = entry.reading
        answer = await call
    except WireError as error:
        permanent = isinstance(error, NotSent) or (isinstance(error, Refused) and not error.transient)
        if permanent or await Now() + RETRY_AFTER_S >= began + entry.outage_budget:
            raise
        return None
    return fresh(answer.value)


async def _get_or_wait(
    entry: EntrySpec, policy: LookupPolicy, attempt: Attempt, now: float
) -> FoundValue | Load | Loading | Absent | Failed:
    me = CoalescedWaiter(prefix=entry.spec.prefix)
    assert attempt.until is not None
    try:
        while True:
            if me.leads and not me.listener_id:
                await _listen(me, min(attempt.until, now + LISTEN_S))
            result, came = await _ask_for_all(entry, policy, attempt, now, me)
            if isinstance(result, Loading) and came < attempt.until:
                attempt.waited = True
                me.coalescer = me.coalescer or await GetCoalescer(entry.value)
                told = await _wait_coalesced(me.coalescer, me, result, came, attempt.until)
                if told is not None:
                    return told
            elif isinstance(result, Load):
                return await _accept_load(result, me, attempt.until)
            elif result is not None:
                return result
            now = await Now()
    finally:
        if me.coalescer is not None:
            me.coalescer.leave(me)
        if me.listener_id:
            await Unsubscribe(me)


async def _ask_for_all(
    entry: EntrySpec, policy: LookupPolicy, attempt: Attempt, now: float, me: CoalescedWaiter
) -> tuple[FoundValue | Load | Loading | Absent | None, float]:
    """Ask the server for the value or the load. Return the result, and the monotonic time at which the reply arrived.

    If this caller leads the waiting callers of its process, a value is shared with the others. The result is None if the
    request must be repeated with a new token.
    """
    attempt.token = attempt.token or await NewToken()
    coalescer = me.coalescer
    others = coalescer.members if coalescer is not None and me.leads else ()
    try:
        answer = await _ask(entry, _lookup(entry, policy, attempt.token, me.listener_id), now, attempt)
    except WireError as error:
        if coalescer is not None:
            coalescer.tell(others, error)  # otherwise each of them would retry for as long, one after the other
        raise
    result = await _interpret(entry, attempt, answer)
    if coalescer is not None and isinstance(result, FoundValue) and not result.stale:
        coalescer.tell(others, result)
    return result, answer.came


async def _listen(me: CoalescedWaiter, until: float) -> None:
    me.listener_id = await NewToken()
    await Subscribe(me, until)
    me.hints.clear()


async def _wait_coalesced(
    coalescer: Coalescer, me: CoalescedWaiter, loading: Loading, now: float, until: float
) -> FoundValue | Failed | None:
    """Wait, together with the other callers of this process for the key, until it is time to ask the server again.

    Return the result that another caller has shared; None: no result was shared. Raises a shared WireError.
    """
    left = LISTEN_S if loading.remaining is None else min(loading.remaining + RETRY_AFTER_S, LISTEN_S)
    coalescer.join(me)
    if me.leads:
        if me.listener_id:  # without an id, this caller is not subscribed yet, and has to ask once more first
            await await_notice(me, min(until, now + left))
    else:
        await await_notice(me, min(until, now + left + LEADER_LAG_S))
    return await _shared_result(me, until)


async def _accept_load(load: Load, me: CoalescedWaiter, until: float) -> FoundValue | Load | Failed:
    """Return the load that was granted to this caller, or a result that another caller of this process has just shared.

    If a result was shared, the load is cancelled. A shared WireError is ignored, because this caller's own request has
    succeeded. ``until``: monotonic time until which to wait while this caller is held back.
    """
    try:
        told = await _await_result(me, until)
    except BaseException:
        await _end_load(load)  # afterwards `abandon` releases its lease
        raise
    if isinstance(told, FoundValue | Failed):
        await cancel_load(load)  # this load was granted just when another one failed, and that failure is shared
        return told
    return load


async def _shared_result(me: CoalescedWaiter, until: float) -> FoundValue | Failed | None:
    """Return the result that another caller of this process has shared with this one; None: no result.

    Raises a shared WireError. ``until``: monotonic time until which to wait while this caller is held back.
    """
    told = await _await_result(me, until)
    if isinstance(told, WireError):
        raise told
    return told


async def _await_result(me: CoalescedWaiter, until: float) -> FoundValue | Failed | WireError | None:
    """Return the result that another caller of this process has shared, which may be a WireError; None: no result.

    While this caller is held back (`CoalescedWaiter.held`), wait first, at most until monotonic time ``until``.
    """
    while me.held:
        me.overdue = True
        if me.held:  # checked again: nobody wakes a caller that is no longer held back
            await await_notice(me, until)
        if me.held and await Now() >= until:
            break
    me.overdue = False
    found: FoundValue | Failed | WireError | None = me.found
    return found


def _lookup(entry: EntrySpec, policy: LookupPolicy, token: str = "", listener_id: str = "") -> RunScript[Seen | Conflict]:
    spec = entry.spec
    load, state, floors = spec.keys
    keys = (entry.value, load, state, floors, entry.invalidated_before, entry.waiters)
    stale = milliseconds(policy.stale) if policy.stale > 0 else 0
    unread = "keep" if entry.keeps else "void"
    args = (token, spec.first_ms if token else 0, listener_id, stale, policy.early, entry.max_size + HEAD, unread)
    return RunScript(GET_OR_LEASE, keys, args, spec.timeout)


async def _interpret(entry: EntrySpec, attempt: Attempt, answer: Answer[Seen]) -> FoundValue | Load | Loading | Absent | None:
    """Turn a reply of the server into the result of the lookup. If the load was granted, have its lease renewed.

    Return None if the lookup must be repeated with a new token, because the granted lease has already ended or the token is
    revoked.
    """
    seen = answer.value
    if isinstance(seen, LoadGranted):
        deadline = answer.sent + attempt.spec.first_ttl - margin(attempt.spec.first_ttl)
        if answer.came < deadline:
            load = Load(entry, Grant(attempt, seen.fence, answer.came, deadline, last=seen.fence), seen.record)
            await KeepAlive(load)
            return load
    elif not isinstance(seen, LoadRevoked):
        assert not isinstance(seen, Oversize)  # `_ask` raises it as TooLong
        # Nothing of this attempt is on the server, unless an earlier copy of the request is still on its way.
        attempt.may_be_on_server = attempt.maybe_in_flight
        return seen
    await abandon(entry, attempt)  # the reply took so long that the lease is over
    attempt.token, attempt.maybe_in_flight = "", False
    return None


# Ending a load


async def store_loaded(
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
    """Store the loaded value, end the load, and notify the callers that wait for it.

    Return False if the value was not stored, because the lease was lost, or the key or one of ``tags`` was invalidated during
    the load. The load has ended in any case, also after an error.

    ``kind``: word that says what ``data`` contains. ``ttl``: seconds for which the value is fresh. ``stale``: further seconds
    for which the server keeps it. ``tags``: names of the groups with which the value can be invalidated. ``cost``: seconds that
    the load took. ``mark``: data to store as a record of kind `MARK` if the server refuses the value (None: nothing).

    Raises Marked if ``mark`` was stored. Raises WireError if the server refuses the value or does not reply. If it does not
    reply, the keeper (background thread) repeats the request, unless the value is larger than `LARGE`.
    """
    held_lease, large = load.held_lease, len(data) > LARGE
    token = (held_lease.token, load.fence, "bury" if held_lease.maybe_in_flight else "release")
    landing = _storing(load.entry, token, _Payload(kind, data, ttl, stale, tags, cost))
    refused: WireError | None = None
    try:
        now = await Now()
        if held_lease.remaining(now) > 0:
            try:
                # A large value is sent only once. A server that closes the connection because of its size does so each time.
                answer = await _ask(load.entry, landing, now - load.entry.outage_budget if large else now)
            except WireError as error:
                if mark is None or not ((isinstance(error, Refused) and not error.transient) or large):
                    raise
                refused, landing = error, _storing(load.entry, token, _Payload(MARK, mark, ttl, stale, tags, cost))
                answer = await _ask(load.entry, landing, await Now())
            await _end_load(load)
            if refused is not None and answer.value:
                raise Marked(str(refused)) from refused
            return bool(answer.value)
    except Marked:
        raise
    except BaseException as error:
        # A large value is not left to the keeper. A server that closes the connection would end the keeper's renewals, too.
        may_be_stored = (isinstance(error, NotSent | Unknown) or (isinstance(error, Refused) and error.transient)) and (
            not large or refused is not None
        )
        await _end_load(load, leave=not may_be_stored)
        if may_be_stored:  # the value has been loaded, and the keeper may still store it
            await SendUntilAnswered(landing, held_lease.deadline)
        raise
    await _end_load(load, leave=True)
    return False


async def cancel_load(load: Load, failure: Exception | None = None, tags: Iterable[str] = ()) -> None:
    """End the load without a value, so that the next caller loads. Raises no WireError, because the load's lease expires
    anyway.

    ``failure``: error to share with all callers of this process that wait for the load; None: share nothing. The error is not
    shared if the lease is lost, or if the key or one of ``tags`` was invalidated since the load began, because another load
    might now succeed.
    """
    held_lease, coalescer, shared = load.held_lease, None, None
    held: list[CoalescedWaiter] = []
    try:
        await _end_load(load)
        if failure is not None:
            coalescer = await GetCoalescer(load.entry.value)
            coalescer.hold_back(held)
        marked = b"".join(b" " + tag for tag in marks(tags))
        how, fence = "bury" if held_lease.maybe_in_flight else "release", load.fence if held else 0
        call = _ending(load.entry, (held_lease.token, how, fence, marked), held_lease.spec.timeout)
        answer = await call
        if failure is not None and answer.value == codes.STILL_VALID:
            shared = Failed(failure)
    except WireError:
        await _end_load(load, leave=True)
    except BaseException:
        await _end_load(load, leave=True)
        raise
    finally:
        if coalescer is not None:
            coalescer.settle(held, shared)


async def _end_load(load: Load, *, leave: bool = False) -> None:
    """Stop renewing the lease of a load.

    With ``leave``, have the keeper (background thread) release the lease, which may still be on the server.
    """
    held_lease = load.held_lease
    held_lease.end()
    await StopKeepAlive(held_lease)
    if leave:
        until = await Now() + held_lease.spec.timeout + held_lease.ttl
        await SendUntilAnswered(held_lease.giving_back(revoke=True, timeout=held_lease.spec.timeout), until)


class _Payload(NamedTuple):
    kind: str
    data: bytes
    ttl: float
    stale: float
    tags: Iterable[str]
    cost: float = 0.0


def _storing(
    entry: EntrySpec, token: tuple[str, int, str], payload: _Payload, older: str = "keep"
) -> RunScript[int | Conflict]:
    load, state, floors = entry.spec.keys
    keys = (entry.value, entry.fresh, load, state, floors, entry.invalidated_before, entry.waiters)
    kept = milliseconds(payload.stale) if payload.stale > 0 else 0
    tags = b"".join(b" " + tag for tag in marks(payload.tags))
    cost = max(0, int(payload.cost * 1e6))
    args = (*token, payload.kind, milliseconds(payload.ttl), kept, cost, tags, payload.data, older)
    return RunScript(STORE, keys, args, entry.spec.timeout)


# Without a load


async def store(entry: EntrySpec, kind: str, data: bytes, *, ttl: float, stale: float = 0.0, tags: Iterable[str] = ()) -> None:
    """Store a value that the caller already has, replacing any stored value.

    ``kind``: word that says what ``data`` contains. ``ttl``: seconds for which the value is fresh. ``stale``: further seconds
    for which it is kept. A load that is under way can no longer store its value. Raises WireError if the server is unreachable.

    This takes two round trips. The first one takes the load over, as if the caller loaded the value, and returns a fence. The
    second one stores the value under this fence, if the load is still the caller's. So a late copy of either request cannot
    replace the value of a later call. If a later call or an invalidation comes in between, an older value is deleted, and
    nothing is stored.
    """
    attempt = Attempt(entry.spec, await NewToken())
    load, state, floors = entry.spec.keys
    taking = RunScript(TAKE_OVER, (load, state, floors), (attempt.token, entry.spec.first_ms), entry.spec.timeout)
    try:
        fence = (await _ask(entry, taking, await Now(), attempt)).value
        token = (attempt.token, fence, "bury" if attempt.maybe_in_flight else "release")
        landing = _storing(entry, token, _Payload(kind, data, ttl, stale, tags), older="delete")
        await _ask(entry, landing, await Now())
    except BaseException:
        await abandon(entry, attempt)
        raise


async def delete(entry: EntrySpec) -> bool:
    """Delete the stored value. Return True if there was a value.

    A load that is under way can no longer store its value. Raises WireError if the server does not reply.
    """
    load, state, _ = entry.spec.keys
    call = RunScript(DELETE, (entry.value, entry.fresh, load, state, entry.waiters), (), entry.spec.timeout)
    return bool((await _ask(entry, call, await Now())).value)


async def invalidate(entry: EntrySpec, tags: Iterable[str] | None = None) -> None:
    """Invalidate all values of a group of keys, or only those with one of ``tags`` (None: all values).

    Loads of such values that are under way can no longer store them. ``entry``: any key of the group. Raises WireError if the
    server does not reply.
    """
    _, state, floors = entry.spec.keys
    which = (b"",) if tags is None else tuple(marks(tags))
    if which:
        await _ask(
            entry, RunScript(INVALIDATE, (state, floors, entry.invalidated_before), which, entry.spec.timeout), await Now()
        )
