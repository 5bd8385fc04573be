"""The servers of a command, from ``--url``, ``--url-file``, ``--local`` or the environment."""

from __future__ import annotations

import argparse
import errno
import os
import stat
from typing import TYPE_CHECKING, NoReturn

from holdfast._local import environment
from holdfast._local.environment import VARIABLES, has_password, is_torn
from holdfast.cli import output
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCAL = "local://"

SOURCES = "set HOLDFAST_URL, or pass --url, --url-file, or --local for this machine's own server"
"""Advice for a user who has named no server."""

LONGEST = 65_536
"""Largest size, in bytes, of a file with URLs or with a ticket."""

LINKS = 40
"""Greatest number of symbolic links that are followed to a file, as on Linux."""


def add_options(parser: argparse.ArgumentParser, *, several: bool = True) -> None:
    """Declare --url, --url-file and --local, which `settled` and `one` read.

    ``several``: whether the help says that --url may be repeated.
    """
    majority = "repeat it for a lock on a majority\nof several servers" if several else "this subcommand works on one\nserver"
    group = add_urls(
        parser,
        f"URL of the server; {majority}. Every user of this machine can see\n"
        "arguments: put passwords in HOLDFAST_URL or --url-file",
    )
    group.add_argument(
        "--local", action="store_true", help="use this machine's own server (local://), which is\nstarted if needed"
    )


def add_urls(parser: argparse.ArgumentParser, what: str) -> argparse._MutuallyExclusiveGroup:
    """Declare --url and --url-file, which `given` reads. Return the argparse group of these options.

    ``what``: help text of --url.
    """
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--url", action="append", default=[], help=what)
    group.add_argument("--url-file", metavar="PATH", help="file with the URL of one server in each line")
    return group


def add_loudness(parser: argparse.ArgumentParser, verbose: str = "", quiet: str = "print answers and errors only") -> None:
    """Declare -q, with the help text ``quiet``. If ``verbose`` is not empty, also declare -v, with this help text.

    Without -q, a subcommand also prints warnings about passwords, and that it uses this machine's own server by default.
    """
    group = parser.add_mutually_exclusive_group()
    group.add_argument("-q", "--quiet", action="store_true", help=quiet)
    if verbose:
        group.add_argument("-v", "--verbose", action="store_true", help=verbose)


def settled(args: argparse.Namespace) -> list[str]:
    """Return the URLs from the options or the environment. If there are none, return the URL of this machine's own server.

    If stderr is no terminal, a missing URL is a usage error. Otherwise, if HOLDFAST_URL were missing on one host, its cron jobs
    would use a server that no other host uses.
    """
    found = urls(args)
    if found:
        return found
    if not os.isatty(2):
        args.parser.error(f"no server: {SOURCES}")
    if not args.quiet:
        output.say("HOLDFAST_URL is not set: using this machine's own server (local://)")
    return [LOCAL]


def one(args: argparse.Namespace) -> str:
    """Return the URL from the options or the environment, else that of this machine's own server. Several URLs are a usage
    error, as is a missing one if stderr is no terminal."""
    return _only(settled(args), args)


def one_given(args: argparse.Namespace) -> str | None:
    """Return the URL of the only server that the options name, or None. Several URLs are a usage error."""
    return _only(found, args) if (found := given(args)) else None


def _only(found: list[str], args: argparse.Namespace) -> str:
    if len(found) > 1:
        args.parser.error("this subcommand works on one server: pass one URL, not several")
    return found[0]


def given(args: argparse.Namespace) -> list[str]:
    """Return the URLs that --url or --url-file name; an empty list without them. An invalid option is a usage error."""
    if any(map(has_password, args.url)) and not args.quiet:
        output.say("every user of this machine can see the password in --url: use HOLDFAST_URL or --url-file")
    if args.url_file is None:
        return _checked(args.url, "--url", args)
    return _checked(_of_file(args), f"--url-file {args.url_file}", args)


def _checked(found: list[str], source: str, args: argparse.Namespace) -> list[str]:
    """Return a copy of the URLs. A URL without a scheme is a usage error that names its ``source``."""
    for url in found:
        if "://" not in url and not url.startswith("local:"):
            from holdfast._net.url import no_scheme  # imported here, because only errors need it

            args.parser.error(f"{source}: {no_scheme(url)}")
    return list(found)


def urls(args: argparse.Namespace) -> list[str]:
    """Return the URLs from the options, else from the environment, else an empty list. An invalid option is a usage error."""
    found = [LOCAL] if args.local else given(args)
    if found:
        return found
    parser: argparse.ArgumentParser = args.parser
    try:
        found = environment.urls()
    except ConfigError as error:
        parser.error(str(error))
    return _checked(found, next((name for name in VARIABLES if name in os.environ), ""), args)


def _of_file(args: argparse.Namespace) -> list[str]:
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
        refuse("the file is not UTF-8 text")
    except OSError as error:
        refuse(error.strerror or type(error).__name__)
    if len(text) > LONGEST:
        refuse(f"the file is longer than {LONGEST} bytes: name a file with one URL in each line")
    if not found:
        refuse("the file contains no URL")
    if is_torn(text.decode()):
        refuse(environment.TORN)
    if stat.S_ISREG(seen.st_mode) and seen.st_mode & stat.S_IROTH and any(map(has_password, found)) and not args.quiet:
        output.say(f"every user of this machine can read the password in {args.url_file}: set its mode with chmod 600")
    return found


def _distrusted(path: str, seen: os.stat_result, *, terminal: bool) -> str:
    """Return the reason why another user could change the URLs in this file, and the remedy; empty if no other user can.

    ``seen``: the status of the opened file. A pipe or terminal that this process has inherited is trusted.
    """
    kind, target = seen.st_mode, os.path.realpath(path)
    if stat.S_ISSOCK(kind) or terminal or (stat.S_ISFIFO(kind) and target.startswith("/proc/")):
        return ""
    if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
        return "the path is neither a file, a pipe nor a terminal: name a file with one URL in each line"
    ours = {0, os.geteuid()}
    for user in (seen.st_uid, os.lstat(path).st_uid):
        if user not in ours:
            return f"the file belongs to another user ({user}), who may change the URL: chown it, or name a copy of your own"
    if kind & stat.S_IWOTH:
        return "every user may write to the file and change the URL: set its mode with chmod 600"
    for step in _way(path):
        found = os.lstat(step)
        link, around = stat.S_ISLNK(found.st_mode), os.path.dirname(step)  # noqa: PTH120
        if found.st_uid not in ours or (not link and found.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH):
            where = around if link else step
            return f"another user may replace the file in {where} and change the URL: move it to a directory of your own"
    return ""


def _way(path: str) -> Iterator[str]:
    """Yield the directories and symbolic links on the path from / to a file. A user who may change one of them can replace the
    file.

    Raises OSError if one of them cannot be read.
    """
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
        except OSError:  # this step is not a link
            place = step
            if any(left):
                yield step
            continue
        yield step
        links += 1
        if links > LINKS:  # the kernel has just followed this path without error, so another process is changing it
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        place = "/" if target.startswith("/") else place
        left += target.split("/")[::-1]
