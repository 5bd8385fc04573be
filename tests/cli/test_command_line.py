"""The command line explains itself: help, hints for words that it does not know, and the command without ``--``."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from holdfast import __version__, cli
from holdfast._api import ticket as tickets
from holdfast._runtime.process import current
from holdfast.cli import exit_codes, main
from holdfast.cli.parser import Parser
from support.driver import spec


def said(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``holdfast ARGUMENTS``."""
    try:
        code: object = main(arguments)
    except SystemExit as end:
        code = end.code or 0
    assert isinstance(code, int)
    out, err = capfd.readouterr()
    return code, out, err


# Help


def test_without_a_word_it_prints_help_and_fails(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capfd)
    assert (code, out) == (64, "")
    assert err == said(capfd, "--help")[1]
    assert all(f"\n  {name} " in err for name in cli.COMMANDS)


@pytest.mark.parametrize("words", [["help"], ["--help"], ["-h"]], ids=" ".join)
def test_help_of_all(capfd: pytest.CaptureFixture[str], words: Sequence[str]) -> None:
    code, out, err = said(capfd, *words)
    assert (code, err) == (0, "")
    assert out.startswith("usage: holdfast SUBCOMMAND ...\n")


@pytest.mark.parametrize("words", [["help", "wait"], ["--help", "wait"], ["wait", "-h"], ["wait", "--help"]], ids=" ".join)
def test_help_of_a_subcommand(capfd: pytest.CaptureFixture[str], words: Sequence[str]) -> None:
    code, out, err = said(capfd, *words)
    assert (code, err) == (0, "")
    assert out.startswith("usage: holdfast wait [options] NAME\n")


@pytest.mark.parametrize("word", ["-V", "--version"])
def test_version(capfd: pytest.CaptureFixture[str], word: str) -> None:
    assert said(capfd, word) == (0, f"holdfast {__version__}\n", "")


@pytest.mark.parametrize("name", ["", *cli.COMMANDS])
def test_help_fits_into_eighty_columns(capfd: pytest.CaptureFixture[str], name: str) -> None:
    out = said(capfd, "help", *[name] * bool(name))[1]
    assert [line for line in out.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_option_and_word_has_a_help_text(name: str) -> None:
    _, parser = cli.parser_of(name)
    assert [action.dest for action in parser._actions if not action.help] == []


# Common to all subcommands


def options(name: str) -> set[str]:
    return set(cli.parser_of(name)[1]._option_string_actions)


COMMON = {
    "-q": set(cli.COMMANDS) - {"demo", "completion"},
    "-v": {"run", "elect", "schedule", "acquire", "release", "wait"},
    "--url": set(cli.COMMANDS) - {"demo", "completion"},
    "--url-file": set(cli.COMMANDS) - {"demo", "completion"},
    "--local": set(cli.COMMANDS) - {"demo", "completion", "acl", "bench"},
    "--json": set(cli.COMMANDS) - {"completion"},
}
"""Options that most subcommands have, and which ones. The others say why they have none."""


def test_common_options_are_in_each_subcommand_or_their_absence_is_explained(capfd: pytest.CaptureFixture[str]) -> None:
    long = {"-q": "--quiet", "-v": "--verbose"}
    unlike: list[tuple[str, ...]] = []
    for name in cli.COMMANDS:
        found = cli.parser_of(name)[1]._option_string_actions
        for option, having in COMMON.items():
            other = long.get(option, option)
            if (name in having) != (option in found) or found.get(option) is not found.get(other):
                unlike.append((name, option))
            for word in {option, other} if name not in having else ():
                code, out, err = said(capfd, name, word)
                start, end = f"holdfast: no such option: {word}; {name} has none: ", f" (see holdfast {name} --help)\n"
                if (code, out, err.count("\n")) != (64, "", 1) or not (err.startswith(start) and err.endswith(end)):
                    unlike.append((name, word, err))
    assert unlike == []


def test_json_is_a_flag() -> None:
    assert {cli.parser_of(name)[1]._option_string_actions["--json"].nargs for name in COMMON["--json"]} == {0}


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_one_word_for_waiting(name: str) -> None:
    found = cli.parser_of(name)[1]._option_string_actions
    assert not [word for word in found if "timeout" in word]
    assert ("-w" in found) == ("--wait" in found) == (name in {"run", "elect", "acquire", "wait"})


# Hints


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("rnu", "; did you mean run?"),
        ("Watch", "; did you mean watch?"),
        ("completions", "; did you mean completion?"),
        ("lock", "; did you mean run or acquire?"),
        ("unlock", "; did you mean release?"),
        ("list", "; did you mean ls?"),
        ("version", "; did you mean --version?"),
        ("cron", "; did you mean schedule?"),
        ("who", "; did you mean show?"),
        ("export", "; did you mean ls --json?"),
        ("renew", "; did you mean run, which renews the lease itself?"),
        ("xyzzy", ""),
    ],
)
def test_an_unknown_subcommand(capfd: pytest.CaptureFixture[str], word: str, hint: str) -> None:
    expected = (64, "", f"holdfast: no such subcommand: {word}{hint} (see holdfast --help)\n")
    assert said(capfd, word) == expected
    assert said(capfd, "help", word) == expected


