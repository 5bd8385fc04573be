"""A crowd at a real database: what the cache saves it, counted by the database itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import holdfast
from holdfast._servers.process import PrivateServer
from live.databases import MariaDB, Sqlite, mariadb
from live.shoppers import KEY, crowd, together
from live.witness import until

CALLERS, PROCESSES = 200, 4


@pytest.fixture(params=["mariadb", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MariaDB | Sqlite]:
    if request.param == "mariadb":
        with mariadb(tmp_path) as running:
            yield running
    else:
        file = Sqlite(str(tmp_path / "shop.db"))
        file.set_up()
        yield file


@pytest.mark.parametrize("way", ["sync", "asyncio"])
def test_a_crowd_at_a_key_that_expires_is_one_query(
    server: PrivateServer, name: str, database: MariaDB | Sqlite, way: str
) -> None:
    cache = holdfast.Cache(server.url, name)
    with crowd(PROCESSES, way, server.url, name, database) as shoppers:
        cache.set(KEY, 99, ttl=0.05)
        until(lambda: cache.get(KEY) is None)  # expired
        before = database.asked()
        got, figures = together(shoppers, CALLERS)
    assert database.asked() - before == 1
    assert got == [100] * CALLERS
    assert figures["loads"] == 1
    assert figures["misses"] + figures["hits"] == CALLERS
    assert figures["waits"] > CALLERS / 2


def test_without_it_they_are_many(server: PrivateServer, name: str, database: MariaDB | Sqlite) -> None:
    with crowd(PROCESSES, "naive", server.url, name, database) as shoppers:
        before = database.asked()
        for each in shoppers:
            each.begin(CALLERS // PROCESSES)
        got = [value for each in shoppers for value in each.answer()["got"]]
    assert got == [100] * CALLERS
    assert database.asked() - before > CALLERS / 4


def test_while_a_new_one_is_loaded_the_crowd_gets_the_old(server: PrivateServer, name: str, database: MariaDB | Sqlite) -> None:
    cache = holdfast.Cache(server.url, name, stale=60)
    with crowd(PROCESSES, "sync", server.url, name, database, stale=60) as shoppers:
        cache.set(KEY, 99, ttl=0.05)
        with redis.Redis.from_url(server.url) as look:
            until(lambda: not look.exists(f"hf:cache:{{{name}}}:fresh:{KEY}"))
        before = database.asked()
        got, figures = together(shoppers, CALLERS)
    assert database.asked() - before == 1
    assert got.count(99) + got.count(100) == CALLERS
    assert got.count(100) >= 1
    assert (figures["loads"], figures["waits"], figures["misses"]) == (1, 0, 0)
    assert figures["stale_hits"] == got.count(99)


def test_the_next_one_asks_when_the_first_is_killed(server: PrivateServer, name: str, database: MariaDB | Sqlite) -> None:
    with crowd(2, "sync", server.url, name, database, lease=0.5) as (first, second):
        before = database.asked()
        first.begin(1)
        until(lambda: database.asked() > before)
        first.process.kill()
        got, figures = together([second], 10)
    assert database.asked() - before == 2
    assert got == [100] * 10
    assert figures["loads"] == 1


def test_a_price_that_changes_while_it_is_asked_for_is_not_kept(
    server: PrivateServer, name: str, database: MariaDB | Sqlite
) -> None:
    cache = holdfast.Cache(server.url, name)
    with crowd(1, "sync", server.url, name, database) as (shopper,):
        before = database.asked()
        shopper.begin(1)
        until(lambda: database.asked() > before)  # it has read, or is about to read, what is changed now
        database.change(200)
        cache.invalidate(KEY)
        answer = shopper.answer()
    assert answer["figures"]["refused_writes"] == 1
    assert cache.get(KEY) is None
    assert cache.get_or_load(KEY, database.cents) == 200
