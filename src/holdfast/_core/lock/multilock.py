"""Several locks, all or none of them: taken in one order by all who want some of them, so that nobody waits in a cycle.

On one server, one run of a script takes all that are free. One that is not is waited for in its own queue,
with those before it in the order held, and none of those behind it. (Ordered resources: J. W. Havender, "Avoiding deadlock in
multitasking systems", IBM Systems Journal 7, 1968.)
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from holdfast._core.lock.records import Attempt, Grant, margin
from holdfast._core.lock.replies import GRACE_S, Busy, read_list
from holdfast._core.requests import Answer, NewToken, Now, Refused, Run, RunOn, Sleep, Unknown, WireError
from holdfast._lua import Script

T = TypeVar("T")


MULTI_ACQUIRE: Script[list[int]] = Script("lock/multi_acquire", read_list)
MULTI_RELEASE: Script[list[int]] = Script("lock/multi_release", read_list)

SHORTEST_WAIT_S = 0.001
"""Seconds for which one of the locks is waited for at least: who does not wait at all goes past those who do."""


class PartLost(Exception):
    """A lock that was taken was lost while others were waited for."""


class Blocked(Busy):
    """Time ran out while one of the locks was busy."""

    part: Part


class Part(Protocol):
    """One of the locks, as it is taken, held, and given back."""

    attempt: Attempt
    home: Any
    """Driver of the operations on this lock; None: the driver of the whole."""
    group: Hashable
    """Those that one script can take have the same; None: it is taken alone."""

    def begin(self) -> None:
        """With a new attempt."""

    def take(self, wait: float | None) -> Coroutine[Any, Any, Grant | Busy]:
        """Take it as it is taken alone."""

    def hold(self, grant: Grant) -> None:
        """It was taken: from now on its lease is looked after."""

    @property
    def lost(self) -> bool:
        """It was taken, and is lost."""

    def undo(self) -> Coroutine[Any, Any, None]:
        """Leave nothing of it behind, however far it has come."""

    def hand_on(self) -> bool:
        """It is to be given back: true if that was all, because it was passed on in this process, or given back before."""

    def giving(self) -> tuple[str, bool, bool] | None:
        """Its token is to be given back by a script: token, whether a copy of the request that took it may still come, and
        whether its time has not run out. None: it is lost."""

    def given_back(self, known: bool | WireError | None) -> Coroutine[Any, Any, Exception | None]:
        """Give it back; ``known``: what came of that where a script did it for all. Answers why it was no good."""


def in_order(several: Iterable[T], place: Callable[[T], Any]) -> list[T]:
    """In the one order by which all take them: by their places, which are the same for all."""
    return sorted(several, key=place)


async def acquire(parts: Sequence[Part], wait: float | None) -> Blocked | None:
    """Take all within ``wait`` seconds (None: for ever; 0: one try each). Blocked when time ran out.

    ``parts`` are in the one order that all users of these locks go by. Any end but None, cancellation included, leaves nothing
    behind. A lock that was lost meanwhile is acquired anew, with all others.
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
    """Leave nothing behind, the last one first. An interrupt ends that for one of them, not for the others."""
    if parts:
        try:
            await there(parts[-1].undo(), parts[-1].home)
        finally:
            await undo(parts[:-1])


async def there(call: Coroutine[Any, Any, Any], home: Any) -> Any:
    """Drive an operation where it belongs."""
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
            busy = await there(gather(together, until), together[0].home)
            if busy is None:
                number += len(together)
                continue
            alone = number + busy + 1  # up to that one they are taken one by one, and the rest tried again
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
    """As many from this one on as one script can do something about."""
    group = parts[number].group
    end = number + 1
    while group is not None and end < len(parts) and parts[end].group == group:
        end += 1
    return list(parts[number:end])


