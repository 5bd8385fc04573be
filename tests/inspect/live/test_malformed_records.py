"""Malformed process records: a wait still ends with LockTimeout, and `ls` still shows every lock."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import redis

import holdfast
from holdfast import aio
from holdfast.cli import main
from support.fuzzing import MALFORMED
from support.servers import PrivateServer

if TYPE_CHECKING:
    from conftest import NewServer

PROCESS = "0123456789ab"
RECORD = f"hf:proc:{PROCESS}"


@pytest.fixture
def attacked(new_server: NewServer) -> Iterator[tuple[PrivateServer, redis.Redis]]:
    """A server on which a process holds a lock, of which the tests write what it says about itself."""
    server = new_server(port=True)
    with redis.Redis.from_url(server.url) as client:
        client.set("hf:{held}", f"{PROCESS}.{'0' * 32}", px=100_000)
        client.hset("hf:{held}:state", mapping={"v": "1", "fence": 10**15})
        yield server, client
        client.flushall()


def run(*words: str) -> int:
    try:
        return main([*words])
    except SystemExit as ended:
        return int(str(ended.code))


async def aio_attempt(url: str) -> None:
    async with aio.Lock(url, "held", wait=0):
        raise AssertionError("it is held")


def attempt(url: str) -> None:
    with holdfast.Lock(url, "held", wait=0):
        raise AssertionError("it is held")


def everywhere(url: str) -> None:
    for try_it in (attempt, lambda url: asyncio.run(aio_attempt(url))):
        with pytest.raises(holdfast.LockTimeout, match=f"held by process {PROCESS}"):
            try_it(url)
    assert holdfast.find_deadlocks(url) == []
    (lock,) = holdfast.Inspector(url).locks()
    assert str(lock.holder) == f"process {PROCESS}"


def test_a_strange_record_is_as_good_as_none(
    attacked: tuple[PrivateServer, redis.Redis], capsys: pytest.CaptureFixture[str]
) -> None:
    server, client = attacked
    for raw in MALFORMED:
        client.set(RECORD, raw)
        everywhere(server.url)
        for words in (["ls"], ["ls", "--json"], ["show", "held"], ["ls", "--deadlocks"]):
            assert run(*words, "--url", server.url) == 0, (words, raw[:50])
        assert PROCESS in capsys.readouterr().out


@pytest.mark.parametrize(
    "write", [lambda c: c.hset(RECORD, "a", "b"), lambda c: c.rpush(RECORD, "x"), lambda c: c.sadd(RECORD, 1)]
)
def test_something_else_in_its_place(
    attacked: tuple[PrivateServer, redis.Redis], write: Callable[[Any], object], capsys: pytest.CaptureFixture[str]
) -> None:
    server, client = attacked
    write(client)
    everywhere(server.url)
    assert run("ls", "--url", server.url) == run("ls", "--deadlocks", "--url", server.url) == 0


def test_a_huge_record_is_not_read(attacked: tuple[PrivateServer, redis.Redis]) -> None:
    """The server is asked for 4 kB of it: not for 200 MB, which cost each waiter 800 MB."""
    server, client = attacked
    client.setrange(RECORD, 200_000_000, b"}")
    sent = client.info("stats")["total_net_output_bytes"]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    everywhere(server.url)
    assert run("ls", "--url", server.url) == 0
    assert client.info("stats")["total_net_output_bytes"] - sent < 200_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "kB"
    client.delete(RECORD)


@pytest.mark.parametrize("fence", ["1" + "0" * 400, "-5", "1e400", "nan", "x" * 1000, "9" * 17])
def test_a_strange_fence_is_shown_as_far_as_it_can_be(
    attacked: tuple[PrivateServer, redis.Redis], fence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server, client = attacked
    client.hset("hf:{held}:state", "fence", fence)
    for words in (["ls"], ["ls", "--json"], ["show", "held"], ["show", "held", "--json"], ["ls", "--deadlocks"]):
        assert run(*words, "--url", server.url) == 0, (words, fence)
    assert "held" in capsys.readouterr().out


def test_redlock_too(new_server: NewServer) -> None:
    servers = [new_server(port=True) for _ in range(3)]
    urls = [server.url for server in servers]
    holdfast.declare_new(urls)
    with holdfast.Redlock(urls, "held", ttl=30, wait=2):
        pass
    clients = [redis.Redis.from_url(url) for url in urls]
    for raw in (b"[1]", b"null", b"x" * 100_000, json.dumps({"host": "h", "pid": "no"}).encode()):
        for client in clients:
            client.set("hf:{held}", f"{PROCESS}.{'0' * 32}", px=100_000)
            client.set(RECORD, raw)
        with pytest.raises(holdfast.LockTimeout, match=f"process {PROCESS}"), holdfast.Redlock(urls, "held", wait=0):
            raise AssertionError("it is held")
    for client in clients:
        client.flushall()
        client.close()
