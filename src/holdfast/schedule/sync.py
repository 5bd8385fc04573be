"""`Schedule` for threads: each run in a thread of its own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Never, Self, TypeVar

from holdfast._api.caller import Caller
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
    """Jobs that run once per tick, on one of all the processes that serve them.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL.
        name: of the schedule: processes that serve the same one share its jobs, so each application has a name of its own.
        features: what this process can do: a job declared with ``on=`` runs only where one of those is among these.
        concurrency: runs at the same time in this process, at most.
        prefix: start of the keys on the server.
        strict: refuse to start where another function is being served under the name of one of the jobs; otherwise, that is
            logged as a warning, and the definition that was declared last counts.

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
        """Serve the jobs until SIGTERM, SIGINT, SIGHUP or `stop`; then as `stop` with ``finish_within``.

        At a second SIGTERM or SIGINT, runs are ended at once.
        """
        self.start()
        service = self._service
        assert service is not None
        stopping = Stopping(service.stop, finish_within)
        before = {}
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.signal(number, stopping.heard) for number in stopping.signals()}
        try:
            # A second signal may reach another thread of ours; this one, which has to handle it, would sleep on.
            while not service.over.wait(0.5):
                pass
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def start(self) -> None:
        """Serve the jobs in the background, until `stop`. Registers them first: raises ServerError if the server is away."""
        # Nobody waits for it: a signal handler may have interrupted the very thread that is starting it.
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
        """Claim no more ticks. Runs have ``finish_within`` seconds to finish; then they are told to end, and their leases
        are released. A run that goes on all the same keeps its lease until it ends."""
        service = self._service
        if service is not None and service.process is current():
            service.stop(finish_within)
            if not service.over.wait(finish_within + PATIENCE):
                log.warning("schedule %r: some runs did not end when they were told to", self.name)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def status(self) -> list[JobStatus]:
        """All jobs of the schedule that the server knows, whoever serves them, by name."""
        return self._overview().jobs

    def runners(self) -> list[Runner]:
        """The processes that serve the schedule, the first to begin in front. One that was killed is among them for half a
        minute."""
        return self._overview().runners

    def _overview(self) -> Overview:
        return overview(self._ask(commands.survey(self._keys, self._caller.timeout)))

    def history(self, job: str, last: int = 50) -> list[Record]:
        """Return what became of the last ticks of a job, newest first. Raises ConfigError if the server knows no such job."""
        return self._history(job, self._ask(commands.look(self._keys, [job], last, self._caller.timeout)).jobs)

    def pause(self, job: str) -> None:
        """Run a job no more, wherever it is served, until `resume`; ticks meanwhile are skipped. A run goes on."""
        self._order(job, "pause")

    def resume(self, job: str) -> None:
        """Undo `pause`, from the next tick on."""
        self._order(job, "resume")

    def run_now(self, job: str) -> None:
        """Have a job run once, now, on one of the processes that serve it; behind the run that goes on, if there is one."""
        self._order(job, "run")

    def cancel(self, job: str) -> None:
        """Have the runs of a job ended that go on now."""
        self._order(job, "cancel")

    def remove(self, job: str) -> None:
        """Forget a job that is no longer declared anywhere, with its history."""
        self._order(job, "remove")

    def _order(self, job: str, what: str) -> None:
        self._obeyed(job, self._ask(commands.order(self._keys, job, what, self._caller.timeout)))

    def _ask(self, operation: Coroutine[Any, Any, T]) -> T:
        return self._caller.run(operation, self._keys.base, self._what)


class Service:
    """One start of a schedule, in a thread of its own. Raises ServerError."""

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
        return self._caller.run(operation, self._key, self._what)

    def _serve(self) -> None:
        state, engine = self._state, self._engine
        try:
            while True:
                try:
                    driver = self._caller.driver(self._key)
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
        except BaseException:  # noqa: BLE001 - a defect: it has to be told
            log.exception("%s is served no more by this process", self._what)
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
        except BaseException as error:  # noqa: BLE001 - whatever it is, the history has it
            self._engine.raised(active_run, run, error)
        else:
            self._engine.returned(active_run, result)
