"""``holdfast acl``: the line that gives a user of the server the rights that locks need, and no others."""

from __future__ import annotations

import argparse
import re

from holdfast import _access
from holdfast.cli import output
from holdfast.errors import ConfigError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = (
        "Put a password in the place of PASSWORD, and give the line to redis-cli or valkey-cli. PATTERN as in ACL rules."
    )
    add = parser.add_argument
    add("--user", default="holdfast", metavar="NAME", help="of the user (default: holdfast)")
    add("--prefix", default="hf:", help="of the locks' keys (default: hf:)")
    add("--key", action="append", default=[], metavar="PATTERN", help="keys of locks that have key=; may be repeated")
    add("--redlock", action="store_true", help="the server is one of several that hold a lock together")
    add("--sentinel", action="store_true", help="the server is found by way of Sentinels")
    add("--replicas", action="store_true", help="locks that have replicas=")
    add("--guard", action="append", default=[], metavar="PATTERN", help="keys that holdfast.guard writes; may be repeated")
    add("--select", action="store_true", help="the locks are in another database than 0")
    add("--server-version", type=_version, metavar="N.N", help="leave out what a server of this version does not know (6.2)")


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
        words = _access.rule(
            ["lock", *(feature for feature in ("redlock", "guard", "sentinel", "replicas") if getattr(args, feature))],
            prefix=args.prefix,
            raw_keys=args.key,
            guarded=args.guard,
            select=args.select,
            version=args.server_version or _access.OLDEST,
        )
    except ConfigError as error:
        output.say(f"acl: {error}")
        return output.EX_USAGE
    words.insert(words.index("on") + 1, ">PASSWORD")
    print("ACL SETUSER", args.user, *words)
    return 0
