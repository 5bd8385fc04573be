"""A process that serves a schedule, for the tests: each run is told of on stdout, and to a list on the server.

    python scheduler.py URL NAME API JOBS

JOBS: JSON, of each job {"name", "every" or "cron", "takes": seconds, and options}.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import redis

import holdfast
import holdfast.aio
from holdfast.schedule import Cron, Every, Run
from holdfast.schedule.schedule import BaseSchedule


def declare(schedule: BaseSchedule[Any], jobs: list[dict[str, Any]], told: Callable[[str], object], *, tasks: bool) -> None:
    for facts in jobs:
        name, takes = facts.pop("name"), facts.pop("takes", 0.0)
        when = Every(facts.pop("every")) if "every" in facts else Cron(facts.pop("cron"))

        def function(run: Run, takes: float = takes) -> str:
            told(f"began {run.job} {run.scheduled:.6f} {run.attempt} {run.fence}")
            run.cancelled.wait(takes)
            run.check()
            told(f"ended {run.job} {run.scheduled:.6f} {run.attempt} {run.fence}")
            return "done"

        async def coroutine(run: Run, takes: float = takes) -> str:
            told(f"began {run.job} {run.scheduled:.6f} {run.attempt} {run.fence}")
            await asyncio.sleep(takes)
            told(f"ended {run.job} {run.scheduled:.6f} {run.attempt} {run.fence}")
            return "done"

        schedule.add(coroutine if tasks else function, when, name=name, **facts)


def main() -> None:
    url, name, api, jobs = sys.argv[1:]
    client = redis.Redis.from_url(url)

    def told(line: str) -> None:
        client.rpush("runs", f"{line} {time.time():.3f}")
        sys.stdout.write(f"{line}\n")  # at once: other threads do the same
        sys.stdout.flush()

    schedule: Any = (holdfast if api == "threads" else holdfast.aio).Schedule(url, name)
    declare(schedule, json.loads(jobs), told, tasks=api == "asyncio")
    print("ready", flush=True)
    if api == "threads":
        schedule.run(2)
    else:
        asyncio.run(schedule.run(2))


if __name__ == "__main__":
    main()
