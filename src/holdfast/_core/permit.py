"""Permits: each waiter waits for as many as it wants, in the order of arrival.

They are taken, renewed and given back as a lock is (`_core.lock.acquire`, `_core.lock.renewal`, `_core.lock.replies`), by other
scripts. A semaphore has as many as its users set. A read-write lock has `ALL`: a reader takes one and a writer all, so readers
share, and a waiting writer stops those that come after it. Sources: E. W. Dijkstra, "Cooperating
sequential processes" (1965), for the semaphore; P. Courtois, F. Heymans, D. Parnas, "Concurrent control with readers and
writers" (1971), for the problem; the order of arrival that lets neither side starve is that of Java's
ReentrantReadWriteLock(fair=true).
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast._core.lock.records import Permits, Spec, milliseconds
from holdfast._core.lock.replies import Reply, Scripts, read_acquire, read_list, read_refresh
from holdfast._core.requests import Conflict, Run
from holdfast._core.retry import retry_idempotent
from holdfast._lua import Script, codes, whole_number

SEMAPHORE, RWLOCK = "semaphore 1", "rwlock 1"
"""Names of the formats on the server."""

ALL = 1_000_000
"""Permits of a read-write lock: a writer takes all of them."""


def _read_acquire(raw: object) -> Reply:
    match raw:
        case [codes.OTHER_COUNT, 0]:
            return Conflict("nobody has said yet how many permits there are: name a limit")
        case [codes.OTHER_COUNT, int(limit)]:
            return Conflict(f"its other users have a limit of {limit}: name the same, or change it for all (set_limit)")
        case [codes.TOO_MANY, int(limit)]:
            return Conflict(f"it wants more permits than the {limit} that there are")
        case _:
            return read_acquire(raw)


ACQUIRE: Script[Reply] = Script("permit/acquire", _read_acquire)
RELEASE: Script[int] = Script("permit/release", whole_number)
REFRESH: Script[tuple[bool, list[Reply]]] = Script("permit/refresh", read_refresh)
RENEW: Script[list[int]] = Script("permit/renew", read_list)
CHANGE: Script[int] = Script("permit/change", whole_number)

SCRIPTS = Scripts(ACQUIRE, RELEASE, REFRESH, RENEW)


class Count(NamedTuple):
    """How a semaphore stands."""

    limit: int
    used: int
    """Held; after the limit was lowered, it may be more than that."""
    waiting: int
    """Number of waiters, not of the permits that they want."""


def _read_limit(raw: object) -> Count | Conflict | None:
    match raw:
        case [1, int(limit), int(used), int(waiting)]:
            return Count(limit, used, waiting)
        case [0]:
            return None
        case _:
            reply = read_acquire(raw)
            assert isinstance(reply, Conflict)
            return reply


LIMIT: Script[Count | Conflict | None] = Script("permit/limit", _read_limit)


def semaphore(wanted: int, limit: int | None) -> Permits:
    """Return the request for permits of a semaphore of so many; None: of as many as there are."""
    return Permits(SCRIPTS, SEMAPHORE, wanted, limit)


READING = Permits(SCRIPTS, RWLOCK, 1, ALL, fixed=True)
WRITING = Permits(SCRIPTS, RWLOCK, ALL, ALL, fixed=True)


async def change(spec: Spec, token: str, permits: int, fence: int) -> bool:
    """Keep only so many of what this token holds, and its fence. False if it holds nothing any more. Raises WireError."""
    args = (token, permits, fence, milliseconds(spec.ttl), *spec.terms)
    answer = await retry_idempotent(Run(CHANGE, spec.keys, args, spec.timeout))
    return answer.value == 1


async def count(spec: Spec, kind: str, limit: int | None = None) -> Count | Conflict | None:
    """How it stands; ``limit``: set how many there are first. None where nobody has said. Raises WireError."""
    wanted = "" if limit is None else limit
    return (await retry_idempotent(Run(LIMIT, spec.keys, (kind, wanted, milliseconds(spec.ttl)), spec.timeout))).value
