"""Fences put to use on a real server: late writes of an overtaken holder are refused."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest
import redis
import valkey

from holdfast import ConfigError, Lock, ServerError, fencing
from support.servers import PrivateServer
from support.witness import Monitor


def remembered(look: redis.Redis, name: str) -> str:
    """The key that remembers the fence: in the same slot of a Cluster as the key that is protected."""
    (key,) = (str(key) for key in look.scan_iter(f"*{name}*") if "fence" in str(key))
    assert key.startswith(f"{{{name}}}:")
    return key


@pytest.mark.fault(2)
def test_a_late_write_is_refused(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """Row 2: the first holder was stopped beyond its lease, and wakes."""
    fences = []
    for _ in range(2):
        with Lock(server.url, name) as lease:
            fences.append(lease.fence)
    old, new = fences
    key = f"{name}:value"
    assert fencing.fenced_set(server.url, key, "by the old one", old)
    assert fencing.fenced_set(server.url, key, "by the new one", new)
    assert not fencing.fenced_set(server.url, key, "too late", old)
    assert look.get(key) == "by the new one"
    assert fencing.fenced_set(server.url, key, "again", new), "one holder may write often"
    assert look.get(key) == "again"


def test_accept_without_a_value(server: PrivateServer, look: redis.Redis, name: str) -> None:
    assert fencing.accept(server.url, name, 7)
    assert fencing.accept(server.url, name, 7)
    assert not fencing.accept(server.url, name, 6)
    assert fencing.accept(server.url, name, 8)
    assert not fencing.fenced_set(server.url, name, "x", 7), "both share what they remember"
    assert look.get(name) is None


def test_asyncio_checks_the_same_fences(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def main() -> None:
        assert await fencing.aio_accept(server.url, name, 7)
        assert not await fencing.aio_accept(server.url, name, 6)
        assert not await fencing.aio_fenced_set(server.url, name, "x", 6)
        assert await fencing.aio_fenced_set(server.url, name, "x", 8, ttl=60)
        with pytest.raises(ConfigError, match="not -1"):
            await fencing.aio_accept(server.url, name, -1)

    asyncio.run(main())
    assert not fencing.accept(server.url, name, 7), "both APIs share what they remember"
    assert look.get(name) == "x"
    assert look.ttl(name) > 0


def test_large_fences_are_compared_exactly(server: PrivateServer, name: str) -> None:
    fence = 2**53 - 2
    assert fencing.accept(server.url, name, fence)
    assert not fencing.accept(server.url, name, fence - 1)
    assert fencing.accept(server.url, name, fence)


def test_expiries(server: PrivateServer, look: redis.Redis, name: str) -> None:
    fencing.fenced_set(server.url, name, "x", 7)
    assert look.ttl(name) == -1, "without ttl it stays, as with SET"
    fencing.fenced_set(server.url, name, "x", 7, ttl=60, keep=3600)
    assert 59_000 < look.pttl(name) <= 60_000
    fence_key = remembered(look, name)
    assert look.get(fence_key) == "7"
    assert 3_599_000 < look.pttl(fence_key) <= 3_600_000
    fencing.accept(server.url, name, 7)
    assert look.ttl(fence_key) > 6 * 86400, "a week"
    look.delete(name)


def test_a_key_with_a_hash_tag(server: PrivateServer, look: redis.Redis, name: str) -> None:
    key = f"a:{{{name}}}:b"
    fencing.fenced_set(server.url, key, "x", 7, ttl=60)
    assert {str(k) for k in look.scan_iter(f"*{name}*")} == {key, f"{key}:fence"}


def test_bytes_and_odd_values(server: PrivateServer, look: redis.Redis, name: str) -> None:
    for value in (b"\xff\x00\r\n", "", "é✓", "x" * 100_000):
        assert fencing.fenced_set(server.url, name.encode() + b"\xfe", value, 7, ttl=60)
        with redis.Redis.from_url(server.url) as raw:
            assert raw.get(name.encode() + b"\xfe") == (value if isinstance(value, bytes) else value.encode())


def test_clients(server: PrivateServer, name: str) -> None:
    assert server.port
    with redis.Redis(port=server.port, decode_responses=True) as one, valkey.Valkey(port=server.port) as other:
        assert fencing.accept(one, name, 7)
        assert not fencing.accept(other, name, 6)


def test_one_trip(server: PrivateServer, monitor: Monitor, name: str) -> None:
    fencing.accept(server.url, name, 7)
    monitor.commands()
    fencing.accept(server.url, name, 7)
    fencing.fenced_set(server.url, name, "x", 7, ttl=60)
    assert monitor.names() == ["EVALSHA"] * 2


def test_data_of_another_kind_and_no_server(server: PrivateServer, look: redis.Redis, name: str) -> None:
    fencing.accept(server.url, name, 7)
    fence_key = remembered(look, name)
    look.delete(fence_key)
    look.rpush(fence_key, "x")
    look.expire(fence_key, 60)
    with pytest.raises((ServerError, ConfigError), match=r"WRONGTYPE|list"):
        fencing.accept(server.url, name, 7)
    assert look.exists(name) == 0
    with pytest.raises(ServerError, match=r"127\.0\.0\.1:1") as caught:
        fencing.accept("redis://u:canary@127.0.0.1:1", name, 7)
    assert caught.value.address == "127.0.0.1:1"
    assert "canary" not in str(caught.value)


def test_the_predicate_for_a_table() -> None:
    """As its documentation writes it."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE t (id, value, fence)")
        database.execute("INSERT INTO t VALUES (1, 'empty', 0)")

        def write(value: str, fence: int) -> bool:
            statement = f"UPDATE t SET value = :value, fence = :fence WHERE id = :id AND {fencing.SQL}"  # noqa: S608
            return database.execute(statement, {"id": 1, "value": value, "fence": fence}).rowcount == 1

        assert write("new", 8)
        assert write("again", 8)
        assert not write("late", 7)
        assert database.execute("SELECT value, fence FROM t").fetchall() == [("again", 8)]
