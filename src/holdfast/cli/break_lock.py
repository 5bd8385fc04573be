"""``holdfast break``: break a lock, so that its holder loses the lease.

The user is asked for a confirmation. Nothing is done if the holder has changed meanwhile.
"""

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
    parser.epilog = "The holder loses its lease and is notified. Only a fence check stops writes of a\nholder that goes on."
    parser.add_argument("name", metavar="NAME", help="name of the lock")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument(
        "--holder", metavar="TEXT", help="revoke only this holder of several, named as `show` does\n(default: all)"
    )
    parser.add_argument("--by", metavar="TEXT", help="your name in the notification (default: user@host)")
    lock_view.add_options(parser)


def main(args: argparse.Namespace) -> int:
    if not args.yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        args.parser.error("there is no terminal to ask for confirmation: pass --yes")
    try:
        see = lock_view.inspector(args)
        lock = see.show(args.name, key=args.key)
        if lock.holder is None:
            return _tell(args, lock, see.break_lock(lock))  # it raises QuorumError if too few servers answer
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
        raise ConfigError(
            f"{len(found)} holders of the lock match --holder {args.holder}: it must match only one", parameter="holder"
        )
    return found[0]


def _asked(lock: LockInfo, whom: str) -> bool:
    from holdfast.cli.show import tell

    tell(lock)
    output.flush()
    sys.stderr.write(output.clean(f"Revoke lock {lock.name!r} from {whom}? [y/N] "))
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _tell(args: argparse.Namespace, lock: LockInfo, broken: Broken | None) -> int:
    if args.json:
        facts = {"name": lock.name, "broken": broken is not None, "holder": lock.holder and str(lock.holder)}
        if broken is not None:
            facts |= {"fence": broken.fence, "told": broken.told, "handed_over": broken.handed_over}
        print(output.clean(json.dumps(facts)))
    elif broken is None:
        if not args.quiet:
            output.say(f"{lock.name}: nobody holds it")
    else:
        told = (
            "which was notified"
            if broken.told
            else "which was not reached, and notices the loss when it renews or releases the lock"
        )
        after = "the next waiter holds the lock" if broken.handed_over else "the lock is free"
        print(output.clean(f"{lock.name}: revoked from {lock.holder}, {told}; {after}; fence {broken.fence}"))
    return 0


def _me() -> str:
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user has no name, neither in the user database nor in the environment
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
