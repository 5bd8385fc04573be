"""Schedules in web applications of several processes: the one of docs/schedule-web.md under uvicorn, one under gunicorn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

import holdfast
from docs.pages import ROOT, blocks
from lock.faults.test_clocks import Clock, library  # noqa: F401 (a fixture)
from support.servers import PrivateServer

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.soak

PATIENCE = 20.0

WSGI = """
import os, holdfast
jobs = holdfast.Schedule(os.environ["HOLDFAST_URL"], "shop")

@jobs.every(0.5, ttl=3)
def poll():
    return os.getpid()

def app(environ, start_response):
    start_response("200 OK", [])
    return [b""]
"""
CONFIGURATION = """
def post_worker_init(worker):
    import shop
    shop.jobs.start()

def worker_exit(server, worker):
    import shop
    shop.jobs.stop(5)
"""


@contextmanager
def program(*arguments: str, url: str, directory: Path, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A server of a web application: told to end, and ended, with all of its processes."""
    environment = {**os.environ, "HOLDFAST_URL": url, "HOME": str(directory), **(env or {})}
    process = subprocess.Popen([sys.executable, "-m", *arguments], cwd=directory, env=environment, start_new_session=True)
    try:
        yield process
        process.terminate()
        assert process.wait(PATIENCE) in {0, -signal.SIGTERM}
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Return the response, once there is one."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.002)
    return found


def served_by(client: redis.Redis, count: int) -> bool:
    """So many processes take ticks."""
    return client.zcard("hf:schedule:{shop}:serving") == count


def page_app() -> str:
    """The application of the page."""
    page = blocks(ROOT / "docs" / "schedule-web.md", "python")
    return next(block.text for block in page if block.text.startswith("# shop.py\n"))


def ticks(url: str, job: str, *, status: str = "ok") -> list[float]:
    """Scheduled times of the runs in its history, in order."""
    return sorted(record.scheduled for record in holdfast.Schedule(url, "shop").history(job) if record.status == status)


def test_every_tick_once_under_uvicorn(new_server: NewServer, tmp_path: Path, library: Path) -> None:  # noqa: F811
    """Three processes, two of them workers of one uvicorn; the clock of the third is 5 s ahead. One is killed while it runs."""
    (tmp_path / "shop.py").write_text(page_app(), encoding="utf-8")
    running = new_server(port=True)
    clock = Clock(library, tmp_path / "clock")
    clock.set(step=5)
    uvicorn = ("uvicorn", "shop:app", "--port", "0", "--log-level", "warning")
    with ExitStack() as stack:
        stack.callback(clock.close)
        client = stack.enter_context(redis.Redis.from_url(running.url, decode_responses=True))
        stack.enter_context(program(*uvicorn, "--workers", "2", url=running.url, directory=tmp_path))
        ahead = stack.enter_context(program(*uvicorn, url=running.url, directory=tmp_path, env=clock.environment))
        until(lambda: served_by(client, 3))
        tick = kill_who_runs(client, but=ahead.pid)
        # Somebody else runs the same tick, when the lease has ended.
        again = until(lambda: [line.split() for line in client.lrange("shop:invoices", 0, -1) if line.startswith(f"{tick} 2 ")])
        time.sleep(2)
        assert len(again) == 1
        for job, every, least in (("count_orders", 1, 5), ("send_invoices", 2, 2)):
            found = ticks(running.url, job)
            assert len(found) >= least
            assert found == [found[0] + every * n for n in range(len(found))], job
        hosts = Counter(record.host for record in holdfast.Schedule(running.url, "shop").history("count_orders"))
        assert sum(hosts.values()) == int(client.get("shop:counted") or 0)
    assert ticks(running.url, "send_invoices", status="crashed") == [tick]


def kill_who_runs(client: redis.Redis, but: int) -> int:
    """Kill the worker that sends invoices, while it does: answers with the tick."""
    for _ in range(20):
        client.delete("shop:invoices")
        tick, attempt, pid = str(until(lambda: client.lindex("shop:invoices", 0))).split()
        if int(pid) != but:
            os.kill(int(pid), signal.SIGKILL)
            assert attempt == "1"
            return int(tick)
    pytest.fail("one process has run everything")


def test_every_tick_once_under_gunicorn(new_server: NewServer, tmp_path: Path) -> None:
    """Its workers are forked, and begin to serve then."""
    (tmp_path / "shop.py").write_text(WSGI, encoding="utf-8")
    (tmp_path / "gunicorn.conf.py").write_text(CONFIGURATION, encoding="utf-8")
    running: PrivateServer = new_server(port=True)
    with redis.Redis.from_url(running.url) as client:
        with program("gunicorn", "-w", "3", "-b", "127.0.0.1:0", "shop:app", url=running.url, directory=tmp_path) as process:
            until(lambda: served_by(client, 3))
            found = until(lambda: len(ticks(running.url, "poll")) >= 6 and ticks(running.url, "poll"))
            assert found == [found[0] + n / 2 for n in range(len(found))]
        assert process.returncode == 0
