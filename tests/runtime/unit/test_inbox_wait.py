"""The hand-over that a waiting thread recognizes in the unread data of the inbox."""

from __future__ import annotations

import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast._clock import clock
from holdfast._core.requests import TimedOut
from holdfast._net.endpoint import Endpoint
from holdfast._runtime.keeper.inbox_wait import Slot, _listen, _seen, wait
from holdfast._runtime.keeper.thread import Keeper
from support.driver import spec

TOKEN = "0123456789ab.cdef"


def message(payload: str) -> bytes:
    """As the server sends it."""
    return b"*3\r\n$7\r\nmessage\r\n$9\r\nhf:inbox:\r\n$%d\r\n%b\r\n" % (len(payload), payload.encode())


@pytest.mark.parametrize(
    ("payload", "fence"),
    [
        (f"1 {TOKEN} 17", 17),
        (f"1 {TOKEN} {'9' * 19}", int("9" * 19)),
        (f"1 {TOKEN} {'9' * 300}", None),
        (f"1 {TOKEN} {'9' * 5000}", None),
        (f"1 {TOKEN} 17 more", None),
        (f"1 {TOKEN} -17", None),
        (f"21 {TOKEN} 17", None),
        (f"0 1 {TOKEN} 17", None),
    ],
)
def test_garbage_is_no_hand_over(payload: str, fence: int | None) -> None:
    """It is not for the thread to judge: the keeper, which reads all, throws it away."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(message("2 somebody") + message(payload))
        assert _seen(TOKEN, ours) == fence


def test_a_lease_that_was_broken_is_read_by_the_keeper_before_the_hand_over() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(message("4 0123456789ab.beef ops@host") + message(f"1 {TOKEN} 17"))
        assert _seen(TOKEN, ours) is None


def test_time_is_up_for_who_only_looks_at_its_slot() -> None:
    until = clock() + 0.01
    assert isinstance(Slot().take(until), TimedOut)
    assert clock() >= until


def test_nobody_writes_to_a_pipe_that_was_closed_meanwhile() -> None:
    looks = [10**6, -1]

    class Closing(Slot):
        alarm = property(lambda _: looks.pop(0))

    slot = Closing()
    slot.put(None)
    assert slot.get() is None


def tell_a_listener(slot: Slot) -> None:
    """Once it listens."""
    while slot.alarm < 0:
        time.sleep(0.001)
    slot.put(TimedOut())


def test_a_thread_listens_until_something_is_there_or_time_is_up() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        until = clock() + 0.05
        assert not _listen(Slot(), ours, until)
        assert clock() >= until
        slot = Slot()
        slot.put(TimedOut())
        until = clock() + 5
        assert not _listen(slot, ours, until)
        assert clock() < until, "it was told before"
        slot = Slot()
        teller = threading.Thread(target=tell_a_listener, args=(slot,))
        teller.start()
        assert not _listen(slot, ours, clock() + 3600), "it was told, and there is nothing to read"
        teller.join()
        theirs.sendall(message(f"1 {TOKEN} 17"))
        assert _listen(Slot(), ours, clock() + 3600)


def test_time_is_up_for_who_listens_until_then() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        lent = [ours]
        keeper: Any = SimpleNamespace(lend_socket=lambda *_: lent.pop(), return_socket=lambda *_, **__: None)
        waiter: Any = SimpleNamespace(attempt=SimpleNamespace(slot=Slot(), token=TOKEN))
        assert isinstance(wait(keeper, Endpoint(), waiter, clock() + 0.01), TimedOut)


@pytest.mark.parametrize(
    ("waiters", "reachable", "is_waiting"), [(1, True, True), (2, True, True), (1, False, True), (1, True, False)]
)
def test_the_socket_is_lent_to_the_only_waiter(waiters: int, reachable: bool, is_waiting: bool) -> None:
    """Not to a thread whose wait the keeper has ended meanwhile, while another one is in the queue."""

    class Waiting(list[int]):
        def is_waiting(self, _waiter: object) -> bool:
            return is_waiting

    node = SimpleNamespace(waiting=Waiting(range(waiters)), reachable=lambda _prefix: reachable)
    inbox = SimpleNamespace(lend_socket=lambda _waiter: "a socket")
    keeper: Any = SimpleNamespace(mutex=threading.RLock(), _node=lambda _endpoint: node, _inbox=lambda _node: inbox)
    waiter: Any = SimpleNamespace(attempt=SimpleNamespace(spec=spec()))
    lent = Keeper.lend_socket(keeper, Endpoint(), waiter) is not None
    assert lent == (waiters == 1 and reachable and is_waiting)
