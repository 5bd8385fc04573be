"""A lock on one server: what describes it, what the scripts answer, and how it is renewed and given back.

How it is taken is `_core.acquire`. Sources: redis.io "Distributed Locks with Redis" for the record (``SET key token NX PX``,
compare and delete); M. Kleppmann, "How to do distributed locking" (2016), for the fence.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from holdfast._core.requests import Conflict, Gone, NotSent, Outcome, Refused, Request, Run, Sleep, Unknown, WireError
from holdfast._lua import Script

if TYPE_CHECKING:
    from holdfast._core.gate import Gate, Given
    from holdfast._core.renewing import Tenure

R = TypeVar("R")

CLAIM = 2.0
"""Seconds a waiter has to take up a lock that was handed to it. Part of the format: the same number stands in `_queue.lua`."""

BLOCK = 33
"""Fences of one grant: its own, and those with which this process may pass the lock on without a trip. As in `_queue.lua`."""

SLOT = 16
"""Renewals are looked up in slots of 1/16 second; of leases longer than 8 s, all in a slot are due together."""

KEEP = 600.0
"""Seconds the side keys of a lock outlive its last use, at least."""

GRACE = 0.45
"""Seconds by which a question that is under way when ``wait`` ends may overrun it: its answer may still be yes."""


def margin(ttl: float) -> float:
    """What is taken off a lease for clocks that run at different speed: one percent and two milliseconds (as Redlock)."""
    return ttl * 0.01 + 0.002


@dataclass(slots=True)
class Held:
    fence: int
    last: int
    """The numbers from ``fence`` up to this one are the holder's."""


class Busy(NamedTuple):
    remaining: float | None
    """Seconds until the holder's key expires; None: it never does."""
    last_fence: int
    process: str
    """Public id of the holder's process; empty for a foreign lock."""
    lingers: bool
    """The holder may keep the lock for a while after use, and gives it back when asked."""


class Dead(NamedTuple):
    """The token was declared dead."""


Reply = Held | Busy | Dead | Gone | Conflict


def read_reply(raw: object) -> Reply:
    """One answer of acquire or refresh, see `_lua/acquire.lua`."""
    assert isinstance(raw, list)
    match raw:
        case [1, int(first), int(last)]:
            return Held(first, last)
        case [0, int(ms), int(last), bytes(process), int(lingers)]:
            return Busy(None if ms == -1 else max(0, ms) / 1000, last, process.decode(), lingers == 1)
        case [-2, bytes(key), bytes(kind)]:
            return Conflict(f"key {key.decode(errors='backslashreplace')!r} holds a {kind.decode()}, not a lock")
        case [-3, bytes(version)]:
            return Conflict(f"its state has format {version.decode(errors='replace')!r}, this release knows format 1")
        case [-4, bytes(message)]:
            return Conflict(message.decode(errors="replace"))
        case _:
            return Gone() if raw == [-1] else Conflict(f"unexpected answer {raw!r}")


def _read_acquire(raw: object) -> Reply:
    if isinstance(raw, list) and raw[0] == 1:
        return Held(raw[1], raw[2])  # the usual answer, and a pattern match costs as much as the rest of an acquire
    reply = read_reply(raw)
    return Dead() if isinstance(reply, Gone) else reply


def _read_refresh(raw: object) -> tuple[bool, list[Reply]]:
    assert isinstance(raw, list)
    return raw[0] == 1, [read_reply(answer) for answer in raw[1:]]


def _read_renew(raw: object) -> list[int]:
    assert isinstance(raw, list)
    return raw


def _read_int(raw: object) -> int:
    assert isinstance(raw, int)
    return raw


ACQUIRE: Script[Reply] = Script("acquire", _read_acquire)
RELEASE: Script[int] = Script("release", _read_int)
RENEW: Script[list[int]] = Script("renew", _read_renew)
REFRESH: Script[tuple[bool, list[Reply]]] = Script("refresh", _read_refresh)


@dataclass(frozen=True)
class Spec:
    """What a lock is, as all its operations see it. Times in seconds."""

    name: str
    keys: tuple[bytes, bytes, bytes]
    ttl: float
    renew: bool
    max_hold: float | None
    timeout: float
    """Longest wait for one answer: far below the lease, so that there is time to ask again."""
    linger: float = 0.0
    """Seconds for which the lease is kept after use, unless somebody else asks for it."""
    max_passes: int = 32
    max_pass_time: float = 0.01
    """How often, and how long, it is passed on inside the process while somebody outside waits."""

    @property
    def key(self) -> str:
        """The lock's key, for messages."""
        return self.keys[0].decode(errors="backslashreplace")

    @functools.cached_property
    def first_ttl(self) -> float:
        return self.ttl if self.max_hold is None else min(self.ttl, self.max_hold)

    @functools.cached_property
    def renew_grid(self) -> int:
        """Renewals are due at multiples of 1/grid second, so that many leave together."""
        return SLOT << int(8 / self.ttl).bit_length()

    @functools.cached_property
    def renew_part(self) -> float:
        """The part of the lease after which it is renewed: a third, or up to an eighth less, so that leases which were taken
        together are soon renewed at different times."""
        return (1 - int.from_bytes(self.keys[0][-8:], "big") % 61 / 488) / 3

    @functools.cached_property
    def first_ms(self) -> int:
        return milliseconds(self.first_ttl)


