"""`Schedule` for the asyncio API: coroutine functions run as tasks, plain functions in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Never, Self, TypeVar

from holdfast._api.caller import AioCaller
from holdfast._api.functions import is_async
from holdfast._core.schedule import commands
from holdfast._core.schedule import loop as schedule_loop
from holdfast._core.schedule.records import ActiveRun
from holdfast._core.schedule.state import ScheduleState
from holdfast._net.redaction import hides_client
from holdfast._runtime.process import current
from holdfast.errors import ServerError
from holdfast.schedule.engine import PATIENCE, Engine, log
from holdfast.schedule.run import Run
from holdfast.schedule.schedule import BaseSchedule, JobStatus, Overview, Record, Runner, overview
from holdfast.schedule.stopping import Stopping

T = TypeVar("T")


class Schedule(BaseSchedule):
    """Jobs that run once per tick (scheduled time), in one of the processes that serve the schedule.

    Coroutine functions run in the event loop, plain functions in threads.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL.
        name: the name of the schedule. Processes that serve the same name share its jobs, so each application needs its own
        name.
        features: names of what this process offers, such as "gpu". A job declared with ``on=`` runs only in processes that have
        one of its features.
        concurrency: maximum number of runs at the same time in this process.
        prefix: start of the keys on the server.
        strict: refuse to start if another process serves a different function under the name of one of the jobs. Otherwise a
            warning is logged, and the definition that was declared last is used.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
    """

    @hides_client()
    def __init__(
        self,
        client: object,
        name: str,
        *,
        features: Iterable[str] = (),
        concurrency: int = 32,
        prefix: str = "hf:",
        strict: bool = False,
        **mistaken: Never,
    ) -> None:
        super().__init__(name, features, concurrency, prefix, mistaken, strict=strict)
        self._caller = AioCaller(client)
        self._service: Service | None = None

    @property
    def _serving(self) -> bool:
        service = self._service
        return service is not None and service.here and not service.over.is_set()

    async def run(self, finish_within: float = 10.0) -> None:
        """Serve the jobs until SIGTERM, SIGINT, SIGHUP or `stop`; then stop as `stop` does with ``finish_within``.

        A second SIGTERM or SIGINT ends the runs at once.
        """
        await self.start()
        service = self._service
        assert service is not None
        stopping = Stopping(service.stop, finish_within)
        loop = asyncio.get_running_loop()
        numbers = stopping.signals() if threading.current_thread() is threading.main_thread() else ()
        for number in numbers:
            loop.add_signal_handler(number, stopping.heard, number)
        try:
            await service.over.wait()
        except asyncio.CancelledError:
            await self.stop(finish_within)
            raise
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    async def start(self) -> None:
        """Register the jobs, and serve them in the background until `stop`. Raises ServerError if the server is
        unreachable."""
        if self._serving:
            raise RuntimeError(f"schedule {self.name!r} is being served by this process already")
        self._service = service = Service(
            self._caller, self._keys.base, self._what, self._new_state(self._caller.timeout), self._functions()
        )
        try:
            await service.begin()
        except BaseException:
            self._service = None
            raise

    async def stop(self, finish_within: float = 10.0) -> None:
        """Start no more runs, and wait until the present runs of this process have ended.

        Runs have ``finish_within`` seconds to finish. After that they are cancelled. A run that goes on nevertheless keeps its
        lease until it ends.
        """
        service = self._service
        if service is not None and service.here:
            service.stop(finish_within)
            try:
                async with asyncio.timeout(finish_within + PATIENCE):  # wait_for may swallow a cancellation, up to Python 3.11
                    await service.over.wait()
            except TimeoutError:
                log.warning("schedule %r: some runs did not end when told to; they go on in this process", self.name)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def status(self) -> list[JobStatus]:
        """Return all jobs of the schedule that the server knows, sorted by name, even if no process serves them."""
        return (await self._overview()).jobs

    async def runners(self) -> list[Runner]:
        """Return the processes that serve the schedule, the longest-serving first. A killed process is listed for 30 s
        more."""
        return (await self._overview()).runners

    async def _overview(self) -> Overview:
        return overview(await self._ask(commands.survey(self._keys, self._caller.timeout)))

    async def history(self, job: str, last: int = 50) -> list[Record]:
        """Return the newest ``last`` entries of a job's history, newest first. Raises ConfigError for an unknown job."""
        found = await self._ask(commands.look(self._keys, [job], last, self._caller.timeout))
        return self._history(job, found.jobs)

    async def pause(self, job: str) -> None:
        """Stop running a job, in all processes, until `resume` is called. Ticks (scheduled times) in between are skipped. A run
        that has begun goes on."""
        await self._order(job, "pause")

    async def resume(self, job: str) -> None:
        """Resume a paused job: it runs again from its next tick (scheduled time) on."""
        await self._order(job, "resume")

    async def run_now(self, job: str) -> None:
        """Run a job once, now, in one of the processes that serve it. If a run of the job is under way, the new run begins when
        that run has ended."""
        await self._order(job, "run")

    async def cancel(self, job: str) -> None:
        """Cancel all runs of a job that have begun, in all processes. Raises ConfigError for an unknown job."""
        await self._order(job, "cancel")

    async def remove(self, job: str) -> None:
        """Delete a job and its history from the server. Call this when no process declares the job any more."""
        await self._order(job, "remove")

    async def _order(self, job: str, what: str) -> None:
        self._obeyed(job, await self._ask(commands.order(self._keys, job, what, self._caller.timeout)))

    async def _ask(self, operation: Coroutine[Any, Any, T]) -> T:
        return await self._caller.run(operation, self._keys.base, self._what)


