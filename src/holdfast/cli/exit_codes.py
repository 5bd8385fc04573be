"""The exit codes of all subcommands. The help, the man page and the documentation print this table."""

from __future__ import annotations

import textwrap

EVERY = {
    "64": "bad usage: an option or a setting is wrong",
    "69": "the server cannot be reached, or it refuses the request",
    "70": "there is an error in holdfast",
    "71": "the operating system refused a process, memory, a file or output",
    "128 + N": "signal N ended the subcommand; for Ctrl-C this is 130",
}
"""Codes that mean the same in every subcommand. A subcommand that cannot end with 69 is in `WITHOUT_69`."""

WITHOUT_69 = {"doctor", "nodes", "completion"}
"""Subcommands that contact no server, or that report a server without an answer as an ordinary result."""

OF = {
    "run": {
        "the command's": "the command ended by itself",
        "75": "the lock stayed busy; -E sets another code, and with --skip it is 0",
        "76": "the lock was lost, and the command was ended",
        "124": "--max-runtime was over, and the command was ended",
        "126": "the command cannot be executed",
        "127": "the command cannot be found",
        "128 + N": "signal N ended the command, or ended holdfast while it waited",
    },
    "elect": {
        "the command's": "the command ended by itself",
        "75": "this candidate was not elected within --wait",
        "76": "the leadership was lost, and the command was ended",
        "126": "the command cannot be executed",
        "127": "the command cannot be found",
        "128 + N": "signal N ended the command, or ended holdfast if it ran no command",
    },
    "schedule": {"0": "a signal stopped the schedule, or --check printed it"},
    "jobs": {"0": "done", "64": "bad usage, or there is no such schedule or job"},
    "acquire": {
        "0": "the lock is acquired",
        "71": "the ticket cannot be written, so the lock is not kept",
        "75": "the lock stayed busy",
    },
    "release": {
        "0": "the lock is released",
        "76": "the lock was lost before: it expired, was revoked or was released",
    },
    "ls": {"0": "the locks are listed", "1": "there are deadlocks (with --deadlocks)"},
    "show": {"0": "the lock is shown, whether it is held or not"},
    "watch": {"0": "Ctrl-C or --count ended it"},
    "wait": {"0": "nobody holds the lock", "75": "the lock was still held after --wait"},
    "break": {
        "0": "the lock is revoked, or nobody held it",
        "1": "the answer to the question was not yes",
        "75": "another client holds the lock by now, so nothing was revoked",
    },
    "server": {
        "0": "the action succeeded; for status: the server runs",
        "3": "for status: the server does not run",
    },
    "doctor": {
        "0": "the server is fit",
        "1": "there are warnings",
        "2": "there are problems, such as a server that does not answer",
    },
    "nodes": {
        "0": "all servers vote; for init: all are declared, by this call or an earlier one",
        "1": "not all servers vote, but a majority does",
        "2": "no majority votes, so no lock can be acquired; for init: some are not declared",
    },
    "acl": {"0": "the rule is printed"},
    "bench": {
        "0": "the figures are measured, whether targets were missed or not",
        "69": "the server cannot be reached or refuses, or holdfast-lab is not installed",
    },
    "demo": {
        "0": "all checks held",
        "1": "some checks did not hold",
        "69": "no server could be started, or this show needs holdfast-lab, which is not installed",
    },
    "completion": {"0": "the script is printed"},
}
"""The codes of each subcommand, and what they mean."""


def of(subcommand: str) -> dict[str, str]:
    """Return all codes with which a subcommand may end, in their order, and what they mean."""
    common = {code: meaning for code, meaning in EVERY.items() if code != "69" or subcommand not in WITHOUT_69}
    found = common | OF[subcommand]
    return {code: found[code] for code in sorted(found, key=_order)}


def text(subcommand: str) -> str:
    """Return the part of the help that lists the exit codes of a subcommand; for "", those that all subcommands share."""
    rows = of(subcommand) if subcommand else EVERY
    heading = "exit codes:" if subcommand else "exit codes of every subcommand:"
    width = max(map(len, rows))
    lines = [line for code, meaning in rows.items() for line in _row(f"  {code:{width}}  ", meaning)]
    return "\n".join([heading, *lines]) + "\n"


def _order(code: str) -> int:
    return 1000 if code == "128 + N" else int(code) if code.isdigit() else -1


def _row(start: str, meaning: str) -> list[str]:
    return textwrap.wrap(meaning, 78, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False)
