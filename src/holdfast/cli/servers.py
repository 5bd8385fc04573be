"""Which servers a command is about: ``--url``, ``--url-file``, or the environment."""

from __future__ import annotations

import argparse
import os
from typing import Any

from holdfast.cli import output

VARIABLES = ("HOLDFAST_URL", "REDIS_URL")


def add_options(parser: argparse.ArgumentParser) -> Any:
    """Declare the options that `urls` reads. Returns their group, for others in their place."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--url",
        action="append",
        default=[],
        help="server; several times: servers that hold one lock together; others on this machine can see it: HOLDFAST_URL or "
        "--url-file hide a password",
    )
    group.add_argument("--url-file", metavar="PATH", help="file with the URL of a server in each line")
    return group


def urls(args: argparse.Namespace, *, quiet: bool = False) -> list[str]:
    """Those given; or those of the environment; or none. Bad usage ends the process."""
    if args.url:
        if any(map(has_password, args.url)) and not quiet:
            output.say("the password in --url can be seen by everybody on this machine: use HOLDFAST_URL or --url-file")
        return list(args.url)
    if args.url_file is not None:
        return _of_file(args)
    for name in VARIABLES:
        if name in os.environ:
            found = os.environ[name].split()
            if not found:
                args.parser.error(f"{name} is set, but empty: set it to the server's URL, or unset it")
            return found
    return []


def _of_file(args: argparse.Namespace) -> list[str]:
    try:
        with open(args.url_file, encoding="utf-8") as file:  # noqa: PTH123 (pathlib imports slowly)
            found = file.read().split()
    except UnicodeDecodeError:
        args.parser.error(f"--url-file {args.url_file}: not UTF-8")
    except OSError as error:
        args.parser.error(f"--url-file {args.url_file}: {error.strerror}")
    if not found:
        args.parser.error(f"--url-file {args.url_file}: there is no URL in it")
    return found


def has_password(urls: str) -> bool:
    """Whether one of these seems to carry one; in doubt, yes."""
    return any(":" in url.partition("://")[2].rpartition("@")[0] or "password=" in url for url in urls.split())
