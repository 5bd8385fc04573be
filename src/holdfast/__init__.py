"""Distributed locks on the Redis or Valkey server you already run: fair, fenced, and quick to hand over.

    import holdfast

    db = holdfast.connect("redis://localhost")       # or a client of redis-py or valkey-py
    with db.lock("invoice:42", wait=5) as lease:     # LockTimeout if it is still busy after 5 seconds
        print("nobody else has the lock; fence", lease.fence)

Each method of ``db`` is also a class or function that takes the client as its first argument: `Lock(client, "invoice:42")`.
The URL `local://` starts a server on this machine (``pip install "holdfast[server]"``). The names by task:

* one holder at a time: `Lock`, `FairLock`, `RLock`, `MultiLock`, `locked` (a decorator), `Redlock` (several servers)
* a number of holders, or readers and a writer: `Semaphore`, `BoundedSemaphore`, `RWLock`
* one leader: `Election`
* a function runs once for each key: `once`
* cached values, each loaded by one caller: `Cache`
* scheduled jobs, each run by one of all machines: `Schedule`
* wait for each other: `Event`, `Barrier`, `CountDownLatch`
* change several keys together: `transaction`, `transactional`
* refuse late writes of a former holder: `holdfast.fencing`
* continue in another process with a held lock: `redeem`, with the `Ticket` of ``lease.ticket()``
* see who holds a lock, or end its lease: `Inspector`, `find_deadlocks`; in a shell, ``holdfast --help``
* several servers for the first time: `declare_new`; at the end of a program: `close`

All errors about a lock or a server are subclasses of `HoldfastError` (module `holdfast.errors`). `holdfast.aio` has the same
names for asyncio, without the modules `fencing` and `legacy`. `holdfast.testing` has a server in memory for tests, and
`holdfast.legacy` has the timestamp lock.
"""

# General layout: `_api` has the public classes. For each of them, a base class has the flows (`_api.flow`), and there is one
# class for threads and one for asyncio. `_core` has the algorithms. Each algorithm is an ``async def`` that does no I/O itself,
# but awaits request objects (`_core.requests`). Start reading at `_api.acquisition`. `_runtime` carries out these requests,
# in the calling thread, in the calling task, or in the keeper. The keeper is the background thread that renews leases and
# receives hand-overs. `_net` opens connections and speaks the Redis protocol. `_lua` has the scripts that run on the server.
# `_local` starts servers on this machine, and ends commands when the process that started them has ended. The packages
# `schedule`, `cli`, `doctor`, `legacy` (the timestamp lock) and `testing` (a server in memory, a clock for tests, recordings)
# use all of these.

from typing import TYPE_CHECKING

from holdfast._lazy import later
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
    from holdfast import aio, fencing, legacy
    from holdfast._api.barrier import Barrier, BrokenBarrier
    from holdfast._api.cache.cache import Cache, CacheStatistics, Memoized
    from holdfast._api.deadlock import Cycle, CycleWaiter, find_deadlocks
    from holdfast._api.decorator import locked
    from holdfast._api.election import Elected, Election
    from holdfast._api.event import CountDownLatch, Event
    from holdfast._api.inspect import Broken, Holder, LockInfo, Waiter
    from holdfast._api.inspector import Inspector
    from holdfast._api.lease import Lease, LockLease, Term
    from holdfast._api.lock import FairLock, Lock
    from holdfast._api.multilock import MultiLease, MultiLock
    from holdfast._api.once import Once, Outcome, Running, once
    from holdfast._api.redeem import RedeemedLock, redeem
    from holdfast._api.redlock import Redlock, declare_new
    from holdfast._api.rlock import RLock
    from holdfast._api.rwlock import ReadSide, RWLock, WriteLease, WriteSide
    from holdfast._api.semaphore import BoundedSemaphore, Semaphore
    from holdfast._api.statistics import LockStatistics
    from holdfast._api.ticket import Ticket
    from holdfast._api.transaction import Transaction, transaction
    from holdfast._api.transactional import transactional
    from holdfast._connection import Connection, connect
    from holdfast._durations import Seconds
    from holdfast._net.clients import AsyncClient, SyncClient
    from holdfast._runtime.process import close
    from holdfast.schedule import Schedule

__version__ = "0.1.0"

