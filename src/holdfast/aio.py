"""The locks, caches, schedules and other classes of `holdfast` for asyncio, under the same names.

    import holdfast.aio

    db = holdfast.aio.connect("redis://localhost")         # or a client of redis.asyncio or valkey.asyncio
    async with db.lock("invoice:42", wait=5) as lease:     # LockTimeout if it is still busy after 5 seconds
        print("nobody else has the lock; fence", lease.fence)

``help(holdfast)`` lists the classes by what they are for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._api.decorator import locked
from holdfast._api.lease import AioLease as Lease
from holdfast._api.lease import AioLockLease as LockLease
from holdfast._api.lease import AioTerm as Term
from holdfast._api.lock import AioFairLock as FairLock
from holdfast._api.lock import AioLock as Lock
from holdfast._lazy import later
from holdfast._runtime.drivers.aio import close
from holdfast.errors import (
    CommandFailed,
    ConfigError,
    Deadlock,
    HolderChanged,
    HoldfastError,
    HoldfastWarning,
    InProgress,
    LeaseLost,
    LockTimeout,
    NoCandidate,
    NotHeld,
    QuorumError,
    ReleasedTooOften,
    ResultNotKept,
    ServerError,
    TicketRefused,
    TransactionConflict,
)

if TYPE_CHECKING:
    from holdfast._api.asyncio_errors import BrokenBarrier
    from holdfast._api.barrier import AioBarrier as Barrier
    from holdfast._api.cache.cache import AioCache as Cache
    from holdfast._api.cache.memoize import AioMemoized as Memoized
    from holdfast._api.cache.options import CacheStatistics
    from holdfast._api.deadlock import Cycle, CycleWaiter
    from holdfast._api.deadlock import aio_find_deadlocks as find_deadlocks
    from holdfast._api.election import AioElection as Election
    from holdfast._api.election import Elected
    from holdfast._api.event import AioCountDownLatch as CountDownLatch
    from holdfast._api.event import AioEvent as Event
    from holdfast._api.inspect import Broken, Holder, LockInfo, Waiter
    from holdfast._api.inspector import AioInspector as Inspector
    from holdfast._api.multilock import AioMultiLease as MultiLease
    from holdfast._api.multilock import AioMultiLock as MultiLock
    from holdfast._api.once import AioOnce as Once
    from holdfast._api.once import Outcome, Running
    from holdfast._api.once import aio_once as once
    from holdfast._api.redeem import AioRedeemedLock as RedeemedLock
    from holdfast._api.redeem import aio_redeem as redeem
    from holdfast._api.redlock import AioRedlock as Redlock
    from holdfast._api.redlock import aio_declare_new as declare_new
    from holdfast._api.rlock import AioRLock as RLock
    from holdfast._api.rwlock import AioReadSide as ReadSide
    from holdfast._api.rwlock import AioRWLock as RWLock
    from holdfast._api.rwlock import AioWriteLease as WriteLease
    from holdfast._api.rwlock import AioWriteSide as WriteSide
    from holdfast._api.semaphore import AioBoundedSemaphore as BoundedSemaphore
    from holdfast._api.semaphore import AioSemaphore as Semaphore
    from holdfast._api.statistics import LockStatistics
    from holdfast._api.ticket import Ticket
    from holdfast._api.transaction import AioTransaction as Transaction
    from holdfast._api.transaction import aio_transaction as transaction
    from holdfast._api.transactional import transactional
    from holdfast._connection import AioConnection as Connection
    from holdfast._connection import aio_connect as connect
    from holdfast.schedule.schedule import AioSchedule as Schedule

__all__ = [
    "Barrier", "BoundedSemaphore", "Broken", "BrokenBarrier", "Cache", "CacheStatistics", "CommandFailed", "ConfigError",
    "Connection", "CountDownLatch", "Cycle", "CycleWaiter", "Deadlock", "Elected", "Election", "Event", "FairLock", "Holder",
    "HolderChanged", "HoldfastError", "HoldfastWarning", "InProgress", "Inspector", "Lease", "LeaseLost", "Lock", "LockInfo",
    "LockLease", "LockStatistics", "LockTimeout", "Memoized", "MultiLease", "MultiLock", "NoCandidate", "NotHeld", "Once",
    "Outcome", "QuorumError", "RLock", "RWLock", "ReadSide", "RedeemedLock", "Redlock", "ReleasedTooOften", "ResultNotKept",
    "Running", "Schedule", "Semaphore", "ServerError", "Term", "Ticket", "TicketRefused", "Transaction", "TransactionConflict",
    "Waiter", "WriteLease", "WriteSide", "close", "connect", "declare_new", "find_deadlocks", "locked", "once", "redeem",
    "transaction", "transactional",
]  # fmt: skip

_LATER = {
    "Barrier": "holdfast._api.barrier:AioBarrier",
    "BoundedSemaphore": "holdfast._api.semaphore:AioBoundedSemaphore",
    "Broken": "holdfast._api.inspect",
    "BrokenBarrier": "holdfast._api.asyncio_errors",
    "Cache": "holdfast._api.cache.cache:AioCache",
    "CacheStatistics": "holdfast._api.cache.options",
    "connect": "holdfast._connection:aio_connect",
    "Connection": "holdfast._connection:AioConnection",
    "CountDownLatch": "holdfast._api.event:AioCountDownLatch",
    "Cycle": "holdfast._core.deadlock.cycles",
    "CycleWaiter": "holdfast._core.deadlock.cycles",
    "declare_new": "holdfast._api.redlock:aio_declare_new",
    "Elected": "holdfast._core.election",
    "Election": "holdfast._api.election:AioElection",
    "Event": "holdfast._api.event:AioEvent",
    "find_deadlocks": "holdfast._api.deadlock:aio_find_deadlocks",
    "Holder": "holdfast._api.inspect",
    "Inspector": "holdfast._api.inspector:AioInspector",
    "LockInfo": "holdfast._api.inspect",
    "LockStatistics": "holdfast._api.statistics",
    "Memoized": "holdfast._api.cache.memoize:AioMemoized",
    "MultiLease": "holdfast._api.multilock:AioMultiLease",
    "MultiLock": "holdfast._api.multilock:AioMultiLock",
    "Once": "holdfast._api.once:AioOnce",
    "once": "holdfast._api.once:aio_once",
    "Outcome": "holdfast._api.once",
    "ReadSide": "holdfast._api.rwlock:AioReadSide",
    "redeem": "holdfast._api.redeem:aio_redeem",
    "RedeemedLock": "holdfast._api.redeem:AioRedeemedLock",
    "Redlock": "holdfast._api.redlock:AioRedlock",
    "RLock": "holdfast._api.rlock:AioRLock",
    "Running": "holdfast._api.once",
    "RWLock": "holdfast._api.rwlock:AioRWLock",
    "Schedule": "holdfast.schedule.schedule:AioSchedule",
    "Semaphore": "holdfast._api.semaphore:AioSemaphore",
    "Ticket": "holdfast._api.ticket",
    "Transaction": "holdfast._api.transaction:AioTransaction",
    "transaction": "holdfast._api.transaction:aio_transaction",
    "transactional": "holdfast._api.transactional",
    "Waiter": "holdfast._api.inspect",
    "WriteLease": "holdfast._api.rwlock:AioWriteLease",
    "WriteSide": "holdfast._api.rwlock:AioWriteSide",
}
"""Maps each public name that is imported at its first use (PEP 562) to its module, so that ``import holdfast.aio`` is quick."""

if not TYPE_CHECKING:
    __getattr__ = later(globals(), _LATER, "holdfast._api.foreign_words")
