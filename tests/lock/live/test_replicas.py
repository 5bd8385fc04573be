"""``replicas=n``: a lock counts as taken when so many replicas have it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
import redis

from holdfast import ConfigError, FairLock, Lock, ServerError, aio, redeem
from support.servers import PrivateServer, private
from support.witness import Monitor, in_thread, until, waiting_here


@pytest.fixture(scope="module")
def primary() -> Iterator[PrivateServer]:
    """It has one replica."""
    with private("--repl-diskless-sync-delay", "0", port=True, password="") as first, private(port=True, password="") as second:
        with redis.Redis.from_url(second.url) as client:
            client.replicaof("127.0.0.1", str(first.port))
            until(lambda: client.info("replication")["master_link_status"] == "up")
        yield first


def clean(primary: PrivateServer, name: str) -> bool:
    """Nobody has the lock or waits for it."""
    with closing(redis.Redis.from_url(primary.url)) as client:
        return not client.exists(f"hf:{{{name}}}", f"hf:{{{name}}}:queue")


@pytest.mark.parametrize("cls", [Lock, FairLock])
def test_taken_with_enough_and_given_back_with_too_few(primary: PrivateServer, cls: type[Lock], name: str) -> None:
    with cls(primary.url, name, ttl=30, replicas=1, wait=0) as lease:
        assert lease.remaining() > 25
    with pytest.raises(ServerError, match=r"1 of 2 replicas acknowledged the lock within 0\.5 s; nothing is held") as caught:
        cls(primary.url, name, ttl=5, replicas=2).acquire()
    assert caught.value.name == name  # type: ignore[attr-defined]
    assert clean(primary, name)
    with cls(primary.url, name, ttl=3, wait=0) as later:
        assert later.fence > lease.fence


def test_asyncio(primary: PrivateServer, name: str) -> None:
    async def main() -> None:
        async with aio.Lock(primary.url, name, ttl=30, replicas=1) as lease:
            assert lease.remaining() > 25
        with pytest.raises(ServerError, match="1 of 2 replicas"):
            await aio.FairLock(primary.url, name, ttl=5, replicas=2).acquire()
        assert clean(primary, name)
        task = asyncio.create_task(aio.Lock(primary.url, name, ttl=30, replicas=2).acquire())
        with closing(redis.Redis.from_url(primary.url)) as client:
            async with asyncio.timeout(5):
                while not any(one["cmd"] == "wait" for one in client.client_list()):
                    await asyncio.sleep(0.002)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert clean(primary, name), "although the server waits for replicas still"

    asyncio.run(main())


def test_what_was_handed_over_is_a_full_lease_when_replicas_have_it(primary: PrivateServer, name: str) -> None:
    """A hand-over is written by who had the lock before, for two seconds; the winner makes a lease of it that replicas have."""

    def take() -> float:
        with FairLock(primary.url, name, ttl=30, replicas=1) as lease:
            return lease.remaining()

    with closing(redis.Redis.from_url(primary.url)) as client:
        with FairLock(primary.url, name, ttl=10):
            waiting = in_thread(take)
            until(lambda: client.zcard(f"hf:{{{name}}}:queue") == 1)
        assert waiting.result(10) > 25


def test_what_is_passed_on_in_a_process_needs_no_more(primary: PrivateServer, name: str) -> None:
    def take(replicas: int) -> int:
        with Lock(primary.url, name, ttl=30, replicas=replicas) as lease:
            return lease.fence

    with Monitor(primary.url) as monitor:
        # However long it takes: whoever begins to listen may have missed that somebody outside waits, and passes on briefly.
        lock = Lock(primary.url, name, ttl=30, replicas=1, max_pass_time=1)
        with lock as first:
            assert monitor.names().count("WAIT") == 1
            waiting = in_thread(take, 1)
            until(lambda: waiting_here(lock) == 1)
        assert waiting.result(10) > first.fence
        assert "WAIT" not in monitor.names()
        # One that none was asked for is no good for those who ask for some.
        with Lock(primary.url, name, ttl=30):
            waiting = in_thread(take, 1)
            until(lambda: waiting_here(lock) == 1)
        waiting.result(10)
        assert monitor.names().count("WAIT") == 1


def test_the_server_forgot_the_scripts(primary: PrivateServer, name: str) -> None:
    """WAIT behind a script that was not found has nothing to wait for."""
    with closing(redis.Redis.from_url(primary.url)) as client:
        client.script_flush()
    started = time.monotonic()
    with pytest.raises(ServerError, match="1 of 2 replicas"):
        Lock(primary.url, name, ttl=5, replicas=2).acquire()
    assert time.monotonic() - started >= 0.49


def test_a_client_of_somebody_elses_make_has_no_connection_to_wait_on(primary: PrivateServer) -> None:
    class Own(redis.Connection):
        pass

    pool = redis.ConnectionPool(connection_class=Own, port=primary.port)
    with pytest.raises(ConfigError, match="replicas needs one server, to which holdfast can open connections itself"):
        Lock(redis.Redis(connection_pool=pool), "x", replicas=1)


@pytest.mark.parametrize("replicas", [-1, 1.0, True, "1"])
def test_a_number_of_replicas(replicas: int) -> None:
    with pytest.raises(ConfigError, match="replicas must be a whole number from 0"):
        Lock("redis://", "x", replicas=replicas)


def test_a_ticket_is_redeemed_when_replicas_have_that(primary: PrivateServer, name: str) -> None:
    with Lock(primary.url, name, ttl=30, replicas=1) as lease:
        ticket = lease.ticket()
    with Monitor(primary.url) as monitor, redeem(primary.url, ticket, ttl=30) as heir:
        assert heir.remaining() > 25
        assert heir.fence > lease.fence
        assert monitor.names().count("WAIT") == 1
    assert clean(primary, name)
