"""Redlock as a user sees it, on real servers, with both APIs."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

import holdfast
from holdfast import ConfigError, LeaseLost, LockTimeout, NotHeld, QuorumError, Redlock, aio, declare_new
from holdfast._core.quorum.votes import AllAnswered
from holdfast._core.requests import Command, Poll
from holdfast._net.resolve import resolve
from holdfast._runtime.drivers import aio_quorum
from holdfast._runtime.fanout import FanoutPool
from holdfast._runtime.process import current
from runtime.faults.test_interrupts import at_every_line
from support.apis import Aio, Sync
from support.crowd import Crowd
from support.servers import PrivateServer, private
from support.witness import in_thread, until

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore:ttl=:holdfast.HoldfastWarning")


class Group:
    """Servers that vote together, and what they say about locks."""

    def __init__(self, servers: list[PrivateServer], max_ttl: float = 60.0) -> None:
        self.servers = servers
        self.urls = [server.url for server in servers]
        self.outside = {f"127.0.0.1:{server.port}": f"unix://{server.socket}" for server in servers}
        """The same servers, for those who are to wait for them and not in this process's own line."""
        self.max_ttl = max_ttl
        self.clients: list[Any] = [redis.Redis.from_url(server.url, decode_responses=True) for server in servers]
        assert set(declare_new(self.urls, max_ttl=max_ttl).values()) == {"declared new: ready now"}

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def values(self, key: str) -> list[str | None]:
        return [client.get(key) for client in self.clients]

    def free(self, name: str) -> bool:
        """Nothing of the lock is left on any of them, and nobody hopes for it."""
        return not any(client.exists(f"hf:{{{name}}}", f"hf:{{{name}}}:hopefuls") for client in self.clients)

    def listeners(self, name: str) -> int:
        return max(int(client.zcard(f"hf:{{{name}}}:hopefuls")) for client in self.clients)


def copied(error: Any) -> Any:
    """The error as another process gets it."""
    return pickle.loads(pickle.dumps(error))  # noqa: S301 - our own


@pytest.fixture(scope="module")
def five() -> Iterator[Group]:
    """Nobody may stop or reconfigure them."""
    with contextlib.ExitStack() as stack:
        group = Group([stack.enter_context(private(port=True, password="")) for _ in range(5)])
        with contextlib.closing(group):
            yield group


@pytest.fixture
def three(new_server: NewServer) -> Iterator[Group]:
    """To be stopped, killed, emptied. Their longest lease is a second."""
    with contextlib.closing(Group([new_server() for _ in range(3)], max_ttl=1.0)) as group:
        yield group


class Api:
    """One of the APIs, which has the same words for both."""

    def __init__(self, kind: str) -> None:
        self._api = Sync() if kind == "sync" else Aio()
        self.aio = kind != "sync"
        self.close = self._api.close
        self.call, self.start = self._api.call, self._api.start

    def lock(self, servers: Any, name: str, **options: Any) -> Any:
        return (aio.Redlock if self.aio else Redlock)(servers, name, **options)

    def enter(self, lock: Any) -> Any:
        return self.call(lock.__aenter__ if self.aio else lock.__enter__)

    def leave(self, lock: Any) -> None:
        self.call(lock.__aexit__ if self.aio else lock.__exit__, None, None, None)


@pytest.fixture(params=["sync", "asyncio"])
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    with contextlib.closing(Api(request.param)) as api:
        yield api


# Taken and given back


def test_a_lease_and_what_it_knows(five: Group, api: Api, name: str) -> None:
    lock = api.lock(five.urls, name, ttl=30)
    assert not lock.lease
    assert not api.call(lock.locked)
    lease = api.enter(lock)
    assert lock.lease is lease
    assert (lease.name, lease.key) == (lock.name, lock.key) == (name, f"hf:{{{name}}}")
    assert 29 < lease.remaining() < 30
    assert not lease.lost.is_set()
    lease.check()
    assert api.call(lock.locked)
    until(lambda: None not in five.values(lock.key))
    (token,) = set(five.values(lock.key))
    assert token
    assert all(29_000 < client.pttl(lock.key) <= 30_000 for client in five.clients)
    api.call(lease.renew, 50)
    assert 49 < lease.remaining() < 50
    with pytest.raises(ConfigError, match="60"):
        api.call(lease.renew, 61)
    api.leave(lock)
    assert lock.lease is None
    assert lease.remaining() == 0
    assert not lease.lost.is_set()
    until(lambda: five.free(name))
    with pytest.raises(NotHeld):
        api.call(lease.release)
    with pytest.raises(NotHeld):
        lease.check()


