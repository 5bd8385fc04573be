"""Locks that are held until a transaction of Django has ended: given back after its commit, or its rollback.

``locked_atomic`` is a lock around ``transaction.atomic``; ``hold`` is for code inside a transaction that others have begun.
Wants Django (``holdfast[django]``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.db import transaction

from holdfast._api.rlock import depth, unfinished
from holdfast._api.transaction_end import Holding, enter, explain
from holdfast.errors import LeaseLost

if TYPE_CHECKING:
    from holdfast._api.sync_lock import Lease, Lock

__all__ = ["hold", "locked_atomic", "release_after"]


@contextmanager
def locked_atomic(lock: Lock, using: str | None = None) -> Iterator[Lease]:
    """Take the lock, then begin a transaction; give the lock back after the commit, or the rollback.

    For ``with`` (the target is the lease), and as a decorator. The lease is looked at before the commit: if it is lost,
    LeaseLost is raised, and all is rolled back. Raises RuntimeError inside another ``atomic``, as its commit would come after
    the lock is given back: use `hold` there.
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
        explain(lost, lease, committed)  # an error would have the caller do again what is done
    except BaseException as error:
        if unfinished(lock, lease, before):
            lock.__exit__(type(error), error, error.__traceback__)
        raise


def hold(lock: Lock, using: str | None = None) -> Lease:
    """Take a lock inside a transaction that others have begun (``ATOMIC_REQUESTS``, for example), and hold it until that has
    been committed or rolled back; or until what was done in the ``atomic`` block around this has been rolled back.

    Rows that the transaction has read before this may be old. Django tells nobody that it is about to commit: call ``check()``
    of the lease after your last statement, or check its fence in what you write. Answers the lease; where the transaction has
    the lock already, the one that it has. Raises LockTimeout, ServerError; TransactionManagementError where there is no
    transaction.
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
    """The same for a lease that was taken by ``acquire``. Not for that of a ``with``, whose end would come first."""
    connection = _in_transaction(using)
    ending = _Ending()
    ending.add(lease)
    connection.on_commit(ending)


def _in_transaction(using: str | None) -> Any:
    connection = transaction.get_connection(using)
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError(
            "there is no transaction that would give back the lock when it ends: use this inside transaction.atomic(), or "
            "locked_atomic(lock)"
        )
    return connection


class _Ending(Holding):
    """Return what Django is to call after the commit. It has no such list for rollbacks, but forgets this one then, in
    whichever way the transaction ends: the last thing that an object does is to be collected."""

    def __call__(self) -> None:
        self.committed = True
        self.end()

    def __del__(self) -> None:
        self.end_elsewhere()
