"""Six processes serve a schedule for a minute, with clocks that are seconds off, and are killed again and again."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

import holdfast
from lock.faults.test_clocks import Clock, library
from support.witness import until

if TYPE_CHECKING:
    from conftest import NewServer

__all__ = ["library"]

SERVER = Path(__file__).with_name("scheduler.py")
SECONDS = 60
JOBS = [
    {"name": "cron", "cron": "* * * * * *", "takes": 0.1, "ttl": 2.0, "on_crash": "leave", "overlap": "queue"},
    {"name": "interval", "every": 0.5, "takes": 0.1, "ttl": 2.0, "on_crash": "again", "overlap": "allow"},
]


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1])
def test_every_tick_once_whoever_is_killed(library: Path, new_server: NewServer, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    server = new_server(port=True, appendonly=True)
    clocks = [Clock(library, tmp_path / f"clock{number}") for number in range(6)]

    def start(number: int) -> subprocess.Popen[str]:
        clocks[number].set(step=rng.uniform(-5, 5))
        api = ("threads", "asyncio")[number % 2]
        command: list[str] = [
            sys.executable,
            str(SERVER),
            server.url,
            "default",
            api,
            json.dumps([dict(job, history=1000) for job in JOBS]),
        ]
        environment = {**os.environ, **clocks[number].environment}
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True, env=environment)

    boss = holdfast.Schedule(server.url, "jobs")
    runners = [start(number) for number in range(6)]
    client: Any = redis.Redis.from_url(server.url)
    until(lambda: client.llen("runs") > 3, 30)
    began = server_time(client)
    kills = 0
    while server_time(client) < began + SECONDS:
        time.sleep(rng.uniform(0.2, 1.5))
        number = rng.randrange(6)
        runners[number].kill()
        runners[number].wait()
        kills += 1
        runners[number] = start(number)
    ended = server_time(client)
    time.sleep(5)
    for runner in runners:
        runner.terminate()
    assert [runner.wait(20) for runner in runners] == [0] * 6
    runs = [line.decode().split() for line in client.lrange("runs", 0, -1)]
    client.delete("runs")
    starts: dict[tuple[str, str], list[int]] = {}
    for kind, job, tick, attempt, *_ in runs:
        if kind == "began":
            starts.setdefault((job, tick), []).append(int(attempt))
    assert all(len(set(attempts)) == len(attempts) for attempts in starts.values()), "an attempt begins once"
    assert all(attempts == [1] for (job, _), attempts in starts.items() if job == "cron"), "left at that"
    counts = {}
    for job, period in (("cron", 1.0), ("interval", 0.5)):
        records = boss.history(job, 1000)
        due = [n * period for n in range(math.ceil(began / period), math.floor(ended / period) + 1)]
        for tick in due:
            mine = [run for run in records if run.scheduled <= tick + 1e-4 and tick <= run.until + 1e-4]
            assert mine, f"{job} {tick}: forgotten"
            good = [run for run in mine if run.status == "ok"]
            assert len(good) <= 1, f"{job} {tick}: twice"
            assert good or any(run.status in {"crashed", "cancelled"} for run in mine), f"{job} {tick}: {mine}"
            if job == "interval":
                assert good or len(mine) == 3, f"{job} {tick}: not begun again"
        counts[job] = {status: sum(run.status == status for run in records) for status in {run.status for run in records}}
    print(f"\n{kills} kills, {counts}, {sum(len(a) > 1 for a in starts.values())} ticks begun again")
    for clock in clocks:
        clock.close()


def server_time(client: Any) -> float:
    seconds, micros = client.time()
    return float(seconds) + float(micros) / 1e6
