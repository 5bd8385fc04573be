"""Access of the test tools to the keeper of this process, in the keeper's own thread.

The tools wait until the keeper is idle, hurry it, and part it from a server that is gone.

The keeper is idle when nothing is due and no answer is awaited. A step of the clock between a request and its answer would
be taken for a server that keeps silent, so the clock steps only then (`when_idle`).
"""

# ruff: noqa: SLF001  (the test tools belong to the library: they may look inside)

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from holdfast._clock import clock
from holdfast._core.lock.node import Node
from holdfast._core.requests import NotSent
from holdfast._net.endpoint import Endpoint
from holdfast._runtime.keeper.thread import Keeper
from holdfast._runtime.process import current

T = TypeVar("T")

LIMIT = 2.0
"""Real seconds for which the keeper is waited for at most: a server that is away or slow keeps it busy for longer."""


def when_idle(then: Callable[[], None] = lambda: None, limit: float = LIMIT) -> bool:
    """Call ``then`` in the keeper's thread at a moment when it is idle, at the latest after ``limit`` real seconds; here,
    if there is no keeper. Returns when that is done: False if the keeper was not idle."""
    keeper = current().running_keeper
    if keeper is None:
        then()
        return True
    give_up_at = time.monotonic() + limit

    def look() -> bool | None:
        idle = _idle(keeper)
        if not idle and time.monotonic() < give_up_at:
            return None
        then()
        return idle

    try:
        while (idle := _in_its_thread(keeper, look)) is None:
            time.sleep(0.0002)  # for the answers it waits for
    except _Ended:
        then()
        return True
    return idle


class _Ended(Exception):
    """The keeper was closed meanwhile, by another thread."""


def _in_its_thread(keeper: Keeper, what: Callable[[], T]) -> T:
    """Have the keeper's thread do something. Raises _Ended if it has not been done."""
    done: Future[T] = Future()

    def do() -> None:
        try:
            done.set_result(what())
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            done.set_exception(error)

    keeper.call(do)
    while not wait([done], 0.1).done:
        if keeper.ended and not done.done():
            raise _Ended
    return done.result()


def next_at() -> float:
    """When the keeper has something to do next (local seconds; infinity: never)."""
    keeper = current().running_keeper
    if keeper is None:
        return float("inf")
    with keeper.mutex:
        return min((node.next_at() for node in keeper._nodes.values()), default=float("inf"))


def _idle(keeper: Keeper) -> bool:
    now = clock()
    with keeper.mutex:
        due = any(node.next_at() <= now for node in keeper._nodes.values())
    return not due and not any(link.busy for link in keeper._links)


def _with_node(endpoint: Endpoint, do: Callable[[Keeper, Node], None]) -> None:
    """Do something with what the keeper knows of a server, in its thread; nothing, if it knows nothing of it."""
    keeper = current().running_keeper
    if keeper is None:
        return

    def look() -> None:
        node = keeper._nodes.get(endpoint)
        if node is not None:
            do(keeper, node)

    with contextlib.suppress(_Ended):
        _in_its_thread(keeper, look)


def hurry(endpoint: Endpoint) -> None:
    """Have the keeper renew its leases on a server now, and ask for its waiters. Returns when it has the answers."""

    def all_due(keeper: Keeper, node: Node) -> None:
        now = clock()
        with keeper.mutex:
            node.waiting.round_at = now
            for held_lease in node.renewing.held_leases():
                if held_lease.spec.renew:
                    held_lease.renew_at = now
                    node.renewing.watch(held_lease)

    _with_node(endpoint, all_due)
    when_idle()


def in_line(endpoint: Endpoint, key: bytes) -> int:
    """How many more wait for a lock than the server can say: who stands in line in this process, less those who have a place
    in the queue and have not had the answer yet that says so."""
    keeper = current().running_keeper
    if keeper is None:
        return 0
    with keeper.mutex:
        node = keeper._nodes.get(endpoint)
        waiters = list(node.waiting._waiters.values()) if node is not None else []
        here = (
            sum(len(local_queue.queue) for (of, _), local_queue in node._local_queues.items() if of == key)
            if node is not None
            else 0
        )
    return here - sum(waiter.told is None for waiter in waiters if waiter.attempt.spec.keys[0] == key)


def fence(endpoint: Endpoint, token: str) -> int:
    """The last fence of a lease of this process: it may have been passed on since the server gave it. 0: not ours."""
    keeper = current().running_keeper
    if keeper is None:
        return 0
    with keeper.mutex:
        node = keeper._nodes.get(endpoint)
        held_lease = node.renewing.get(token) if node is not None else None
        local_queue = (
            node._local_queues.get((held_lease.spec.keys[0], held_lease.spec.prefix))
            if node is not None and held_lease is not None
            else None
        )
        return local_queue.fence if local_queue is not None and local_queue.held_lease is held_lease else 0


def part(endpoint: Endpoint, why: str) -> None:
    """A server is gone for good: its waiters are told, leases are lost, its connections are closed."""

    def end(keeper: Keeper, node: Node) -> None:
        with keeper.mutex:
            del keeper._nodes[endpoint]
            node.close(NotSent(why, endpoint.address))
            lost = [held_lease for held_lease in node.renewing.held_leases() if held_lease.lose(why)]
        for link in [link for link in keeper._links if link._endpoint is endpoint]:
            keeper._links.remove(link)
            link.close()
        for held_lease in lost:
            keeper.safely(keeper.report, held_lease)

    _with_node(endpoint, end)
    pool = current()._pools.pop(endpoint, None)
    if pool is not None:
        pool.clear()
