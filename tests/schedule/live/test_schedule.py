"""A schedule on a real server, served by threads, tasks and processes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

import holdfast
import holdfast.aio
import holdfast.schedule
from holdfast.schedule import Cancelled, Every, Run
from support.clusters import Cluster
from support.servers import PrivateServer
from support.witness import until, until_in_loop

if TYPE_CHECKING:
    from conftest import NewServer

HERE = Path(__file__).parent
pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")


@pytest.fixture
def own(new_server: NewServer) -> PrivateServer:
    return new_server()


@pytest.fixture
def serving() -> Iterator[Callable[..., Any]]:
    """A schedule that is served until the end of the test."""
    begun: list[holdfast.Schedule] = []

    def serve(url: str, *jobs: Callable[..., Any], every: float = 0.1, schedule: Any = None, **options: Any) -> Any:
        found = schedule or holdfast.Schedule(url, "jobs")
        for job in jobs:
            found.add(job, Every(every), **options)
        found.start()
        begun.append(found)
        return found

    yield serve
    for schedule in begun:
        schedule.stop(0)


def statuses(schedule: Any, job: str) -> list[str]:
    """Oldest first."""
    return [record.status for record in reversed(schedule.history(job))]


def calls(server: PrivateServer) -> int:
    """Scripts that were run."""
    with redis.Redis.from_url(server.url) as client:
        stats: Any = client.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))


def test_each_tick_runs_once_and_costs_one_command_for_each_who_serves(own: PrivateServer, serving: Any) -> None:
    ran: list[tuple[float, int]] = []

    def job(run: Run) -> str:
        assert holdfast.schedule.current() is run
        run.check()
        ran.append((run.scheduled, run.fence))
        return "fine"

    for _ in range(3):
        schedule = serving(own.url, job, overlap="queue", misfire="all")
    until(lambda: len(ran) > 2)
    ticks, before = len(ran), calls(own)
    until(lambda: len(ran) >= ticks + 10)
    cost, ticks = calls(own) - before, len(ran) - ticks  # all that cost something is among them, and no matter what is behind
    assert cost <= (ticks + 1) * 4 + 2, "a claim of each, and the end of the run"
    times, fences = zip(*sorted(ran), strict=True)
    steps = [round((after - before) * 10) for before, after in pairwise(times)]
    assert set(steps) == {1}
    assert sorted(fences) == list(fences)
    assert len(set(times)) == len(times)
    (status,) = schedule.status()
    assert (status.name, status.when, status.paused) == ("job", "every 0.1 s", False)
    assert (status.last.status, status.last.result) == ("ok", "fine")
    assert status.next > status.last.scheduled
    assert f":{os.getpid()}" in status.last.host


def test_both_apis_serve_one_schedule(own: PrivateServer, serving: Any) -> None:
    ran: list[tuple[str, float]] = []

    def job(run: Run) -> None:
        ran.append(("threads", run.scheduled))

    async def main() -> None:
        schedule = holdfast.aio.Schedule(own.url, "jobs")

        async def task(run: Run) -> None:
            assert holdfast.schedule.current() is run
            ran.append(("tasks", run.scheduled))

        schedule.add(task, Every(0.1), name="job")
        async with schedule:
            await until_in_loop(lambda: {who for who, _ in ran} == {"threads", "tasks"} and len(ran) > 5)
            assert (await schedule.status())[0].last is not None
            with pytest.raises(RuntimeError, match="served by this process already"):
                await schedule.start()
        assert await schedule.history("job", 2)

    serving(own.url, job)
    asyncio.run(main())
    times = [tick for _, tick in ran]
    assert len(set(times)) == len(times)


@pytest.mark.parametrize(("overlap", "expected"), [("skip", {"ok", "skipped"}), ("queue", {"ok"}), ("allow", {"ok"})])
def test_overlap(own: PrivateServer, serving: Any, overlap: str, expected: set[str]) -> None:
    going, most = [0], [0]
    local_queue = threading.Event()

    def job() -> None:
        going[0] += 1
        most[0] = max(most[0], going[0])
        local_queue.wait(0.25)
        going[0] -= 1

    schedule = serving(own.url, job, overlap=overlap, misfire="all")  # a tick that comes late is left out for no other reason
    until(lambda: len(schedule.history("job")) > 3 and expected <= set(statuses(schedule, "job")))
    assert set(statuses(schedule, "job")) == expected
    assert (most[0] > 1) is (overlap == "allow")
    if overlap == "queue":
        assert schedule.status()[0].queued
    local_queue.set()


@pytest.mark.parametrize(("misfire", "late"), [("skip", 0), ("once", 1), ("all", 5)])
def test_misfire(own: PrivateServer, misfire: str, late: int) -> None:
    ran: list[float] = []

    def declared() -> holdfast.Schedule:
        schedule = holdfast.Schedule(own.url, "jobs")
        how = {"misfire": misfire, "overlap": "queue", "grace": 0.3}  # no tick is left out because another one takes long
        schedule.add(lambda run: ran.append(run.scheduled), Every(0.1), name="job", **how)
        return schedule

    with declared():
        until(lambda: ran)
    last = max(ran)
    time.sleep(0.9)
    with declared() as schedule:
        until(lambda: len(ran) > late + 4)
    missed = [record for record in schedule.history("job") if record.status == "missed"]
    assert sum(record.count for record in missed) >= (3 if misfire != "all" else 0)
    assert bool(missed) is (misfire != "all")
    ran.sort()
    ticks = [round(tick * 10) for tick in ran]
    begin = ticks.index(round(last * 10)) + 1
    made_up = sum(step == 1 for step in (b - a for a, b in pairwise(ticks)))
    assert len(set(ticks)) == len(ticks)
    if misfire == "all":
        assert made_up == len(ticks) - 1, "none is left out"
    else:
        assert ticks[begin] - ticks[begin - 1] > 3


def test_what_a_run_comes_to(own: PrivateServer, serving: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise ValueError("no luck")

    def hangs(run: Run) -> None:
        run.cancelled.wait(10)
        run.check()

    def stopped() -> None:
        raise Cancelled("enough")

    schedule = holdfast.Schedule(own.url, "jobs")
    schedule.add(hangs, Every(0.1), max_runtime=0.1)
    schedule = serving(own.url, fails, stopped, schedule=schedule)
    wanted = {"fails": "error", "hangs": "timed out", "stopped": "cancelled"}

    def ended() -> list[Any]:
        found = [[run for run in schedule.history(job) if run.status == status] for job, status in wanted.items()]
        return [runs[-1] for runs in found] if all(found) else []

    failed, hung, enough = until(ended)
    assert failed.error == "ValueError: no luck"
    assert hung.error == "max_runtime=0.1 has passed"
    assert 0.09 < hung.duration < 2
    assert enough.error == "enough"
    assert "job 'fails' failed" in caplog.text


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


NOT_UTF8 = os.fsdecode(b"copied \xff.txt")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (NOT_UTF8, "copied \\udcff.txt"),
        (ValueError(NOT_UTF8), "ValueError: copied \\udcff.txt"),
        (Cancelled(NOT_UTF8), "copied \\udcff.txt"),
        (Speechless(), "Speechless: <a Speechless, without a text: RuntimeError>"),
        ([Speechless()], "[Speechless()]"),
    ],
    ids=["result", "error", "cancelled", "error without text", "result of such"],
)
def test_whatever_a_job_says_its_run_ends_and_others_go_on(
    own: PrivateServer, serving: Any, caplog: pytest.LogCaptureFixture, made: Any, said: str
) -> None:
    caplog.set_level(logging.CRITICAL, "holdfast")  # what is logged of it cannot be written into a report of the tests

    def job() -> Any:
        if isinstance(made, Exception):
            raise made
        return made

    def other() -> None: ...

    schedule = serving(own.url, job, other, overlap="queue", misfire="all")  # or ticks may be in it that were skipped
    until(lambda: len(schedule.history("job")) > 1 and len(schedule.history("other")) > 1)
    record = schedule.history("job")[-1]
    assert (record.result or record.error) == said


def test_a_result_without_a_text_is_a_result(own: PrivateServer, serving: Any) -> None:
    def job() -> Speechless:
        return Speechless()

    schedule = serving(own.url, job, overlap="queue", misfire="all")
    until(lambda: statuses(schedule, "job")[:2] == ["ok", "ok"])
    assert "without a text" in schedule.history("job")[-1].result


def test_orders(own: PrivateServer, serving: Any) -> None:
    ran: list[bool] = []
    going = threading.Event()

    def job(run: Run) -> None:
        ran.append(run.by_hand)
        going.set()
        run.cancelled.wait(5)
        run.check()

    served = serving(own.url, job, every=3600)
    boss = holdfast.Schedule(own.url, "jobs")
    boss.run_now("job")
    assert going.wait(5)
    (status,) = boss.status()
    assert [run.attempt for run in status.running] == [1]
    boss.cancel("job")
    until(lambda: statuses(boss, "job") == ["cancelled"])
    assert boss.history("job")[0].error == "it was cancelled by hand"
    boss.pause("job")
    assert boss.status()[0].paused
    going.clear()
    boss.run_now("job")
    assert going.wait(5), "by hand, though it is paused"
    boss.cancel("job")
    boss.resume("job")
    assert not boss.status()[0].paused
    assert ran == [True, True]
    until(lambda: statuses(boss, "job") == ["cancelled"] * 2)
    served.stop(0)
    boss.remove("job")
    assert boss.status() == []
    for ask in (boss.history, boss.pause, boss.run_now, boss.cancel):
        with pytest.raises(holdfast.ConfigError, match="schedule 'jobs' has no job 'job'"):
            ask("job")


def test_a_schedule_ends_also_where_it_cannot_leave(own: PrivateServer, serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_book: object) -> None:
        raise RuntimeError("no more threads")

    monkeypatch.setattr("holdfast._core.schedule.loop.leave", fails)
    monkeypatch.setattr("threading.excepthook", lambda _: None)  # that of the schedule's thread
    served = serving(own.url, every=60)
    started = time.monotonic()
    served.stop(30)
    assert time.monotonic() - started < 20


def test_stopping_hands_over_at_once(own: PrivateServer, serving: Any) -> None:
    began, enough = threading.Event(), threading.Event()

    async def main() -> None:
        schedule = holdfast.aio.Schedule(own.url, "jobs")

        async def job() -> None:
            began.set()
            await asyncio.sleep(30)

        schedule.add(job, Every(3600), on_crash="again")
        await schedule.start()
        await schedule.run_now("job")
        await until_in_loop(enough.is_set)
        await schedule.stop(0)

    attempts: list[int] = []

    def job(run: Run) -> None:
        attempts.append(run.attempt)

    other = threading.Thread(target=lambda: asyncio.run(main()))
    other.start()
    schedule = holdfast.Schedule(own.url, "jobs")
    assert began.wait(10)
    serving(own.url, job, every=3600, on_crash="again")
    assert attempts == []
    started = time.monotonic()
    enough.set()
    other.join()
    until(lambda: attempts)
    assert time.monotonic() - started < 10, "not when the lease has ended"
    assert attempts == [2]
    until(lambda: statuses(schedule, "job") == ["cancelled", "ok"])


def test_killed_while_it_runs(own: PrivateServer, serving: Any) -> None:
    jobs = [{"name": name, "every": 3600, "takes": 30, "ttl": 1, "on_crash": name} for name in ("again", "leave")]
    runner = subprocess.Popen(
        [sys.executable, HERE / "scheduler.py", own.url, "jobs", "threads", json.dumps(jobs)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert runner.stdout is not None
    assert runner.stdout.readline() == "ready\n"
    attempts: list[tuple[str, int]] = []

    def ran(run: Run) -> None:
        attempts.append((run.job, run.attempt))

    boss = holdfast.Schedule(own.url, "jobs")
    until(lambda: len(boss.status()) == 2)
    boss.run_now("again")
    boss.run_now("leave")
    assert {runner.stdout.readline().split()[1] for _ in range(2)} == {"again", "leave"}
    second = holdfast.Schedule(own.url, "jobs")
    for name in ("again", "leave"):
        second.add(ran, Every(3600), name=name, ttl=1, on_crash=name)
    serving(own.url, schedule=second)
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    runner.stdout.close()
    until(lambda: attempts == [("again", 2)])
    until(lambda: statuses(boss, "again") == ["crashed", "ok"])
    boss.run_now("leave")
    until(lambda: statuses(boss, "leave") == ["crashed", "ok"])
    assert attempts == [("again", 2), ("leave", 1)]


def test_the_server_restarts_and_ticks_wait(new_server: NewServer, caplog: pytest.LogCaptureFixture) -> None:
    # Or it forgets what it has confirmed: that a run has ended, for example, which would then be waited for.
    server = new_server("--appendfsync", "always", port=True, appendonly=True)
    ran: list[float] = []
    schedule = holdfast.Schedule(server.url, "jobs")
    schedule.add(lambda run: ran.append(run.scheduled), Every(0.1), name="job", overlap="queue", misfire="all")
    with schedule:
        until(lambda: len(ran) > 1)
        server.kill()
        until(lambda: "the server cannot be reached" in caplog.text)
        time.sleep(0.3)  # for a few ticks
        server.restart()
        count = len(ran)
        until(lambda: len(ran) > count + 8, 20)
    ticks = sorted(round(tick * 10) for tick in ran)
    assert ticks == list(range(ticks[0], ticks[0] + len(ticks))), "each one, once"


def test_a_task_that_is_cancelled_when_the_schedule_has_just_stopped(own: PrivateServer) -> None:
    async def main() -> None:
        schedule = holdfast.aio.Schedule(own.url, "jobs")
        schedule.add(lambda: None, Every(3600), name="job")
        await schedule.start()
        service = schedule._service
        assert service is not None

        async def cancel() -> None:
            await service.over.wait()  # before who stops it, who hears of it in the same turn of the loop
            assert stopping.cancel()

        cancelling = asyncio.create_task(cancel())
        stopping = asyncio.create_task(schedule.stop())
        with pytest.raises(asyncio.CancelledError):
            await stopping
        await cancelling

    asyncio.run(main())


def test_no_job_is_added_while_the_schedule_is_started(own: PrivateServer) -> None:
    async def main() -> None:
        schedule = holdfast.aio.Schedule(own.url, "jobs")
        starting = asyncio.create_task(schedule.start())
        await asyncio.sleep(0)
        with pytest.raises(holdfast.ConfigError, match="declare job 'late' before"):
            schedule.add(lambda: None, Every(3600), name="late")
        with pytest.raises(RuntimeError, match="is being started by this process already"):
            await schedule.start()
        await starting
        await schedule.stop()

    asyncio.run(main())


def test_nobody_there_at_the_start() -> None:
    schedule = holdfast.Schedule("redis://127.0.0.1:1", "jobs")
    schedule.add(lambda: None, Every(1), name="job")
    with pytest.raises(holdfast.ServerError, match="schedule 'jobs'"):
        schedule.start()
    schedule.stop()

    async def main() -> None:
        other = holdfast.aio.Schedule("redis://127.0.0.1:1", "jobs")
        with pytest.raises(holdfast.ServerError):
            await other.start()
        await other.stop()

    asyncio.run(main())


def test_labels_and_limits(own: PrivateServer) -> None:
    ran: set[str] = set()

    def declared(who: str, **options: Any) -> holdfast.Schedule:
        schedule = holdfast.Schedule(own.url, "jobs", **options)
        schedule.add(lambda: ran.add(f"anywhere {who}"), Every(0.1), name="anywhere", overlap="queue", misfire="all")
        schedule.add(lambda: ran.add(f"gpu {who}"), Every(0.1), name="gpu", on="gpu")
        return schedule

    with declared("a"), declared("b", features=["gpu", "big"], concurrency=1):
        until(lambda: ran >= {"anywhere a", "gpu b"})
    assert "gpu a" not in ran


def test_another_definition_counts_for_all(own: PrivateServer, caplog: pytest.LogCaptureFixture) -> None:
    ran: list[str] = []
    old, new = holdfast.Schedule(own.url, "jobs"), holdfast.Schedule(own.url, "jobs")
    old.add(lambda: ran.append("old"), Every(3600), name="job")
    new.add(lambda: ran.append("new"), Every(0.1), name="job")
    with old:
        with new:
            until(lambda: "new" in ran)
        ran.clear()
        until(lambda: len(ran) > 2)
        assert set(ran) == {"old"}, "its own function, at the new times"
    assert "another process has redefined job" in caplog.text
    assert "had another definition before" in caplog.text


def test_runs_beside_end_when_that_is_allowed_no_more(own: PrivateServer, serving: Any) -> None:
    enough = threading.Event()

    def job() -> None:
        enough.wait(10)

    served = serving(own.url, job, overlap="allow")
    until(lambda: len(served.status()[0].running) > 2)
    serving(own.url, job)
    until(lambda: "skipped" in statuses(served, "job"))
    enough.set()
    until(lambda: statuses(served, "job").count("ok") > 2 and len(served.status()[0].running) < 2)


def test_one_who_finds_that_all_is_forgotten_reminds_the_others(own: PrivateServer, serving: Any, caplog: Any) -> None:
    def often() -> None: ...

    def seldom() -> None: ...

    some, more = holdfast.Schedule(own.url, "jobs"), holdfast.Schedule(own.url, "jobs")
    more.add(seldom, Every(86400))
    more.add(often, Every(0.1))
    some.add(often, Every(0.1))
    serving(own.url, schedule=more)
    serving(own.url, schedule=some)
    until(lambda: statuses(more, "often"))
    with redis.Redis.from_url(own.url) as client:
        client.flushall()
    until(lambda: [status.name for status in some.status()] == ["often", "seldom"])
    assert "declared" not in caplog.text, "it is what it was"


def test_refusals() -> None:
    schedule = holdfast.Schedule("redis://127.0.0.1:1", "jobs")

    @schedule.every(1)
    def job() -> None: ...

    async def coroutine() -> None: ...

    refused: dict[str, Callable[[], Any]] = {
        "holdfast.aio.Schedule": lambda: schedule.every(1)(coroutine),
        "has a job 'job' already": lambda: schedule.every(1)(job),
        "overlap must be one of skip, queue, allow": lambda: schedule.every(1, name="x", overlap="jump")(job),
        "there is no option 'retries'": lambda: schedule.every(1, name="x", retries=3)(job),
        "pass name=": lambda: schedule.every(1)(lambda: None),
        "name of a job must have": lambda: schedule.every(1, name="")(job),
        "ttl must be": lambda: schedule.every(1, name="x", ttl="1")(job),
        "history must be": lambda: schedule.every(1, name="x", history=0)(job),
        "concurrency must be": lambda: holdfast.Schedule("redis://127.0.0.1:1", "jobs", concurrency=0),
    }
    for what, declare in refused.items():
        with pytest.raises(holdfast.ConfigError, match=what):
            declare()
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(schedule)
    assert [job.name for job in schedule.jobs] == ["job"]


def test_jobs_that_are_no_plain_functions(own: PrivateServer, serving: Any) -> None:
    class Poll:
        async def __call__(self) -> None: ...

    with pytest.raises(holdfast.ConfigError, match="is a coroutine function"):
        holdfast.Schedule(own.url, "jobs").add(Poll(), Every(1), name="poll")
    schedule = holdfast.Schedule(own.url, "jobs")
    schedule.add(dict, Every(0.1), name="written in C", overlap="queue", misfire="all")
    serving(own.url, schedule=schedule)
    until(lambda: statuses(schedule, "written in C")[:1] == ["ok"])


@pytest.mark.parametrize("feature", [5, [5], b"gpu", None])
def test_a_feature_is_a_text(own: PrivateServer, feature: Any) -> None:
    with pytest.raises(holdfast.ConfigError, match="features must be text or a list of texts"):
        holdfast.Schedule(own.url, "jobs", features=feature)
    with pytest.raises(holdfast.ConfigError, match="on must be text or a list of texts"):
        holdfast.Schedule(own.url, "jobs").every(1, name="job", on=feature)(print)


def test_more_jobs_between_two_event_loops(own: PrivateServer) -> None:
    schedule = holdfast.aio.Schedule(own.url, "jobs")
    ran = dict.fromkeys(("first", "second"), 0)

    def add(name: str) -> None:
        async def job() -> None:
            ran[name] += 1

        schedule.add(job, Every(0.1), name=name)

    async def serve(name: str) -> None:
        async with schedule:
            await until_in_loop(lambda: ran[name] > 1)

    for name in ran:
        add(name)
        asyncio.run(serve(name))


def test_in_a_cluster(serving: Any, common_cluster: Cluster) -> None:
    ran: list[float] = []
    schedule = serving(common_cluster.url, lambda run: ran.append(run.scheduled), name="job")
    other = serving(common_cluster.url, lambda run: ran.append(run.scheduled), name="job")
    until(lambda: len(ran) > 3)
    schedule.run_now("job")
    until(lambda: any(round(tick * 10) != tick * 10 for tick in ran))
    schedule.stop(0)
    other.stop(0)
    assert len(set(ran)) == len(ran)
