"""The connection that all tasks of a loop share: batches, order, limits, and what becomes of requests when it is lost."""

from __future__ import annotations

import asyncio
import gc
import itertools
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import holdfast.aio
from holdfast._clock import clock
from holdfast._core.requests import NotSent, Refused, Unknown, WireError
from holdfast._net.aio_connection import MAX_IN_FLIGHT, AioConnection
from holdfast._net.protocol import command
from holdfast._net.url import from_url
from holdfast._runtime.process import current
from support.apis import Admin, until
from support.proxy import Proxy
from support.servers import PrivateServer

if TYPE_CHECKING:
    from conftest import NewServer

PING = command("PING")


@asynccontextmanager
async def stream(url: str, *, connected: bool = True) -> AsyncIterator[AioConnection]:
    stream = AioConnection(from_url(url))
    if connected:
        assert (await stream.exchange(PING, 5))[0] == b"PONG"
    try:
        yield stream
    finally:
        await stream.close()


def in_flight(stream: AioConnection) -> int:
    return len(stream._protocol.in_flight) if stream._protocol else 0


async def started(*coroutines: object) -> list[asyncio.Task[tuple[object, float]]]:
    """Tasks that have come as far as they can without the loop looking at the network."""
    tasks = [asyncio.ensure_future(c) for c in coroutines]  # type: ignore[call-overload]
    await asyncio.sleep(0)
    return tasks


def test_what_is_asked_in_one_turn_of_the_loop_leaves_in_one_write(new_server: NewServer) -> None:
    async def reads(wire: AioConnection) -> int:
        info, _ = await wire.exchange(command("INFO", "stats"), 5)
        return int(next(line for line in info.split(b"\r\n") if line.startswith(b"total_reads_processed")).split(b":")[1])

    async def main() -> None:
        async with stream(new_server().url) as wire:
            before = await reads(wire)
            for _ in range(3):
                await asyncio.gather(*(wire.exchange(PING, 5) for _ in range(200)))
            # Each round: one alone as the connection is idle, 199 together, in pieces of what the server reads at a time.
            assert await reads(wire) - before <= 20

    asyncio.run(main())


def steps(wire: AioConnection) -> list[str]:
    """Returns a list that gets the word "read" each time that the connection has read bytes."""
    order: list[str] = []
    protocol: Any = wire._protocol
    read = protocol.buffer_updated

    def buffer_updated(nbytes: int) -> None:
        read(nbytes)
        order.append("read")

    protocol.buffer_updated = buffer_updated
    return order


def test_a_task_that_asks_alone_goes_on_in_the_iteration_that_reads_the_reply(server: PrivateServer) -> None:
    async def main() -> None:
        async with stream(server.url) as wire:
            order = steps(wire)

            async def ask() -> None:
                await wire.exchange(PING, 5)
                order.append("answered")

            await ask()
            await asyncio.sleep(0)
            assert order == ["answered", "read"]
            order.clear()
            await asyncio.gather(ask(), ask())
            assert order[-3:] == ["read", "answered", "answered"]
            order.clear()
            # Both the task and a function wait for this reply.
            reply = wire.send(PING, 5)
            assert reply is not None
            reply.add_done_callback(lambda _: order.append("called"))
            assert await reply == b"PONG"
            await asyncio.sleep(0)
            assert order == ["read", "called"]

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(main())


def test_a_task_that_is_interrupted_by_its_reply_leaves_the_connection_in_order(server: PrivateServer) -> None:
    async def interrupted(wire: AioConnection) -> None:
        await wire.exchange(PING, 5)
        raise KeyboardInterrupt

    loop = asyncio.new_event_loop()
    try:
        wire = AioConnection(from_url(server.url))
        loop.run_until_complete(wire.exchange(PING, 5))
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(interrupted(wire))
        for text in ("a", "b"):
            assert loop.run_until_complete(wire.exchange(command("ECHO", text), 5))[0] == text.encode()
        loop.run_until_complete(wire.close())
    finally:
        loop.close()


