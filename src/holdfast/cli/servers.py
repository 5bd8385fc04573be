"""Which servers a command is about: ``--url``, ``--url-file``, or the environment."""

from __future__ import annotations

import argparse
import os
import stat

from holdfast._guard import VARIABLES, has_password
from holdfast.cli import output

LOCAL = "local://"


def add_options(parser: argparse.ArgumentParser, *, local: bool = False) -> None:
    """Declare the options that `urls` reads. ``local``: and `settled`."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--url",
        action="append",
        default=[],
        help="server; several times: servers that hold one lock together; others on this machine can see it: HOLDFAST_URL or "
        "--url-file hide a password",
    )
    group.add_argument("--url-file", metavar="PATH", help="file with the URL of a server in each line")
    if local:
        group.add_argument("--local", action="store_true", help="this machine's own server, started when needed (local://)")


def settled(args: argparse.Namespace, *, quiet: bool = False) -> list[str]:
    """As `urls`, or this machine's own server. Never falls back silently: a host that lost its setting would no longer work
    together with the others."""
    if args.local:
        return [LOCAL]
    found = urls(args, quiet=quiet)
    if found:
        return found
    if not os.isatty(2):
        args.parser.error("no server: set HOLDFAST_URL, or give --local for this machine's own server")
    if not quiet:
        output.say("HOLDFAST_URL is not set: using this machine's own server (local://)")
    return [LOCAL]


def one(args: argparse.Namespace, *, quiet: bool = False) -> str:
    """As `settled`, where several are too many."""
    found = settled(args, quiet=quiet)
    if len(found) > 1:
        args.parser.error("one server is needed here, several were given")
    return found[0]


def urls(args: argparse.Namespace, *, quiet: bool = False) -> list[str]:
    """Those given; or those of the environment; or none. Bad usage ends the process."""
    if args.url:
        if any(map(has_password, args.url)) and not quiet:
            output.say("the password in --url can be seen by everybody on this machine: use HOLDFAST_URL or --url-file")
        return list(args.url)
    if args.url_file is not None:
        return _of_file(args, quiet=quiet)
    for name in VARIABLES:
        if name in os.environ:
            found = os.environ[name].split()
            if not found:
                args.parser.error(f"{name} is set, but empty: set it to the server's URL, or unset it")
            return found
    return []


def _of_file(args: argparse.Namespace, *, quiet: bool) -> list[str]:
    try:
        with open(args.url_file, encoding="utf-8") as file:  # noqa: PTH123 (pathlib imports slowly)
            found = file.read().split()
            mode = os.fstat(file.fileno()).st_mode
    except UnicodeDecodeError:
        args.parser.error(f"--url-file {args.url_file}: not UTF-8")
    except OSError as error:
        args.parser.error(f"--url-file {args.url_file}: {error.strerror}")
    if not found:
        args.parser.error(f"--url-file {args.url_file}: there is no URL in it")
    if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
        args.parser.error(f"--url-file {args.url_file}: every user may write to it, and choose the server: chmod 600 it")
    if stat.S_ISREG(mode) and mode & stat.S_IROTH and any(map(has_password, found)) and not quiet:
        output.say(f"the password in {args.url_file} can be read by every user of this machine: chmod 600 it")
    return found
