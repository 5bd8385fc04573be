"""``holdfast show``: print one lock with its holder, and its waiters in order."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli import lock_view, output
from holdfast.cli.durations import moment, span
from holdfast.errors import ConfigError, ServerError

if TYPE_CHECKING:
    from holdfast._api.inspect import Holder, LockInfo, Waiter


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the lock")
    lock_view.add_options(parser)


def main(args: argparse.Namespace) -> int:
    try:
        lock = lock_view.inspector(args).show(args.name, key=args.key)
    except (ConfigError, ServerError) as error:
        return output.failed("show", error)
    if args.json:
        print(lock_view.line_of(lock))
    else:
        tell(lock)
    return 0 if lock.answered > lock.servers // 2 else output.EX_UNAVAILABLE


def tell(lock: LockInfo) -> None:
    """Print everything that the server knows about a lock, line by line."""
    print(output.clean(f"{lock.name}: {_what(lock)}"))
    if lock.servers > 1:
        print(f"  {lock.votes} of {lock.servers} servers agree")
    for holder in lock.holders:
        print(output.clean(f"  held by {_holding(holder, lock.limit)}"))
    for number, waiter in enumerate(lock.line or (), 1):
        print(output.clean(f"  {number:4}. {_waiting(waiter)}"))
    if lock.waiters > len(lock.line or ()):
        print(f"  and {lock.waiters - len(lock.line or ())} more waiters")
    if lock.fence:
        print(f"  last fence {lock.fence}")


def _what(lock: LockInfo) -> str:
    if lock.kind == "foreign":
        return "held by a client of another library"
    if lock.kind == "other":
        return "not a lock: its key holds a value of another kind"
    if lock.answered <= lock.servers // 2:
        return f"unknown: only {lock.answered} of {lock.servers} servers answered, fewer than a majority"
    if lock.kind in {"event", "latch", "barrier"}:
        return f"{lock.kind}, which has no holder"
    if not lock.holders:
        return "free" + (f", and {lock.waiters} wait" if lock.waiters else "")
    shared = f", {lock_view.sharing(lock)}" if lock.limit > 1 else ""
    shared += f", {lock.leader} leads" if lock.leader else ""
    return f"{lock.kind}{shared}" + ("" if lock.held else ", on fewer servers than a majority: not held")


def _holding(holder: Holder, limit: int) -> str:
    since = f" since {moment(holder.since)} UTC ({span(holder.held_for or 0)})" if holder.since is not None else ""
    left = ", forever: its key has no expiry" if holder.remaining is None else f", {span(holder.remaining)} left"
    return f"{holder}{since}{left}" + (f", {holder.weight} of them" if 1 < holder.weight < limit else "")


def _waiting(waiter: Waiter) -> str:
    dead = ", does not answer" if waiter.alive is False else ""
    return f"{waiter} waits for {span(waiter.waited)}{dead}" + (f", for {waiter.weight} of them" if waiter.weight > 1 else "")
