"""``holdfast wait``: wait until nobody holds a lock, without acquiring the lock."""

from __future__ import annotations

import argparse

from holdfast.cli import lock_view, output
from holdfast.cli.contact import Patience
from holdfast.cli.durations import duration
from holdfast.errors import ConfigError, ServerError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options of the subcommand on its parser."""
    parser.epilog = (
        "The lock is not acquired, so another client may acquire it right afterwards. To\n"
        "run a command under a lock, use `holdfast run`. Exit codes: 0 the lock is free,\n"
        "75 it was still held after --wait, 64 bad usage, 69 no server."
    )
    parser.add_argument("name", metavar="NAME", help="name of the lock")
    parser.add_argument("-w", "--wait", metavar="TIME", type=duration, help="wait for at most this long (default: no limit)")
    lock_view.add_options(parser, answers=False)


def main(args: argparse.Namespace) -> int:
    """Run the subcommand and return its exit code."""
    patience = Patience(args.wait, lambda text: output.say(f"wait: {text}"))
    try:
        inspector = lock_view.inspector(args)
        while True:
            try:
                free = inspector.wait(args.name, patience.left(), key=args.key)
            except ServerError as error:
                if not patience.outlasts(error):
                    raise
            else:
                return 0 if free else output.EX_TEMPFAIL
    except (ConfigError, ServerError) as error:
        return output.failed("wait", error)
