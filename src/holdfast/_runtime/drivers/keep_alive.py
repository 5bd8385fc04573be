"""Functions by which drivers (for threads and for asyncio) pass waiters and leases to the keeper. None of them blocks."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast._core.lock.ports import LeaseOwner
    from holdfast._core.lock.records import HeldLease, Waiter
    from holdfast._net.endpoint import Endpoint
    from holdfast._runtime.keeper.thread import Keeper
    from holdfast._runtime.process import Process


def unregister_waiter(process: Process, endpoint: Endpoint, waiter: Waiter) -> None:
    """Have the keeper stop refreshing the entry of a waiter in the server's queue, because the wait has ended."""
    keeper = process.running_keeper
    if keeper is not None:
        keeper.unregister_waiter(endpoint, waiter)


def start(process: Process, endpoint: Endpoint, held: LeaseOwner) -> None:
    """Have the keeper renew a lease until it is released, or until the object that owns it is garbage-collected."""
    held_lease, keeper = held.held_lease, process.keeper
    held_lease.owner = keeper.refer(held, functools.partial(_dropped, keeper, endpoint, held_lease))
    keeper.watch(endpoint, held_lease)


def stop(process: Process, endpoint: Endpoint, held_lease: HeldLease) -> None:
    keeper = process.running_keeper
    if keeper is not None:
        keeper.forget(endpoint, held_lease)


def _dropped(keeper: Keeper, endpoint: Endpoint, held_lease: HeldLease) -> None:
    """Release a lease that was not released before its owner was garbage-collected."""
    if held_lease.over:
        return
    held_lease.end()
    keeper.forget(endpoint, held_lease)
    keeper.send_until_answered(
        endpoint,
        held_lease.giving_back(revoke=held_lease.maybe_in_flight, timeout=held_lease.spec.timeout),
        held_lease.latest,
    )
