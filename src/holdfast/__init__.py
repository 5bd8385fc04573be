"""Distributed locks on the Redis or Valkey server you already run: fair, fenced, and quick to hand over.

General layout
--------------
`locks` and `aio` are the two faces, one-liners over the same operations; `_face` and `_lease` are what they share. The
algorithms are in `_core`, each written once as an ``async def`` that does no input or output: it awaits the typed requests of
`_core.requests`. `_core.acquire` is the central file, `_core.mutex` describes a lock and gives it back, `_core.waiting` and
`_core.renewing` are what a process knows about its waiters and leases, `_core.node` what its keeper does about them. `_drive`
carries out what they ask: on the calling thread (`sync`), in the calling task (`aio`), and in the one thread per process that
renews leases and listens for hand-overs (`keeper`). `_wire` opens connections and speaks the protocol. The scripts that run on
the server are in `_lua`. `decorator` and `guard` stand beside the faces, and so does the rest of the family: `reentrant`,
`semaphore`, `rwlock`, `multilock`, `leader`; `events` and `barrier`; `cache` and `_sync_once`, by single flight; `schedule`;
and `transactions`, which needs no lock. `legacy` is the timestamp lock, for those who come from there. `errors` holds what they
raise, `_guardian` ends commands with their owner. `_servers` starts servers: private ones for tests and the demo, and this
machine's own for ``local://``. `cli` is the command, `bench` what ``holdfast bench`` measures. `testing` is for tests, yours
and ours: the simulator, the judge, a server in memory.
"""

from typing import TYPE_CHECKING

from holdfast._later import later
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
    from holdfast import aio, guard, legacy
    from holdfast._drive.process import close
    from holdfast._statistics import LockStatistics
    from holdfast._sync_inspect import inspect
    from holdfast._sync_once import once
    from holdfast._tickets import Ticket
    from holdfast._transactional import transactional
    from holdfast.barrier import Barrier, BrokenBarrier
    from holdfast.cache import Cache
    from holdfast.deadlocks import find_deadlocks
    from holdfast.decorator import locked
    from holdfast.events import CountDownLatch, Event
    from holdfast.leader import Leader
    from holdfast.locks import FairLock, Lease, Lock
    from holdfast.multilock import MultiLease, MultiLock
    from holdfast.redlock import Redlock, declare_new
    from holdfast.reentrant import RLock
    from holdfast.rwlock import RWLock
    from holdfast.schedule import Schedule
    from holdfast.semaphore import BoundedSemaphore, Semaphore
    from holdfast.tickets import redeem
    from holdfast.transactions import Transaction, transaction

__version__ = "0.1.0"

__all__ = [
    "Barrier",
    "BoundedSemaphore",
    "BrokenBarrier",
    "Cache",
    "CommandFailed",
    "ConfigError",
    "CountDownLatch",
    "Deadlock",
    "Event",
    "FairLock",
    "HolderChanged",
    "HoldfastError",
    "HoldfastWarning",
    "InProgress",
    "Leader",
    "Lease",
    "LeaseLost",
    "Lock",
    "LockStatistics",
    "LockTimeout",
    "MultiLease",
    "MultiLock",
    "NoCandidate",
    "NotHeld",
    "QuorumError",
    "RLock",
    "RWLock",
    "Redlock",
    "ReleasedTooOften",
    "ResultNotKept",
    "Schedule",
    "Semaphore",
    "ServerError",
    "Ticket",
    "TicketRefused",
    "Transaction",
    "TransactionConflict",
    "aio",
    "close",
    "declare_new",
    "find_deadlocks",
    "guard",
    "inspect",
    "legacy",
    "locked",
    "once",
    "redeem",
    "transaction",
    "transactional",
]

_LATER = {
    "Barrier": "holdfast.barrier",
    "BoundedSemaphore": "holdfast.semaphore",
    "BrokenBarrier": "holdfast.barrier",
    "Cache": "holdfast.cache",
    "CountDownLatch": "holdfast.events",
    "Event": "holdfast.events",
    "FairLock": "holdfast.locks",
    "Leader": "holdfast.leader",
    "Lease": "holdfast.locks",
    "Lock": "holdfast.locks",
    "LockStatistics": "holdfast._statistics",
    "MultiLease": "holdfast.multilock",
    "MultiLock": "holdfast.multilock",
    "RLock": "holdfast.reentrant",
    "RWLock": "holdfast.rwlock",
    "Redlock": "holdfast.redlock",
    "Schedule": "holdfast.schedule",
    "Semaphore": "holdfast.semaphore",
    "Ticket": "holdfast._tickets",
    "Transaction": "holdfast.transactions",
    "aio": "holdfast.aio",
    "close": "holdfast._drive.process",
    "declare_new": "holdfast.redlock",
    "find_deadlocks": "holdfast.deadlocks",
    "guard": "holdfast.guard",
    "inspect": "holdfast._sync_inspect",
    "legacy": "holdfast.legacy",
    "locked": "holdfast.decorator",
    "once": "holdfast._sync_once",
    "redeem": "holdfast.tickets",
    "transaction": "holdfast.transactions",
    "transactional": "holdfast._transactional",
}
"""What is imported at its first use (PEP 562), and where from: a command line has forked its guardian by then."""

if not TYPE_CHECKING:  # or a type checker would take any name for one of ours
    __getattr__ = later(globals(), _LATER)

    def __dir__():
        return sorted({*globals(), *__all__})
