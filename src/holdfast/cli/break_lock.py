"""``holdfast break``: take a lock away from its holder. Asks first, and leaves it alone if the holder has changed by then."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from holdfast.cli import lock_view, output
from holdfast.errors import ConfigError, HolderChanged, QuorumError, ServerError

if TYPE_CHECKING:
    from holdfast._api.inspect import Broken, Holder, LockInfo


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = (
        "The holder is notified and loses its lease. Until it stops, fences keep its writes out.\n"
        "Exit codes: 0 done, or nobody had it, 1 not done, as answered, 75 somebody else has it by now,\n"
        "64 bad usage, 69 no server."
    )
    parser.add_argument("name", metavar="NAME", help="of the lock")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--holder", metavar="TEXT", help="take it from one of several holders, as shown (default: all)")
    parser.add_argument("--by", metavar="TEXT", help="your name in the notification (default: you, and this host)")
    lock_view.add_options(parser)


def main(args: argparse.Namespace) -> int:
    """Run it; returns the exit code."""
    if not args.yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        args.parser.error("there is no terminal to ask at: say --yes")
    try:
        see = lock_view.inspector(args)
        lock = see.show(args.name, key=args.key)
        if lock.holder is None:
            return _tell(args, lock, see.break_lock(lock))  # which knows whether enough servers say so
        holder = _chosen(args, lock)
        others = " and all others" if holder is None and len(lock.holders) > 1 else ""
        if not args.yes and not _asked(lock, f"{holder or lock.holder}{others}"):
            return 1
        return _tell(args, lock, see.break_lock(lock, holder=holder, by=args.by or _me()))
    except HolderChanged as error:
        output.say(f"break: {error}")
        return output.EX_TEMPFAIL
    except (ConfigError, ServerError, QuorumError) as error:
        return output.failed("break", error)


def _chosen(args: argparse.Namespace, lock: LockInfo) -> Holder | None:
    if args.holder is None:
        return None
    found = [holder for holder in lock.holders if args.holder in {str(holder), f"{holder.host}:{holder.pid}", holder.process}]
    if len(found) != 1:
        raise ConfigError(f"{len(found)} of its holders are called so: {args.holder}", parameter="holder")
    return found[0]


def _asked(lock: LockInfo, whom: str) -> bool:
    from holdfast.cli.show import tell

    tell(lock)
    output.flush()
    sys.stderr.write(output.clean(f"Take {lock.name!r} away from {whom}? [y/N] "))
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _tell(args: argparse.Namespace, lock: LockInfo, broken: Broken | None) -> int:
    if args.json:
        facts = {"name": lock.name, "broken": broken is not None, "holder": lock.holder and str(lock.holder)}
        if broken is not None:
            facts |= {"fence": broken.fence, "told": broken.told, "handed_over": broken.handed_over}
        print(output.clean(json.dumps(facts)))
    elif broken is None:
        output.say(f"{lock.name}: nobody has it")
    else:
        told = "who was told" if broken.told else "who finds out at the next renewal"
        after = "the next in line has it" if broken.handed_over else "it is free"
        print(output.clean(f"{lock.name}: taken away from {lock.holder}, {told}; {after}; fence {broken.fence}"))
    return 0


def _me() -> str:
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such user, and nothing in the environment
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
