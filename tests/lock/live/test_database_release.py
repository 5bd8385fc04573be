"""A lock that is held until a transaction of SQLAlchemy has ended, with real databases: never given back before the commit."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Self

import pytest
import redis
from sqlalchemy import Connection, Engine, event, insert, text, update
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from holdfast import (
    FairLock,
    HoldfastWarning,
    LeaseLost,
    Lock,
    LockTimeout,
    MultiLock,
    NotHeld,
    Redlock,
    RLock,
    RWLock,
    Semaphore,
    aio,
    declare_new,
)
from holdfast._api.lease import core_of
from holdfast.sqlalchemy import hold, release_after
from lock.live.bank import Account, Bank, bank
from runtime.faults.test_interrupts import at_every_line
from support.servers import PrivateServer
from support.witness import until

if TYPE_CHECKING:
    from conftest import NewServer


@pytest.fixture(scope="module", params=["mariadb", "sqlite"])
def money(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    with bank(request.param, tmp_path_factory.mktemp("bank")) as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    """For what does not depend on the database."""
    with bank("sqlite", tmp_path_factory.mktemp("file")) as found:
        yield found


@contextmanager
def told(engine: Engine, what: str, then: Callable[..., None]) -> Iterator[None]:
    event.listen(engine, what, then)
    try:
        yield
    finally:
        event.remove(engine, what, then)


class Spy:
    """Whether the lock is held: just before each commit and rollback of the database, and now."""

    def __init__(self, bank: Bank, look: redis.Redis, lock: Lock) -> None:
        self.seen: list[tuple[str, bool]] = []
        self._look, self._key, self._engine = look, lock.key, bank.engine

    @property
    def held(self) -> bool:
        return bool(self._look.exists(self._key))

    def __enter__(self) -> Self:
        event.listen(self._engine, "commit", self._commit)
        event.listen(self._engine, "rollback", self._rollback)
        return self

    def __exit__(self, *_: object) -> None:
        event.remove(self._engine, "commit", self._commit)
        event.remove(self._engine, "rollback", self._rollback)

    def _commit(self, _connection: Connection) -> None:
        self.seen.append(("commit", self.held))

    def _rollback(self, _connection: Connection) -> None:
        self.seen.append(("rollback", self.held))


@pytest.fixture
def lock(server: PrivateServer, name: str) -> Lock:
    return Lock(server.url, name, wait=5)


def withdraw(session: Session) -> None:
    session.get_one(Account, 1).balance -= 1
    session.flush()


# Ways to end


def commit(session: Session) -> None:
    session.commit()


def roll_back(session: Session) -> None:
    session.rollback()


def close(session: Session) -> None:
    session.close()


def fail_to_flush(session: Session) -> None:
    session.add(Account(id=1, balance=0))
    with pytest.raises(IntegrityError):
        session.commit()
    session.rollback()


def fail_to_commit(session: Session) -> None:
    def refuse(_connection: Connection) -> None:
        raise OperationalError("COMMIT", {}, Exception("the disk is full"))

    engine = session.get_bind()
    assert isinstance(engine, Engine)
    with told(engine, "commit", refuse), pytest.raises(OperationalError, match="disk is full"):
        session.commit()
    session.rollback()


def savepoints_first(session: Session) -> None:
    with session.begin_nested():
        withdraw(session)
    session.begin_nested().rollback()
    assert session.info["holdfast"].leases, "savepoints end nothing"
    session.commit()


@pytest.mark.turns
@pytest.mark.parametrize("end", [commit, roll_back, close, fail_to_flush, fail_to_commit, savepoints_first])
def test_given_back_after_the_transaction_has_ended(
    money: Bank, look: redis.Redis, lock: Lock, end: Callable[[Session], None]
) -> None:
    with Spy(money, look, lock) as spy, Session(money.engine) as session:
        lease = hold(session, lock)
        withdraw(session)
        assert spy.held
        end(session)
        assert spy.seen
        assert all(held for _, held in spy.seen)
        assert not spy.held
        with pytest.raises(NotHeld):
            lease.check()
        hold(session, lock)  # and again, with the same session
        session.commit()
        assert not spy.held


def increment(bank: Bank, url: str, name: str, times: int) -> None:
    for _ in range(times):
        with Session(bank.engine) as session, session.begin():
            hold(session, Lock(url, name, wait=60))
            account = session.get_one(Account, 1)
            account.balance += 1


def test_who_has_the_lock_sees_what_was_committed_before(money: Bank, server: PrivateServer, name: str) -> None:
    """Read, add one, write: not one is lost. (MariaDB's isolation here is its default, repeatable read.)"""
    money.set(0)
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(increment, money, server.url, name, 15) for _ in range(4)]:
            done.result(60)
    assert money.balance() == 60


