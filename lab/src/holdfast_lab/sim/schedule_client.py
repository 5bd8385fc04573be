"""A process that serves a schedule. The library's loop, state and leases run its jobs. Each job only sleeps."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from holdfast._core.requests import Sleep, WireError
from holdfast._core.schedule import loop
from holdfast._core.schedule.job import Options, ScheduleKeys, When
from holdfast._core.schedule.records import AbandonRun, ActiveRun, CancelRun, ForgetRun, Redefine, ServedJob, Start, Todo
from holdfast._core.schedule.state import ScheduleState
from holdfast._runtime.process import describe
from holdfast.schedule.run import RunCore
from holdfast_lab.sim.lock_client import NOWHERE
from holdfast_lab.sim.worker import TaskCancelled, Worker
from holdfast_lab.sim.world import Process

ANSWER_WITHIN = 0.3
"""Seconds to wait for the reply to one request of the schedule."""


def run_of(active_run: ActiveRun) -> str:
    """Return the name of a run in the history. It ends with "h" if the run was started by hand."""
    return f"{active_run.scheduled}/{active_run.attempt}" + ("h" if active_run.by_hand else "")


class Lease(RunCore):
    """The lease of a run as the library implements it, which also records its deadlines."""

    def __init__(self, service: Service, active_run: ActiveRun, on_lost: Callable[[], None]) -> None:
        self._active_run = active_run
        self._service = service
        service.process.leases[self] = active_run.grant.deadline
        super().__init__(service.process, NOWHERE, service.process.node, active_run, on_lost)

    def tell(self) -> None:
        deadline, process = self.held_lease.deadline, self._service.process
        if deadline != process.leases[self]:
            process.leases[self] = deadline
            self._service.note("renewed", self._active_run, until=process.true(deadline))


class Service:
    """The service of a schedule in one simulated process. It starts and cancels the runs of jobs.

    ``jobs`` are the jobs that this process serves, and ``definition`` is what it registers for them on the server.
    ``definitions`` has the jobs of every definition that some process may register. ``takes`` has, by job, a function that
    draws how many seconds a run takes. The process executes at most ``limit`` runs at the same time.
    """

    def __init__(
        self,
        process: Process,
        keys: ScheduleKeys,
        jobs: Mapping[str, tuple[When, Options]],
        takes: dict[str, Callable[[random.Random], float]],
        limit: int,
        *,
        definitions: Mapping[bytes, Mapping[str, tuple[When, Options]]] | None = None,
        definition: bytes = b"{}",
    ) -> None:
        self.process = process
        self.world = process.world
        self.definition = definition
        self._definitions = definitions or {definition: jobs}
        seats = [ServedJob(name, keys.job(name), when, options, definition, b"") for name, (when, options) in jobs.items()]
        self.state = ScheduleState(keys, seats, host=describe(None, process.name) or "", timeout=ANSWER_WITHIN, limit=limit)
        self._takes = takes
        self._runs: dict[ActiveRun, tuple[Lease, Worker]] = {}
        self._started = 0
        self.stubborn = 0.0
        """Seconds for which a run continues after it was told to end."""
        self.registered: dict[str, int] = {}
        """Revision number of each job's definition, as the server returned it."""
        self.abandoned = 0
        """Number of runs that were abandoned, because they did not end in time."""
        self.worker = Worker(process, "schedule")
        self.worker.start(self._serve())

    async def _serve(self) -> None:
        while True:
            try:
                await loop.begin(self.state)
            except WireError:
                await Sleep(0.2)
            else:
                break
        self.registered = {name: job.revision for name, job in self.state.jobs.items()}
        while (todos := await loop.turn(self.state)) is not None:
            for todo in todos:
                self._do(todo)
        while self._runs:
            self._runs.popitem()[1][0].end()
        await loop.leave(self.state)

    def note(self, kind: str, active_run: ActiveRun, *, until: float = 0.0, since: float = 0.0, note: str = "") -> None:
        self.world.note(
            kind,
            self.process.name,
            active_run.job.name,
            run_of(active_run),
            fence=active_run.fence,
            until=until,
            since=since,
            note=note,
        )

    def _do(self, todo: Todo) -> None:
        match todo:
            case Start(active_run):
                self._start(active_run)
            case CancelRun(active_run):
                self._tell(active_run)
            case AbandonRun(active_run):
                self.abandoned += 1
                self._runs[active_run][0].lose(active_run.why)
            case ForgetRun(active_run) if active_run in self._runs:
                self._runs.pop(active_run)[0].end()
            case Redefine(job, change, mine) if not mine:
                when, options = self._definitions[change.definition][job.name]
                self.state.redefine(job, when, options, change)

    def _start(self, active_run: ActiveRun) -> None:
        def lost() -> None:
            self.process.leases.pop(lease, None)
            self.note("lost", active_run, note=lease.held_lease.lost)
            self._tell(active_run)

        ends = self.process.server.keyspace.peek(active_run.grant.attempt.spec.keys[0])[1]
        server = self.process.server.true(ends) if ends else 0.0
        self.note("taken", active_run, until=self.process.true(active_run.grant.deadline), since=server)
        lease = Lease(self, active_run, lost)
        self._started += 1
        worker = Worker(self.process, f"run{self._started}")
        self._runs[active_run] = lease, worker
        worker.start(self._body(active_run, lease))

    def _tell(self, active_run: ActiveRun) -> None:
        if active_run in self._runs:
            self.process.soon(self._runs[active_run][1].cancel)

    async def _body(self, active_run: ActiveRun, lease: Lease) -> None:
        try:
            await Sleep(self._takes[active_run.job.name](self.world.rng))
        except TaskCancelled:
            if self.stubborn:
                await self._go_on()
            status = "lost" if lease.lost_event().is_set() else "cancelled"
        else:
            status = "ok"
        self.process.leases.pop(lease, None)
        self.note("released", active_run, note=status)
        self.state.end(active_run, status, "")

    async def _go_on(self) -> None:
        """Let a run continue for `stubborn` seconds after it was told to end."""
        until = self.process.clock() + self.stubborn
        while (left := until - self.process.clock()) > 0:
            try:
                await Sleep(left)
            except TaskCancelled:
                continue
