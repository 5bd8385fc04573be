"""The clocks that modules read: `holdfast._clock.clock` for all leases and waits, and others for the reasons listed here."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import _clock
from holdfast._local.guardian import program
from holdfast._net.system import SYSTEM

ROOT = Path(holdfast.__file__).parent

PROGRAM = "it is part of a program that starts without the package, and it reads the same clock: a test below"
GUARDIAN = "the times are deadlines that the guardian gets, which is another process"
LIMIT = "a time limit of requests, which passes on the same clock as those of sockets and event loops"
CHILD = "a limit for another process to start, answer or end"
SHOWN = "times of several processes, which a demonstration shows; those of holdfast_lab read time.monotonic"
REAL = "real time, in a process whose clock a test moves"
RECORD = "a record that people read"
UNIX = "operations ask for the Unix time"

OTHERS = {
    "time": {
        "_clock.py": "it is the module with the clocks",
        "_lazy.py": "`import holdfast` imports no module only for the limit of a wait before a fork",
        "_local/guardian/program.py": PROGRAM,
        "_local/server/supervisor.py": "it is a program that starts without the package; no lease depends on its limits",
    },
    "loop": {
        "_net/aio_connection.py": "it is compared with the time of a timer of the event loop",
        "_runtime/drivers/aio_quorum.py": "a time limit that passes on the same clock as the timers of the event loop",
    },
    "guardian": {
        "_local/guardian/channel.py": "it tells the guardian of a command when the lease ends",
        "_local/guardian/guardian.py": "it is the guardian of a command",
        "cli/supervise.py": GUARDIAN,
        "schedule/command.py": GUARDIAN,
    },
    "monotonic": {
        "_local/server/process.py": CHILD,
        "_local/server/start.py": CHILD,
        "_net/aio_connection.py": LIMIT,
        "_net/sentinel.py": LIMIT,
        "_net/sync_connection.py": LIMIT,
        "_net/system.py": "it passes the clock on to connections, and the simulator replaces it",
        "_net/wait_connection.py": LIMIT,
        "cli/demo/actors.py": SHOWN,
        "cli/demo/scenes.py": SHOWN,
        "cli/demo/show.py": SHOWN,
        "cli/demo/stage.py": SHOWN,
        "cli/server.py": CHILD,
        "doctor/nodes.py": LIMIT,
        "doctor/probe.py": "round trips, and the limit of a scan",
        "testing/inmemory/backend.py": REAL,
        "testing/inmemory/inside.py": REAL,
        "testing/inmemory/serving.py": REAL,
        "testing/recording.py": "a history joins the records of several processes, and a test moves the clock of only one",
    },
    "wall": {
        "_runtime/drivers/aio.py": UNIX,
        "_runtime/drivers/sync.py": UNIX,
        "_runtime/keeper/wait_report.py": "other processes compare it",
        "_runtime/process.py": RECORD,
        "cli/schedule.py": "the next ticks of a timetable, which `--check` prints",
        "cli/watch.py": RECORD,
        "doctor/probe.py": "it is compared with the time of the server",
        "legacy/_timestamp.py": "the values of timestamp locks are Unix times",
        "testing/inmemory/serving.py": "the time of the server, which TIME returns",
    },
}
"""For each other clock, the modules that read it, each with the reason.

"time" and "loop": functions of Python, and the clock of an event loop. "guardian": `program.clock`. "monotonic" and "wall":
functions of `holdfast._clock`.
"""

WAITS = {"sleep", "struct_time"}
"""Names of the module `time` that do not read the time."""


def readings(source: str) -> Iterator[str]:  # noqa: C901 - one case for each way to read the time
    """Return the clocks, other than `clock`, that a module reads. They are the keys of `OTHERS`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                yield from ("time" for alias in names if alias.name == "time" and alias.asname)
            case ast.ImportFrom("time", names):
                yield from ("time" for alias in names if alias.name not in WAITS)
            case ast.ImportFrom("holdfast._clock", names):
                yield from (alias.name for alias in names if alias.name != "clock")
            case ast.ImportFrom("holdfast._local.guardian.program", names):
                yield from ("guardian" for alias in names if alias.name == "clock")
            case ast.Attribute(ast.Name("time"), name) if name not in WAITS:
                yield "time"
            case ast.Attribute(ast.Name("datetime" | "date"), "now" | "utcnow" | "today"):
                yield "time"
            case ast.Attribute(ast.Name("program" | "guardian_program"), "clock"):
                yield "guardian"
            case ast.Call(ast.Attribute(owner, "time"), []) if ast.unparse(owner) != "time":
                yield "loop"
            case ast.Attribute(_, "monotonic"):
                yield "monotonic"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time\ntime.monotonic()", "time"),
        ("import time\ntime.perf_counter", "time"),
        ("from time import time_ns", "time"),
        ("import time as t", "time"),
        ("datetime.now(tz=UTC)", "time"),
        ("self.loop.time()", "loop"),
        ("future.get_loop().time()", "loop"),
        ("guardian_program.clock()", "guardian"),
        ("from holdfast._local.guardian.program import clock", "guardian"),
        ("self._system.monotonic()", "monotonic"),
        ("from holdfast._clock import clock, wall", "wall"),
        ("from holdfast._clock import clock\nimport time\ntime.sleep(clock())", ""),
        ("self.process.clock()", ""),
        ("self.time(now)", ""),
    ],
)
def test_readings_are_found(source: str, found: str) -> None:
    assert set(readings(source)) == ({found} if found else set())


def test_each_module_that_reads_another_clock_has_a_reason() -> None:
    found = {(clock, path.relative_to(ROOT).as_posix()) for path in ROOT.rglob("*.py") for clock in readings(path.read_text())}
    assert found == {(clock, module) for clock, modules in OTHERS.items() for module in modules}


def test_guardians_read_the_clock_of_leases() -> None:
    before = _clock.clock()
    between = program.clock()
    assert before <= between <= _clock.clock()


def test_connections_read_the_clock_of_sockets_and_event_loops() -> None:
    assert SYSTEM.monotonic is time.monotonic
    assert SYSTEM.clock is _clock.clock
