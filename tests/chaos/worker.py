"""A process that takes locks at random, for random times, and writes down what comes of it: the program, and how to start it.

Half of the processes have threads, half have tasks. Some holders sleep beyond their lease and write all the same: too late.
Told to finish, each worker takes each lock once more, which has to succeed when all faults are healed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import holdfast
import holdfast.aio
from chaos.register import Remote
from holdfast.testing.recording import Recorder, process

TYPED = (holdfast.LockTimeout, holdfast.LeaseLost, holdfast.ServerError, holdfast.QuorumError)
"""The errors that a worker has to expect. Any other error ends it, with a traceback."""

BEAT = 0.03
"""Seconds."""

LAST_WAIT = 15.0
"""Seconds a worker waits in the last round, when nothing is broken any more."""

STARTS_WITHIN = 20.0
"""Seconds that a worker may take to start."""


class Options(NamedTuple):
    """The instructions for a process, passed at its start."""

    folder: str
    api: str
    """threads or tasks"""
    seed: int
    where: str | list[str]
    """The first argument of a lock."""
    kind: str
    """Which one: the name of its class."""
    more: dict[str, Any]
    """Options that all of these locks have."""
    names: list[str]
    workers: int = 4


class Turn(NamedTuple):
    """One acquisition: which lock, how, and what is done with it."""

    kind: str
    name: str
    options: dict[str, Any]
    holds: float
    late: bool
    """True if the holder sleeps beyond the end of the lease."""
    pause: float


def draw(rng: random.Random, options: Options) -> Turn:
    kind = "FairLock" if options.kind == "Lock" and rng.random() < 0.15 else options.kind
    late = rng.random() < 0.015
    ttl = 0.5 if late else rng.choice([0.5, 1.0, 1.0, 2.0])
    holds = rng.choice([0.0, 0.002, 0.005, 0.02, rng.uniform(0, 0.06)]) if rng.random() < 0.97 else rng.uniform(0.1, 0.6)
    if late:
        holds = ttl + rng.uniform(0.05, 0.6)
    linger = {"linger": 0.2} if kind == "Lock" and not late and rng.random() < 0.1 else {}
    waits = rng.choice([0.0, 0.3, 1.0, 1.0, 2.0, 3.0])
    extra = {"ttl": ttl, "wait": waits, "renew": not late, **linger, **options.more}
    return Turn(kind, rng.choice(options.names), extra, holds, late, rng.uniform(0, 0.02))


def last(options: Options) -> list[Turn]:
    extra = {"ttl": 2.0, "wait": LAST_WAIT, **options.more}
    return [Turn(options.kind, name, extra, 0.0, False, 0.0) for name in options.names]


class Threads:
    """Workers that are threads."""

    def __init__(self, options: Options, record: Recorder, register: Remote) -> None:
        self.options, self.record, self.register = options, record, register
        self.finish = threading.Event()

    def run(self) -> None:
        threads = [threading.Thread(target=self._work, args=(number,)) for number in range(self.options.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        holdfast.close()

    def _work(self, number: int) -> None:
        rng = random.Random(f"{self.options.seed}/{number}")
        while not self.finish.is_set():
            self._turn(draw(rng, self.options))
        for turn in last(self.options):
            self._turn(turn)

    def _turn(self, turn: Turn) -> None:
        lock = getattr(holdfast, turn.kind)(self.options.where, turn.name, **turn.options)
        try:
            with self.record.holding(lock) as lease:
                self.record.write(lease, self.register)
                time.sleep(turn.holds)
                self.record.write(lease, self.register)
        except TYPED:
            pass
        time.sleep(turn.pause)


class Tasks:
    """Workers that are tasks of one event loop."""

    def __init__(self, options: Options, record: Recorder, register: Remote) -> None:
        self.options, self.record, self.register = options, record, register
        self.finish = threading.Event()

    def run(self) -> None:
        asyncio.run(self._all())
        holdfast.close()

    async def _all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self.options.workers):
                group.create_task(self._work(number), name=f"a{number}")
        await holdfast.aio.close()

    async def _work(self, number: int) -> None:
        rng = random.Random(f"{self.options.seed}/{number}")
        while not self.finish.is_set():
            await self._turn(draw(rng, self.options))
        for turn in last(self.options):
            await self._turn(turn)

    async def _turn(self, turn: Turn) -> None:
        lock = getattr(holdfast.aio, turn.kind)(self.options.where, turn.name, **turn.options)
        try:
            async with self.record.holding(lock) as lease:
                self.record.write(lease, self.register)
                if turn.late:
                    with suppress(asyncio.CancelledError):  # the body of a lost lease: one that does not listen
                        await asyncio.sleep(turn.holds)
                    await asyncio.sleep(max(0.0, turn.holds - turn.options["ttl"]))
                else:
                    await asyncio.sleep(turn.holds)
                self.record.write(lease, self.register)
        except TYPED:
            pass
        await asyncio.sleep(turn.pause)


class Worker:
    """Such a process, as its parent sees it."""

    def __init__(self, options: Options) -> None:
        self._errors = Path(options.folder, f"errors-{options.seed}")
        self._record = Path(options.folder, f"worker-{options.seed}")
        path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "chaos.worker", json.dumps(options)],
                stdin=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"PYTHONPATH": path},
            )
        self.name = f"p{self.process.pid}"

    def begun(self) -> None:
        """Wait until it has written down something: a process takes its time to start."""
        deadline = time.monotonic() + STARTS_WITHIN
        while not (self._record.exists() and self._record.stat().st_size):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{self.name} did not begin: {self.errors()}")
            time.sleep(0.01)

    def stop(self) -> None:
        """SIGSTOP; returns when it is stopped."""
        self.process.send_signal(signal.SIGSTOP)
        status = Path(f"/proc/{self.process.pid}/stat")
        while status.exists() and status.read_text().rpartition(")")[2].split()[0] not in "tTZ":
            time.sleep(0.0005)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.process.kill()
        self.process.wait()
        self._pipe().close()

    def finish(self) -> None:
        """Have it do its last round, and end."""
        with suppress(BrokenPipeError):
            self._pipe().write(b"finish\n")
            self._pipe().flush()

    def ended(self, seconds: float) -> str:
        """Wait until it has ended; what is to be said against how it did: nothing, if all is well."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"{self.name} did not end"
        errors = self.errors()
        return f"{self.name} ended with {code}: {errors}" if code or errors else ""

    def errors(self) -> str:
        """Return the complaints of the process."""
        return self._errors.read_text(errors="replace")[-3000:]

    def _pipe(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin


def watch(record: Recorder) -> None:
    """Write down when this process does not run, because it is stopped, or because the machine has too much to do."""
    last = time.monotonic()
    while True:
        time.sleep(BEAT)
        now = time.monotonic()
        if now - last > 2 * BEAT:  # an attempt ends up to 0.79 s after its time, by five time limits: each may be as late
            record.note("stalled", process(), since=last + BEAT)
        last = now


def main() -> None:
    # A warning is a defect, and so is output; but for a release that could not be confirmed, and leases that are very short.
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", holdfast.HoldfastWarning)
    options = Options(*json.loads(sys.argv[1]))
    folder = Path(options.folder)
    with Recorder(folder / f"worker-{options.seed}") as record:
        register = Remote(str(folder / "register.sock"))
        crew = (Threads if options.api == "threads" else Tasks)(options, record, register)
        threading.Thread(target=watch, args=(record,), daemon=True).start()
        work = threading.Thread(target=crew.run)
        work.start()
        if not sys.stdin.readline():
            os._exit(1)  # the parent has gone
        crew.finish.set()
        work.join()
        register.close()


if __name__ == "__main__":
    main()
