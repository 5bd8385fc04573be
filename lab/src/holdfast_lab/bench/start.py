"""Measure ``holdfast run x -- true``: the time and memory of a lock around a command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from holdfast_lab.bench.plan import PREFIX, Plan, turns
from holdfast_lab.bench.report import Figure, Result, Row

RUN = "holdfast run x -- true"
REDIS = "python -c 'import redis'"
BARE = "python -c pass"
FLOCK = "flock FILE true"

# A separate program, because a child's peak memory includes the copy of its parent. So the parent has to be small.
_LAUNCH = """
import json, os, sys, time
for line in sys.stdin:
    command = json.loads(line)
    start = time.monotonic()
    pid = os.posix_spawn(command[0], command, os.environ)
    _, status, used = os.wait4(pid, 0)
    print(json.dumps([time.monotonic() - start, used.ru_maxrss, status]), flush=True)
"""


def measure(plan: Plan) -> Result:
    result = Result("a command under a lock, from start to end", chart="wall_ms")
    with tempfile.TemporaryDirectory() as directory:
        commands = _commands(Path(directory))
        found = _run(commands, plan)
    for name, each in found.items():
        walls = [1000 * wall for wall, _ in each]
        values = {"wall_ms": median(walls), "n": float(len(each))}
        # The kernel counts the launcher's memory in a child's peak. flock needs less than that, so its own peak is unknown.
        if name != FLOCK:
            values["peak_mb"] = max(peak for _, peak in each) / 1e6
        result.rows.append(Row(name, values, rounds=walls))
    wall = result.value(RUN, "wall_ms")
    result.compare(f"{RUN} / {REDIS}, wall", wall, result.value(REDIS, "wall_ms"), "≤", 0.45)
    result.compare(f"{RUN} / {BARE}, wall", wall, result.value(BARE, "wall_ms"))
    result.figures.append(Figure(f"{RUN}: peak memory", result.value(RUN, "peak_mb") or 0.0, "MB", "≤", 30))
    return result


def _commands(directory: Path) -> dict[str, list[str]]:
    true = shutil.which("true") or "/bin/true"
    script = Path(sys.executable).with_name("holdfast")
    ours = [str(script)] if script.exists() else [sys.executable, "-P", "-m", "holdfast"]
    commands = {
        RUN: [*ours, "run", f"{PREFIX}start", "--", true],
        REDIS: [sys.executable, "-P", "-c", "import redis"],
        BARE: [sys.executable, "-c", "pass"],
    }
    if flock := shutil.which("flock"):
        commands[FLOCK] = [flock, str(directory / "lock"), true]
    return commands


def _run(commands: dict[str, list[str]], plan: Plan) -> dict[str, list[tuple[float, int]]]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["HOLDFAST_URL"] = plan.url
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in commands}
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LAUNCH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as launcher:
        assert launcher.stdin is not None
        assert launcher.stdout is not None
        rounds = max(2, int(8 * plan.seconds)) + 1
        for number, name in enumerate(turns(list(commands), rounds)):
            launcher.stdin.write(json.dumps(commands[name]) + "\n")
            launcher.stdin.flush()
            wall, peak, status = json.loads(launcher.stdout.readline())
            if status:
                raise RuntimeError(f"{name} ended with status {status}")
            if number >= len(commands):  # the first round compiles modules and fills caches, so it is not counted
                found[name].append((wall, peak * (1 if sys.platform == "darwin" else 1024)))
        launcher.stdin.close()
    return found
