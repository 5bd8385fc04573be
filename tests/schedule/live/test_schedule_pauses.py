"""A schedule whose server was away, and two programs that serve one schedule: on a real server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
import holdfast.aio
from holdfast.schedule import Command, Every
from holdfast.schedule.origin import origin_of
from holdfast.schedule.schedule import BaseSchedule
from support.servers import PrivateServer
from support.witness import until, until_in_loop

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

AWAY = 1.7
"""Seconds."""
EACH = 0.2


@pytest.fixture
def own(new_server: NewServer) -> PrivateServer:
    return new_server()


JOBS: dict[str, dict[str, Any]] = {
    "skip once": {"overlap": "skip"},
    "skip skip": {"overlap": "skip", "misfire": "skip"},
    "skip never late": {"overlap": "skip", "misfire": "skip", "grace": EACH},
    "skip all": {"overlap": "skip", "misfire": "all"},
    "allow once": {"overlap": "allow"},
    "allow all": {"overlap": "allow", "misfire": "all"},
    "queue once": {"overlap": "queue", "on_crash": "again"},
    "queue all": {"overlap": "queue", "misfire": "all"},
}


def served_while_the_server_is_away(server: PrivateServer, takes: float) -> dict[str, list[Any]]:
    """The histories, oldest first: of some runs, a server that is stopped, and some runs behind that."""
    enough = threading.Event()
    schedule = holdfast.Schedule(server.url, "pauses")
    jobs = {name: how for name, how in JOBS.items() if takes < EACH or how["overlap"] != "queue"}  # it would grow and grow
    for name, how in jobs.items():
        schedule.add(lambda: enough.wait(takes) and None, Every(EACH), name=name, history=1000, **how)
    with schedule:
        until(lambda: all(any(run.started for run in schedule.history(name)) for name in jobs))
        server.pause()
        time.sleep(AWAY)
        server.resume()
        back = time.time()
        until(lambda: all(schedule.history(name, 1)[0].until > back + 5 * EACH for name in jobs))
        enough.set()
    return {name: list(reversed(schedule.history(name, 1000))) for name in jobs}


@pytest.mark.turns
@pytest.mark.parametrize("takes", [0.0, 0.48], ids=["short", "longer than its interval"])
def test_after_a_pause_at_most_one_run_of_a_job_starts_late(own: PrivateServer, takes: float) -> None:
    """As seen from outside, at a fifth of the time: 8 s without a server, and a job of 2.4 s each second."""
    for name, records in served_while_the_server_is_away(own, takes).items():
        runs = [record for record in records if record.started]
        each, each_once = [], set()
        for record in records:
            steps = round((record.until - record.scheduled) / EACH) + 1
            each += [round(record.scheduled / EACH) + step for step in range(steps)]
        each_once.update(each)
        assert len(each) == len(each_once), f"{name}: a tick is in the history twice"
        waits = name.endswith("all") and takes  # some, until the end
        assert waits or max(each) - min(each) + 1 == len(each), f"{name}: a tick is not in the history"
        assert all(record.error for record in records if not record.started), f"{name}: a tick was left out for no reason"
        if not name.endswith("all") and "queue" not in name:
            for before, after in pairwise(sorted(runs, key=lambda record: record.scheduled)):
                assert after.scheduled > before.started, f"{name}: a tick was run that was due when an earlier one began"
        if name == "skip never late":
            assert not [run for run in runs if run.started - run.scheduled > EACH]
        if name.endswith("all") and not takes:
            assert all(record.status == "ok" for record in records if record.started)
            assert not [record for record in records if record.status == "missed"]


# Two programs, one name


def first() -> None: ...


def second() -> None: ...


def declared(schedule: Any, function: Callable[[], None]) -> Any:
    schedule.add(function, Every(3600), name="job")
    return schedule


def test_two_programs_are_told_of_each_other(own: PrivateServer, caplog: pytest.LogCaptureFixture) -> None:
    here = f"{__name__}:"
    one: Any = declared(holdfast.Schedule(own.url, "shop"), first)
    with one:
        with declared(holdfast.Schedule(own.url, "shop"), first):
            assert "two programs" not in caplog.text, "the same code"
        with declared(holdfast.Schedule(own.url, "shop"), second):
            until(lambda: caplog.text.count("is served by two programs") == 2)
            assert f"as {here}second here, and as {here}first by" in caplog.text
            assert f"as {here}first here, and as {here}second by another" in caplog.text
            assert one.status()[0].origin == f"{here}second", "the newer one counts"
        assert not one.status()[0].served, "nobody serves it as it was declared last"
    caplog.clear()
    with declared(holdfast.Schedule(own.url, "shop"), first) as one:
        assert one.status()[0].origin == f"{here}first"
    assert "two programs" not in caplog.text, "the other one serves it no more"


def test_two_programs_with_strict(own: PrivateServer) -> None:
    def refused() -> Any:
        told = r"job 'job' runs .*:second in this process, but .* runs .*:first under this name.*strict"
        return pytest.raises(holdfast.ConfigError, match=told)

    async def other() -> None:
        schedule = declared(holdfast.aio.Schedule(own.url, "shop", strict=True), second)
        with refused():
            await schedule.start()
        one.stop(0)
        async with schedule:
            await until_in_loop(lambda: one.status()[0].served)

    one = declared(holdfast.Schedule(own.url, "shop", strict=True), first)
    one.start()
    strict = declared(holdfast.Schedule(own.url, "shop", strict=True), second)
    strict.add(first, Every(3600), name="another")
    with refused():
        strict.start()
    assert [job.name for job in one.status()] == ["job"], "nothing is registered"
    with declared(holdfast.Schedule(own.url, "shop", strict=True), first):
        assert len(one.runners()) == 2
    asyncio.run(other())


def test_a_name_is_required() -> None:
    apis: tuple[type[BaseSchedule[Any]], ...] = (holdfast.Schedule, holdfast.aio.Schedule)
    for api in apis:
        with pytest.raises(TypeError, match="required positional argument: 'name'"):
            api("redis://nobody.is.asked")  # type: ignore[call-arg]


def test_commands_have_an_origin_without_a_path(own: PrivateServer) -> None:
    schedule = holdfast.Schedule(own.url, "shop")
    schedule.add(Command(["/opt/release-7/bin/backup.sh", "--password=secret"]), Every(3600), name="job")
    with schedule:
        (job,) = schedule.status()
    name, digest = job.origin.split("#")
    assert (name, len(digest)) == ("command:backup.sh", 8)


@pytest.mark.parametrize(("argv", "same"), [(["/opt/release-8/backup.sh", "--full"], True), (["/opt/backup.sh"], False)])
def test_commands_are_told_apart_by_name_and_arguments(argv: list[str], same: bool) -> None:
    earlier = Command(["/opt/release-7/backup.sh", "--full"])
    assert (origin_of(Command(argv)) == origin_of(earlier)) is same
