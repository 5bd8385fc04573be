"""Latches. Clients wait until a count on the server has been counted down to zero. An event is a latch with the count one.

If the reply to a request to count down is missing, the request is repeated with the same token, and is counted only once. A
waiter also notices an opening after which the latch was reset at once, as a waiter of `threading.Event` does. For this, the
server stores the time of the last opening. A waiter reads this time when it begins to wait, and again later. If several callers
in one process wait for a latch, one of them is notified, and asks the server for all (`_core.single_flight.coalesce`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.name_conflict import explained
from holdfast._core.names import prefix_of, side_key
from holdfast._core.requests import (
    Answer,
    Conflict,
    GetCoalescer,
    NewToken,
    Now,
    Refused,
    RunScript,
    Sleep,
    Subscribe,
    Unsubscribe,
    WireError,
    in_the_way,
)
from holdfast._core.retry import retry_idempotent
from holdfast._core.single_flight.coalesce import CoalescedWaiter
from holdfast._core.subscription import await_notice
from holdfast._lua import Script, codes

INFINITY = float("inf")

LISTEN_S = 10.0
"""Maximum seconds after which a waiter asks the server again, because a notification may get lost."""

LISTED_S = 3 * LISTEN_S
"""Seconds for which the server keeps a waiter's subscription to a latch, unless it is renewed."""

RETRY_AFTER_S = 0.1
"""Seconds before a request without a reply is sent again."""

OUTAGE_BUDGET_S = 30.0
"""Seconds for which a waiter sends its request again and again while the server does not reply."""

FORMATS = {"event 1": "Event", "latch 1": "CountDownLatch", "barrier 1": "Barrier"}
"""Name of the class for each data format. An object's data on the server begin with the name of the format."""


@dataclass(frozen=True, slots=True)
class LatchSpec:
    """The keys, the count and the limits of a latch. The object never changes, so that threads may share it."""

    keys: tuple[bytes, bytes, bytes]
    format: str
    count: int
    keep_ms: int
    timeout: float

    @property
    def span(self) -> float:
        """Seconds after which a waiter asks again. Its request also keeps the latch's state from expiring (``keep_ms``)."""
        return min(LISTEN_S, self.keep_ms / 3000)


class CountMismatch(Exception):
    """Raised if the latch or barrier on the server has the count ``number``, and the caller passed another count."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Forgotten(Exception):
    """Raised if the server lost the state of a latch while a client waited for the latch."""


class LatchState(NamedTuple):
    """The state of a latch on the server. ``missing``: how many arrivals are missing. The latch is open if it is 0."""

    missing: int
    opened: int
    """Server time, in microseconds, of the last opening, which rises with each opening; 0: the latch was never open."""
    born: int
    """Server time, in microseconds, at which the state of the latch was created; 0: the server has no state of this latch."""


class LatchWaiter(CoalescedWaiter):
    """A caller in this process that waits until a latch is open."""

    __slots__ = ("seen",)

    def __init__(self, prefix: bytes, seen: LatchState) -> None:
        super().__init__(prefix=prefix)
        self.seen = seen
        """State of the latch when this caller began to wait."""

    def released_by(self, seen: LatchState) -> bool:
        """Return True if the latch is open in the state ``seen``, or was opened since the wait began."""
        return seen.missing == 0 or seen.opened > self.seen.opened


def conflict(raw: object) -> Conflict | CountMismatch:
    """Return the conflict that the reply ``raw`` of a latch's or barrier's script reports.

    Conflict means that the key holds other data. CountMismatch means that the latch or barrier was created with another count.
    """
    match raw:
        case [codes.OTHER_FORMAT, bytes(theirs)]:
            text = theirs.decode(errors="replace")
            return Conflict(f"there is a {FORMATS[text]} of this name" if text in FORMATS else f"it has format {text!r}", True)
        case [codes.OTHER_COUNT, int(number)]:
            return CountMismatch(number)
        case _:
            return in_the_way(raw)


def _read(raw: object) -> LatchState | Conflict | CountMismatch:
    match raw:
        case [int(missing), int(opened), int(born)] if missing >= 0:
            return LatchState(missing, opened, born)
        case _:
            return conflict(raw)


LATCH: Script[LatchState | Conflict | CountMismatch] = Script("rendezvous/latch", _read)


def _run(latch: LatchSpec, *what: str | int) -> RunScript[LatchState | Conflict | CountMismatch]:
    return RunScript(LATCH, latch.keys, (latch.format, latch.count, latch.keep_ms, *what), latch.timeout)


async def _seen(latch: LatchSpec, answer: Answer[LatchState | Conflict | CountMismatch]) -> LatchState:
    if isinstance(answer.value, Conflict):
        raise KeyConflict(await explained(answer.value, latch.keys[0], side_key(latch.keys[0], b"state"), latch.timeout))
    if isinstance(answer.value, CountMismatch):
        raise answer.value
    return answer.value


async def read_state(latch: LatchSpec) -> LatchState:
    """Return the latch's current state. Raises WireError, KeyConflict or CountMismatch."""
    return await _seen(latch, await retry_idempotent(_run(latch, "look", "", 0)))


