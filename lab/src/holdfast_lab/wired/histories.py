"""Seeded histories of one process over scripted sockets. The seed decides the API, the faults and the work.

- T1: a holder never relies on a lease for longer than the server keeps it. Checked for each held lease after each event.
- T2: each reply belongs to its request: ECHO returns the text that was sent. The server receives only complete requests and
  known commands, and each ECHO once.
- T3: after the last fault, each connection soon answers again, and no worker waits forever.
- T4: a request ends within its own time limit, whatever else is sent on its connection.
- T5: after the last fault, no server keeps a lease that was released or given up. Checked only under the themes `voting`,
  `polling`, `objects` and `stalling`, and under `closing` if several servers vote or the network has no faults.

For the rules T6 and T7 of the themes `objects` and `stalling`, see `wired.objects`.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

from holdfast._api.lease_core import LeaseCore
from holdfast._api.redlock import BaseQuorumCore
from holdfast._core.lock.acquire import ON_ONE_SERVER, abandon, acquire
from holdfast._core.lock.records import Attempt, Grant
from holdfast._core.lock.replies import Busy
from holdfast._core.lock.spec import Spec, answer_within
from holdfast._core.names import lock_keys, side_key
from holdfast._core.quorum import acquire as quorum_acquire
from holdfast._core.quorum.nodes import QuorumNodes
from holdfast._core.quorum.votes import DECLARE_NEW, QuorumAttempt, ServerClockEstimate, ServerSet
from holdfast._core.requests import Command, ConfigMismatch, TooFew, WireError
from holdfast._net.client_adapter import AioClientCalls, ClientCalls
from holdfast._net.cluster import Cluster
from holdfast._net.endpoint import Endpoint
from holdfast._net.slots import slot_of
from holdfast._net.sync_pool import Pool
from holdfast._runtime.drivers import aio, aio_cluster, aio_quorum, sync, sync_quorum
from holdfast._runtime.drivers.choice import driver_for
from holdfast._runtime.fanout import OWED_S
from holdfast.errors import HoldfastError
from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.judge.verdicts import Docket
from holdfast_lab.sim.theme import Theme
from holdfast_lab.swarms.result import HistoryResult
from holdfast_lab.wired.cluster import FIRST_PORT, HOST, Nodes
from holdfast_lab.wired.foreign_clients import AioClient, SyncClient
from holdfast_lab.wired.machine import Loop, Machine, Process
from holdfast_lab.wired.server import Server
from holdfast_lab.wired.sockets import Network, Scripted, Socket
from holdfast_lab.wired.world import Callers, Stuck, World

T = TypeVar("T")

Operation = Callable[[], Coroutine[Any, Any, Grant | Busy]]
"""A function that returns the operation of an attempt. A driver calls it only if one request is not enough."""

FAULTS = ("slow", "late", "cut_request", "cut_reply", "silent", "split", "full", "refused")

STEPS = 12
"""Number of random steps of each worker before all faults are healed."""

TASKS = 3
"""Number of tasks in an event loop, or of threads that share a connection."""

CALM = 5
"""Number of requests that each connection sends at the end. The first may fail, because all connections were reset."""

DRIFT = 0.004
"""Maximum deviation of a clock's rate from 1. The margin of a lease allows for a difference of one percent."""


PROMPT = 0.3
"""A request violates T4 if it exceeds its time limit by more than this many seconds."""

ON_THE_WAY = {"sync": 2, "shared": float("inf"), "asyncio": 1}
"""Time that a request may take, as a multiple of its time limit, by `Profile.api`.

A thread may use the limit twice, because it may first open a connection. Threads that share a connection send a request again
on the next connection, any number of times, as long as the request did not leave the process.
"""

HOPS_S = 1.0
"""A request in a Cluster may exceed its time limit by this many seconds.

Each redirection may open a connection, and has a time limit of at least 50 ms.
"""

CLOSING = 5
"""If ``seed % 16`` has this value, the server closes many connections as soon as they are open."""

LONGEST = 60.0
"""Longest lease in seconds that a client may ask for if several servers vote."""

