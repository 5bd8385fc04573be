"""``holdfast release``: release a lock that ``holdfast acquire`` acquired, using its ticket."""

from __future__ import annotations

import argparse
import json
import os
import sys

from holdfast.cli import hints, output, servers
from holdfast.errors import HoldfastError, LeaseLost, TicketRefused

TICKET = "HOLDFAST_TICKET"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        f"The ticket is read from --ticket-file (- for stdin) or from {TICKET}.\n"
        "It is never an argument: every user of this machine can see arguments."
    )
    parser.add_argument("name", metavar="NAME", help="name of the lock")
    parser.add_argument("--ticket-file", metavar="PATH", help="file that `acquire` wrote; removed after the release")
    servers.add_options(parser, several=False)
    parser.add_argument("--prefix", default="hf:", help="start of the locks' keys (default: hf:)")
    servers.add_loudness(parser, "also print that the lock is released")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def main(args: argparse.Namespace) -> int:
    if told := hints.for_ticket(f"{args.name} {args.ticket_file}"):
        args.parser.error(told)
    url = servers.one(args)
    try:
        ticket = _ticket(args)
    except (OSError, UnicodeDecodeError) as error:
        output.say(f"release: {args.ticket_file}: {getattr(error, 'strerror', None) or 'not a ticket'}")
        return output.EX_USAGE
    try:
        from holdfast._api.redeem import redeem

        lock = redeem(url, ticket, prefix=args.prefix)
        if lock.name != args.name:
            output.say(f"release: the ticket is for {lock.name!r}, not for {args.name!r}")
            return output.EX_USAGE
        with lock:
            pass
    except (TicketRefused, LeaseLost) as error:
        output.say(f"release: {error}")
        _answer(args, released=False)
        return output.EX_LOST
    except HoldfastError as error:
        return output.failed("release", error)
    if args.ticket_file not in {None, "-"} and os.path.isfile(args.ticket_file):  # noqa: PTH113 (pathlib imports slowly)
        os.unlink(args.ticket_file)  # noqa: PTH108 (pathlib imports slowly)
    _answer(args, released=True)
    if args.verbose:
        output.say(f"{args.name}: released")
    return 0


def _answer(args: argparse.Namespace, *, released: bool) -> None:
    if args.json:
        print(output.clean(json.dumps({"name": args.name, "released": released})))


def _ticket(args: argparse.Namespace) -> str:
    if args.ticket_file == "-":
        return sys.stdin.read(servers.LONGEST)
    if args.ticket_file is not None:
        with open(args.ticket_file, encoding="ascii") as file:  # noqa: PTH123 (pathlib imports slowly)
            return file.read(servers.LONGEST)
    if TICKET not in os.environ:
        args.parser.error(f"no ticket: pass --ticket-file, or set {TICKET}")
    return os.environ[TICKET]
