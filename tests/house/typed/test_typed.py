"""Type checkers accept the programs of `right`, and refuse each of those of `wrong`. mypy checks both in `make types`."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a type checker. pyright looks for packages where the ``python`` of the PATH does."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = sys.executable, "-m", *command
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)


def errors(*command: str) -> str:
    """Return what a type checker prints if it finds an error. A ``type: ignore`` that is not needed is one."""
    done = run(*command)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.turns("type checkers")
def test_pyright() -> None:
    assert errors("pyright", "--project", "tests/house/typed") == ""


@pytest.mark.turns("type checkers")
def test_users_see_the_types_of_what_is_public() -> None:
    """An attribute without annotation may have another type for each checker, and so has everything that uses it."""
    report = json.loads(run("pyright", "--verifytypes", "holdfast", "--ignoreexternal", "--outputjson").stdout)[
        "typeCompleteness"
    ]
    unclear = [one for one in report["symbols"] if one["isExported"] and (not one["isTypeKnown"] or one["isTypeAmbiguous"])]
    causes = [cause["message"] for one in unclear for cause in one["diagnostics"]]
    assert report["exportedSymbolCounts"]["withKnownType"] > 1000
    assert report["completenessScore"] >= 0.99, (sorted(one["name"] for one in unclear), causes)


WITHOUT_VALKEY = """
import redis
import redis.asyncio
import valkey  # type: ignore[import-not-found]

import holdfast
from holdfast import aio

holdfast.Lock("redis://localhost", "x")
holdfast.Lock(redis.Redis(), "x")
holdfast.connect(redis.Redis()).cache("x")
aio.Lock(redis.asyncio.Redis(), "x")
holdfast.Lock(42, "x")  # type: ignore[arg-type]
holdfast.Lock(redis.asyncio.Redis(), "x")  # type: ignore[arg-type]
aio.Lock(redis.Redis(), "x")  # type: ignore[arg-type]
"""


@pytest.mark.turns("type checkers")
def test_mypy_without_valkey(tmp_path: Path) -> None:
    """The clients of valkey-py are known by their methods, so that the types are right where only redis-py is installed."""
    site = Path(redis.__file__).parents[1]
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "redis").symlink_to(site / "redis")
    (tmp_path / "site" / "holdfast").symlink_to(ROOT / "src" / "holdfast")
    program = tmp_path / "program.py"
    program.write_text(WITHOUT_VALKEY)
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\nfollow_imports = silent\n")
    options = ["--no-site-packages", "--config-file", str(config), "--cache-dir", str(tmp_path / "cache")]
    command = [sys.executable, "-m", "mypy", *options, str(program)]
    environment = {**os.environ, "MYPYPATH": str(tmp_path / "site")}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout == "Success: no issues found in 1 source file\n"


@pytest.mark.parametrize("name", ["right", "wrong"])
def test_there_are_thirty_programs_and_each_wrong_one_has_a_mistake(name: str) -> None:
    text = (HERE / f"{name}.py").read_text()
    lines = text.splitlines()
    programs = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert len(programs) >= 30
    mistakes = {one.name: sum("type: ignore" in line for line in lines[one.lineno : one.end_lineno]) for one in programs}
    assert {program for program, count in mistakes.items() if bool(count) != (name == "wrong")} == set()
