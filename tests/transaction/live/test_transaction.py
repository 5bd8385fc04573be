"""Transactions on a real server: both APIs, the clients of redis-py and of valkey-py."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
import redis

import holdfast
from holdfast import CommandFailed, ConfigError, ServerError, TransactionConflict
from support.proxy import Proxy
from support.servers import PrivateServer
from support.witness import until_in_loop
from transaction.live.transactions import KINDS, Optimist, done, play


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def add_one(tx: Any, key: str) -> int:
    """The transaction that everybody writes first."""
    number = int(await done(tx.read.get(key)) or 0)
    tx.queue.set(key, number + 1)
    return number


def test_reads_come_at_once_and_writes_together(server: PrivateServer, name: str, kind: str, look: redis.Redis) -> None:
    async def scene(me: Optimist) -> None:
        look.set(name, 7)
        async with me.within(name) as tx:
            assert await done(tx.read.get(name)) == b"7"
            tx.queue.set(name, 8).incr(f"{name}:log")
            tx.queue.expire(name, 60)
            assert look.get(name) == "7"
            with pytest.raises(RuntimeError, match="has no results"):
                assert tx.results
        assert tx.results == [True, 1, True]
        async with me.within(name) as tx:
            connection = tx._pipe.connection
        assert tx.results == []
        assert connection._connect_callbacks == []
        assert look.get(name) == "8"

    play(kind, server.url, scene, max_connections=1)


def test_a_key_changed_by_somebody_else(server: PrivateServer, name: str, kind: str, look: redis.Redis) -> None:
    async def scene(me: Optimist) -> None:
        with pytest.raises(TransactionConflict, match=f"{name}.* changed a watched key .* nothing was carried out") as caught:
            async with me.within(name, f"{name}:2") as tx:
                await add_one(tx, name)
                look.set(f"{name}:2", "theirs")
        assert caught.value.keys == (name, f"{name}:2")
        assert caught.value.tries == 1
        assert look.get(name) is None
        try:
            raise ConnectionError("some time ago")
        except ConnectionError:
            with pytest.raises(TransactionConflict):
                async with me.within(name) as tx:
                    look.incr(name)
        assert look.get(name) == "1"

    play(kind, server.url, scene, max_connections=1)


def test_a_block_that_raises_does_nothing(server: PrivateServer, name: str, kind: str, look: redis.Redis) -> None:
    async def scene(me: Optimist) -> None:
        for error in (ValueError("sold out"), KeyboardInterrupt(), asyncio.CancelledError()):
            with pytest.raises(type(error)) as caught:
                async with me.within(name) as tx:
                    await add_one(tx, name)
                    raise error
            assert caught.value is error
        with pytest.raises(me.errors.ResponseError, match="not an integer"):
            async with me.within(name) as tx:
                await done(tx.read.set(name, "a"))
                await done(tx.read.incr(name))
        look.delete(name)
        async with me.within(name) as tx:  # on the one connection there is, which watches nothing any more
            await add_one(tx, name)
        assert look.get(name) == "1"

    play(kind, server.url, scene, max_connections=1)


def test_tried_again_until_it_counts(server: PrivateServer, name: str, kind: str, look: redis.Redis) -> None:
    async def scene(me: Optimist) -> None:
        rivals = 3

        async def with_rivals(tx: Any) -> int:
            nonlocal rivals
            number = await add_one(tx, name)
            if rivals:
                rivals -= 1
                look.incrby(name, 10)
            return number

        assert await me.run(with_rivals, name) == 30
        assert look.get(name) == "31"
        rivals = 1000
        with pytest.raises(TransactionConflict, match="given up after 4 tries") as caught:
            await me.run(with_rivals, name, tries=4)
        assert (caught.value.tries, rivals) == (4, 996)
        with pytest.raises(TransactionConflict) as caught:
            await me.run(with_rivals, name, wait=0)
        assert caught.value.tries == 1
        for bad in ({"tries": 0}, {"tries": 1.5}, {"wait": -1}):
            with pytest.raises(ConfigError):
                await me.run(with_rivals, name, **bad)

    play(kind, server.url, scene)


def test_a_command_that_fails_inside_exec_undoes_nothing(
    server: PrivateServer, name: str, kind: str, look: redis.Redis
) -> None:
    async def scene(me: Optimist) -> None:
        with pytest.raises(CommandFailed, match=r"1 of 3 .*results\[1\], INCRBY '.*': .*not an integer.*no rollback") as caught:
            async with me.within(name) as tx:
                tx.queue.set(name, "text").incr(name).set(f"{name}:after", "done")
        assert caught.value.results is tx.results
        assert [type(answer).__name__ for answer in tx.results] == ["bool", "ResponseError", "bool"]
        assert list(caught.value.failed) == [1]
        assert (look.get(name), look.get(f"{name}:after")) == ("text", "done")
        with pytest.raises(ServerError, match=r"refused: command 1: .*unknown command.*; nothing was carried out") as refused:
            async with me.within(name) as tx:
                tx.queue.execute_command("NONSENSE", "secret")
                tx.queue.delete(name)
        assert "secret" not in str(refused.value)
        assert look.get(name) == "text"

    play(kind, server.url, scene, max_connections=1)


@pytest.mark.parametrize("harm", ["lose", "cut"])
def test_an_answer_to_exec_that_is_lost_is_no_conflict(
    server: PrivateServer, name: str, kind: str, look: redis.Redis, harm: Any
) -> None:
    """It was carried out, once: a caller that tries again by itself does it twice."""

    async def scene(me: Optimist) -> None:
        async def append(tx: Any) -> None:
            tx.queue.rpush(name, "order")

        rule = proxy.on("EXEC", action=harm)
        with pytest.raises(ServerError, match="may or may not have been carried out"):
            await me.run(append, name)
        assert rule.done.wait(5)
        assert look.llen(name) == 1
        await me.run(append, name)
        assert look.llen(name) == 2

    with Proxy(server) as proxy:
        play(kind, proxy.url, scene, socket_timeout=0.6, max_connections=1)


def test_a_connection_that_is_lost_before_exec_is_a_conflict(
    server: PrivateServer, name: str, kind: str, look: redis.Redis
) -> None:
    """The client opens it again without a word, and the server has forgotten what it watched."""

    async def scene(me: Optimist) -> None:
        harm = "closed"

        async def interrupted(tx: Any) -> int:
            nonlocal harm
            number = await add_one(tx, name)
            how, harm = harm, ""
            if how == "closed":
                await done(tx._pipe.connection.disconnect())
                look.incr(name)
            return number

        with pytest.raises(TransactionConflict, match="connection that watched its keys was lost"):
            await me.run(interrupted, name, tries=1)
        assert look.get(name) == "1"
        harm = "closed"
        assert await me.run(interrupted, name) == 2
        assert look.get(name) == "3"

        with pytest.raises(TransactionConflict, match="connection that watched its keys was lost"):
            async with me.within(name) as tx:
                proxy.cut()
                with pytest.raises(TransactionConflict):
                    await done(tx.read.get(name))
                with pytest.raises(TransactionConflict):
                    tx.queue.set(name, "never")
        assert look.get(name) == "3"

    with Proxy(server) as proxy:
        play(kind, proxy.url, scene, max_connections=1)


def test_what_is_refused(server: PrivateServer, name: str, kind: str, look: redis.Redis) -> None:
    async def scene(me: Optimist) -> None:
        for keys in ((), ("",), (7,), (name, None)):
            with pytest.raises(ConfigError, match="keys"):
                me.on(*keys)
        for client in ([me.client], object(), redis.Redis if me.is_async else redis.asyncio.Redis()):
            with pytest.raises(ConfigError, match="client"):
                me.on(name, client=client)
        async with me.within(name) as tx:
            for own in ("watch", "unwatch", "multi", "execute", "discard", "reset", "pipeline", "_x"):
                for commands in (tx.read, tx.queue):
                    with pytest.raises(AttributeError):
                        getattr(commands, own)
            with pytest.raises(AttributeError, match="'gte' is not a command"):
                tx.read.gte(name)
            with pytest.raises(ConfigError, match="inside another transaction that watches the same key"):
                async with me.within(name, client=me.client):
                    raise AssertionError
            with pytest.raises(RuntimeError, match="in use, or was used before"):
                await (tx.__aenter__() if me.is_async else _enter(tx))
            tx.queue.set(name, "queued")
            with pytest.raises(RuntimeError, match="read before the first command is queued"):
                tx.read.get(name)
            with pytest.raises(RuntimeError, match="read before"):
                await done(tx.watch(f"{name}:2"))
        for late in (tx.read, tx.queue):
            with pytest.raises(RuntimeError, match="outside of its block"):
                late.get(name)
        assert look.get(name) == "queued"

    play(kind, server.url, scene)


async def _enter(tx: Any) -> None:
    tx.__enter__()


def test_more_keys_are_watched_when_their_names_are_known(
    server: PrivateServer, name: str, kind: str, look: redis.Redis
) -> None:
    async def scene(me: Optimist) -> None:
        look.set(name, f"{name}:target")
        with pytest.raises(TransactionConflict) as caught:
            async with me.within(name) as tx:
                target = (await done(tx.read.get(name))).decode()
                await done(tx.watch(target))
                look.set(target, 1)
                tx.queue.set(target, 2)
        assert caught.value.keys == (name, f"{name}:target")
        assert look.get(f"{name}:target") == "1"

    play(kind, server.url, scene)


def test_replies_are_what_the_client_makes_of_them(server: PrivateServer, name: str, kind: str, look: redis.Redis) -> None:
    async def scene(me: Optimist) -> None:
        look.hset(name, "left", 3)
        key = name.encode()
        async with me.within(key) as tx:
            assert await done(tx.read.hgetall(name)) == {"left": "3"}
            assert await done(tx.read.execute_command("HGET", name, "left")) == "3"
            tx.queue.hincrby(name, "left", -1).hgetall(name)
        assert tx.results == [2, {"left": "2"}]

    play(kind, server.url, scene, decode_responses=True)


def test_a_pool_without_a_connection_left(server: PrivateServer, name: str, kind: str, look: redis.Redis) -> None:
    async def scene(me: Optimist) -> None:
        async with me.within(name) as tx:
            await add_one(tx, name)
            with pytest.raises(ServerError, match=r"pool has no free connection.*nothing was carried out"):
                async with me.within(f"{name}:2"):
                    raise AssertionError
        assert look.get(name) == "1"
        async with me.within(f"{name}:2") as tx:
            await add_one(tx, f"{name}:2")
        assert look.get(f"{name}:2") == "1"

    play(kind, server.url, scene, max_connections=1)


def test_a_server_that_is_away(new_server: Any, name: str, kind: str) -> None:
    async def scene(me: Optimist) -> None:
        running.kill()
        with pytest.raises(ServerError, match=r"failed: .*nothing was carried out") as caught:
            await me.run(lambda tx: add_one(tx, name), name)
        assert caught.value.address == running.socket

    running = new_server()
    play(kind, running.url, scene)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "asyncio"])
def test_a_url_will_do(server: PrivateServer, name: str, look: redis.Redis, is_async: bool) -> None:
    async def scene(me: Optimist) -> None:
        for _ in range(3):
            await me.run(lambda tx: add_one(tx, name), name, client=server.url)
        assert look.get(name) == "3"
        assert len(opened()) == 1  # shared
        await me.close()
        await until_in_loop(lambda: not opened())  # the server sees it a moment later

    def opened() -> set[Any]:
        return {one["addr"] for one in look.client_list()} - before

    before = {one["addr"] for one in look.client_list()}
    play("redis.asyncio" if is_async else "redis", server.url, scene)


async def _in_tasks(me: Optimist, name: str) -> None:
    async def ten(tx_key: str) -> None:
        for _ in range(10):
            await me.on(tx_key).run(lambda tx: add_one(tx, tx_key))

    await asyncio.gather(*(ten(name) for _ in range(8)))


@pytest.mark.parametrize("package", ["redis", "valkey"])
def test_tasks_that_compete(server: PrivateServer, name: str, look: redis.Redis, package: str) -> None:
    play(f"{package}.asyncio", server.url, lambda me: _in_tasks(me, name))
    assert look.get(name) == "80"


@pytest.mark.parametrize("package", ["redis", "valkey"])
def test_reads_of_one_transaction_by_several_tasks(server: PrivateServer, name: str, look: redis.Redis, package: str) -> None:
    async def scene(me: Optimist) -> None:
        keys = [f"{name}:{n}" for n in range(20)]
        look.mset({key: n for n, key in enumerate(keys)})
        async with me.within(name) as tx:
            assert await asyncio.gather(*map(tx.read.get, keys)) == [b"%d" % n for n in range(20)]
            forgotten = tx.read.get(name)
            tx.queue.set(name, "done")
        with pytest.raises(RuntimeError, match="outside of its block"):
            await forgotten
        assert look.get(name) == "done"

    with Proxy(server) as proxy:
        proxy.delay = lambda: 0.001  # answers that have to be waited for
        play(f"{package}.asyncio", proxy.url, scene, max_connections=1)


@pytest.mark.parametrize("package", ["redis", "valkey"])
@pytest.mark.parametrize("at", ["WATCH", "GET", "EXEC"])
def test_a_task_that_is_cancelled(server: PrivateServer, name: str, look: redis.Redis, package: str, at: str) -> None:
    """At each of its requests. It can go on with the same client, and the same keys."""

    async def scene(me: Optimist) -> None:
        rule = proxy.on(at, action="stall")
        task = asyncio.create_task(me.run(lambda tx: add_one(tx, name), name))
        await until_in_loop(rule.done.is_set)  # the server has done it, and the answer is kept back
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        rule.go()
        expected = 1 if at == "EXEC" else 0
        assert await me.run(lambda tx: add_one(tx, name), name) == expected
        assert look.get(name) == str(expected + 1)

    with Proxy(server) as proxy:
        play(f"{package}.asyncio", proxy.url, scene, max_connections=1)


def test_a_read_that_is_cancelled_ends_the_watch(server: PrivateServer, name: str, look: redis.Redis) -> None:
    """redis-py closes the connection then, and opens it again for EXEC."""

    async def scene(me: Optimist) -> None:
        with pytest.raises(TransactionConflict, match="connection that watched its keys was lost"):
            async with me.within(name) as tx:
                rule = proxy.on("GET", action="stall")
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await tx.read.get(name)
                rule.go()
                look.set(name, "theirs")
                tx.queue.set(name, "mine")
        assert look.get(name) == "theirs"

    with Proxy(server) as proxy:
        play("redis.asyncio", proxy.url, scene)


def test_a_forked_child_has_no_part_in_it(server: PrivateServer, name: str, look: redis.Redis) -> None:
    """It carries out nothing, and the parent's connection goes on watching."""
    reads, writes = os.pipe()
    with pytest.raises(TransactionConflict), holdfast.transaction(server.url, name) as tx:
        tx.queue.rpush(name, "order")
        child = os.fork()
        if child == 0:
            try:
                tx.__exit__(None, None, None)
            except RuntimeError as error:
                tx._pipe.__del__()  # as when the child ends
                os.write(writes, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert b"belongs to the process that forked this one" in os.read(reads, 1000)
        assert look.llen(name) == 0
        look.rpush(name, "another")
    assert look.lrange(name, 0, -1) == ["another"]
    os.close(reads)
    os.close(writes)