def test_options_before_the_subcommand(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capfd, "--url", "redis://localhost", "run", "x", "--", "true")
    assert (code, err) == (64, "holdfast: options stand after the subcommand: holdfast run --url ... (see holdfast --help)\n")
    assert said(capfd, "--versoin")[2] == "holdfast: no such option: --versoin; did you mean --version? (see holdfast --help)\n"


def test_a_command_line_of_flock(capfd: pytest.CaptureFixture[str]) -> None:
    """It has no subcommand."""
    told = said(capfd, "-n", "/run/lock/x", "true")
    assert told == (64, "", "holdfast: a subcommand stands first: holdfast run -n ... (see holdfast --help)\n")
    told = said(capfd, "/run/lock/x", "true")
    usage = "to run a command under a lock: holdfast run NAME COMMAND"
    assert told == (64, "", f"holdfast: no such subcommand: /run/lock/x; {usage} (see holdfast --help)\n")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["jobs", "list"], "ACTION: list; without an action, it lists the jobs of --schedule NAME, or the schedules; it is "),
        (["jobs", "x3"], "ACTION: x3; did you mean --schedule x3?; it is one of history, pause, "),
        (["jobs", "puase", "x"], "ACTION: puase; did you mean pause?; it is one of history, pause, "),
        (["jobs", "delete", "x"], "ACTION: delete; did you mean remove?; it is one of history, pause, "),
        (["nodes", "status"], "ACTION: status; without an action, it shows the servers; it is one of init "),
        (
            ["server", "restart"],
            "ACTION: restart; stop it, and the next use of local:// starts it again; it is one of status, ",
        ),
        (["server", "start"], "ACTION: start; --port N runs a server, and local:// starts this machine's own server at its "),
        (["completion", "powershell"], "SHELL: powershell; it is one of bash, zsh, fish "),
        (["run", "--on-lost", "die", "x", "true"], "value of --on-lost: die; it is one of term, kill, warn "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_word_that_is_none_of_the_choices(capfd: pytest.CaptureFixture[str], arguments: list[str], error: str) -> None:
    code, out, err = said(capfd, *arguments)
    assert (code, out, err.count("\n")) == (64, "", 1)
    assert err.startswith(f"holdfast: no such {error}")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["run", "--timeout", "5", "x", "--", "true"],
            "--timeout; did you mean --wait for the lock, or --max-runtime for the command?",
        ),
        (
            ["run", "x", "--timeout=5", "--", "true"],
            "--timeout; did you mean --wait for the lock, or --max-runtime for the command?",
        ),
        (["run", "-s", "x", "--", "true"], "-s; did you mean --shared?"),
        (["run", "-xn", "x", "--", "true"], "-x; did you mean --exclusive?"),
        (["run", "--time-limit", "5", "x", "true"], "--time-limit; did you mean --max-runtime?"),
        (
            ["run", "--every", "5m", "x", "true"],
            "--every; did you mean holdfast schedule, or a crontab line with --skip?",
        ),
        (["run", "--no-fork", "x", "true"], "--no-fork; leave it out: the command always runs as a child"),
        (["run", "-o", "x", "true"], "-o; leave it out: no file descriptor of the lock is passed to the command"),
        (["elect", "--leader", "x"], "--leader; did you mean --observe?"),
        (["ls", "--all"], "--all"),
        (["doctor", "--fix"], "--fix"),
        (["doctor", "--redlock"], "--redlock; did you mean --url for each server of the Redlock?"),
        (["run", "-qx", "x", "--", "true"], "-x; did you mean --exclusive?"),
        (["run", "--nb", "x", "true"], "--nb; did you mean --nonblock?"),
        (["run", "--wiat", "5", "x", "true"], "--wiat; did you mean --wait?"),
        (["run", "x", "-k", "5", "true"], "-k; did you mean --kill-after?"),
        (["wait", "--timeout", "5", "x"], "--timeout; did you mean --wait?"),
        (["ls", "--host", "db1"], "--host; did you mean --url redis://HOST:PORT/DB?"),
        (["ls", "-a", "secret"], "-a; did you mean HOLDFAST_URL or --url-file, for a URL with a password?"),
        (["wait", "-t", "3", "x"], "-t; did you mean --wait?"),
        (["run", "-u", "job"], "-u; did you mean holdfast release to unlock, or --url?"),
        (["run", "--lock-timeout", "5", "x", "true"], "--lock-timeout; did you mean --wait?"),
        (["schedule", "--list"], "--list; did you mean holdfast jobs?"),
        (["schedule", "-l"], "-l; did you mean holdfast jobs?"),
        (["schedule", "-e"], "-e; did you mean an editor for FILE.toml, which has the jobs?"),
        (["schedule", "-f", "x"], "-f; did you mean holdfast schedule FILE.toml?"),
        (["break", "--force", "x"], "--force; did you mean --yes?"),
        (["run", "--permits", "3", "x", "true"], "--permits; did you mean --limit?"),
        (["run", "--ticket-file", "t", "x", "true"], "--ticket-file; did you mean holdfast acquire --ticket-file?"),
        (["release", "x", "--ticket", "t"], "--ticket; did you mean --ticket-file PATH, or HOLDFAST_TICKET?"),
        (["completion", "--shell", "bash"], "--shell; did you mean holdfast completion SHELL?"),
        (["bench", "--out", "file"], "--out; did you mean --output?"),
        (["demo", "--host", "db1"], "--host"),
        (["run", "--version"], "--version; did you mean holdfast --version?"),
        (["ls", "--zzz"], "--zzz"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_unknown_option(capfd: pytest.CaptureFixture[str], arguments: list[str], error: str) -> None:
    code, out, err = said(capfd, *arguments)
    assert (code, out, err) == (64, "", f"holdfast: no such option: {error} (see holdfast {arguments[0]} --help)\n")


NO_COMMAND = "no command: pass it after the name, as in: holdfast run NAME -- COMMAND"
PARTS = "to lock a part of a script, use holdfast acquire and holdfast release"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("run", "NAME is missing; write holdfast run [options] NAME [--] COMMAND [ARGUMENT ...]"),
        (
            "run --url localhost:1 -- true",
            "NAME is missing; it stands before --: write holdfast run [options] NAME [--] COMMAND [ARGUMENT ...]",
        ),
        (
            "run -- job echo hi",
            "NAME is missing; it stands before --: write holdfast run [options] NAME [--] COMMAND [ARGUMENT ...]",
        ),
        (
            "run -n 9",
            f"{NO_COMMAND}; 9 is a name, not a file descriptor: {PARTS}",
        ),
        ("run job", NO_COMMAND),
        ("run -n", "NAME is missing; write holdfast run [options] NAME [--] COMMAND [ARGUMENT ...]"),
        ("run -c true", "NAME is missing; write holdfast run [options] NAME [--] COMMAND [ARGUMENT ...]"),
        ("elect --observe", "NAME is missing; write holdfast elect [options] NAME [[--] COMMAND [ARGUMENT ...]]"),
        ("acquire x", "--ttl is missing; write holdfast acquire [options] --ttl TIME NAME"),
        ("acquire", "NAME, --ttl are missing; write holdfast acquire [options] --ttl TIME NAME"),
        (
            "acquire --ttl 5 x true",
            "'true' is too much; to run a command, use `holdfast run`; write holdfast acquire [options] --ttl TIME NAME",
        ),
        ("schedule", "TARGET is missing; write holdfast schedule [options] FILE.toml|MODULE:object"),
        ("show", "NAME is missing; write holdfast show [options] NAME"),
        ("show a b", "'b' is too much; write holdfast show [options] NAME"),
        (
            "ls a b c",
            "'b c' is too much; quote a pattern, so that the shell does not expand it; write holdfast ls [options] [PATTERN]",
        ),
        ("completion", "SHELL is missing; write holdfast completion [options] SHELL"),
    ],
)
def test_words_are_missing_or_too_many(capfd: pytest.CaptureFixture[str], line: str, error: str) -> None:
    subcommand = line.partition(" ")[0]
    assert said(capfd, *line.split()) == (64, "", f"holdfast: {error} (see holdfast {subcommand} --help)\n")


