"""``holdfast demo``: demonstrations of locks with real processes and servers. Each takes less than twenty seconds.

Each demonstration has a line in `SHOWS`, and a module of the same name with a function ``main(*, as_json) -> exit code``. The
tour is here, and the others are in `holdfast_lab.demo`. A demonstration measures what its processes do, prints the facts, and
checks them. If a check fails, the exit code is not 0.

show    the code that all demonstrations share
stage   start the processes, and send them orders
actors  the code that the processes run
scenes  the scenes of the tour
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli import lab

if TYPE_CHECKING:
    import argparse

SHOWS = {
    "tour": "what a lock does, and what happens without one (default)",
    "counter": "two processes count: lost additions, and four cures",
    "ladder": "simpler locks, each with the schedule that breaks it",
    "schedule": "jobs of three processes with wrong clocks; one is killed",
    "quorum": "a lock on five servers that are stopped and killed",
    "stampede": "100 callers and a slow database, with and without cache",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "A SHOW runs on private servers, which are removed afterwards; but the tour uses\n"
        "the server of HOLDFAST_URL if that is set, and the ladder a simulated server.\n"
        "All but the tour need holdfast-lab: pip install holdfast-lab."
    )
    lines = "\n".join(f"{name:9} {summary}" for name, summary in SHOWS.items())
    parser.add_argument("show", nargs="?", choices=[*SHOWS], default="tour", metavar="SHOW", help=lines)
    parser.add_argument("--json", action="store_true", help="print the facts as one JSON document, instead of text")


def main(args: argparse.Namespace) -> int:
    if args.show == "tour":
        from holdfast.cli.demo import tour

        return tour.main(as_json=args.json)
    return lab.run(f"demo {args.show}", f"demo.{args.show}", as_json=args.json)
