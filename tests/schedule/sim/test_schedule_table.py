"""The table "After a pause" of docs/schedule-ticks.md, row by row: grace, misfire, overlap and on_crash, under virtual time."""

from __future__ import annotations

import itertools
import random
from typing import Any, NamedTuple

import pytest

from holdfast._core.schedule.commands import Entry, overview
from holdfast._core.schedule.job import BESIDE, JOBS, Options, ScheduleKeys
from holdfast.schedule.timetable import Every
from holdfast_lab.sim.schedule_client import Service
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.virtual_time import EPOCH, Weather
from holdfast_lab.sim.world import Process, World

KEYS = ScheduleKeys.of("s")
GRACE = 0.3
AWAY = (5.2, 13.6)
"""Seconds in which the server is stopped: ticks 6 to 13 fall due, and 13 is late by more than the grace of some jobs."""

ALL: list[dict[str, Any]] = [
    {"overlap": overlap, "misfire": misfire, "grace": grace, "on_crash": on_crash}
    for overlap, misfire, grace, on_crash in itertools.product(
        ("skip", "queue", "allow"), ("skip", "once", "all"), (GRACE, 10.0), ("leave", "again")
    )
]


class Stage:
    """One server, one process that serves jobs each second."""

    def __init__(self, takes: float, ttl: float = 30.0) -> None:
        self.rng = random.Random(1)
        self.world = World(self.rng, Weather(self.rng, 0.0003), trace=False)
        self.server = Server(self.world)
        self.jobs = {name_of(how): (Every(1.0), Options(ttl=ttl, history=1000, **how)) for how in ALL}
        self.takes = takes
        self.services: list[Service] = []

    def serve(self) -> Service:
        takes = dict.fromkeys(self.jobs, lambda _rng: self.takes)
        process = Process(self.world, self.server, f"c{len(self.services)}")
        self.services.append(Service(process, KEYS, self.jobs, takes, limit=1000))
        return self.services[-1]

    def until(self, seconds: float) -> None:
        self.world.pass_time(EPOCH + seconds - self.world.now)

    def entries(self, how: dict[str, Any]) -> list[Entry]:
        """Return the outcomes of a job, oldest first."""
        name = name_of(how)
        self.server.keyspace.now = int(self.server.wall() * 1e6)
        answer = self.server.keyspace.run(JOBS, (KEYS.base, KEYS.serving, *KEYS.job(name).looking()), (BESIDE, 1000))
        return list(reversed(overview([name], answer).jobs[0].entries))

    def close(self) -> None:
        for service in self.services:
            if service.process.here:
                service.state.stop(0.0)
        self.world.work(self.world.now + 60.0, self.world.steps + 100_000)
        self.world.close()


class Was(NamedTuple):
    """The outcome of a tick, which is named by its number."""

    tick: int
    status: str
    text: str
    attempt: int


def name_of(how: dict[str, Any]) -> str:
    return "-".join(str(value) for value in how.values())


def told(stage: Stage, how: dict[str, Any]) -> list[Was]:
    """Each tick by itself."""
    found = []
    for entry in stage.entries(how):
        first, last = (round(us / 1e6 - stage.server.wall() + stage.world.now - EPOCH) for us in (entry.scheduled, entry.until))
        found += [Was(tick, entry.status, entry.text, entry.attempt) for tick in range(first, last + 1)]
    return found


def ran(found: list[Was], first: int, last: int) -> list[int]:
    return [was.tick for was in found if was.status not in {"missed", "skipped"} and first <= was.tick <= last]


def after_a_pause(takes: float) -> Stage:
    """Thirty seconds of jobs each second, and no server for some of them."""
    stage = Stage(takes)
    stage.serve()
    begin, end = AWAY
    stage.until(begin)
    stage.server.hang()
    stage.until(end)
    stage.server.wake()
    stage.until(30.0)
    return stage


def test_after_a_pause_one_run_starts_late_and_the_others_are_told_of() -> None:
    stage = after_a_pause(takes=0.3)
    for how in ALL:
        found = told(stage, how)
        ticks = [was.tick for was in found]
        assert sorted(ticks) == list(range(min(ticks), max(ticks) + 1)), f"{how}: each tick is in the history, once"
        late = ran(found, 6, 13)
        if how["misfire"] == "all":
            assert late == list(range(6, 14)), how
        elif how["misfire"] == "skip" and how["grace"] == GRACE:
            assert late == [], how
            assert {was.text for was in found if was.status == "missed"} == {"it was later than its grace"}, how
        else:
            assert late == [13], how
            assert {was.text for was in found if was.status == "missed"} == {"a later tick was due, too"}, how
        assert ran(found, 18, 29) == list(range(18, 30)), f"{how}: then fresh ones, all"
        assert {was.status for was in found} <= {"ok", "missed", "skipped" if how["misfire"] == "all" else "ok"}, how
    stage.close()


def test_a_job_that_takes_longer_than_its_interval() -> None:
    """The case as it was observed: 8 s without a server, and a run of 2.4 s each second."""
    stage = after_a_pause(takes=2.4)
    for how in ALL:
        if how["misfire"] == "all" or how["overlap"] == "queue":
            continue  # they want each
        runs = [entry for entry in stage.entries(how) if entry.fence]
        late = [entry for entry in runs if entry.started - entry.scheduled > 1e6]
        assert late == [], f"{how}: a run began when a later tick was due"
        assert len([entry for entry in runs if entry.started - entry.scheduled > 0.1e6]) <= 1, how
        ticks = ran(told(stage, how), 17, 29)
        assert len(ticks) >= (4 if how["overlap"] == "skip" else 11), how
    stage.close()


def test_while_it_runs() -> None:
    """A tick that falls due is left out, waits, or runs beside; whatever misfire, grace and on_crash are."""
    stage = Stage(takes=1.5)
    stage.serve()
    stage.until(9.0)
    for how in ALL:
        found = told(stage, how)
        if how["overlap"] == "skip":
            assert {was.text for was in found if was.status == "skipped"} == {"it was still running"}, how
            assert {b - a for a, b in itertools.pairwise(ran(found, 1, 9))} == {2}, how
        else:
            assert {was.status for was in found} == {"ok"}, how
            waits = [entry.started - entry.scheduled > 0.3e6 for entry in stage.entries(how)]
            assert any(waits) is (how["overlap"] == "queue"), how
    stage.close()


@pytest.mark.parametrize("away", [False, True], ids=["served", "pause"])
def test_a_retry_is_an_attempt_and_no_tick(away: bool) -> None:
    """A process dies in the middle of tick 3, its lease ends at 6; somebody serves the jobs all the time, or from 9.5 on."""
    stage = Stage(takes=0.4, ttl=3.0)
    first = stage.serve()
    stage.until(3.2)
    first.process.crash()
    if away:
        stage.until(9.5)
    stage.takes = 0.1
    stage.serve()
    stage.until(15.0)
    for how in ALL:
        found = told(stage, how)
        again = how["on_crash"] == "again"
        attempts = [(was.status, was.attempt) for was in found if was.tick == 3]
        assert attempts == [("crashed", 1)] + [("ok", 2)] * again, how
        late = [tick for tick in ran(found, 4, 9) if tick != 3]
        if away and how["misfire"] == "once":
            assert late == ([] if again and how["overlap"] == "skip" else [9]), how
        if away and how["misfire"] == "once" and again and how["overlap"] == "skip":
            assert [was.text for was in found if was.tick == 9] == ["another run of it came first"]
        assert ran(found, 11, 14) == [11, 12, 13, 14], how
    stage.close()
