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
from typing import Any

import pytest
import redis

import holdfast
from holdfast._core.lock.replies import CLAIM_WINDOW_S
from support.servers import PrivateServer
from support.witness import in_thread, queue_length, until

CROWD = """
import asyncio, sys
from holdfast import aio

KINDS = {
    "FairLock": lambda url, name: aio.FairLock(url, name),
    "Semaphore": lambda url, name: aio.Semaphore(url, name, 2),
    "readers": lambda url, name: aio.RWLock(url, name).read,
    "writers": lambda url, name: aio.RWLock(url, name).write,
}

async def main():
    kind, url, name, count = sys.argv[1:]
    await asyncio.gather(*(KINDS[kind](url, name).acquire() for _ in range(int(count))))

asyncio.run(main())
"""
SLACK = 1.0
"""Seconds: a busy machine. One more claim would be twice that."""

KINDS: dict[str, Callable[[str, str], list[Any]]] = {
    "FairLock": lambda url, name: [holdfast.FairLock(url, name, ttl=60) for _ in range(2)],
    "Semaphore": lambda url, name: [holdfast.Semaphore(url, name, 2, weight=2, ttl=60) for _ in range(2)],
    "readers": lambda url, name: [holdfast.RWLock(url, name, ttl=60).write for _ in range(2)],
    "writers": lambda url, name: [holdfast.RWLock(url, name, ttl=60).write for _ in range(2)],
}
"""The holder, and the last waiter, by the wishes of the others. The last waiter wants all of it."""

Start = Callable[[str, str, int], subprocess.Popen[bytes]]


@pytest.fixture
def start(server: PrivateServer) -> Iterator[Start]:
    """Starts a process that waits so many times."""
    with ExitStack() as stack:

        def started(kind: str, name: str, count: int) -> subprocess.Popen[bytes]:
            process = subprocess.Popen([sys.executable, "-c", CROWD, kind, server.url, name, str(count)])
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


@pytest.mark.turns
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("processes", "end"), [(1, kill), (1, stop), *(pytest.param(10, end, marks=pytest.mark.soak) for end in (kill, stop))]
)
@pytest.mark.fault(74)
def test_a_hundred_of_them(
    server: PrivateServer,
    look: redis.Redis,
    start: Start,
    kind: str,
    processes: int,
    end: Callable[[subprocess.Popen[bytes]], None],
) -> None:
    name = f"dead-{kind}-{processes}-{end.__name__}"
    holder, last = KINDS[kind](server.url, name)
    holder.acquire()
    crowd = [start(kind, name, 100 // processes) for _ in range(processes)]
    until(lambda: queue_length(look, name) == 100, 30)  # ten processes have to start
    served = in_thread(last.acquire)
    until(lambda: queue_length(look, name) == 101)
    for process in crowd:
        end(process)
    before = time.monotonic()
    holder.release()
    assert served.result(10)
    took = time.monotonic() - before
    last.release()
    assert took < (CLAIM_WINDOW_S if end is stop else 0) + SLACK
