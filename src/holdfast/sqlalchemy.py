"""Locks that are held until a transaction of SQLAlchemy has ended: given back after its commit, or its rollback.

``hold(session, lock)`` for sessions and connections, of threads and of asyncio. Just before the commit the lease is looked at:
if it is lost, LeaseLost is raised, and nothing is committed. Wants SQLAlchemy 2 (``holdfast[sqlalchemy]``).
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

from holdfast._api.transaction_end import Holding, enter, enter_in_loop

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import scoped_session

    from holdfast import aio
    from holdfast._api import sync_lock

    Target = Session | scoped_session[Any] | Connection
    AsyncTarget = AsyncSession | async_scoped_session[Any] | AsyncConnection

__all__ = ["hold", "release_after"]

KEY = "holdfast"
"""Of what belongs to us in the ``info`` of sessions and of records of connections."""


@overload
def hold(target: Target, lock: sync_lock.Lock) -> sync_lock.Lease: ...
@overload
def hold(target: AsyncTarget, lock: aio.Lock) -> Coroutine[Any, Any, aio.Lease]: ...
def hold(target: Any, lock: Any) -> Any:
    """Take a lock, and hold it until the transaction of ``target`` has ended: a session, or a connection.

    The transaction is begun if it has not; do this before it has read anything, or what it has read may be old. It ends
    with the outermost commit or rollback, or when it is closed; savepoints end nothing, nor do sessions that have joined the
    transaction of a connection: that one is waited for. A connection of its own, without a
    session, tells nobody when it has committed: the lock is given back when it goes back to its pool, or begins anew. With
    an asyncio session or connection, and a `holdfast.aio.Lock`, to be awaited.

    Answers the lease; where the transaction has the lock already, the one that it has. Raises LockTimeout and ServerError as
    ``with lock`` does. The commit raises LeaseLost if the lease is lost, NotHeld if it was given back before: nothing is
    committed then.
    """
    holding = _holding(target, lock)
    if inspect.iscoroutinefunction(getattr(lock, "release", None)):
        return _hold_in_loop(holding, lock)
    return holding.has(lock) or enter(lock, holding)


async def _hold_in_loop(holding: Holding, lock: aio.Lock) -> aio.Lease:
    lease: aio.Lease = holding.has(lock) or await enter_in_loop(lock, holding)
    return lease


@overload
def release_after(target: Target, lease: sync_lock.Lease) -> None: ...
@overload
def release_after(target: AsyncTarget, lease: aio.Lease) -> None: ...
def release_after(target: Any, lease: Any) -> None:
    """The same for a lease that was taken by ``acquire``: it is given back after the transaction of ``target`` has ended. Not
    for that of a ``with``, whose end would come first."""
    _holding(target, lease).add(lease)


def _holding(target: Any, what: Any) -> Holding:
    """Return the locks that are held until this one's transaction has ended; the transaction is begun. Raises TypeError."""
    if hasattr(target, "registry"):
        target = target()  # of a scoped session
    inner = getattr(target, "sync_session", None) or getattr(target, "sync_connection", None)
    asynchronous = inspect.iscoroutinefunction(getattr(what, "release", None))
    if asynchronous != (inner is not None):
        theirs, ours = ("an asyncio", "holdfast.aio.Lock") if inner is not None else ("not an asyncio", "holdfast.Lock")
        raise TypeError(f"{type(target).__name__} is {theirs} one, so it goes with a {ours}, not with {what!r}")
    target = inner or target
    if not isinstance(target, Session | Connection):
        raise TypeError(f"a lock is held for a session or a connection of SQLAlchemy, not for {target!r}")
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
    """The connection whose transaction was begun before the session came: the session's commit does not commit it."""
    bind = session.bind
    if not isinstance(bind, Connection):
        return None
    fully = session.join_transaction_mode == "control_fully"
    # A session tells nothing else of a transaction that it has begun by itself; and asyncio would have to await a connect.
    begun: Any = getattr(session.get_transaction(), "_connections", {}).values()
    if begun:
        ends = all(commits and bind.get_transaction() is transaction for _, transaction, commits, _ in begun)
    else:
        ends = not bind.in_transaction() or (fully and not bind.in_nested_transaction())
    return None if ends else bind


class _Of(Holding):
    def _await(self, lease: Any, given_back: Coroutine[Any, Any, None]) -> None:
        if in_greenlet():  # as whatever asyncio sessions and connections do
            await_only(given_back)
        else:
            super()._await(lease, given_back)


class _OfSession(_Of):
    """The locks that are held until the transaction of one session has ended."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        for told in (self.before_commit, self.after_commit, self.after_transaction_create, self.after_transaction_end):
            event.listen(session, told.__name__, told)
        weakref.finalize(session, self.drop).atexit = False

    def before_commit(self, session: Session) -> None:
        if self.leases:
            session.flush()  # first, as it takes time
            self.check()

    def after_commit(self, session: Session) -> None:
        self.committed = session.get_nested_transaction() is None

    def after_transaction_create(self, _session: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is None:
            self.end()  # the last one could not be closed, as its connection was broken

    def after_transaction_end(self, _session: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is None:
            self.end()


class _OfConnection(_Of):
    """The locks that are held until the transaction of one connection has ended. It tells before it commits, and not after:
    that is known when it begins anew, or goes back to its pool."""

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


def _of_connection(connection: Connection) -> Holding:
    info = connection.connection.record_info
    if info is None:
        raise TypeError("a detached connection never goes back to its pool: nobody would give back the lock")
    if KEY not in info:
        info[KEY] = _OfConnection(connection)
        pool = connection.engine.pool
        if not event.contains(pool, "checkin", _checked_in):
            event.listen(pool, "checkin", _checked_in)
    holding: Holding = info[KEY]
    return holding


def _checked_in(_connection: object, record: Any) -> None:
    """A connection is back in its pool, rolled back if need be."""
    holding = record.record_info.pop(KEY, None)
    if holding is not None:
        holding.end()
