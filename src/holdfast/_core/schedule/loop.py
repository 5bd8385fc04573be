"""Serve a schedule: claim its ticks when they are due, and decide which runs to begin and to end.

Every process that serves a schedule claims each tick when it is due, in one request for all its jobs; the server gives it to
the first. All times of ticks are the server's: a process knows it from the last answer, plus what has passed since by its own
monotonic clock. As the answer was some time on its way, that is never ahead: no process comes too early, however wrong its wall
clock is, and one that comes late is refused, because a tick is named by its scheduled time.

`_core.schedule.state` is the state, and `turn` the operation that is driven again and again. The caller does what `turn`
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
    """Make its jobs known. Raises WireError."""
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
    """Before the first `turn`, and when that is to begin anew in another loop. Raises WireError. Raises ConfigError, before
    anything is registered, where the state is strict and other code is being served under the name of one of its jobs."""
    state.listener = await subscribed(await Now() + 1.0, prefix_of(state.keys.base))
    try:
        if state.strict:
            await _look_for_rivals(state)
        await register(state)
    except BaseException:
        await leave(state)
        raise


async def _look_for_rivals(state: ScheduleState) -> None:
    """Raises ConfigError, WireError."""
    jobs = state.unregistered()
    for at in range(0, len(jobs), BATCH):
        batch = jobs[at : at + BATCH]
        call = _register(state, batch, "look")
        found = (await call).value[1]
        if isinstance(found, Rival):
            raise ConfigError(f"{state.told_of(batch[found.job], found)}; refused, because of strict=True", parameter="strict")


async def turn(state: ScheduleState) -> list[Todo] | None:
    """Ask and wait, until there is something for the face to do. None: the state is done; `Unsubscribe` its listener."""
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
    """Ask what there is to ask. Raises WireError."""
    if state.unregistered() and now >= state.retry_at:
        await register(state)
        return True
    items = state.next_request(now)
    if items is None:
        return False
    room = state.room
    for item in sorted(items, key=lambda item: item.end is not None):  # whose run has just ended can wait for others
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
    while listener.hints:  # one by one: another thread may add to them meanwhile
        told.add(listener.hints.pop())
    if told - {HERE}:
        state.beat_at = 0.0  # whatever there is to look at, the next answer says so


async def leave(state: ScheduleState) -> None:
    """Be told nothing any more."""
    await Unsubscribe(state.listener)
