"""Hints for words that the command line does not know: the words of other programs, and words with a typing error."""

from __future__ import annotations

import difflib
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
        "--timeout": "--wait for the lock, or --max-runtime for the command",
        "-t": "--wait for the lock, or --max-runtime for the command",
        "--command": "-c",
        "-s": "--shared",
        "-x": "--exclusive",
        "-e": "--exclusive",
        "--unlock": "holdfast release",
        "--max": "--limit",
        "--slots": "--limit",
        "--signal": "--on-lost",
        "-k": "--kill-after",
    },
    "schedule": {"--dry-run": "--check", "--label": "--feature", "--wait": "--finish-within"},
    "jobs": {"--limit": "--last", "-n": "--last"},
    "break": {"--force": "--yes", "-f": "--yes"},
    "elect": {"--candidate": "--as", "--name": "--as", "--id": "--as"},
    "acl": {"--version": "--server-version"},
    "bench": {"--json-file": "--output", "--out": "--output"},
}
"""For each subcommand, maps options of other programs (flock, timeout, redis-cli, kubectl) to the options that do the same."""

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
    options = list(known)
    foreign = OPTIONS.get(subcommand, {}).get(option) or OPTIONS[ANY].get(option, "")
    if foreign in {URL, SECRET} and "--url" not in options:
        foreign = ""
    if foreign.startswith("--") and foreign.split()[0] not in options:
        foreign = ""
    return _hint(foreign or _like(option, options))


def for_subcommand(word: str, known: Iterable[str]) -> str:
    """Return a hint such as ``; did you mean run?``; empty if no subcommand is like this word."""
    return _hint(SUBCOMMANDS.get(word.lower()) or _like(word.lower(), known))


def _like(word: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(word, list(known), 1, 0.6) if len(word) > 2 else []
    return found[0] if found else ""


def _hint(meant: str) -> str:
    return f"; did you mean {meant}?" if meant else ""
