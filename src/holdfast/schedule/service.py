"""Serve a schedule from its start to its stop, in a thread (sync API) or in a task (asyncio API)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._api.flow import InTasks, InThreads, Steps, complete
from holdfast._api.functions import is_async
from holdfast._core.schedule import loop
from holdfast._runtime.flag import Flag
from holdfast._runtime.process import Process, current
from holdfast.errors import ServerError
from holdfast.schedule.engine import Engine, log

if TYPE_CHECKING:
    import asyncio

    from holdfast._api.caller import BaseCaller
    from holdfast._core.schedule.records import ActiveRun
    from holdfast._core.schedule.state import ScheduleState
    from holdfast.schedule.run import Run

T = TypeVar("T")


class BaseService(Steps):
    """One period of serving a schedule, from start to stop. Base class for threads and for asyncio."""

    process: Process
    over: Any
    """Event that is set when the service has ended."""

    def __init__(
        self, caller: BaseCaller, key: bytes, what: str, state: ScheduleState, functions: dict[str, Callable[..., Any]]
    ) -> None:
        self.process = current()
        self._caller = caller
        self._key = key
        self._what = what
        self._state = state
        self._engine = Engine(state, functions, self._launch)

    @property
    def here(self) -> bool:
        """True in the process that serves the schedule (with asyncio, in its event loop); False in a forked child."""
        return self.process is current()

    async def begin(self) -> None:
        """Subscribe to notifications about the schedule, register the jobs, and start to serve them in the background.

        Raises ServerError, and ConfigError if ``strict`` forbids the start.
        """
        await self._drive(loop.begin(self._state))
        self._go()

    def stop(self, wait: float) -> None:
        """Start no more runs. The runs that have begun may go on for ``wait`` seconds, and are cancelled then."""
        self._state.stop(wait)

    async def ended(self, seconds: float) -> bool:
        """Wait up to ``seconds`` until the service has ended. Return False if it has not."""
        raise NotImplementedError

    def _go(self) -> None:
        raise NotImplementedError

    @staticmethod
    async def _pause(seconds: float) -> None:
        raise NotImplementedError

    async def _drive(self, operation: Coroutine[Any, Any, T]) -> T:
        return await self._caller.run(operation, self._key, self._what)

    async def _serve(self) -> None:
        state, engine = self._state, self._engine
        try:
            while True:
                try:
                    driver = await self._caller.driver(self._key)
                    engine.home = driver.process, driver.endpoint
                    todos = await self._drive(loop.turn(state))
                except ServerError as error:
                    log.warning("%s", error)
                    await self._pause(1.0)
                    continue
                if todos is None:
                    return
                for todo in todos:
                    engine.do(todo)
        except Exception:  # noqa: BLE001 - a defect, which must not go unnoticed
            log.exception("%s: this process stopped serving it because of an unexpected error", self._what)
        finally:
            engine.close()
            try:
                await self._drive(loop.leave(state))
            finally:  # `Schedule.run` and `stop` wait for this.
                self.over.set()

    def _launch(self, active_run: ActiveRun, run: Run) -> Callable[[], object]:
        threading.Thread(target=self._body, args=(active_run, run), name=f"holdfast-job-{run.job}", daemon=True).start()
        return lambda: None

    def _body(self, active_run: ActiveRun, run: Run) -> None:
        try:
            result = self._engine.call(active_run, run)
        except BaseException as error:  # noqa: BLE001 - the history records any exception
            self._engine.raised(active_run, run, error)
        else:
            self._engine.returned(active_run, result)


class Service(InThreads, BaseService):
    """One period of serving a schedule in a thread."""

    over: Flag

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.over = Flag()

    async def ended(self, seconds: float) -> bool:
        ended: bool = self.over.wait(seconds)
        return ended

    def _go(self) -> None:
        threading.Thread(target=lambda: complete(self._serve()), name="holdfast-schedule", daemon=True).start()

    @staticmethod
    async def _pause(seconds: float) -> None:
        threading.Event().wait(seconds)


class AioService(InTasks, BaseService):
    """One period of serving a schedule in a task. Coroutine functions run as tasks, plain functions in threads."""

    def __init__(self, caller: BaseCaller, key: bytes, what: str, state: ScheduleState, functions: dict[str, Any]) -> None:
        import asyncio  # Imported late: programs of threads need no asyncio.

        super().__init__(caller, key, what, state, functions)
        self.over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._coroutines = {name for name, function in functions.items() if is_async(function)}
        self._tasks: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def here(self) -> bool:
        from asyncio import get_running_loop

        try:
            return super().here and get_running_loop() is self._loop
        except RuntimeError:  # Called outside any event loop, where more jobs may still be declared.
            return False

    async def ended(self, seconds: float) -> bool:
        from asyncio import timeout

        try:
            async with timeout(seconds):  # wait_for may swallow a cancellation, up to Python 3.11.
                await self.over.wait()
        except TimeoutError:
            return False
        return True

    def _go(self) -> None:
        self._task = self._loop.create_task(self._serve(), name="holdfast-schedule")

    @staticmethod
    async def _pause(seconds: float) -> None:
        from asyncio import sleep

        await sleep(seconds)

    def _launch(self, active_run: ActiveRun, run: Run) -> Callable[[], object]:
        if active_run.job.name not in self._coroutines:
            return super()._launch(active_run, run)
        task = self._loop.create_task(self._task_of(active_run, run), name=f"holdfast-job-{run.job}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return lambda: self._loop.call_soon_threadsafe(task.cancel)

    async def _task_of(self, active_run: ActiveRun, run: Run) -> None:
        from asyncio import CancelledError

        try:
            result = await self._engine.call(active_run, run)
        except BaseException as error:
            self._engine.raised(active_run, run, error)
            if not isinstance(error, Exception | CancelledError):
                raise
        else:
            self._engine.returned(active_run, result)