__all__ = [
    "AsyncClient", "Barrier", "BoundedSemaphore", "Broken", "BrokenBarrier", "Cache", "CacheStatistics", "CommandFailed",
    "ConfigError", "Connection", "CountDownLatch", "Cycle", "CycleWaiter", "Deadlock", "Elected", "Election", "Event",
    "FairLock", "Holder", "HolderChanged", "HoldfastError", "HoldfastWarning", "InProgress", "Inspector", "Lease",
    "LeaseLost", "Lock", "LockInfo", "LockLease", "LockStatistics", "LockTimeout", "Memoized", "MultiLease", "MultiLock",
    "NoCandidate", "NotHeld", "Once", "Outcome", "QuorumError", "RLock", "RWLock", "ReadSide", "RedeemedLock", "Redlock",
    "ReleasedTooOften", "ResultNotKept", "Running", "Schedule", "Seconds", "Semaphore", "ServerError", "SyncClient", "Term",
    "Ticket", "TicketRefused", "Transaction", "TransactionConflict", "Waiter", "WriteLease", "WriteSide", "aio", "close",
    "connect", "declare_new", "fencing", "find_deadlocks", "legacy", "locked", "once", "redeem", "transaction",
    "transactional",
]  # fmt: skip

_LATER = {
    "aio": "holdfast.aio",
    "AsyncClient": "holdfast._net.clients",
    "Barrier": "holdfast._api.barrier",
    "BoundedSemaphore": "holdfast._api.semaphore",
    "Broken": "holdfast._api.inspect",
    "BrokenBarrier": "holdfast._api.barrier",
    "Cache": "holdfast._api.cache.cache",
    "CacheStatistics": "holdfast._api.cache.options",
    "close": "holdfast._runtime.process",
    "connect": "holdfast._connection",
    "Connection": "holdfast._connection",
    "CountDownLatch": "holdfast._api.event",
    "Cycle": "holdfast._core.deadlock.cycles",
    "CycleWaiter": "holdfast._core.deadlock.cycles",
    "declare_new": "holdfast._api.redlock",
    "Elected": "holdfast._core.election",
    "Election": "holdfast._api.election",
    "Event": "holdfast._api.event",
    "FairLock": "holdfast._api.lock",
    "fencing": "holdfast.fencing",
    "find_deadlocks": "holdfast._api.deadlock",
    "Holder": "holdfast._api.inspect",
    "Inspector": "holdfast._api.inspector",
    "Lease": "holdfast._api.lease",
    "legacy": "holdfast.legacy",
    "Lock": "holdfast._api.lock",
    "locked": "holdfast._api.decorator",
    "LockInfo": "holdfast._api.inspect",
    "LockLease": "holdfast._api.lease",
    "LockStatistics": "holdfast._api.statistics",
    "Memoized": "holdfast._api.cache.memoize",
    "MultiLease": "holdfast._api.multilock",
    "MultiLock": "holdfast._api.multilock",
    "Once": "holdfast._api.once",
    "once": "holdfast._api.once",
    "Outcome": "holdfast._api.once",
    "ReadSide": "holdfast._api.rwlock",
    "redeem": "holdfast._api.redeem",
    "RedeemedLock": "holdfast._api.redeem",
    "Redlock": "holdfast._api.redlock",
    "RLock": "holdfast._api.rlock",
    "Running": "holdfast._api.once",
    "RWLock": "holdfast._api.rwlock",
    "Schedule": "holdfast.schedule",
    "Seconds": "holdfast._durations",
    "Semaphore": "holdfast._api.semaphore",
    "SyncClient": "holdfast._net.clients",
    "Term": "holdfast._api.lease",
    "Ticket": "holdfast._api.ticket",
    "Transaction": "holdfast._api.transaction",
    "transaction": "holdfast._api.transaction",
    "transactional": "holdfast._api.transactional",
    "Waiter": "holdfast._api.inspect",
    "WriteLease": "holdfast._api.rwlock",
    "WriteSide": "holdfast._api.rwlock",
}
"""Maps each public name that is imported at its first use (PEP 562) to its module, so that ``import holdfast`` is quick."""

if not TYPE_CHECKING:  # a type checker that sees __getattr__ accepts any name as ours
    __getattr__ = later(globals(), _LATER, "holdfast._api.foreign_words")

    def __dir__():
        return sorted(name for name in {*globals(), *__all__} if not name.startswith("_") or name.startswith("__"))
