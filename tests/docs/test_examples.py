"""Run every python and every console block of the documentation, on a server for its page alone.

``redis://localhost:6379``, ``redis.Redis()`` and ``redis.asyncio.Redis()`` stand for the reader's server, ``local://`` and
``--local`` for that of the reader's machine: here all of them mean the page's server. ``redis://lock-1:6379`` to ``lock-3``
stand for three more. The blocks of a page run in order, python in one namespace, in a directory that contains a ``backup.sh``.

A line of a console block that starts with ``$`` is a command, given to bash (all commands of a block to the same one). The
lines after it are its output, if there are any, where ``...`` stands for anything. If the output ends with ``^C``, the command
gets Ctrl-C when it has printed all of that. If the output of a command in the background is listed, the next command waits for
it. A toml block that begins with the name of a file in a comment is that file.

``pip install`` is not run, but the extra that it installs must exist in pyproject.toml. The commands of CONTRIBUTING.md run in
the repository, as if its environment were activated.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import redis

import holdfast
from docs.pages import PAGES, ROOT, Block, blocks, name
from support import fork_server
from support.servers import PrivateServer, private

MARK = "---next command---"
BIN = Path(sys.executable).parent
MODULES = ("holdfast", "holdfast.aio", "redis", "redis.asyncio")
"""The modules that most programs of the pages import."""
NEVER_CLOSED = {"dogpile"}
"""Pages about frameworks that leave the connections of their own to the garbage collector."""


@pytest.fixture(scope="module")
def page_server() -> Iterator[PrivateServer]:
    """For all pages: they are not run at the same time, and each begins with an empty server."""
    with private(port=True, password="") as server:
        yield server


@pytest.fixture
def three_servers() -> Iterator[list[PrivateServer]]:
    """For pages about several servers; declared new, so that they vote."""
    with (
        private(port=True, password="") as one,
        private(port=True, password="") as two,
        private(port=True, password="") as three,
    ):
        holdfast.declare_new([one, two, three])
        holdfast.close()
        yield [one, two, three]


@pytest.fixture
def environment(page_server: PrivateServer, tmp_path: Path) -> dict[str, str]:
    """Of whatever a page runs; the working directory is ``tmp_path``, and the server is empty."""
    with redis.Redis.from_url(page_server.url) as client:
        client.flushall()
    script = tmp_path / "backup.sh"
    script.write_text("#!/bin/sh\necho backup done\n", encoding="utf-8")
    script.chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if key not in {"REDIS_URL", "HOLDFAST_LOCAL_IDLE"}}
    warnings = "error,ignore:unclosed database:ResourceWarning"  # from 3.13 on also of one that a program has until its end
    return {**kept, "HOLDFAST_URL": page_server.url, "PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONWARNINGS": warnings}


@pytest.fixture
def here(page_server: PrivateServer, local_url: str, request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Puts the page's servers in the place of the reader's."""

    def adapt(text: str) -> str:
        if "redis://lock-1" in text:
            for number, server in enumerate(request.getfixturevalue("three_servers"), 1):
                text = text.replace(f"redis://lock-{number}:6379", server.url.removesuffix("/0"))
        text = text.replace("redis://localhost:6379", page_server.url.removesuffix("/0"))
        text = re.sub(r"\b(redis(?:\.asyncio)?\.Redis)\(\)", rf"\1(port={page_server.port})", text)
        text = re.sub(r"local://(?!/)", local_url, text)
        return re.sub(r"--local\b|(?<=holdfast server status)|(?<=holdfast server stop)", f" --url {local_url}", text)

    return adapt


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name)
def test_python(page: Path, here: Callable[[str], str], environment: dict[str, str], tmp_path: Path) -> None:
    lines: list[str] = []
    for block in blocks(page, "python"):
        if not (block.not_run or block.run_by):
            lines += [""] * (block.line - 1 - len(lines)) + here(block.text).splitlines()
    program = tmp_path / f"page_{page.stem}.py"  # not the name of a module: there is a page about threading
    program.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if page.stem in NEVER_CLOSED:
        environment["PYTHONWARNINGS"] += ",ignore:unclosed <socket:ResourceWarning"
    done = fork_server.run([sys.executable, program.name], MODULES, cwd=tmp_path, env=environment, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), f"{name(page)}, with its line numbers:\n{done.stderr}"
    rest = done.stdout
    for block in blocks(page):
        if block.printed:
            found = re.search(pattern(block.text), rest, re.DOTALL)
            assert found, f"{name(page)}:{block.line}: not printed, or not in this order:\n{block.text}\nin\n{rest}"
            rest = rest[found.end() :]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=name)
