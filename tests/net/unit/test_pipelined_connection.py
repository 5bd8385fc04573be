"""The state of the keeper's connection, and how it is opened."""

from __future__ import annotations

import selectors
import socket
import threading
from types import SimpleNamespace
from typing import Any

from holdfast._core.lock.replies import RENEW
from holdfast._core.requests import Command, NotSent, Refused, RunScript, Unknown
from holdfast._net.aio_connection import AioConnection
from holdfast._net.endpoint import Endpoint
from holdfast._net.pipelined_connection import PipelinedConnection
from holdfast._net.protocol import pack
from holdfast._net.system import SYSTEM, System

KEEPER: Any = SimpleNamespace(safely=lambda action, *args: action(*args), mutex=threading.RLock())
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
    link = PipelinedConnection(KEEPER, Endpoint(), system=machine)
    assert link.owes_since() == float("inf")
    for machine.now in (101.0, 102.0):
        link.call(PING, lambda answer, _sent: answers.append(answer))
    assert (link.owes_since(), link.busy) == (101.0, True), "no connection yet"


def test_each_answer_ends_what_is_owed() -> None:
    machine, answers = Machine(), list[object]()
    ours, server = socket.socketpair()
    with ours, server:
        link = PipelinedConnection(KEEPER, Endpoint(), system=machine)
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
        link = PipelinedConnection(keeper, endpoint, system=Machine())
        link.sock = ours
        for endpoint.finder in (None, finder):
            link.call(PING, lambda answer, _sent: answers.append(answer))
            server.sendall(b"-READONLY You can't write against a read only replica.\r\n")
            link.on_readable()
    assert [type(answer) for answer in answers] == [Refused, Refused]
    assert moved == [(endpoint, None)], "only where somebody knows which server it is now"


def test_each_connection_is_told_a_script_with_its_first_use() -> None:
    ours, server = socket.socketpair()
    with ours, server:
        link = PipelinedConnection(KEEPER, Endpoint(), whole_first=True, system=Machine())
        link.sock = ours
        for kind in (b"$4\r\nEVAL\r\n", b"$7\r\nEVALSHA\r\n"):
            link.call(RunScript(RENEW, (b"k", b"s", b"q"), ("token", 1000, 1), 1.0), lambda *_: None)
            assert kind in server.recv(100_000)


def test_a_script_counts_as_told_when_it_is_sent() -> None:
    """Not before: a connection that could not be opened has told nobody, and the next one may have nobody to read NOSCRIPT."""
    call = RunScript(RENEW, (b"k", b"s", b"q"), ("token", 1000, 1), 1.0)
    machine = Machine()
    link = PipelinedConnection(KEEPER, Endpoint(), whole_first=True, system=machine)
    link.call(call, lambda *_: None)
    link._opened(NotSent("refused"), link._tries)
    link.call(call, lambda *_: None)  # refused at once, for a moment
    ours, server = socket.socketpair()
    with ours, server:
        link.sock = ours
        link.call(call, lambda *_: None)
        assert b"$4\r\nEVAL\r\n" in server.recv(100_000)


def test_a_socket_is_not_lent_while_a_part_of_a_request_is_unsent() -> None:
    told = list[object]()
    waiter: Any = SimpleNamespace(put=told.append)
    ours, server = socket.socketpair()
    with ours, server, selectors.DefaultSelector() as selector:
        keeper: Any = SimpleNamespace(safely=KEEPER.safely, mutex=KEEPER.mutex, selector=selector)
        link = PipelinedConnection(keeper, Endpoint(), system=Machine())
        link.sock = ours
        ours.setblocking(False)
        selector.register(ours, selectors.EVENT_READ, link)
        link.call(Command(("SET", "k", "x" * 5_000_000), 1.0), lambda *_: None)
        assert link.lend_socket(waiter) is None
        while selector.get_key(ours).events & selectors.EVENT_WRITE:
            server.recv(1_000_000)
            link.on_writable()
        assert link.lend_socket(waiter) is ours
        assert link.lend_socket(waiter) is None, "somebody looks at it already"
        link.fail("the connection was closed")
        assert told == [None], "who looks at it has to look elsewhere"


def test_a_connection_that_could_not_be_opened_is_tried_again_after_a_pause() -> None:
    machine, answers = Machine(), list[object]()
    link = PipelinedConnection(KEEPER, Endpoint(), system=machine)
    link.call(PING, lambda answer, _sent: answers.append(answer))
    assert link.begins
    away = NotSent("nobody is there")
    link._opened(away, 1)
    link.call(PING, lambda answer, _sent: answers.append(str(answer)))
    assert answers == [away, "no connection to localhost:6379"]
    machine.now += 0.05
    link.call(PING, lambda answer, _sent: answers.append(answer))
    assert (link.busy, link.begins) == (True, False)
    link._opened(away, 2)
    machine.now += 0.05
    link.call(PING, lambda answer, _sent: answers.append(str(answer)))
    assert answers[2:] == [away, "no connection to localhost:6379"], "each pause is twice as long"


