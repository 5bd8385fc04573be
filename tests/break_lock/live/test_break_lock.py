"""Taking a lock away from its holder: who may lose it to whom, what everybody is told, and what fences are worth then."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis

import holdfast
from holdfast import HolderChanged, LeaseLost, QuorumError, ServerError, TicketRefused, aio, fencing
from holdfast._api import access
from holdfast._runtime.process import current
from support.clusters import cluster
from support.servers import PrivateServer
from support.witness import in_thread, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import NewServer
    from holdfast import Broken


@pytest.fixture(params=["threads", "asyncio"])
def breaks(request: pytest.FixtureRequest) -> Callable[..., Broken | None]:
    """`break_lock` of either API."""

    def threads(client: Any, *args: Any, **kwargs: Any) -> Broken | None:
        return holdfast.Inspector(client).break_lock(*args, **kwargs)

    def tasks(client: Any, *args: Any, **kwargs: Any) -> Broken | None:
        async def awaited() -> Broken | None:
            return await aio.Inspector(client).break_lock(*args, **kwargs)

        return asyncio.run(awaited())

    return threads if request.param == "threads" else tasks


def listening(look: redis.Redis, name: str, prefix: str = "hf:") -> bool:
    """The holder's process can be told something."""
    token = look.get(f"{prefix}{{{name}}}")
    inbox = "hf:inbox:" + str(token).partition(".")[0]
    return dict(look.pubsub_numsub(inbox))[inbox] > 0


def all_hear(number: int) -> bool:
    """This process has leases on so many servers, and can be told something by each of them."""
    nodes = [node for node in current().keeper._nodes.values() if node.renewing.held_leases()]
    return len(nodes) == number and all(node.reachable(b"hf:") for node in nodes)


