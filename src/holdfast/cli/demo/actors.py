"""The processes of ``holdfast demo tour``, started as ``python -m holdfast.cli.demo.actors ROLE ...``.

Each process uses holdfast as a user's program would, and prints its results as lines of JSON. It ends when its stdin ends, so
that no process is left if the demo is killed. The server's URL is in HOLDFAST_URL. Times are seconds of the monotonic clock,
which all processes of a machine share.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import holdfast
from holdfast import fencing
from holdfast._clock import monotonic
from holdfast._local.guardian.descendants import die_with_parent
from holdfast.cli.demo.stage import client

KEEP_FENCE = 600.0
"""Seconds for which a fence check remembers the highest fence of a key. It is the minimum of `holdfast.fencing`."""


def say(**facts: Any) -> None:
    """Print facts as one line of JSON. End this process if the demo no longer reads them."""
    try:
        os.write(1, json.dumps(facts).encode() + b"\n")
    except BrokenPipeError:
        os._exit(0)


def hear() -> str:
    """Return the next line from stdin. End this process if there are no more."""
    line = sys.stdin.readline()
    if not line:
        os._exit(0)
    return line.strip()


def count(url: str, name: str, times: str) -> None:
    """Run a counting process. For each line on stdin, it adds 1 to a key ``times`` times, with GET and SET.

    The second word of a line is the key. If the first word is ``locked``, each addition is made while the lock is held,
    otherwise without the lock.
    """
    redis = client(url)
    redis.ping()  # connect before the measurement
    say(ready=True)
    while words := hear():
        how, key = words.split()
        lock = holdfast.Lock(url, name) if how == "locked" else nullcontext()
        began = monotonic()
        for _ in range(int(times)):
            with lock:
                number = int(redis.get(key) or 0)
                redis.set(key, number + 1, px=600_000)
        say(began=began, ended=monotonic())


def hold(url: str, name: str, ttl: str, fenced: str, plain: str) -> None:
    """Run a holder process. At the first line on stdin, it acquires the lock and keeps it.

    It then writes each further line to the key ``fenced`` with a fence check, and to the key ``plain`` without a check. It
    writes even if its lease is lost.
    """
    redis = client(url)
    lock = holdfast.Lock(url, name, ttl=float(ttl))
    say(ready=True)
    hear()
    lock.acquire()
    got = monotonic()
    lease = lock.lease
    assert lease is not None
    say(got=got, fence=lease.fence)
    while word := hear():
        lost = lease.lost.is_set()
        accepted = fencing.fenced_set(url, fenced, word, lease.fence, ttl=600, keep=KEEP_FENCE)
        redis.set(plain, word, px=600_000)
        say(lost=lost, accepted=accepted)


def wait(url: str, name: str) -> None:
    """Run a waiting process. Each line on stdin names a lock library.

    For each line, the process acquires that library's lock, releases it, and prints the time of acquisition.
    """
    locks = {"holdfast": holdfast.Lock(url, name), "redis-py": client(url).lock(f"{name}:redis-py", timeout=30)}
    say(ready=True)
    while kind := hear():
        say(waiting=True)
        lock = locks[kind]
        lock.acquire()
        got = monotonic()
        lock.release()
        say(got=got)


ROLES: dict[str, Callable[..., None]] = {"count": count, "hold": hold, "wait": wait}


def act(roles: Mapping[str, Callable[..., None]]) -> None:
    """Call the function of the role that the first command-line argument names, with the other arguments.

    On Linux, the kernel kills this process when the demo ends. A process that is stopped at that moment (SIGSTOP) would not
    notice the end of its stdin.
    """
    die_with_parent()  # the demo starts all its processes in its main thread, which ends last
    roles[sys.argv[1]](os.environ["HOLDFAST_URL"], *sys.argv[2:])


if __name__ == "__main__":
    act(ROLES)