VOTES_WITHIN = 0.2
"""Default of ``answer_within=`` in the public API, in seconds."""

WORKERS = "workers"
"""Title of the column of the workers in a drawing."""


class Lease(LeaseCore):
    """A lease that does not notify its owner of a loss. The rules check each lease after each event."""

    def notice_loss(self) -> None:
        self.first_to_tell()


Ending = Literal["run", "stopped", "dropped"]
"""How an event loop ends.

"run": as by `asyncio.run`. "stopped": it is closed while its cancelled tasks clean up. "dropped": it is closed while its tasks
run.
"""


@dataclass(slots=True)
class Profile:
    """The parameters of a history, drawn from its seed."""

    api: Literal["sync", "shared", "asyncio"]
    """The workers are one thread ("sync"), several threads that share a connection ("shared"), or tasks ("asyncio")."""
    delay: float
    """Mean time in seconds that data takes from one end of a connection to the other."""
    faults: dict[str, float]
    """Probability of each fault, by the name of the attribute of `Network`."""
    rates: tuple[float, float]
    """Rates of the server's and the client's clock, compared with virtual time."""
    impatient: float
    """Probability that an action is cancelled (task) or interrupted (thread, only if the workers use lock objects)."""
    more_rates: list[float] = field(default_factory=list)
    """Rates of the clocks of further servers, if several servers vote."""
    nodes: int = 0
    """Number of servers of the Cluster; 0: there is no Cluster."""
    client_timeout: float | None = None
    """Seconds that the user's Redis client waits for a reply; None: holdfast opens its connections itself."""
    loops: list[tuple[float, Ending]] = field(default_factory=list)
    """Event loops that end early: for how many seconds each runs, and how it ends."""
    tidy: bool = False
    """True if workers clean up as the public API does, so that T5 can be checked."""
    objects: bool = False
    """True if the workers use the lock objects of the public API (`wired.objects`)."""
    full_from: float | None = None
    """Virtual time from which the server accepts no new connection, if the workers use lock objects."""
    names: str = "xxy"
    """Names of the locks that workers with lock objects want, each as often as it is here."""
    ttls: tuple[float, ...] = (2.0, 6.0, 60.0)
    """Lengths in seconds of the leases of lock objects."""
    crowd: bool = False
    """True if, at the end, many tasks with lock objects send a request at the same moment."""
    stalls: float = 0.0
    """Probability that a thread that was woken, or an event loop, stalls for up to five seconds (`Machine.stall`)."""
    outages: list[tuple[float, float]] = field(default_factory=list)
    """Outages of the network: virtual time at which each begins, and its seconds. All that is sent meanwhile is lost."""
    scale: float = 1.0
    """Factor by which leases are longer than usual, so that a lease left behind still exists at the end."""


class Voted(BaseQuorumCore, Lease):
    """A lease that several servers have voted for."""


class _DriverOfClient(sync.Driver):
    """A sync driver that sends requests through a Redis client of the user. The library chooses it by the endpoint."""

    def __init__(self, process: Process, endpoint: Endpoint, client: SyncClient) -> None:
        super().__init__(process, endpoint)
        self._pool = ClientCalls(Endpoint(host="scripted", client=client))


class _Threads:
    """Runs a worker's actions with the sync driver. The worker's coroutine never suspends."""

    def __init__(self, process: Process, endpoint: Endpoint, client: SyncClient | None = None) -> None:
        self._process = process
        self.driver = driver_for(process, endpoint) if client is None else _DriverOfClient(process, endpoint, client)
        self.slot = self.driver.slot

    async def run(self, operation: Coroutine[Any, Any, T]) -> T:
        return self.driver.run(operation)

    async def ask(self, command: Command) -> Any:
        return self.driver.ask(command)

    async def acquire(self, attempt: Attempt, wait: float, operation: Operation) -> Grant | Busy:
        """Acquire the lock as the public API does: ``operation`` is called only if one request is not enough."""
        grant = self.driver.acquire(attempt, wait, self._process.clock()) if attempt.is_direct else None
        return self.driver.run(operation()) if grant is None else grant

    async def release(self, lease: Lease, *, tidy: bool) -> None:
        done = lease.try_release()
        if not done:
            self.driver.run(lease.let_go(begun=done is None) if tidy else lease.release_on_server())

    async def sleep(self, seconds: float) -> None:
        self._process.system.sleep(seconds)


