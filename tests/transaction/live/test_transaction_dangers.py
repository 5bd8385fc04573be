"""Transactions where the client alone would say, or do, something wrong: each of these once went wrong here."""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal

import pytest
import redis

import holdfast
from holdfast import CommandFailed, ConfigError, ServerError, TransactionConflict
from holdfast._net.client_pipeline import Reconnected, Tripwire
from holdfast._runtime.drivers import sync_client
from support.proxy import Proxy, Rule
from support.servers import PrivateServer
from support.witness import in_thread, until, until_in_loop
from transaction.live.transactions import KINDS, Optimist, done, play


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def limited(server: PrivateServer, look: redis.Redis) -> Iterator[str]:
    """URL for a user who may do all but MULTI."""
    look.acl_setuser("limited", enabled=True, passwords="+pass", keys="*", categories=["+@all"], commands=["-multi"])
    yield server.url.replace("redis://", "redis://limited:pass@")
    look.acl_deluser("limited")


def test_an_answer_to_exec_that_cannot_be_read(server: PrivateServer, name: str, kind: str, look: redis.Redis) -> None:
    """The client closes the connection, and comes upon the tripwire as it cleans up. That is no conflict."""

    async def append(tx: Any) -> None:
        tx.queue.rpush(name, "order").get(f"{name}:bytes")

    async def scene(me: Optimist) -> None:
        look.set(f"{name}:bytes", b"\xff")
        with pytest.raises(ServerError, match=r"can't decode.*may or may not have been carried out"):
            await me.run(append, name)
        assert look.llen(name) == 1

    play(kind, server.url, scene, decode_responses=True, max_connections=1)


def test_a_value_that_is_none_for_the_server(server: PrivateServer, name: str, kind: str, look: redis.Redis) -> None:
    async def scene(me: Optimist) -> None:
        with pytest.raises(me.errors.DataError):
            async with me.within(name) as tx:
                tx.queue.set(name, 1).set(name, object())
        assert look.get(name) is None
        async with me.within(name) as tx:
            tx.queue.set(name, 2)
        assert look.get(name) == "2"

    play(kind, server.url, scene, max_connections=1)


def test_multi_is_refused(limited: str, name: str, kind: str, look: redis.Redis) -> None:
    """The client has sent all of it by then, and without MULTI the server does each command at once."""

    async def scene(me: Optimist) -> None:
        with pytest.raises(ServerError, match="MULTI was refused, and its commands were executed one by one"):
            async with me.within(name) as tx:
                tx.queue.set(name, "mine")
        assert look.get(name) == "mine"

    play(kind, limited, scene)


def test_a_connection_that_the_server_closes_before_exec(
    server: PrivateServer, name: str, kind: str, look: redis.Redis
) -> None:
    """Nothing was sent on it: it is done again."""
    tries = 0

    async def killed(tx: Any) -> None:
        nonlocal tries
        tries += 1
        tx.queue.rpush(name, "order")
        if tries == 1:
            (one,) = (one["id"] for one in look.client_list() if one["name"] == "victim")
            look.client_kill_filter(_id=one)
            if kind.endswith("asyncio"):
                await until_in_loop(tx._pipe.connection._reader.at_eof)  # the loop has to hear of it

    async def scene(me: Optimist) -> None:
        await me.run(killed, name)
        assert (tries, look.llen(name)) == (2, 1)

    play(kind, server.url, scene, client_name="victim", max_connections=1)


def test_a_command_that_would_end_the_watch(server: PrivateServer, name: str, kind: str) -> None:
    async def scene(me: Optimist) -> None:
        async with me.within(name) as tx:
            for commands in (tx.read, tx.queue):
                for word in ("UNWATCH", "watch", b"EXEC", "Discard", "MULTI", "RESET"):
                    with pytest.raises(AttributeError, match="not allowed in a transaction"):
                        await done(commands.execute_command(word))
                if commands is tx.read:
                    await done(commands.get(name))

    play(kind, server.url, scene)


