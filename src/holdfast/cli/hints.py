"""Hints for words that the command line does not know: the words of other programs, and words with a typing error."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

ANY = ""
"""Key of `OPTIONS` for all subcommands."""

URL, SECRET = "--url redis://HOST:PORT/DB", "HOLDFAST_URL or --url-file, for a URL with a password"
OPTIONS = {
    ANY: {
        "--host": URL,
        "--hostname": URL,
        "--port": URL,
        "-p": URL,
        "--db": URL,
        "--redis-url": "--url",
        "--server": "--url",
        "-u": "--url",
        "--password": SECRET,
        "--user": SECRET,
        "-a": SECRET,
        "--timeout": "--wait",
        **dict.fromkeys(("--lock-timeout", "--acquire-timeout", "--blocking-timeout", "--wait-timeout"), "--wait"),
        "-t": "--wait or --ttl",
        "--expire": "--ttl",
        "--expiry": "--ttl",
        "--lease": "--ttl",
        "--lease-time": "--ttl",
        "--nb": "--nonblock",
        "--non-blocking": "--nonblock",
        "--no-wait": "--nonblock",
        "--namespace": "--prefix",
        "--format": "--json",
        "--output": "--json",
        "-o": "--json",
        "--silent": "--quiet",
        "-V": "holdfast --version",
        "--version": "holdfast --version",
    },
    "run": {
        **dict.fromkeys(("--time-limit", "--runtime", "--max-time"), "--max-runtime"),
        **dict.fromkeys(("--every", "--cron", "--interval"), "holdfast schedule, or a crontab line with --skip"),
        "--timeout": "--wait for the lock, or --max-runtime for the command",
        "-t": "--wait for the lock, or --max-runtime for the command",
        "--command": "-c",
        "-s": "--shared",
        "-x": "--exclusive",
        "-e": "--exclusive",
        "--unlock": "holdfast release",
        "-u": "holdfast release to unlock, or --url",
        **dict.fromkeys(("--max", "--slots", "--permits"), "--limit"),
        "--ticket-file": "holdfast acquire --ticket-file",
        "--signal": "--on-lost",
        "-k": "--kill-after",
    },
    "wait": {"-t": "--wait"},
    "schedule": {
        **dict.fromkeys(("-l", "--list"), "holdfast jobs"),
        "-e": "an editor for FILE.toml, which has the jobs",
        **dict.fromkeys(("-f", "--file"), "holdfast schedule FILE.toml"),
        "--dry-run": "--check",
        "--label": "--feature",
        "--wait": "--finish-within",
    },
    "jobs": {"--limit": "--last", "-n": "--last"},
    "doctor": {"--redlock": "--url for each server of the Redlock"},
    "break": {"--force": "--yes", "-f": "--yes"},
    "elect": {"--candidate": "--as", "--name": "--as", "--id": "--as", "--leader": "--observe", "--show": "--observe"},
    "acl": {"--version": "--server-version"},
    "completion": dict.fromkeys(("--shell", "-s", "--bash", "--zsh", "--fish"), "holdfast completion SHELL"),
    "release": dict.fromkeys(("--ticket", "--token"), "--ticket-file PATH, or HOLDFAST_TICKET"),
    "bench": {"--json-file": "--output", "--out": "--output"},
}
"""For each subcommand, maps options of other programs (flock, timeout, redis-cli, kubectl) to the options that do the same."""

_CHILD, _NO_FILE = "the command always runs as a child", "no file descriptor of the lock is passed to the command"
NEEDLESS = {"-F": _CHILD, "--no-fork": _CHILD, "-o": _NO_FILE, "--close": _NO_FILE}
"""Options of flock that `run` does not need, each with the reason."""

_ANSWERS = "it prints all that it knows"
_FACTS = "pass --json for all facts, or use `holdfast show NAME`"
_OWN_SERVERS = "it starts servers of its own"
_NO_SERVER = "it contacts no server"
WITHOUT = {
    "--verbose": {
        **dict.fromkeys(("ls", "watch"), _FACTS),
        **dict.fromkeys(("show", "break", "nodes", "doctor", "acl", "bench", "demo"), _ANSWERS),
        "jobs": f"{_ANSWERS}; `jobs history JOB` shows the runs of a job",
        "server": f"{_ANSWERS}; `doctor --local` checks the server",
        "completion": "it prints one script",
    },
    "--quiet": {
        "demo": "its text is its result; pass --json for the facts",
        "completion": "it prints one script",
    },
    "--json": {"completion": "it prints one script"},
    "--local": {
        "acl": "this machine's own server has no users; pass --url for the version of another server",
        "bench": "it starts a private server; pass --url to measure another one",
        "demo": _OWN_SERVERS,
        "completion": _NO_SERVER,
    },
    "--url": {
        "demo": f"{_OWN_SERVERS}; set HOLDFAST_URL for the tour on another one",
        "completion": _NO_SERVER,
    },
}
WITHOUT["--url-file"] = WITHOUT["--url"]
"""Options that most subcommands have, and why a subcommand is without one."""

SHORT = {"-v": "--verbose", "-q": "--quiet"}

ACTIONS: dict[str, dict[str, str]] = {
    "jobs": {
        **dict.fromkeys(
            ("list", "ls", "show", "status"), "without an action, it lists the jobs of --schedule NAME, or the schedules"
        ),
        "delete": "remove",
    },
    "server": {
        **dict.fromkeys(
            ("start", "run"), "--port N runs a server, and local:// starts this machine's own server at its first use"
        ),
        "restart": "stop it, and the next use of local:// starts it again",
    },
    "nodes": dict.fromkeys(("list", "ls", "show", "status"), "without an action, it shows the servers"),
}
"""For each subcommand, maps words that are not among its actions to the right action, or to a hint of several words."""

TOO_MUCH = {
    "schedule": "the jobs stand in a file, each with its times and its command; ",
    "ls": "quote a pattern, so that the shell does not expand it; ",
    "acquire": "to run a command, use `holdfast run`; ",
    "wait": "to run a command, use `holdfast run`; ",
}
"""Advice about a word too many, by subcommand."""

SUBCOMMANDS = {
    "lock": "run or acquire",
    "flock": "run",
    "exec": "run",
    "unlock": "release",
    "list": "ls",
    "locks": "ls",
    "deadlocks": "ls --deadlocks",
    "info": "show",
    "status": "show or server status",
    "inspect": "show",
    "monitor": "watch",
    "top": "watch",
    "kill": "break",
    "revoke": "break",
    "rm": "break",
    "delete": "break",
    "leader": "elect",
    "election": "elect",
    "lead": "elect",
    "semaphore": "run --limit",
    "rwlock": "run --shared",
    "who": "show",
    "holder": "show",
    "queue": "show",
    "export": "ls --json",
    "renew": "run, which renews the lease itself",
    "extend": "run, which renews the lease itself",
    "man": "help",
    "cron": "schedule",
    "check": "doctor",
    "ping": "doctor",
    "health": "doctor",
    "start": "server --port",
    "stop": "server stop",
    "redlock": "nodes",
    "init": "nodes init",
    "version": "--version",
    "benchmark": "bench",
}
"""Maps words of other programs to the subcommand that does the same."""


def for_option(option: str, subcommand: str, known: Iterable[str]) -> str:
    """Return a hint such as ``; did you mean --wait?``; empty if no option of the subcommand is like this one."""
    if option in NEEDLESS and subcommand == "run":
        return f"; leave it out: {NEEDLESS[option]}"
    if reason := WITHOUT.get(SHORT.get(option, option), {}).get(subcommand):
        return f"; {subcommand} has none: {reason}"
    options = list(known)
    foreign = OPTIONS.get(subcommand, {}).get(option) or OPTIONS[ANY].get(option, "")
    if foreign in {URL, SECRET} and "--url" not in options:
        foreign = ""
    if foreign.startswith("--") and foreign.split()[0] not in options:
        foreign = ""
    if not foreign and len(option) > 2:
        near = _like(option.lstrip("-"), [one.lstrip("-") for one in options], 0.7)
        foreign = f"--{near}" if near else ""
    return _hint(foreign)


def for_ticket(text: str) -> str:
    """Return the error for a ticket that is an argument; empty if there is no ticket in ``text``."""
    if not re.search(r"\bhft\d+\.[\w-]{40}", text):
        return ""
    return (
        "a ticket is never an argument, because every user of this machine can see arguments: "
        "set HOLDFAST_TICKET, or pass --ticket-file PATH (- for stdin)"
    )


def for_words(error: str, subcommand: str, usage: str, *, separated: bool = False) -> str:
    """Return the error for missing words or words too many, from argparse's own error; empty for another error.

    ``separated``: whether ``--`` and a command follow the words.
    """
    start, _, words = error.partition(": ")
    if start == "the following arguments are required":
        if words == "NAME" and separated:
            return f"NAME is missing; it stands before --: write {usage}"
        return f"{words} {'are' if ',' in words else 'is'} missing; write {usage}"
    if start == "unrecognized arguments":
        return f"{words!r} is too much; {TOO_MUCH.get(subcommand, '')}write {usage}"
    return ""


def for_action(word: str, subcommand: str, known: Iterable[str]) -> str:
    """Return a hint such as ``; did you mean pause?``; empty if no action of the subcommand is like this word."""
    found = ACTIONS.get(subcommand, {}).get(word, "")
    schedule = f"--schedule {word}" if subcommand == "jobs" else ""
    return f"; {found}" if " " in found else _hint(found or _like(word, known, 0.6) or schedule)


def for_no_command(name: str) -> str:
    """Return a hint about a command that is missing after ``name``; empty unless ``name`` is a number, as flock takes one."""
    if not name.isdecimal():
        return ""
    return f"; {name} is a name, not a file descriptor: to lock a part of a script, use holdfast acquire and holdfast release"


def for_subcommand(word: str, known: Iterable[str]) -> str:
    """Return a hint such as ``; did you mean run?``; empty if no subcommand is like this word."""
    return _hint(SUBCOMMANDS.get(word.lower()) or _like(word.lower(), known, 0.6))


def _like(word: str, known: Iterable[str], cutoff: float) -> str:
    found = difflib.get_close_matches(word, list(known), 1, cutoff) if len(word) > 2 else []
    return found[0] if found else ""


def _hint(meant: str) -> str:
    return f"; did you mean {meant}?" if meant else ""
