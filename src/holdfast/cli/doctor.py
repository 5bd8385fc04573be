"""``holdfast doctor``: check whether a server is fit for locks, and print the remedies."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from holdfast.cli import output, servers
from holdfast.cli.durations import positive_duration
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.doctor import Finding, Report

EXIT = {"ok": 0, "note": 0, "warning": 1, "problem": 2}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "With several --url, the servers are checked as those of one Redlock. The check\n"
        "changes no settings and no data of yours; it acquires a lock of its own."
    )
    servers.add_options(parser)
    parser.add_argument(
        "--ttl", metavar="TIME", type=positive_duration, default=30.0, help="shortest lease that your locks use (default: 30)"
    )
    parser.add_argument(
        "--replicas",
        metavar="N",
        type=_count,
        default=0,
        help="check that N replicas can acknowledge a lock, as\nreplicas=N requires",
    )
    parser.add_argument("--prefix", default="hf:", help="start of the locks' keys (default: hf:)")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only warnings and problems")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def main(args: argparse.Namespace) -> int:
    urls = servers.urls(args)
    if not urls:
        args.parser.error(f"no server: {servers.SOURCES}")
    from holdfast.doctor import examine

    try:
        report = examine(urls, ttl=args.ttl, replicas=args.replicas, prefix=args.prefix)
    except ConfigError as error:
        output.say(f"doctor: {error}")
        return output.EX_USAGE
    code = EXIT[report.level]
    if args.json:
        print(json.dumps(_document(report, code)))
    else:
        _print(report, quiet=args.quiet)
    return code


def _print(report: Report, *, quiet: bool) -> None:
    for address, findings in [*report.servers.items(), ("together", report.together)]:
        shown = [finding for finding in findings if not quiet or EXIT[finding.level]]
        if shown:
            print(output.clean(address))
        for finding in shown:
            print(f"  {finding.level:8} {output.clean(finding.topic)}: {output.clean(finding.what)}")
            for text in filter(None, (finding.why, f"-> {finding.remedy}" if finding.remedy else "")):
                print(f"           {output.clean(text)}")


def _document(report: Report, code: int) -> dict[str, object]:
    def rows(findings: list[Finding]) -> list[dict[str, str]]:
        return [{name: output.clean(text) for name, text in vars(finding).items()} for finding in findings]

    each = [{"server": output.clean(address), "findings": rows(found)} for address, found in report.servers.items()]
    return {"level": report.level, "exit_code": code, "servers": each, "together": rows(report.together)}