class Service:
    """One period of serving a schedule, from start to stop, in its own task."""

    def __init__(
        self, caller: AioCaller, key: bytes, what: str, state: ScheduleState, functions: dict[str, Callable[..., Any]]
    ) -> None:
        self.process = current()
        self.over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._caller = caller
        self._key = key
        self._what = what
        self._state = state
        self._engine = Engine(state, functions, self._launch)
        self._coroutines = {name for name, function in functions.items() if is_async(function)}
        self._tasks: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def here(self) -> bool:
        """True if the service was started in this process and in the running event loop."""
        try:
            return self.process is current() and asyncio.get_running_loop() is self._loop
        except RuntimeError:  # called outside any event loop, where more jobs may still be declared
            return False

    async def begin(self) -> None:
        """Subscribe, register the jobs, and start the task that serves them. Raises ServerError."""
        await self._drive(schedule_loop.begin(self._state))
        self._task = self._loop.create_task(self._serve(), name="holdfast-schedule")

    def stop(self, wait: float) -> None:
        self._state.stop(wait)

    async def _drive(self, operation: Coroutine[Any, Any, T]) -> T:
        return await self._caller.run(operation, self._key, self._what)

    async def _serve(self) -> None:
        state, engine = self._state, self._engine
        try:
            while True:
                try:
                    driver = await self._caller.driver(self._key)
                    engine.home = driver.process, driver.endpoint
                    todos = await self._drive(schedule_loop.turn(state))
                except ServerError as error:
                    log.warning("%s", error)
                    await asyncio.sleep(1.0)
                    continue
                if todos is None:
                    return
                for todo in todos:
                    engine.do(todo)
        except Exception:  # noqa: BLE001 - a defect, which must not go unnoticed
            log.exception("%s: this process stopped serving it because of an unexpected error", self._what)
        finally:
            engine.close()
            self.over.set()
            await self._drive(schedule_loop.leave(state))

    def _launch(self, active_run: ActiveRun, run: Run) -> Callable[[], object]:
        if active_run.job.name not in self._coroutines:
            threading.Thread(target=self._body, args=(active_run, run), name=f"holdfast-job-{run.job}", daemon=True).start()
            return lambda: None
        task = self._loop.create_task(self._task_of(active_run, run), name=f"holdfast-job-{run.job}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return lambda: self._loop.call_soon_threadsafe(task.cancel)

    async def _task_of(self, active_run: ActiveRun, run: Run) -> None:
        try:
            result = await self._engine.call(active_run, run)
        except BaseException as error:
            self._engine.raised(active_run, run, error)
            if not isinstance(error, Exception | asyncio.CancelledError):
                raise
        else:
            self._engine.returned(active_run, result)

    def _body(self, active_run: ActiveRun, run: Run) -> None:
        try:
            result = self._engine.call(active_run, run)
        except BaseException as error:  # noqa: BLE001 - the history records any exception
            self._engine.raised(active_run, run, error)
        else:
            self._engine.returned(active_run, result)
