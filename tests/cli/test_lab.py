"""The commands whose code is in holdfast-lab: without it they say what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.cli import demo, lab, main


class Without:
    """A finder of modules that hides the lab."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "holdfast_lab":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.fixture
def without_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "holdfast_lab"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Without(), *sys.meta_path])


@pytest.mark.usefixtures("without_lab")
@pytest.mark.parametrize("command", ["bench", "bench --list", *(f"demo {show}" for show in demo.SHOWS if show != "tour")])
def test_it_says_what_to_install(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 69
    said = f"holdfast: {command.removesuffix(' --list')} is not installed: run pip install holdfast-lab\n"
    assert capfd.readouterr() == ("", said)


def test_another_module_that_is_missing_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "holdfast_lab.demo.ladder", None)
    with pytest.raises(ModuleNotFoundError):
        lab.run("demo ladder", "demo.ladder", as_json=True)


@pytest.mark.usefixtures("without_lab")
def test_the_help_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("bench", "demo"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert "holdfast-lab" in capsys.readouterr().out


def test_importing_holdfast_or_running_a_command_does_not_import_the_lab() -> None:
    program = "import sys, holdfast.aio, holdfast.testing, holdfast.cli.run; print('holdfast_lab' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