def test_with_statements(five: Group, name: str) -> None:
    lock = Redlock(five.urls, name)
    with pytest.raises(ZeroDivisionError), lock:
        raise ZeroDivisionError
    with lock as first:
        assert lock.locked()

    async def main() -> None:
        async with aio.Redlock(five.urls, name) as second:
            assert second.fence > first.fence
            assert lock.locked()

    asyncio.run(main())
    assert not lock.locked()
    assert five.urls[0].removeprefix("redis://").removesuffix("/0") in repr(lock)


def test_busy_and_who_has_it(five: Group, api: Api, name: str) -> None:
    holder = api.lock(five.urls, name, ttl=20, label="the holder")
    other = api.lock(five.urls, name, wait=0.1)
    assert api.call(holder.acquire)
    try:
        assert api.call(other.acquire, False) is False
        assert api.call(other.acquire, timeout=0.05) is False
        with pytest.raises(ValueError, match="non-blocking"):
            api.call(other.acquire, False, 1)
        with pytest.raises(LockTimeout) as caught:
            api.enter(other)
        error = copied(caught.value)
        assert f":{os.getpid()} (the holder)" in (error.holder or "")
        assert 0.1 <= error.waited < 1.1
        assert 18 < (error.remaining or 0) <= 20
        with pytest.raises(RuntimeError):
            api.call(other.release)
    finally:
        api.call(holder.release)
    assert api.call(other.acquire)
    api.call(other.release)
    until(lambda: five.free(name))


def test_who_waits_is_told_when_it_is_free(five: Group, api: Api, name: str) -> None:
    holder, other = api.lock(five.urls, name), api.lock(five.outside, name)
    api.call(holder.acquire)
    fence = holder.lease.fence
    waiting = api.start(other.acquire)
    until(lambda: five.listeners(name))
    api.call(holder.release)
    started = time.monotonic()
    assert waiting.result(5)
    assert time.monotonic() - started < 0.6, "or it had looked for itself"
    assert other.lease.fence > fence
    api.call(other.release)
    until(lambda: five.free(name))


def test_as_the_lock_of_a_condition(five: Group, name: str) -> None:
    condition = threading.Condition(Redlock(five.urls, name))  # type: ignore[arg-type]
    told = []

    def wait() -> None:
        with condition:
            told.append("waits")
            assert condition.wait(5)
            told.append("woken")

    waiting = in_thread(wait)
    until(lambda: told)
    with condition:
        condition.notify()
    waiting.result(5)
    assert told == ["waits", "woken"]


def test_locks_and_leases_stay_in_their_process(five: Group, api: Api, name: str) -> None:
    lock = api.lock(five.urls, name)
    lease = api.enter(lock)
    for what in (lock, lease):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(what)
    api.leave(lock)


# Which servers


@pytest.mark.parametrize("make", [Redlock, aio.Redlock])
@pytest.mark.parametrize(
    ("servers", "why"),
    [
        ([], "expected 3 to 99 servers"),
        (["redis://a"], "holdfast.Lock"),
        (["redis://a", "redis://b"], "needs both"),
        ([f"redis://a:{port}" for port in range(1, 5)], "odd number"),
        ([f"redis://a:{port}" for port in range(1, 102)], "expected 3 to 99 servers"),
        (["redis://a", "redis://b", "redis://a"], "a:6379 is in the list twice"),
        (["redis://a", "rediss://b", "redis://c"], "TLS"),
        ("redis://a", "pass a list of clients or URLs"),
        (3, "pass a list of clients or URLs"),
        (["redis://a", "redis://b", None], "client"),
        (["redis://a", "redis://b", "redis://user:pa@ss@c"], "url"),
    ],
)
def test_lists_that_are_refused(make: Callable[..., object], servers: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        make(servers, "x")
    assert "pa@ss" not in str(caught.value)


@pytest.mark.parametrize("make", [Redlock, aio.Redlock])
@pytest.mark.parametrize(
    ("options", "parameter"),
    [({"ttl": 61}, "ttl"), ({"max_ttl": 0}, "max_ttl"), ({"answer_within": 0}, "answer_within"), ({"wait": -1}, "wait")],
)
def test_options_that_are_refused(make: Callable[..., object], options: dict[str, float], parameter: str) -> None:
    with pytest.raises(ConfigError, match=parameter) as caught:
        make(["redis://a", "redis://b", "redis://c"], "x", **options)
    assert caught.value.parameter == parameter


def test_a_synchronous_client_is_refused_in_asyncio() -> None:
    clients = [redis.Redis(port=port) for port in (1, 2, 3)]
    with pytest.raises(ConfigError, match="needs an asyncio client"):
        aio.Redlock(clients, "x")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"holdfast\.aio"):
        Redlock([redis.asyncio.Redis(port=port) for port in (1, 2, 3)], "x")  # type: ignore[misc]