def test_the_usage_shows_options_that_must_be_given() -> None:
    assert cli.parser_of("acquire")[1].format_usage() == "usage: holdfast acquire [options] --ttl TIME NAME\n"
    assert cli.parser_of("jobs")[1].format_usage() == "usage: holdfast jobs [options] [--schedule NAME [ACTION JOB]]\n"


def test_a_flag_with_a_value(capfd: pytest.CaptureFixture[str]) -> None:
    told = "holdfast: --local takes no value; for another directory, pass --url local:///DIRECTORY (see holdfast ls --help)\n"
    assert said(capfd, "ls", "--local=/tmp/x") == (64, "", told)
    assert said(capfd, "ls", "--json=yes") == (64, "", "holdfast: --json takes no value (see holdfast ls --help)\n")


@pytest.mark.parametrize("arguments", ["NAME TICKET", "TICKET", "NAME --ticket-file TICKET"])
def test_a_ticket_is_no_argument(capfd: pytest.CaptureFixture[str], arguments: str) -> None:
    ticket = tickets.write(spec(), current().token(), 1).reveal()
    code, out, err = said(capfd, "release", *arguments.replace("TICKET", ticket).split())
    assert (code, out, ticket in err, len(err.splitlines())) == (64, "", False, 1)
    assert err.startswith("holdfast: a ticket is never an argument, because every user of this machine can see arguments: ")


