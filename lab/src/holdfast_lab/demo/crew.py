"""The processes of ``holdfast demo schedule``. Each serves a schedule and, for comparison, runs a job by a plain timer.

Their clocks, ``time.time()``, are wrong by some seconds. A list on the server gets a record of each run, with the correct time.
"""

from __future__ import annotations

import json
import os
import threading
import time

import redis

import holdfast
from holdfast.cli.demo.actors import act, hear, say
from holdfast.cli.demo.stage import client

TTL = 2.0
"""Lease time of a run in seconds."""

KEPT = 600
"""Seconds after which the list expires, in case the demonstration is killed."""

_truly = time.time


class Paper:
    """The list on the server with a record of each run."""

    def __init__(self, url: str, key: str) -> None:
        self._client: redis.Redis = client(url)
        self._key = key
        self._client.ping()  # connect before the first run

    def write(self, **facts: object) -> None:
        with self._client.pipeline() as pipe:
            pipe.rpush(self._key, json.dumps({**facts, "pid": os.getpid(), "at": _truly()}))
            pipe.expire(self._key, KEPT)
            pipe.execute()


def serve(url: str, name: str, key: str, skew: str) -> None:
    """Run a process: serve the schedule ``name``, run the timer's job, and run the jobs that are named on stdin.

    ``key`` is the list for the records, and ``skew`` the number of seconds to add to this process's clock.
    """
    seconds = float(skew)
    time.time = lambda: _truly() + seconds
    paper = Paper(url, key)
    jobs = holdfast.Schedule(url, name)

    @jobs.cron("* * * * * *", ttl=TTL)
    def second(run: holdfast.schedule.Run) -> None:
        paper.write(job="second", tick=run.scheduled)

    @jobs.every(0.5, ttl=TTL, misfire="all")
    def half(run: holdfast.schedule.Run) -> None:
        paper.write(job="half", tick=run.scheduled)

    @jobs.cron("@yearly", ttl=TTL, on_crash="again")
    def long(run: holdfast.schedule.Run) -> None:
        paper.write(job="long", tick=run.scheduled, attempt=run.attempt, fence=run.fence)
        if run.attempt == 1:
            run.cancelled.wait()

    threading.Thread(target=take_turns, args=(url, f"{key}:lock", Paper(url, key)), daemon=True).start()
    with jobs:
        say(ready=True)
        while job := hear():
            jobs.run_now(job)


def take_turns(url: str, lock: str, paper: Paper) -> None:
    """At each second of this process's clock, run a job if a plain ``SET NX`` lock is free, as many programs do.

    ``lock`` is the key of the lock.
    """
    server = client(url)
    while True:
        tick = int(time.time()) + 1
        time.sleep(tick - time.time())
        if server.set(lock, os.getpid(), nx=True, px=5000):
            paper.write(job="bare", tick=tick)
            server.delete(lock)


if __name__ == "__main__":
    act({"serve": serve})
