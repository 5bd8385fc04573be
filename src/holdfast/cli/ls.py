"""``holdfast ls``: list the locks that are held or waited for, or the deadlocks among them."""

from __future__ import annotations

import argparse
import json
import os
import sys

from holdfast.cli import lock_view, output, servers, tables
from holdfast.errors import ConfigError, ServerError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "PATTERN is written as in a shell, with * ? and [abc]; quote it, so that the\n"
        "shell does not expand it. With --json, each line is a lock."
    )
    parser.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help="pattern of lock names (default: all)")
    parser.add_argument("--deadlocks", action="store_true", help="list only the waits that form a deadlock")
    lock_view.add_options(parser, key=False)


def main(args: argparse.Namespace) -> int:
    try:
        return _deadlocks(args) if args.deadlocks else _list(args)
    except (ConfigError, ServerError) as error:
        return output.failed("ls", error)
    except BrokenPipeError:  # the reader of the output has closed it, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _deadlocks(args: argparse.Namespace) -> int:
    url = servers.one(args)
    from holdfast._api.deadlock import find_deadlocks

    found = find_deadlocks(url, prefix=args.prefix)
    for cycle in found:
        if args.json:
            print(output.clean(json.dumps(cycle.as_dict())))
            continue
        print("deadlock:")
        for waiter in cycle.waiters:
            print(output.clean(f"  {waiter}"))
    if not found and not (args.json or args.quiet):
        output.say("no deadlocks")
    return 1 if found else 0


def _list(args: argparse.Namespace) -> int:
    table = tables.Table(lock_view.COLUMNS)
    none = True
    for lock in lock_view.inspector(args).locks(args.pattern):
        none = False
        if args.json:
            print(lock_view.line_of(lock))
        else:
            table.add(lock_view.row(lock))
    if not none and not args.json:
        table.flush()
    elif none and not (args.json or args.quiet):
        output.say("no locks are held" + (f" with names that match {args.pattern}" if args.pattern != "*" else ""))
    output.flush()
    return 0
