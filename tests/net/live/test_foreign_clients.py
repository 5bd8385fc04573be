"""Clients with connections or pools of the user's own making: their own calls are used, and everything works as ever."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio
import valkey

import holdfast
from holdfast import ConfigError, FairLock, Lock, ServerError, aio, fencing
from holdfast._clock import clock
from holdfast._core.requests import Refused
from holdfast._net.client_adapter import AioClientCalls, ClientLine
from holdfast._net.endpoint import Endpoint
from holdfast._net.protocol import command
from holdfast._net.resolve import from_client
from holdfast._runtime.process import current
from net.live.test_clients import settings, use
from support.servers import PrivateServer
from support.witness import connections, in_thread, nobody_else, queue_length, until, until_in_loop

if TYPE_CHECKING:
    from conftest import NewServer


class Tunnelled(redis.Connection):
    """Stands for one that reaches its server in a way of its own."""

    opened = 0

    def _connect(self) -> Any:
        Tunnelled.opened += 1
        return super()._connect()  # type: ignore[no-untyped-call]


class TunnelledValkey(valkey.Connection):
    """The same for valkey-py."""


class OwnPool(redis.ConnectionPool):
    """One that chooses connections in a way of its own."""


def _connected(connection: Any) -> None:
    connection.on_connect()


CONNECTED: Any = _connected


CLIENTS: dict[str, Callable[[Any], Any]] = {
    "connection": lambda at: redis.Redis(
        connection_pool=redis.ConnectionPool(connection_class=Tunnelled, host="127.0.0.1", port=at.port)
    ),
    "connection, text": lambda at: redis.Redis(
        connection_pool=redis.ConnectionPool(
            connection_class=Tunnelled, host="127.0.0.1", port=at.port, decode_responses=True, protocol=3
        )
    ),
    "connection, protocol 2": lambda at: redis.Redis(
        connection_pool=redis.ConnectionPool(connection_class=Tunnelled, host="127.0.0.1", port=at.port, protocol=2)
    ),
    "pool": lambda at: redis.Redis(connection_pool=OwnPool(host="127.0.0.1", port=at.port)),
    "function at connection": lambda at: redis.Redis(host="127.0.0.1", port=at.port, redis_connect_func=CONNECTED),
    "valkey": lambda at: valkey.Valkey(
        connection_pool=valkey.ConnectionPool(connection_class=TunnelledValkey, host="127.0.0.1", port=at.port)
    ),
}


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, server: PrivateServer) -> Iterator[Any]:
    client = CLIENTS[request.param](server)
    yield client
    holdfast.close()
    client.close()
    client.connection_pool.disconnect()


def test_a_lock_does_all_it_does(client: Any, look: redis.Redis, name: str) -> None:
    before = settings(client)["settings"]
    use(client, name)
    other = FairLock(client, name)
    with FairLock(client, name, ttl=2) as lease:
        waiting = in_thread(other.acquire)
        until(lambda: queue_length(look, name) == 1)  # so the inbox listens
        lease.check()
    assert waiting.result(5)
    assert fencing.accept(client, name, 7)
    assert settings(client)["settings"] == before
    holdfast.close()
    assert look.get(f"hf:{{{name}}}") is None


@pytest.mark.filterwarnings("ignore:ttl=.*less than 2 s:holdfast.HoldfastWarning")
def test_leases_are_renewed(client: Any, look: redis.Redis, name: str) -> None:
    with Lock(client, name, ttl=0.9) as lease:
        key = lease.key
        seen = [int(look.pttl(key))]
        until(lambda: seen.append(int(look.pttl(key))) or (len(seen) > 2 and seen[-1] > seen[-2]))  # type: ignore[func-returns-value]
        until(lambda: seen.append(int(look.pttl(key))) or seen[-1] > seen[-2])  # type: ignore[func-returns-value]
        lease.check()


def test_all_connections_are_the_clients_own(server: PrivateServer, look: redis.Redis, name: str) -> None:
    client = CLIENTS["connection"](server)
    holdfast.close()
    before, opened = nobody_else(look), Tunnelled.opened
    other = FairLock(client, name)
    with FairLock(client, name):
        waiting = in_thread(other.acquire)
        until(lambda: queue_length(look, name) == 1)
        until(lambda: len(connections(look) - before) == Tunnelled.opened - opened)  # the keeper may be opening one
        assert current().pool(from_client(client)).sockets() == []
    assert waiting.result(5)
    other.release()
    holdfast.close()
    client.connection_pool.disconnect()
    until(lambda: connections(look) == before)


def test_it_is_said_once(server: PrivateServer, caplog: pytest.LogCaptureFixture, name: str) -> None:
    client = CLIENTS["connection"](server)
    with caplog.at_level(logging.INFO, "holdfast.wire"):
        for _ in range(3):
            Lock(client, name)
        Lock(redis.Redis(connection_pool=client.connection_pool), name)
    (record,) = caplog.records
    assert "cannot open connections of Tunnelled and" in record.getMessage()
    assert record.getMessage().endswith("and the client's time limits apply")
    assert (record.name, record.levelname) == ("holdfast.wire", "INFO")


def test_a_hand_over_missed_while_the_client_connects_anew(new_server: NewServer, name: str) -> None:
    """Its subscription comes back by itself, and without what was published meanwhile."""
    server = new_server(port=True)
    client: Any = CLIENTS["connection"](server)
    with redis.Redis.from_url(server.url, decode_responses=True) as look:
        lock = FairLock(client, name, ttl=30)
        waiting = FairLock(client, name, ttl=30)
        with lock:
            future = in_thread(waiting.acquire, timeout=10)
            until(lambda: queue_length(look, name) == 1)
            look.client_kill_filter(_type="pubsub")
        assert future.result(8)
        waiting.release()
    holdfast.close()
    client.connection_pool.disconnect()


def test_the_keeper_is_told_that_the_client_has_subscribed_anew() -> None:
    """Messages that were published meanwhile are lost, and every waiter asks at once."""
    told = list[str]()
    keeper: Any = SimpleNamespace(call=lambda what: what())
    line = ClientLine(keeper, Endpoint(), lambda _: told.append("pushed"), lambda: told.append("deaf"))
    first: Any = SimpleNamespace(done=True)
    confirmed = {"type": "subscribe", "data": 1}
    assert line._heard(confirmed, first) is None
    assert told == [], "it was asked for"
    line._heard(confirmed, None)
    assert told == ["deaf"]


def test_a_server_that_is_away_and_comes_back(new_server: NewServer, name: str) -> None:
    server = new_server(port=True)
    client: Any = CLIENTS["pool"](server)
    with Lock(client, name):
        pass
    server.kill()
    with pytest.raises(ServerError):
        Lock(client, name).acquire()
    server.restart()
    with Lock(client, name):
        pass
    holdfast.close()
    client.connection_pool.disconnect()


def test_error_replies_keep_their_code(server: PrivateServer, look: redis.Redis, name: str) -> None:
    client = CLIENTS["pool"](server)
    pool = current().pool(from_client(client))
    look.set(name, "text")
    refused: list[tuple[tuple[str | int, ...], str]] = [
        (("EVALSHA", "0" * 40, 0), "NOSCRIPT"),
        (("LPUSH", name, 1), "WRONGTYPE"),
        (("AUTH", "nobody", "wrong"), "WRONGPASS"),
        (("NOSUCHCOMMAND",), "ERR"),
    ]
    for words, code in refused:
        assert Refused(str(pool.exchange(command(*words), 1))).code == code
    look.delete(name)
    client.connection_pool.disconnect()


@pytest.mark.parametrize("package", [redis, redis.asyncio], ids=["sync", "asyncio"])
def test_a_pool_of_one_connection_is_refused(package: Any) -> None:
    """The subscription would use it up, and no lease could be renewed."""
    connection_class = Tunnelled if package is redis else AioTunnelled
    for kind in (package.ConnectionPool, package.BlockingConnectionPool):
        pool = kind(connection_class=connection_class, max_connections=1)
        with pytest.raises(ConfigError, match=r"max_connections=1\. holdfast needs one connection for notifications"):
            from_client(package.Redis(connection_pool=pool))


def test_leases_are_renewed_with_a_pool_of_two_connections(server: PrivateServer, name: str) -> None:
    pool = redis.ConnectionPool(connection_class=Tunnelled, port=server.port, max_connections=2)
    with Lock(redis.Redis(connection_pool=pool), name, ttl=2) as lease:
        ends = clock() + lease.remaining()
        until(lambda: clock() + lease.remaining() > ends + 1)
    holdfast.close()
    pool.disconnect()


# asyncio


class AioTunnelled(redis.asyncio.Connection):
    """Stands for one that reaches its server in a way of its own."""


def aio_client(at: PrivateServer) -> Any:
    pool = redis.asyncio.ConnectionPool(connection_class=AioTunnelled, host="127.0.0.1", port=at.port)
    return redis.asyncio.Redis(connection_pool=pool)


def in_loop(main: Callable[[Any], Coroutine[Any, Any, None]], server: PrivateServer) -> None:
    async def run() -> None:
        client = aio_client(server)
        try:
            await main(client)
        finally:
            await aio.close()
            await client.connection_pool.disconnect()

    asyncio.run(run())


def test_an_asyncio_lock_does_all_it_does(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def main(client: Any) -> None:
        lock, other = aio.FairLock(client, name), aio.FairLock(client, name)
        async with lock as lease:
            assert await lock.locked()
            assert await other.acquire(False) is False
            await lease.renew(60)
            waiting = asyncio.create_task(other.acquire())
            await until_in_loop(lambda: queue_length(look, name) == 1)
        async with asyncio.timeout(5):
            assert await waiting
        assert other.lease is not None
        assert other.lease.fence > lease.fence
        await other.release()
        cancelled = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert not await lock.locked()

    in_loop(main, server)


@pytest.mark.filterwarnings("ignore:ttl=.*less than 2 s:holdfast.HoldfastWarning")
def test_asyncio_leases_are_renewed_in_the_clients_loop(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def main(client: Any) -> None:
        async with aio.Lock(client, name, ttl=0.9) as lease:
            seen = [0]

            def renewed() -> bool:
                seen.append(int(look.pttl(lease.key)))
                return sum(now > before for before, now in itertools.pairwise(seen)) > 2

            await until_in_loop(renewed)
            lease.check()

    in_loop(main, server)


def test_a_loop_may_end_while_its_client_connects_anew(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """To listen: that connection would be nobody's, and stay open."""
    holdfast.close()
    before = nobody_else(look)

    async def main() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()
        go_on.set()

        class Hesitant(AioTunnelled):
            async def _connect(self) -> None:
                begun.set()
                await go_on.wait()
                await super()._connect()  # type: ignore[no-untyped-call]

        pool: Any = redis.asyncio.ConnectionPool(connection_class=Hesitant, host="127.0.0.1", port=server.port)
        waiting = asyncio.create_task(aio.Lock(redis.asyncio.Redis(connection_pool=pool), name).acquire())
        await until_in_loop(lambda: queue_length(look, name) == 1)
        begun.clear()
        go_on.clear()
        look.client_kill_filter(_type="pubsub")
        await begun.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        await aio.close()
        await pool.disconnect()
        go_on.set()
        await asyncio.sleep(0.1)
        holdfast.close()
        await until_in_loop(lambda: connections(look) == before)

    # Another process of holdfast: a waiter would ask a holder of another library ten times a second, and connect for that, too.
    look.set(f"hf:{{{name}}}", f"0123456789ab.{'0' * 32}", px=60_000)
    asyncio.run(main())
    look.delete(f"hf:{{{name}}}")


