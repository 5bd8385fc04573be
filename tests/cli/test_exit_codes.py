"""Each exit code of the table `holdfast.cli.exit_codes` is one with which the subcommand really ends."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from cli.commands import PROGRAM, Holdfast, line, wait_until
from holdfast import cli
from holdfast.cli import exit_codes, main

NO_SERVER = "redis://127.0.0.1:1"
PLAN = """\
[schedule]
name = "codes"
[jobs.daily]
every = "1d"
command = ["true"]
"""

CALLS = {
    ("run", "the command's"): "run NAME -- sh -c 'exit 3'",
    ("run", "64"): "run",
    ("run", "69"): "run --url NO_SERVER NAME -- true",
    ("run", "75"): "run -n HELD -- true",
    ("run", "124"): "run --max-runtime 100ms NAME -- sleep 60",
    ("run", "126"): "run NAME -- /etc/passwd",
    ("run", "127"): "run NAME -- /nonexistent",
    ("run", "128 + N"): "run NAME -- sh -c 'kill -TERM $$'",
    ("elect", "the command's"): "elect NAME -- sh -c 'exit 3'",
    ("elect", "64"): "elect",
    ("elect", "69"): "elect --url NO_SERVER NAME -- true",
    ("elect", "75"): "elect -w 100ms LED -- true",
    ("elect", "126"): "elect NAME -- /etc/passwd",
    ("elect", "127"): "elect NAME -- /nonexistent",
    ("elect", "128 + N"): "elect NAME -- sh -c 'kill -TERM $$'",
    ("schedule", "0"): "schedule --check FILE.toml",
    ("schedule", "64"): "schedule /nonexistent.toml",
    ("schedule", "69"): "schedule --url NO_SERVER FILE.toml",
    ("jobs", "0"): "jobs --schedule SERVED",
    ("jobs", "64"): "jobs --schedule nobody-serves-it",
    ("jobs", "69"): "jobs --url NO_SERVER --schedule x",
    ("acquire", "0"): "acquire --ttl 1 NAME",
    ("acquire", "64"): "acquire NAME",
    ("acquire", "69"): "acquire --url NO_SERVER --ttl 1 NAME",
    ("acquire", "71"): "acquire --ttl 1 NAME > /dev/full",
    ("acquire", "75"): "acquire -n --ttl 1 HELD",
    ("release", "0"): "acquire --ttl 5 NAME | holdfast release --ticket-file - NAME",
    ("release", "64"): "release NAME",
    ("release", "69"): "acquire --ttl 5 NAME | holdfast release --url NO_SERVER --ticket-file - NAME",
    ("release", "76"): "acquire --ttl 50ms NAME | { sleep 0.2; holdfast release --ticket-file - NAME; }",
    ("ls", "0"): "ls",
    ("ls", "64"): "ls a b",
    ("ls", "69"): "ls --url NO_SERVER",
    ("show", "0"): "show NAME",
    ("show", "64"): "show",
    ("show", "69"): "show --url NO_SERVER NAME",
    ("watch", "0"): "watch --count 1",
    ("watch", "64"): "watch --interval 0",
    ("watch", "69"): "watch --url NO_SERVER",
    ("wait", "0"): "wait NAME",
    ("wait", "64"): "wait",
    ("wait", "69"): "wait --url NO_SERVER NAME",
    ("wait", "75"): "wait -w 50ms HELD",
    ("break", "0"): "break -y NAME",
    ("break", "64"): "break NAME < /dev/null",
    ("break", "69"): "break -y --url NO_SERVER NAME",
    ("server", "0"): "run --url local://DIRECTORY NAME -- true && holdfast server status --url local://DIRECTORY",
    ("server", "3"): "server status --url local://DIRECTORY",
    ("server", "64"): "server",
    ("server", "69"): "server --port USED",
    ("doctor", "1"): "doctor -q",
    ("doctor", "2"): "doctor --url NO_SERVER",
    ("doctor", "64"): "doctor --ttl 0",
    ("nodes", "2"): "nodes --url NO_SERVER --url redis://127.0.0.1:2 --url redis://127.0.0.1:3",
    ("nodes", "64"): "nodes --force",
    ("acl", "0"): "acl",
    ("acl", "64"): "acl --user ''",
    ("acl", "69"): "acl --url NO_SERVER",
    ("bench", "0"): "bench --list",
    ("bench", "64"): "bench no-such-scenario",
    ("bench", "69"): "bench --url NO_SERVER threads",
    ("demo", "64"): "demo no-such-show",
    ("completion", "0"): "completion fish",
    ("completion", "64"): "completion tcsh",
}  # fmt: skip
"""For a subcommand and a code: a line for a shell that ends with this code. `place` fills in the words in capitals."""

ELSEWHERE = {
    ("run", "76"): "test_run_loss.py",
    ("elect", "76"): "test_elect.py",
    ("ls", "1"): "test_ls_command.py",
    ("break", "1"): "test_ls_command.py",
    ("break", "75"): "test_ls_command.py",
    ("doctor", "0"): "test_doctor_command.py",
    ("nodes", "0"): "test_nodes_command.py",
    ("nodes", "1"): "test_nodes_command.py",
    ("demo", "0"): "test_demo_ladder.py",
    ("demo", "1"): "test_demo_shows.py",
    ("demo", "69"): "test_lab.py",
}
"""Codes that take more than a command line to bring about, and the file with the test that does."""

COMMON = {"70", "71", "128 + N"}
"""Codes that do not depend on the subcommand: one test for all, unless a call above is more exact."""


def test_each_code_of_the_table_is_brought_about() -> None:
    table = {(name, code) for name in exit_codes.OF for code in exit_codes.of(name)}
    assert CALLS.keys() | ELSEWHERE.keys() | {(name, code) for name in exit_codes.OF for code in COMMON} == table
    assert [file for file in ELSEWHERE.values() if not Path(__file__).with_name(file).exists()] == []


def test_the_page_shows_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    table = {"every subcommand": exit_codes.EVERY, **{f"`{name}`": codes for name, codes in exit_codes.OF.items()}}
    rows = [f"| {name} | {code} | {meaning} |" for name, codes in table.items() for code, meaning in codes.items()]
    assert page.partition("## All subcommands\n")[2].splitlines()[-len(rows) :] == rows


_numbers = itertools.count()


@pytest.fixture
def place(hf: Holdfast, client: redis.Redis, tmp_path: Path) -> Callable[[str], str]:
    """Replaces the words in capitals of a call by names and servers of this test."""
    number = next(_numbers)

    def fill(call: str) -> str:
        names = {
            "NAME": f"codes-{number}",
            "NO_SERVER": NO_SERVER,
            "DIRECTORY": str(tmp_path / "d"),
            "FILE": str(tmp_path / "f"),
        }
        (tmp_path / "f.toml").write_text(PLAN)
        if "HELD" in call:
            names["HELD"] = f"held-{number}"
            holder = hf.start(names["HELD"], "--", "sh", "-c", "echo begun; sleep 60")
            assert line(holder) == "begun"
        if "LED" in call:
            names["LED"] = f"led-{number}"
            leader = hf.popen([*PROGRAM, "elect", names["LED"], "--", "sh", "-c", "echo begun; sleep 60"])
            assert line(leader) == "begun"
        if "SERVED" in call:
            names["SERVED"] = "codes"
            hf.popen([*PROGRAM, "schedule", str(tmp_path / "f.toml")])
            wait_until(lambda: list(client.scan_iter("hf:schedule:{codes}:*")))
        if "USED" in call:
            names["USED"] = str(client.connection_pool.connection_kwargs.get("port", 1))
        for word, meant in names.items():
            call = call.replace(word, meant)
        return call

    return fill


SIGNALLED = {"run", "elect", "schedule", "acquire", "server", "watch"}
"""Subcommands that set signal handlers."""

HERE = [
    (name, code)
    for (name, code), call in CALLS.items()
    if code in {"64", "69"} and name not in SIGNALLED and not set(call) & set("|<'")
]
"""Refused calls, which start nothing. They are made in the process of the tests."""


@pytest.mark.parametrize(("name", "code"), HERE, ids=str)
def test_a_refused_call_returns_its_code(
    hf: Holdfast, place: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, name: str, code: str
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", hf.url)
    with pytest.raises(SystemExit) as ended:
        sys.exit(main(place(CALLS[name, code]).split()))
    assert ended.value.code == int(code)


@pytest.mark.turns
@pytest.mark.parametrize(("name", "code"), [case for case in CALLS if case not in HERE], ids=str)
def test_a_call_ends_with_its_code(hf: Holdfast, place: Callable[[str], str], name: str, code: str) -> None:
    shell = f'holdfast() {{ {sys.executable} -m holdfast "$@"; }}; holdfast {place(CALLS[name, code])}'
    process = hf.popen(["bash", "-c", shell], stdin=subprocess.DEVNULL)
    out, err = process.communicate(timeout=60)
    expected = {"the command's": 3, "128 + N": 143}.get(code) or int(code)
    assert process.returncode == expected, out + err


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_errors_in_holdfast_and_signals(name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    module, parser = cli.parser_of(name)
    words = [
        str(word.metavar) for word in parser._actions if not word.option_strings and word.nargs is None and not word.choices
    ]
    needed = [
        word
        for option in parser._actions
        if option.required and option.option_strings
        for word in (option.option_strings[0], "1")
    ]
    arguments = [name, *words, *needed, *["bash"] * (name == "completion")]

    def ends_with(error: BaseException) -> int:
        def fail(_: object) -> int:
            raise error

        monkeypatch.setattr(module, "main", fail)
        return main(arguments)

    assert ends_with(RuntimeError("x")) == 70
    assert ends_with(KeyboardInterrupt()) == 130
    assert "internal error: RuntimeError" in capfd.readouterr().err