def test_a_connection_that_is_lost_between_the_pages_of_an_iterator(
    server: PrivateServer, name: str, kind: str, look: redis.Redis
) -> None:
    """Each of its commands is one of the transaction's, as if it were called alone."""
    look.hset(name, mapping={f"{n:0100}": n for n in range(1000)})
    cuts = 1

    async def count(tx: Any) -> int:
        nonlocal cuts
        cursor = 0
        pages = tx.read.hscan_iter(name, count=100)
        if hasattr(pages, "__anext__"):
            async for _ in pages:
                cursor, cuts = cursor + 1, cuts - 1
                if cuts == 0:
                    proxy.cut()
        else:
            for _ in pages:
                cursor, cuts = cursor + 1, cuts - 1
                if cuts == 0:
                    proxy.cut()
        return cursor

    async def scene(me: Optimist) -> None:
        nonlocal cuts
        assert await me.run(count, name) == 1000
        with pytest.raises(TransactionConflict, match="connection that watched its keys was lost"):
            async with me.within(name) as tx:
                cuts = 1
                with pytest.raises(TransactionConflict):
                    await count(tx)
                look.set(f"{name}:2", "theirs")
                with pytest.raises(TransactionConflict):
                    tx.queue.set(f"{name}:2", "mine")
        assert look.get(f"{name}:2") == "theirs"

    with Proxy(server) as proxy:
        play(kind, proxy.url, scene)


def test_one_within_another_on_a_key_that_was_watched_later(server: PrivateServer, name: str, kind: str) -> None:
    async def scene(me: Optimist) -> None:
        async with me.within(name) as tx:
            await done(tx.watch(f"{name}:2", name))
            with pytest.raises(ConfigError, match="inside another transaction that watches the same key"):
                async with me.within(f"{name}:2"):
                    raise AssertionError
            async with me.within(f"{name}:3") as inner:
                with pytest.raises(ConfigError, match="inside another transaction that watches the same key"):
                    await done(inner.watch(f"{name}:2"))
        async with me.within(f"{name}:2"):
            pass

    play(kind, server.url, scene)


def test_many_commands_that_fail(server: PrivateServer, name: str, look: redis.Redis) -> None:
    look.set(name, "text")
    raises = pytest.raises(CommandFailed, match=r"1000 of 1000 .*results\[4\].* …\. The other commands")
    with raises as caught, holdfast.transaction(server.url, name) as tx:
        for _ in range(1000):
            tx.queue.incr(name)
    assert len(caught.value.failed) == 1000
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("package", ["redis", "valkey"])
def test_a_thread_that_still_reads_when_the_block_ends(
    server: PrivateServer, name: str, look: redis.Redis, package: str
) -> None:
    """There is one connection: EXEC waits for its turn, and the next read comes too late."""
    look.set(f"{name}:other", "value")
    heard: list[object] = []

    def read(tx: Any) -> None:
        heard.append(tx.read.get(f"{name}:other"))
        try:
            tx.read.get(f"{name}:other")
        except RuntimeError as error:
            heard.append(str(error))

    def answer(tx: Any, rule: Rule) -> None:
        until(lambda: tx._state == "executing")
        rule.go()

    async def scene(me: Optimist) -> None:
        rule = proxy.on("GET", action="stall")
        async with me.within(name) as tx:
            thread = threading.Thread(target=read, args=(tx,))
            thread.start()
            assert rule.seen.wait(5)
            answered = in_thread(answer, tx, rule)
        answered.result(5)
        thread.join()
        assert tx.results == []
        assert heard[0] == b"value"
        assert "outside of its block" in str(heard[1])
        assert me.client.get(name) is None

    with Proxy(server) as proxy:
        play(package, proxy.url, scene, max_connections=1, socket_timeout=2)


@pytest.mark.parametrize("package", ["redis", "valkey"])
@pytest.mark.parametrize("cancelled", [False, True], ids=["waits", "cancelled"])
def test_a_task_that_still_reads_when_the_block_ends(
    server: PrivateServer, name: str, look: redis.Redis, package: str, cancelled: bool
) -> None:
    async def read(tx: Any) -> None:
        tasks.extend(asyncio.create_task(tx.read.get(name)) for _ in range(2))
        while not rule.seen.is_set():
            await asyncio.sleep(0.01)
        asyncio.get_running_loop().call_later(0.1, rule.go)
        tx.queue.set(f"{name}:2", 1)

    async def scene(me: Optimist) -> None:
        try:
            async with asyncio.timeout(None) as limit, me.within(name) as tx:
                await read(tx)
                if cancelled:  # while the block waits for its task
                    limit.reschedule(asyncio.get_running_loop().time() + 0.02)
        except TimeoutError:
            assert cancelled
        first, second = await asyncio.gather(*tasks, return_exceptions=True)
        assert first == b"value"
        assert "outside of its block" in str(second)
        assert await me.client.get(f"{name}:2") == (None if cancelled else b"1")

    look.set(name, "value")
    tasks: list[asyncio.Task[Any]] = []
    with Proxy(server) as proxy:
        rule = proxy.on("GET", action="stall")
        play(f"{package}.asyncio", proxy.url, scene, max_connections=1)


