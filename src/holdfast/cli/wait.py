"""``holdfast wait``: until nobody has a lock."""

from __future__ import annotations

import argparse

from holdfast.cli import lock_view, output
from holdfast.cli.contact import Patience
from holdfast.cli.durations import duration
from holdfast.errors import ConfigError, ServerError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = (
        "It takes nothing, so somebody else may have the lock right after: to work under a lock, use run.\n"
        "Exit codes: 0 it is free, 75 not within --wait, 64 bad usage, 69 no server."
    )
    parser.add_argument("name", metavar="NAME", help="of the lock")
    parser.add_argument("-w", "--wait", metavar="TIME", type=duration, help="wait for so long (default: for ever)")
    lock_view.add_options(parser, answers=False)


def main(args: argparse.Namespace) -> int:
    """Run it; returns the exit code."""
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
