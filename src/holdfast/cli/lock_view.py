"""Common parts of the subcommands that show locks: their options, and a lock as a table row or as JSON."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from holdfast.cli import output, servers
from holdfast.cli.durations import span

if TYPE_CHECKING:
    from holdfast._api.inspect import LockInfo
    from holdfast._api.inspector import Inspector

COLUMNS = ("name", "kind", "holder", "for", "left", "waiting", "fence")


def add_options(parser: argparse.ArgumentParser, *, key: bool = True, verbose: str = "") -> None:
    """Declare the options about the servers, which `inspector` reads, and those about the output.

    If ``key`` is True, also declare --key, for a subcommand about one lock. If ``verbose`` is not empty, also declare
    --verbose, with this help text.
    """
    servers.add_options(parser)
    parser.add_argument("--prefix", default="hf:", help="start of the locks' keys (default: hf:)")
    if key:
        parser.add_argument("--key", help="key of the lock, if it was created with key=")
    servers.add_loudness(parser, verbose)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def inspector(args: argparse.Namespace) -> Inspector:
    """Return an `Inspector`, which reads locks, for the servers that the options name. Raises ConfigError."""
    urls = servers.settled(args)
    from holdfast._api.inspector import Inspector

    return Inspector(urls if len(urls) > 1 else urls[0], prefix=args.prefix)


def line_of(lock: LockInfo) -> str:
    return output.clean(json.dumps(lock.facts()))


def row(lock: LockInfo) -> tuple[str, ...]:
    holder = lock.holder
    held_for = left = "-"
    if holder is not None:
        left = "never ends" if holder.remaining is None else span(holder.remaining)
        if holder.since is not None and holder.held_for is not None:
            held_for = span(holder.held_for)
    return (lock.name, lock.kind, who(lock), held_for, left, str(lock.waiters or "-"), str(lock.fence or "-"))


def who(lock: LockInfo) -> str:
    """Return a short text that names or counts the holders of a lock; ``-`` if there is none."""
    if not lock.holders:
        return "-"
    text = str(lock.holder)
    text = f"{lock.leader}: {text}" if lock.leader else text
    if lock.limit > 1:
        text = f"{sharing(lock)}: {text}"
    if lock.servers > 1:
        text += f": {lock.votes} of {lock.servers} servers" + ("" if lock.held else ", not held")
    return text


def sharing(lock: LockInfo) -> str:
    """Return how many clients hold a lock that several may hold, such as ``2 of 5`` or ``3 readers``."""
    if lock.kind == "rwlock":
        return "writer" if lock.used == lock.limit else f"{lock.used} reader{'s' * (lock.used > 1)}"
    return f"{lock.used} of {lock.limit}"
