"""Serve a schedule: claim due ticks (scheduled times of jobs), and decide which runs to begin and to end.

Every process that serves a schedule claims each due tick, in one request for all its jobs; the server grants it to the first
process. All times of ticks are the server's. A process estimates the server's time from its last reply and its own monotonic
clock. The reply spent some time on its way, so the estimate is never ahead. No process claims too early, however wrong its wall
clock is. A late claim is refused, because a tick is identified by its scheduled time.

`_core.schedule.state` has the state; `turn` is the operation that is run again and again. The caller carries out what `turn`
returns: it begins runs, in threads or tasks, and calls `ScheduleState.end` when they have ended.
"""

from __future__ import annotations

from holdfast._core.names import prefix_of
from holdfast._core.requests import AwaitNotice, NewToken, Now, Run, Unsubscribe, WireError
from holdfast._core.schedule.job import REGISTER, Registered, Rival, Unusable
from holdfast._core.schedule.records import ServedJob, Todo
from holdfast._core.schedule.state import BATCH, HERE, REACHABLE_S, ScheduleState
from holdfast._core.subscription import subscribed
from holdfast.errors import ConfigError


async def register(state: ScheduleState) -> None:
    """Register the schedule's jobs with the server. Raises WireError."""
    more = True
    while more:
        jobs = state.unregistered()[:BATCH]
        call = _register(state, jobs, "strict" if state.strict else "")
        answer = await call
        state.learn(answer.value[0], answer.came)
        state.registered(jobs, answer.value[1])
        more = bool(state.unregistered())


def _register(state: ScheduleState, jobs: list[ServedJob], mode: str) -> Run[tuple[int, list[Registered | Unusable] | Rival]]:
    keys = (state.keys.base, state.keys.serving, state.keys.jobs, *(job.keys.job for job in jobs))
    facts = [fact for job in jobs for fact in (job.name, job.definition, job.timetable, job.agreed or job.origin)]
    head = (state.listener.listener_id, int(REACHABLE_S * 1000), state.host, mode)
    return Run(REGISTER, keys, (*head, len(jobs), *facts), state.timeout)


async def begin(state: ScheduleState) -> None:
    """Subscribe and register before the first `turn`, or before continuing in another event loop. Raises WireError.
    If the state is strict, raises ConfigError if another process serves other code under one of the job names; then nothing is
    registered."""
    state.listener = await subscribed(await Now() + 1.0, prefix_of(state.keys.base))
    try:
        if state.strict:
            await _look_for_rivals(state)
        await register(state)
    except BaseException:
        await leave(state)
        raise


async def _look_for_rivals(state: ScheduleState) -> None:
    """Raise ConfigError if another process serves other code under one of the job names. Raises WireError."""
    jobs = state.unregistered()
    for at in range(0, len(jobs), BATCH):
        batch = jobs[at : at + BATCH]
        call = _register(state, batch, "look")
        found = (await call).value[1]
        if isinstance(found, Rival):
            raise ConfigError(f"{state.told_of(batch[found.job], found)}; refused because of strict=True", parameter="strict")


async def turn(state: ScheduleState) -> list[Todo] | None:
    """Exchange requests with the server until there is work for the caller, and return it; None once the schedule has stopped.

    After None the caller sends `Unsubscribe` for the state's listener.
    """
    while True:
        now = await Now()
        state.tick(now)
        if state.todo:
            todo, state.todo = state.todo, []
            return todo
        try:
            if not await ask(state, now):
                if state.done:
                    return None
                await _wait(state)
        except WireError as error:
            state.failed(error, await Now())


async def ask(state: ScheduleState, now: float) -> bool:
    """Send the next request, if there is one, and process its reply; return False if there was none. Raises WireError."""
    if state.unregistered() and now >= state.retry_at:
        await register(state)
        return True
    items = state.next_request(now)
    if items is None:
        return False
    room = state.room
    for item in sorted(items, key=lambda item: item.end is not None):  # a run that has just ended can wait for others
        if not item.token and room > 0:
            item.token, room = await NewToken(), room - 1
    call = state.request(items, now)
    state.answered(await call)
    return True


async def _wait(state: ScheduleState) -> None:
    listener = state.listener
    if not listener.hints:
        await AwaitNotice(listener, state.next_at())
    told = set()
    while listener.hints:  # one by one, because another thread may add some meanwhile
        told.add(listener.hints.pop())
    if told - {HERE}:
        state.beat_at = 0.0  # a notification does not say what has changed, but the next reply does


async def leave(state: ScheduleState) -> None:
    """Unsubscribe from notifications about the schedule."""
    await Unsubscribe(state.listener)
