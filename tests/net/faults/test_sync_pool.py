"""The connection that many threads share: each thread gets its own reply, even if others are slow, interrupted or gone."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast._core.requests import NotSent, Refused, Unknown, WireError
from holdfast._net.endpoint import Endpoint
from holdfast._net.protocol import command
from holdfast._net.sync_connection import Connection
from holdfast._net.sync_pool import OWN, READ_WITHIN_S, Pool, _Request, _SharedConnection
from holdfast._net.system import System
from holdfast._net.url import from_url
from runtime.faults.test_interrupts import HOME, at_every_line
from support.apis import Admin, Sync, until
from support.proxy import Proxy
from support.servers import PrivateServer

if TYPE_CHECKING:
    from conftest import NewServer

PING = command("PING")

start = Sync().start


def echo(pool: Pool | _SharedConnection, number: object, timeout: float = 5) -> object:
    return pool.exchange(command("ECHO", str(number)), timeout)


def shared_only(url: str) -> Pool:
    """One in which all threads but the main one share."""
    pool = Pool(from_url(url))
    pool.share()
    return pool


@contextmanager
def crowd(pool: Pool, threads: int = 4) -> Iterator[list[int]]:
    """Threads that send requests all the time, until the end of the block.

    Each gets its own reply, or Unknown; never a late one.
    """
    stop = threading.Event()
    counts = [0] * threads

    def ask(number: int) -> None:
        while not stop.is_set():
            asked = time.monotonic()
            text = f"{number} {counts[number]}"
            try:
                assert echo(pool, text) == text.encode()
                counts[number] += 1
            except Unknown:
                pass
            assert time.monotonic() - asked < 3, "ended by its time limit"

    futures = [start(ask, number) for number in range(threads)]
    try:
        yield counts
    finally:
        stop.set()
        for future in futures:
            future.result(10)
        pool.clear()


def test_everybody_gets_his_own_reply_over_few_connections(new_server: NewServer) -> None:
    server = new_server()
    pool = Pool(from_url(server.url))
    with crowd(pool, 3 * OWN) as counts:
        until(lambda: min(counts) > 50)
        until(lambda: pool._lane.connection is not None)  # some share
        clients = Connection(from_url(server.url), 1)
        count = clients.exchange(command("CLIENT", "LIST")).count(b"\n") - 1
        clients.close()
        assert count <= OWN + 1
        until(lambda: len(pool.sockets()) >= 1)  # those not in use at this moment
    assert pool.sockets() == []


def test_requests_leave_in_batches_and_in_order(server: PrivateServer, proxy: Proxy, admin: Admin) -> None:
    key = f"{admin.lock}:order"
    pool = shared_only(proxy.url)
    lane = pool._lane
    proxy.freeze()
    first = start(pool.exchange, PING, 5)
    until(lambda: len(lane._in_flight) == 1)
    others = []
    for number in range(20):
        others.append(start(pool.exchange, command("RPUSH", key, number), 5))
        until(lambda number=number: len(lane._queue) == number + 1)  # type: ignore[misc]
    proxy.thaw()
    assert first.result(5) == b"PONG"
    assert [other.result(5) for other in others] == list(range(1, 21))
    assert admin.redis.lrange(key, 0, -1) == [str(number) for number in range(20)]
    admin.redis.delete(key)
    assert len({request.link for request in proxy.log}) == 1
    pool.clear()


@pytest.mark.parametrize("short_is", ["reader", "other"])
def test_each_has_its_own_time_limit(proxy: Proxy, short_is: str) -> None:
    """The first that runs out ends the connection, for everybody who is on it; what was not sent goes over the next."""
    pool = shared_only(proxy.url)
    lane = pool._lane
    assert start(echo, pool, 1).result(5) == b"1"
    rule = proxy.on("PING", action="lose")
    first = start(pool.exchange, PING, 0.3 if short_is == "reader" else 30)
    assert rule.seen.wait(5)
    started = time.monotonic()
    second = start(echo, pool, 2, 30 if short_is == "reader" else 0.3)  # behind it, or over the next one
    with pytest.raises(Unknown):
        first.result(5)
    if short_is == "reader":
        assert second.result(5) == b"2"
    else:
        with pytest.raises(Unknown, match="no answer in time"):
            second.result(5)
    assert time.monotonic() - started < 10
    assert start(echo, pool, 3).result(5) == b"3"
    assert pool._lane is not lane
    pool.clear()


def test_who_is_held_up_with_whoever_reads_gets_what_has_come(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that goes on after a pause: all time limits are over, and nobody has had the time to read."""
    monkeypatch.setattr("holdfast._net.sync_pool.READ_WITHIN_S", 20.0)  # however slow this one is
    pool = shared_only(proxy.url)
    lane = pool._lane
    assert start(echo, pool, 1).result(5) == b"1"
    rule = proxy.on("PING", action="stall")
    reader = start(pool.exchange, PING, 30)
    assert rule.done.wait(5)
    other = start(echo, pool, 2, 0.1)
    time.sleep(0.3)
    rule.go()
    assert (reader.result(5), other.result(5)) == (b"PONG", b"2")
    assert pool._lane is lane
    pool.clear()


