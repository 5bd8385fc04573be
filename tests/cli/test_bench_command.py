"""``holdfast bench``, on real servers: what it writes, what it refuses, and that nothing is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import redis

from cli.commands import PROGRAM
from holdfast_lab.bench.report import MEASURES, SCHEMA
from holdfast_lab.bench.scenarios import SCENARIOS
from support.servers import PrivateServer
from support.sources import turn


def bench(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run it to its end, in the environment of the tests."""
    environment = {**os.environ, "PYTHONWARNINGS": "error", **(env or {})}
    return subprocess.run(
        [*PROGRAM, "bench", *arguments], capture_output=True, text=True, check=False, timeout=300, env=environment
    )


CHARTED = {"threads", "capacity"}
IN_TURN = {*sorted(SCENARIOS, key=lambda name: turn(f"bench {name}"))[:3], *CHARTED}
"""The scenarios that are measured in this run: others after each change of a source, and in the soak all."""


@pytest.fixture(scope="module")
def folder(server: PrivateServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a short run of the scenarios whose turn it is: its document, its charts, and its output."""
    return measured(tmp_path_factory.mktemp("bench"), server, *sorted(IN_TURN, key=[*SCENARIOS].index))


def measured(folder: Path, server: PrivateServer, *scenarios: str) -> Path:
    file, charts = folder / "new" / "results.json", folder / "charts"
    done = bench(*scenarios, "--seconds", "0.05", "--url", server.url, "--output", str(file), "--charts", str(charts))
    assert (done.returncode, done.stderr) == (0, "")
    (folder / "said").write_text(done.stdout, encoding="utf-8")
    with redis.Redis.from_url(server.url) as client:
        assert list(client.scan_iter("*holdfast-bench:*")) == []
    return folder


def document_in(folder: Path) -> Any:
    return json.loads((folder / "new" / "results.json").read_text(encoding="utf-8"))


@pytest.mark.soak
def test_without_names_all_are_measured(server: PrivateServer, tmp_path: Path) -> None:
    check_folder(measured(tmp_path, server), SCENARIOS)


@pytest.mark.turns("bench")
def test_several_scenarios_are_in_one_document(folder: Path) -> None:
    check_folder(folder, IN_TURN)
    document = document_in(folder)
    assert document["schema"] == SCHEMA
    assert document["options"] == {"seconds": 0.05, "quick": False, "server": "given"}
    assert {"cpu", "cores", "system", "python", "server", "packages", "load", "load_after"} <= set(document["machine"])
    assert document["measures"].keys() == MEASURES.keys()


def check_folder(folder: Path, scenarios: Collection[str]) -> None:
    """Each of these scenarios, and no other, is measured and told."""
    said = (folder / "said").read_text(encoding="utf-8")
    rows = document_in(folder)["scenarios"]
    assert [found["name"] for found in rows] == [name for name in SCENARIOS if name in scenarios]
    for found in rows:
        check_scenario(found)
        for row in found["contenders"]:
            assert row["contender"] in said
        for figure in found["figures"]:
            assert figure["name"] in said


def check_scenario(found: dict[str, Any]) -> None:
    """The shape that docs/benchmark-details.md describes."""
    assert found.keys() == {"name", "title", "seconds", "contenders", "figures", "notes"}
    assert len(found["contenders"]) >= 1
    for row in found["contenders"]:
        assert row.keys() == {"group", "contender", "values", "rounds"}
        assert set(row["values"]) <= set(MEASURES)
        assert all(value is None or value >= 0 for value in row["values"].values()), row
    for figure in found["figures"]:
        assert figure.keys() == {"name", "value", "unit", "relation", "target", "held"}
        assert (figure["held"] is None) == (figure["target"] is None) == (figure["relation"] is None)


@pytest.mark.turns("bench")
def test_without_url_a_server_is_started_and_the_named_one_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    done = bench("threads", "--seconds", "0.05", "--output", str(file), env={"HOLDFAST_URL": "redis://127.0.0.1:1"})
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(file.read_text(encoding="utf-8"))["options"]["server"] == "private"
    assert "targets held" in done.stdout


def test_charts_are_drawings_that_fetch_nothing(folder: Path) -> None:
    charts = sorted((folder / "charts").iterdir())
    assert {"capacity.svg", "threads.svg"} <= {path.name for path in charts}
    for path in charts:
        root = ElementTree.parse(path).getroot()  # noqa: S314 (our own)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
    assert "redis-py Lock" in (folder / "charts" / "threads.svg").read_text(encoding="utf-8")


@pytest.mark.turns("bench")
def test_what_is_not_installed_is_left_out_and_said(server: PrivateServer, tmp_path: Path) -> None:
    """A directory in front of the path hides the two packages; it is for the processes that are started, too."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "from importlib.machinery import PathFinder\n"
        "class Without(PathFinder):\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        "        return None if name in {'pygal', 'redis_lock'} else super().find_spec(name, path, target)\n"
        "sys.meta_path[sys.meta_path.index(PathFinder)] = Without\n",
        encoding="utf-8",
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    arguments = ("handover", "--seconds", "0.05", "--url", server.url, "--charts", str(tmp_path / "charts"))
    done = bench(*arguments, env={"PYTHONPATH": path})
    assert done.returncode == 0
    assert done.stderr == 'holdfast: no charts are drawn: pygal is missing; run pip install "holdfast-lab[bench]"\n'
    assert "python-redis-lock is left out" in done.stdout
    assert "redis-py Lock" in done.stdout


@pytest.mark.turns
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "no such scenario: nonsense; pass one of uncontended, tasks,"),
        (["threads", "--seconds", "0"], "a duration of more than zero"),
        (["threads", "--url", "rediss://127.0.0.1:1"], "redis:// or unix://"),
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], said: str) -> None:
    done = bench(*arguments)
    assert done.returncode == 64
    assert said in done.stderr
    assert done.stdout == ""


def test_a_server_that_does_not_answer_is_told_of() -> None:
    done = bench("threads", "--url", "redis://127.0.0.1:1")
    assert done.returncode == 69
    assert done.stderr.startswith("holdfast: bench: ")


def test_the_list_names_every_scenario() -> None:
    done = bench("--list")
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(SCENARIOS)


def test_other_subcommands_do_not_pay_for_it() -> None:
    program = "import sys, holdfast, holdfast.cli.run; print([name for name in sys.modules if 'bench' in name])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
