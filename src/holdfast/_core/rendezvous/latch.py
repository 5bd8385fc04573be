"""Latches: what is missing is counted down on the server, and when nothing is, all who wait are told. An event is one for one.

A call that counts is made under a token of its own, and asked again under the same one until there is an answer: it counts
once. When a latch has opened last is written down as a number that rises. A waiter compares that with the number it saw at its
start, so it learns that the latch was open meanwhile even if it was reset at once, like `threading.Event`.

Those of one process who wait for the same latch stand together (`_core.single_flight.coalesce`): one of them is told by the
server, and looks.
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
    Run,
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
"""Seconds after which a listener looks without a notification, at the latest."""

LISTED_S = 3 * LISTEN_S
"""Seconds for which a listener stays listed at the server."""

RETRY_AFTER_S = 0.1
"""Seconds after which is asked again what was not answered, while there is time."""

OUTAGE_BUDGET_S = 30.0
"""Seconds for which a server that went away is waited for."""

FORMATS = {"event 1": "Event", "latch 1": "CountDownLatch", "barrier 1": "Barrier"}
"""Classes by the format that their records on the server begin with."""


@dataclass(frozen=True, slots=True)
class LatchSpec:
    """A latch, as these operations see it. May be kept, and shared by threads."""

    keys: tuple[bytes, bytes, bytes]
    format: str
    count: int
    keep_ms: int
    timeout: float

    @property
    def span(self) -> float:
        """Seconds between two looks of who is told: waiting is use, so what is waited for must not end between them."""
        return min(LISTEN_S, self.keep_ms / 3000)


class CountMismatch(Exception):
    """It was made with another number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Forgotten(Exception):
    """The server has lost what was counted."""


class Seen(NamedTuple):
    """The state of a latch."""

    missing: int
    opened: int
    """When it opened last: rises; 0: never."""
    born: int
    """When it was made; 0: it was not."""


class LatchWaiter(CoalescedWaiter):
    """One who waits for a latch to open."""

    __slots__ = ("seen",)

    def __init__(self, prefix: bytes, seen: Seen) -> None:
        super().__init__(prefix=prefix)
        self.seen = seen
        """State of the latch when the wait began."""

    def released_by(self, seen: Seen) -> bool:
        """It is open, or was since this one began."""
        return seen.missing == 0 or seen.opened > self.seen.opened


def conflict(raw: object) -> Conflict | CountMismatch:
    """Return the conflict that the scripts of latches and barriers report."""
    match raw:
        case [codes.OTHER_FORMAT, bytes(theirs)]:
            text = theirs.decode(errors="replace")
            return Conflict(f"there is a {FORMATS[text]} of this name" if text in FORMATS else f"it has format {text!r}", True)
        case [codes.OTHER_COUNT, int(number)]:
            return CountMismatch(number)
        case _:
            return in_the_way(raw)


def _read(raw: object) -> Seen | Conflict | CountMismatch:
    match raw:
        case [int(missing), int(opened), int(born)] if missing >= 0:
            return Seen(missing, opened, born)
        case _:
            return conflict(raw)


LATCH: Script[Seen | Conflict | CountMismatch] = Script("rendezvous/latch", _read)


def _run(latch: LatchSpec, *what: str | int) -> Run[Seen | Conflict | CountMismatch]:
    return Run(LATCH, latch.keys, (latch.format, latch.count, latch.keep_ms, *what), latch.timeout)


async def _seen(latch: LatchSpec, answer: Answer[Seen | Conflict | CountMismatch]) -> Seen:
    if isinstance(answer.value, Conflict):
        raise KeyConflict(await explained(answer.value, latch.keys[0], side_key(latch.keys[0], b"state"), latch.timeout))
    if isinstance(answer.value, CountMismatch):
        raise answer.value
    return answer.value


async def look(latch: LatchSpec) -> Seen:
    """Return its state now. Raises WireError, KeyConflict, CountMismatch."""
    return await _seen(latch, await retry_idempotent(_run(latch, "look", "", 0)))


async def down(latch: LatchSpec, by: int, name: str = "") -> Seen:
    """Count down, no lower than to nothing. ``name``: what is counted; each counts once, until `reset`. Raises as `look`."""
    return await _seen(latch, await retry_idempotent(_run(latch, "down", await NewToken(), by, name)))


async def reset(latch: LatchSpec) -> Seen:
    """As in the beginning, with the count of this one. Raises as `look`."""
    return await _seen(latch, await retry_idempotent(_run(latch, "reset", await NewToken())))


async def wait(latch: LatchSpec, wait: float | None) -> bool:
    """Wait until it is open, or was meanwhile; False if it was not within ``wait`` seconds (None: for ever). Raises WireError
    when the server cannot be had, Forgotten when it has lost what was counted, and as `look`."""
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
    """Whether it is released, and when the answer came; the others of the crowd are told, if this one leads them."""
    assert me.coalescer is not None
    if me.leads and not me.listener_id:
        me.listener_id = await NewToken()
        await Subscribe(me, min(until, await Now() + LISTEN_S))
        me.hints.clear()
    # A caller that joins after this was sent looks for itself.
    others = me.coalescer.members if me.leads else ()
    try:
        answer = await patiently(_run(latch, "look", me.listener_id, int(1000 * LISTED_S)), until)
    except WireError as error:
        me.coalescer.tell(others, error)  # or each of them would wait for as long, one after the other
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


async def patiently(call: Run[R], until: float, patience: float = OUTAGE_BUDGET_S) -> Answer[R] | None:
    """Ask until there is an answer; None: there is none, and it is ``until``. Raises WireError after ``patience`` seconds."""
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
