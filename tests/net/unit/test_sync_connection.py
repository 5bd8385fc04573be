"""One connection of a thread: the time limit of a request, however its reply arrives."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast._core.lock.replies import RENEW
from holdfast._core.requests import NotSent, RunScript, Unknown
from holdfast._net.endpoint import Endpoint
from holdfast._net.protocol import command
from holdfast._net.sync_connection import KERNEL_WAIT_S, Connection, ConnectionPool
from holdfast._net.sync_pool import _Request, _SharedConnection
from holdfast._net.system import System
from holdfast._net.wait_connection import LATE, Dedicated

PING = command("PING")


class Dripping(socket.socket):
    """A socket on which pieces of replies arrive at given times of a machine."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(socket.AF_UNIX)
        self.machine = machine
        self.pieces: deque[tuple[float, bytes]] = deque()
        self.patience = 0.0

    def settimeout(self, value: float | None) -> None:
        self.patience = value or self.patience

    def setsockopt(self, *args: Any) -> None:
        if args[1] == socket.SO_RCVTIMEO:
            self.patience = KERNEL_WAIT_S

    def sendall(self, *_: Any) -> None:
        pass

    def send(self, data: Any, *_: Any) -> int:
        """Take five thousand bytes each tenth of a second."""
        if not self.machine.readable(SimpleNamespace(pieces=[(self.machine.now + 0.1, b"")]), self.patience):
            raise TimeoutError
        return min(5000, len(data))

    def recv(self, *_: Any) -> bytes:
        if not self.machine.readable(self, self.patience):
            raise BlockingIOError if self.patience == KERNEL_WAIT_S else TimeoutError
        return self.pieces.popleft()[1]


class Machine(System):
    """Its clock moves while a thread waits for a socket."""

    def __init__(self) -> None:
        self.now = 100.0
        self.dialled = list[Dripping]()
        self.clock = self.monotonic = lambda: self.now

    def dial(self, *_: Any) -> socket.socket:
        sock = Dripping(self)
        sock.pieces.append((self.now, b"+PONG\r\n"))
        return sock

    def readable(self, sock: Any, seconds: float) -> bool:
        until = self.now + max(0.0, seconds)
        comes = sock.pieces[0][0] if sock.pieces else float("inf")
        self.now = max(self.now, min(comes, until))
        return bool(comes <= until)


@contextmanager
def connected(*, tls: bool) -> Iterator[tuple[Machine, Connection, Any]]:
    """A machine, a connection, and its socket. With TLS it has logged in with PING."""
    machine = Machine()
    connection = Connection(Endpoint(tls=() if tls else None), 1.0, machine)
    connection.sock.pieces.clear()  # type: ignore[attr-defined]
    connection.set_timeout(1.0)
    try:
        yield machine, connection, connection.sock
    finally:
        connection.close()


def drip(machine: Machine, sock: Any, reply: bytes, every: float) -> None:
    """Have each byte of a reply arrive ``every`` seconds after the one before."""
    sock.pieces.extend((machine.now + (n + 1) * every, reply[n : n + 1]) for n in range(len(reply)))


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("every", [0.4, 0.004])
def test_a_reply_in_pieces_has_one_time_limit(tls: bool, every: float) -> None:
    with connected(tls=tls) as (machine, connection, sock):
        drip(machine, sock, b"$1000\r\n" + b"x" * 1000, every)
        with pytest.raises(Unknown, match="no answer in time") as caught:
            connection.exchange(PING)
        assert machine.now == pytest.approx(101.0, abs=2 * KERNEL_WAIT_S)
        assert caught.value.silent


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("ask", [Connection.exchange, Connection.send])
def test_a_request_that_is_taken_in_pieces_has_one_time_limit(tls: bool, ask: Callable[[Connection, bytes], object]) -> None:
    with connected(tls=tls) as (machine, connection, sock):
        sock.pieces.append((101.0, b"+PONG\r\n"))
        ask(connection, bytes(40_000))
        assert machine.now > 100.7
        with pytest.raises(Unknown, match="no answer in time") as caught:
            ask(connection, bytes(400_000))
        assert machine.now < 102.2
        assert caught.value.silent


def test_requests_that_share_a_connection_are_sent_within_the_time_limit_of_the_first() -> None:
    machine = Machine()
    lane = _SharedConnection(Endpoint(), machine)
    lane.connection = Connection(Endpoint(), 0.001, machine)  # the rest of an earlier time limit
    lane.connection.sock.pieces.append((101.0, b"+PONG\r\n"))  # type: ignore[attr-defined]
    mine = _Request(bytes(40_000), 5, machine.lock())
    lane._queue.append(mine)
    lane._send_and_receive(lane.connection, mine)
    assert (mine.reply, mine.answered) == (b"PONG", True)
    lane.connection.close()


def test_what_the_kernel_has_waited_is_part_of_the_time_for_an_answer() -> None:
    with connected(tls=False) as (machine, connection, _):
        for ask in (lambda: connection.exchange(PING), connection.receive):
            began = machine.now
            with pytest.raises(Unknown, match="no answer in time"):
                ask()
            assert machine.now == pytest.approx(began + 1.0)


@pytest.mark.parametrize("tls", [False, True])
def test_each_request_has_its_own_time_limit(tls: bool) -> None:
    """Also after a reply whose last piece came just in time."""
    with connected(tls=tls) as (machine, connection, sock):
        for every in (0.14, 0.9):
            drip(machine, sock, b"+PONG\r\n" if every < 0.5 else b":", every)
            if every < 0.5:
                assert connection.exchange(PING) == b"PONG"
        sock.pieces.append((machine.now + 0.95, b"1\r\n"))
        assert connection.exchange(PING) == 1
        with pytest.raises(Unknown):
            connection.exchange(PING)
        assert machine.now == pytest.approx(100.0 + 0.98 + 0.95 + 1.0, abs=2 * KERNEL_WAIT_S)


