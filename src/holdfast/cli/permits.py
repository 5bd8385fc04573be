"""The locks of ``holdfast run --limit N``, ``--shared`` and ``--exclusive``: a semaphore, or one side of a read-write lock.

The module is imported only if one of these options is given, so that a plain ``holdfast run`` starts quickly.
"""

from __future__ import annotations

import argparse
from typing import Any

from holdfast._api.acquisition import BaseSyncLock
from holdfast._api.permit import NO_MAJORITIES
from holdfast._net.resolve import on_one_server


def lock(args: argparse.Namespace, urls: list[str], name: str, **options: Any) -> BaseSyncLock[Any]:
    """Return the semaphore or read-write lock that the options of ``holdfast run`` describe. Raises ConfigError."""
    if len(urls) > 1:
        option = f"--limit {args.limit}" if args.limit else "--shared" if args.shared else "--exclusive"
        raise on_one_server(
            f"the lock of {option}", NO_MAJORITIES, "without this option, a majority of the servers grants a plain lock"
        )
    if args.limit:
        from holdfast._api.semaphore import Semaphore

        return Semaphore(urls[0], name, args.limit, **options)
    from holdfast._api.rwlock import RWLock

    both = RWLock(urls[0], name, **options)
    return both.read if args.shared else both.write
