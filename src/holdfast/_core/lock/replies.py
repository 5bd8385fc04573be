"""A lock on one server: what the scripts answer, and how it is given back.

What describes it is in `_core.lock.records`; how it is taken, in `_core.lock.acquire`; how it is renewed, in
`_core.lock.renewal`. Sources: redis.io "Distributed Locks with Redis" for the record (``SET key token NX PX``, compare and
delete); M. Kleppmann, "How to do distributed locking" (2016), for the fence.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast._core.deadlock.abort_wait import Dropped
from holdfast._core.lock.records import PAUSED, UNKNOWN, Attempt, Scripts, Spec
from holdfast._core.requests import Conflict, Gone, NotSent, Now, Refused, Run, Send, Sleep, Unknown, WireError, in_the_way
from holdfast._core.struct import Struct
from holdfast._lua import Script, whole_number

CLAIM = 2.0
"""Seconds a waiter has to take up a lock that was handed to it. Part of the format: `CLAIM` of the scripts is the same."""

BLOCK = 33
"""Fences of one grant: its own, and those with which this process may pass the lock on without a trip. `BLOCK` of the
scripts is the same."""

KEEP = 600.0
"""Seconds the side keys of a lock outlive its last use, at least."""

GRACE = 0.45
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


UNHEARD = Busy(0.0, 0, UNKNOWN, lingers=False)
"""Before any server has said who holds it."""


class Dead(NamedTuple):
    """The token was declared dead."""


Reply = Held | Busy | Dead | Gone | Conflict


def read_reply(raw: object) -> Reply:
    """One answer of acquire or refresh, see `_lua/lock/acquire.lua`."""
    assert isinstance(raw, list)
    match raw:
        case [1, int(first), int(last)]:
            return Held(first, last)
        case [0, int(ms), int(last), bytes(process), int(lingers)]:
            return Busy(None if ms == -1 else max(0, ms) / 1000, last, process.decode(), lingers == 1)
        case [-1]:
            return Gone()
        case [-3, bytes(version)] if version.rpartition(b" ")[2] == b"1":
            kind = version.decode(errors="replace").rpartition(" ")[0]
            return Conflict(f"it is used as a {kind or 'lock'}; a name is of one kind", other_kind=True)
        case _:
            return in_the_way(raw, ", not a lock")


def read_acquire(raw: object) -> Reply:
    if isinstance(raw, list) and raw[0] == 1:
        return Held(raw[1], raw[2])  # the usual answer, and a pattern match costs as much as the rest of an acquire
    reply = read_reply(raw)
    return Dead() if isinstance(reply, Gone) else reply


def read_refresh(raw: object) -> tuple[bool, list[Reply]]:
    assert isinstance(raw, list)
    return raw[0] == 1, [read_reply(answer) for answer in raw[1:]]


def read_list(raw: object) -> list[int]:
    assert isinstance(raw, list)
    return raw


ACQUIRE: Script[Reply] = Script("lock/acquire", read_acquire)
RELEASE: Script[int] = Script("lock/release", whole_number)
RENEW: Script[list[int]] = Script("lock/renew", read_list)
REFRESH: Script[tuple[bool, list[Reply]]] = Script("lock/refresh", read_refresh)


MUTEX = Scripts(ACQUIRE, RELEASE, REFRESH, RENEW)


def scripts(spec: Spec) -> Scripts:
    """What the server runs for such a lock."""
    return MUTEX if spec.permits is None else spec.permits.scripts


async def give_up(attempt: Attempt) -> None:
    """Leave nothing of an attempt behind: neither lock nor place in the queue. Never raises a WireError.

    If a copy of our own request may arrive later, the token is declared dead, so that the copy is refused.
    """
    if not attempt.pending:
        return
    spec, mode = attempt.spec, "bury" if attempt.doubt else "leave"
    try:
        for limit in (0.2, 0.1):  # with `GRACE`, an attempt ends well within a second after its time
            try:
                await Run(scripts(spec).release, spec.granting, (attempt.token, mode, *spec.guarded), min(spec.timeout, limit))
            except (NotSent, Unknown):
                mode = "bury"
            except Refused as error:
                if not error.transient:
                    break
            else:
                break
            await Sleep(0.02)
    except Dropped:
        await Send(burial(attempt), await Now() + spec.timeout + spec.first_ttl)
        attempt.pending = False
        raise
    attempt.pending = False


def burial(attempt: Attempt) -> Run[int]:
    """Neither lock nor place is left of an attempt, and no late copy of its requests gets one."""
    spec = attempt.spec
    return Run(scripts(spec).release, spec.granting, (attempt.token, "bury", *spec.guarded), spec.timeout)


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
                how = "bury" if doubt else "release"
                answer = await Run(scripts(spec).release, spec.granting, (token, how, *spec.guarded), timeout)
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
