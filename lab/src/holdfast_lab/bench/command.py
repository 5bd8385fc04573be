"""The program of ``holdfast bench``, whose options `holdfast.cli.bench` declares."""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli import output, servers
from holdfast.errors import ConfigError, ServerError
from holdfast_lab.bench import machine, report, rivals, scenarios
from holdfast_lab.bench.bare import Bare
from holdfast_lab.bench.plan import QUICK_SECONDS, SECONDS, Plan
from holdfast_lab.bench.report import Result
from holdfast_lab.bench.scenarios import SCENARIOS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def main(args: argparse.Namespace) -> int:
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
    """Create the file and the directory for the results. So a wrong path fails before the measurement, which takes minutes."""
    if directory is not None:
        if find_spec("pygal") is None:
            output.say('no charts are drawn: pygal is missing; run pip install "holdfast-lab[bench]"')
        else:
            directory.mkdir(parents=True, exist_ok=True)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def _measure(names: Sequence[str], plan: Plan, args: argparse.Namespace) -> int:
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
        from holdfast_lab.bench import charts  # imported last: it changes how modules are imported

        for result in results:
            charts.draw(result, args.charts)
