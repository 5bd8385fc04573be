"""``holdfast bench``: the options. The measurement is in `holdfast_lab.bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli import lab, servers
from holdfast.cli.durations import positive_duration

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Without SCENARIO, all scenarios are measured. Each target is shown as held or\n"
        "missed; a missed target does not change the exit code. The benchmark\n"
        "needs the package holdfast-lab: pip install holdfast-lab."
    )
    parser.add_argument(
        "scenario", nargs="*", metavar="SCENARIO", help="scenario to measure, such as uncontended; --list shows\nall of them"
    )
    parser.add_argument("--list", action="store_true", help="list the scenarios and exit")
    servers.add_urls(parser, "measure on this server (redis:// or unix://), instead of\na private one")
    parser.add_argument("--quick", action="store_true", help="take about four minutes instead of ten, with rougher\nfigures")
    parser.add_argument(
        "--seconds",
        type=positive_duration,
        help="measure each lock in each comparison for this long\n(default: 5, or 2 with --quick)",
    )
    servers.add_loudness(parser)
    parser.add_argument("--json", action="store_true", help="print all figures as JSON, instead of text")
    parser.add_argument("--output", metavar="FILE", type=Path, help="also write all figures to this file, as JSON")
    parser.add_argument("--charts", metavar="DIR", type=Path, help="draw a chart of each scenario in this directory (SVG)")


def main(args: argparse.Namespace) -> int:
    return lab.run("bench", "bench.command", args)