def test_those_who_are_answered_together_ask_together() -> None:
    rounds, writes, ended = 5, [], asyncio.Event()

    async def answer_both(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readexactly(2 * len(PING))
                writer.write(2 * b"+PONG\r\n")
        except asyncio.IncompleteReadError:
            writer.close()
            await writer.wait_closed()
            ended.set()

    async def main() -> None:
        listener = await asyncio.start_server(answer_both, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with listener, stream(f"redis://127.0.0.1:{port}", connected=False) as wire:

            async def ask() -> None:
                for _ in range(rounds):
                    assert (await wire.exchange(PING, 5))[0] == b"PONG"

            await asyncio.gather(wire.exchange(PING, 5), wire.exchange(PING, 5))
            protocol: Any = wire._protocol
            transport = protocol.transport

            def write(data: bytes) -> None:
                writes.append(data)
                transport.write(data)

            protocol.transport = SimpleNamespace(write=write, is_closing=transport.is_closing)
            await asyncio.gather(ask(), ask())
            protocol.transport = transport
        await ended.wait()  # or its socket would outlive the loop
        assert writes[2:] == (rounds - 1) * [2 * PING]

    asyncio.run(main())


def test_requests_arrive_in_the_order_in_which_they_were_made(server: PrivateServer, admin: Admin) -> None:
    """Whether they were sent at once, had to wait for their turn, or for the connection."""
    key = f"{admin.lock}:order"
    count = 3 * MAX_IN_FLIGHT

    async def main() -> None:
        for connected in (True, False):
            async with stream(server.url, connected=connected) as wire:
                push = [wire.exchange(command("RPUSH", key, number), 5) for number in range(count)]
                lengths = await asyncio.gather(*push)
                assert [length for length, _ in lengths] == list(range(1, count + 1))
            assert admin.redis.lrange(key, 0, -1) == [str(number) for number in range(count)]
            admin.redis.delete(key)

    asyncio.run(main())


def test_only_so_many_are_in_flight_and_an_undo_waits_behind_its_do(proxy: Proxy, admin: Admin) -> None:
    key = f"{admin.lock}:order"

    async def main() -> None:
        async with stream(proxy.url) as wire:
            proxy.freeze()
            pings = await started(*(wire.exchange(PING, 5) for _ in range(2 * MAX_IN_FLIGHT)))
            assert in_flight(wire) == MAX_IN_FLIGHT
            assert wire.send(PING, 5) is None
            do, other = await started(*(wire.exchange(command("RPUSH", key, word), 5) for word in ("do", "other")))
            other.cancel()
            (undo,) = await started(wire.exchange(command("RPUSH", key, "undo"), 5))
            before = clock()
            proxy.thaw()
            await asyncio.gather(*pings, do, undo)
            assert undo.result()[1] >= before, "it counts from when it was sent, not from when it began to wait"
            assert admin.redis.lrange(key, 0, -1) == ["do", "undo"], "what was cancelled while it waited is never sent"
            admin.redis.delete(key)

    asyncio.run(main())


@pytest.mark.fault(10)
def test_a_cancelled_request_takes_nobodys_reply(proxy: Proxy) -> None:
    async def main() -> None:
        async with stream(proxy.url) as wire:
            proxy.freeze()
            echoes = await started(*(wire.exchange(command("ECHO", number), 5) for number in range(10)))
            for task in echoes[::2]:
                task.cancel()
            proxy.thaw()
            replies = await asyncio.gather(*echoes[1::2])
            assert [reply for reply, _ in replies] == [b"1", b"3", b"5", b"7", b"9"]

    asyncio.run(main())


def test_each_request_has_its_own_time_limit(proxy: Proxy) -> None:
    """The first that runs out ends the connection: what comes on it could be anybody's."""

    async def main() -> None:
        async with stream(proxy.url) as wire:
            rule = proxy.on("PING", action="lose")
            before = clock()
            long, short = await started(wire.exchange(PING, 30), wire.exchange(PING, 0.1))
            for task in (short, long):
                with pytest.raises(Unknown, match="no answer in time"):
                    await task
            assert 0.05 < clock() - before < 2
            assert rule.done.wait(5)  # or the next one would be harmed
            assert (await wire.exchange(PING, 5))[0] == b"PONG"  # on a new one

    asyncio.run(main())


def test_a_busy_loop_takes_no_time_from_the_server(server: PrivateServer) -> None:
    """The loop is busy for longer than the time limit. Requests that left before are answered meanwhile, and those that leave
    afterwards have all their time."""

    async def main() -> None:
        async with stream(server.url) as wire:
            pings = await started(*(wire.exchange(command("ECHO", "x" * 1000), 0.1) for _ in range(MAX_IN_FLIGHT - 1)))
            await asyncio.sleep(0)  # now they have left
            queued = await started(wire.exchange(PING, 0.1), wire.exchange(PING, 0.1))
            time.sleep(0.5)
            assert {reply for reply, _ in await asyncio.gather(*pings)} == {b"x" * 1000}
            assert [reply for reply, _ in await asyncio.gather(*queued)] == [b"PONG", b"PONG"]

    asyncio.run(main())


def test_a_busy_loop_takes_no_time_from_the_opening_of_a_connection(server: PrivateServer) -> None:
    async def main() -> None:
        async with stream(server.url, connected=False) as wire:
            (ping,) = await started(wire.exchange(PING, 0.1))
            time.sleep(0.5)
            assert (await ping)[0] == b"PONG"

    asyncio.run(main())


def test_a_silent_server_is_given_up_although_the_loop_is_busy(proxy: Proxy) -> None:
    async def main() -> None:
        async with stream(proxy.url) as wire, asyncio.timeout(10):
            proxy.freeze()
            (ping,) = await started(wire.exchange(PING, 0.1))
            while not ping.done():
                time.sleep(0.3)
                await asyncio.sleep(0)
            with pytest.raises(Unknown, match="no answer in time"):
                await ping
            proxy.thaw()

    asyncio.run(main())


def test_a_lost_connection_leaves_the_unsent_in_line(proxy: Proxy, admin: Admin) -> None:
    """A request that was sent is unknown; one that was not goes over the next connection, in order."""
    key = f"{admin.lock}:order"

    async def main() -> None:
        async with stream(proxy.url) as wire:
            proxy.freeze()
            pings = await started(*(wire.exchange(PING, 5) for _ in range(MAX_IN_FLIGHT)))
            pushes = await started(*(wire.exchange(command("RPUSH", key, number), 5) for number in range(5)))
            proxy.cut()
            proxy.thaw()
            outcomes = await asyncio.gather(*pings, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {Unknown}
            await asyncio.gather(*pushes)
            assert admin.redis.lrange(key, 0, -1) == [str(number) for number in range(5)]
            admin.redis.delete(key)

    asyncio.run(main())


def test_what_cannot_be_sent_is_not_sent(new_server: NewServer) -> None:
    server = new_server()

    async def main() -> None:
        async with stream(server.url) as wire:
            server.pause()
            pings = await started(*(wire.exchange(PING, 5) for _ in range(MAX_IN_FLIGHT)))
            (late,) = await started(wire.exchange(PING, 0.1))
            with pytest.raises(NotSent, match="not sent in time: 1000 requests wait for their replies"):
                await late
            waiting = await started(*(wire.exchange(PING, 5) for _ in range(3)))
            server.kill()
            outcomes = await asyncio.gather(*pings, *waiting, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [Unknown] * MAX_IN_FLIGHT + [NotSent] * 3
            assert len({id(outcome) for outcome in outcomes}) == len(outcomes), "one error raised twice collects tracebacks"
            server.restart()
            assert (await wire.exchange(PING, 5))[0] == b"PONG"

    asyncio.run(main())


def test_closing_answers_everybody(proxy: Proxy) -> None:
    async def main() -> None:
        async with stream(proxy.url) as wire:
            proxy.freeze()
            tasks = await started(*(wire.exchange(PING, 5) for _ in range(MAX_IN_FLIGHT + 1)))
            await asyncio.sleep(0)  # now they have left
            await wire.close()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [Unknown] * MAX_IN_FLIGHT + [NotSent]
            proxy.thaw()

    asyncio.run(main())


def test_who_is_not_let_in_is_told_so(server: PrivateServer) -> None:
    async def main() -> None:
        async with stream(server.url.replace("redis://", "redis://nobody:wrong@"), connected=False) as wire:
            tasks = [asyncio.create_task(wire.exchange(PING, 5)) for _ in range(3)]
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(outcome, Refused)
                assert outcome.code == "WRONGPASS"

    asyncio.run(main())


@pytest.mark.turns("fleets")
def test_two_thousand_at_once_leave_no_trace_in_memory(server: PrivateServer) -> None:
    async def main() -> None:
        async with stream(server.url) as wire:
            await asyncio.gather(*(wire.exchange(PING, 5) for _ in range(2000)))
            sizes = []
            for _ in range(3):
                await asyncio.gather(*(wire.exchange(PING, 5) for _ in range(2000)))
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
            # A leak for each request would show in both rounds; a buffer may happen to grow in one of them.
            assert min(later - earlier for earlier, later in itertools.pairwise(sizes)) < 50_000, sizes

    tracemalloc.start()
    try:
        asyncio.run(main())
    finally:
        tracemalloc.stop()


@pytest.mark.turns("fleets")
def test_three_thousand_locks_taken_at_once(server: PrivateServer, name: str) -> None:
    """All get theirs, over one connection, with a bounded number of requests in flight."""
    most, url = 0, f"{server.url}?socket_timeout=60"  # of a busy machine

    async def main() -> None:
        nonlocal most

        async def use(number: int) -> None:
            nonlocal most
            async with holdfast.aio.Lock(url, f"{name} {number}", ttl=300):
                most = max(most, in_flight(wire))

        async with holdfast.aio.Lock(url, name):
            (drivers,) = current().drivers.values()
            (driver,) = drivers.values()
            wire = driver.stream
        await asyncio.gather(*(use(number) for number in range(3000)))

    asyncio.run(main())
    assert 100 < most <= MAX_IN_FLIGHT
    until(lambda: not current().drivers)


def test_the_time_that_a_connection_takes_is_part_of_the_request_that_opens_it() -> None:
    """And the connection stays: it is not to blame, and has cost enough."""
    logins, go = [], asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        logins.append(writer)
        await asyncio.sleep(0.7)
        writer.write(b"+OK\r\n")
        await reader.read(1000)
        await go.wait()
        writer.write(b"+late\r\n")
        await reader.read(1000)
        writer.write(b"+PONG\r\n")
        await reader.read()
        writer.close()

    async def main() -> None:
        listener = await asyncio.start_server(slow, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with listener, stream(f"redis://:secret@127.0.0.1:{port}", connected=False) as wire:
            began = clock()
            with pytest.raises(Unknown, match="no answer in time"):
                await wire.exchange(PING, 1.3)
            assert clock() - began < 1.9
            go.set()
            assert (await wire.exchange(PING, 5))[0] == b"PONG"
            assert len(logins) == 1

    asyncio.run(main())


def test_a_connection_that_ends_right_behind_its_login_is_not_used() -> None:
    """The login has succeeded, and the end of the connection is noticed before the task that opens it is done."""
    logins = itertools.count(1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"+OK\r\n")
        if next(logins) == 1:
            writer.write_eof()
        else:
            await reader.read(1000)
            writer.write(b"+PONG\r\n")
        await reader.read()
        writer.close()

    async def main() -> None:
        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with listener, stream(f"redis://:secret@127.0.0.1:{port}", connected=False) as wire:
            with pytest.raises(NotSent, match="closed the connection"):
                await wire.exchange(PING, 1)
            assert (await wire.exchange(PING, 5))[0] == b"PONG"

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # from asyncio: a loop that is closed so leaves its transports open
def test_a_loop_that_is_closed_while_its_connection_logs_in_leaves_no_error() -> None:
    """The opening cleans up when it is collected, and the loop takes no calls any more."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        wire = AioConnection(from_url(f"redis://:secret@127.0.0.1:{listener.getsockname()[1]}"))
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda _loop, _context: None)  # its tasks are pending, on purpose
        task = loop.create_task(wire.exchange(PING, 5))
        peer, _ = loop.run_until_complete(asyncio.to_thread(listener.accept))
        with peer:
            login = loop.run_until_complete(asyncio.to_thread(peer.recv, 1000))
            assert login.startswith(b"*2\r\n$4\r\nAUTH")
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
            del task, wire
            gc.collect()


@pytest.mark.parametrize("end", ["abort", "close"])
def test_what_is_asked_while_a_connection_ends_goes_over_the_next_one(server: PrivateServer, admin: Admin, end: str) -> None:
    """The loop has noticed a reset or the end of file, and tells the connection in its next iteration.

    A request that is written now is never sent, nor is one that was to leave in one write at the end of this iteration.
    """
    key = f"{admin.lock}:order"

    async def main() -> None:
        async with stream(server.url) as wire:
            assert wire._protocol is not None
            sent, *queued = [asyncio.ensure_future(wire.exchange(command("RPUSH", key, n), 5)) for n in range(3)]
            await asyncio.sleep(0)
            assert in_flight(wire) == 3
            transport: Any = wire._protocol.transport
            getattr(transport, end)()  # as the loop does
            late = wire.exchange(command("RPUSH", key, 3), 5)
            outcome, *lengths = await asyncio.gather(sent, *queued, late, return_exceptions=True)
            assert isinstance(outcome, Unknown)
            assert [type(length) for length in lengths] == [tuple] * 3
            assert admin.redis.lrange(key, 0, -1)[-3:] == ["1", "2", "3"]
            assert wire._protocol.transport is not transport
            admin.redis.delete(key)

    asyncio.run(main())


def test_an_end_of_file_ends_a_connection_at_once(server: PrivateServer) -> None:
    """With TLS, the loop takes and drops what is written between the end of file and its `connection_lost`."""

    async def main() -> None:
        async with stream(server.url) as wire:
            assert wire._protocol is not None
            (sent,) = await started(wire.exchange(PING, 5))
            wire._protocol.eof_received()
            with pytest.raises(Unknown, match="the connection was closed"):
                await sent
            assert (await wire.exchange(PING, 5))[0] == b"PONG"

    asyncio.run(main())


def test_what_was_not_sent_when_a_connection_is_closed_is_not_sent(server: PrivateServer) -> None:
    async def main() -> None:
        async with stream(server.url) as wire:
            tasks = await started(*(wire.exchange(PING, 5) for _ in range(2)))
            await wire.close()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [Unknown, NotSent]

    asyncio.run(main())


def test_what_was_not_sent_keeps_its_time_limit(proxy: Proxy) -> None:
    async def main() -> None:
        async with stream(proxy.url) as wire:
            assert wire._protocol is not None
            _, queued = await started(wire.exchange(PING, 5), wire.exchange(PING, 0.3))
            wire.endpoint.timeout = 5.0
            proxy.freeze()
            before = clock()
            wire._protocol.abort("the connection was closed")
            with pytest.raises(WireError, match="in time"):
                await queued
            assert clock() - before < 2
            proxy.thaw()

    asyncio.run(main())
