"""Locks that are held until a Django transaction has ended, and are released after its commit or its rollback.

Use ``locked_atomic`` for a lock around ``transaction.atomic``, and ``hold`` inside a transaction that other code has
begun. Needs Django (``holdfast[django]``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.db import transaction

from holdfast._api.rlock import depth, unfinished
from holdfast._api.transaction_end import HeldUntilEnd, enter, explain
from holdfast.errors import LeaseLost

if TYPE_CHECKING:
    from holdfast._api.acquisition import BaseSyncLock
    from holdfast._api.lease import Lease

__all__ = ["hold", "locked_atomic", "release_after"]


@contextmanager
def locked_atomic(lock: BaseSyncLock[Any], using: str | None = None) -> Iterator[Lease]:
    """Acquire the lock, then begin a transaction. Release the lock after the commit or the rollback.

    Use it as ``with locked_atomic(lock) as lease:``, or as a decorator. The lease is checked before the commit. If it is lost,
    LeaseLost is raised and the transaction is rolled back. Raises RuntimeError inside another ``atomic`` block, because that
    block would commit after the lock is released. Inside such a block, use `hold`. ``using``: alias of the database.
    """
    committed, lease, before = False, None, depth(lock)
    try:
        with lock as lease:
            with transaction.atomic(using=using, durable=True):
                yield lease
                lease.check()
            committed = True
    except LeaseLost as lost:
        if not committed:
            raise
        explain(lost, lease, committed)  # the transaction is committed: an error would make the caller repeat it
    except BaseException as error:
        if unfinished(lock, lease, before):
            lock.__exit__(type(error), error, error.__traceback__)
        raise


def hold(lock: BaseSyncLock[Any], using: str | None = None) -> Lease:
    """Acquire a lock inside a transaction that other code has begun, and hold the lock until the transaction ends.

    With ``ATOMIC_REQUESTS``, for example, Django handles each HTTP request in such a transaction. The lock is released after
    the commit or rollback. It is also released when the ``atomic`` block around this call is rolled back.

    Rows that the transaction read before this call may be outdated. Django calls no code just before a commit, so a lost lease
    does not stop the commit. Call ``check()`` of the lease after your last statement, or write with a fence check.

    ``using``: alias of the database. Returns the lease. If the transaction holds the lock already, the lease that it has is
    returned. Raises LockTimeout, ServerError; TransactionManagementError if there is no transaction.
    """
    connection = _in_transaction(using)
    endings = [func for _, func, *_ in connection.run_on_commit if isinstance(func, _Ending)]
    held: Lease | None = next(filter(None, (ending.has(lock) for ending in endings)), None)
    if held is not None:
        return held
    ending = _Ending()
    lease: Lease = enter(lock, ending)
    connection.on_commit(ending)
    return lease


def release_after(lease: Lease, using: str | None = None) -> None:
    """Release a lease after the transaction has ended.

    The lease must come from ``acquire``. A ``with`` block would release it before the transaction ends. ``using``: alias of
    the database. Raises TransactionManagementError if there is no transaction.
    """
    connection = _in_transaction(using)
    ending = _Ending()
    ending.add(lease)
    connection.on_commit(ending)


def _in_transaction(using: str | None) -> Any:
    connection = transaction.get_connection(using)
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError(
            "there is no transaction whose end would release the lock: call this inside transaction.atomic(), or use "
            "locked_atomic(lock)"
        )
    return connection


class _Ending(HeldUntilEnd):
    """The leases to release at the end of one transaction. Django calls this object after the commit.

    After a rollback, Django calls nothing, but drops its reference to this object, and ``__del__`` releases the leases.
    """

    def __call__(self) -> None:
        self.committed = True
        self.end()

    def __del__(self) -> None:
        self.end_elsewhere()
