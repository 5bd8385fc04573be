"""Common to all shows of ``holdfast demo``: the table of them, JSON or text, the exit code."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cli.commands import PROGRAM
from holdfast.cli import demo, main
from holdfast.cli.demo.screen import Check, Screen
from holdfast.cli.demo.show import Facts, ShowError, perform
from holdfast.errors import ConfigError, LockTimeout, QuorumError, ServerError
from holdfast_lab import demo as of_lab


def test_the_table_has_every_show_and_nothing_else() -> None:
    def shows(package: ModuleType) -> set[str]:
        modules = [path.stem for path in Path(str(package.__file__)).parent.glob("*.py") if path.stem != "__init__"]
        mains = {name: getattr(importlib.import_module(f"{package.__name__}.{name}"), "main", main) for name in modules}
        return {name for name, function in mains.items() if "as_json" in inspect.signature(function).parameters}

    assert shows(demo) == {"tour"}
    assert shows(of_lab) == set(demo.SHOWS) - {"tour"}


def test_help_lists_the_shows_and_none_is_imported() -> None:
    program = "import sys; from holdfast.cli import main\ntry: main(['demo', '--help'])\nfinally: print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    help_text, _, modules = out.strip().rpartition("\n")
    for name, summary in demo.SHOWS.items():
        assert f"{name:9} {summary}" in help_text
    shows = ("holdfast.cli.demo.", "holdfast_lab")
    assert [name for name in modules.split() if name.startswith(shows)] == []
    assert "redis" not in modules.split()
    assert max(map(len, help_text.splitlines())) <= 80


def test_the_page_tells_of_every_show() -> None:
    page = (Path(__file__).parents[2] / "docs" / "demo.md").read_text(encoding="utf-8")
    for name in demo.SHOWS:
        assert f"| `holdfast demo{f' {name}' if name != 'tour' else ''}` |" in page


def test_a_show_that_there_is_not() -> None:
    done = subprocess.run([*PROGRAM, "demo", "opera"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (64, "")
    assert len(done.stderr.splitlines()) == 1
    assert all(word in done.stderr for word in ("opera", *demo.SHOWS))


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("as_json", [True, False])
def test_text_or_json_and_the_verdict(as_json: bool, held: bool, capsys: pytest.CaptureFixture[str]) -> None:
    def play(screen: Screen) -> tuple[Facts, list[Check]]:
        screen.line("it happens")
        return {"seen": 7}, [Check("sun", held=True), Check("moon", held=held)]

    assert perform("demo x", play, as_json=as_json) == (0 if held else 1)
    out = capsys.readouterr().out
    if not as_json:
        assert out.startswith("it happens\n")
        assert ("Verdict: all 2 checks held" if held else "FAILED moon\nVerdict: 1 of 2 checks did not hold") in out
        return
    facts = json.loads(out)
    assert 0 <= facts.pop("seconds") < 1
    assert facts == {"seen": 7, "checks": [{"name": "sun", "held": True}, {"name": "moon", "held": held}], "held": held}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ShowError("process 7 has ended"), 1),
        (LockTimeout("busy"), 1),
        (QuorumError("too few"), 1),
        (ServerError("no server at a:1"), 69),
        (ConfigError("no server program"), 69),
        (PermissionError("a\nb"), 69),
    ],
)
def test_what_stops_a_show_is_one_line_and_an_exit_code(error: Exception, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    def play(_: Screen) -> tuple[Facts, list[Check]]:
        raise error

    assert perform("demo x", play, as_json=True) == code
    out, err = capfd.readouterr()
    assert (out, err) == ("", f"holdfast: demo x: {str(error).replace(chr(10), ' | ')}\n")