def test_it_stirs_when_something_has_come() -> None:
    ours, server = socket.socketpair()
    with ours, server:
        link = PipelinedConnection(KEEPER, Endpoint(), system=Machine())
        assert not link.has_unread()
        ours.setblocking(False)
        link.sock = ours
        assert not link.has_unread()
        server.sendall(b"+PONG\r\n")
        assert link.has_unread()


def test_a_connection_that_is_opened_too_late_is_closed() -> None:
    ours, server = socket.socketpair()
    with ours, server:
        link = PipelinedConnection(KEEPER, Endpoint(), system=Machine())
        link.call(PING, lambda *_: None)
        link.close()
        link._opened(ours, 1)
        assert ours.fileno() == -1


def test_a_request_behind_one_that_finds_the_new_connection_lost_ends_at_once() -> None:
    """It is not sent on a later connection, when nobody waits for it any more."""
    machine, outcomes = Machine(), list[tuple[object, float]]()
    ours, server = socket.socketpair()
    with ours, server, selectors.DefaultSelector() as selector:
        keeper: Any = SimpleNamespace(safely=KEEPER.safely, mutex=KEEPER.mutex, selector=selector)
        link = PipelinedConnection(keeper, Endpoint(), system=machine)
        for _ in range(3):
            link.call(PING, lambda answer, sent: outcomes.append((type(answer), sent)))
        server.close()
        link._opened(ours, 1)
        assert outcomes == [(Unknown, 100.0), (NotSent, 100.0), (NotSent, 100.0)]
        assert not link.busy
    ours, server = socket.socketpair()
    with ours, server, selectors.DefaultSelector() as keeper.selector:
        link.call(Command(("ECHO", "x"), 1.0), lambda *_: None)
        link._opened(ours, 2)
        assert server.recv(1000) == pack(Command(("ECHO", "x"), 1.0))
        link.close()


def test_replies_that_follow_the_end_of_a_connection_do_not_end_the_next_opening() -> None:
    """The second reply comes when the first one has made the client write to the connection, and find it lost."""
    machine, outcomes = Machine(), list[object]()
    ours, server = socket.socketpair()
    with ours, server, selectors.DefaultSelector() as selector:
        keeper: Any = SimpleNamespace(safely=KEEPER.safely, mutex=KEEPER.mutex, selector=selector)
        link = PipelinedConnection(keeper, Endpoint(), system=machine)
        link.sock = ours
        ours.setblocking(False)

        def again(answer: object, _sent: float) -> None:
            outcomes.append(type(answer))
            link.call(PING, lambda answer, _sent: outcomes.append(type(answer)))

        for _ in range(2):
            link.call(PING, again)
        server.sendall(b"+PONG\r\n+PONG\r\n+PONG\r\n")
        server.close()
        link.on_readable()
        assert outcomes == [bytes, Unknown, Unknown]
        machine.now += PING.timeout
        assert link.next_at() == machine.now, "the opening has its time limit"
        link.overdue(machine.now)
    assert outcomes == [bytes, Unknown, Unknown, NotSent]


def test_what_has_come_while_the_thread_was_held_up_is_no_silence() -> None:
    machine, answers = Machine(), list[object]()
    ours, server = socket.socketpair()
    with ours, server:
        link = PipelinedConnection(KEEPER, Endpoint(), system=machine)
        link.sock = ours
        link.call(PING, lambda answer, _sent: answers.append(answer))
        server.sendall(b"+PONG\r\n")
        machine.now += 10 * PING.timeout
        link.overdue(machine.now)
    assert answers == [b"PONG"]
    assert not link.busy


def test_the_shortest_time_limit_counts_whichever_request_was_sent_first() -> None:
    """The lease of the second request would end while the first may still wait."""
    machine, answers = Machine(), list[object]()
    ours, server = socket.socketpair()
    with ours, server, selectors.DefaultSelector() as selector:
        keeper: Any = SimpleNamespace(safely=KEEPER.safely, mutex=KEEPER.mutex, selector=selector)
        link = PipelinedConnection(keeper, Endpoint(), system=machine)
        link.sock = ours
        ours.setblocking(False)
        for timeout in (5.0, 0.3):
            link.call(Command(("PING",), timeout), lambda answer, _sent: answers.append(type(answer)))
        machine.now += 0.3
        assert link.next_at() == machine.now
        link.overdue(machine.now)
    assert answers == [Unknown, Unknown]


def test_a_connection_sends_at_once_and_finds_out_when_the_server_has_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = Endpoint(host="127.0.0.1", port=server.getsockname()[1])
        with SYSTEM.dial(endpoint, 5.0) as sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_a_request_of_asyncio_that_was_sent_and_not_answered_may_have_been_done() -> None:
    errors = list[object]()
    connection: Any = SimpleNamespace(endpoint=Endpoint(timeout=0.2), _protocol=None)
    for sent in (103.0, 0.0):
        future = SimpleNamespace(done=lambda: False, set_exception=errors.append)
        AioConnection._too_late(connection, SimpleNamespace(future=future, sent=sent), 0.0)  # type: ignore[arg-type]
    assert [type(error) for error in errors] == [Unknown, NotSent]
    assert str(errors[0]) == "localhost:6379: no answer in time"
