"""Break a lock by revoking the lease of a holder that a person has named, or wait until a lock is free.

The former holder is notified, and loses its lease. If it goes on writing, fence checks reject its writes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast._core.election import NOTIFY_OBSERVERS
from holdfast._core.inspect.scan import Field, keys_of, read_locks
from holdfast._core.names import quarantine_key, side_key
from holdfast._core.requests import AskPlace, Conflict, Now, RunScript, Sleep, WireError, in_the_way
from holdfast._core.retry import retry_idempotent
from holdfast._lua import Script, codes

POLL_S = 1.0
"""Maximum seconds between two requests of a caller that waits until a lock is free. The server does not notify such a
caller."""


class TakenAway(NamedTuple):
    """The reply that the lock was revoked from its holder.

    The fences of this holder are below ``fence``, and the fences of later holders are above it.
    """

    fence: int
    told: bool
    """True if the message that the lock was revoked reached the former holder's process."""
    heir: str
    """Public id of the process that waited for the lock and has got it now; empty: no waiter got it.

    For permits, no process is named: "+" means that one or more waiters have got permits.
    """


class Free(NamedTuple):
    """The reply that nobody holds the lock, so that nothing was revoked."""


class OtherHolder(NamedTuple):
    """The reply that another client holds the lock, not the named one. Nothing was revoked."""


Outcome = TakenAway | Free | OtherHolder | Conflict


def _read(raw: Any) -> Outcome:
    match raw:
        case [1, int(fence), int(told), bytes(heir)]:
            return TakenAway(fence, told == 1, heir.decode())
        case [0]:
            return Free()
        case [codes.NO_CLAIM]:
            return OtherHolder()
        case _:
            return in_the_way(raw, ", not a lock")


BREAK_LOCK: Script[Outcome] = Script("inspect/break_lock", _read)
BREAK_PERMITS: Script[Outcome] = Script("inspect/break_permits", _read)


async def break_lock(
    where: Field, key: bytes, mark: str, by: str, *, prefix: bytes, leads: bool = False
) -> list[Outcome | WireError]:
    """Revoke a lock from its holder. Return the reply or the error of each server.

    ``mark``: hash of the holder's token, as an inspection shows it. If another client holds the lock now, it keeps the lock.
    ``by``: name of the person who breaks the lock, which is sent to the former holder. ``prefix``: key prefix that the users of
    the lock pass. ``leads``: True if the holder may be an elected leader, so that observers have to be notified. Raises
    WireError if no server replies.
    """
    keys = keys_of(key)
    if where.slot_of is None:  # in a Cluster no lock has a quarantine
        keys += (quarantine_key(prefix),)
    answers = await _everywhere(where, RunScript(BREAK_LOCK, keys, (mark, by), where.timeout))
    if leads:
        try:
            await AskPlace(0, RunScript(NOTIFY_OBSERVERS, (side_key(key, b"observers"),), (), where.timeout))
        except WireError:
            pass  # observers look again by themselves after a while
    return answers


async def break_permits(where: Field, key: bytes, marks: list[str], by: str) -> list[Outcome | WireError]:
    """Revoke permits of a semaphore or read-write lock from their holders. Return the reply or the error of each server.

    ``marks``: hashes of the holders' tokens, as an inspection shows them. ``by``: as in `break_lock`. Raises WireError if no
    server replies.
    """
    return await _everywhere(where, RunScript(BREAK_PERMITS, keys_of(key)[:3], (by, *marks), where.timeout))


async def _everywhere(where: Field, call: RunScript[Outcome]) -> list[Outcome | WireError]:
    answers: list[Outcome | WireError] = []
    for place in range(where.places):
        try:
            answers.append((await retry_idempotent(AskPlace(place, call))).value)
        except WireError as error:
            answers.append(error)
    failure = answers[-1]
    if isinstance(failure, WireError) and all(isinstance(answer, WireError) for answer in answers):
        raise failure
    return answers


async def wait(where: Field, key: bytes, seconds: float | None) -> bool:
    """Wait until nobody holds the lock, and return True. The lock is not acquired.

    Return False if the lock is still held after ``seconds`` seconds (None: wait without limit). Another client may acquire the
    lock before this function returns. Raises WireError if no server replies.
    """
    until = None if seconds is None else await Now() + seconds
    while True:
        (seen,) = await read_locks(where, [key])
        votes = [sight for sight in seen.sights if sight is not None and sight.holds]
        free = sum(sight is not None and not sight.holds for sight in seen.sights)
        if free > where.places // 2:
            return True
        left = min([POLL_S, *(hold.remaining + 0.001 for sight in votes for hold in sight.holds if hold.remaining is not None)])
        if until is not None:
            left = min(left, until - await Now())
            if left <= 0:
                return False
        await Sleep(max(left, 0.02))