async def add_one(tx: Any, key: str) -> int:
    number = int(await tx.read.get(key) or 0)
    tx.queue.set(key, number + 1)
    return number


@pytest.mark.parametrize("package", ["redis", "valkey"])
@pytest.mark.parametrize("at", ["WATCH", "GET", "EXEC"])
@pytest.mark.parametrize("then", ["pass", "cut"])
def test_a_cancellation_that_the_client_swallows(
    server: PrivateServer,
    name: str,
    look: redis.Redis,
    package: str,
    at: str,
    then: Literal["pass", "cut"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When the request has just left, as `asyncio.wait_for` does on Python 3.11. The client gets the answer, or an error."""
    connection: Any = importlib.import_module(f"{package}.asyncio").Connection
    send = connection.send_packed_command
    tasks: list[asyncio.Task[Any]] = []

    async def swallows(self: Any, command: Any, *args: Any, **options: Any) -> None:
        await send(self, command, *args, **options)
        if tasks and f"\r\n{at}\r\n".encode() in b"".join(command):
            tasks.pop().cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)

    async def scene(me: Optimist) -> None:
        rule = proxy.on(at, action=then)
        task = asyncio.create_task(me.run(lambda tx: add_one(tx, name), name))
        tasks.append(task)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert rule.done.wait(5)
        expected = 1 if at == "EXEC" else 0
        assert await me.run(lambda tx: add_one(tx, name), name) == expected
        assert look.get(name) == str(expected + 1)

    monkeypatch.setattr(connection, "send_packed_command", swallows)
    with Proxy(server) as proxy:
        play(f"{package}.asyncio", proxy.url, scene, max_connections=1)


def test_a_cancellation_that_the_function_swallows(server: PrivateServer, name: str, look: redis.Redis) -> None:
    """It is the user's, who may want it so: what is carried out then has its result."""

    async def swallows(tx: Any) -> int:
        number = await add_one(tx, name)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        return number

    async def scene(me: Optimist) -> None:
        assert await asyncio.create_task(me.run(swallows, name)) == 0
        assert look.get(name) == "1"

    play("redis.asyncio", server.url, scene, max_connections=1)


def test_an_interrupt_between_two_steps_of_the_driver(
    server: PrivateServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operation cannot clean up then. The connection goes back all the same, watching nothing."""

    def interrupted(operation: Any) -> None:
        monkeypatch.undo()
        operation.close()
        raise KeyboardInterrupt

    with redis.Redis.from_url(server.url, max_connections=1) as client:
        with pytest.raises(KeyboardInterrupt), holdfast.transaction(client, name) as tx:
            tx.queue.set(name, 1)
            monkeypatch.setattr(sync_client.driver, "run", interrupted)
        assert client.get(name) is None
        holdfast.transaction(client, name).run(lambda tx: tx.queue.set(name, 2))
        assert client.get(name) == b"2"


def test_a_forked_child_cannot_read_on_its_parents_connection(server: PrivateServer, name: str) -> None:
    reads, writes = os.pipe()
    with holdfast.transaction(server.url, name) as tx:
        child = os.fork()
        if child == 0:
            for late in (tx.read.get, tx.queue.delete):
                try:
                    late(name)
                except RuntimeError as error:
                    os.write(writes, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reads, 1000).count(b"belongs to the process that forked this one") == 2
        assert tx.read.get(name) is None
    os.close(reads)
    os.close(writes)


def test_who_has_the_connection_next_does_not_come_upon_the_tripwire() -> None:
    """The client puts it back into its pool before the transaction hears how it ended."""

    class Connection:
        def register_connect_callback(self, callback: Any) -> None:
            self.connected = callback

    class Pipeline:
        connection: Connection | None = Connection()

    pipeline = Pipeline()
    connection = pipeline.connection
    assert connection is not None
    tripwire = Tripwire(pipeline)
    with pytest.raises(Reconnected):
        tripwire.tripped(connection)
    pipeline.connection = None
    tripwire.tripped(connection)
