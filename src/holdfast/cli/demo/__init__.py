"""``holdfast demo``: shows what locks do, each in less than twenty seconds.

A show is a line in `SHOWS` and the module of its name, imported when it is called, with ``main(*, as_json) -> exit code``.
`show` is what they have in common: every line is computed from what has just happened, and the verdict from the lines; it may
well be "no". `stage` starts and talks to processes, `actors` is what these run; `scenes` are those of the tour.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

SHOWS = {
    "tour": "what a lock does, and what happens without one; without a SHOW, this one",
    "counter": "two processes count: what is lost, and four cures, with their speed",
    "ladder": "simpler locks, each with the schedule that breaks it; no server",
    "schedule": "jobs of three processes with wrong clocks: each tick once; and one of them killed",
    "quorum": "a lock over five servers that are stopped, killed, emptied; and what one replica does",
    "stampede": "a crowd at a slow database: how often it is asked, without a cache and with one",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = (
        "Runs on private servers that are gone afterwards; the tour on the one that HOLDFAST_URL names, if it is set.\n"
        "Exit codes: 0 everything held, 1 something did not, 69 no server (ladder: holdfast[testing] is not installed)."
    )
    lines = "\n".join(f"{name:9} {summary}" for name, summary in SHOWS.items())
    parser.add_argument("show", nargs="?", choices=[*SHOWS], default="tour", metavar="SHOW", help=lines)
    parser.add_argument("--json", action="store_true", help="the facts as one JSON document instead of text")


def main(args: argparse.Namespace) -> int:
    """Run it; returns the exit code."""
    code: int = importlib.import_module(f"holdfast.cli.demo.{args.show}").main(as_json=args.json)
    return code