def test_a_lost_connection_leaves_the_unsent_in_line(proxy: Proxy) -> None:
    pool = shared_only(proxy.url)
    assert start(echo, pool, 1).result(5) == b"1"
    lane = pool._lane
    proxy.freeze()
    first = start(echo, pool, 2)
    until(lambda: lane.busy)
    others = [start(echo, pool, number) for number in range(10, 20)]
    until(lambda: len(lane._queue) == 10)
    proxy.cut()
    proxy.thaw()
    with pytest.raises(Unknown):
        first.result(5)
    assert [other.result(5) for other in others] == [str(number).encode() for number in range(10, 20)]
    pool.clear()


def test_a_connection_with_an_answer_to_nothing_is_not_used_again() -> None:
    """Nobody could tell to whom the next reply belongs."""
    ours, server = socket.socketpair()

    class Dialled(System):
        def dial(self, *_: Any) -> socket.socket:
            return ours

    with server:
        lane = _SharedConnection(Endpoint(), Dialled())
        server.sendall(b"+PONG\r\n+PONG\r\n")
        with pytest.raises(Unknown, match="a reply without a request"):
            lane.exchange(PING, 5)
        assert server.recv(100) == PING
        assert server.recv(100) == b"", "it is closed"
    assert lane.over


def test_a_request_has_its_time_from_when_it_was_sent() -> None:
    """Not from when its thread began to wait for the connection: others were served first."""
    now = [100.0]

    def wait(_blocking: bool = True, seconds: float = 0.0) -> bool:
        now[0] += seconds
        return False

    mine = _Request(PING, 5.0, SimpleNamespace(acquire=wait))
    mine.sent = 103.0
    lane: Any = SimpleNamespace(
        _clock=lambda: now[0],
        _waiting={},
        _queue=deque(),
        _turn=SimpleNamespace(acquire=lambda _blocking: False),
        _too_late=TimeoutError,
        _leave=lambda _error: None,
    )
    with pytest.raises(TimeoutError):
        _SharedConnection._follow(lane, mine)
    assert now[0] == pytest.approx(108.0 + READ_WITHIN_S)


def test_the_chain_of_those_to_wake_goes_on_past_one_who_has_left() -> None:
    """A thread that was awake when its reply came has left without being woken."""
    lane = _SharedConnection(Endpoint(), System())
    gone, waiting, following = (_Request(PING, 5.0, threading.Lock()) for _ in range(3))
    gone.left = True
    lane._answered.extend([gone, waiting, following])
    lane._wake_next()
    assert waiting.bell.acquire(blocking=False)
    assert not following.bell.acquire(blocking=False), "it is woken by the one before"


def test_who_reads_for_others_waits_as_long_as_the_oldest_request_may() -> None:
    lane = _SharedConnection(Endpoint(), System())
    mine, *others = (_Request(PING, 5.0, threading.Lock()) for _ in range(3))
    mine.answered, firsts = True, list[_Request]()

    def once(_connection: object, first: _Request) -> None:
        firsts.append(first)
        lane._in_flight.clear()

    lane.connection, lane._send_and_receive = cast("Any", object()), once  # type: ignore[method-assign,assignment]
    lane._in_flight.extend(others)
    lane._turn.acquire()
    lane._lead(mine)
    assert firsts == others[:1]


def test_who_finds_a_connection_dead_closes_the_idle_ones(new_server: NewServer) -> None:
    """Or each would have an unknown outcome of its own, after a restart that everybody knows of."""
    server = new_server()
    pool = Pool(from_url(server.url))
    lane = pool._lane
    assert echo(pool, 1) == b"1"
    assert start(echo, pool, 2).result(5) == b"2"
    assert start(lane.exchange, command("ECHO", "3"), 5).result(5) == b"3"
    assert len(pool.sockets()) == 3
    server.kill()
    with pytest.raises(Unknown):
        start(echo, pool, 4).result(5)
    assert pool.sockets() == []
    server.restart()
    assert echo(pool, 5) == b"5"
    assert start(echo, pool, 6).result(5) == b"6"
    pool.clear()


