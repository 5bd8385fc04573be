"""``holdfast bench``: measure locks on this machine, next to bare server commands and other lock libraries."""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli import output, servers
from holdfast.cli.durations import positive_duration
from holdfast.errors import ConfigError, ServerError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from holdfast.bench.plan import Plan
    from holdfast.bench.report import Result


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options of the subcommand on its parser."""
    parser.epilog = (
        "Without SCENARIO, all scenarios are measured. Each target is shown as held or\n"
        "missed; a missed target does not change the exit code."
    )
    parser.add_argument(
        "scenario", nargs="*", metavar="SCENARIO", help="scenario to measure, such as uncontended; --list shows\nall of them"
    )
    parser.add_argument("--list", action="store_true", help="list the scenarios and exit")
    servers.add_urls(parser, "measure on this server (redis:// or unix://), instead of\na private one")
    parser.add_argument("--quick", action="store_true", help="take two minutes instead of ten, with rougher figures")
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
    """Run the subcommand and return its exit code."""
    from holdfast.bench.plan import QUICK_SECONDS, SECONDS, Plan
    from holdfast.bench.scenarios import SCENARIOS

    if args.list:
        print("\n".join(f"{name:12} {scenario.summary}" for name, scenario in SCENARIOS.items()))
        return 0
    for name in args.scenario:
        if name not in SCENARIOS:
            args.parser.error(f"no such scenario: {name}; pass one of {', '.join(SCENARIOS)}")
    names = list(dict.fromkeys(args.scenario)) or list(SCENARIOS)
    seconds = args.seconds or (QUICK_SECONDS if args.quick else SECONDS)
    try:
        with ExitStack() as stack:
            url = servers.one_given(args) or _private(stack)
            _prepare(args.output, args.charts)
            return _measure(names, Plan(url, seconds, args.quick), args)
    except ConfigError as error:
        output.say(str(error))
        return output.EX_USAGE if args.url or args.url_file else output.EX_UNAVAILABLE
    except (ServerError, ConnectionError) as error:
        output.say(f"bench: {output.one_line(str(error))}")
        return output.EX_UNAVAILABLE


def _private(stack: ExitStack) -> str:
    from holdfast._local.server import private

    return stack.enter_context(private(port=True, password="")).url


def _prepare(file: Path | None, directory: Path | None) -> None:
    """Create the file and the directory for the results now, so that a wrong path fails before ten minutes of measuring."""
    if directory is not None:
        if find_spec("pygal") is None:
            output.say('no charts are drawn: pygal is missing; run pip install "holdfast[bench]"')
        else:
            directory.mkdir(parents=True, exist_ok=True)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def _measure(names: Sequence[str], plan: Plan, args: argparse.Namespace) -> int:
    from holdfast.bench import machine, report, rivals, scenarios
    from holdfast.bench.bare import Bare

    started = time.monotonic()
    server = Bare(plan.url)
    facts = machine.facts(server)

    def tell(text: str) -> None:
        if not args.json:
            print(text, flush=True)

    tell("\n".join([machine.text(facts), *rivals.missing()]))
    results: list[Result] = []
    for name in names:
        results.append(scenarios.run(name, plan))
        tell(results[-1].text())
    machine.tidy(server)
    server.close()
    judged = [figure for result in results for figure in result.figures if figure.held is not None]
    facts["load_after"] = round(os.getloadavg()[0], 2)
    held = sum(1 for figure in judged if figure.held)
    tell(f"\n{held} of {len(judged)} targets held; {time.monotonic() - started:.0f} s, load now {facts['load_after']}")
    options = {"seconds": plan.seconds, "quick": plan.quick, "server": "given" if args.url or args.url_file else "private"}
    _write(args, report.document(results, facts, options), results)
    return 0


def _write(args: argparse.Namespace, document: dict[str, Any], results: Sequence[Result]) -> None:
    text = json.dumps(document, indent=1, ensure_ascii=False)
    if args.json:
        print(text)
    if args.output is not None:
        args.output.write_text(f"{text}\n", encoding="utf-8")
    if args.charts is not None and find_spec("pygal") is not None:
        from holdfast.bench import charts  # after the measurement, because it changes how modules are imported

        for result in results:
            charts.draw(result, args.charts)
