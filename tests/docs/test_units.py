"""The commands in the systemd units and the Kubernetes manifests of the documentation are run, as these would run them.

A command of a unit is run as it stands, without a shell and with the environment that systemd gives to a service. Only the
folders ``/srv/venv/bin`` and ``/srv/app`` and the server are those of the test. ``make cron`` also lets systemd read the units.
"""

from __future__ import annotations

import functools
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import holdfast
from docs.pages import PAGES, Block, blocks, name
from support.servers import PrivateServer

if TYPE_CHECKING:
    from conftest import NewServer

BIN = Path(sys.executable).parent
PROGRAMS = ["backup", "report.sh", "billing", "manage.py", "gunicorn"]
"""The user's programs that the commands name, in /srv/app, in the working directory or on the PATH."""
UNITS = [block for page in PAGES for block in blocks(page, "ini")]
SERVICES = [block for block in UNITS if "\n[Service]\n" in block.text]


def file_of(unit: Block) -> str:
    """The name of the file that the unit is for, from the comment in its first line."""
    first = re.match(r"# /etc/systemd/system/(\w+\.(?:service|timer))\n", unit.text)
    assert first, f"{name(unit.page)}:{unit.line}: name the file of the unit"
    return first[1]


def commands(part: Any) -> Iterator[list[str]]:
    """The argument lists in a manifest."""
    if isinstance(part, dict):
        if isinstance(part.get("command"), list):
            yield part["command"]
        for each in part.values():
            yield from commands(each)
    elif isinstance(part, list):
        for each in part:
            yield from commands(each)


COMMANDS = [
    (name(page), command)
    for page in PAGES
    for block in blocks(page, "yaml")
    for command in commands(yaml.safe_load(block.text))
]


def variables(unit: str) -> dict[str, str]:
    """The variables of a unit. systemd ends a value at a blank that is not quoted, and ignores a rest that is no assignment."""
    words = [word for line in re.findall(r"^Environment=(.+)$", unit, re.MULTILINE) for word in shlex.split(line)]
    assert all(re.match(r"\w+=", word) for word in words), f"quote the value: {words}"
    return dict(word.split("=", 1) for word in words)


class Host:
    """A directory with the user's programs, each of which notes that it ran."""

    def __init__(self, url: str, directory: Path, voters: Callable[[], list[str]]) -> None:
        self.url, self.directory, self.voters = url, directory, voters
        self.ran = directory / "ran"
        self.ran.touch()
        for program in PROGRAMS:
            script = directory / program
            script.write_text(f"#!/bin/sh\necho {program} >>{self.ran}\n", encoding="utf-8")
            script.chmod(0o755)

    def adapt(self, text: str) -> str:
        """The same text on this machine."""
        places = {"/srv/venv/bin": str(BIN), "/srv/app": str(self.directory), "redis://redis.internal:6379": self.url}
        if "redis://lock-1:" in text:
            places |= {f"redis://lock-{number}:6379": url for number, url in enumerate(self.voters(), 1)}
        for place, here in places.items():
            text = text.replace(place, here)
        return text

    def pod(self, command: list[str]) -> int:
        """Run it as in a container: in an image, all programs are on the PATH or in the working directory."""
        environment = {"HOLDFAST_URL": self.url, "HOME": str(self.directory), "PATH": f"{self.directory}:{BIN}:/usr/bin:/bin"}
        return self._run([self.adapt(word) for word in command], self.directory, environment)

    def start(self, service: Block) -> int:
        """Run the command of a unit as systemd does for a service without User=."""
        text = self.adapt(service.text)
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8"}
        environment |= variables(text)
        (command,) = re.findall(r"^ExecStart=(.+)$", text, re.MULTILINE)
        words = shlex.split(command.replace("%H", "node-1"))
        assert Path(words[0]).is_absolute()
        return self._run(words, Path("/"), environment)

    @staticmethod
    def _run(words: list[str], directory: Path, environment: dict[str, str]) -> int:
        return subprocess.run(
            words, cwd=directory, env=environment, stdin=subprocess.DEVNULL, timeout=60, check=False
        ).returncode

    def has_run(self, text: str) -> list[str]:
        """Check that just the programs that the text names have run, in its order, and return them."""
        ran = self.ran.read_text().split()
        named = [program for program in PROGRAMS if re.search(rf"[/ ]{program}\b", text)]
        assert named
        assert ran == named
        return ran


@pytest.fixture
def voters(new_server: NewServer) -> Callable[[], list[str]]:
    """Start three servers that vote together."""

    @functools.cache
    def urls() -> list[str]:
        started = [new_server().url for _ in range(3)]
        holdfast.declare_new(started)
        return started

    return urls


@pytest.fixture
def host(server: PrivateServer, voters: Callable[[], list[str]], tmp_path: Path) -> Host:
    return Host(server.url, tmp_path, voters)


def test_there_are_commands() -> None:
    assert {page for page, _ in COMMANDS} == {"docs/kubernetes.md"}
    assert {name(unit.page) for unit in SERVICES} == {"docs/cron.md", "docs/election.md"}


@pytest.mark.turns
@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[" ".join(command[:3]) for _, command in COMMANDS])
def test_a_command_of_a_manifest(host: Host, page: str, command: list[str]) -> None:
    """It runs the user's program; with --skip, it ends at once while the lock is busy."""
    assert host.pod(command) == 0
    ran = host.has_run(" ".join(command))
    if "--skip" in command:
        with holdfast.Lock(host.url, command[command.index("--") - 1]):
            assert host.pod(command) == 0
        assert host.ran.read_text().split() == ran


@pytest.mark.parametrize("service", SERVICES, ids=file_of)
def test_the_command_of_a_unit(host: Host, service: Block) -> None:
    """As of a manifest, but with the full paths and variables that the unit has."""
    assert host.start(service) == 0
    ran = host.has_run(service.text.partition(" -- ")[2])
    if skips := re.search(r"--skip .*?(\w+) -- ", service.text):
        with holdfast.Lock(host.url, skips[1]):
            assert host.start(service) == 0
        assert host.ran.read_text().split() == ran


def test_a_value_with_a_blank_is_quoted() -> None:
    assert variables('Environment="A=b c" D=e\nEnvironment=F=g') == {"A": "b c", "D": "e", "F": "g"}
    with pytest.raises(AssertionError, match="quote the value"):
        variables("Environment=HOLDFAST_URL=redis://lock-1:6379 redis://lock-2:6379")


def test_each_timer_has_its_service() -> None:
    files = {(unit.page, file_of(unit)) for unit in UNITS}
    timers = [(page, file) for page, file in files if file.endswith(".timer")]
    assert timers
    assert [timer for timer in timers if (timer[0], timer[1].replace(".timer", ".service")) not in files] == []


@pytest.mark.cron
def test_systemd_takes_the_units(host: Host, tmp_path: Path) -> None:
    """It complains of nothing: no unknown setting, no program that it cannot start, no time that it cannot read."""
    assert shutil.which("systemd-analyze"), "there is no systemd here: apt install systemd"
    files = []
    for unit in UNITS:
        files.append(tmp_path / file_of(unit))
        files[-1].write_text(host.adapt(unit.text), encoding="utf-8")
    command = ["systemd-analyze", "verify", "--recursive-errors=no", "--man=no", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)