def test_console(page: Path, here: Callable[[str], str], environment: dict[str, str], tmp_path: Path) -> None:
    for block in blocks(page, "toml"):
        if file := re.match(r"# (\w+\.toml)\n", block.text):
            (tmp_path / file[1]).write_text(block.text, encoding="utf-8")
    for block in blocks(page, "console"):
        if not (block.not_run or block.run_by):
            run_console(block, here, environment, ROOT if page.name == "CONTRIBUTING.md" else tmp_path)


def run_console(block: Block, here: Callable[[str], str], environment: dict[str, str], directory: Path) -> None:
    """Run the commands of a block, and compare what they say."""
    steps = list(parse(block))
    script = "".join(f"{typed(step, here)}\necho; echo '{MARK}' $?\n" for step in steps) + "wait\n"
    done = subprocess.run(
        ["bash"],
        input=script,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    said = re.split(rf"\n{MARK} (\d+)\n", done.stdout)
    for step, output, code in zip(steps, said[::2], said[1::2], strict=False):
        where = f"{name(block.page)}:{block.line}: $ {step.command}\n{output}"
        assert code == "0", f"{where}\nexit code {code}"
        matches = re.fullmatch(pattern(step.expected), output.strip(), re.DOTALL)
        assert matches or not step.expected, f"{where}\nis not\n{step.expected}"
    assert len(said) // 2 == len(steps), done.stdout


class Step(NamedTuple):
    """A command, and what it should say."""

    command: str
    expected: str
    interrupted: bool
    """Whether Ctrl-C ends it when it has said that."""


def parse(block: Block) -> Iterator[Step]:
    """Commands and what they should say."""
    for step in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = step.partition("\n")
        if command.startswith("pip install "):
            check_pip(command)
        else:
            said = expected.strip()
            yield Step(command, said.removesuffix("^C").strip(), said.endswith("^C"))


def typed(step: Step, here: Callable[[str], str]) -> str:
    """Return the text given to bash for a command. A busy machine may take long to start it; that makes no difference."""
    command = here(step.command)
    if not step.expected or not (step.interrupted or command.endswith("&")):
        return command
    until = shlex.join([sys.executable, str(Path(__file__).with_name("until.py")), "said", pattern(step.expected)])
    # `set -m` gives the command a process group of its own, in which SIGINT is not ignored.
    background = f"set -m; {command.removesuffix('&')} >said 2>&1 & set +m\n{until}"
    return f"{background}\nkill -INT -- -$!; wait $!" if step.interrupted else background


def check_pip(command: str) -> None:
    """It installs one of our distributions, with extras it has."""
    match = re.fullmatch(r"""pip install ["']?([\w-]+)(?:\[([\w,]+)\])?["']?""", command)
    assert match is not None, command
    folder = {"holdfast": ROOT, "holdfast-lab": ROOT / "lab"}[match[1]]
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(match[2].split(",") if match[2] else ()) <= set(project["optional-dependencies"])


def pattern(expected: str) -> str:
    """A regular expression for expected output."""
    return re.escape(expected).replace(re.escape("..."), ".*?")


def test_the_comparison_itself() -> None:
    assert re.fullmatch(pattern("held by ... (sleep), ... s left"), "held by host:1 (sleep), 29.5 s left", re.DOTALL)
    assert not re.fullmatch(pattern("exit code 75"), "exit code 7", re.DOTALL)