def test_the_same_server_under_two_addresses(five: Group, api: Api, name: str) -> None:
    urls = [five.urls[0], f"unix://{five.servers[0].socket}", f"unix://{five.servers[0].socket}?db=1"]
    with contextlib.closing(redis.Redis.from_url(urls[2])) as client:
        declare_new(urls, force=True)  # on both databases
        try:
            with pytest.raises(ConfigError, match="are the same server") as caught:
                api.call(api.lock(urls, name).acquire)
            assert caught.value.parameter == "servers"
            assert not client.exists(f"hf:{{{name}}}")
        finally:
            declare_new(five.urls, force=True)
            client.flushdb()
    assert five.free(name)


def test_what_others_have_agreed_on(five: Group, api: Api, name: str) -> None:
    with pytest.raises(ConfigError, match=r"longest lease \(max_ttl\) is 60 s.*holdfast nodes init --force") as caught:
        api.call(api.lock(five.urls, name, max_ttl=50).acquire)
    assert copied(caught.value).parameter == "max_ttl"
    with pytest.raises(ConfigError, match=r"another list of servers.*the same list") as caught:
        api.call(api.lock(five.urls[:3], name).acquire)
    assert caught.value.parameter == "servers"
    assert five.free(name)


def test_names_of_ones_own(new_server: NewServer, api: Api, name: str) -> None:
    """Clients that know the servers by other addresses agree on names."""
    servers = [new_server(port=True) for _ in range(3)]
    tcp = {f"n{number}": server.url for number, server in enumerate(servers)}
    unix = {f"n{number}": f"unix://{server.socket}" for number, server in reversed([*enumerate(servers)])}
    assert declare_new(tcp) == dict.fromkeys(tcp, "declared new: ready now")
    assert declare_new(unix) == dict.fromkeys(unix, "ready already")
    one, other = api.lock(tcp, name), api.lock(unix, name, wait=0)
    lease = api.enter(one)
    with pytest.raises(LockTimeout):
        api.enter(other)
    api.leave(one)
    assert api.enter(other).fence > lease.fence
    api.leave(other)
    assert declare_new([server.url for server in servers]) == dict.fromkeys(
        [f"127.0.0.1:{server.port}" for server in servers], "not declared: the server belongs to another list of servers"
    )
    other = "not declared: the server was declared with another longest lease, 60 s"
    assert set(declare_new(tcp, max_ttl=5).values()) == {other}


def test_somebody_elses_data(five: Group, api: Api, name: str) -> None:
    lock = api.lock(five.urls, name)
    for client in five.clients[:2]:
        client.lpush(lock.key, "x")
    api.enter(lock)
    api.leave(lock)
    five.clients[2].lpush(lock.key, "x")
    with pytest.raises(ConfigError, match="holds a list"):
        api.call(lock.acquire)
    assert [client.type(lock.key) for client in five.clients] == ["list"] * 3 + ["none"] * 2
    for client in five.clients:
        client.delete(lock.key)


class Connected(redis.Connection):
    """A user's own: its connections cannot be opened without it."""


