"""Locks that are held until an SQLAlchemy transaction has ended, and are released after its commit or its rollback.

``hold(session, lock)`` works with sessions and connections, of the sync API and of asyncio. The lease is checked just
before the commit. If it is lost, LeaseLost is raised and nothing is committed. Needs SQLAlchemy 2
(``holdfast[sqlalchemy]``).
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, overload

from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from holdfast._api.transaction_end import HeldUntilEnd, enter, enter_in_loop

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import scoped_session

    from holdfast._api.acquisition import BaseAioLock, BaseSyncLock
    from holdfast._api.lease import AioLease, Lease

    Target = Session | scoped_session[Any] | Connection
    AsyncTarget = AsyncSession | async_scoped_session[Any] | AsyncConnection

__all__ = ["hold", "release_after"]

KEY = "holdfast"
"""Key of holdfast's entry in the ``info`` dictionary of a session and of a pooled connection."""


@overload
def hold(target: Target, lock: BaseSyncLock[Any]) -> Lease: ...
@overload
def hold(target: AsyncTarget, lock: BaseAioLock[Any]) -> Coroutine[Any, Any, AioLease]: ...
def hold(target: Any, lock: Any) -> Any:
    """Acquire a lock, and hold it until the transaction of ``target``, a session or a connection, has ended.

    If ``target`` has no transaction yet, one is begun. Call this before the transaction reads anything, because rows that were
    read before the lock was acquired may be outdated.

    The lock is released after the outermost commit or rollback. The end of a savepoint does not release it. If a session has
    joined the transaction of a connection, the lock is held until the connection's transaction ends. If ``target`` is a
    connection, the lock is released when the connection returns to its pool or begins its next transaction, because SQLAlchemy
    reports no commit of a connection afterwards.

    For an asyncio session or connection, pass a `holdfast.aio.Lock` and await the result.

    Returns the lease. If the transaction holds the lock already, the lease that it has is returned. Raises LockTimeout and
    ServerError as ``with lock`` does. The later commit raises LeaseLost if the lease has been lost, or NotHeld if the lease was
    released before the commit; in both cases nothing is committed.
    """
    holding = _holding(target, lock)
    if inspect.iscoroutinefunction(getattr(lock, "release", None)):
        return _hold_in_loop(holding, lock)
    return holding.has(lock) or enter(lock, holding)


async def _hold_in_loop(holding: HeldUntilEnd, lock: BaseAioLock[Any]) -> AioLease:
    lease: AioLease = holding.has(lock) or await enter_in_loop(lock, holding)
    return lease


@overload
def release_after(target: Target, lease: Lease) -> None: ...
@overload
def release_after(target: AsyncTarget, lease: AioLease) -> None: ...
def release_after(target: Any, lease: Any) -> None:
    """Release a lease after the transaction of ``target``, a session or a connection, has ended.

    The lease must come from ``acquire``. A ``with`` block would release it before the transaction ends.
    """
    _holding(target, lease).add(lease)


def _holding(target: Any, what: Any) -> HeldUntilEnd:
    """Return the leases held until the transaction of ``target`` has ended; begin that transaction if none has begun.
    Raises TypeError."""
    if hasattr(target, "registry"):
        target = target()  # a scoped session is called to get its session
    inner = getattr(target, "sync_session", None) or getattr(target, "sync_connection", None)
    asynchronous = inspect.iscoroutinefunction(getattr(what, "release", None))
    if asynchronous != (inner is not None):
        theirs, ours = ("an asyncio", "holdfast.aio.Lock") if inner is not None else ("a synchronous", "holdfast.Lock")
        raise TypeError(f"{type(target).__name__} is {theirs} object, so pass a {ours}, not {what!r}")
    target = inner or target
    if not isinstance(target, Session | Connection):
        raise TypeError(f"target must be a session or a connection of SQLAlchemy, not {target!r}")
    if not target.in_transaction():
        target.begin()
    joined = _joined(target) if isinstance(target, Session) else None
    if joined is not None:
        return _of_connection(joined)
    if isinstance(target, Session):
        holding = target.info.get(KEY)
        if not isinstance(holding, _OfSession):
            holding = target.info[KEY] = _OfSession(target)
        return holding
    return _of_connection(target)


def _joined(session: Session) -> Connection | None:
    """Return the connection whose transaction the session has joined; None if the session has a transaction of its own.

    A commit of a session that has joined does not commit the connection's transaction.
    """
    bind = session.bind
    if not isinstance(bind, Connection):
        return None
    fully = session.join_transaction_mode == "control_fully"
    # The public methods of a session report only transactions that the session has begun. In asyncio, they may also have to
    # await a connect. So a private attribute is read.
    begun: Any = getattr(session.get_transaction(), "_connections", {}).values()
    if begun:
        ends = all(commits and bind.get_transaction() is transaction for _, transaction, commits, _ in begun)
    else:
        ends = not bind.in_transaction() or (fully and not bind.in_nested_transaction())
    return None if ends else bind


class _Of(HeldUntilEnd):
    def _await(self, lease: Any, given_back: Coroutine[Any, Any, None]) -> None:
        if in_greenlet():  # as asyncio sessions and connections do themselves
            await_only(given_back)
        else:
            super()._await(lease, given_back)


class _OfSession(_Of):
    def __init__(self, session: Session) -> None:
        super().__init__()
        for told in (self.before_commit, self.after_commit, self.after_transaction_create, self.after_transaction_end):
            event.listen(session, told.__name__, told)
        weakref.finalize(session, self.drop).atexit = False

    def before_commit(self, session: Session) -> None:
        if self.leases:
            session.flush()  # before the check, because a flush may take longer than the lease lasts
            self.check()

    def after_commit(self, session: Session) -> None:
        self.committed = session.get_nested_transaction() is None

    def after_transaction_create(self, _session: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is None:
            self.end()  # the last transaction could not be closed, because its connection was broken

    def after_transaction_end(self, _session: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is None:
            self.end()


class _OfConnection(_Of):
    """The leases that are held until the transaction of one connection has ended.

    SQLAlchemy reports a connection's commit before the commit, not after it. So the leases are released later, when the
    connection begins its next transaction, or returns to its pool.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        for told in (self.commit, self.prepare_twophase, self.begin, self.begin_twophase):
            event.listen(connection, told.__name__, told)

    def commit(self, _connection: Connection) -> None:
        self.check()
        self.committed = True

    def prepare_twophase(self, _connection: Connection, _xid: object) -> None:
        self.check()

    def begin(self, _connection: Connection) -> None:
        self.end()

    def begin_twophase(self, _connection: Connection, _xid: object) -> None:
        self.end()


def _of_connection(connection: Connection) -> HeldUntilEnd:
    info = connection.connection.record_info
    if info is None:
        raise TypeError("a detached connection never returns to its pool, so its lock would not be released: use a pooled one")
    if KEY not in info:
        info[KEY] = _OfConnection(connection)
        pool = connection.engine.pool
        if not event.contains(pool, "checkin", _checked_in):
            event.listen(pool, "checkin", _checked_in)
    holding: HeldUntilEnd = info[KEY]
    return holding


def _checked_in(_connection: object, record: Any) -> None:
    """Release the leases of a connection that has returned to its pool, because its transaction is over by then."""
    holding = record.record_info.pop(KEY, None)
    if holding is not None:
        holding.end()