def answer_within(ttl: float) -> float:
    """Seconds to wait for an answer about a lease of ``ttl``: far less than it, or there would be no time to ask again."""
    return max(ttl / 10, min(ttl / 3, 0.2))


def milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))


class Slot(Protocol):
    """Where a driver waits for what becomes of an attempt."""

    def put(self, outcome: Outcome | None, /) -> bool | None:
        """Wake it; None: to look at what it was given in line, or because the inbox listens now. False: nobody is there."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One try to get a lock, under one token. A token is never used for a second attempt."""

    spec: Spec
    token: str = field(default="", repr=False)
    pending: bool = False
    """Something of this attempt may be on the server: its lock, or its place in the queue."""
    doubt: bool = False
    """A copy of a request of ours may still be on its way to the server."""
    until: float | None = None
    """Local time at which the wait ends; None: never."""
    waited: bool = False
    """It has waited for others of this process: a server that is away then is ridden out."""
    slot: Slot | None = None
    gate: Gate | None = None
    """Where all who want this lock in this process come together; None: it stands in nobody's line but the server's."""
    given: Given | None = None
    """What it was given in line there."""

    @property
    def patience(self) -> float:
        """Seconds for which a server that is away is ridden out."""
        return float("inf") if self.until is not None else max(self.spec.ttl, 30.0)


@dataclass(slots=True)
class Grant:
    """A lock that was taken: under which token and fence, and until when (local seconds) it may be believed."""

    attempt: Attempt
    fence: int
    taken: float
    deadline: float
    claim: bool = False
    """Handed over by the last holder: the lease is the claim window until it is renewed."""
    queued: bool = False
    """It stood in the queue at the server; or may have."""
    last: int = 0
    """The last fence of the block."""
    tenure: Tenure | None = None
    """The lease that it is part of, where another one of this process had it before."""


async def give_up(attempt: Attempt) -> None:
    """Leave nothing of an attempt behind: neither lock nor place in the queue. Never raises a WireError.

    If a copy of our own request may arrive later, the token is declared dead, so that the copy is refused.
    """
    if not attempt.pending:
        return
    mode = "bury" if attempt.doubt else "leave"
    for _ in range(2):
        try:
            await Run(RELEASE, attempt.spec.keys, (attempt.token, mode), min(attempt.spec.timeout, 0.2))
        except (NotSent, Unknown):
            mode = "bury"
        except Refused as error:
            if not error.transient:
                break
        else:
            break
        await Sleep(0.02)
    attempt.pending = False


async def release(spec: Spec, token: str, in_time: bool, doubt: bool) -> bool:
    """Give the lock back, and hand it to the next in line. False if it was not ours any more.

    ``in_time``: the local deadline has not passed. ``doubt``: a copy of the request that took the lock may still arrive, and
    must not take it again. Raises NotSent or Unknown when the server stays away, Refused when it refuses.
    """
    resent = False
    failures = 0
    try:
        while True:
            try:
                timeout = spec.timeout if not failures else min(spec.timeout, 0.5)
                answer = await Run(RELEASE, spec.keys, (token, "bury" if doubt else "release"), timeout)
            except WireError as error:
                resent = resent or isinstance(error, Unknown)
                failures += 1
                if failures == 3 or (isinstance(error, Refused) and not error.transient):
                    raise
                await Sleep(0.02 * failures)
            else:
                # What a first copy of this request released may be somebody else's by now.
                return answer.value == 1 or (resent and in_time)
    except WireError:
        raise
    except BaseException:
        # Cancelled or interrupted, and nobody knows whether the request arrived. Once more: it does no harm.
        await give_up(Attempt(spec, token, pending=True, doubt=True))
        raise


async def insist(call: Request[R]) -> R:
    """Ask for something that does no harm when it is done twice: up to three times if there is no answer."""
    for _ in range(2):
        try:
            return await call
        except (NotSent, Unknown):
            await Sleep(0.02)
    return await call


async def renew(spec: Spec, token: str, ttl: float, made: float) -> tuple[bool, float]:
    """Set the lease to ``ttl`` seconds from now, local time ``made``: (still ours, when that was sent; minus infinity if a
    later request counts). Raises as `release` does."""
    answer = await insist(renewal(spec, token, ttl, made))
    (state,) = answer.value
    return state > 0, answer.sent if state == 1 else float("-inf")


def renewal(spec: Spec, token: str, ttl: float, made: float) -> Run[list[int]]:
    """The request for a lease of ``ttl`` seconds, made at local time ``made``, by hand or by the keeper.

    Its time is its number: of two that overtake each other, or come late, the server goes by the one that was made later.
    """
    return Run(RENEW, spec.keys, (token, milliseconds(ttl), int(made * 1e6)), min(spec.timeout, answer_within(ttl)))