# The command after the name


@pytest.fixture
def parser() -> Parser:
    """The parser of `holdfast run`."""
    return cli.parser_of("run")[1]


@pytest.mark.parametrize(
    ("line", "ours", "command"),
    [
        ("x -- true", "x", "true"),
        ("x true", "x", "true"),
        ("x true -v --wait 5", "x", "true -v --wait 5"),
        ("-v x true -v", "-v x", "true -v"),
        ("x -w 5 true", "x -w 5", "true"),
        ("-w5 x true", "-w5 x", "true"),
        ("-qw 5 x true", "-qw 5 x", "true"),
        ("-E 3 x true", "-E 3 x", "true"),
        ("--wait=5 x --ttl 3 -- true -x", "--wait=5 x --ttl 3", "true -x"),
        ("--url a --url b x true", "--url a --url b x", "true"),
        ("x -- git log -- file", "x", "git log -- file"),
        ("x --", "x", ""),
        ("x - a", "x", "- a"),
    ],
)
def test_where_the_command_begins(parser: Parser, line: str, ours: str, command: str) -> None:
    assert parser.split(line.split()) == (ours.split(), command.split())


def test_there_may_be_no_command(parser: Parser) -> None:
    assert parser.split(["-v", "x"]) == (["-v", "x"], None)
    assert parser.split(["-c", "echo 1 2", "x"]) == (["-c", "echo 1 2", "x"], None)


def test_a_command_with_a_separator_needs_one_of_ours(capfd: pytest.CaptureFixture[str]) -> None:
    """The name could be two words for lack of quotes: then a part of it would be run."""
    code, _, err = said(capfd, "run", "my", "backup", "--", "true")
    hint = (
        "two words stand before --: quote a name that contains blanks, or write -- before 'backup' if the command begins there"
    )
    assert (code, err) == (64, f"holdfast: {hint} (see holdfast run --help)\n")


# Exit codes


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_help_shows_the_exit_codes(capfd: pytest.CaptureFixture[str], name: str) -> None:
    section = said(capfd, name, "--help")[1].partition("\nexit codes:\n")[2]
    assert re.findall(r"^  (\S(?:\S| \S)*)  ", section, re.MULTILINE) == list(exit_codes.of(name))


def test_the_table_has_each_subcommand() -> None:
    assert exit_codes.OF.keys() == cli.COMMANDS.keys()
    assert exit_codes.OF.keys() >= exit_codes.WITHOUT_69
