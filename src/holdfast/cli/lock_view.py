"""The common part of commands that show locks: where to look, and a lock as a line or as JSON."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from holdfast.cli import output, servers
from holdfast.cli.durations import span

if TYPE_CHECKING:
    from holdfast._api.inspect import LockInfo
    from holdfast._api.sync_inspect import Inspector

COLUMNS = ("name", "kind", "holder", "for", "left", "waiting", "fence")


def add_options(parser: argparse.ArgumentParser, *, key: bool = True, answers: bool = True) -> None:
    """Declare the options that `inspector` reads. ``key``: it is about one lock; ``answers``: it has something to say."""
    servers.add_options(parser, local=True)
    parser.add_argument("--prefix", default="hf:", help="of the locks' keys (default: hf:)")
    if key:
        parser.add_argument("--key", help="the lock's key, where it has key=")
    if answers:
        parser.add_argument("--json", action="store_true", help="answer in JSON")


def inspector(args: argparse.Namespace) -> Inspector:
    """On the servers that are meant. Raises ConfigError."""
    urls = servers.settled(args, quiet=getattr(args, "json", False))
    from holdfast._api.sync_inspect import Inspector

    return Inspector(urls if len(urls) > 1 else urls[0], prefix=args.prefix)


def line_of(lock: LockInfo) -> str:
    """The lock as a line of JSON."""
    return output.clean(json.dumps(lock.facts()))


def row(lock: LockInfo) -> tuple[str, ...]:
    """The lock as a row of a table."""
    holder = lock.holder
    held_for = left = "-"
    if holder is not None:
        left = "never ends" if holder.remaining is None else span(holder.remaining)
        if holder.since is not None and holder.held_for is not None:
            held_for = span(holder.held_for)
    return (lock.name, lock.kind, who(lock), held_for, left, str(lock.waiters or "-"), str(lock.fence or "-"))


def who(lock: LockInfo) -> str:
    """Return the holder in a few words."""
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
    """How many have it, where several may."""
    if lock.kind == "rwlock":
        return "writer" if lock.used == lock.limit else f"{lock.used} reader{'s' * (lock.used > 1)}"
    return f"{lock.used} of {lock.limit}"
