"""``holdfast acl``: the line that gives a user of the server the rights that locks need, and no others."""

from __future__ import annotations

import argparse
import re
from contextlib import closing

from holdfast._api import access
from holdfast._core.requests import WireError
from holdfast._net import protocol
from holdfast._net.sync_connection import Connection
from holdfast._net.url import from_url
from holdfast.cli import output
from holdfast.errors import ConfigError

FEATURES = (
    "redlock",
    "cluster",
    "sentinel",
    "replicas",
    "quarantine",
    "fencing",
    "cache",
    "once",
    "schedule",
    "permits",
    "election",
    "inspect",
    "break",
    "events",
)
"""Those of `_api.access` that are options: all but locks, and what `--timestamp` names."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = (
        "Put a password in the place of PASSWORD, and give the line to redis-cli or valkey-cli. PATTERN as in ACL rules."
    )
    add = parser.add_argument
    add("--user", default="holdfast", metavar="NAME", help="of the user (default: holdfast)")
    add("--prefix", default="hf:", help="of the locks' keys (default: hf:)")
    add("--key", action="append", default=[], metavar="PATTERN", help="keys of locks that have key=; may be repeated")
    add("--sentinel", action="store_true", help="clients find the server by Sentinels, and ask it whether it is the primary")
    add("--replicas", action="store_true", help="locks are to be acknowledged by replicas (replicas=n)")
    add("--quarantine", action="store_true", help="locks have quarantine=")
    add("--cache", action="store_true", help="there are caches, too")
    add("--once", action="store_true", help="there is once, too")
    add("--inspect", action="store_true", help="a user that only sees locks, their tokens too: ls, show, wait, watch")
    add("--break", action="store_true", help="a user that sees locks, and can take them away: break")
    add("--election", action="store_true", help="there are elections, too")
    add("--events", action="store_true", help="there are events, latches or barriers, too")
    add("--schedule", action="store_true", help="there are schedules, too")
    add("--permits", action="store_true", help="there are semaphores or read-write locks, too")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--redlock", action="store_true", help="the server is one of several that hold a lock together")
    kind.add_argument("--cluster", action="store_true", help="the server is one of a Cluster: give the line to each of them")
    add("--fencing", action="append", default=[], metavar="PATTERN", help="keys that holdfast.fencing writes; may be repeated")
    add("--timestamp", action="append", default=[], metavar="PATTERN", help="keys of timestamp locks; may be repeated")
    add("--select", action="store_true", help="the locks are in another database than 0")
    knows = parser.add_mutually_exclusive_group()
    knows.add_argument("--server-version", type=_version, metavar="N.N", help="what this one knows (default: 6.2)")
    knows.add_argument("--url", help="what this server knows")


def _version(text: str) -> tuple[int, int]:
    match = re.match(r"([0-9]{1,3})\.([0-9]{1,3})(\.|$)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a version: write 7.2")
    return int(match[1]), int(match[2])


def main(args: argparse.Namespace) -> int:
    """Print it; returns the exit code."""
    if not args.user.isprintable() or not args.user or " " in args.user:
        args.parser.error("--user: a name without spaces")
    try:
        words = access.rule(
            [
                *([] if args.inspect or getattr(args, "break") else ["lock"]),
                *(name for name in FEATURES if getattr(args, name)),
                *(["legacy"] if args.timestamp else []),
            ],
            prefix=args.prefix,
            raw_keys=args.key,
            fenced=args.fencing,
            timestamps=args.timestamp,
            select=args.select,
            version=_version_of(args.url) if args.url else args.server_version or access.OLDEST,
        )
    except (ConfigError, WireError) as error:
        return output.failed("acl", error)
    words.insert(words.index("on") + 1, ">PASSWORD")
    print("ACL SETUSER", args.user, *words)
    return 0


def _version_of(url: str) -> tuple[int, int]:
    """By what the server knows: their kinds count their versions differently. Raises WireError."""
    endpoint = from_url(url)
    with closing(Connection(endpoint, 2.0)) as connection:
        connection.set_timeout(2.0)
        found = connection.exchange(protocol.command("COMMAND", "INFO", "SPUBLISH"))
    protocol.check(found, endpoint)
    return access.SHARDED_SINCE if found[0] else access.OLDEST
