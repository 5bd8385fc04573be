"""A lock that is held until a transaction of Django has ended, with a file of SQLite: never given back before the commit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import django
import pytest
import redis
from django.conf import settings
from django.db import connection, transaction

from holdfast import HoldfastWarning, LeaseLost, Lock, LockTimeout, NotHeld, RLock, aio
from holdfast.django import hold, locked_atomic, release_after
from support.servers import PrivateServer
from support.witness import until


@pytest.fixture(scope="module", autouse=True)
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Of this process: Django can be set up once. Writers wait for each other, and begin as such."""
    path: Path = tmp_path_factory.mktemp("django") / "db"
    options = {"timeout": 60, "transaction_mode": "IMMEDIATE"}
    default = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path), "OPTIONS": options}
    settings.configure(DATABASES={"default": default}, USE_TZ=True)
    django.setup()
    sql("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)")
    sql("INSERT INTO account VALUES (1, 100)")
    yield
    connection.close()


@pytest.fixture
def lock(server: PrivateServer, name: str) -> Lock:
    return Lock(server.url, name, wait=5)


def sql(statement: str, *values: object) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall()


def balance() -> int:
    return int(sql("SELECT balance FROM account")[0][0])


def put(amount: int) -> None:
    sql("UPDATE account SET balance = %s", amount)


def lose(lock: Lock, look: redis.Redis) -> None:
    look.delete(lock.key)
    assert lock.lease is not None
    with pytest.raises(LeaseLost):
        lock.lease.renew()


class Spy:
    """What is there when Django commits or rolls back: is the lock held just before, and just after?"""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, held: Callable[[], bool]) -> None:
        self.seen: list[str] = []
        for what in ("_commit", "_rollback"):
            monkeypatch.setattr(connection, what, self._watched(what, getattr(connection, what), held))

    def _watched(self, what: str, do: Callable[[], Any], held: Callable[[], bool]) -> Callable[[], None]:
        def watched() -> None:
            before = held()
            do()
            self.seen.append(f"{what} {before} {held()}")

        return watched


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch, look: redis.Redis, lock: Lock) -> Spy:
    return Spy(monkeypatch, lambda: bool(look.exists(lock.key)))


def test_a_lock_around_a_transaction(spy: Spy, look: redis.Redis, lock: Lock) -> None:
    put(100)
    with locked_atomic(lock) as lease:
        put(99)
        lease.check()
    assert spy.seen == ["_commit True True"]
    assert not look.exists(lock.key)
    with pytest.raises(ZeroDivisionError), locked_atomic(lock):
        put(98)
        raise ZeroDivisionError
    assert spy.seen[1:] == ["_rollback True True"]
    assert not look.exists(lock.key)
    assert balance() == 99


def test_as_a_decorator(spy: Spy, lock: Lock) -> None:
    @locked_atomic(lock)
    def work() -> None:
        put(97)

    work()
    work()
    assert spy.seen == ["_commit True True"] * 2


