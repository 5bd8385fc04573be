"""Faults while threads and tasks of one process stand in line for a lock: the next one gets it, and never two at once."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import redis

import holdfast
import holdfast.aio
from holdfast._runtime.process import current
from runtime.faults.test_interrupts import at_every_line
from support.apis import Admin, Api, Sync, at_most, until
from support.crowd import Crowd, Turn, in_order
from support.peer import Peer
from support.servers import PrivateServer
from support.witness import lease_record, local_queue, waiting_here

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

TTL = 0.9


def line_up(
    api: Api, url: str, name: str, count: int, *, wait: float = 8, **options: Any
) -> tuple[Any, list[tuple[Any, Future[Any]]]]:
    """One has the lock, and so many stand in line for it."""
    holder = api.Lock(url, name, **options)
    assert api.call(holder.acquire)
    waiters: list[tuple[Any, Future[Any]]] = []
    for number in range(count):
        lock = api.Lock(url, name, **options)
        waiters.append((lock, api.start(lock.acquire, timeout=wait)))
        until(lambda: waiting_here(holder) == number + 1)  # noqa: B023
    until(lambda: local_queue(holder).reachable)  # or nothing would be passed on
    return holder, waiters


# The lease is lost


MEDDLING: dict[str, Callable[[Admin], object]] = {
    "deleted": lambda admin: admin.redis.delete(admin.lock),
    "overwritten": lambda admin: admin.redis.set(admin.lock, "somebody else's", px=1500),
    "flushed": lambda admin: admin.redis.flushall(),
}


@pytest.mark.parametrize("how", MEDDLING)
def test_lost_with_others_in_line(api: Api, new_server: NewServer, name: str, how: str) -> None:
    """The former holder is notified; the next waiter asks the server, and waits there if another client has the lock."""
    server = new_server()
    admin = Admin(server, name)
    holder, waiters = line_up(api, server.url, name, 2, ttl=TTL)
    lost = holder.lease
    meddled = time.monotonic()
    MEDDLING[how](admin)
    until(lost.lost.is_set)
    fences = [lost.fence]
    for lock, taken in waiters:
        assert taken.result(5)
        assert admin.token() != "somebody else's"
        fences.append(lock.lease.fence)
        lock.lease.check()
        api.call(lock.release)
    assert fences == sorted(set(fences))
    assert (time.monotonic() - meddled > 1.4) is (how == "overwritten")
    with pytest.raises(holdfast.LeaseLost):
        api.call(holder.release)
    admin.nothing_left()
    admin.close()


def test_given_back_before_the_loss_is_known(server: PrivateServer, admin: Admin, name: str) -> None:
    """A lease that was handed on is lost: its present holder is notified, and the next waiter is served."""
    ttl = 1.5  # it is renewed, and the loss known, in a third of that; before, it has to be passed on
    # An inbox that has only just begun to listen may have missed that somebody waits outside: then it would be for 10 ms.
    holder, waiters = line_up(Sync(), server.url, name, 2, ttl=ttl, max_pass_time=1)
    holder.lease.renew()  # a third from now, however long it took to line up
    admin.redis.set(admin.lock, "somebody else's", px=600)
    fence = holder.lease.fence
    holder.release()
    (second, taken), (third, patient) = waiters
    assert taken.result(5)
    assert second.lease.fence == fence + 1, "it was passed on"
    until(second.lease.lost.is_set, ttl)
    with pytest.raises(holdfast.LeaseLost):
        second.release()
    assert patient.result(5)
    assert admin.token() == lease_record(third.lease).token
    third.release()
    admin.nothing_left()


@pytest.mark.fault(2)
@pytest.mark.fault(79)
def test_stopped_for_longer_than_the_lease_with_others_in_line(server: PrivateServer, admin: Admin, name: str) -> None:
    """SIGSTOP: we get it; those who wait in the process that was stopped get it after us."""
    ours = holdfast.Lock(server.url, name, ttl=5)
    with Peer("sync", server.url, name, ttl=TTL) as peer:
        assert peer.ask("lock.acquire()")
        fence = peer.ask("lock.lease.fence")
        peer.ask(f"globals().update(other=holdfast.Lock(url, {name!r}, ttl={TTL}))")
        peer.ask("start(lambda: globals().update(got=other.acquire()))")
        peer.ask("globals().update(local_queue=other._new_attempt(other._driver()).local_queue)")
        until(lambda: peer.ask("len(local_queue.queue)") == 1)
        peer.stop()
        assert ours.acquire(timeout=5)
        peer.go_on()
        until(lambda: peer.ask("lock.lease is None or lock.lease.lost.is_set()"))
        assert peer.ask("globals().get('got')") is None
        assert ours.lease is not None
        assert ours.lease.fence > fence
        between = ours.lease.fence
        ours.release()
        until(lambda: peer.ask("globals().get('got')") is True)
        assert peer.ask("other.lease.fence") > between
        assert peer.ask("other.release()") is None
    admin.nothing_left()


@pytest.mark.fault(1)
def test_a_holder_is_killed_while_we_stand_in_line(server: PrivateServer, admin: Admin, name: str) -> None:
    """One of us stands in the queue for all; all are served when the lease is over."""
    crowd = Crowd(lambda: holdfast.Lock(server.url, name, ttl=5))
    with Peer("sync", server.url, name, ttl=TTL) as peer:
        assert peer.ask("lock.acquire()")
        fence = peer.ask("lock.lease.fence")
        crowd.threads(4, turns=1)
        until(lambda: len(admin.places()) == 1)
        peer.kill()
    with at_most(TTL + 1):
        turns = crowd.done()
    assert len(turns) == 4
    assert turns[0].fence > fence
    admin.nothing_left()


def test_a_process_is_killed_whose_threads_stand_in_line(server: PrivateServer, admin: Admin, name: str) -> None:
    """Its place ends three seconds after its last sign of life; nobody waits longer."""
    holder = holdfast.Lock(server.url, name, ttl=5)
    later = holdfast.Lock(f"{server.url}?socket_timeout=4", name, ttl=5)  # by connections of its own: it is passed nothing here
    holder.acquire()
    with Peer("sync", server.url, name, ttl=5) as peer:
        peer.ask(f"[start(holdfast.Lock(url, {name!r}, ttl=5).acquire) for _ in range(4)] and None")
        until(lambda: len(admin.places()) == 1)
        peer.kill()
    api = Sync()
    taken = api.start(later.acquire)
    until(lambda: len(admin.places()) == 2)
    holder.release()
    with at_most(3.5):
        assert taken.result(5)
    later.release()
    assert admin.token() is None


# The server


def careful_turns(url: str, name: str, turns: list[Turn], until_done: Callable[[], bool], number: int) -> None:
    """Take it again and again, whatever happens; write down what was held to the end."""
    lock = holdfast.Lock(url, name, ttl=3, wait=20)
    while not until_done():
        with suppress(holdfast.HoldfastError):
            with lock as lease:
                began = time.monotonic()
                time.sleep(0.0005)
                ended = time.monotonic()
                lease.check()  # so that it had the lock until then
                turn = Turn(lease.fence, began, ended, number)
            turns.append(turn)


@pytest.mark.turns
@pytest.mark.parametrize("how", ["restarted", "cut", "inbox cut"])
def test_trouble_in_the_middle_of_passing(new_server: NewServer, name: str, how: str) -> None:
    """Nobody waits for ever, and no two have it at once: the server is restarted, or all connections are cut."""
    server = new_server(appendonly=True)
    done = False
    turns: list[Turn] = []
    api = Sync()
    futures = [api.start(careful_turns, server.url, name, turns, lambda: done, number) for number in range(6)]
    for _ in range(4):
        count = len(turns)
        until(lambda: len(turns) > count + 30)  # noqa: B023
        if how == "restarted":
            server.kill()
            server.restart()
        else:
            with redis.Redis.from_url(server.url) as client:
                client.client_kill_filter(_type="pubsub" if how == "inbox cut" else "normal", skipme=True)
    count = len(turns)
    until(lambda: len({turn.who for turn in turns[count:]}) == 6)
    done = True
    for future in futures:
        future.result(25)
    in_order(turns)
    admin = Admin(server, name)
    until(lambda: admin.token() is None, 6)
    admin.nothing_left()
    admin.close()


def test_the_server_is_gone_for_all_in_line(api: Api, new_server: NewServer, name: str) -> None:
    """A waiter with a time limit is told at its end, and the holder at the release."""
    server = new_server()
    holder, waiters = line_up(api, server.url, name, 3, wait=2.5, ttl=5)
    server.kill()
    # Before the inbox is known to be lost, the holder passes it on to the next in line, who will be told instead.
    nodes = [node for node in current().keeper._nodes.values() if node.address.partition(":")[2] in server.url]
    assert nodes
    until(lambda: not any(node.reachable(b"hf:") for node in nodes))
    with pytest.raises(holdfast.ServerError):
        api.call(holder.release)
    for _, taken in waiters:
        with pytest.raises(holdfast.ServerError):
            taken.result(15)


# This process


@pytest.mark.fault(77)
def test_close_with_others_in_line(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """They are told at once, and the lock is free."""
    holder, waiters = line_up(api, server.url, name, 3, ttl=30)
    with at_most(1.5):
        holdfast.close()
        for _, taken in waiters:
            with pytest.raises(holdfast.ServerError, match="closed"):
                taken.result(5)
    assert admin.token() is None
    with pytest.raises((holdfast.LeaseLost, holdfast.NotHeld)):
        api.call(holder.release)
    again = api.Lock(server.url, name, ttl=5)
    assert api.call(again.acquire, timeout=1)
    api.call(again.release)
    admin.nothing_left()


def test_close_while_one_of_us_stands_in_the_queue_for_all(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    with Peer("sync", server.url, name, ttl=30) as peer:
        assert peer.ask("lock.acquire()")
        locks = [api.Lock(server.url, name, ttl=5) for _ in range(3)]
        waiting = [api.start(lock.acquire, timeout=20) for lock in locks]
        until(lambda: waiting_here(locks[0]) == 2 and len(admin.places()) == 1)
        with at_most(1.5):
            holdfast.close()
            for future in waiting:
                with pytest.raises(holdfast.ServerError):
                    future.result(5)
        until(lambda: not admin.places(), 1)
        peer.ask("lock.release()")
    admin.nothing_left()


def test_a_loop_is_closed_whose_task_stands_in_line(server: PrivateServer, admin: Admin, name: str) -> None:
    """Nobody has cancelled it; it is passed over."""
    holder = holdfast.Lock(server.url, name, ttl=5)
    holder.acquire()
    forgotten = holdfast.aio.Lock(server.url, name, ttl=5)
    loop = asyncio.new_event_loop()
    task = loop.create_task(forgotten.acquire())
    while waiting_here(holder) == 0:
        loop.run_until_complete(asyncio.sleep(0.001))
    api = Sync()
    patient = holdfast.Lock(server.url, name, ttl=5)
    taken = api.start(patient.acquire, timeout=8)
    until(lambda: waiting_here(holder) == 2)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.run_until_complete(holdfast.aio.close())
    loop.close()
    holder.release()
    assert taken.result(1)
    patient.release()
    admin.nothing_left()


@pytest.mark.fault(7)
@pytest.mark.parametrize("state", ["holding", "lingering", "waiting"])
def test_a_forked_child_has_no_part_in_it(server: PrivateServer, admin: Admin, name: str, state: str) -> None:
    """It waits as any other process, and takes nothing along when it ends."""
    lock = holdfast.Lock(server.url, name, ttl=5, linger=30)
    blocker = holdfast.FairLock(server.url, name, ttl=5)
    api = Sync()
    if state == "waiting":
        blocker.acquire()
        taken = api.start(lock.acquire, timeout=8)
        until(lambda: len(admin.places()) == 1)
    elif state == "holding":
        lock.acquire()
    else:

        def lingers() -> bool:
            with lock:
                pass
            return admin.token() is not None

        until(lingers)
    token = admin.token()
    child = os.fork()
    if not child:
        code = 1
        try:
            # A lingering lease is released to any client that asks, and the child does ask; it would linger for longer than the
            # child waits.
            mine = holdfast.Lock(server.url, name, ttl=5, wait=10 if state == "lingering" else 0)
            got = mine.acquire()
            if got:
                mine.release()
            code = 0 if got is (state == "lingering") else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    if state == "lingering":
        until(lambda: admin.token() is None)
        with lock:
            pass
    else:
        assert admin.token() == token
    if state == "waiting":
        blocker.release()
        assert taken.result(2)
    if state != "lingering":
        assert lock.lease is not None
        lock.lease.check()
        lock.release()


@pytest.mark.turns
@pytest.mark.fault(11)
@pytest.mark.filterwarnings("ignore:lease of .* was dropped without release:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("linger", [0.0, 0.01])
def test_row_11_interrupted_at_every_line_among_others(server: PrivateServer, admin: Admin, name: str, linger: float) -> None:
    """Row 11: `with lock: pass`, interrupted once at each line of holdfast that it runs, while three others want the lock, too:
    none of them waits for ever."""
    crowd = Crowd(lambda: holdfast.Lock(server.url, name, ttl=30, linger=linger), work=0.0002)
    stuck: list[str] = []
    crowd.threads(3)
    until(lambda: len({turn.who for turn in crowd.turns}) == 3)

    def check(where: str) -> None:
        count = len(crowd.turns)
        try:
            until(lambda: len({turn.who for turn in crowd.turns[count:]}) == 3, 3)
        except AssertionError:
            stuck.append(where)
            raise AssertionError(f"the others wait for ever when interrupted at {where}") from None

    def body() -> None:
        with holdfast.Lock(server.url, name, ttl=30, linger=linger):
            pass

    try:
        lines = at_every_line(body, check)
    finally:
        crowd.stop()
    crowd.done()
    assert len(lines) > 40, "it was really traced"
    until(lambda: admin.token() is None, 1)
    admin.nothing_left()
