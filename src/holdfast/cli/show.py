"""``holdfast show``: one lock; who holds it, and who waits, in order."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli import lock_view, output
from holdfast.cli.durations import moment, span
from holdfast.errors import ConfigError, ServerError

if TYPE_CHECKING:
    from holdfast._api.inspect import Holder, LockInfo, Waiter


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = "Exit codes: 0 done, held or not, 64 bad usage, 69 no server."
    parser.add_argument("name", metavar="NAME", help="of the lock")
    lock_view.add_options(parser)


def main(args: argparse.Namespace) -> int:
    """Run it; returns the exit code."""
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
    """All that is known of a lock, line by line."""
    print(output.clean(f"{lock.name}: {_what(lock)}"))
    if lock.servers > 1:
        print(f"  {lock.votes} of {lock.servers} servers say so")
    for holder in lock.holders:
        print(output.clean(f"  held by {_holding(holder, lock.limit)}"))
    for number, waiter in enumerate(lock.line or (), 1):
        print(output.clean(f"  {number:4}. {_waiting(waiter)}"))
    if lock.waiters > len(lock.line or ()):
        print(f"  and {lock.waiters - len(lock.line or ())} more who wait")
    if lock.fence:
        print(f"  last fence {lock.fence}")


def _what(lock: LockInfo) -> str:
    if lock.kind == "foreign":
        return "held by a client of another library"
    if lock.kind == "other":
        return "no lock: its key holds something else"
    if lock.answered <= lock.servers // 2:
        return f"unknown: {lock.answered} of {lock.servers} servers can be asked, which is no majority"
    if lock.kind in {"event", "latch", "barrier"}:
        return f"{lock.kind}: nobody has it to himself"
    if not lock.holders:
        return "free" + (f", and {lock.waiters} wait" if lock.waiters else "")
    shared = f", {lock_view.sharing(lock)}" if lock.limit > 1 else ""
    shared += f", {lock.leader} leads" if lock.leader else ""
    return f"{lock.kind}{shared}" + ("" if lock.held else ", on fewer servers than a majority: not held")


def _holding(holder: Holder, limit: int) -> str:
    since = f" since {moment(holder.since)} UTC ({span(holder.held_for or 0)})" if holder.since is not None else ""
    left = ", for ever: its key has no expiry" if holder.remaining is None else f", {span(holder.remaining)} left"
    return f"{holder}{since}{left}" + (f", {holder.weight} of them" if 1 < holder.weight < limit else "")


def _waiting(waiter: Waiter) -> str:
    dead = ", gives no sign of life" if waiter.alive is False else ""
    return f"{waiter} waits for {span(waiter.waited)}{dead}" + (f", for {waiter.weight} of them" if waiter.weight > 1 else "")