def test_the_next_in_line_has_it_and_who_had_it_is_told(
    server: PrivateServer, look: redis.Redis, name: str, breaks: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    lost, taken, leave = threading.Event(), threading.Event(), threading.Event()
    lease = holdfast.FairLock(server.url, name, on_lost=lambda _lease: lost.set()).__enter__()
    heirs: list[int] = []

    def wait_for_it() -> None:
        with holdfast.FairLock(server.url, name, wait=20) as heir:
            heirs.append(heir.fence)
            taken.set()
            leave.wait(20)

    waits = in_thread(wait_for_it)
    until(lambda: look.zcard(f"hf:{{{name}}}:queue") == 1)
    until(lambda: listening(look, name))
    began = time.monotonic()
    broken = breaks(server.url, name, by="the night shift")
    assert taken.wait(5)
    assert lost.wait(5)
    assert time.monotonic() - began < 5, "long before a renewal would have shown it"
    assert broken.told
    assert broken.handed_over
    assert lease.fence < broken.fence < heirs[0]
    with pytest.raises(LeaseLost, match="it was broken by the_night_shift"):
        lease.check()
    with pytest.raises(LeaseLost, match="it was broken by the_night_shift"):
        lease.release()
    assert f"lock '{name}' was revoked from " in caplog.text
    assert f"lock '{name}' lost: it was broken by the_night_shift" in caplog.text
    leave.set()
    waits.result(20)
    assert look.exists(f"hf:{{{name}}}") == 0


def test_somebody_else_keeps_what_he_has_got_meanwhile(server: PrivateServer, name: str, breaks: Callable[..., Any]) -> None:
    lock = holdfast.Lock(server.url, name)
    with lock:
        seen = holdfast.Inspector(server.url).show(name)
    with lock as lease:
        with pytest.raises(HolderChanged, match=f"lock '{name}' was not broken: another client holds the lock now") as caught:
            breaks(server.url, seen)
        assert (caught.value.name, caught.value.key) == (name, f"hf:{{{name}}}")
        lease.renew()
    assert breaks(server.url, seen) is None, "nobody has it"
    assert breaks(server.url, name) is None


def test_once_more_does_no_harm(server: PrivateServer, name: str, breaks: Callable[..., Any]) -> None:
    """As when the answer to the first was lost: whoever has it since then keeps it."""
    holder = holdfast.FairLock(server.url, name, ttl=60, renew=False).__enter__()
    seen = holdfast.Inspector(server.url).show(name)
    first = breaks(server.url, seen)
    with holdfast.FairLock(server.url, name, wait=0) as lease:
        again = breaks(server.url, seen)
        assert again.fence == first.fence < lease.fence
        lease.renew()
    with pytest.raises(LeaseLost):
        holder.release()


def test_an_operator_can_close_the_door_behind_him(server: PrivateServer, look: redis.Redis, name: str) -> None:
    lease = holdfast.Lock(server.url, name, ttl=60, renew=False).__enter__()
    assert fencing.fenced_set(look, f"{name}-data", "mine", lease.fence)
    broken = holdfast.Inspector(server.url).break_lock(name)
    assert broken is not None
    assert fencing.accept(look, f"{name}-data", broken.fence)
    assert not fencing.fenced_set(look, f"{name}-data", "still mine", lease.fence)
    with pytest.raises(LeaseLost):
        lease.release()


def test_a_lock_of_another_make(server: PrivateServer, look: redis.Redis, name: str, breaks: Callable[..., Any]) -> None:
    look.set(f"hf:{{{name}}}", "theirs")
    waits = in_thread(lambda: holdfast.Lock(server.url, name, wait=20).__enter__())
    until(lambda: look.zcard(f"hf:{{{name}}}:queue") == 1)
    broken = breaks(server.url, name)
    assert (broken.told, broken.handed_over) == (False, True)
    lease = waits.result(20)
    assert lease.fence > broken.fence
    lease.release()


def test_who_is_handed_it_and_loses_it_before_he_wakes(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """The holder has the lock only since a moment ago, and may not know it yet: the message is not lost."""
    see = holdfast.Inspector(server.url)
    for _ in range(5):
        first = holdfast.FairLock(server.url, name).__enter__()
        waits = in_thread(lambda: holdfast.FairLock(server.url, name, wait=20).__enter__())
        until(lambda: look.zcard(f"hf:{{{name}}}:queue") == 1)
        until(lambda: listening(look, name))
        first.release()
        broken = see.break_lock(name)
        lease = waits.result(20)
        assert broken is not None
        assert broken.told
        until(lease.lost.is_set)
        with pytest.raises(LeaseLost):
            lease.release()


def test_the_body_of_a_task_is_cancelled(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def body() -> None:
        async with aio.Lock(server.url, name):
            while not await asyncio.to_thread(listening, look, name):
                await asyncio.sleep(0.01)
            await aio.Inspector(server.url).break_lock(name)
            await asyncio.sleep(60)

    began = time.monotonic()
    with pytest.raises(LeaseLost, match="it was broken by "):
        asyncio.run(body())
    assert time.monotonic() - began < 8


def test_in_a_cluster() -> None:
    with cluster() as three:
        lost = threading.Event()
        lease = holdfast.Lock(three.url, "x", on_lost=lambda _lease: lost.set()).__enter__()
        see = holdfast.Inspector(three.url)
        until(lambda: all_hear(1))
        broken = see.break_lock("x")
        assert broken is not None
        assert broken.told
        assert lost.wait(5)
        with holdfast.Lock(three.url, "x", wait=0) as heir:
            assert lease.fence < broken.fence < heir.fence


@pytest.mark.turns
def test_over_several_servers(new_server: NewServer, breaks: Callable[..., Any]) -> None:
    servers = [new_server(port=True) for _ in range(3)]
    urls = [server.url for server in servers]
    holdfast.declare_new(urls)
    see = holdfast.Inspector(urls)
    lost = threading.Event()
    lease = holdfast.Redlock(urls, "x", on_lost=lambda _lease: lost.set()).__enter__()
    until(lambda: all_hear(3))
    assert see.show("x").votes == 3
    servers[0].kill()
    with redis.Redis.from_url(urls[1]) as client, client.pubsub() as inbox:
        inbox.subscribe("hf:inbox:aaaaaaaaaaaa")
        inbox.parse_response(block=True)
        client.zadd("hf:{x}:hopefuls", {"aaaaaaaaaaaa.hope": 1})
        broken = breaks(urls, "x")
        assert inbox.parse_response(block=True)[2] == b"3 aaaaaaaaaaaa.hope"
        client.delete("hf:{x}:hopefuls")
    assert lost.wait(5)
    with pytest.raises(LeaseLost, match="it was broken by "):
        lease.release()
    with holdfast.Redlock(urls, "x", wait=5) as heir:
        assert lease.fence < broken.fence < heir.fence
        servers[0].restart()
    servers[0].kill()
    servers[1].kill()
    with pytest.raises(QuorumError, match="this needs answers from 2 of its 3 servers, and 1 answered"):
        breaks(urls, "x")
    servers[2].kill()
    with pytest.raises(ServerError):
        breaks(urls, "x")


def test_what_is_no_lock_is_left_alone(server: PrivateServer, look: redis.Redis, name: str, breaks: Callable[..., Any]) -> None:
    look.set(f"hf:{{{name}}}", "x", px=60_000)
    look.rpush(f"hf:{{{name}}}:state", "data")
    with pytest.raises(ServerError, match=r"holds a list, not a lock"):
        breaks(server.url, name)
    assert look.get(f"hf:{{{name}}}") == "x"
    look.delete(f"hf:{{{name}}}:state")


def test_rights_to_break_locks_and_no_others(server: PrivateServer, look: redis.Redis, name: str) -> None:
    command: Any = look.execute_command
    command("ACL SETUSER", "ops", *access.rule(("break",)), ">secret")
    ops = server.url.replace("redis://", "redis://ops:secret@")
    lease = holdfast.Lock(server.url, name).__enter__()
    with holdfast.Lock(server.url, "hidden", prefix=f"{name}:"), pytest.raises(ServerError, match="holdfast acl"):
        holdfast.Inspector(ops, prefix=f"{name}:").break_lock("hidden")
    assert holdfast.Inspector(ops).break_lock(name) is not None
    with pytest.raises(LeaseLost):
        lease.release()
    look.acl_deluser("ops")


@pytest.mark.parametrize("api", ["threads", "asyncio"])
def test_waiting_takes_nothing(server: PrivateServer, look: redis.Redis, name: str, api: str) -> None:
    def wait(*args: Any) -> bool:
        if api == "threads":
            return holdfast.Inspector(server.url).wait(name, *args)

        async def awaited() -> bool:
            return await aio.Inspector(server.url).wait(name, *args)

        return asyncio.run(awaited())

    assert wait(0)
    with holdfast.Lock(server.url, name):
        assert not wait(0)
        assert not wait(0.1)
        waits = in_thread(wait)
    assert waits.result(5)
    look.set(f"hf:{{{name}}}", "theirs", px=300)
    assert wait(5)
    assert not look.exists(f"hf:{{{name}}}")


@pytest.mark.turns
def test_permits_of_one_or_of_all(server: PrivateServer, look: redis.Redis, name: str, breaks: Callable[..., Any]) -> None:
    see = holdfast.Inspector(server.url)
    leases = [holdfast.Semaphore(server.url, name, 3).__enter__() for _ in range(3)]
    waits = in_thread(lambda: holdfast.Semaphore(server.url, name, 3, wait=20).__enter__())
    until(lambda: look.zcard(f"hf:{{{name}}}:queue") == 1)
    until(lambda: all_hear(1))
    seen = see.show(name)
    (second,) = (holder for holder in seen.holders if holder.fence == leases[1].fence)
    broken = breaks(server.url, seen, holder=second, by="ops")
    heir = waits.result(20)
    assert leases[2].fence < broken.fence < heir.fence
    assert (broken.told, broken.handed_over) == (True, True)
    until(leases[1].lost.is_set)
    with pytest.raises(LeaseLost, match="it was broken by ops"):
        leases[1].release()
    assert [lease.lost.is_set() for lease in (leases[0], leases[2], heir)] == [False] * 3
    assert see.show(name).used == 3
    again = breaks(server.url, seen, holder=second)
    assert (again.fence, see.show(name).used) == (broken.fence, 3), "as when the first answer got lost"
    assert breaks(server.url, name).fence > heir.fence
    assert see.show(name).used == 0
    for lease in (leases[0], leases[2], heir):
        with pytest.raises(LeaseLost):
            lease.release()
    with pytest.raises(HolderChanged), holdfast.Semaphore(server.url, name, 3):
        breaks(server.url, seen, holder=second)


def test_a_writer_and_readers(server: PrivateServer, name: str, breaks: Callable[..., Any]) -> None:
    writing = holdfast.RWLock(server.url, name).write.__enter__()
    broken = breaks(server.url, name)
    with holdfast.RWLock(server.url, name).read as reading:
        assert writing.fence < broken.fence < reading.fence
    with pytest.raises(LeaseLost):
        writing.release()


def test_who_redeems_a_ticket_that_was_broken_is_told_so(server: PrivateServer, name: str, breaks: Callable[..., Any]) -> None:
    ticket = holdfast.FairLock(server.url, name).__enter__().ticket(60)
    assert breaks(server.url, name) is not None
    with pytest.raises(TicketRefused, match="was broken or deleted") as refused, holdfast.redeem(server.url, ticket):
        pytest.fail("it was broken")
    assert refused.value.reason == "gone", "'used' would say that somebody else does the work"


def test_observers_of_a_leader_that_is_broken_are_told(server: PrivateServer, name: str, breaks: Callable[..., Any]) -> None:
    leader = holdfast.Election(server.url, name)
    leader.campaign()
    seen: queue.Queue[Any] = queue.Queue()

    def observe() -> None:
        for who in holdfast.Election(server.url, name).observe():
            seen.put(who)
            if who is None:
                return

    observer = in_thread(observe)
    assert seen.get(timeout=10) is not None
    with redis.Redis.from_url(server.url) as client:
        until(lambda: client.zcard(f"hf:{{{name}}}:observers"))
    began = time.monotonic()
    assert breaks(server.url, name) is not None
    assert seen.get(timeout=20) is None
    assert time.monotonic() - began < 5, "it looks by itself after ten"
    observer.result(10)