async def gather(parts: Sequence[Part], until: float | None) -> int | None:
    """Take all of these at once, if they are free. None: they are held. Otherwise none is, and the number of one that is not
    free, as far as is known: it is to be taken by itself, under the token that it has."""
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
        answer = await Run(MULTI_ACQUIRE, keys, tuple(args), timeout)
    except WireError as error:
        _settle(attempts, [doubt or isinstance(error, Unknown) for doubt in doubts])
        return 0  # a request for one of them says what is wrong; or that its caller has it already
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
    """They were taken. Raises PartLost where the answer took so long that one is over."""
    for number, part in enumerate(parts):
        spec, local_queue = part.attempt.spec, part.attempt.local_queue
        deadline = answer.sent + spec.first_ttl - margin(spec.first_ttl)
        if answer.came >= deadline:
            raise PartLost
        first, last = answer.value[2 * number : 2 * number + 2]
        grant = Grant(part.attempt, first, answer.came, deadline, last=last)
        if local_queue is not None:
            local_queue.note_grant(part.attempt, grant)
        part.hold(grant)


def _lead(attempts: Sequence[Attempt]) -> bool:
    """Be the one who asks the server for each, if nobody else of this process has one of them, or wants it."""
    local_queues = [attempt.local_queue for attempt in attempts if attempt.local_queue is not None]
    if not local_queues:
        return True
    with local_queues[0].mutex:
        if any(local_queue.turn_of is not None or local_queue.held_lease is not None for local_queue in local_queues):
            return False
        for attempt in attempts:
            if attempt.local_queue is not None:
                attempt.local_queue.enter(attempt)
        return True


def _settle(attempts: Sequence[Attempt], doubts: Sequence[bool]) -> None:
    """They were not had: others of this process may ask."""
    for attempt, doubt in zip(attempts, doubts, strict=True):
        attempt.maybe_in_flight = doubt
        if attempt.local_queue is not None:
            attempt.local_queue.on_released(attempt)


async def release(parts: Sequence[Part]) -> None:
    """Give all back, the last one first, those of one server at once. Raises what was wrong with one, when all are tried."""
    try:
        wrong = await _give_back([part for part in reversed(parts) if not part.hand_on()])
    except BaseException:
        # Cancelled or interrupted, and nobody knows how far it has come, while others of this process wait for it.
        await undo(parts)
        raise
    if wrong:
        raise wrong[0]


async def _give_back(left: Sequence[Part]) -> list[Exception]:
    """These, in this order; what was wrong."""
    wrong: list[Exception] = []
    while left:
        alike = _alike(left, 0)
        known: list[bool | WireError | None] = [None] * len(alike)
        if len(alike) > 1 and all(part.giving() is not None for part in alike):
            known = await there(scatter(alike), alike[0].home)
        for part, what in zip(alike, known, strict=True):
            error = await there(part.given_back(what), part.home)
            if error is not None:
                wrong.append(error)
        left = left[len(alike) :]
    return wrong


async def scatter(parts: Sequence[Part]) -> list[bool | WireError]:
    """Give these back at once: of each, whether it was ours still; or why nobody knows."""
    tokens = [turn for part in parts if (turn := part.giving()) is not None]
    args = tuple(value for token, revoke, _ in tokens for value in (token, "bury" if revoke else "release"))
    specs = [part.attempt.spec for part in parts]
    keys = tuple(key for spec in specs for key in spec.keys)
    resent, failures = False, 0
    while True:
        timeout = min(spec.timeout for spec in specs)
        try:
            answer = await Run(MULTI_RELEASE, keys, args, timeout if not failures else min(timeout, 0.5))
        except WireError as error:
            resent = resent or isinstance(error, Unknown)
            failures += 1
            if failures == 3 or (isinstance(error, Refused) and not error.transient):
                return [error for _ in parts]
            await Sleep(0.02 * failures)
        else:
            # Another holder may have by now what a first copy of this request gave back.
            return [value == 1 or (resent and given[2]) for value, given in zip(answer.value, tokens, strict=True)]