@pytest.mark.parametrize("tls", [False, True])
def test_pieces_that_have_arrived_are_read_however_late(tls: bool) -> None:
    """The process was stopped, and all time limits are over."""
    with connected(tls=tls) as (machine, connection, sock):
        drip(machine, sock, b"+PONG\r\n", 0.01)

        def stopped(*_: Any) -> bytes:
            machine.now += 10.0
            connection._recv = sock.recv
            return sock.recv()  # type: ignore[no-any-return]

        connection._recv = stopped
        assert connection.exchange(PING) == b"PONG"


def test_a_login_in_pieces_has_one_time_limit() -> None:
    machine = Machine()

    def dial(*_: Any) -> Dripping:
        sock = Dripping(machine)
        drip(machine, sock, b"+PONG\r\n", 0.4)
        return sock

    machine.dial = dial  # type: ignore[method-assign]
    with pytest.raises(NotSent) as caught:
        Connection(Endpoint(tls=()), 1.0, machine)
    assert machine.now == pytest.approx(101.0)
    assert caught.value.silent


@pytest.mark.parametrize("every", [0.4, 0.004])
def test_a_reply_in_pieces_on_a_shared_connection_has_one_time_limit(every: float) -> None:
    machine = Machine()

    def dial(*_: Any) -> Dripping:
        sock = Dripping(machine)
        drip(machine, sock, b"$1000\r\n" + b"x" * 1000, every)
        return sock

    machine.dial = dial  # type: ignore[method-assign]
    with pytest.raises(Unknown, match="no answer in time") as caught:
        _SharedConnection(Endpoint(), machine).exchange(PING, 1.0)
    assert machine.now == pytest.approx(101.0, abs=2 * KERNEL_WAIT_S)
    assert caught.value.silent


def test_a_reply_in_pieces_on_a_connection_for_wait_has_one_time_limit() -> None:
    machine = Machine()

    def dial(*_: Any) -> Dripping:
        sock = Dripping(machine)
        drip(machine, sock, b":1\r\n:1\r\n", 0.4)
        return sock

    machine.dial = dial  # type: ignore[method-assign]
    with pytest.raises(Unknown, match="no answer in time"):
        Dedicated(Endpoint(), machine).replicate(RunScript(RENEW, (b"k", b"s", b"q"), ("token", 1000, 1), 1.0), 1, 1.0)
    assert machine.now == pytest.approx(100.0 + 1.0 + LATE, abs=2 * KERNEL_WAIT_S)


def answering(machine: Machine, meanwhile: Callable[[], None], *replies: bytes) -> Callable[..., Dripping]:
    """Return a function that dials a server which answers with these replies; ``meanwhile`` is called before the last one."""

    def dial(*_: Any) -> Dripping:
        sock = Dripping(machine)
        sock.pieces.extend((machine.now, reply) for reply in replies)
        take = sock.recv

        def recv(*args: Any) -> bytes:
            if len(sock.pieces) == 1:
                meanwhile()
            return take(*args)

        sock.recv = recv  # type: ignore[method-assign]
        dialled.append(sock)
        return sock

    dialled = list[Dripping]()
    machine.dialled = dialled
    return dial


@pytest.mark.parametrize("limit", [None, 2])
def test_a_connection_that_is_in_use_when_the_pool_is_cleared_is_closed_after_its_use(limit: int | None) -> None:
    """It leads to a server that is no primary any more."""
    machine = Machine()
    pool = ConnectionPool(Endpoint(), limit, machine)
    machine.dial = answering(machine, pool.clear, b"+PONG\r\n")  # type: ignore[method-assign]
    assert pool.exchange(PING, 1.0) == b"PONG"
    assert pool.sockets() == []
    assert [sock.fileno() for sock in machine.dialled] == [-1]
    machine.dial = answering(machine, lambda: None, b"+PONG\r\n")  # type: ignore[method-assign]
    assert pool.exchange(PING, 1.0) == b"PONG"
    assert pool.sockets() == machine.dialled
    assert limit is None or len(pool._idle) == limit
    pool.clear()


def test_a_connection_in_use_stays_when_only_the_idle_ones_are_closed() -> None:
    """Another one has failed; this one has its reply."""
    machine = Machine()
    pool = ConnectionPool(Endpoint(), 2, machine)
    machine.dial = answering(machine, pool.close_idle, b"+PONG\r\n")  # type: ignore[method-assign]
    assert pool.exchange(PING, 1.0) == b"PONG"
    assert pool.sockets() == machine.dialled
    assert len(pool._idle) == 2
    pool.clear()


def test_a_connection_for_wait_that_is_in_use_when_they_are_cleared_is_closed_after_its_use() -> None:
    machine = Machine()
    dedicated = Dedicated(Endpoint(), machine)
    machine.dial = answering(machine, dedicated.clear, b":1\r\n", b":1\r\n")  # type: ignore[method-assign]
    assert dedicated.replicate(RunScript(RENEW, (b"k", b"s", b"q"), ("token", 1000, 1), 1.0), 1, 1.0) == (1, 1)
    assert dedicated.sockets() == []
    assert [sock.fileno() for sock in machine.dialled] == [-1]
