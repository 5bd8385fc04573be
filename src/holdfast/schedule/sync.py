"""`Schedule` for the sync API: each run has its own thread."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Never, Self, TypeVar

from holdfast._api.caller import Caller
from holdfast._api.flow import complete
from holdfast._api.functions import is_async
from holdfast._core.schedule import commands, loop
from holdfast._core.schedule.records import ActiveRun
from holdfast._core.schedule.state import ScheduleState
from holdfast._net.redaction import hides_client
from holdfast._runtime.flag import Flag
from holdfast._runtime.process import current
from holdfast.errors import ConfigError, ServerError
from holdfast.schedule.engine import PATIENCE, Engine, log
from holdfast.schedule.run import Run
from holdfast.schedule.schedule import BaseSchedule, JobStatus, Overview, Record, Runner, overview
from holdfast.schedule.stopping import Stopping

T = TypeVar("T")


class Schedule(BaseSchedule):
    """Jobs that run once per tick (scheduled time), in one of the processes that serve the schedule.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL.
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
        self._caller = Caller(client)
        self._mutex = threading.Lock()
        self._service: Service | None = None

    @property
    def _serving(self) -> bool:
        service = self._service
        return service is not None and service.process is current() and not service.over.is_set()

    def _check(self, name: str, function: Callable[..., Any]) -> None:
        if is_async(function):
            raise ConfigError(f"job {name!r} is a coroutine function: use holdfast.aio.Schedule", parameter="function")

    def run(self, finish_within: float = 10.0) -> None:
        """Serve the jobs until SIGTERM, SIGINT, SIGHUP or `stop`; then stop as `stop` does with ``finish_within``.

        A second SIGTERM or SIGINT ends the runs at once.
        """
        self.start()
        service = self._service
        assert service is not None
        stopping = Stopping(service.stop, finish_within)
        before = {}
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.signal(number, stopping.heard) for number in stopping.signals()}
        try:
            # A second signal may arrive in another thread. This thread, which has to handle it, must wake up for that.
            while not service.over.wait(0.5):
                pass
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def start(self) -> None:
        """Register the jobs, and serve them in the background until `stop`. Raises ServerError if the server is
        unreachable."""
        # A mutex that is busy must not be waited for: a signal handler may have interrupted the very thread that holds it.
        if not self._mutex.acquire(blocking=False):
            raise RuntimeError(f"schedule {self.name!r} is being started by this process already")
        try:
            if self._serving:
                raise RuntimeError(f"schedule {self.name!r} is being served by this process already")
            self._service = Service(
                self._caller, self._keys.base, self._what, self._new_state(self._caller.timeout), self._functions()
            )
        finally:
            self._mutex.release()

    def stop(self, finish_within: float = 10.0) -> None:
        """Start no more runs, and wait until the present runs of this process have ended.

        Runs have ``finish_within`` seconds to finish. After that they are cancelled. A run that goes on nevertheless keeps its
        lease until it ends.
        """
        service = self._service
        if service is not None and service.process is current():
            service.stop(finish_within)
            if not service.over.wait(finish_within + PATIENCE):
                log.warning("schedule %r: some runs did not end when told to; they go on in this process", self.name)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def status(self) -> list[JobStatus]:
        """Return all jobs of the schedule that the server knows, sorted by name, even if no process serves them."""
        return self._overview().jobs

    def runners(self) -> list[Runner]:
        """Return the processes that serve the schedule, the longest-serving first. A killed process is listed for 30 s
        more."""
        return self._overview().runners

    def _overview(self) -> Overview:
        return overview(self._ask(commands.survey(self._keys, self._caller.timeout)))

    def history(self, job: str, last: int = 50) -> list[Record]:
        """Return the newest ``last`` entries of a job's history, newest first. Raises ConfigError for an unknown job."""
        return self._history(job, self._ask(commands.look(self._keys, [job], last, self._caller.timeout)).jobs)

    def pause(self, job: str) -> None:
        """Stop running a job, in all processes, until `resume` is called. Ticks (scheduled times) in between are skipped. A run
        that has begun goes on."""
        self._order(job, "pause")

    def resume(self, job: str) -> None:
        """Resume a paused job: it runs again from its next tick (scheduled time) on."""
        self._order(job, "resume")

    def run_now(self, job: str) -> None:
        """Run a job once, now, in one of the processes that serve it. If a run of the job is under way, the new run begins when
        that run has ended."""
        self._order(job, "run")

    def cancel(self, job: str) -> None:
        """Cancel all runs of a job that have begun, in all processes. Raises ConfigError for an unknown job."""
        self._order(job, "cancel")

    def remove(self, job: str) -> None:
        """Delete a job and its history from the server. Call this when no process declares the job any more."""
        self._order(job, "remove")

    def _order(self, job: str, what: str) -> None:
        self._obeyed(job, self._ask(commands.order(self._keys, job, what, self._caller.timeout)))

    def _ask(self, operation: Coroutine[Any, Any, T]) -> T:
        return complete(self._caller.run(operation, self._keys.base, self._what))


class Service:
    """One period of serving a schedule, from start to stop, in its own thread.

    Creating a `Service` registers the jobs; it raises ServerError if the server is unreachable.
    """

    def __init__(
        self, caller: Caller, key: bytes, what: str, state: ScheduleState, functions: dict[str, Callable[..., Any]]
    ) -> None:
        self.process = current()
        self.over = Flag()
        self._caller = caller
        self._key = key
        self._what = what
        self._state = state
        self._engine = Engine(state, functions, self._launch)
        self._drive(loop.begin(state))
        threading.Thread(target=self._serve, name="holdfast-schedule", daemon=True).start()

    def stop(self, wait: float) -> None:
        self._state.stop(wait)

    def _drive(self, operation: Coroutine[Any, Any, T]) -> T:
        return complete(self._caller.run(operation, self._key, self._what))

    def _serve(self) -> None:
        state, engine = self._state, self._engine
        try:
            while True:
                try:
                    driver = complete(self._caller.driver(self._key))
                    engine.home = driver.process, driver.endpoint
                    todos = self._drive(loop.turn(state))
                except ServerError as error:
                    log.warning("%s", error)
                    threading.Event().wait(1.0)
                    continue
                if todos is None:
                    return
                for todo in todos:
                    engine.do(todo)
        except BaseException:  # noqa: BLE001 - a defect, which must not go unnoticed
            log.exception("%s: this process stopped serving it because of an unexpected error", self._what)
        finally:
            engine.close()
            try:
                self._drive(loop.leave(state))
            finally:  # `Schedule.run` and `stop` wait for this
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
