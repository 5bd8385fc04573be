"""Histories over scripted sockets in which workers use the lock objects of the public API: themes `objects`, `stalling`.

The workers are one thread that signal handlers interrupt, several threads, or several tasks. They wait for each other in the
queue of their process. In some histories, the server accepts no more clients from some moment on.

Besides the rules of `wired.histories`, two rules are checked:

- T6: one worker at a time relies on a lock, and each holder has a higher fence than all holders before it.
- T7: the objects tell the truth. A lease that a thread has just acquired is not over. The release of a held lock does not raise
  NotHeld, a second release does, and LeaseLost is raised only if the lease was over or lost before. A released lease has no
  time left. Without faults, no lease is lost that is renewed, and no call fails.

T3 also requires that each worker acquires a lock at its first call after the last fault. Once a thread has noticed that its
connection has ended, the requests of the other threads get replies, too.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import holdfast
import holdfast.aio
from holdfast._api.base_lock import member_of
from holdfast._api.lease import core_of
from holdfast._api.lease_core import LeaseCore
from holdfast._core.requests import Command, Outcome, TimedOut, Wait
from holdfast._net.aio_connection import MAX_IN_FLIGHT
from holdfast._net.sync_pool import Pool
from holdfast._runtime.drivers import aio, sync
from holdfast._runtime.keeper.inbox_wait import Slot
from holdfast._runtime.keeper.long_leases import LONG_S
from holdfast.errors import LeaseLost, NotHeld, ServerError
from holdfast_lab.wired.histories import WORKERS, WiredHistory
from holdfast_lab.wired.machine import Machine
from holdfast_lab.wired.world import Callers, Interrupt

WORKING = 5
"""Number of threads or tasks. This is more than the number of times that a request is sent before an acquisition fails."""

STEPS = 16
"""Number of random steps of each worker before all faults are healed."""

MANY = MAX_IN_FLIGHT + 100
"""Number of requests of a crowd of tasks. This is more than a connection sends before it has got replies."""

QUESTIONS = 4
"""Number of commands ECHO that a worker sends in a row."""

SETTLED = LONG_S + 0.5
"""Within this many seconds after an acquisition, the process opens all connections that it needs to keep the lease."""

FORSAKEN = 2 * LONG_S + 0.5
"""Seconds after the end of an event loop until the keeper has released the locks of its tasks."""

AT_LAST = 120.0
"""Seconds to wait for a lock after the last fault. This is longer than any lease."""


class Mailbox(Slot):
    """The object in which a simulated thread waits for the outcome of its attempt."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def take(self, until: float | None) -> Outcome | None:
        machine = self._machine
        machine.world.at(machine.world.now)  # an event, after which the keeper sees what this thread has left to it
        seconds = float("inf") if until is None else machine.true(max(0.0, until - machine.clock()))
        woken = machine.world.wait(lambda: not self.empty(), seconds)
        stalled = machine.stall()
        if stalled:
            machine.sleep(stalled)
        return self.get_nowait() if woken else TimedOut()


class Driver(sync.Driver):
    """The sync driver, with waits in virtual time. It never borrows the socket of the keeper's inbox."""

    def __init__(self, process: Any, endpoint: Any) -> None:
        super().__init__(process, endpoint)
        self.is_direct = True

    def slot(self) -> Slot:
        return Mailbox(self.process.system)  # type: ignore[arg-type]

    def _wait(self, request: Wait[Any]) -> Outcome:
        if request.answer is not None:
            self.process.keeper.joined(self.endpoint, request.waiter, request.answer)
        outcome: Outcome | None = None
        while outcome is None:
            outcome = request.waiter.attempt.slot.take(request.until)
        return outcome


@dataclass(slots=True)
class Worker:
    """A thread or task, with its lock objects and the leases that it holds, by lock."""

    locks: dict[str, Any]
    ask: Callable[[Command], Awaitable[Any]]
    """Function that sends a command over the connection of the locks."""
    held: dict[str, LeaseCore] = field(default_factory=dict)


