"""Minutes of contention with holders killed at random: exclusion by a counter, fences by a guard."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis

if TYPE_CHECKING:
    from conftest import NewServer

WORKER = """
import sys, time, holdfast, redis
client = redis.Redis.from_url(sys.argv[1])
lock = holdfast.Lock(sys.argv[1], "soak", ttl=2)
while True:
    with lock as lease:
        # Not atomic on purpose. The guard refuses a holder who was overtaken; whoever is in here alone loses no count.
        value = int(client.get("counter") or 0)
        if holdfast.guard.guarded_set(client, "counter", str(value + 1), lease.fence):
            client.xadd("history", {"fence": lease.fence, "value": value + 1})
"""


@pytest.mark.soak
@pytest.mark.parametrize("restarts", [False, True], ids=["clients killed", "server killed too"])
def test_contention_with_kills(new_server: NewServer, restarts: bool) -> None:
    """Two minutes, eight workers, one killed -9 about every second."""
    server = new_server("--appendfsync", "always", port=True, appendonly=True)
    client = redis.Redis.from_url(server.url)
    command = [sys.executable, "-W", "ignore", "-c", WORKER, server.url]
    workers = [subprocess.Popen(command) for _ in range(8)]
    kills = 0
    try:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            time.sleep(random.uniform(0.5, 1.5))
            victim = random.randrange(len(workers))
            os.kill(workers[victim].pid, signal.SIGKILL)
            workers[victim].wait()
            workers[victim] = subprocess.Popen(command)
            kills += 1
            if restarts and kills % 10 == 0:
                server.kill()
                server.restart()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    entries: Any = client.xrange("history")
    history = [(int(row[b"fence"]), int(row[b"value"])) for _, row in entries]
    fences = [fence for fence, _ in history]
    assert len(history) > 5000, "too little happened to prove anything"
    assert kills > 60
    assert fences == sorted(set(fences)), "a fence was given twice, or fell"
    values = [value for _, value in history]
    # A worker may die between the write and its note, so a value may be missing from the history, never be there twice.
    assert values == sorted(set(values)), "a count was lost: two were inside"
