"""Serve a schedule in one process. Ask the server for runs of jobs that are due, and report runs that have ended.

A tick is a time at which a job is scheduled. Every process that serves a schedule claims each tick when it is due, and the
server grants the tick to the first of them.

A process must not claim a tick early. It estimates the server's time from the server's last reply and its own monotonic clock.
The reply has spent some time on its way, so the estimate is never ahead of the server's time.

The caller calls `turn` again and again, and carries out the tasks that `turn` returns. For example, the caller begins a run in
a thread or task, and calls `ScheduleState.end` when the run has ended.
"""

from __future__ import annotations

from holdfast._core.names import prefix_of
from holdfast._core.requests import AwaitNotice, NewToken, Now, RunScript, Unsubscribe, WireError
from holdfast._core.schedule.job import REGISTER, Declared, Rival
from holdfast._core.schedule.records import ServedJob, Todo
from holdfast._core.schedule.state import BATCH, HERE, REACHABLE_S, ScheduleState
from holdfast._core.subscription import subscribed
from holdfast.errors import ConfigError


async def register(state: ScheduleState) -> None:
    """Register the jobs that the server does not know yet. Raises WireError if the server is unreachable."""
    more = True
    while more:
        jobs, number = state.registration()
        call = _register(state, jobs, number, "strict" if state.strict else "")
        answer = await call
        state.learn(answer.value[0], answer.came)
        state.registered(jobs, answer.value[1])
        more = bool(state.unregistered())


def _register(
    state: ScheduleState, jobs: list[ServedJob], number: int, mode: str
) -> RunScript[tuple[int, list[Declared] | Rival]]:
    keys = (state.keys.base, state.keys.serving, state.keys.jobs, *(job.keys.job for job in jobs))
    facts = [fact for job in jobs for fact in (job.name, job.definition, job.timetable, job.agreed or job.origin)]
    head = (state.listener.listener_id, number, int(REACHABLE_S * 1000), state.host, mode)
    return RunScript(REGISTER, keys, (*head, len(jobs), *facts), state.timeout)


async def begin(state: ScheduleState) -> None:
    """Subscribe to notifications about the schedule, and register its jobs. Raises WireError if the server is unreachable.

    The caller calls this function before the first `turn`, and again before it calls `turn` in another event loop. With
    `ScheduleState.strict`, raises ConfigError, and registers no job, if another process serves other code under the name of one
    of the jobs.
    """
    state.listener = await subscribed(await Now() + 1.0, prefix_of(state.keys.base))
    try:
        if state.strict:
            await _look_for_rivals(state)
        await register(state)
    except BaseException:
        await leave(state)
        raise


async def _look_for_rivals(state: ScheduleState) -> None:
    """Raise ConfigError if another process serves other code under the name of one of the jobs. Register nothing."""
    jobs = state.unregistered()
    for at in range(0, len(jobs), BATCH):
        batch = jobs[at : at + BATCH]
        call = _register(state, batch, 0, "look")
        found = (await call).value[1]
        if isinstance(found, Rival):
            raise ConfigError(f"{state.told_of(batch[found.job], found)}; refused because of strict=True", parameter="strict")


async def turn(state: ScheduleState) -> list[Todo] | None:
    """Send requests to the server, and wait in between, until there are tasks for the caller. Return these tasks.

    Return None once the schedule has stopped. The caller then calls `leave`.
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
    """Send the next request and handle its reply. Return False if there was nothing to send.

    Raises WireError if the server is unreachable.
    """
    if state.unregistered() and now >= state.retry_at:
        await register(state)
        return True
    items = state.next_request(now)
    if items is None:
        return False
    # A request that is sent again keeps its tokens, for which the server may have granted runs, so they take up room.
    room = state.room - sum(bool(item.token) for item in items)
    for item in sorted(items, key=lambda item: item.end is not None):  # a job whose run has just ended comes last
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
    await Unsubscribe(state.listener)
