"""Hands on to the keeper, for both drivers: waiters that have given up, and leases. None of it takes time."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast._core.lock.records import Held, HeldLease, Waiter
    from holdfast._net.endpoint import Endpoint
    from holdfast._runtime.keeper.thread import Keeper
    from holdfast._runtime.process import Process


def unregister_waiter(process: Process, endpoint: Endpoint, waiter: Waiter) -> None:
    """It waits no more, whatever came of it."""
    keeper = process.running_keeper
    if keeper is not None:
        keeper.unregister_waiter(endpoint, waiter)


def start(process: Process, endpoint: Endpoint, held: Held) -> None:
    """Renew the lease of what is held, as long as somebody refers to it."""
    held_lease, keeper = held.held_lease, process.keeper
    held_lease.owner = keeper.refer(held, functools.partial(_dropped, keeper, endpoint, held_lease))
    keeper.watch(endpoint, held_lease)


def stop(process: Process, endpoint: Endpoint, held_lease: HeldLease) -> None:
    """Look after this lease no more."""
    keeper = process.running_keeper
    if keeper is not None:
        keeper.forget(endpoint, held_lease)


def _dropped(keeper: Keeper, endpoint: Endpoint, held_lease: HeldLease) -> None:
    """Nobody has ended what was held under this lease, and nobody can any more."""
    if held_lease.over:
        return
    held_lease.end()
    keeper.forget(endpoint, held_lease)
    keeper.send_until_answered(
        endpoint,
        held_lease.giving_back(revoke=held_lease.maybe_in_flight, timeout=held_lease.spec.timeout),
        held_lease.deadline,
    )
