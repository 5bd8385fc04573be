"""The state of a schedule in a process that serves it. It decides what to ask the server, and what the caller has to do."""

from __future__ import annotations

import heapq
from collections import deque

from holdfast._core.lock.records import Attempt, Grant
from holdfast._core.lock.spec import margin
from holdfast._core.requests import Answer, NotSent, RunScript, WireError
from holdfast._core.schedule.job import (
    ATTEMPTS,
    SERVE,
    Answered,
    Declared,
    DefinitionChanged,
    Late,
    Options,
    Registered,
    Rival,
    ScheduleKeys,
    Served,
    UnknownJob,
    Unusable,
    When,
    run_spec,
)
from holdfast._core.schedule.misfire import due, following
from holdfast._core.schedule.records import (
    INFINITY,
    AbandonRun,
    ActiveRun,
    CancelRun,
    ForgetRun,
    JobReport,
    Log,
    Redefine,
    RunEnd,
    ServedJob,
    Start,
    Todo,
)
from holdfast._core.subscription import Listener

BEAT_EVERY_S = 10.0
"""A process that sent no request for this many seconds sends one, to show that it is alive and to read the server's time."""

REACHABLE_S = 30.0
"""The server tries to notify a process for this many seconds after the process's last request."""

VALID_S = 60.0
"""Maximum age, in seconds, of a request that the server still accepts."""

LOOK_AGAIN_S = 86400.0
"""Seconds between two registrations of all jobs. Registrations keep unused keys on the server from expiring."""

ABANDON_AFTER_S = 10.0
"""Seconds that a run has after ``max_runtime`` to end. After that, the process no longer waits for the run."""

BATCH = 50
"""Maximum number of jobs in one request, so that one script does not block the server for long."""

DRIFT = 1e-4
"""Maximum fraction by which this process's monotonic clock and the server's clock are assumed to differ in speed.

Claims are sent later by this fraction, so that they do not arrive early.
"""

GIVE_UP_AFTER_S = 4.0
"""A stopping process gives up reporting its ended runs when the server has not replied for this many seconds."""

AHEAD_US = 200_000
"""How far a claim looks ahead for ticks (scheduled times), in microseconds. The timeout of the request is added."""

SET_BACK_S = 5.0
"""Minimum seconds by which the server's clock must be set back for a message to be logged."""

WAITS = "no tick runs twice, so jobs wait until the clock has caught up"
RIGHT = "jobs go on by the new time, so ticks in the repeated hours run again"

HERE = "here"
"""Value in `Listener.hints` that means that this process has woken itself, without a notification from the server."""