class _Tasks:
    """Runs a worker's actions with the asyncio driver."""

    def __init__(self, process: Process, endpoint: Endpoint, *, kept: bool) -> None:
        self._process = process
        if endpoint.cluster is not None:
            self.driver: aio.Driver = aio_cluster.ShardDriver(process, endpoint)
        else:
            self.driver = aio.kept(process, endpoint, aio.Driver) if kept else aio.Driver(process, endpoint)
        self.slot, self.run, self.ask = self.driver.slot, self.driver.run, self.driver.ask
        self.sleep = asyncio.sleep

    async def acquire(self, attempt: Attempt, wait: float, operation: Operation) -> Grant | Busy:
        """Acquire the lock as the public API does: ``operation`` is called only if one request is not enough."""
        driver, grant = self.driver, None
        try:
            asked = driver.begin(attempt, wait, self._process.clock(), asyncio.current_task())
            if asked is not None:
                try:
                    await asked
                except WireError:
                    pass  # `finish` reads the error from `asked`
                grant = driver.finish(attempt, asked)
            if grant is None:
                return await driver.run(operation())
        except GeneratorExit:
            if attempt in driver.running:
                driver.leave(attempt)
            raise
        except asyncio.CancelledError:
            driver.running.discard(attempt)
            await driver.clean_up(abandon(attempt, ON_ONE_SERVER))
            raise
        return grant

    async def release(self, lease: Lease, *, tidy: bool) -> None:
        done = await lease.try_release()
        if not done:
            await self.driver.run(lease.let_go(begun=done is None) if tidy else lease.release_on_server())

    async def close(self) -> None:
        await self.driver.stream.close()
        for driver in self._process.drivers.pop(asyncio.get_running_loop(), {}).values():  # to the servers of a Cluster
            await driver.stream.close()
        await aio.close()


class _ThreadOfVoters:
    """Runs a worker's actions with the sync driver for several servers."""

    def __init__(self, process: Process, endpoints: tuple[Endpoint, ...]) -> None:
        self._process = process
        self.driver = sync_quorum.Driver(process, endpoints)
        assert process.keeper  # started before the first request, as by the public API
        self._turns = itertools.cycle([sync.Driver(process, endpoint) for endpoint in endpoints])
        self.slot = self.driver.slot

    async def run(self, operation: Coroutine[Any, Any, T]) -> T:
        return self.driver.run(operation)

    async def ask(self, command: Command) -> Any:
        """Send a command to the next server in turn. After a reset of the connections, each server may fail once."""
        return next(self._turns).ask(command)

    async def acquire(self, _attempt: Attempt, _wait: float, operation: Operation) -> Grant | Busy:
        return self.driver.run(operation())

    async def release(self, lease: Lease, *, tidy: bool) -> None:
        self.driver.run(lease.let_go() if tidy else lease.release_on_server())

    async def sleep(self, seconds: float) -> None:
        self._process.system.sleep(seconds)


class _Voters:
    """Runs a worker's actions with the asyncio driver for several servers."""

    def __init__(self, process: Process, endpoints: tuple[Endpoint, ...], rng: random.Random) -> None:
        self.driver = aio_quorum.Driver(process, endpoints)
        self._drivers = [aio.kept(process, endpoint, aio.Driver) for endpoint in endpoints]
        self._rng = rng
        self.slot, self.run = self.driver.slot, self.driver.run
        self.sleep = asyncio.sleep

    async def acquire(self, _attempt: Attempt, _wait: float, operation: Operation) -> Grant | Busy:
        return await self.driver.run(operation())

    async def release(self, lease: Lease, *, tidy: bool) -> None:
        await self.driver.run(lease.let_go() if tidy else lease.release_on_server())

    async def ask(self, command: Command) -> Any:
        return await self._rng.choice(self._drivers).ask(command)

    async def close(self) -> None:
        for driver in self._drivers:
            await driver.stream.close()
        await aio.close()