def test_a_loop_may_end_while_its_client_listens(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def main(client: Any) -> None:
        with Lock(server.url, name):
            waiting = asyncio.create_task(aio.Lock(client, name).acquire())
            await until_in_loop(lambda: queue_length(look, name) == 1)
            waiting.cancel()
            await asyncio.wait([waiting])
        await aio.close()
        await until_in_loop(lambda: not client.connection_pool._in_use_connections)  # also that on which it listened

    for _ in range(10):
        in_loop(main, server)
    assert queue_length(look, name) == 0


@pytest.mark.parametrize("reply", [b"7", redis.ResponseError("ERR no")], ids=["a reply", "an error"])
def test_the_lease_counts_from_before_the_client_was_asked(reply: Any) -> None:
    """Not from the reply, for which the client may have waited long after the server had carried the request out."""
    carried_out = 0.0

    class Late:
        """Its reply comes at a later time than that at which the server has carried the request out."""

        async def execute_command(self, *_words: bytes, **_options: bool) -> Any:
            nonlocal carried_out
            carried_out = clock()
            while clock() == carried_out:
                await asyncio.sleep(0)
            if isinstance(reply, Exception):
                raise reply
            return reply

    async def main() -> None:
        calls = AioClientCalls(Endpoint(client=Late()))
        _, sent = await calls.exchange(command("GET", "x"), 5.0)
        assert sent <= carried_out
        await calls.close()

    asyncio.run(main())
