"""A crowd at a real database: what the cache saves it, counted by the database itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

import holdfast
from single_flight.live.shoppers import KEY, Shoppers, crowd, together
from support.databases import Database, Sqlite, mariadb
from support.servers import PrivateServer
from support.witness import until

CALLERS = 200


@pytest.fixture(scope="module", params=["mariadb", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    directory = tmp_path_factory.mktemp("database")
    if request.param == "mariadb":
        with mariadb(directory) as running:
            yield running
    else:
        file = Sqlite(str(directory / "shop.db"))
        file.set_up()
        yield file


@pytest.fixture(scope="module")
def shoppers(server: PrivateServer) -> Iterator[list[Shoppers]]:
    """Four processes, of both APIs."""
    with crowd(("sync", "asyncio") * 2, server.url) as started:
        yield started


def slow(database: Database) -> Database:
    """Slow enough for something to be done meanwhile, on a busy machine too."""
    return type(database)(database.path, 0.8)


@pytest.mark.turns("fleets")
def test_a_crowd_at_a_key_that_expires_is_one_query(
    server: PrivateServer, name: str, database: Database, shoppers: list[Shoppers]
) -> None:
    cache = holdfast.Cache(server.url, name)
    cache.set(KEY, 99, ttl=0.05)
    until(lambda: cache.get(KEY) is None)  # expired
    before = database.asked()
    got, figures = together(shoppers, CALLERS, name, slow(database))
    assert database.asked() - before == 1
    assert got == [100] * CALLERS
    assert figures["loads"] == 1
    assert figures["misses"] + figures["hits"] + figures["stale_hits"] == CALLERS
    assert figures["waits"] > CALLERS / 4


@pytest.mark.turns
def test_without_it_they_are_many(name: str, database: Database, shoppers: list[Shoppers]) -> None:
    before = database.asked()
    got, _ = together(shoppers, 40, name, slow(database), naive=True)
    assert got == [100] * 40
    assert database.asked() - before > 10


def test_while_a_new_one_is_loaded_the_crowd_gets_the_old(
    server: PrivateServer, name: str, database: Database, shoppers: list[Shoppers]
) -> None:
    cache = holdfast.Cache(server.url, name, stale=60)
    cache.set(KEY, 99, ttl=0.05)
    with redis.Redis.from_url(server.url) as look:
        until(lambda: not look.exists(f"hf:cache:{{{name}}}:fresh:{KEY}"))
    before = database.asked()
    got, figures = together(shoppers, CALLERS, name, database, stale=60)
    assert database.asked() - before == 1
    assert got.count(99) + got.count(100) == CALLERS
    assert got.count(100) >= 1
    assert (figures["loads"], figures["waits"], figures["misses"]) == (1, 0, 1)
    assert figures["stale_hits"] == got.count(99)


@pytest.mark.turns
def test_the_next_one_asks_when_the_first_is_killed(
    server: PrivateServer, name: str, database: Database, shoppers: list[Shoppers]
) -> None:
    with crowd(["sync"], server.url) as (first,):
        before = database.asked()
        first.begin(1, name, slow(database), load_ttl=0.5)
        until(lambda: database.asked() > before)
        first.process.kill()
        got, figures = together(shoppers, 12, name, database)
    assert database.asked() - before == 2
    assert got == [100] * 12
    assert figures["loads"] == 1


def test_a_price_that_changes_while_it_is_asked_for_is_not_kept(
    server: PrivateServer, name: str, database: Database, shoppers: list[Shoppers]
) -> None:
    cache = holdfast.Cache(server.url, name)
    before = database.asked()
    shoppers[0].begin(1, name, slow(database))
    until(lambda: database.asked() > before)  # it has read, or is about to read, what is changed now
    database.change(200)
    try:
        cache.invalidate(KEY)
        answer = shoppers[0].answer()
        assert answer["figures"]["refused_writes"] == 1
        assert cache.get(KEY) is None
        assert cache.get_or_load(KEY, database.cents) == 200
    finally:
        database.change(100)
