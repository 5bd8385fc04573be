"""``holdfast wait``: wait until nobody holds a lock, without acquiring the lock."""

from __future__ import annotations

import argparse
import json

from holdfast._clock import clock
from holdfast.cli import lock_view, output
from holdfast.cli.contact import Patience
from holdfast.cli.durations import duration
from holdfast.errors import ConfigError, ServerError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "The lock is not acquired, so another client may acquire it right afterwards. To\n"
        "run a command under a lock, use `holdfast run`."
    )
    parser.add_argument("name", metavar="NAME", help="name of the lock")
    parser.add_argument("-w", "--wait", metavar="TIME", type=duration, help="wait for at most this long (default: no limit)")
    lock_view.add_options(parser, verbose="also print who holds the lock, when the wait begins")


def main(args: argparse.Namespace) -> int:
    began = clock()
    patience = Patience(args.wait, lambda text: None if args.quiet else output.say(f"wait: {text}"))
    try:
        inspector = lock_view.inspector(args)
        if args.verbose:
            output.say(f"{args.name}: held by {lock_view.who(inspector.show(args.name, key=args.key))}")
        while True:
            try:
                free = inspector.wait(args.name, patience.left(), key=args.key)
            except ServerError as error:
                if not patience.outlasts(error):
                    raise
            else:
                if args.json:
                    facts = {"name": args.name, "free": free, "waited": round(clock() - began, 3)}
                    print(output.clean(json.dumps(facts)))
                if not free and not args.quiet:
                    output.say(f"wait: lock {args.name!r} is still held after {clock() - began:.1f} s")
                return 0 if free else output.EX_TEMPFAIL
    except (ConfigError, ServerError) as error:
        return output.failed("wait", error)
