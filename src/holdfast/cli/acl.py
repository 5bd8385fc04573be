"""``holdfast acl``: print the ``ACL SETUSER`` line that gives a user of the server only the rights that locks need."""

from __future__ import annotations

import argparse
import json
import re
from contextlib import closing

from holdfast._api import access
from holdfast._core.requests import WireError
from holdfast._net import protocol
from holdfast._net.sync_connection import Connection
from holdfast._net.url import from_url
from holdfast.cli import output, servers
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
"""Features of `_api.access` with an option of the same name.

``lock`` is not in the list, because it is always granted. ``legacy`` is not, because its option is --timestamp.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Replace PASSWORD by a password, and pass the line to redis-cli or valkey-cli.\n"
        "A PATTERN is written as in the ACL rules of the server.\n\n"
        "`holdfast ls` and `watch` need --inspect, and `break` needs --break. The line\n"
        "replaces all rights of its user, so pass another --user with these options.\n"
        "A user with the rights for locks can run `holdfast run`, `acquire`, `release`,\n"
        "`show` and `wait`. No option grants GET of the keys of redis-py's locks, so this\n"
        "user gets no warning about them."
    )
    add = parser.add_argument
    add("--user", default="holdfast", metavar="NAME", help="name of the server's user (default: holdfast)")
    add("--prefix", default="hf:", help="start of the locks' keys (default: hf:)")
    add(
        "--key", action="append", default=[], metavar="PATTERN", help="allow locks with key= to use these keys; may be repeated"
    )
    add("--sentinel", action="store_true", help="also grant the rights to find the server via Sentinel")
    add("--replicas", action="store_true", help="also grant the rights that replicas=n needs")
    add("--quarantine", action="store_true", help="also grant the rights that quarantine= needs")
    add("--cache", action="store_true", help="also grant the rights that holdfast.Cache needs")
    add("--once", action="store_true", help="also grant the rights that holdfast.once needs")
    add(
        "--inspect",
        action="store_true",
        help="instead of the rights for locks, print the rights to\nread locks and tokens: for ls, show, wait and watch",
    )
    add(
        "--break",
        action="store_true",
        help="instead of the rights for locks, print the rights to\nread and revoke locks: for break",
    )
    add("--election", action="store_true", help="also grant the rights that elections need")
    add("--events", action="store_true", help="also grant what events, latches and barriers need")
    add("--schedule", action="store_true", help="also grant the rights that schedules need")
    add("--permits", action="store_true", help="also grant what semaphores and read-write locks need")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--redlock", action="store_true", help="also grant what Redlock needs; set the user on each of\nits servers"
    )
    kind.add_argument(
        "--cluster", action="store_true", help="also grant what a Cluster needs; set the user on each of\nits nodes"
    )
    add(
        "--fencing",
        action="append",
        default=[],
        metavar="PATTERN",
        help="allow holdfast.fencing to write these keys;\nmay be repeated",
    )
    add(
        "--timestamp",
        action="append",
        default=[],
        metavar="PATTERN",
        help="allow timestamp locks (holdfast.legacy) with these\nkeys; may be repeated",
    )
    add("--select", action="store_true", help="also grant SELECT, for another database than 0")
    knows = servers.add_urls(parser, "write the rule for the version of this server")
    knows.add_argument(
        "--server-version", type=_version, metavar="N.N", help="write the rule for this version of the server\n(default: 6.2)"
    )
    servers.add_loudness(parser)
    add("--json", action="store_true", help="print the user and the words of the rule as JSON")


def _version(text: str) -> tuple[int, int]:
    match = re.match(r"([0-9]{1,3})\.([0-9]{1,3})(\.|$)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a server version: pass two numbers, such as 7.2")
    return int(match[1]), int(match[2])


def main(args: argparse.Namespace) -> int:
    if not args.user.isprintable() or not args.user or " " in args.user:
        args.parser.error("--user must be a printable name without spaces")
    url = servers.one_given(args)
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
            version=_version_of(url) if url else args.server_version or access.OLDEST,
        )
    except (ConfigError, WireError) as error:
        return output.failed("acl", error)
    words.insert(words.index("on") + 1, ">PASSWORD")
    print(json.dumps({"user": args.user, "rule": words}) if args.json else " ".join(["ACL SETUSER", args.user, *words]))
    return 0


def _version_of(url: str) -> tuple[int, int]:
    """Return the Redis version for which to write the rule: 7.0 if the server has the command SPUBLISH, otherwise 6.2.

    Raises WireError if the server does not answer.
    """
    endpoint = from_url(url)
    with closing(Connection(endpoint, 2.0)) as connection:
        connection.set_timeout(2.0)
        found = connection.exchange(protocol.command("COMMAND", "INFO", "SPUBLISH"))
    protocol.check(found, endpoint)
    return access.SHARDED_SINCE if found[0] else access.OLDEST
