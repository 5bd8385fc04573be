"""``holdfast nodes``: show which servers of a `Redlock` vote. ``holdfast nodes init`` declares new servers."""

from __future__ import annotations

import argparse
import json
from typing import Any

from holdfast.cli import output, servers, tables
from holdfast.cli.durations import positive_duration
from holdfast.errors import ConfigError

_COLUMNS = ("server", "votes", "answer ms", "version", "up for s", "clock s", "locks")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=("init",),
        metavar="init",
        help="declare the servers new, so that they vote at once; only\nif they never had locks, or all of these have expired",
    )
    servers.add_options(parser)
    parser.add_argument(
        "--max-ttl",
        metavar="TIME",
        type=positive_duration,
        default=60.0,
        help="longest lease on these servers, as in max_ttl= or\nquarantine= (default: 60)",
    )
    parser.add_argument("--prefix", default="hf:", help="start of the locks' keys (default: hf:)")
    parser.add_argument(
        "--force",
        action="store_true",
        help="init: declare every server, even one that may have lost\nlocks or has recorded other settings",
    )
    servers.add_loudness(parser)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def main(args: argparse.Namespace) -> int:
    if args.force and args.action is None:
        args.parser.error("--force is for init")
    urls = servers.urls(args)
    if not urls:
        args.parser.error("no servers: pass --url for each server, --url-file or --local")
    try:
        return _declare(urls, args) if args.action else _show(urls, args)
    except ConfigError as error:
        output.say(f"nodes: {error}")
        return output.EX_USAGE


def _declare(urls: list[str], args: argparse.Namespace) -> int:
    from holdfast import declare_new

    # If there is only one server, its locks have a quarantine.
    results = declare_new(urls[0] if len(urls) == 1 else urls, max_ttl=args.max_ttl, force=args.force, prefix=args.prefix)
    if args.json:
        print(json.dumps({output.clean(name): output.clean(text) for name, text in results.items()}))
    else:
        for name, text in results.items():
            print(output.clean(f"{name}: {text}"))
    return 0 if all(text.startswith(("declared", "ready")) for text in results.values()) else 2


def _show(urls: list[str], args: argparse.Namespace) -> int:
    from holdfast._api import redlock
    from holdfast.doctor import nodes

    endpoints, server_set = redlock.find(urls, "sync", args.max_ttl, args.prefix)
    found = nodes.ask_all(endpoints, server_set, args.prefix)
    skews = nodes.skews(found)
    rows = [nodes.row(node, server_set, skews.get(node.name)) for node in found]
    votes = sum(bool(row["votes"]) for row in rows)
    level = 0 if votes == len(rows) else 1 if votes >= server_set.majority else 2
    if args.json:
        text = json.dumps({"votes": votes, "majority": server_set.majority, "exit_code": level, "servers": rows})
        print(output.clean(text))
        return level
    tables.show([_COLUMNS, *(_cells(row) for row in rows)])
    for row in rows:
        if not row["votes"]:
            print(output.clean(f"{row['server']}: {row['why']}"))
    spare = votes - server_set.majority
    print(
        f"{votes} of {len(rows)} vote, {server_set.majority} are needed: "
        + (f"locks can be acquired, and {spare} more may fail" if spare >= 0 else "no lock can be acquired")
    )
    return level


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    def text(value: object, form: str = "{}") -> str:
        return "-" if value is None else form.format(value)

    ahead = row["clock_ahead_s"]
    clock = "same" if ahead is not None and abs(ahead) <= 2 * row["clock_doubt_s"] + 0.001 else text(ahead, "{:+.3f}")
    holds = text(row["holds"]) + (" or more" if row["holds_more"] else "")
    votes = "yes" if row["votes"] else "no" if row["up"] else "away"
    return (
        row["server"],
        votes,
        text(row["round_trip_ms"], "{:.2f}"),
        text(row["version"]),
        text(row["uptime_s"]),
        clock,
        holds,
    )
