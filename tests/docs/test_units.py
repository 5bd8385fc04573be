"""The commands in the systemd units and the Kubernetes manifests of the documentation are run, as these would run them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import holdfast
from docs.pages import PAGES, Block, blocks, name
from support.servers import PrivateServer

BIN = Path(sys.executable).parent
PROGRAMS = ["backup", "report.sh", "billing", "manage.py", "gunicorn"]
"""The user's programs that the commands name, in /srv/app, in the working directory or on the PATH."""


def commands(block: Block) -> Iterator[list[str]]:
    """The argument lists of a unit or manifest."""
    if block.language == "ini":
        for line in re.findall(r"^ExecStart=(.+)$", block.text, re.MULTILINE):
            yield shlex.split(line.replace("%H", "node-1"))
    else:
        yield from _commands(yaml.safe_load(block.text))


def _commands(part: Any) -> Iterator[list[str]]:
    if isinstance(part, dict):
        if isinstance(part.get("command"), list):
            yield part["command"]
        for each in part.values():
            yield from _commands(each)
    elif isinstance(part, list):
        for each in part:
            yield from _commands(each)


COMMANDS = [
    (name(page), command)
    for page in PAGES
    for language in ("ini", "yaml")
    for block in blocks(page, language)
    for command in commands(block)
]


class Host:
    """A directory with the user's programs, each of which notes that it ran."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url, self.directory = url, directory
        self.ran = directory / "ran"
        self.ran.touch()
        for program in PROGRAMS:
            script = directory / program
            script.write_text(f"#!/bin/sh\necho {program} >>{self.ran}\n", encoding="utf-8")
            script.chmod(0o755)

    def run(self, command: list[str]) -> int:
        return subprocess.run(
            [word.replace("/srv/app", str(self.directory)) for word in command],
            cwd=self.directory,
            env={"HOLDFAST_URL": self.url, "HOME": str(self.directory), "PATH": f"{self.directory}:{BIN}:/usr/bin:/bin"},
            timeout=60,
            check=False,
        ).returncode


@pytest.fixture
def host(server: PrivateServer, tmp_path: Path) -> Host:
    return Host(server.url, tmp_path)


def test_there_are_commands() -> None:
    assert {page for page, _ in COMMANDS} == {"docs/cron.md", "docs/election.md", "docs/kubernetes.md"}


@pytest.mark.turns
@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[" ".join(command[:3]) for _, command in COMMANDS])
def test_a_command_runs(host: Host, page: str, command: list[str]) -> None:
    """It runs the user's program; with --skip, it ends at once while the lock is busy."""
    assert host.run(command) == 0
    ran = host.ran.read_text()
    assert [program for program in PROGRAMS if program in " ".join(command).replace("./", "")] == sorted(
        ran.split(), key=PROGRAMS.index
    )
    if "--skip" in command:
        with holdfast.Lock(host.url, command[command.index("--") - 1]):
            assert host.run(command) == 0
        assert host.ran.read_text() == ran
