"""Which servers a command is about: ``--url``, ``--url-file``, or the environment."""

from __future__ import annotations

import argparse
import os

from holdfast.cli import output

VARIABLES = ("HOLDFAST_URL", "REDIS_URL")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that `urls` reads."""
    parser.add_argument(
        "--url",
        action="append",
        default=[],
        metavar="URL",
        help="server; may be repeated. Others on this machine can see it: HOLDFAST_URL or --url-file hide a password",
    )
    parser.add_argument("--url-file", metavar="PATH", help="file with URLs of servers, one in each line")


def urls(args: argparse.Namespace) -> list[str]:
    """Those given; or those of the environment; or none. Bad usage ends the process."""
    if any("@" in url or "password=" in url for url in args.url):
        output.say("a password in --url can be seen by everybody on this machine: use HOLDFAST_URL or --url-file")
    found = list(args.url)
    if args.url_file is not None:
        try:
            with open(args.url_file, encoding="utf-8") as file:  # noqa: PTH123 (pathlib imports slowly)
                found += file.read().split()
        except UnicodeDecodeError:
            args.parser.error(f"--url-file {args.url_file}: not UTF-8")
        except OSError as error:
            args.parser.error(f"--url-file {args.url_file}: {error.strerror}")
    if not found:
        found = next((os.environ[name].split() for name in VARIABLES if os.environ.get(name, "").strip()), [])
    return found