def test_with_the_lock_inside_the_transaction_they_are_lost(money: Bank, server: PrivateServer, name: str) -> None:
    """The purpose of all this."""
    money.set(100)
    with Session(money.engine) as session, session.begin():
        with Lock(server.url, name):
            if money.url.startswith("sqlite"):
                session.execute(text("SELECT 1"))  # a file has one writer, and others would find it busy
            else:
                withdraw(session)
        with Lock(server.url, name):
            assert money.balance() == 100, "the lock is free, and the money still there"
        withdraw(session)


def test_a_lease_lost_before_the_commit_rolls_all_back(money: Bank, look: redis.Redis, lock: Lock) -> None:
    money.set(100)
    with Session(money.engine) as session:
        with pytest.raises(LeaseLost), session.begin():
            lease = hold(session, lock)
            withdraw(session)
            look.delete(lock.key)
            with pytest.raises(LeaseLost):
                lease.renew()
        assert money.balance() == 100
        with session.begin():
            hold(session, lock)
            withdraw(session)
    assert money.balance() == 99


def test_it_is_looked_at_after_the_flush(file: Bank, look: redis.Redis, lock: Lock) -> None:
    file.set(100)
    with Session(file.engine) as session:
        lease = hold(session, lock)

        def lose(*_: object) -> None:
            look.delete(lock.key)
            with pytest.raises(LeaseLost):
                lease.renew()

        session.get_one(Account, 1).balance -= 1
        event.listen(session, "after_flush", lose, once=True)
        with pytest.raises(LeaseLost):
            session.commit()
        with pytest.raises(LeaseLost):
            session.commit()  # and not at the second try, either
    assert file.balance() == 100


def test_given_back_by_hand_too_early(file: Bank, lock: Lock) -> None:
    file.set(100)
    with Session(file.engine) as session:
        with lock as lease:
            release_after(session, lease)
            withdraw(session)
        with pytest.raises(NotHeld):
            session.commit()
    assert file.balance() == 100


def test_lost_while_it_was_committed(file: Bank, look: redis.Redis, lock: Lock) -> None:
    """The commit has succeeded, so it does not raise."""
    file.set(100)

    def lose(_connection: Connection) -> None:
        look.delete(lock.key)

    with Session(file.engine) as session, told(file.engine, "commit", lose):
        hold(session, lock)
        withdraw(session)
        with pytest.warns(HoldfastWarning, match=r"was lost.*the transaction is committed; .*check the fence"):
            session.commit()
    assert file.balance() == 99


def test_a_busy_lock_begins_nothing_that_stays(file: Bank, server: PrivateServer, lock: Lock) -> None:
    other = Lock(server.url, lock.name, wait=0)
    with lock, Session(file.engine) as session:
        with pytest.raises(LockTimeout):
            hold(session, other)
        session.commit()


def test_two_locks_and_one_that_was_taken_by_hand(file: Bank, server: PrivateServer, look: redis.Redis, name: str) -> None:
    locks = [Lock(server.url, f"{name}-{number}") for number in range(3)]
    with Session(file.engine) as session:
        first, second = (hold(session, lock) for lock in locks[:2])
        assert locks[2].acquire(timeout=1)
        assert locks[2].lease is not None
        release_after(session, locks[2].lease)
        assert first.fence < second.fence
        session.commit()
    assert not look.exists(*(lock.key for lock in locks))