MAKERS: dict[str, Callable[[PrivateServer], Any]] = {
    "unix socket": lambda at: f"unix://{at.socket}",
    "redis.Redis": lambda at: redis.Redis(port=at.port or 0),
    "redis.Redis, text": lambda at: redis.Redis(port=at.port or 0, decode_responses=True),
    "redis.Redis, own connections": lambda at: redis.Redis(
        connection_pool=redis.ConnectionPool(connection_class=Connected, port=at.port)
    ),
    "valkey.Valkey": lambda at: valkey.Valkey(port=at.port or 0),
}
AIO_MAKERS: dict[str, Callable[[PrivateServer], Any]] = {
    "unix socket": lambda at: f"unix://{at.socket}",
    "redis.asyncio.Redis": lambda at: redis.asyncio.Redis(port=at.port or 0),
    "valkey.asyncio.Valkey": lambda at: valkey.asyncio.Valkey(port=at.port or 0),
}


@pytest.mark.parametrize(
    ("kind", "which"), [*(("sync", which) for which in MAKERS), *(("asyncio", which) for which in AIO_MAKERS)]
)
def test_clients(five: Group, name: str, kind: str, which: str) -> None:
    makers = MAKERS if kind == "sync" else AIO_MAKERS
    names = [f"127.0.0.1:{server.port}" for server in five.servers]
    with contextlib.closing(Api(kind)) as api:
        clients = {name: makers[which](server) for name, server in zip(names, five.servers, strict=True)}
        others: Any = five.urls if which == "unix socket" else five.outside
        one, other = api.lock(others, name), api.lock(clients, name)
        api.enter(one)
        assert api.call(one.locked)
        assert api.call(other.acquire, False) is False
        waiting = api.start(other.acquire)
        until(lambda: five.listeners(name))
        api.leave(one)
        assert waiting.result(5)
        api.call(other.lease.renew, 20)
        api.call(other.release)
        until(lambda: five.free(name))
        holdfast.close()  # or the keeper may ask one of them again, who opens another connection for it
        for client in clients.values():
            if kind == "sync" and not isinstance(client, str):
                client.close()
                client.connection_pool.disconnect()


# Servers that are away, or forget


def test_too_few_servers(three: Group, api: Api, name: str) -> None:
    lock = api.lock(three.urls, name, max_ttl=1, ttl=1, answer_within=0.4)
    api.enter(lock)
    api.leave(lock)
    three.servers[0].kill()
    three.servers[2].pause()
    try:
        started = time.monotonic()
        with pytest.raises(QuorumError) as caught:
            api.call(lock.acquire)
        assert time.monotonic() - started < 0.4 + 1, "the silent one is waited for so long, and once"
        error = copied(caught.value)
        assert (error.name, list(error.nodes)) == (name, [f"unix:{server.socket}" for server in three.servers])
        away, here, silent = error.nodes.values()
        assert here == "granted"
        assert silent == "no answer in time"
        assert "needs 2 of its 3 servers" in str(error)
        assert away in str(error)
        with pytest.raises(QuorumError, match="cannot be checked"):
            api.call(lock.locked)
        until(lambda: three.clients[1].get(lock.key) is None)
    finally:
        three.servers[2].resume()
    until(lambda: three.clients[2].get(lock.key) is None)


@pytest.mark.turns
@pytest.mark.parametrize("how", ["flushed", "deleted", "taken"])
def test_a_lease_that_a_majority_forgets_is_lost(three: Group, api: Api, name: str, how: str) -> None:
    told: list[Any] = []
    lock = api.lock(three.urls, name, ttl=1, max_ttl=1, on_lost=told.append)
    lease = api.enter(lock)
    for client in three.clients[:2]:
        if how == "flushed":
            client.flushall()
        elif how == "deleted":
            client.delete(lock.key)
        else:
            client.set(lock.key, "another", px=5000)
    until(lambda: told)
    assert told == [lease]
    assert lease.lost.is_set()
    assert lease.remaining() == 0
    with pytest.raises(LeaseLost, match="no majority") as caught:
        lease.check()
    assert caught.value.fence == lease.fence
    with pytest.raises(LeaseLost):
        api.leave(lock)
    assert three.clients[2].get(lock.key) is None, "the last vote is given back all the same"


def test_a_lost_lease_cancels_the_body(three: Group, name: str) -> None:
    async def main() -> None:
        async with aio.Redlock(three.urls, name, ttl=0.6, max_ttl=1):
            for client in three.clients[1:]:
                client.flushall()
            await asyncio.sleep(5)

    with pytest.raises(LeaseLost):
        asyncio.run(main())