def test_without_a_server_nothing_is_sent(new_server: NewServer) -> None:
    server = new_server()
    pool = shared_only(server.url)
    server.kill()
    for future in [start(echo, pool, number) for number in range(10)]:
        with pytest.raises(NotSent):
            future.result(5)
    server.restart()
    assert start(echo, pool, 1).result(5) == b"1"
    pool.clear()


def test_who_is_not_let_in_is_told_so(server: PrivateServer) -> None:
    pool = shared_only(server.url.replace("redis://", "redis://nobody:wrong@"))
    for future in [start(echo, pool, number) for number in range(5)]:
        with pytest.raises(Refused, match="WRONGPASS"):
            future.result(5)


def test_a_turn_that_is_never_handed_on_ends_with_the_next_time_limit(server: PrivateServer) -> None:
    """Two exceptions at the worst points, or a bug: the others wait for once as long as they said, and go on without."""
    pool = shared_only(server.url)
    assert start(echo, pool, 1).result(5) == b"1"
    lane = pool._lane
    taken, done = threading.Event(), threading.Event()

    def take_it() -> bool:
        lane._turn.acquire()
        taken.set()
        return done.wait(10)

    thread = start(take_it)
    assert taken.wait(5)
    stuck = start(echo, pool, 2, 0.2)
    with pytest.raises(Unknown):
        stuck.result(5)
    assert start(echo, pool, 3).result(5) == b"3"
    assert pool._lane is not lane
    done.set()
    assert thread.result(5)
    pool.clear()


# Exceptions and questions out of nowhere


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_thread_interrupted_at_every_line_harms_no_other(server: PrivateServer) -> None:
    """As by `PyThreadState_SetAsyncExc`: whether it was reading for all, waiting, or just coming or going."""
    pool = shared_only(server.url)
    assert start(echo, pool, 1).result(5) == b"1"

    def ask() -> None:
        try:
            assert echo(pool, "mine") == b"mine"
        except WireError:
            pass

    def undisturbed(where: str) -> None:
        before = [*counts]
        until(lambda: all(now > then for now, then in zip(counts, before, strict=True)), 3)

    lines: set[str] = set()
    with crowd(pool) as counts:
        until(lambda: min(counts) > 10)
        for _ in range(3):
            lines.update(start(at_every_line, ask, undisturbed).result(60))
    alone: set[str] = set()
    for _ in range(2):
        alone.update(start(at_every_line, ask, lambda _: None).result(60))
    pool.clear()
    assert len(lines | alone) > 30, "it was really traced"


class Nested:
    """Asks something at every line of holdfast's own code that runs in this thread, as a finaliser may."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self.ask = ask
        self.count = 0
        self._asking = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        if event == "line" and not self._asking:
            self._asking = True
            self.count += 1
            self.ask()
            self._asking = False
        return self


@pytest.mark.parametrize("others", [0, 4])
def test_a_thread_that_asks_while_it_asks_waits_for_nobody(server: PrivateServer, others: int) -> None:
    pool = shared_only(server.url)

    def ask() -> None:
        try:
            assert echo(pool, "inner", 2) == b"inner"
        except Unknown:
            assert others, "there is nobody who could have ended the connection"

    def outer() -> int:
        nested = Nested(ask)
        for number in range(3):
            sys.settrace(nested)
            try:
                assert echo(pool, number) == str(number).encode()
            finally:
                sys.settrace(None)
        return nested.count

    if others:
        with crowd(pool, others) as counts:
            until(lambda: min(counts) > 10)
            assert start(outer).result(30) > 30
    else:
        started = time.monotonic()
        assert start(outer).result(30) > 20
        assert time.monotonic() - started < 2
        pool.clear()


def test_a_signal_handler_may_ask_while_the_main_thread_is_asking(proxy: Proxy) -> None:
    pool = Pool(from_url(proxy.url))
    assert echo(pool, 0) == b"0"
    rule = proxy.on("PING", action="stall")
    answers: list[object] = []

    def handler(*_: object) -> None:
        answers.append(echo(pool, "from the handler"))
        answers.append(start(echo, pool, "from another thread meanwhile").result(5))
        rule.go()

    def interrupt() -> None:
        rule.done.wait(5)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        helper = threading.Thread(target=interrupt)
        helper.start()
        assert pool.exchange(PING, 5) == b"PONG"
        helper.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert answers == [b"from the handler", b"from another thread meanwhile"]
    pool.clear()
