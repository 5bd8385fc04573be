"""Which servers a command is about: ``--url``, ``--url-file``, or the environment."""

from __future__ import annotations

import argparse
import errno
import os
import stat
from typing import TYPE_CHECKING, NoReturn

from holdfast._local.guardian.parent import VARIABLES, has_password, is_torn
from holdfast.cli import output

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCAL = "local://"

LONGEST = 65_536
"""Bytes of a file with URLs, or with a ticket."""

TORN = "a blank separates two URLs, and one of them has no ://; a blank in a password is written %20"

LINKS = 40
"""Symbolic links that are followed to a file, as by Linux."""


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
            if is_torn(os.environ[name]):
                args.parser.error(f"{name}: {TORN}")
            return found
    return []


def _of_file(args: argparse.Namespace, *, quiet: bool) -> list[str]:
    def refuse(why: str) -> NoReturn:
        parser: argparse.ArgumentParser = args.parser
        parser.error(f"--url-file {args.url_file}: {why}")

    try:
        with open(args.url_file, "rb") as file:  # noqa: PTH123 (pathlib imports slowly)
            seen = os.fstat(file.fileno())
            if why := _distrusted(args.url_file, seen, terminal=file.isatty()):
                refuse(why)
            text = file.read(LONGEST + 1)
        found = text.decode().split()
    except UnicodeDecodeError:
        refuse("not UTF-8")
    except OSError as error:
        refuse(error.strerror or type(error).__name__)
    if len(text) > LONGEST:
        refuse(f"longer than {LONGEST} bytes, which are no URLs: name a file with one URL in each line")
    if not found:
        refuse("there is no URL in it")
    if is_torn(text.decode()):
        refuse(TORN)
    if stat.S_ISREG(seen.st_mode) and seen.st_mode & stat.S_IROTH and any(map(has_password, found)) and not quiet:
        output.say(f"the password in {args.url_file} can be read by every user of this machine: chmod 600 it")
    return found


def _distrusted(path: str, seen: os.stat_result, *, terminal: bool) -> str:
    """Why somebody else may choose the server, and what to do about it; empty if nobody else may.

    A pipe or terminal that this process was given when it was started is trusted as its other arguments are.
    """
    kind, target = seen.st_mode, os.path.realpath(path)
    if stat.S_ISSOCK(kind) or terminal or (stat.S_ISFIFO(kind) and target.startswith("/proc/")):
        return ""
    if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
        return "neither a file, a pipe nor a terminal: name a file with one URL in each line"
    ours = {0, os.geteuid()}
    for user in (seen.st_uid, os.lstat(path).st_uid):
        if user not in ours:
            return f"belongs to another user ({user}), who may choose the server: chown it, or name a copy of your own"
    if kind & stat.S_IWOTH:
        return "every user may write to it, and choose the server: chmod 600 it"
    for step in _way(path):
        found = os.lstat(step)
        link, around = stat.S_ISLNK(found.st_mode), os.path.dirname(step)  # noqa: PTH120
        if found.st_uid not in ours or (not link and found.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH):
            where = around if link else step
            return f"another user may replace it in {where}, and choose the server: move it to a directory of your own"
    return ""


def _way(path: str) -> Iterator[str]:
    """The directories and links that lead from / to a file: whoever may change one of them chooses the file. Raises OSError."""
    place, links = "/", 0
    left = os.path.join(os.getcwd(), path).split("/")[::-1]  # noqa: PTH109, PTH118
    yield place
    while left:
        name = left.pop()
        if name == "..":
            place = os.path.dirname(place)  # noqa: PTH120
        if name in {"", ".", ".."}:
            continue
        step = os.path.join(place, name)  # noqa: PTH118
        try:
            target = os.readlink(step)  # noqa: PTH115
        except OSError:  # it is no link
            place = step
            if any(left):
                yield step
            continue
        yield step
        links += 1
        if links > LINKS:  # the kernel has followed it before, so somebody is just changing it
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        place = "/" if target.startswith("/") else place
        left += target.split("/")[::-1]
