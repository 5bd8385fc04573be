"""Many waiters in front of a live one whose processes have died, or hang: all together they cost it one claim, two seconds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from holdfast import FairLock
from holdfast._core.mutex import CLAIM
from holdfast._servers.process import PrivateServer
from live.witness import in_thread, queue_length, until

CROWD = """
import asyncio, sys
from holdfast import aio

async def main():
    url, name, count = sys.argv[1:]
    await asyncio.gather(*(aio.FairLock(url, name).acquire() for _ in range(int(count))))

asyncio.run(main())
"""
SLACK = 1.0
"""Seconds: a busy machine. One more claim would be twice that."""

Start = Callable[[str, int], subprocess.Popen[bytes]]


@pytest.fixture
def start(server: PrivateServer) -> Iterator[Start]:
    """Starts a process that waits so many times."""
    with ExitStack() as stack:

        def started(name: str, count: int) -> subprocess.Popen[bytes]:
            process = subprocess.Popen([sys.executable, "-c", CROWD, server.url, name, str(count)])
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield started


@pytest.fixture
def look(server: PrivateServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        yield client


def stop(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    ("processes", "end"), [(1, kill), (1, stop), *(pytest.param(10, end, marks=pytest.mark.soak) for end in (kill, stop))]
)
def test_a_hundred_of_them(
    server: PrivateServer, look: redis.Redis, start: Start, processes: int, end: Callable[[subprocess.Popen[bytes]], None]
) -> None:
    name = f"dead-{processes}-{end.__name__}"
    holder, last = FairLock(server.url, name, ttl=60), FairLock(server.url, name, ttl=60)
    holder.acquire()
    crowd = [start(name, 100 // processes) for _ in range(processes)]
    until(lambda: queue_length(look, name) == 100)
    served = in_thread(last.acquire)
    until(lambda: queue_length(look, name) == 101)
    for process in crowd:
        end(process)
    before = time.monotonic()
    holder.release()
    assert served.result(10)
    took = time.monotonic() - before
    last.release()
    assert took < (CLAIM if end is stop else 0) + SLACK
