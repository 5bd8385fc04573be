"""`connect` on a real server: what its objects do, what it opens and closes."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
import redis
import redis.asyncio

import holdfast
from holdfast import aio, fencing
from support.servers import PrivateServer
from support.witness import connections, nobody_else, until

if TYPE_CHECKING:
    from conftest import NewServer


def test_in_threads(server: PrivateServer, name: str, look: redis.Redis) -> None:
    with holdfast.connect(server.url, prefix=f"{name}:", ttl=8, wait=0) as db:
        with db.lock("x") as lease:
            assert 7 < lease.remaining() <= 8
            assert look.exists(f"{name}:{{x}}")
            assert not db.lock("x").acquire()
            assert [info.name for info in db.inspector().locks()] == ["x"]
            ticket = lease.ticket()
            with db.redeem(ticket) as handed:
                assert handed.fence >= lease.fence
        assert db.cache("prices").get_or_load("a", lambda: 5) == 5

        @db.locked("f:{n}", busy="skip")
        def locked(n: int) -> int:
            return n

        @db.once("g:{n}", keep=60)
        def once(n: int) -> int:
            return n

        assert (locked(1), once(2)) == (1, 2)
        with db.multilock(["p", "q"]) as leases:
            assert leases.remaining() <= 8
        with db.election("boss") as term:
            assert term.fence
        with db.transaction(f"{name}:n") as tx:
            assert tx.read.get(f"{name}:n") is None
        assert db.find_deadlocks() == []


def test_in_asyncio(server: PrivateServer, name: str, look: redis.Redis) -> None:
    async def main() -> None:
        async with aio.connect(server.url, prefix=f"{name}:", ttl=8, wait=0) as db:
            async with db.lock("x") as lease:
                assert 7 < lease.remaining() <= 8
                assert look.exists(f"{name}:{{x}}")
                assert not await db.lock("x").acquire()

            @db.once("g:{n}", keep=60)
            async def once(n: int) -> int:
                return n

            assert await once(2) == 2
            assert await db.find_deadlocks() == []

    asyncio.run(main())


def test_fences_are_checked(server: PrivateServer, name: str) -> None:
    """The key has no prefix, as in the functions."""
    with holdfast.connect(server.url, prefix="app:") as db, db.lock(name) as lease:
        assert db.accept(f"{name}:a", lease.fence)
        assert not db.accept(f"{name}:a", lease.fence - 1)
        assert db.fenced_set(f"{name}:b", "new", lease.fence)
        assert not fencing.fenced_set(server.url, f"{name}:b", "late", lease.fence - 1)

    async def main() -> None:
        async with aio.connect(server.url, prefix="app:") as other:
            assert not await other.accept(f"{name}:a", lease.fence - 1)
            assert await other.fenced_set(f"{name}:b", "newer", lease.fence + 1)

    asyncio.run(main())


def test_the_end_of_with_closes_what_was_opened(new_server: NewServer) -> None:
    server = new_server(port=True)
    with redis.Redis.from_url(server.url) as user:
        own = {str(user.client_id())}
        with holdfast.connect(user) as db:
            db.event("done").set()
            assert connections(user) > own
        assert nobody_else(user) == own
        assert user.ping(), "the client belongs to the caller"
        with holdfast.Lock(server.url, "held") as lease:
            with db, db.lock("x"):
                pass
            lease.check()
        assert db.event("done").is_set(), "the next use opens a connection again"


def test_the_end_of_async_with_closes_what_the_loop_has_opened(new_server: NewServer) -> None:
    server = new_server(port=True)

    async def main(look: redis.Redis) -> None:
        async with redis.asyncio.Redis.from_url(server.url, single_connection_client=True) as user:
            others = {str(look.client_id()), str(await user.client_id())}
            async with aio.connect(user) as db:
                await db.event("done").set()
                assert connections(look) > others
            until(lambda: connections(look) == others)
            assert await user.ping(), "the client belongs to the caller"
            async with db.lock("x") as lease:
                await db.close()
                lease.check()
            assert await db.event("done").is_set(), "the next use opens a connection again"

    with redis.Redis.from_url(server.url) as look:
        asyncio.run(main(look))


def test_threads_share_a_connection(server: PrivateServer, name: str) -> None:
    db, held = holdfast.connect(server.url, prefix=f"{name}:"), list[int]()

    def work() -> None:
        with db.lock("x") as lease:
            held.append(lease.fence)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert held == sorted(held)
    assert len(held) == 4


def test_a_wrong_option_is_answered_as_by_the_class(server: PrivateServer, name: str) -> None:
    with pytest.raises(TypeError, match="has no expire="):
        holdfast.connect(server.url).lock(name, expire=3)  # type: ignore[arg-type]