@pytest.mark.parametrize("kind", [Lock, RLock])
def test_interrupted_where_the_lock_is_given_back(
    look: redis.Redis, server: PrivateServer, name: str, kind: type[Lock]
) -> None:
    """At the first instruction of the end of its with statement: the transaction is committed by then."""
    lock = kind(server.url, name)

    def trace(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is kind.__exit__.__code__:
            sys.settrace(None)
            raise KeyboardInterrupt

    put(100)
    with pytest.raises(KeyboardInterrupt), locked_atomic(lock):
        put(96)
        sys.settrace(trace)
    assert balance() == 96
    assert not look.exists(lock.key)
    with locked_atomic(lock):
        put(95)
    assert not look.exists(lock.key)


def test_a_lease_lost_before_the_commit_rolls_all_back(spy: Spy, look: redis.Redis, lock: Lock) -> None:
    put(100)
    with pytest.raises(LeaseLost), locked_atomic(lock):
        put(99)
        lose(lock, look)
    assert spy.seen == ["_rollback False False"]
    assert balance() == 100


def test_lost_while_it_was_committed(monkeypatch: pytest.MonkeyPatch, look: redis.Redis, lock: Lock) -> None:
    """A committed transaction stays so: a caller that got an error would repeat it."""
    put(100)
    monkeypatch.setattr(connection, "_commit", lambda commit=connection._commit: (look.delete(lock.key), commit()))
    with pytest.warns(HoldfastWarning, match="the transaction is committed; .*check the fence"), locked_atomic(lock):
        put(99)
    assert balance() == 99


def test_not_inside_another_transaction(look: redis.Redis, lock: Lock) -> None:
    with transaction.atomic():
        with pytest.raises(RuntimeError, match="durable"), locked_atomic(lock):
            pytest.fail("its commit would come later")
        assert not look.exists(lock.key)


def take_and_bind(lock: Lock) -> None:
    assert lock.acquire()
    assert lock.lease is not None
    release_after(lock.lease)


@pytest.mark.parametrize("take", [hold, take_and_bind])
def test_inside_a_transaction_of_others(spy: Spy, look: redis.Redis, lock: Lock, take: Callable[[Lock], object]) -> None:
    with transaction.atomic():
        with transaction.atomic():
            take(lock)
            put(96)
        assert look.exists(lock.key), "a savepoint ends nothing"
    assert spy.seen == ["_commit True True"]
    assert not look.exists(lock.key)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        take(lock)
        raise ZeroDivisionError
    assert spy.seen[1:] == ["_rollback True True"]
    until(lambda: not look.exists(lock.key))


def test_given_back_when_what_it_was_for_is_undone(look: redis.Redis, lock: Lock) -> None:
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            hold(lock)
            raise ZeroDivisionError
        until(lambda: not look.exists(lock.key))


def test_taken_again_in_the_same_transaction(look: redis.Redis, server: PrivateServer, name: str) -> None:
    locks = [Lock(server.url, name, wait=wait) for wait in (0, 0, 5, 0)]
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            first = hold(locks[0])
            assert hold(locks[1]) is first
            raise ZeroDivisionError
        until(lambda: not look.exists(locks[0].key))
        second = hold(locks[2])  # waits: the thread that releases may not have the server's reply yet
        with transaction.atomic():
            assert hold(locks[3]) is second
        second.check()
    assert not look.exists(locks[0].key)


def test_what_is_no_lock_and_no_lease(server: PrivateServer, name: str) -> None:
    with transaction.atomic():
        with pytest.raises(TypeError, match=r"expected a holdfast\.Lock, not <holdfast\.aio"):
            hold(aio.Lock(server.url, name))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="expected the lease"):
            release_after(Lock(server.url, name).lease)  # type: ignore[arg-type]


def fail() -> None:
    raise ZeroDivisionError


def test_given_back_when_something_else_fails_after_the_commit(look: redis.Redis, lock: Lock) -> None:
    """Remove the callbacks for Django: then it calls nothing more."""
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        transaction.on_commit(fail)
        hold(lock)
    until(lambda: not look.exists(lock.key))


def test_given_back_when_the_connection_is_closed(look: redis.Redis, lock: Lock) -> None:
    with transaction.atomic():
        hold(lock)
        connection.close()
    until(lambda: not look.exists(lock.key))


def test_without_a_transaction(look: redis.Redis, lock: Lock) -> None:
    with pytest.raises(transaction.TransactionManagementError, match=r"locked_atomic\(lock\)"):
        hold(lock)
    assert not look.exists(lock.key)
    with pytest.raises(transaction.TransactionManagementError):
        take_and_bind(lock)
    lock.release()


def test_lost_or_given_back_meanwhile(look: redis.Redis, lock: Lock) -> None:
    with ExitStack() as stack:
        stack.enter_context(transaction.atomic())
        hold(lock)
        lose(lock, look)
        with pytest.warns(HoldfastWarning, match="the transaction is committed; .*check the fence"):
            stack.close()
    with transaction.atomic():
        hold(lock).release()  # by hand: nothing is left to be done
    with pytest.raises(LeaseLost), transaction.atomic():
        lease = hold(lock)
        lose(lock, look)
        lease.check()


def test_busy(server: PrivateServer, lock: Lock) -> None:
    with lock, pytest.raises(LockTimeout), transaction.atomic():
        hold(Lock(server.url, lock.name, wait=0))
    with lock, pytest.raises(LockTimeout), locked_atomic(Lock(server.url, lock.name, wait=0)):
        pytest.fail("held by somebody else")
    with pytest.raises(NotHeld):
        lock.release()


def test_who_has_the_lock_sees_what_was_committed_before(server: PrivateServer, name: str) -> None:
    put(0)

    def increment() -> None:
        try:
            for _ in range(10):
                with locked_atomic(Lock(server.url, name, wait=60)):
                    put(balance() + 1)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(increment) for _ in range(4)]:
            done.result(60)
    assert balance() == 40
