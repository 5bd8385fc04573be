"""Every client a user may have: its server is found, its settings are respected, and it is left as it was."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

import holdfast
from holdfast import FairLock, Lock, ServerError, aio, fencing
from support.servers import PrivateServer, private
from support.witness import connections, in_thread, nobody_else, queue_length, until

if TYPE_CHECKING:
    from conftest import NewServer

PASSWORD = "canary pass/word@:?#%"


@pytest.fixture(scope="module")
def locked_server() -> Iterator[PrivateServer]:
    """On TCP and on a unix socket, with a password."""
    with private(port=True, password=PASSWORD) as running:
        yield running


SYNC: dict[str, Callable[[Any], Any]] = {
    "redis.Redis": lambda at: redis.Redis(port=at.port),
    "redis.Redis, text": lambda at: redis.Redis(port=at.port, decode_responses=True),
    "redis.Redis, protocol 2": lambda at: redis.Redis(port=at.port, protocol=2),
    "redis.Redis, protocol 3": lambda at: redis.Redis(port=at.port, protocol=3),
    "redis.Redis, text, protocol 3": lambda at: redis.Redis(port=at.port, protocol=3, decode_responses=True),
    "redis.Redis, latin-1": lambda at: redis.Redis(port=at.port, encoding="latin-1", decode_responses=True),
    "redis.Redis, another database": lambda at: redis.Redis(port=at.port, db=3),
    "redis.Redis, short time-out": lambda at: redis.Redis(port=at.port, socket_timeout=0.5),
    "redis.Redis, no time-out": lambda at: redis.Redis(port=at.port, socket_timeout=None),
    "redis.Redis, single connection": lambda at: redis.Redis(port=at.port, single_connection_client=True),
    "redis.Redis, from_url": lambda at: redis.Redis.from_url(at.url),
    "redis.Redis, from_url with options": lambda at: redis.from_url(at.url + "?decode_responses=True"),
    "redis.Redis, unix socket": lambda at: redis.Redis(unix_socket_path=at.socket),
    "redis.Redis, unix url": lambda at: redis.Redis.from_url(f"unix://{at.socket}?db=2"),
    "redis.Redis, pool": lambda at: redis.Redis(connection_pool=redis.ConnectionPool(port=at.port)),
    "redis.Redis, blocking pool": lambda at: redis.Redis(
        connection_pool=redis.BlockingConnectionPool(port=at.port, max_connections=1, timeout=1)  # type: ignore[no-untyped-call]
    ),
    "redis.StrictRedis": lambda at: redis.StrictRedis(port=at.port),
    "valkey.Valkey": lambda at: valkey.Valkey(port=at.port),
    "valkey.Valkey, text": lambda at: valkey.Valkey(port=at.port, decode_responses=True),
    "valkey.Valkey, unix socket": lambda at: valkey.Valkey(unix_socket_path=at.socket),
}
ASYNCIO: dict[str, Callable[[Any], Any]] = {
    "redis.asyncio.Redis": lambda at: redis.asyncio.Redis(port=at.port),
    "redis.asyncio.Redis, text": lambda at: redis.asyncio.Redis(port=at.port, decode_responses=True),
    "redis.asyncio.Redis, protocol 3": lambda at: redis.asyncio.Redis(port=at.port, protocol=3),
    "redis.asyncio.Redis, from_url": lambda at: redis.asyncio.Redis.from_url(at.url),
    "redis.asyncio.Redis, unix socket": lambda at: redis.asyncio.Redis(unix_socket_path=at.socket),
    "redis.asyncio.Redis, blocking pool": lambda at: redis.asyncio.Redis(
        connection_pool=redis.asyncio.BlockingConnectionPool(port=at.port, max_connections=1, timeout=1)
    ),
    "valkey.asyncio.Valkey": lambda at: valkey.asyncio.Valkey(port=at.port),
    "valkey.asyncio.Valkey, from_url": lambda at: valkey.asyncio.Valkey.from_url(at.url),
}


def settings(client: Any) -> dict[str, object]:
    """Return the state of a client that could change: its settings and the connections of its pool."""
    pool = client.connection_pool
    counts = {
        name: len(getattr(pool, name)) for name in ("_available_connections", "_in_use_connections") if hasattr(pool, name)
    }
    return {"settings": {**pool.connection_kwargs}, "class": pool.connection_class, "of client": sorted(vars(client)), **counts}


def use(client: Any, name: str) -> None:
    """A lock with everything it does: taken, asked about, waited for and handed over."""
    lock, other = Lock(client, name), Lock(client, name)
    with lock as lease:
        assert lock.locked()
        assert other.acquire(False) is False
        lease.renew(60)
        waiting = in_thread(other.acquire)
        assert not waiting.done()
    assert waiting.result(5)
    second = other.lease
    assert second is not None
    assert second.fence > lease.fence
    other.release()
    assert not lock.locked()


@pytest.mark.parametrize("kind", SYNC)
def test_synchronous_clients(server: PrivateServer, name: str, kind: str) -> None:
    client = SYNC[kind](server)
    before = settings(client)
    use(client, name)
    assert settings(client) == before
    assert client.ping()
    assert fencing.accept(client, name, 7)
    client.close()
    client.connection_pool.disconnect()  # one that was passed in is not closed with the client


@pytest.mark.parametrize("kind", ASYNCIO)
def test_asyncio_clients(server: PrivateServer, name: str, kind: str) -> None:
    async def main() -> None:
        client = ASYNCIO[kind](server)
        before = settings(client)
        lock, other = aio.Lock(client, name), aio.Lock(client, name)
        async with lock as lease:
            assert await lock.locked()
            assert await other.acquire(False) is False
            waiting = asyncio.create_task(other.acquire())
            await asyncio.sleep(0)
        assert await waiting
        assert other.lease is not None
        assert other.lease.fence > lease.fence
        await other.release()
        assert settings(client) == before
        assert await client.ping()
        await client.connection_pool.disconnect()  # one that was passed in is not closed with the client

    asyncio.run(main())


def test_an_asyncio_client_in_two_loops(server: PrivateServer, name: str) -> None:
    """The client itself would not survive it; only its settings are used."""
    client = redis.asyncio.Redis(port=server.port or 0)

    async def main() -> None:
        async with aio.Lock(client, name):
            pass

    asyncio.run(main())
    asyncio.run(main())


@pytest.mark.fault(12)
def test_a_pool_exhausted_by_the_application(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """Row 12: locks do not compete with the application for its connections."""
    make: Any = redis.BlockingConnectionPool
    pool = make(port=server.port, max_connections=1, timeout=0.1)
    client: Any = redis.Redis(connection_pool=pool)
    taken = client.pubsub()
    taken.subscribe("something of the application's")
    try:
        with pytest.raises(redis.ConnectionError):
            client.ping()
        use(client, name)
    finally:
        taken.close()
        pool.disconnect()


def test_a_client_that_is_closed_or_broken_does_not_matter(server: PrivateServer, name: str) -> None:
    client = redis.Redis(port=server.port or 0)
    lock = Lock(client, name)
    client.close()
    client.connection_pool.disconnect()
    with lock:
        pass


def test_an_empty_database_number_is_respected(server: PrivateServer, name: str) -> None:
    """Locks in two databases are two locks; the hand-over works in each."""
    one, other = redis.Redis(port=server.port or 0, db=1), redis.Redis(port=server.port or 0, db=2)
    with one, other, Lock(one, name, wait=0), Lock(other, name, wait=0):
        assert one.exists(f"hf:{{{name}}}") == other.exists(f"hf:{{{name}}}") == 1


# Passwords


PASSWORD_CLIENTS: dict[str, Callable[[Any], Any]] = {
    "redis.Redis": lambda at: redis.Redis(port=at.port, password=PASSWORD),
    "redis.Redis, user": lambda at: redis.Redis(port=at.port, username="default", password=PASSWORD),
    "redis.Redis, provider": lambda at: redis.Redis(
        port=at.port, credential_provider=redis.UsernamePasswordCredentialProvider("default", PASSWORD)
    ),
    "redis.Redis, from_url": lambda at: redis.Redis.from_url(at.url),
    "redis.Redis, unix socket": lambda at: redis.Redis(unix_socket_path=at.socket, password=PASSWORD),
    "valkey.Valkey": lambda at: valkey.Valkey(port=at.port, password=PASSWORD),
    "url": lambda at: at.url,
}


@pytest.mark.parametrize("kind", PASSWORD_CLIENTS)
def test_with_a_password(locked_server: PrivateServer, name: str, kind: str) -> None:
    client = PASSWORD_CLIENTS[kind](locked_server)
    use(client, name)
    if not isinstance(client, str):
        client.close()


@pytest.mark.parametrize("password", [None, "canary-wrong"])
def test_without_or_with_a_wrong_password(locked_server: PrivateServer, name: str, password: str | None) -> None:
    client = redis.Redis(port=locked_server.port or 0, password=password)
    with pytest.raises(ServerError, match=r"refused: (NOAUTH|WRONGPASS)") as caught:
        Lock(client, name).acquire()
    assert "canary" not in str(caught.value)
    assert "canary" not in repr(caught.value.__cause__)

    async def main() -> None:
        with pytest.raises(ServerError, match=r"refused: (NOAUTH|WRONGPASS)"):
            await aio.Lock(redis.asyncio.Redis(port=locked_server.port or 0, password=password), name).acquire()

    asyncio.run(main())


@pytest.mark.parametrize("command", ["AUTH", "EVALSHA"])
def test_a_server_that_repeats_what_it_was_sent(new_server: NewServer, name: str, command: str) -> None:
    """A renamed command: its error message quotes the arguments, a password or a token among them."""
    server = new_server("--rename-command", command, "", port=True)
    client = redis.Redis(port=server.port or 0, password="canary-password" if command == "AUTH" else None)
    lock = Lock(client, "x")
    with pytest.raises(ServerError, match="unknown command") as caught:
        lock.acquire()
    text = f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__dict__}"
    assert "canary" not in text
    assert not [word for word in text.replace("'", " ").split() if "." in word and len(word.split(".")[-1]) == 32]


# Opened and closed connections


def test_connections_are_shared_by_all_who_mean_the_same_server(server: PrivateServer, look: redis.Redis, name: str) -> None:
    def come_and_go() -> None:
        with FairLock(server.url, name):
            pass

    holdfast.close()
    before = nobody_else(look)
    for number in range(20):
        with FairLock(server.url, f"{name}-{number}"):
            pass
    assert len(connections(look) - before) <= 2
    with FairLock(server.url, name):
        waiting = [in_thread(come_and_go) for _ in range(10)]
        until(lambda: queue_length(look, name) == 10)
    for future in waiting:
        future.result(5)
    holdfast.close()
    until(lambda: connections(look) == before)


def test_what_is_no_coroutine_is_no_asyncio_client() -> None:
    """How the two kinds of clients are told apart, for every client there is."""
    synchronous: list[Any] = [redis.Redis, valkey.Valkey]
    asynchronous: list[Any] = [redis.asyncio.Redis, valkey.asyncio.Valkey]
    assert not any(inspect.iscoroutinefunction(cls.execute_command) for cls in synchronous)
    assert all(inspect.iscoroutinefunction(cls.execute_command) for cls in asynchronous)
