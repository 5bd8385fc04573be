"""Event loops that are closed while their tasks wait or hold: in a Cluster, with clients of the user's, and with a server that
is restarted meanwhile."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import redis
import redis.asyncio

import holdfast
from holdfast import aio
from runtime.faults.test_closed_loops import use
from support.apis import Sync, until
from support.clusters import Cluster, cluster
from support.loops import UVLOOP
from support.servers import PrivateServer

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = [
    pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    OwnPool.let_go()
    gc.collect()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster() as running:
        yield running
        holdfast.close()


class OwnPool(redis.asyncio.ConnectionPool):
    """One that chooses connections in a way of its own: its client is called, and nothing else."""

    opened: ClassVar[list[redis.asyncio.connection.AbstractConnection]] = []

    def make_connection(self) -> redis.asyncio.connection.AbstractConnection:
        self.opened.append(super().make_connection())  # type: ignore[no-untyped-call]
        return self.opened[-1]

    @classmethod
    def let_go(cls) -> None:
        """Nobody can await that any more."""
        while cls.opened:
            writer: Any = cls.opened.pop()._writer
            if writer is not None and not UVLOOP:  # whose loop closes all that it has opened
                writer.transport._sock.close()


class Place:
    """The servers of the locks, for both APIs."""

    def __init__(self, url: str, node: Callable[[str], PrivateServer], client: Callable[[], Any], *, ours: bool = True) -> None:
        self.url = url
        self.node = node
        """The server that has a key."""
        self.client = client
        """A new one, for one event loop."""
        self.ours = ours
        """Its connections are opened by us. Otherwise only its event loop can ask, so a lease ends by itself."""
        self.ttl = 30 if ours else 2


PLACES = ["client", "Cluster", "Cluster client", "own pool"]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, server: PrivateServer, nodes: Cluster) -> Place:
    port = server.port or 0
    kinds: dict[str, Place] = {
        "client": Place(server.url, lambda _: server, lambda: redis.asyncio.Redis(port=port)),
        "own pool": Place(
            server.url, lambda _: server, lambda: redis.asyncio.Redis(connection_pool=OwnPool(port=port)), ours=False
        ),
        "Cluster": Place(nodes.url, nodes.primary_of, lambda: nodes.url),
        "Cluster client": Place(
            nodes.url,
            nodes.primary_of,
            lambda: redis.asyncio.RedisCluster(host=nodes.address[0], port=nodes.address[1]),
        ),
    }
    return kinds[request.param]


def closed_after(steps: int, lock: Any, place: Place, connected: bool) -> asyncio.Task[bool]:
    """A task that takes a lock, and whose loop is closed after so many turns, before there is an answer."""
    loop = asyncio.new_event_loop()

    async def turns() -> None:
        for _ in range(steps):
            await asyncio.sleep(0)

    async def warm() -> None:
        async with lock:
            pass

    if connected:
        loop.run_until_complete(warm())
    node = place.node(lock.key.split(", ")[0])
    node.pause()
    task: asyncio.Task[bool] = loop.create_task(lock.acquire())
    loop.run_until_complete(turns())
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    node.resume()
    return task


KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "Lock": (aio.Lock, holdfast.Lock),
    "MultiLock": (
        lambda at, name, **options: aio.MultiLock(at, [f"{{{name}}}", f"{{{name}}}-too"], **options),
        lambda at, name, **options: holdfast.MultiLock(at, [f"{{{name}}}", f"{{{name}}}-too"], **options),
    ),
    "Semaphore": (
        lambda at, name, **options: aio.Semaphore(at, name, 1, **options),
        lambda at, name, **options: holdfast.Semaphore(at, name, 1, **options),
    ),
}
"""How tasks of closed loops want it, and how the threads do that come after them."""


@pytest.mark.turns
@pytest.mark.parametrize("connected", [True, False], ids=["connected", "not connected"])
@pytest.mark.parametrize("kind", ["Lock", "MultiLock"])
def test_whenever_a_loop_is_closed_the_next_one_has_the_lock(place: Place, name: str, kind: str, connected: bool) -> None:
    inside, outside = KINDS[kind]
    api, waiting, tasks = Sync(), [], []
    for steps in range(1, 13) if place.ours else range(1, 4):
        which = f"{name}-{steps}"
        tasks.append(closed_after(steps, inside(place.client(), which, ttl=place.ttl), place, connected))
        waiting.append(api.start(use, outside(place.url, which, ttl=30)))
    for future in waiting:
        future.result(10)


@pytest.mark.turns
@pytest.mark.parametrize("kind", KINDS)
def test_a_body_in_a_closed_loop_holds_the_lock_no_longer(place: Place, name: str, kind: str) -> None:
    inside, outside = KINDS[kind]
    leases: list[Any] = []
    task = closed_inside(inside(place.client(), name, ttl=place.ttl), leases)
    other = outside(place.url, name, ttl=30)
    assert other.acquire(timeout=10)
    assert leases[0].remaining() == 0
    other.release()
    assert not task.done()


def closed_inside(lock: Any, leases: list[Any]) -> asyncio.Task[None]:
    """A task inside ``async with``, whose loop is closed."""

    async def body() -> None:
        async with lock as lease:
            leases.append(lease)
            await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    task = loop.create_task(body())
    while not leases:
        loop.run_until_complete(asyncio.sleep(0.001))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    return task


@pytest.mark.turns
@pytest.mark.parametrize("kept", [True, False], ids=["with its data", "without its data"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_server_is_restarted_before_a_body_is_ended(new_server: NewServer, name: str, kind: str, kept: bool) -> None:
    """Releases wait until the server is there, and no client believes in a lease that the server has lost."""
    server = new_server(port=True, appendonly=kept)
    inside, outside = KINDS[kind]
    leases: list[Any] = []
    task = closed_inside(inside(server.url, name, ttl=30), leases)
    server.kill()
    until(lambda: leases[0].remaining() == 0 or not kept, 5)
    server.restart()
    other = outside(server.url, name, ttl=30)
    assert other.acquire(timeout=10)
    until(lambda: leases[0].remaining() == 0)
    other.release()
    assert not task.done()


@pytest.mark.turns
@pytest.mark.parametrize("kept", [True, False], ids=["with its data", "without its data"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_server_is_restarted_before_a_task_of_a_closed_loop_is_ended(
    new_server: NewServer, name: str, kind: str, kept: bool
) -> None:
    """It had been granted the lock, or not: nobody waits for the rest of its lease."""
    server = new_server(port=True, appendonly=kept)
    inside, outside = KINDS[kind]
    place = Place(server.url, lambda _: server, lambda: server.url)
    api, waiting, tasks = Sync(), [], []
    for steps in (1, 2, 4, 8):
        which = f"{name}-{steps}"
        tasks.append(closed_after(steps, inside(server.url, which, ttl=30), place, steps < 4))
        waiting.append(which)
    server.restart()
    for future in [api.start(use, outside(server.url, which, ttl=30, wait=10)) for which in waiting]:
        future.result(12)
