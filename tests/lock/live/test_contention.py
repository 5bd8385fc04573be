"""Minutes of contention with holders killed at random: exclusion by a counter, fences by a fence check, and both by the
checkers, from what each process has recorded."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from holdfast.testing import history
from holdfast.testing.recording import Recorder
from holdfast_lab.checkers import Coverage, check

if TYPE_CHECKING:
    from conftest import NewServer

SECONDS = 120

WORKER = """
import os, sys, time, holdfast, redis
from holdfast.testing.recording import Recorder, Register
client = redis.Redis.from_url(sys.argv[1])
lock = holdfast.Lock(sys.argv[1], "soak", ttl=2)
record = Recorder(f"{sys.argv[2]}/worker-{os.getpid()}")
while True:
    with record.holding(lock) as lease:
        # Not atomic on purpose. The fence check refuses a holder that was overtaken; whoever is in here alone loses no count.
        value = int(client.get("counter") or 0)
        def accept(fence):
            return holdfast.fencing.fenced_set(client, "counter", str(value + 1), fence)
        if record.write(lease, Register(f"{sys.argv[2]}/register", accept)):
            client.xadd("history", {"fence": lease.fence, "value": value + 1})
"""


@pytest.mark.soak
@pytest.mark.parametrize("restarts", [False, True], ids=["clients killed", "server killed too"])
def test_contention_with_kills(new_server: NewServer, restarts: bool, tmp_path: Path) -> None:
    """Two minutes, eight workers, one killed -9 about every second."""
    server = new_server("--appendfsync", "always", port=True, appendonly=True)
    client = redis.Redis.from_url(server.url)
    command = [sys.executable, "-W", "ignore", "-c", WORKER, server.url, str(tmp_path)]
    workers = [subprocess.Popen(command) for _ in range(8)]
    kills = 0
    with Recorder(tmp_path / "observer") as record:

        def kill(worker: subprocess.Popen[bytes]) -> None:
            os.kill(worker.pid, signal.SIGKILL)
            worker.wait()
            record.note("crashed", f"p{worker.pid}")

        try:
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                time.sleep(random.uniform(0.5, 1.5))
                victim = random.randrange(len(workers))
                kill(workers[victim])
                workers[victim] = subprocess.Popen(command)
                kills += 1
                if restarts and kills % 10 == 0:
                    record.note("fault", "server", note="restart")
                    server.kill()
                    server.restart()
                    record.note("healed", "server", note="restart")
        finally:
            for worker in workers:
                kill(worker)
    entries: Any = client.xrange("history")
    noted = [(int(row[b"fence"]), int(row[b"value"])) for _, row in entries]
    fences = [fence for fence, _ in noted]
    assert len(noted) > 5000, "too little happened to prove anything"
    assert kills > 60
    assert fences == sorted(set(fences)), "a fence was given twice, or fell"
    values = [value for _, value in noted]
    # A worker may die between the write and its note, so a value may be missing from the history, never be there twice.
    assert values == sorted(set(values)), "a count was lost: two were inside"
    coverage = Coverage()
    assert check(history.merge(*map(history.read, tmp_path.iterdir())), coverage=coverage) == []
    assert coverage.missing({"taken": 5000, "contended": 1000, "died_asking": 20, "fault crash": 60}) == [], str(coverage)
