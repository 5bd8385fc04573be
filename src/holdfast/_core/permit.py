"""Permits of semaphores and read-write locks. Waiters get the permits that they ask for, in the order of arrival.

Permits are acquired, renewed and released like a lock, by the same Python code (`_core.lock`) with other scripts. The users of
a semaphore choose its number of permits. A read-write lock has a fixed number of permits, `ALL`. A reader acquires one of them,
and a writer acquires all. So readers share the lock, and readers that arrive after a waiting writer wait behind the writer.

Sources: E. W. Dijkstra, "Cooperating sequential processes" (1965), for the semaphore; P. Courtois, F. Heymans, D. Parnas,
"Concurrent control with readers and writers" (1971), for the read-write lock; Java's ReentrantReadWriteLock(fair=true) for the
order of arrival, which lets neither readers nor writers starve.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast._core.lock.replies import Reply, Scripts, read_acquire, read_list, read_refresh
from holdfast._core.lock.spec import Permits, Spec, milliseconds
from holdfast._core.requests import Conflict, RunScript
from holdfast._core.retry import retry_idempotent
from holdfast._lua import Script, codes, whole_number

SEMAPHORE, RWLOCK = "semaphore 1", "rwlock 1"
"""Names of the data formats of a semaphore and of a read-write lock. The data on the server begin with these."""

ALL = 1_000_000
"""Number of permits of a read-write lock."""


def _read_acquire(raw: object) -> Reply:
    match raw:
        case [codes.OTHER_COUNT, 0]:
            return Conflict("the number of permits is not set yet: pass a limit")
        case [codes.OTHER_COUNT, int(limit)]:
            return Conflict(f"its other users have a limit of {limit}: pass the same limit, or call set_limit()")
        case [codes.TOO_MANY, int(limit)]:
            return Conflict(f"more permits were requested than its limit of {limit}")
        case _:
            return read_acquire(raw)


ACQUIRE: Script[Reply] = Script("permit/acquire", _read_acquire)
RELEASE: Script[int] = Script("permit/release", whole_number)
REFRESH: Script[tuple[bool, list[Reply]]] = Script("permit/refresh", read_refresh)
RENEW: Script[list[int]] = Script("permit/renew", read_list)
CHANGE: Script[int] = Script("permit/change", whole_number)

SCRIPTS = Scripts(ACQUIRE, RELEASE, REFRESH, RENEW)


class Count(NamedTuple):
    """The limit of a semaphore, and its present numbers of held permits and of waiters."""

    limit: int
    used: int
    """Number of permits that are held. It exceeds `limit` after the limit was lowered, until permits are released."""
    waiting: int
    """Number of waiters, each of which may want several permits."""

    @property
    def free(self) -> int:
        return max(0, self.limit - self.used)


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
    """Return the description of ``wanted`` permits of a semaphore.

    ``limit``: total number of permits of the semaphore; None: the number that other clients have set.
    """
    return Permits(SCRIPTS, SEMAPHORE, wanted, limit)


READING = Permits(SCRIPTS, RWLOCK, 1, ALL, fixed=True)
WRITING = Permits(SCRIPTS, RWLOCK, ALL, ALL, fixed=True)


async def change(spec: Spec, token: str, permits: int, fence: int) -> bool:
    """Reduce the number of permits that a token holds to ``permits``. Return False if the token holds no permits.

    If the token holds fewer permits already, nothing is changed, and the result is True. ``fence``: fence of the token, which
    is used only if the server has lost its own record of this fence. Raises WireError if the server is unreachable.
    """
    args = (token, permits, fence, milliseconds(spec.ttl), *spec.terms)
    answer = await retry_idempotent(RunScript(CHANGE, spec.keys, args, spec.timeout))
    return answer.value == 1


async def count(spec: Spec, kind: str, limit: int | None = None) -> Count | Conflict | None:
    """Return the limit of a semaphore or read-write lock, and its numbers of held permits and of waiters.

    ``kind``: format of the data, `SEMAPHORE` or `RWLOCK`. ``limit``: limit to set first; None: set no limit. Return None if no
    limit was ever set, and Conflict if the key holds other data. Raises WireError if the server is unreachable.
    """
    wanted = "" if limit is None else limit
    return (await retry_idempotent(RunScript(LIMIT, spec.keys, (kind, wanted, milliseconds(spec.ttl)), spec.timeout))).value