Api = _Threads | _ThreadOfVoters | _Tasks | _Voters


class WiredHistory:
    """A history of one process, its servers, and the network between them."""

    def __init__(self, seed: int, *, trace: bool, theme: Theme) -> None:
        self.rng = rng = random.Random(f"wired {seed}")
        self.world = world = World(trace=trace)
        some = rng.sample(FAULTS, rng.randrange(len(FAULTS)))
        faults = {fault: rng.choice((0.02, 0.1, 0.3)) for fault in some}
        if seed % 16 == CLOSING:
            faults["closed"] = 0.3
        self.counts: Counter[str] = Counter()
        self.docket = Docket()
        self.profile = profile = Profile(
            "asyncio" if seed % 2 else "shared" if seed % 8 == 6 else "sync",
            rng.choice((0.001, 0.01, 0.03)),
            faults,
            (rng.uniform(1 - DRIFT, 1 + DRIFT), rng.uniform(1 - DRIFT, 1 + DRIFT)),
            rng.choice((0.0, 0.0, 0.1)),
        )
        theme.redraw(seed, profile, lambda share: share)
        self._themed = random.Random(f"{theme.name} of wired {seed}")
        """Random numbers that only histories under a theme use."""
        self.network = Network(world, rng, profile.delay, **profile.faults, counts=self.counts)
        self.impatient = profile.impatient
        self.run = HistoryResult(seed, profile, world, [], self.counts)
        rates = (profile.rates[0], *profile.more_rates)
        complain = partial(self._violated, "T2")
        self.nodes: Nodes | None = None
        if profile.nodes:
            self.nodes = Nodes(world, self._themed, profile.nodes, rates[0], counts=self.counts, complain=complain)
        self.servers: Sequence[Server] = self.nodes.servers if self.nodes else [Server(world, rate, complain) for rate in rates]
        first = FIRST_PORT if self.nodes else 0
        self.machine = Machine(world, self.network, self.servers, rng, profile.rates[1], first_port=first)
        self.process = Process(self.machine)
        self.several = len(rates) > 1
        """True if several servers vote."""
        if self.nodes is not None:
            self.machine.spawns = True
            self.nodes.place([slot_of(lock_keys(name, "hf:", None)[0]) for name in "xy"], 0)
            self.cluster = Cluster(
                tuple((HOST, FIRST_PORT + number) for number in range(profile.nodes)), {}, None, self.machine
            )
        if self.several:
            self.endpoints: tuple[Endpoint, ...] = tuple(Endpoint(host="scripted", port=number) for number in range(len(rates)))
        else:
            self.endpoints = (Endpoint(host="scripted"),)
        self.server_set = ServerSet(tuple(endpoint.address for endpoint in self.endpoints), "digest", LONGEST)
        self.clock_estimate = ServerClockEstimate()
        if self.several:
            for server in self.servers:
                server.declare_new(DECLARE_NEW, (self.server_set.marker,), (int(1000 * LONGEST), "digest", 0))
        self._excused: set[str] = set()
        """Tokens of leases whose holders ended without a release. These leases exist until they expire."""
        self._held: dict[LeaseCore, float] = {}
        """Virtual time until which the holder relies on each held lease; 0: not known yet."""
        self._asked = 0
        world.watchers.append(self._look)

    def tell(self, coverage: Coverage | None = None) -> HistoryResult[Profile]:
        """Run the history to its end, and judge it. Add the verdicts to ``coverage``, unless it is None."""
        try:
            self._tell()
        except Stuck:
            self._violated("T3", "a worker waits forever, and no event is planned")
        except Exception as error:  # noqa: BLE001 - report any exception with the seed
            self._violated("T0", f"the history raised {error!r}")
        if coverage is not None:
            coverage.histories += 1
            coverage.docket += self.docket
        return self.run

    def _tell(self) -> None:
        if self.nodes is not None:
            Callers(self.world).run([self._in_cluster])
        elif self.profile.api == "shared":
            self._shared()
        elif self.profile.api == "sync":
            _at_once(self._sync())
        elif self.profile.loops:
            self._ending_loops()
        else:
            with closing(self._loop()) as loop:
                loop.run_until_complete(self._asyncio())

    def _in_cluster(self) -> None:
        """Run the history in a Cluster. First look up the owners of the slots, as the public API does."""
        while not self.cluster.known:
            try:
                self.cluster.refresh(1.0)
            except WireError:
                self.machine.sleep(0.1)
        self.endpoints = (self.cluster.shard(slot_of(lock_keys("x", "hf:", None)[0])),)
        if self.profile.api == "sync":
            _at_once(self._sync())
            return
        with closing(self._loop()) as loop:
            loop.run_until_complete(self._asyncio())

    async def _sync(self) -> None:
        if len(self.endpoints) > 1:
            # The thread may leave requests unsent, which the keeper sends when it looks at the connections next.
            self.network.room += OWED_S
            voter = _ThreadOfVoters(self.process, self.endpoints)
            await self._work(voter, (0.0,))
            self._heal()
            await self._calm_down(voter)
            return
        timeout = self.profile.client_timeout
        client = None if timeout is None else SyncClient(self.machine, self.endpoints[0], timeout, self.counts)
        api = _Threads(self.process, self.endpoints[0], client)
        await self._work(api, (0.0,))
        self._heal()
        await self._calm_down(api)

    def _shared(self) -> None:
        """Run the history with threads that share connections, as in a process with very many threads."""
        api = _Threads(self.process, self.endpoints[0])
        pool = self.process.pool(self.endpoints[0])
        assert isinstance(pool, Pool)
        pool.share()
        Callers(self.world).run([lambda: _at_once(self._work(api, (0.0,)))] * TASKS)
        self._heal()
        Callers(self.world).run([lambda: _at_once(self._calm_down(api))])

    async def _asyncio(self) -> None:
        api = self._tasks()
        client: AioClient | None = None
        if self.profile.client_timeout is not None:
            assert isinstance(api, _Tasks)
            client = AioClient(self.machine, self.endpoints[0], self.profile.client_timeout, self.counts)
            api.driver.stream = AioClientCalls(Endpoint(host="scripted", client=client), self.machine)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(TASKS):
                    group.create_task(self._work(api, (0.0, 0.5, 2.0)))
            self._heal()
            await self._calm_down(api)
        finally:
            await api.close()
            if client is not None:
                await client.close()

    def _tasks(self) -> _Tasks | _Voters:
        if len(self.endpoints) > 1:
            return _Voters(self.process, self.endpoints, self._themed)
        return _Tasks(self.process, self.endpoints[0], kept=bool(self.profile.loops))

    def _ending_loops(self) -> None:
        """Run the workers in event loops that end early, and check the connections in a last loop."""
        for seconds, ending in self.profile.loops:
            sockets = self._end_of_a_loop(seconds, ending)
            gc.collect()  # collect the tasks and connections of the loop now, not at a random time later
            for sock in sockets:
                sock.close()
        with closing(self._loop()) as loop:
            loop.run_until_complete(self._after_the_loops())

    def _loop(self) -> Loop:
        """Return a new event loop. An exception that no task retrieves is a violation."""

        def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            if "exception" in context:  # otherwise, a closed loop has pending tasks on purpose
                self._violated("T0", f"{context['message']}: {context['exception']!r}")

        loop = Loop(self.machine)
        loop.set_exception_handler(handle)
        return loop

    def _end_of_a_loop(self, seconds: float, ending: Ending) -> list[Scripted]:
        loop = self._loop()
        tasks: list[asyncio.Task[None]] = []

        async def begin() -> None:
            api = self._tasks()
            tasks.extend(loop.create_task(self._work(api, (0.0, 0.5, 2.0))) for _ in range(TASKS))

        loop.run_until_complete(begin())
        loop.call_later(seconds, loop.stop)
        loop.run_forever()
        busy = [task for task in tasks if not task.done()]
        if ending == "run":
            everything = sorted(asyncio.all_tasks(loop), key=lambda task: int(task.get_name().rpartition("-")[2]))
            for task in everything:
                task.cancel()
            if everything:
                loop.run_until_complete(asyncio.wait(everything))
            loop.run_until_complete(self._close_connections(loop))
            loop.run_until_complete(loop.shutdown_asyncgens())
        elif ending == "stopped":
            for task in busy:
                task.cancel()
            loop.call_later(self._themed.choice((0.0, 0.0005, 0.005, 0.05, 1.5)) * self._themed.random(), loop.stop)
            loop.run_forever()
        self.counts[f"wired loops {ending} in an operation"] += bool(busy)
        for lease in self._held:
            self._excused.add(lease.held_lease.token)
        self._held.clear()
        sockets = loop.let_go()
        loop.close()
        return sockets

    async def _close_connections(self, loop: Loop) -> None:
        """Close the connections of a loop, as the library does in a real process."""
        for driver in self.process.drivers.pop(loop, {}).values():
            await driver.stream.close()

    async def _after_the_loops(self) -> None:
        api = self._tasks()
        try:
            self._heal()
            await self._calm_down(api)
        finally:
            await api.close()

    # The workers

    async def _work(self, api: Api, waits: tuple[float, ...]) -> None:
        rng = self.rng
        mine: dict[str, Lease] = {}
        for _ in range(STEPS):
            if self.run.violations:
                break
            name = rng.choice("xy")
            match rng.randrange(6):
                case 0 | 1 if name not in mine:
                    lease = await self._acquire(api, self._spec(name), rng.choice(waits))
                    if lease is not None:
                        mine[name] = lease
                case 0 | 1:
                    await self._try("renewed", api.run(mine[name].renew_on_server(rng.choice((None, 1.0, 4.0)))))
                case 2 if name in mine:
                    await self._release(api, mine.pop(name))
                case 3:
                    await self._question(api.ask)
                case 4:
                    self._question_to_the_keeper()
                case _:
                    await api.sleep(rng.choice((0.01, 0.3, 1.0, 4.0)) * rng.random())
        for lease in mine.values():
            await self._release(api, lease)

    def _spec(self, name: str) -> Spec:
        ttl = self.rng.choice((0.5, 2.0, 10.0)) * self.profile.scale
        keys, renew = lock_keys(name, "hf:", None), self.rng.random() < 0.7
        if self.several:
            keys = (*keys[:2], side_key(keys[0], b"hopefuls"))
            return Spec(name=name, keys=keys, ttl=ttl, renew=renew, max_hold=None, timeout=VOTES_WITHIN)
        return Spec(name=name, keys=keys, ttl=ttl, renew=renew, max_hold=None, timeout=answer_within(ttl))

    async def _acquire(self, api: Api, spec: Spec, wait: float) -> Lease | None:
        taken: list[Lease] = []
        slot = api.slot()
        if not self.several:
            node = self.process.keeper.node(self.endpoints[0])
            attempt = Attempt(spec, slot=slot, node=node, is_direct=api.driver.is_direct)
            operation = partial(acquire, attempt, wait, ON_ONE_SERVER)
        else:
            attempt = voted = self._voted(spec, slot)
            operation = partial(acquire, voted, wait, quorum_acquire.ON_SEVERAL_SERVERS)

        async def take() -> Grant | Busy:
            grant = await api.acquire(attempt, wait, operation)
            if isinstance(grant, Grant) and self.profile.tidy:  # a cancellation may come before the caller has the grant
                taken.append(self._lease(api, attempt, grant))
            return grant

        grant = await self._try("asked", take())
        if not isinstance(grant, Grant):
            for lease in taken:
                self._held[lease] = 0.0
                await self._release(api, lease)
            return None
        return taken[0] if taken else self._lease(api, attempt, grant)

    def _voted(self, spec: Spec, slot: Any) -> QuorumAttempt:
        return QuorumAttempt(
            spec,
            slot=slot,
            node=self.process.keeper.quorum_nodes(QuorumNodes, self.endpoints),
            since=self.process.clock(),
            server_set=self.server_set,
            clock_estimate=self.clock_estimate,
        )

    def _lease(self, api: Api, attempt: Attempt, grant: Grant) -> Lease:
        if self.several:
            lease: Lease = Voted(self.process, self.endpoints, grant, driver=api.driver)
        else:
            lease = Lease(self.process, self.endpoints[0], grant, driver=api.driver)
        attempt.unclaimed = None
        self._held[lease] = 0.0
        self.counts["wired taken"] += 1
        self._look()
        return lease

    async def _release(self, api: Api, lease: Lease) -> None:
        del self._held[lease]
        self.world.note("release", WORKERS, lease.key)
        # if the release fails, the keeper tries it again, as after a `with` block
        await self._try("released", api.release(lease, tidy=self.profile.tidy))

    async def _try(self, what: str, doing: Awaitable[T]) -> T | None:
        """Await an action and count its outcome. Return None if a fault made it fail, or it was cancelled at random."""
        if self.profile.api == "asyncio" and self.rng.random() < self.impatient:
            doing = self._cancelled_twice(doing) if self.profile.loops else asyncio.wait_for(doing, self.rng.uniform(0, 0.3))
        try:
            result = await doing
        except TimeoutError:
            self.counts["wired cancelled"] += 1
            return None
        except (WireError, HoldfastError, TooFew, ConfigMismatch):
            self.counts["wired failed"] += 1
            return None
        self.counts[f"wired {what}"] += 1
        return result

    async def _cancelled_twice(self, doing: Awaitable[T]) -> T:
        """Await an action, but cancel it after a random time, and again while it cleans up.

        Return its result if it ended before. Raises TimeoutError if it was cancelled.
        """
        task = asyncio.ensure_future(doing)
        # The end of the loop may cancel this worker, which then does not retrieve the exception.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        for _ in range(2):
            await asyncio.wait([task], timeout=self._themed.choice((0.003, 0.3)) * self._themed.random())
            if not task.done() and not task.cancel():
                break
        self.counts["wired cancelled twice"] += task.cancelling() > 1 and not task.done()
        try:
            return await task
        except asyncio.CancelledError:
            if task.cancelled():
                raise TimeoutError from None
            raise

    # Questions

    def _text(self) -> str:
        self._asked += 1
        padding = "." * self.rng.choice((0, 50))
        # In a Cluster, the text has a slot. At the end, the driver and the keeper take turns, and each asks about both slots.
        tag = f" {{{'xy'[self._asked // 2 % 2]}}}" if self.nodes is not None else ""
        return f"question {self._asked}{padding}{tag}"

    def _command(self, text: str) -> Command:
        return Command(("ECHO", text), self.rng.choice((0.2, 1.0)))

    async def _question(self, ask: Callable[[Command], Awaitable[Any]]) -> bool:
        """Send an ECHO, and check the reply. Return True if a reply arrived."""
        text = self._text()
        command, asked = self._command(text), self.machine.clock()
        answer = await self._try("answered", ask(command))
        if self.profile.client_timeout is None or self.profile.api == "asyncio":  # a sync client has its own time limit
            hops = HOPS_S if self.nodes is not None else 0.0
            self._ends_in_time(asked, ON_THE_WAY[self.profile.api] * command.timeout + hops)
        return answer is not None and self._belongs(answer, text)

    def _question_to_the_keeper(self, then: Callable[[bool], None] = lambda _: None) -> None:
        """Send an ECHO over the keeper's connection, and check the reply. Call ``then``, with True if a reply arrived."""
        text = self._text()
        keeper = self.process.keeper

        def ask() -> None:
            command = self._command(text)

            def answered(answer: Any, sent: float) -> None:
                self._ends_in_time(sent, command.timeout)
                if not isinstance(answer, WireError):
                    self.counts["wired answered by link"] += 1
                    self._belongs(answer, text)
                then(not isinstance(answer, WireError))

            keeper.line_to(self._endpoint_of_the_question()).call(command, answered)

        keeper.call(ask)

    def _endpoint_of_the_question(self) -> Endpoint:
        return self.endpoints[0] if len(self.endpoints) == 1 else self._themed.choice(self.endpoints)

    def _ends_in_time(self, asked: float, limit: float) -> None:
        """Check T4 as a request ends: it must take at most ``limit`` seconds since ``asked``, by the machine's clock."""
        self.docket.decide("T4")
        took = self.machine.clock() - asked
        if took > limit + PROMPT:
            self._violated("T4", f"a request took {took:.3f} s, but its limit is {limit:.3f} s")

    def _belongs(self, answer: Any, text: str) -> bool:
        """Check T2: the reply to an ECHO is the text that was sent. Return True in any case."""
        self.docket.decide("T2")
        if answer != text.encode():
            self._violated("T2", f"the reply to ECHO {text!r} is {answer!r}")
        return True

    # The judge

    def _look(self) -> None:
        """Check T1, and check that each request is sent completely, as T2 demands."""
        now = self.world.now
        for sock in self.network.partly_written:
            sock.look_for_the_rest()
        for lease, noted in self._held.items():
            remaining = lease.remaining()
            if remaining > 0:
                self.docket.decide("T1")
                believed = now + self.machine.true(remaining)
                if abs(believed - noted) > 1e-6:
                    self._held[lease] = believed
                    self.world.note("renewed" if noted else "taken", WORKERS, lease.key, until=believed)
                kept = self._kept(lease.held_lease.spec.keys[0], lease.held_lease.token)
                if believed > kept:
                    self._violated(
                        "T1",
                        f"the holder of {lease.key} believes until {1000 * believed:.1f} ms, "
                        f"but the server keeps the lease until {1000 * kept:.1f} ms",
                    )

    def _kept(self, key: bytes, token: str) -> float:
        """Return the virtual time until which the server, or a majority of the servers, keeps the lock for this token."""
        if self.nodes is not None:
            return self.servers[0].keeps(key, token)  # the servers of a Cluster share their data
        kept = sorted((server.keeps(key, token) for server in self.servers), reverse=True)
        return kept[len(kept) // 2]

    def _violated(self, rule: str, what: str) -> None:
        """Record the first violation, after which the workers stop.

        No exception is raised, because the code under test might catch it.
        """
        if not self.run.violations:
            self.run.violations.append(Violation(rule, what))
            self.world.note("left", WORKERS, note=f"{rule} {what}")

    # The end

    def _heal(self) -> None:
        """End all faults, and reset every connection, because some may have fallen silent."""
        self.impatient = 0.0
        self.network.heal()
        if self.nodes is not None:
            self.nodes.settle()
        for sock in self.machine.sockets.values():
            if isinstance(sock, Socket):
                sock.reset()

    async def _calm_down(self, api: Api) -> None:
        """Check T3: after the last fault, all connections answer, except perhaps the first questions.

        Also check T5, if the workers clean up, and several servers vote or there were no faults.
        """
        answered = by_link = False

        def then(was: bool) -> None:
            nonlocal by_link
            by_link = was

        for _ in range(CALM):
            answered = await self._question(api.ask)
            self._question_to_the_keeper(then)
            await api.sleep(2.0)
        self.docket.decide("T3")
        if not answered:
            self._violated("T3", "the driver's connection gets no reply after all faults have ended")
        if not by_link:
            self._violated("T3", "the keeper's connection gets no reply after all faults have ended")
        if self.profile.tidy and (self.several or not self.profile.faults):
            self._nothing_left()

    def _nothing_left(self) -> None:
        """Check T5: no server keeps a lease that was released or given up."""
        self.docket.decide("T5")
        for number, server in enumerate(self.servers):
            for name in "xy":
                token = server.holder(lock_keys(name, "hf:", None)[0])
                if token is not None and token not in self._excused:
                    self._violated("T5", f"server {number} keeps lock {name!r} for {token}, which was released or given up")


def _at_once(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("the coroutine suspended, although its driver blocks")