class ScheduleState:
    """The state of a schedule in a process that serves it: its jobs, its runs and the requests to send.

    Any thread may call `end` and `stop`. Only the thread that runs `turn` may call the other methods.
    """

    jobs: dict[str, ServedJob]
    listener: Listener
    stop_at: float
    stopping: bool
    retry_at: float
    beat_at: float

    def __init__(
        self, keys: ScheduleKeys, jobs: list[ServedJob], *, host: str, timeout: float, limit: int, strict: bool = False
    ) -> None:
        self.keys = keys
        self.jobs = {job.name: job for job in jobs}
        self.host = host
        self.timeout = timeout
        self.limit = limit
        self.strict = strict
        """True to stop serving a job if another process serves other code under the name of the job."""
        self.listener = Listener()
        self.runs: dict[str, ActiveRun] = {}
        """Runs in this process, by token. A run stays here until the server has recorded its end."""
        self.todo: list[Todo] = []
        self.stopping = False
        self.stop_at = INFINITY
        """Monotonic time, in seconds, at which runs are told to end because the schedule stops; infinity: it does not stop."""
        self._ended: deque[RunEnd] = deque()
        self._stops: deque[float] = deque()
        self._number = self._registrations = 0
        self._registering: list[ServedJob] | None = None
        """Jobs of the last registration until its reply arrives; None: no reply is outstanding."""
        self._server, self._came = 0, 0.0
        self._changes: int | None = None
        self._ticks: list[tuple[int, str]] = []
        self._looks: list[tuple[float, str]] = []
        self._look_now: dict[str, None] = {}
        self._hungry: dict[str, None] = {}
        """Names of jobs whose next run waits because this process already has its maximum number of runs."""
        self._look_all_at = INFINITY
        self.beat_at = 0.0
        self._unanswered: list[JobReport] | None = None
        """Contents of the last request until its reply arrives; None: no reply is outstanding."""
        self._failing_since = INFINITY
        self._said_goodbye = self._given_up = False
        self.retry_at = 0.0
        self._pause = 0.0
        self._away = False

    # Calls from any thread

    def end(self, run: ActiveRun, status: str, text: str) -> None:
        """Note that a run has ended.

        ``status``: "ok", "error", "cancelled" (the run was told to end) or "lost" (its lease was lost). ``text``: text for the
        history, such as the error.
        """
        self._ended.append(RunEnd(run, status, text))
        self._nudge()

    def stop(self, wait: float) -> None:
        """Begin no more runs, and tell the runs that still go on after ``wait`` seconds to end."""
        self._stops.append(wait)
        self._nudge()

    def _nudge(self) -> None:
        self.listener.hints.add(HERE)
        if self.listener.slot is not None:
            self.listener.slot.put(None)

    def redefine(self, job: ServedJob, when: When, options: Options, change: DefinitionChanged) -> None:
        """Replace the definition of a job by the one that the server has reported, in ``change``.

        ``when`` and ``options``: timetable and options that the caller has read from this definition.
        """
        job.widest = job.slots
        job.when, job.options, job.definition, job.agreed = when, options, change.definition, change.origin
        job.revision, job.last = change.revision, change.last
        self._plan(job)
        self._look_now[job.name] = None

    # Work that is due

    def tick(self, now: float) -> None:
        """Handle a stop of the schedule and runs that exceed ``max_runtime``, at monotonic time ``now``.

        Add the resulting tasks to `todo`.
        """
        while self._stops:
            self.stopping, self.stop_at = True, min(self.stop_at, now + self._stops.popleft())
        if now >= self._look_all_at and self._unanswered is None:
            self._look_all_at = now + LOOK_AGAIN_S
            for job in self.jobs.values():
                job.revision = 0
        for run in list(self.runs.values()):
            limit = run.job.options.max_runtime
            if run.over:
                continue
            if now >= self.stop_at:
                self._cancel(run, now, "its process stops", "again" if run.job.options.on_crash == "again" else "cancelled")
            elif limit is not None and now >= run.began + limit:
                self._cancel(run, now, f"max_runtime={limit:g} has passed", "timed-out")
            if run.verdict == "timed-out" and now >= run.told_at + ABANDON_AFTER_S:
                run.over = True
                self.todo.append(AbandonRun(run))
                self._ended.append(RunEnd(run, run.verdict, f"{run.why}, and the run did not end"))

    def _cancel(self, run: ActiveRun, now: float, why: str, verdict: str) -> None:
        if not run.verdict:
            run.why, run.verdict, run.told_at = why, verdict, now
            self.todo.append(CancelRun(run))

    def unregistered(self) -> list[ServedJob]:
        return [] if self.stopping else [job for job in self.jobs.values() if not job.revision]

    def registration(self) -> tuple[list[ServedJob], int]:
        """Return the jobs to register next, and the number of this registration.

        Until the reply arrives, each call returns the same jobs and number, so that the server ignores a repeated registration.
        """
        if self._registering is None:
            self._registering = self.unregistered()[:BATCH]
            self._registrations += 1
        return self._registering, self._registrations

    @property
    def room(self) -> int:
        """Number of further runs that this process may begin now."""
        return 0 if self.stopping else self.limit - len(self.runs)

    def next_request(self, now: float) -> list[JobReport] | None:
        """Return the reports for the next request, one for each job; None if there is nothing to send now."""
        if now < self.retry_at or self._given_up:
            return None
        if self._unanswered is None:
            self._unanswered = self._next_request(now)
        if not self.stopping:  # Every item claims what is due; otherwise a queued run would be begun instead of a later tick.
            for item in self._unanswered or ():
                self._claim(item, self.time(now))
        return self._unanswered

    def _next_request(self, now: float) -> list[JobReport] | None:
        items: dict[str, JobReport] = {}
        for _ in range(len(self._ended)):
            if len(items) == BATCH:
                break
            end = self._ended.popleft()
            if end.run.job.name in items:
                self._ended.append(end)
            elif end.run.token in self.runs:
                items[end.run.job.name] = JobReport(end.run.job, end=self._judged(end))
                self._forget_run(end.run)
        if not self.stopping:
            self._add_claims(items, now)
        elif not (self.runs or self._ended or self._said_goodbye):
            self._said_goodbye = True
            return list(items.values())
        if not items and now < self.beat_at:
            return None
        return list(items.values())

    @staticmethod
    def _judged(end: RunEnd) -> RunEnd:
        run = end.run
        if end.status == "cancelled":
            return RunEnd(run, run.verdict or "cancelled", run.why or end.text)
        if end.status == "lost":
            again = run.job.options.on_crash == "again" and run.attempt < ATTEMPTS
            return RunEnd(run, "again" if again else "cancelled", end.text)
        return end

    def _forget_run(self, run: ActiveRun) -> None:
        if self.runs.pop(run.token, None) is not None:
            run.job.runs -= 1

    def _add_claims(self, items: dict[str, JobReport], now: float) -> None:
        while self._looks and self._looks[0][0] <= now:
            at, name = heapq.heappop(self._looks)
            if name in self.jobs and self.jobs[name].look_at == at:
                self._look_now[name] = None
        room = self.room
        if room > 0:
            self._look_now |= self._hungry
            self._hungry.clear()
        while self._look_now and len(items) < BATCH:
            name = next(iter(self._look_now))
            del self._look_now[name]
            looked_at = self.jobs.get(name)
            if looked_at is not None:
                looked_at.look_at = INFINITY
                items.setdefault(looked_at.name, JobReport(looked_at))
        # Ticks are claimed even without room for a run. A tick that waits is not late, and another process may run it.
        time = self.time(now)
        while self._ticks and self._ticks[0][0] <= time and len(items) < BATCH:
            tick, name = heapq.heappop(self._ticks)
            job = self.jobs.get(name)
            if job is not None and job.next == tick:
                items.setdefault(name, JobReport(job))

    def _claim(self, item: JobReport, time: int) -> None:
        job = item.job
        if job.next is not None and job.next <= time:
            job.next = None
        item.due = due(job.when, job.last, time, job.options, int(self.timeout * 1e6) + AHEAD_US)

    def time(self, now: float) -> int:
        """Return the server's time, in microseconds, as estimated at monotonic time ``now``. The estimate is never ahead."""
        return self._server + int((now - self._came) * 1e6)

    def next_at(self) -> float:
        """Return the monotonic time, in seconds, at which the next request or task is due without a notification."""
        if self._unanswered is not None or self._ended or self.unregistered():
            return self.retry_at
        at = [self.beat_at]
        if not self.stopping:
            at.append(self._look_all_at)
            at += [look for look, _ in self._looks[:1]]
        if self._ticks and not self.stopping:
            at.append(self._came + max(0.0, (self._ticks[0][0] - self._server) / 1e6) * (1 + DRIFT) + DRIFT)
        for run in self.runs.values():
            limit = run.job.options.max_runtime
            if not run.verdict:
                at += [self.stop_at, INFINITY if limit is None else run.began + limit]
            elif run.verdict == "timed-out" and not run.over:
                at.append(run.told_at + ABANDON_AFTER_S)
        return max(min(at), self.retry_at)

    @property
    def done(self) -> bool:
        """True if the schedule has stopped, and this process has nothing to report to the server any more."""
        if self._given_up:
            return True
        return self._said_goodbye and not self.runs and not self._ended and self._unanswered is None

    # Outcomes

    def request(self, items: list[JobReport], now: float) -> RunScript[Served | Late | Unusable]:
        """Return the request that contains these reports.

        Each request of a process has a higher sequence number than the last one, so that the server ignores late copies.
        """
        self._number += 1
        valid = (self.time(now) // 1000) + int(VALID_S * 1000)
        period = 0 if self.stopping and not self.runs else int(REACHABLE_S * 1000)
        head = (self.listener.listener_id, self._number, valid, period, self.host)
        keys = [self.keys.base, self.keys.serving]
        for item in items:
            keys += item.job.served
        args = [*head, *(arg for item in items for arg in item.args())]
        return RunScript(SERVE, tuple(keys), tuple(args), self.timeout)

    def failed(self, error: WireError, now: float) -> None:
        """Handle a request that got no reply. Its reports are sent again later, with the same tokens.

        Its claims are replaced by claims for the ticks (scheduled times) that are due by then.
        """
        self._failing_since = min(self._failing_since, now)
        if self.stopping and not self.runs and now >= self._failing_since + GIVE_UP_AFTER_S:
            self._given_up = True
        for item in self._unanswered or ():
            item.due = None
            self._plan(item.job)
        self._pause = min(1.0, max(0.02, 2 * self._pause))
        self.retry_at = now + self._pause
        if not self._away and self._pause > 0.1:
            self._away = True
            self.todo.append(Log(f"the server cannot be reached: {error}; jobs wait until it is back"))

    def answered(self, answer: Answer[Served | Late | Unusable]) -> None:
        value, items = answer.value, self._unanswered or []
        if isinstance(value, Late):
            self.learn(value.now, answer.came)
            self.failed(NotSent("a request arrived too late, or after a later request of this process"), answer.came)
            return
        if isinstance(value, Unusable):
            self.failed(NotSent(value.why), answer.came)
            return
        self._unanswered, self.retry_at, self._pause, self._failing_since = None, 0.0, 0.0, INFINITY
        if self._away:
            self._away = False
            self.todo.append(Log("the server is back, and jobs go on", bad=False))
        self.learn(value.now, answer.came)
        if value.changes != self._changes:
            if self._changes is not None:
                self._look_now.update(dict.fromkeys(self.jobs))
            self._changes = value.changes
        for item, said in zip(items, value.answers, strict=True):
            if item.end is not None:
                self.todo.append(ForgetRun(item.end.run))
            self._take_in(item, said, answer)

    def learn(self, server: int, came: float) -> None:
        """Note the server's time ``server``, in microseconds, from a reply that arrived at monotonic time ``came``.

        If the server's clock was set back, have a message logged.
        """
        back = (self.time(came) - server) / 1e6
        if self._server and back > SET_BACK_S:
            self.todo.append(Log(f"the server's clock was set back by {back:.0f} s: {RIGHT if back > 3 * 3600 else WAITS}"))
        self._server, self._came = server, came
        self.beat_at = came + BEAT_EVERY_S
        self._look_all_at = min(self._look_all_at, came + LOOK_AGAIN_S)

    def _take_in(
        self,
        item: JobReport,
        said: Answered | DefinitionChanged | UnknownJob | Unusable,
        answer: Answer[Served | Late | Unusable],
    ) -> None:
        job = item.job
        if isinstance(said, DefinitionChanged):
            self.todo.append(Redefine(job, said))
        elif isinstance(said, UnknownJob):
            job.revision, job.next = 0, None
        elif isinstance(said, Unusable):
            self.todo.append(Log(f"job {job.name!r} cannot be served: {said.why}"))
            job.next = None
        else:
            job.last = said.last
            self._plan(job)
            for run in self.runs.values():
                if run.job is job and str(run.fence) in said.cancel.split():
                    self._cancel(run, answer.came, "it was cancelled by hand", "cancelled")
            if said.slot >= 0:
                self._granted(item, said, answer)
            self._look_later(item, said, answer.came)

    def _granted(self, item: JobReport, said: Answered, answer: Answer[Served | Late | Unusable]) -> None:
        job = item.job
        spec = run_spec(job.name, job.keys.run(said.slot), job.options, self.timeout, ABANDON_AFTER_S + job.options.ttl)
        grant = Grant(
            Attempt(spec, item.token), said.fence, answer.came, answer.sent + job.options.ttl - margin(job.options.ttl)
        )
        run = ActiveRun(
            job, said.slot, item.token, said.fence, said.scheduled, said.attempt, said.by_hand, grant, began=answer.came
        )
        self.runs[run.token] = run
        job.runs += 1
        if self.stopping or answer.came >= grant.deadline:
            self._ended.append(RunEnd(run, "back", ""))  # the reply came too late to begin the run
        else:
            self.todo.append(Start(run))

    def _look_later(self, item: JobReport, said: Answered, now: float) -> None:
        """Plan when to ask again about a job.

        This is needed if a run of the job waits to begin, or if a run in another process may crash and have to begin again.
        """
        job = item.job
        if said.queued and said.left < 0:
            if not item.token:  # otherwise the job is paused
                self._hungry[job.name] = None
        elif said.queued and said.slot >= 0 and job.options.slots > 1:
            self._look_now[job.name] = None
        elif said.left >= 0 and not job.runs and (said.queued or job.options.on_crash == "again"):
            job.look_at = now + said.left / 1000 + 0.01
            heapq.heappush(self._looks, (job.look_at, job.name))

    def _plan(self, job: ServedJob) -> None:
        tick = following(job.when, job.last)
        if tick != job.next and tick is not None:
            heapq.heappush(self._ticks, (tick, job.name))
        job.next = tick

    def told_of(self, job: ServedJob, rival: Rival | Registered) -> str:
        return f"job {job.name!r} runs {job.origin} in this process, but {rival.who} runs {rival.other} under this name"

    def registered(self, jobs: list[ServedJob], answers: list[Declared] | Rival) -> None:
        self._registering = None
        if isinstance(answers, Rival):  # a rival may appear among jobs that were registered before and have expired
            job = jobs[answers.job]
            del self.jobs[job.name]
            self.todo.append(Log(f"{self.told_of(job, answers)}; this process stops serving it because of strict=True"))
            return
        if len(answers) < len(jobs):  # a single reply, because the keys hold other data, or that of another release
            answers = len(jobs) * answers
        for job, said in zip(jobs, answers, strict=True):
            if isinstance(said, Unusable):
                del self.jobs[job.name]
                self.todo.append(Log(f"job {job.name!r} cannot be served: {said.why}"))
                continue
            if isinstance(said, DefinitionChanged):
                job.revision = said.revision
                self.todo.append(Redefine(job, said))
                continue
            if isinstance(said, UnknownJob):
                continue
            job.revision, job.last = said.revision, said.last
            self._plan(job)
            self._look_now[job.name] = None
            if said.before or said.other:
                change = DefinitionChanged(said.revision, said.before or job.definition, said.last, said.other)
                self.todo.append(Redefine(job, change, mine=True, who=said.who))