async def down(latch: LatchSpec, by: int, name: str = "") -> LatchState:
    """Lower the latch's count by ``by``, but not below zero. Return the latch's new state.

    ``name``: name of the thing that is counted. Each name counts only once until `reset`; with an empty name, each call counts.
    Raises WireError, KeyConflict or CountMismatch.
    """
    return await _seen(latch, await retry_idempotent(_run(latch, "down", await NewToken(), by, name)))


async def reset(latch: LatchSpec) -> LatchState:
    """Set the latch's count back to `LatchSpec.count`, even if it had another one. Return the latch's new state.

    Raises WireError or KeyConflict.
    """
    return await _seen(latch, await retry_idempotent(_run(latch, "reset", await NewToken())))


async def wait(latch: LatchSpec, wait: float | None) -> bool:
    """Wait until the latch is open, and return True. Return False after ``wait`` seconds (None: without limit).

    Also return True if the latch was opened during the wait and has been reset since. Raises WireError, KeyConflict or
    CountMismatch. Raises Forgotten if the server has lost the state of a latch; a lost event counts as not set.
    """
    began = await Now()
    until = INFINITY if wait is None else began + wait
    first = await retry_idempotent(_run(latch, "look", "", 0))
    seen = await _seen(latch, first)
    if seen.missing == 0 or first.came >= until:
        return seen.missing == 0
    me = LatchWaiter(prefix_of(latch.keys[0]), seen)
    me.coalescer = await GetCoalescer(latch.keys[0])
    try:
        while True:
            me.coalescer.join(me)
            released, came = await _look_for_all(latch, me, until)
            if released or came >= until:
                return released
            await await_notice(me, min(until, came + (latch.span if me.leads else 6 * LISTEN_S)))
            if isinstance(me.found, WireError):
                raise me.found
            if me.found is not None:
                return True
    finally:
        me.coalescer.leave(me)
        if me.listener_id:
            await Unsubscribe(me)


async def _look_for_all(latch: LatchSpec, me: LatchWaiter, until: float) -> tuple[bool, float]:
    """Ask the server for the latch's state. Return whether this caller's wait may end, and the monotonic time of the reply.

    If this caller leads the callers of this process that wait for the latch, the result is shared with the others. ``until``:
    monotonic time at which this caller stops waiting.
    """
    assert me.coalescer is not None
    if me.leads and not me.listener_id:
        me.listener_id = await NewToken()
        await Subscribe(me, min(until, await Now() + LISTEN_S))
        me.hints.clear()
    # a waiter that joins after this request was sent has to ask for itself
    others = me.coalescer.members if me.leads else ()
    try:
        answer = await patiently(_run(latch, "look", me.listener_id, int(1000 * LISTED_S)), until)
    except WireError as error:
        me.coalescer.tell(others, error)  # otherwise each of them would retry for as long, one after the other
        raise
    if answer is None:
        return False, until
    seen = await _seen(latch, answer)
    if not me.seen.born:
        me.seen = me.seen._replace(born=seen.born)
    elif seen.born != me.seen.born and latch.format.startswith("latch"):
        raise Forgotten
    me.coalescer.tell(tuple(other for other in others if isinstance(other, LatchWaiter) and other.released_by(seen)), seen)
    return me.released_by(seen), answer.came


R = TypeVar("R")


async def patiently(call: RunScript[R], until: float, patience: float = OUTAGE_BUDGET_S) -> Answer[R] | None:
    """Send a request again and again until the server replies. Return None if monotonic time ``until`` passes first.

    Raises WireError after ``patience`` seconds without a reply, or at once if the server refuses the request for good.
    """
    patience += await Now()
    while True:
        try:
            return await call
        except WireError as error:
            now = await Now()
            if now >= until:
                return None
            if now + RETRY_AFTER_S >= patience or (isinstance(error, Refused) and not error.transient):
                raise
            await Sleep(min(RETRY_AFTER_S, until - now))
