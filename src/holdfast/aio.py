"""Locks for asyncio, with the same names and the same behaviour as those of `holdfast`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._api.aio_lease import Term
from holdfast._api.aio_lock import FairLock, Lease, Lock
from holdfast._api.decorator import locked
from holdfast._lazy import later
from holdfast._runtime.drivers.aio import close

if TYPE_CHECKING:
    from holdfast._api.aio_barrier import Barrier
    from holdfast._api.aio_deadlock import find_deadlocks
    from holdfast._api.aio_election import Election
    from holdfast._api.aio_event import CountDownLatch, Event
    from holdfast._api.aio_inspect import Inspector
    from holdfast._api.aio_multilock import MultiLease, MultiLock
    from holdfast._api.aio_once import Once, once
    from holdfast._api.aio_redlock import Redlock
    from holdfast._api.aio_rlock import RLock
    from holdfast._api.aio_rwlock import RWLock
    from holdfast._api.aio_semaphore import BoundedSemaphore, Semaphore
    from holdfast._api.aio_ticket import RedeemedLock, redeem
    from holdfast._api.aio_transaction import Transaction, transaction
    from holdfast._api.cache.aio_cache import Cache
    from holdfast._api.transactional import transactional
    from holdfast.schedule.aio import Schedule

__all__ = [
    "Barrier", "BoundedSemaphore", "Cache", "CountDownLatch", "Election", "Event", "FairLock", "Inspector", "Lease", "Lock",
    "MultiLease", "MultiLock", "Once", "RLock", "RWLock", "RedeemedLock", "Redlock", "Schedule", "Semaphore", "Term",
    "Transaction", "close", "find_deadlocks", "locked", "once", "redeem", "transaction", "transactional",
]  # fmt: skip

_LATER = {
    "Barrier": "holdfast._api.aio_barrier",
    "BoundedSemaphore": "holdfast._api.aio_semaphore",
    "Cache": "holdfast._api.cache.aio_cache",
    "CountDownLatch": "holdfast._api.aio_event",
    "Election": "holdfast._api.aio_election",
    "Event": "holdfast._api.aio_event",
    "MultiLease": "holdfast._api.aio_multilock",
    "MultiLock": "holdfast._api.aio_multilock",
    "RLock": "holdfast._api.aio_rlock",
    "RWLock": "holdfast._api.aio_rwlock",
    "Redlock": "holdfast._api.aio_redlock",
    "Schedule": "holdfast.schedule.aio",
    "Semaphore": "holdfast._api.aio_semaphore",
    "Transaction": "holdfast._api.aio_transaction",
    "find_deadlocks": "holdfast._api.aio_deadlock",
    "Inspector": "holdfast._api.aio_inspect",
    "Once": "holdfast._api.aio_once",
    "once": "holdfast._api.aio_once",
    "RedeemedLock": "holdfast._api.aio_ticket",
    "redeem": "holdfast._api.aio_ticket",
    "transaction": "holdfast._api.aio_transaction",
    "transactional": "holdfast._api.transactional",
}
"""Module of each public name that is imported at its first use, because locks do not need it."""

if not TYPE_CHECKING:
    __getattr__ = later(globals(), _LATER)
