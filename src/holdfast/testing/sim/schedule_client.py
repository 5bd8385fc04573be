"""A process that serves a schedule: production's book and leases, and bodies of jobs that take their time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from holdfast._core.requests import Sleep, WireError
from holdfast._core.schedule import loop
from holdfast._core.schedule.job import Keys, Options, When
from holdfast._core.schedule.records import Adopt, Closed, Going, Halt, Over, Seat, Start, Todo
from holdfast._core.schedule.state import Book
from holdfast._runtime.process import describe
from holdfast.schedule.run import RunLease
from holdfast.testing.sim.lock_client import NOWHERE
from holdfast.testing.sim.process import Process
from holdfast.testing.sim.worker import Cancelled, Worker

ANSWER_WITHIN = 0.3
"""Seconds for one answer."""


def run_of(going: Going) -> str:
    """What the history calls a run."""
    return f"{going.scheduled}/{going.attempt}" + ("h" if going.by_hand else "")


class Lease(RunLease):
    """Production's, whose deadlines are written down."""

    def __init__(self, service: Service, going: Going, on_lost: Callable[[], None]) -> None:
        self._going = going
        self._service = service
        service.process.leases[self] = going.grant.deadline
        super().__init__(service.process, NOWHERE, going, on_lost)

    def tell(self) -> None:
        """Write down a new deadline."""
        deadline, process = self._tenure.deadline, self._service.process
        if deadline != process.leases[self]:
            process.leases[self] = deadline
            self._service.note("renewed", self._going, until=process.true(deadline))


class Service:
    """One process that serves jobs. ``takes``: how long a run of a job takes, in seconds."""

    def __init__(
        self,
        process: Process,
        keys: Keys,
        jobs: Mapping[str, tuple[When, Options]],
        takes: dict[str, Callable[[random.Random], float]],
        limit: int,
    ) -> None:
        self.process = process
        self.world = process.world
        seats = [Seat(name, keys.job(name), when, options, b"{}", b"") for name, (when, options) in jobs.items()]
        self.book = Book(keys, seats, host=describe(None, process.name) or "", timeout=ANSWER_WITHIN, limit=limit)
        self._takes = takes
        self._runs: dict[Going, tuple[Lease, Worker]] = {}
        self._started = 0
        self.worker = Worker(process, "schedule")
        self.worker.start(self._serve())

    async def _serve(self) -> None:
        while True:
            try:
                await loop.begin(self.book)
            except WireError:
                await Sleep(0.2)
            else:
                break
        while (todos := await loop.turn(self.book)) is not None:
            for todo in todos:
                self._do(todo)
        while self._runs:
            self._runs.popitem()[1][0].end()
        await loop.leave(self.book)

    def note(self, kind: str, going: Going, *, until: float = 0.0, since: float = 0.0, note: str = "") -> None:
        self.world.note(
            kind, self.process.name, going.seat.name, run_of(going), fence=going.fence, until=until, since=since, note=note
        )

    def _do(self, todo: Todo) -> None:
        match todo:
            case Start(going):
                self._start(going)
            case Halt(going):
                self._tell(going)
            case Over(going):
                self._runs[going][0].lose(going.why)
            case Closed(going) if going in self._runs:
                self._runs.pop(going)[0].end()
            case Adopt(seat, change, mine) if not mine:
                self.book.adopt(seat, seat.when, seat.options, change)

    def _start(self, going: Going) -> None:
        def lost() -> None:
            self.process.leases.pop(lease, None)
            self.note("lost", going, note=lease.why)
            self._tell(going)

        ends = self.process.server.keyspace.peek(going.grant.attempt.spec.keys[0])[1]
        server = self.process.server.true(ends) if ends else 0.0
        self.note("taken", going, until=self.process.true(going.grant.deadline), since=server)
        lease = Lease(self, going, lost)
        self._started += 1
        worker = Worker(self.process, f"run{self._started}")
        self._runs[going] = lease, worker
        worker.start(self._body(going, lease))

    def _tell(self, going: Going) -> None:
        if going in self._runs:
            self.process.soon(self._runs[going][1].cancel)

    async def _body(self, going: Going, lease: Lease) -> None:
        try:
            await Sleep(self._takes[going.seat.name](self.world.rng))
        except Cancelled:
            status = "lost" if lease.lost.is_set() else "cancelled"
        else:
            status = "ok"
        self.process.leases.pop(lease, None)
        self.note("released", going, note=status)
        self.book.end(going, status, "")
