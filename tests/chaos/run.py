"""One run: starts the servers and the workers, has the faults happen, and lets all of it come to an end."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from chaos.plan import plan
from chaos.register import Keeping
from chaos.remains import left_behind
from chaos.topologies import MAX_TTL, NAMES, Fault, Topology
from chaos.worker import LAST_WAIT, Options, Worker
from holdfast.testing.history import Event, write
from support.servers import PrivateServer


class Struck(NamedTuple):
    """A fault that has happened."""

    name: str
    kind: str
    at: float
    until: float


class Size(NamedTuple):
    """How much of it."""

    seconds: float
    processes: int = 8
    every: tuple[float, float] = (2.0, 5.0)
    """Seconds from one fault to the next."""


class ChaosRun:
    """Of one topology. When `go` has returned, ``folder`` has the history, ``struck`` the faults, and ``complaints`` what was
    wrong with the workers and with what they left behind."""

    def __init__(self, topology: Topology, size: Size, seed: int, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.topology, self.size, self.seed, self.folder = topology, size, seed, folder
        self.struck: list[Struck] = []
        self.possible: list[str] = []
        """Names of all faults that may happen."""
        self.complaints: list[str] = []
        self.began = self.healed = 0.0
        self._events: list[Event] = []
        self._numbers = itertools.count()
        self._workers: list[Worker] = []
        self._primaries: set[PrivateServer] = set()
        self._looked = 0.0

    def go(self) -> None:
        try:
            with self.topology, Keeping(self.folder):
                try:
                    for number in range(self.size.processes):
                        self._workers.append(self._new_worker(number))
                    for worker in self._workers:
                        worker.begun()
                    self.began = time.monotonic()
                    self._strike_until(self.began + self.size.seconds)
                    self.healed = time.monotonic()
                    self._finish()
                finally:
                    for worker in self._workers:
                        worker.kill()
        finally:
            with (self.folder / "faults").open("w", encoding="utf-8") as file:
                write(sorted(self._events), file)

    def _new_worker(self, place: int) -> Worker:
        options = Options(
            str(self.folder),
            "threads" if place % 2 else "tasks",
            self.seed + next(self._numbers),
            self.topology.where(place),
            self.topology.kind,
            self.topology.more,
            NAMES,
        )
        return Worker(options)

    def _strike_until(self, end: float) -> None:
        faults = {fault.name: fault for fault in (*self.topology.faults(), *self._of_clients())}
        self.possible = list(faults)
        self._look()
        for planned in plan(self.seed, [(fault.name, fault.lasts) for fault in faults.values()], self.size.every):
            if time.monotonic() + planned.pause + planned.seconds > end:
                break
            time.sleep(planned.pause)
            self._look()
            self._strike(faults[planned.name], random.Random(planned.seed), planned.seconds)
        time.sleep(max(0.0, end - time.monotonic()))
        self._look()

    def _look(self, *, expected: bool = False) -> None:
        """Note a failover that nobody asked for: a server that answers late is taken for dead, and replaced."""
        since, self._looked = self._looked, time.monotonic()
        before, self._primaries = self._primaries, self.topology.primaries()
        if before not in (set(), self._primaries) and not expected:
            self.topology.settle()
            self._primaries = self.topology.primaries()
            self._events.append(Event(since, "fault", "server", until=time.monotonic(), note="amnesia failover unasked for"))

    def _strike(self, fault: Fault, rng: random.Random, seconds: float) -> None:
        at = time.monotonic()
        with fault.strike(rng):
            time.sleep(seconds)
        until = time.monotonic()
        self._look(expected=fault.replaces)
        self.struck.append(Struck(fault.name, fault.kind, at, until))
        if fault.kind not in {"pause", "crash"}:
            self._events.append(Event(at, "fault", "server", until=until, note=f"{fault.kind} {fault.name}"))

    def _of_clients(self) -> list[Fault]:
        @contextmanager
        def stopped(rng: random.Random) -> Iterator[None]:
            worker = rng.choice(self._workers)
            self._events.append(Event(time.monotonic(), "paused", worker.name))
            worker.stop()
            try:
                yield
            finally:
                self._events.append(Event(time.monotonic(), "resumed", worker.name))  # before it can have an answer
                worker.go_on()

        @contextmanager
        def killed(rng: random.Random) -> Iterator[None]:
            place = rng.randrange(len(self._workers))
            worker = self._workers[place]
            errors = worker.errors()
            if errors:
                self.complaints.append(f"{worker.name}: {errors}")
            worker.kill()
            self._events.append(Event(time.monotonic(), "crashed", worker.name))
            self._workers[place] = self._new_worker(place)
            yield

        return [
            Fault("client stopped", "pause", (0.2, MAX_TTL * 1.5), stopped),
            Fault("client killed", "crash", (0.0, 0.0), killed),
        ]

    def _finish(self) -> None:
        for worker in self._workers:
            worker.finish()
        deadline = time.monotonic() + LAST_WAIT * 2
        for worker in self._workers:
            complaint = worker.ended(max(0.1, deadline - time.monotonic()))
            if complaint:
                self.complaints.append(complaint)
        self._look()
        self.complaints += [f"left behind: {what}" for what in left_behind(self.topology, self.healed)]


def together(runs: list[ChaosRun]) -> None:
    """Several runs at the same time."""
    errors: list[BaseException] = []

    def go(run: ChaosRun) -> None:
        try:
            run.go()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=go, args=(run,), name=run.topology.name) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