def test_a_lease_that_a_minority_forgets_is_kept(three: Group, api: Api, name: str) -> None:
    lock = api.lock(three.urls, name, ttl=1, max_ttl=1)
    lease = api.enter(lock)
    three.clients[0].flushall()
    end = time.monotonic() + lease.remaining()
    until(lambda: time.monotonic() + lease.remaining() > end + 1)
    lease.check()
    api.leave(lock)
    assert not lease.lost.is_set()


@pytest.mark.turns
def test_renewed_and_taken_while_a_minority_is_stopped(three: Group, api: Api, name: str) -> None:
    """For longer than a lease; others are taken meanwhile as quickly as before; nothing is left when it goes on."""
    lock = api.lock(three.urls, name, ttl=1, max_ttl=1)
    other = api.lock(three.urls, f"{name}-other", ttl=0.8, max_ttl=1)
    three.servers[1].pause()
    lease = api.enter(lock)
    took, end = [], time.monotonic() + 1.2
    while time.monotonic() < end:
        started = time.monotonic()
        with contextlib.suppress(QuorumError):  # on a machine that is busy for long
            api.call(other.acquire)
            api.call(other.release)
            took.append(time.monotonic() - started)
        lease.check()
    assert len(took) > 5
    assert sorted(took)[len(took) // 2] < 0.1, "nobody waits for it"
    three.servers[1].resume()
    api.leave(lock)
    until(lambda: three.free(name) and three.free(f"{name}-other"))


@pytest.mark.turns
def test_a_restarted_server_does_not_vote_at_once(three: Group, api: Api, name: str) -> None:
    lock = api.lock(three.urls, name, ttl=1, max_ttl=1, wait=0.1)
    three.servers[0].restart()
    api.enter(lock)
    api.leave(lock)
    three.servers[0].kill()  # or it votes again, if the next lines take a second
    three.servers[1].restart()
    with pytest.raises(QuorumError) as caught:
        api.enter(lock)
    assert "does not vote for another" in list(caught.value.nodes.values())[1]
    three.servers[0].restart()
    assert api.call(lock.acquire, timeout=5), "when the longest lease is over, which is a second"
    api.call(lock.release)
    assert not three.clients[0].exists(lock.key)


@pytest.mark.turns
@pytest.mark.parametrize("kept", [True, False])
def test_held_locks_after_a_restart_of_all_servers(new_server: NewServer, api: Api, name: str, kept: bool) -> None:
    """With append-only files they go on; in both cases nothing is granted meanwhile."""
    with contextlib.closing(Group([new_server(appendonly=kept) for _ in range(3)])) as group:
        lock = api.lock(group.urls, name)
        lease = api.enter(lock)
        for server in group.servers:
            server.kill()
        for server in group.servers:
            server.restart()

        def refused() -> bool:  # on a busy machine, a server may have no time to say why
            with pytest.raises(QuorumError) as caught:
                api.enter(api.lock(group.urls, f"{name}-other", wait=0))
            return "does not vote for another" in str(caught.value)

        until(refused)
        if kept:
            api.call(lease.verify)
            api.leave(lock)
        else:
            with pytest.raises(LeaseLost):
                api.call(lease.verify)


# Threads, processes, loops, interrupts


def test_many_threads_and_tasks_on_one_lock(five: Group, name: str) -> None:
    lock = Redlock(five.urls, name)
    crowd = Crowd(lambda: lock, lambda: aio.Redlock(five.outside, name))
    crowd.threads(4, turns=8)
    # A loop that ends closes its connections, also those to servers that have yet to carry out what takes their votes back.
    crowd.loop(4, turns=8, then=lambda: until(lambda: five.free(name)))
    assert len(crowd.done()) == 64
    until(lambda: five.free(name))


PROGRAM = """
import sys, holdfast
from holdfast import fencing
import redis
*urls, name, register = sys.argv[1:]
client = redis.Redis.from_url(register)
lock = holdfast.Redlock(urls, name, wait=20)
for _ in range(15):
    with lock as lease:
        inside = client.incr(name + ":inside")
        fine = inside == 1 and fencing.accept(client, name, lease.fence)
        print(lease.fence, fine, flush=True)
        client.decr(name + ":inside")
"""


@pytest.mark.turns("fleets")
def test_processes_never_meet_and_their_fences_rise(five: Group, server: PrivateServer, name: str) -> None:
    command = [sys.executable, "-c", PROGRAM, *five.urls, name, server.url]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    lines = [line.split() for process in running for line in process.communicate(timeout=30)[0].splitlines()]
    assert len(lines) == 45
    assert {fine for _, fine in lines} == {"True"}, "one at a time, and each with a higher fence than the last"
    assert len({fence for fence, _ in lines}) == 45
    with contextlib.closing(redis.Redis.from_url(server.url)) as client:
        client.delete(f"{name}:inside")
    until(lambda: five.free(name))


def test_a_forked_child_holds_nothing_and_spoils_nothing(five: Group, name: str) -> None:
    lock = Redlock(five.urls, name)
    with lock as lease:
        child = os.fork()
        if not child:
            code = 1
            try:
                with pytest.raises(NotHeld):
                    lease.release()
                assert lock.lease is None
                assert lock.acquire(False) is False
                with Redlock(five.urls, f"{name}-child"):
                    pass
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        lease.check()
        lease.renew()
    until(lambda: five.free(name) and five.free(f"{name}-child"))


def test_closing_gives_everything_back(five: Group, api: Api, name: str) -> None:
    lock = api.lock(five.urls, name)
    lease = api.enter(lock)
    holdfast.close()
    until(lambda: five.free(name))
    until(lease.lost.is_set)
    with pytest.raises(LeaseLost, match="the process ends"):
        api.leave(lock)
    api.enter(lock)
    api.leave(lock)


def test_loops_that_end(five: Group, name: str) -> None:
    """One lock object in one loop after another; connections that were closed; a loop that ends in the middle of a wait."""
    lock = aio.Redlock(five.urls, name)

    async def use() -> None:
        async with lock:
            pass
        await aio.close()
        async with lock:
            pass

    asyncio.run(use())
    asyncio.run(use())

    async def wait_in_vain() -> None:
        task = asyncio.create_task(lock.acquire())
        while not five.listeners(name):
            await asyncio.sleep(0.002)
        assert not task.done()

    with Redlock(five.outside, name):
        asyncio.run(wait_in_vain())
        until(lambda: five.listeners(name) == 0)
    asyncio.run(use())
    until(lambda: five.free(name))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_is_closed_in_the_middle_of_a_wait(five: Group, name: str) -> None:
    """Nothing can be awaited any more; others of this process do not wait for it, and what is kept about it is forgotten."""
    loop = asyncio.new_event_loop()
    lock = aio.Redlock(five.urls, name)

    async def begin() -> None:
        lock_waits.append(asyncio.ensure_future(lock.acquire()))
        while not five.listeners(name):
            await asyncio.sleep(0.002)

    lock_waits: list[asyncio.Task[bool]] = []
    with Redlock(five.outside, name):
        loop.run_until_complete(begin())
        loop.run_until_complete(aio.close())
        loop.close()
        lock_waits.clear()
        gc.collect()
    other = Redlock(five.urls, name)
    assert other.acquire(timeout=5)
    other.release()
    keeper = current().keeper
    nodes = list(keeper._nodes.values())
    with keeper.mutex:
        for node in nodes:
            node._ping_at = 0.0  # when it looks for such ones, too: now, and not within five seconds
        keeper.wake_by(0.0)
    until(lambda: not any(node.listeners for node in nodes))


def test_cancelled_at_every_step(five: Group, name: str) -> None:
    """An acquisition, a wait, and a release, cancelled after one turn of the loop, after two, and so on."""

    async def turns(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def cancelled(action: Callable[[], Any], after: int) -> bool:
        task: asyncio.Task[None] = asyncio.ensure_future(action())
        await turns(after)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return task.cancelled()

    async def take_and_leave() -> None:
        async with aio.Redlock(five.urls, name):
            pass

    async def wait_a_moment() -> None:
        with contextlib.suppress(LockTimeout):
            async with aio.Redlock(five.urls, name, wait=0.005):
                pass

    async def at_every_step(action: Callable[[], Any], left: Callable[[], object]) -> int:
        after = 0
        while await cancelled(action, after):
            after += 1
            await asyncio.to_thread(until, left)
        return after

    async def main() -> int:
        await take_and_leave()
        points = await at_every_step(take_and_leave, lambda: five.free(name))
        async with aio.Redlock(five.outside, name):
            return points + await at_every_step(wait_a_moment, lambda: five.listeners(name) == 0)

    assert asyncio.run(main()) >= 8
    until(lambda: five.free(name))


# Late answers


class Delayed(list[Any]):
    """Calls; when all are on their way, something else is done first."""

    def __init__(self, calls: list[Any], what: Callable[[], object]) -> None:
        super().__init__(calls)
        self._what = what

    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__()
        self._what()


def held_up(group: Group, sockets: list[Any]) -> None:
    """Until all of these servers have answered, which were stopped, and for a moment besides."""
    for server in group.servers:
        server.resume()
    for sock in sockets:
        assert select.select([sock], [], [], 10)[0]
    time.sleep(0.06)


def test_an_answer_that_is_there_counts_however_late_a_thread_looks(three: Group) -> None:
    """It is held up for longer than servers are given to answer: that says nothing about them."""
    call = Command(("PING",), 60.0)
    fanouts = FanoutPool(tuple(resolve(url, "sync") for url in three.urls), current())
    try:
        fanouts.poll(Poll([call] * 3, AllAnswered({0, 1, 2}), 5.0))
        (fanout,) = fanouts._idle
        links = [link.sock for link in fanout._links]
        heard = AllAnswered({0, 1, 2})
        for server in three.servers:
            server.pause()
        fanouts.poll(Poll(Delayed([call] * 3, lambda: held_up(three, links)), heard, 0.05))
        assert sorted(heard.answers) == [0, 1, 2]
    finally:
        fanouts.clear()


def test_an_answer_that_is_there_counts_however_late_a_loop_looks(three: Group) -> None:
    call = Command(("PING",), 60.0)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        driver = aio_quorum.Driver(current(), tuple(resolve(url, "asyncio") for url in three.urls))
        await driver._poll(Poll([call] * 3, AllAnswered({0, 1, 2}), 5.0))
        links = [sock for stream in driver._streams for sock in stream.sockets()]
        heard = AllAnswered({0, 1, 2})
        for server in three.servers:
            server.pause()
        await driver._poll(Poll(Delayed([call] * 3, lambda: loop.call_soon(held_up, three, links)), heard, 0.05))
        assert sorted(heard.answers) == [0, 1, 2]
        await aio.close()

    asyncio.run(main())


def test_a_late_answer_is_for_nobody(three: Group) -> None:
    """A client uses the replies that it had when its time was over; the connection serves another one by then."""
    fanouts = FanoutPool(tuple(resolve(url, "sync") for url in three.urls), current())
    calls: list[Any] = [Command(("PING",), 5.0)] * 3
    try:
        fanouts.poll(Poll(calls, AllAnswered({0, 1, 2}), 1.0))
        three.servers[0].pause()
        first = AllAnswered({0, 1, 2})
        fanouts.poll(Poll(calls, first, 0.4))
        heard = dict(first.answers)
        assert sorted(heard) == [1, 2]
        three.servers[0].resume()
        second = AllAnswered({0, 1, 2})
        fanouts.poll(Poll(calls, second, 2.0))
        assert sorted(second.answers) == [0, 1, 2]
        assert first.answers == heard
    finally:
        three.servers[0].resume()
        fanouts.clear()


# Interrupts


@pytest.mark.turns("interrupted lines")
@pytest.mark.filterwarnings("ignore:lease of .* was dropped without release:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("part", [pytest.param(0, id="some lines"), pytest.param(1, id="all", marks=pytest.mark.soak)])
def test_interrupted_at_the_lines_of_with(five: Group, name: str, part: int) -> None:
    """`with lock: pass`, interrupted once at each line of holdfast that it runs; no key is left held on any server."""
    left: list[str] = []
    lock = Redlock(five.urls, name, ttl=30)
    with lock:
        pass

    def check(where: str) -> None:
        try:
            until(lambda: five.free(name), 5)
        except AssertionError:
            left.append(where)
            for client in five.clients:
                client.delete(lock.key)

    def body() -> None:
        with Redlock(five.urls, name, ttl=30):
            pass

    lines = at_every_line(body, check, step=1 if part else 23)
    assert not left, "left behind when interrupted at\n" + "\n".join(left)
    assert len(lines) > 10, "it was really traced"
