"""Access of the test tools to the keeper, the library's background thread: wait until it is idle, or make it act now.

The keeper is idle when no action is due and no reply is awaited. The test clock moves only while the keeper is idle
(`when_idle`). If time moved between a request and its reply, the keeper would believe that the server does not answer.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from holdfast._clock import clock, monotonic
from holdfast._net.endpoint import Endpoint
from holdfast._runtime.keeper.thread import Keeper
from holdfast._runtime.process import current

T = TypeVar("T")

LIMIT = 2.0
"""Longest time, in real seconds, to wait until the keeper is idle. A slow server may keep it busy for longer."""


def when_idle(then: Callable[[], None] = lambda: None, limit: float = LIMIT) -> bool:
    """Call ``then`` in the keeper's thread once the keeper is idle, or after ``limit`` real seconds if it is still busy.

    Return False if the keeper was still busy. If no keeper is running, call ``then`` in this thread.
    """
    keeper = current().running_keeper
    if keeper is None:
        then()
        return True
    give_up_at = monotonic() + limit

    def look() -> bool | None:
        idle = _idle(keeper)
        if not idle and monotonic() < give_up_at:
            return None
        then()
        return idle

    try:
        while (idle := _in_its_thread(keeper, look)) is None:
            time.sleep(0.0002)  # let the keeper get the answers that it waits for
    except _Ended:
        then()
        return True
    return idle


class _Ended(Exception):
    """Raised if the keeper ended before it called the function."""


def _in_its_thread(keeper: Keeper, what: Callable[[], T]) -> T:
    """Call a function in the keeper's thread, and return its result. Raises _Ended if the keeper ends before the call."""
    done: Future[T] = Future()

    def do() -> None:
        try:
            done.set_result(what())
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            done.set_exception(error)

    keeper.call(do)
    while not wait([done], 0.1).done:
        if keeper.ended and not done.done():
            raise _Ended
    return done.result()


def next_at() -> float:
    """Return the monotonic time, in seconds, of the keeper's next action; infinity if none is planned."""
    keeper = current().running_keeper
    if keeper is None:
        return float("inf")
    return keeper.next_at()


def _idle(keeper: Keeper) -> bool:
    return keeper.next_at() > clock() and not keeper.busy


def _with_node(endpoint: Endpoint, do: Callable[[Keeper], None]) -> None:
    """Call ``do`` in the keeper's thread, with the keeper's state for this server. If there is no such state, do nothing."""
    keeper = current().running_keeper
    if keeper is None:
        return

    def look() -> None:
        if keeper.knows(endpoint):
            do(keeper)

    with contextlib.suppress(_Ended):
        _in_its_thread(keeper, look)


def hurry(endpoint: Endpoint) -> None:
    """Make the keeper renew its leases on a server and refresh its waiters now, except leases with ``renew=False``.

    Return after the replies, or after `LIMIT` seconds if some are missing.
    """

    def all_due(keeper: Keeper) -> None:
        now, node = clock(), keeper.node(endpoint)
        with keeper.mutex:
            node.waiting.round_at = now
            for held_lease in node.renewing.held_leases():
                if held_lease.spec.renew:
                    held_lease.renew_at = now
                    node.renewing.watch(held_lease)

    _with_node(endpoint, all_due)
    when_idle()


def in_line(endpoint: Endpoint, key: bytes) -> int:
    """Return the number to add to the length of the server's queue, to get the number of waiters for a lock.

    The waiters in the local queue of this process are added. The waiters to which the server's reply is still on its way are
    subtracted: they are in the server's queue, but do not count as waiting yet.
    """
    keeper = current().running_keeper
    if keeper is None or not keeper.knows(endpoint):
        return 0
    with keeper.mutex:
        node = keeper.node(endpoint)
        here = sum(attempt.spec.keys[0] == key for attempt in node.in_line())
        return here - sum(waiter.told is None for waiter in node.waiting.waiters() if waiter.attempt.spec.keys[0] == key)


def fence(endpoint: Endpoint, token: str) -> int:
    """Return the fence of a lease of this process, which changes when the lease is handed on; 0 if there is no such lease."""
    keeper = current().running_keeper
    if keeper is None or not keeper.knows(endpoint):
        return 0
    with keeper.mutex:
        held_lease = keeper.node(endpoint).renewing.get(token)
        return held_lease.holder_fence if held_lease is not None else 0


def part(endpoint: Endpoint, why: str) -> None:
    """Make the keeper drop a server that does not come back.

    The waiters fail, the leases are marked as lost, and the connections are closed. ``why``: text for the errors.
    """

    _with_node(endpoint, lambda keeper: keeper.drop(endpoint, why))
    current().drop_pool(endpoint)
