"""The processes of the tour, and what those of other shows need: ``python -m holdfast.cli.demo.actors ROLE ...``.

Each does what user code would do, says what came of it in lines of JSON, and ends when its stdin does: should the demo
be killed, nobody is left. The server's URL is in HOLDFAST_URL. Times are of the monotonic clock, which all processes of a
machine share.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import holdfast
from holdfast import fencing
from holdfast.cli.demo.stage import client

KEEP_FENCE = 600.0
"""Seconds for which the guard remembers a fence here: the least it offers."""


def say(**facts: Any) -> None:
    """One line on stdout; ends the process when nobody is there to hear it."""
    try:
        os.write(1, json.dumps(facts).encode() + b"\n")
    except BrokenPipeError:
        os._exit(0)


def hear() -> str:
    """One line from stdin; ends the process when there are no more."""
    line = sys.stdin.readline()
    if not line:
        os._exit(0)
    return line.strip()


def count(url: str, name: str, times: str) -> None:
    """Read a number, add 1, write it back; ``times`` times. Told how: under a lock or not, and with which key."""
    redis = client(url)
    redis.ping()  # connects
    say(ready=True)
    while words := hear():
        how, key = words.split()
        lock = holdfast.Lock(url, name) if how == "locked" else nullcontext()
        began = time.monotonic()
        for _ in range(int(times)):
            with lock:
                number = int(redis.get(key) or 0)
                redis.set(key, number + 1, px=600_000)
        say(began=began, ended=time.monotonic())


def hold(url: str, name: str, ttl: str, guarded: str, plain: str) -> None:
    """Take a lock and keep it. Told a word, write it, whatever has become of the lock meanwhile."""
    redis = client(url)
    lock = holdfast.Lock(url, name, ttl=float(ttl))
    say(ready=True)
    hear()
    lock.acquire()
    got = time.monotonic()
    lease = lock.lease
    assert lease is not None
    say(got=got, fence=lease.fence)
    while word := hear():
        lost = lease.lost.is_set()
        accepted = fencing.fenced_set(url, guarded, word, lease.fence, ttl=600, keep=KEEP_FENCE)
        redis.set(plain, word, px=600_000)
        say(lost=lost, accepted=accepted)


def wait(url: str, name: str) -> None:
    """Wait for a lock, holdfast's or redis-py's; say when it came; give it back; again."""
    locks = {"holdfast": holdfast.Lock(url, name), "redis-py": client(url).lock(f"{name}:redis-py", timeout=30)}
    say(ready=True)
    while kind := hear():
        say(waiting=True)
        lock = locks[kind]
        lock.acquire()
        got = time.monotonic()
        lock.release()
        say(got=got)


ROLES: dict[str, Callable[..., None]] = {"count": count, "hold": hold, "wait": wait}


def act(roles: Mapping[str, Callable[..., None]]) -> None:
    """Be what the command line says: the whole program of a module with roles."""
    roles[sys.argv[1]](os.environ["HOLDFAST_URL"], *sys.argv[2:])


if __name__ == "__main__":
    act(ROLES)
