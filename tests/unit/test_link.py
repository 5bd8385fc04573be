"""What the keeper's connection says of itself, and how it is opened."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

from holdfast._core.requests import Command, Refused
from holdfast._drive.link import Link
from holdfast._wire.endpoint import Endpoint
from holdfast._wire.system import SYSTEM, System

KEEPER: Any = SimpleNamespace(safely=lambda action, *args: action(*args))
PING = Command(("PING",), 1.0)


class Machine(System):
    """Its time stands where a test puts it, and it starts no threads."""

    def __init__(self) -> None:
        self.now = 100.0
        self.clock = lambda: self.now

    def start(self, *_: Any, **__: Any) -> None:
        pass


def test_since_when_a_server_owes_an_answer_or_a_connection() -> None:
    machine, answers = Machine(), list[object]()
    link = Link(KEEPER, Endpoint(), system=machine)
    assert link.owes_since() == float("inf")
    for machine.now in (101.0, 102.0):
        link.call(PING, lambda answer, _sent: answers.append(answer))
    assert (link.owes_since(), link.busy) == (101.0, True), "no connection yet"


def test_each_answer_ends_what_is_owed() -> None:
    machine, answers = Machine(), list[object]()
    ours, server = socket.socketpair()
    with ours, server:
        link = Link(KEEPER, Endpoint(), system=machine)
        link.sock = ours
        for machine.now in (103.0, 104.0):
            link.call(PING, lambda answer, _sent: answers.append(answer))
        owed = [link.owes_since()]
        for _ in range(2):
            server.sendall(b"+PONG\r\n")
            link.on_readable()
            owed.append(link.owes_since())
    assert owed == [103.0, 104.0, float("inf")]
    assert answers == [b"PONG", b"PONG"]
    assert not link.busy


def test_a_server_that_is_no_primary_any_more_is_looked_for_anew() -> None:
    finder: Any = SimpleNamespace(address="the primary of x")
    moved, answers = list[object](), list[object]()
    keeper: Any = SimpleNamespace(safely=KEEPER.safely, moved=lambda *what: moved.append(what))
    endpoint = Endpoint()
    ours, server = socket.socketpair()
    with ours, server:
        link = Link(keeper, endpoint, system=Machine())
        link.sock = ours
        for endpoint.finder in (None, finder):
            link.call(PING, lambda answer, _sent: answers.append(answer))
            server.sendall(b"-READONLY You can't write against a read only replica.\r\n")
            link.on_readable()
    assert [type(answer) for answer in answers] == [Refused, Refused]
    assert moved == [(endpoint, None)], "only where somebody knows which server it is now"


def test_what_has_come_while_the_thread_was_held_up_is_no_silence() -> None:
    machine, answers = Machine(), list[object]()
    ours, server = socket.socketpair()
    with ours, server:
        link = Link(KEEPER, Endpoint(), system=machine)
        link.sock = ours
        link.call(PING, lambda answer, _sent: answers.append(answer))
        server.sendall(b"+PONG\r\n")
        machine.now += 10 * PING.timeout
        link.overdue(machine.now)
    assert answers == [b"PONG"]
    assert not link.busy


def test_a_connection_sends_at_once_and_finds_out_when_the_server_has_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = Endpoint(host="127.0.0.1", port=server.getsockname()[1])
        with SYSTEM.dial(endpoint, 5.0) as sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