def test_taken_again_in_the_same_transaction(file: Bank, look: redis.Redis, server: PrivateServer, name: str) -> None:
    """By functions that call each other: it would wait for itself. Each permit of a semaphore is one more."""

    def again() -> Lock:
        return Lock(server.url, name, wait=0)

    with Session(file.engine) as session, Session(file.engine) as other:
        lease = hold(session, again())
        assert hold(session, again()) is hold(session, FairLock(server.url, name, wait=0)) is lease
        assert hold(session, Lock(server.url, f"{name}-2", wait=0)) is not lease
        with pytest.raises(LockTimeout):
            hold(other, again())
        first, second = (hold(session, Semaphore(server.url, f"{name}-s", 2, wait=0)) for _ in range(2))
        assert first is not second
        session.commit()
        assert hold(session, again()) is not lease
        hold(session, again()).release()
        assert hold(session, again()).remaining(), "given back by hand before: taken anew"
        look.delete(lease.key)
        with pytest.raises(LeaseLost):
            hold(session, again()).renew()
        with pytest.raises(LeaseLost):
            hold(session, again())


def test_over_several_servers_taken_again(file: Bank, new_server: NewServer, name: str) -> None:
    servers = [new_server().url for _ in range(3)]
    declare_new(servers)
    with Session(file.engine) as session:
        assert hold(session, Redlock(servers, name, wait=0)) is hold(session, Redlock(servers, name, wait=0))
        session.commit()
        with Redlock(servers, name, wait=0):
            pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_interrupted_at_every_line(file: Bank, look: redis.Redis, lock: Lock) -> None:
    """The transaction gives it back, also where the lock object lives on."""
    sessions: list[Session] = []

    def take() -> None:
        sessions.append(Session(file.engine))
        hold(sessions[-1], lock)
        sessions[-1].info["holdfast"].end()

    def end(where: str) -> None:
        sessions.pop().rollback()
        try:
            until(lambda: not look.exists(lock.key), 2)
        except AssertionError:
            pytest.fail(f"left behind when interrupted at {where}")

    lines = at_every_line(take, end, step=2)
    assert any("_holding" in line for line in lines)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_interrupted_while_they_are_given_back(
    file: Bank, server: PrivateServer, look: redis.Redis, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them: then it is over, and the others are given back all the same."""
    locks = [Lock(server.url, f"{name}-{number}") for number in range(3)]
    with Session(file.engine) as session:
        leases = [hold(session, lock) for lock in locks]
        monkeypatch.setattr(core_of(leases[1]), "try_release", interrupt)
        with pytest.raises(KeyboardInterrupt):
            session.commit()
        assert not look.exists(*(lock.key for lock in locks))


only_mariadb = pytest.mark.parametrize("money", ["mariadb"], indirect=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda url, name: Semaphore(url, name, 1),
        lambda url, name: RWLock(url, name).write,
        lambda url, name: MultiLock([Lock(url, name), Lock(url, f"{name} too")]),
        FairLock,
    ],
)
def test_locks_of_every_make(file: Bank, server: PrivateServer, name: str, make: Callable[[str, str], Lock]) -> None:
    with Session(file.engine) as session:
        for _ in range(2):
            lease = hold(session, make(server.url, name))
            withdraw(session)
            lease.check()
            session.commit()
            with pytest.raises(NotHeld):
                lease.check()


@only_mariadb
def test_two_phases(money: Bank, look: redis.Redis, lock: Lock) -> None:
    money.set(100)
    prepared: list[bool] = []
    with (
        told(money.engine, "commit_twophase", lambda *_: prepared.append(bool(look.exists(lock.key)))),
        Session(money.engine, twophase=True) as session,
    ):
        hold(session, lock)
        withdraw(session)
        session.prepare()
        session.commit()
    assert prepared == [True]
    assert not look.exists(lock.key)
    assert money.balance() == 99


@only_mariadb
@pytest.mark.parametrize("end", [Session.commit, Session.rollback, Session.close, Session.invalidate])
def test_a_connection_that_breaks(money: Bank, look: redis.Redis, lock: Lock, end: Callable[[Session], None]) -> None:
    with Session(money.engine) as session, Session(money.engine) as other:
        hold(session, lock)
        withdraw(session)
        number = session.scalar(text("SELECT CONNECTION_ID()"))
        other.execute(text(f"KILL {number}"))
        try:
            end(session)
        except OperationalError:
            session.rollback()
        if end is Session.close:
            session.begin()  # SQLAlchemy has stumbled over it, and says nothing of the end of that transaction
        assert not look.exists(lock.key)


@pytest.mark.parametrize("make", [sessionmaker, lambda engine: scoped_session(sessionmaker(engine))])
def test_sessions_of_every_make(file: Bank, look: redis.Redis, lock: Lock, make: Callable[[Engine], Any]) -> None:
    maker = make(file.engine)
    session: Any = maker if isinstance(maker, scoped_session) else maker()
    with closing(session):
        hold(session, lock)
        withdraw(session)
        session.commit()
        assert not look.exists(lock.key)


def test_a_session_that_is_dropped(file: Bank, look: redis.Redis, lock: Lock) -> None:
    sessions = [Session(file.engine)]
    hold(sessions[0], lock)
    sessions[0].execute(text("SELECT 1"))

    def drop() -> None:
        sessions.clear()  # not before the warning is expected: the collector comes when it likes
        gc.collect()

    with pytest.warns(ResourceWarning, match=f"a transaction that held '{lock.name}' was dropped"):
        drop()
    until(lambda: not look.exists(lock.key))


# Connections without a session


def test_a_connection(money: Bank, look: redis.Redis, lock: Lock) -> None:
    money.set(100)
    with Spy(money, look, lock) as spy:
        with money.engine.begin() as connection:
            hold(connection, lock)
            connection.execute(update(Account).values(balance=99))
        assert not spy.held
        with pytest.raises(ZeroDivisionError), money.engine.begin() as connection:
            hold(connection, lock)
            connection.execute(update(Account).values(balance=98))
            raise ZeroDivisionError
        assert not spy.held
        with money.engine.connect() as connection:
            hold(connection, lock)
            connection.commit()
            connection.execute(text("SELECT 1"))  # begins anew
            assert not spy.held
            hold(connection, lock)
            connection.execute(update(Account).values(balance=97))
    assert not spy.held
    assert spy.seen == [("commit", True), ("rollback", True), ("commit", True), ("rollback", True)]
    assert money.balance() == 99


def test_a_lease_lost_before_a_connection_commits(money: Bank, look: redis.Redis, lock: Lock) -> None:
    money.set(100)
    with pytest.raises(LeaseLost), money.engine.begin() as connection:
        lease = hold(connection, lock)
        connection.execute(update(Account).values(balance=99))
        look.delete(lock.key)
        with pytest.raises(LeaseLost):
            lease.renew()
    assert money.balance() == 100


JOINING: dict[str, bool] = {
    "conditional_savepoint": False,
    "rollback_only": False,
    "create_savepoint": False,
    "control_fully": True,
}
"""Whether a session that joins the transaction of its connection in this way commits it."""


@pytest.mark.parametrize("mode", JOINING)
@pytest.mark.parametrize("connected", [False, True])
def test_a_session_that_joins_a_transaction(money: Bank, look: redis.Redis, lock: Lock, mode: Any, connected: bool) -> None:
    money.set(100)
    with Spy(money, look, lock) as spy, money.engine.begin() as connection:
        connection.execute(text("SELECT 1"))
        with Session(bind=connection, join_transaction_mode=mode) as session:
            if connected:
                session.execute(text("SELECT 1"))
            lease = hold(session, lock)
            withdraw(session)
            session.commit()
        assert spy.held is not JOINING[mode]
    assert spy.seen[0] == ("commit", True)
    assert not spy.held
    with pytest.raises(NotHeld):
        lease.check()
    assert money.balance() == 99


def test_a_session_that_begins_the_transaction_of_its_connection(file: Bank, look: redis.Redis, lock: Lock) -> None:
    with file.engine.connect() as connection, Session(bind=connection) as session:
        for connected in (False, True):
            if connected:
                session.execute(text("SELECT 1"))
            hold(session, lock)
            session.commit()
            assert not look.exists(lock.key)


# asyncio


@pytest.mark.parametrize("end", ["commit", "rollback", "close", "cancel"])
def test_an_asyncio_session(file: Bank, server: PrivateServer, look: redis.Redis, name: str, end: str) -> None:
    file.set(100)
    lock = aio.Lock(server.url, name)
    held: list[bool] = []

    async def main() -> None:
        engine = create_async_engine(file.url.replace("sqlite:", "sqlite+blocking:"), poolclass=NullPool)
        for what in ("commit", "rollback"):
            event.listen(engine.sync_engine, what, lambda *_: held.append(bool(look.exists(lock.key))))
        async with AsyncSession(engine) as session:
            lease = await hold(session, lock)
            (await session.get_one(Account, 1)).balance = 99
            await session.flush()
            if end == "cancel":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await session.commit()
                await session.close()
            else:
                await getattr(session, end)()
            assert not look.exists(lock.key)
            with pytest.raises(NotHeld):
                lease.check()
        await engine.dispose()

    asyncio.run(main())
    assert held
    assert all(held)
    assert file.balance() == (99 if end == "commit" else 100)


def test_an_asyncio_lease_lost_before_the_commit(file: Bank, server: PrivateServer, look: redis.Redis, name: str) -> None:
    file.set(100)

    async def main() -> None:
        engine = create_async_engine(file.url.replace("sqlite:", "sqlite+blocking:"), poolclass=NullPool)
        with pytest.raises(LeaseLost):
            async with AsyncSession(engine) as session, session.begin():
                lease = await hold(session, aio.Lock(server.url, name))
                (await session.get_one(Account, 1)).balance = 99
                look.delete(lease.key)
                with pytest.raises(LeaseLost):
                    await lease.renew()
        async with engine.begin() as connection:
            lock = aio.Lock(server.url, name)
            await hold(connection, lock)
            await connection.execute(insert(Account).values(id=2, balance=0, fence=0))
        assert not look.exists(lock.key)
        await engine.dispose()

    asyncio.run(main())
    assert file.balance() == 100


def test_what_does_not_go_together(file: Bank, server: PrivateServer, name: str) -> None:
    wrong: Any = aio.Lock(server.url, name)
    with Session(file.engine) as session:
        with pytest.raises(TypeError, match=r"Session is a synchronous object, so pass a holdfast\.Lock"):
            hold(session, wrong)
        with pytest.raises(TypeError, match="belongs to the thread or task that acquires it"):
            hold(session, RLock(server.url, name))
        with pytest.raises(TypeError, match=r"expected a lock, not .*; of an RWLock, pass its read or its write side"):
            hold(session, RWLock(server.url, name))  # type: ignore[call-overload]
        for no_lease in (Lock(server.url, name), None):
            with pytest.raises(TypeError, match=r"expected the lease of an acquired lock \(lock.lease\), not "):
                release_after(session, no_lease)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="must be a session or a connection"):
            hold(file.engine, Lock(server.url, name))  # type: ignore[call-overload]
    engine = create_async_engine(file.url.replace("sqlite:", "sqlite+blocking:"), poolclass=NullPool)
    session_of_asyncio: Any = AsyncSession(engine)
    with pytest.raises(TypeError, match=r"AsyncSession is an asyncio object, so pass a holdfast\.aio\.Lock"):
        hold(session_of_asyncio, Lock(server.url, name))