class ObjectHistory(WiredHistory):
    def _tell(self) -> None:
        self._healed = False
        self._last_fence: Counter[str] = Counter()
        self._since: dict[LeaseCore, float] = {}
        self.world.watchers.append(self._look_at_holders)
        if self.profile.full_from is not None:
            self.world.at(self.profile.full_from, self._turn_away)
        self.machine.stalls = self.profile.stalls
        for begins, lasts in self.profile.outages:
            self.world.at(begins, partial(self._silence, 1.0))
            self.world.at(begins + lasts, partial(self._silence, self.network.silent))
        if self.profile.api == "asyncio":
            if not self.profile.faults and self._themed.random() < 0.5:
                self._forsake()
            self.machine.held_up = self._themed.choice((0.0, 0.1, 0.3))
            self.network.room += 0.5  # the loop may be held up before it sends the rest of a request
            with closing(self._loop()) as loop:
                loop.run_until_complete(self._use_tasks())
        else:
            self._use_threads()

    def _turn_away(self) -> None:
        if not self._healed:
            self.network.refused = 1.0
            self.counts["wired turned away"] += 1

    def _silence(self, share: float) -> None:
        if not self._healed:
            self.network.silent = share

    def _heal(self) -> None:
        self._healed = True
        self.machine.stalls = 0.0
        super()._heal()

    def _use_threads(self) -> None:
        driver = Driver(self.process, self.endpoints[0])
        alone = self.profile.api == "sync"
        workers = [self._worker(holdfast, driver) for _ in range(1 if alone else WORKING)]
        if alone:
            at_once(self._use(workers[0]))
        else:
            if self._themed.random() < 0.3:
                pool = self.process.pool(self.endpoints[0])
                assert isinstance(pool, Pool)
                pool.share()
            Callers(self.world).run([lambda worker=worker: at_once(self._use(worker)) for worker in workers])  # type: ignore[misc]
            # So that many connections are idle when all of them end.
            Callers(self.world).run([lambda: self._ask_at_once(workers[0])])
        self._heal()
        if alone:
            at_once(self._end(workers))
        else:
            Callers(self.world).run([lambda: at_once(self._end(workers))])

    async def _use_tasks(self) -> None:
        driver = aio.kept(self.process, self.endpoints[0], aio.Driver)
        workers = [self._worker(holdfast.aio, driver) for _ in range(WORKING)]
        try:
            async with asyncio.TaskGroup() as group:
                for worker in workers:
                    group.create_task(self._use(worker))
            self._heal()
            await self._end(workers)
        finally:
            await driver.stream.close()
            await aio.close()

    def _forsake(self) -> None:
        """Close an event loop whose tasks hold locks, and check that the keeper releases them (T5)."""
        loop, tasks = self._loop(), list[asyncio.Task[None]]()

        async def hold(lock: Any) -> None:
            try:
                async with lock:
                    self.counts["wired forsaken"] += 1
                    await asyncio.sleep(AT_LAST)
            except LeaseLost as error:  # a lease that is not renewed, before the end of the loop
                if not self.docket.decide("T7", not member_of(lock).spec.renew):
                    self._violated("T7", f"a lease is lost, though nothing has gone wrong: {error}")

        async def begin() -> None:
            worker = self._worker(holdfast.aio, aio.kept(self.process, self.endpoints[0], aio.Driver))
            tasks.extend(loop.create_task(hold(lock)) for lock in worker.locks.values())

        loop.run_until_complete(begin())
        loop.call_later(0.1 + 4.0 * self._themed.random(), loop.stop)
        loop.run_forever()
        sockets = loop.let_go()
        loop.close()
        self.machine.sleep(FORSAKEN)
        if self.profile.full_from is None or self.profile.full_from > SETTLED:  # otherwise, the keeper may have no connection
            self._nothing_left()
        tasks.clear()
        gc.collect()  # collect the tasks now, not at a random time later
        for sock in sockets:
            sock.close()

    def _worker(self, api: Any, driver: Any) -> Worker:
        async def ask(command: Command) -> Any:
            return await done(driver.ask(command))

        choice = self.rng.choice
        return Worker({name: self._object(choice((api.Lock, api.Lock, api.FairLock)), name, driver) for name in "xy"}, ask)

    def _object(self, kind: Any, name: str, driver: Any) -> Any:
        """Return a lock object of a public class that uses this driver, as in the real process."""
        endpoint = self.endpoints[0]

        class Lock(kind):  # type: ignore[misc]
            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **options)
                self._endpoint = endpoint  # its port is not that of a URL

            def _new_driver(self) -> Any:
                return driver

        return Lock("redis://scripted", name, ttl=self.rng.choice(self.profile.ttls), renew=self.rng.random() < 0.8)

    # The workers

    async def _use(self, worker: Worker) -> None:
        rng = self.rng
        for _ in range(STEPS):
            if self.run.violations:
                return
            name = rng.choice(self.profile.names)
            some = rng.random()
            if some < 0.3:
                await self._pause(rng.choice((0.01, 0.3, 1.0, 4.0, 12.0)) * rng.random())
            elif some < 0.4:
                for _ in range(QUESTIONS):
                    await self._question(worker.ask)
            elif name in worker.held:
                await self._give_back(worker, name)
            else:
                await self._take(worker, name, rng.choice((0.0, 0.5, 2.0)))
        for name in [*worker.held]:
            await self._give_back(worker, name)

    def _ask_at_once(self, worker: Worker) -> int:
        """Send an ECHO from each of several threads at the same time. Return the number of threads that got a reply."""
        callers, answered = self.world.callers, list[bool]()
        assert callers is not None

        async def ask() -> None:
            answered.append(await self._question(worker.ask))

        for _ in range(WORKING):
            callers.start(lambda: at_once(ask()))
        self.world.wait(lambda: len(answered) == WORKING, float("inf"))
        return sum(answered)

    async def _pause(self, seconds: float) -> None:
        if self.profile.api == "asyncio":
            await asyncio.sleep(seconds)
        else:
            self.machine.sleep(seconds)

    async def _take(self, worker: Worker, name: str, wait: float) -> bool:
        lock = worker.locks[name]
        waited = lock.statistics().contended
        try:
            taken = await self._try_object(lambda: lock.acquire(timeout=wait) if wait else lock.acquire(blocking=False))
        except ServerError as error:
            self._failed(error)
            return False
        self.counts["wired waited"] += lock.statistics().contended > waited
        if not taken:
            return False
        core = worker.held[name] = core_of(lock.lease)
        self._held[core], self._since[core] = 0.0, self.world.now
        self.counts["wired taken"] += 1
        # A task may get the result late, when its loop has stalled.
        if not core.remaining() and self.profile.api != "asyncio":
            self._violated("T7", f"a thread has acquired {name}, and the lease is over: {core!r}")
        self.docket.decide("T6")
        if core.fence <= self._last_fence[name]:
            self._violated("T6", f"a holder of {name} has the fence {core.fence}, after {self._last_fence[name]}")
        self._last_fence[name] = core.fence
        self._look()
        self._look_at_holders()
        return True

    async def _give_back(self, worker: Worker, name: str) -> None:
        lock, core = worker.locks[name], worker.held.pop(name)
        del self._held[core]
        self.world.note("release", WORKERS, core.key)
        self.docket.decide("T7")
        held_lease = core.held_lease
        kept = self._kept(held_lease.spec.keys[0], held_lease.token)
        ends = min(kept, self.world.now + self.machine.true(core.remaining()))
        try:
            await self._try_object(lock.release)
        except LeaseLost as error:
            self._lost(core, str(error))
            if self.world.now < ends:
                self._violated("T7", f"the release of {name} reports a loss, but the server had kept it until then: {error}")
        except NotHeld:
            self._violated("T7", f"the release of {name}, which is held, raises NotHeld")
        except ServerError as error:
            self._excused.add(core.held_lease.token)  # the lock ends with its lease
            self._failed(error)
        self.counts["wired released"] += 1
        if core.remaining():
            self._violated("T7", f"a lease of {name} has {core.remaining():.3f} s left after its release")
        if self.rng.random() < 0.3:
            await self._release_again(lock, name)

    async def _release_again(self, lock: Any, name: str) -> None:
        try:
            await done(lock.release())
        except NotHeld:
            return
        except ServerError as error:
            self._failed(error)
        self._violated("T7", f"a second release of {name} does not raise NotHeld")

    async def _try_object(self, call: Callable[[], Any]) -> Any:
        """Call a method of a lock object. Return None if it was interrupted or cancelled at random."""
        try:
            return await self._perhaps_interrupted(call)
        finally:
            self.world.at(self.world.now)  # an event, after which the keeper sees what the call has left to it

    async def _perhaps_interrupted(self, call: Callable[[], Any]) -> Any:
        rng, limit = self.rng, self.profile.delay * 8
        if rng.random() >= self.impatient or self.profile.api == "shared":
            return await done(call())
        if self.profile.api == "asyncio":
            try:
                return await asyncio.wait_for(call(), rng.choice((limit, 0.5)) * rng.random())
            except TimeoutError:
                self.counts["wired cancelled"] += 1
                return None
        self.world.interrupt = rng.choice((0, 0, 0, 1, 2)), rng.choice((0.0, limit, float("inf"))) * rng.random()
        try:
            return call()
        except Interrupt:
            self.counts["wired interrupted"] += 1
            return None
        finally:
            self.world.interrupt = None

    # The judge

    def _ends_in_time(self, asked: float, limit: float) -> None:
        if not (self.machine.held_up or self.profile.stalls):  # a loop that does not run looks at time limits late
            super()._ends_in_time(asked, limit)

    def _look_at_holders(self) -> None:
        """Check T6, and check that no lease is lost without a cause, as T7 demands."""
        holders: dict[str, LeaseCore] = {}
        for core in self._held:
            if core.remaining() <= 0:
                self._lost(core, core.held_lease.lost or "its time is up")
            elif holders.setdefault(core.name, core) is not core:
                self._violated("T6", f"two workers rely on {core.name}: {core!r}, {holders[core.name]!r}")

    def _lost(self, core: LeaseCore, why: str) -> None:
        """Report a violation of T7 if a renewed lease is lost without a fault. Judge each lease only once."""
        begin, since = self.profile.full_from, self._since.pop(core, None)
        if since is None:
            return
        young = begin is not None and since + SETTLED > begin
        excused = bool(self.profile.faults) or not core.held_lease.spec.renew or young
        if not self.docket.decide("T7", excused):
            self._violated("T7", f"the lease of {core.name} is lost, though nothing has gone wrong: {why}")

    def _failed(self, error: Exception) -> None:
        """Report a violation of T7 if a call fails without a fault."""
        self.counts["wired failed"] += 1
        excused = bool(self.profile.faults) or bool(self.network.refused)
        if not self.docket.decide("T7", excused):
            self._violated("T7", f"a call fails, though nothing has gone wrong: {error}")

    async def _end(self, workers: list[Worker]) -> None:
        """Check T3 and T5 after all faults: each worker acquires a lock, and no lock is held at the end."""
        await self._pause(4.0)  # by then, slow connections are open or given up
        self._nothing_left()
        for worker in workers:
            if self.run.violations:
                return
            self.docket.decide("T3")
            try:
                taken = await done(worker.locks["x"].acquire(timeout=AT_LAST))
                if taken:
                    await done(worker.locks["x"].release())
            except (ServerError, LeaseLost) as error:
                self._violated("T3", f"a worker cannot use a lock after all faults have ended: {error!r}")
            else:
                if not taken:
                    self._violated("T3", "a worker does not get a lock after all faults have ended")
            # The first worker has noticed that its connection has ended. The others must not use connections of that time.
            if worker is workers[0] and self.profile.api == "shared" and self._ask_at_once(worker) < WORKING:
                self._violated("T3", "a request gets no reply, on a connection that ended together with another one")
        if self.profile.crowd:
            await self._crowd(workers[0])
        await self._pause(10.0)
        self._nothing_left()

    async def _crowd(self, worker: Worker) -> None:
        """Check T3 for many tasks that each send a request at the same moment, on one connection."""
        self.machine.held_up = 0.0  # so that the loop reads most replies one by one
        texts = [self._text() for _ in range(MANY)]
        asked = [asyncio.ensure_future(worker.ask(Command(("ECHO", text), 1.0))) for text in texts]
        for text, answer in zip(texts, await asyncio.gather(*asked, return_exceptions=True), strict=True):
            if isinstance(answer, BaseException):
                self._violated("T3", f"a request of many at once gets no reply, though nothing goes wrong any more: {answer}")
            else:
                self._belongs(answer, text)


async def done(result: Any | Awaitable[Any]) -> Any:
    return await result if inspect.isawaitable(result) else result


def at_once(coroutine: Any) -> None:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("the coroutine suspended, although its driver blocks")
