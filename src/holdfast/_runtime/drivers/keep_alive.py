"""Hands on to the keeper, for both drivers: waiters that have given up, and leases. None of it takes time."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast._core.lock.records import Held, Tenure, Waiter
    from holdfast._net.endpoint import Endpoint
    from holdfast._runtime.keeper.thread import Keeper
    from holdfast._runtime.process import Process


def delist(process: Process, endpoint: Endpoint, waiter: Waiter) -> None:
    """It waits no more, whatever came of it."""
    keeper = process.running_keeper
    if keeper is not None:
        keeper.delist(endpoint, waiter)


def start(process: Process, endpoint: Endpoint, held: Held) -> None:
    """Renew the lease of what is held, as long as somebody refers to it."""
    tenure, keeper = held.tenure, process.keeper
    tenure.owner = keeper.refer(held, functools.partial(_dropped, keeper, endpoint, tenure))
    keeper.watch(endpoint, tenure)


def stop(process: Process, endpoint: Endpoint, tenure: Tenure) -> None:
    """Look after this lease no more."""
    keeper = process.running_keeper
    if keeper is not None:
        keeper.forget(endpoint, tenure)


def _dropped(keeper: Keeper, endpoint: Endpoint, tenure: Tenure) -> None:
    """Nobody has ended what was held under this lease, and nobody can any more."""
    if tenure.over:
        return
    tenure.end()
    keeper.forget(endpoint, tenure)
    keeper.send_until_answered(endpoint, tenure.giving_back(bury=tenure.doubt, timeout=tenure.spec.timeout), tenure.deadline)
