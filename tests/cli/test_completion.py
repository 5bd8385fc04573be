"""Completion in real shells, and the man page. A shell that is not on the machine is skipped; `.ci/run` installs all three."""

from __future__ import annotations

import importlib.util
import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import cli
from holdfast.cli import completion

ROOT = Path(__file__).parents[2]


def load() -> Any:
    spec = importlib.util.spec_from_file_location("packaging_command_line", ROOT / "packaging" / "command_line.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


made = load()


def test_the_files_fit_the_parsers() -> None:
    files = {path.name: path.read_text(encoding="utf-8") for path in made.SHARE.iterdir()}
    assert files == made.written(), "run `make api`, and review what it changes"


@pytest.mark.parametrize("shell", completion.SCRIPTS)
def test_the_subcommand_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    assert capsys.readouterr().out == made.written()[completion.SCRIPTS[shell]]


def test_nobody_may_complete_an_option_that_is_not_there() -> None:
    """Each script names exactly the options of the parsers."""
    options = {flag for name in cli.COMMANDS for flag in cli.parser_of(name)[1]._option_string_actions if flag.startswith("--")}
    for shell in ("bash", "zsh"):
        found = set(re.findall(r"--[a-z][a-z-]*\w", (made.SHARE / completion.SCRIPTS[shell]).read_text()))
        assert found - {"--version"} == options


# Typing in a terminal


class Typist:
    """A shell in a terminal, and somebody who types and waits for what appears."""

    def __init__(self, argv: list[str], environment: dict[str, str]) -> None:
        self.shell, self.seen = argv[0], ""
        self.fd, other = os.openpty()
        environment = {**os.environ, **environment, "TERM": "dumb"}
        self._process = subprocess.Popen(["setsid", "--ctty", *argv], stdin=other, stdout=other, stderr=other, env=environment)
        os.close(other)

    def types(self, keys: str) -> None:
        """Type these keys, into an empty line."""
        self.seen = ""
        os.write(self.fd, keys.encode())

    def sees(self, text: str) -> bool:
        """Wait until the text appears; False if it does not within 20 seconds."""
        deadline = time.monotonic() + 20
        while text not in self.seen:
            if not select.select([self.fd], [], [], max(deadline - time.monotonic(), 0))[0]:
                return False
            self.seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", os.read(self.fd, 65536).decode(errors="replace"))
        return True

    def ends(self) -> None:
        """End the shell."""
        self._process.kill()
        self._process.wait()
        os.close(self.fd)


def need(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on this machine: apt-get install {program}")


BASH = """\
PS1=READY
bind 'set enable-bracketed-paste off'
bind 'set bell-style none'
source {libraries}
source {script}
"""

ZSH = """\
PS1=READY
unsetopt zle_bracketed_paste beep
autoload -Uz compinit
compinit -u -D
source {script}
"""


@pytest.fixture(params=["bash", "bash with bash-completion", "zsh", "zsh from its folder"])
def typist(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Typist]:
    shell = request.param.split()[0]
    need(shell)
    script, libraries = made.SHARE / completion.SCRIPTS[shell], Path("/dev/null")
    if "bash-completion" in request.param:
        libraries = Path("/usr/share/bash-completion/bash_completion")
        if not libraries.exists():
            pytest.skip("bash-completion is not on this machine: apt-get install bash-completion")
    if shell == "bash":
        (tmp_path / "rc").write_text(BASH.format(script=script, libraries=libraries))
        person = Typist(["bash", "--noprofile", "--rcfile", str(tmp_path / "rc"), "-i"], {})
    else:
        setting = ZSH.format(script=script)
        if "folder" in request.param:
            setting = f"fpath=({made.SHARE} $fpath)\n" + ZSH.format(script="/dev/null")
        (tmp_path / ".zshrc").write_text(setting)
        person = Typist(["zsh", "-i"], {"ZDOTDIR": str(tmp_path)})
    yield person
    person.ends()


TYPED = {
    "holdfast ru": "run ",
    "holdfast run --on-l": "--on-lost",
    "holdfast run --on-lost t": "--on-lost term",
    "holdfast run --on-lost=k": "--on-lost=kill",
    "holdfast run --url-file /etc/passw": "/etc/passwd",
    "holdfast run x -- unam": "-- uname",
    "holdfast run x unam": "x uname",
    "holdfast run --url redis://db:1 -w 5 x unam": "x uname",
    "holdfast run x -- cat /etc/passw": "cat /etc/passwd",
    "holdfast run x --wai": "x --wait",
    "holdfast help sch": "help schedule",
    "holdfast jobs his": "jobs history",
    "holdfast completion fi": "completion fish",
    "holdfast --vers": "--version",
}
"""The text before Tab, and the text after it."""


@pytest.mark.turns
def test_typed_in_a_terminal(typist: Typist) -> None:
    assert typist.sees("READY"), typist.seen
    wrong = {}
    for typed, expected in TYPED.items():
        if typed == "holdfast run x --wai" and typist.shell == "zsh":
            continue  # `_arguments` of zsh completes options before the first word only, if a command may follow
        typist.types(f"{typed}\t")
        if not typist.sees(expected):
            wrong[typed] = typist.seen
        typist.types("\x15\n")  # empty the line, so that the next one begins at a prompt
        assert typist.sees("READY"), typist.seen
    assert wrong == {}


def test_fish() -> None:
    need("fish")
    asked = "\n".join(f"echo 'typed:{typed}'; complete -C '{typed}'" for typed in TYPED)
    program = f"source {made.SHARE / 'holdfast.fish'}\n{asked}\n"
    done = subprocess.run(["fish", "--no-config"], input=program, capture_output=True, text=True, timeout=60, check=True)
    offered = dict(part.split("\n", 1) for part in done.stdout.split("typed:")[1:])
    for typed, expected in TYPED.items():
        first = expected.split()[-1]
        assert first in re.split(r"[\t\n]", offered[typed]), (typed, offered[typed], done.stderr)


def test_fish_offers_nothing_of_other_places() -> None:
    need("fish")
    lines = ["holdfast ls --on-l", "holdfast run x -- true --on-l", "holdfast jobs pause his", "holdfast xyzzy --wa"]
    program = f"source {made.SHARE / 'holdfast.fish'}\n" + "".join(f"complete -C '{line}'\n" for line in lines)
    done = subprocess.run(["fish", "--no-config"], input=program, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("", "")


# The man page


def test_the_man_page_is_shown_without_a_warning() -> None:
    need("man")
    file = str(made.SHARE / "holdfast.1")
    environment = {**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MANROFFOPT": "-ww"}
    done = subprocess.run(["man", "--warnings", "-l", file], capture_output=True, text=True, env=environment, check=True)
    assert done.stderr == ""
    text = re.sub(r".\x08", "", done.stdout)
    assert [name for name in cli.COMMANDS if f"\n   {name}\n" not in text] == []
    assert [line for line in text.splitlines() if len(line) > 80] == []
