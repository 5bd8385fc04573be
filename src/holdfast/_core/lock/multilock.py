"""Acquire several locks, all or none. All clients acquire locks in the same order, so that their waits never form a cycle.

The locks are acquired one after the other, in this order. Locks that are neighbours in this order, and on one server, are
acquired with one script if all of them are free. At a busy lock, the attempt waits in that lock's queue. Meanwhile it holds all
locks that come earlier in the order, and none that come later. Source: J. W. Havender, "Avoiding deadlock in multitasking
systems", IBM Systems Journal 7, 1968.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from holdfast._core.lock.acquire import register_lease
from holdfast._core.lock.records import Attempt, Grant
from holdfast._core.lock.replies import GRACE_S, Busy, read_list
from holdfast._core.lock.spec import margin
from holdfast._core.requests import Answer, NewToken, Now, Refused, RunOn, RunScript, Sleep, Unknown, WireError
from holdfast._lua import Script

T = TypeVar("T")


MULTI_ACQUIRE: Script[list[int]] = Script("lock/multi_acquire", read_list)
MULTI_RELEASE: Script[list[int]] = Script("lock/multi_release", read_list)

SHORTEST_WAIT_S = 0.001
"""Seconds to wait for one of the locks if the time is nearly up.

With a wait of 0, the attempt would not join the queue, and might overtake the waiters in it.
"""


class PartLost(Exception):
    """Raised if one of the locks is lost before all of them are acquired."""


class Blocked(Busy):
    """The result of an acquisition whose time ran out because one of the locks, `part`, was busy."""

    part: Part


class Part(Protocol):
    """One of the locks of a MultiLock, with the operations to acquire and to release it."""

    attempt: Attempt
    home: Any
    """Driver of the server that has this lock; None: the driver of the whole operation. A driver carries out requests."""
    group: Hashable
    """Value that is equal for locks that one script can acquire together; None: a script acquires this lock alone."""

    def begin(self) -> None:
        """Start a new attempt to acquire this lock."""

    def take(self, wait: float | None) -> Coroutine[Any, Any, Grant | Busy]:
        """Acquire this lock alone, within ``wait`` seconds (None: without limit; 0: one try). Return Busy if it stays busy."""

    def hold(self, grant: Grant) -> None:
        """Store the lease of this grant, which the keeper renews already."""

    @property
    def lost(self) -> bool:
        """Return True if this lock was acquired and its lease is lost."""

    def undo(self) -> Coroutine[Any, Any, None]:
        """Release this lock if it was acquired, and remove what the attempt left on the server and in this process."""

    def hand_on(self) -> bool:
        """Begin the release of this lock, and hand it on to a waiter of this process if there is one.

        Return True if the lock need not be released on the server, because it was handed on or was released before.
        """

    def giving(self) -> tuple[str, bool, bool] | None:
        """Return the data that a script needs to release this lock; None: the lease is lost.

        The data are the token, whether a copy of the acquire request may still arrive, and whether the lease is still valid.
        """

    def given_back(self, known: bool | WireError | None) -> Coroutine[Any, Any, Exception | None]:
        """Finish the release of this lock, and return its error, or None if it succeeded.

        ``known``: report, about this lock, of the script that released several locks. True: the lock was held. False: it was
        not held. An error: the script failed. None: no such script was run.
        """


def in_order(several: Iterable[T], place: Callable[[T], Any]) -> list[T]:
    return sorted(several, key=place)


async def acquire(parts: Sequence[Part], wait: float | None) -> Blocked | None:
    """Acquire all locks within ``wait`` seconds. Return None on success, and Blocked if one of them was busy for too long.

    ``parts``: the locks, in the order that all clients use. ``wait``: None (without limit), 0 (try each lock once) or more. If
    one of the locks is lost meanwhile, all locks are released and acquired again. Unless None is returned, no lock is held
    afterwards, even after a cancellation.
    """
    until = None if wait is None else await Now() + wait
    while True:
        for part in parts:
            part.begin()
        try:
            blocked = await _in_order(parts, until, at_once=wait == 0)
        except PartLost:
            await undo(parts)
            continue
        except BaseException:
            await undo(parts)
            raise
        if blocked is not None:
            await undo(parts)
        return blocked


async def undo(parts: Sequence[Part]) -> None:
    """Release all locks, or give up the attempts to acquire them, in the reverse order of their acquisition.

    If an interrupt ends the clean-up of one lock, the other locks are still cleaned up.
    """
    if parts:
        try:
            await there(parts[-1].undo(), parts[-1].home)
        finally:
            await undo(parts[:-1])


async def there(call: Coroutine[Any, Any, Any], home: Any) -> Any:
    """Run an operation with the driver ``home``; None: with the driver of the caller."""
    return await (call if home is None else RunOn(home, call))


async def _in_order(parts: Sequence[Part], until: float | None, *, at_once: bool) -> Blocked | None:
    number = alone = 0
    while True:
        if any(part.lost for part in parts[:number]):
            raise PartLost
        if number == len(parts):
            return None
        together = _alike(parts, number)
        if len(together) > 1 and number >= alone:
            busy = await there(multi_acquire(together, until), together[0].home)
            if busy is None:
                number += len(together)
                continue
            alone = number + busy + 1  # acquire the locks up to the busy one alone, and then try the rest together again
        part = parts[number]
        left = 0.0 if at_once else None if until is None else max(SHORTEST_WAIT_S, until - await Now())
        result = await there(part.take(left), part.home)
        if isinstance(result, Busy):
            blocked = Blocked(*result)
            blocked.part = part
            return blocked
        part.hold(result)
        number += 1


def _alike(parts: Sequence[Part], number: int) -> list[Part]:
    """Return the lock with index ``number``, and the locks after it that one script can acquire or release together with it."""
    group = parts[number].group
    end = number + 1
    while group is not None and end < len(parts) and parts[end].group == group:
        end += 1
    return list(parts[number:end])


async def multi_acquire(parts: Sequence[Part], until: float | None) -> int | None:
    """Acquire all these locks with one script, if all of them are free. Return None on success.

    Otherwise acquire none of them, and return the index of a lock that is probably busy. The caller then acquires that lock
    alone, under the same token.
    """
    attempts = [part.attempt for part in parts]
    if not _lead(attempts):
        return 0
    doubts = [attempt.maybe_in_flight for attempt in attempts]
    for attempt in attempts:
        attempt.token = attempt.token or attempt.spec.token(await NewToken())
        attempt.may_be_on_server = attempt.maybe_in_flight = True
    now = await Now()
    timeout = min(attempt.spec.timeout for attempt in attempts)
    if until is not None:
        timeout = max(0.05, min(timeout, until + GRACE_S - now))
    args = [value for attempt in attempts for value in (attempt.token, attempt.spec.first_ms)]
    keys = tuple(key for attempt in attempts for key in attempt.spec.keys)
    try:
        answer = await RunScript(MULTI_ACQUIRE, keys, tuple(args), timeout)
    except WireError as error:
        _settle(attempts, [doubt or isinstance(error, Unknown) for doubt in doubts])
        return 0  # the caller then asks for the first lock alone, and learns whether a request without a reply has acquired it
    if len(answer.value) < 2 * len(parts):
        _settle(attempts, doubts)
        for attempt in attempts:
            attempt.may_be_on_server = attempt.maybe_in_flight
        return answer.value[0] - 1
    for attempt, doubt in zip(attempts, doubts, strict=True):
        attempt.maybe_in_flight = doubt
    _hold(parts, answer)
    return None


def _hold(parts: Sequence[Part], answer: Answer[list[int]]) -> None:
    """Register and store the leases of the locks that the script acquired.

    Raises PartLost if one of the leases had expired when the reply arrived.
    """
    for number, part in enumerate(parts):
        spec = part.attempt.spec
        deadline = answer.sent + spec.first_ttl - margin(spec.first_ttl)
        if answer.came >= deadline:
            raise PartLost
        first, last = answer.value[2 * number : 2 * number + 2]
        part.hold(register_lease(part.attempt, Grant(part.attempt, first, answer.came, deadline, last=last)))


def _lead(attempts: Sequence[Attempt]) -> bool:
    """Let each attempt ask the server, as the first in the local queue of its lock.

    Return False, and change nothing, if this process already holds one of the locks or waits for it.
    """
    local_queues = [attempt.local_queue for attempt in attempts if attempt.local_queue is not None]
    if not local_queues:
        return True
    with local_queues[0].mutex:
        if not all(local_queue.is_free for local_queue in local_queues):
            return False
        for attempt in attempts:
            if attempt.local_queue is not None:
                attempt.local_queue.lead(attempt)
        return True


def _settle(attempts: Sequence[Attempt], doubts: Sequence[bool]) -> None:
    """Let the next waiters of this process ask the server for the locks, because these attempts have not acquired them.

    ``doubts``: for each attempt, whether a copy of its request may still arrive.
    """
    for attempt, doubt in zip(attempts, doubts, strict=True):
        attempt.maybe_in_flight = doubt
        if attempt.local_queue is not None:
            attempt.local_queue.on_released(attempt)


async def release(parts: Sequence[Part]) -> None:
    """Release all locks, in the reverse order of their acquisition. Locks on one server are released with one script.

    If some releases fail, the others are still carried out. Then the first error is raised.
    """
    try:
        wrong = await _give_back([part for part in reversed(parts) if not part.hand_on()])
    except BaseException:
        # Cancelled or interrupted. Nobody knows which locks are released, and other attempts of this process may wait for them.
        await undo(parts)
        raise
    if wrong:
        raise wrong[0]


async def _give_back(left: Sequence[Part]) -> list[Exception]:
    wrong: list[Exception] = []
    while left:
        alike = _alike(left, 0)
        known: list[bool | WireError | None] = [None] * len(alike)
        if len(alike) > 1 and all(part.giving() is not None for part in alike):
            known = await there(multi_release(alike), alike[0].home)
        for part, what in zip(alike, known, strict=True):
            error = await there(part.given_back(what), part.home)
            if error is not None:
                wrong.append(error)
        left = left[len(alike) :]
    return wrong


async def multi_release(parts: Sequence[Part]) -> list[bool | WireError]:
    """Release these locks with one script. Return for each lock whether it was still held, or the error of the request."""
    tokens = [turn for part in parts if (turn := part.giving()) is not None]
    args = tuple(value for token, revoke, _ in tokens for value in (token, "bury" if revoke else "release"))
    specs = [part.attempt.spec for part in parts]
    keys = tuple(key for spec in specs for key in spec.keys)
    resent, failures = False, 0
    while True:
        timeout = min(spec.timeout for spec in specs)
        try:
            answer = await RunScript(MULTI_RELEASE, keys, args, timeout if not failures else min(timeout, 0.5))
        except WireError as error:
            resent = resent or isinstance(error, Unknown)
            failures += 1
            if failures == 3 or (isinstance(error, Refused) and not error.transient):
                return [error for _ in parts]
            await Sleep(0.02 * failures)
        else:
            # A repeated request may find a lock that the first copy released. It was held if its lease has not expired.
            return [value == 1 or (resent and given[2]) for value, given in zip(answer.value, tokens, strict=True)]
