"""The timestamp lock as it is deployed: a client of another make, on plain redis-py. Written to the letter, for tests."""

from __future__ import annotations

import asyncio
import random
import sys
import time
import warnings
from contextlib import suppress
from typing import Any

import redis

from holdfast import LeaseLost, LockTimeout
from holdfast.legacy import TimestampLock, aio


class Deployed:
    """``unit``: of a second, 1 or 1000. ``ahead``: seconds by which its clock is ahead."""

    def __init__(self, client: Any, key: str, ttl: float, unit: int, ahead: float = 0.0) -> None:
        self.client = client
        self.key = key
        self.ttl = ttl
        self.unit = unit
        self.ahead = ahead
        self.mine = 0

    def now(self) -> int:
        return int((time.time() + self.ahead) * self.unit)

    def take(self) -> bool:
        mine = self.now() + int(self.ttl * self.unit) + 1
        if self.client.setnx(self.key, mine):
            self.mine = mine
            return True
        seen = self.client.get(self.key)
        if seen is not None and int(seen) < self.now() and self.client.getset(self.key, mine) == seen:
            self.mine = mine
            return True
        return False

    def give_back(self) -> None:
        if self.now() < self.mine:
            self.client.delete(self.key)


class Ours:
    """holdfast's, with the same methods."""

    def __init__(self, url: str, key: str, ttl: float, unit: int) -> None:
        self.lock = TimestampLock(url, key, ttl=ttl, unit="s" if unit == 1 else "ms")

    def take(self) -> bool:
        return self.lock.acquire(timeout=0.1)

    def give_back(self) -> None:
        self.lock.release()


CRASHES = 0.01
"""Share of the turns after which it is not given back."""


def crowd(who: str, url: str, key: str, ttl: float, unit: int, until: float) -> None:
    """Take it again and again, until local time ``until``. Prints how often it was had."""
    client = redis.Redis.from_url(url)
    lock: Deployed | Ours = Ours(url, key, ttl, unit) if who == "ours" else Deployed(client, key, ttl, unit)
    turns = 0
    while (asked := time.monotonic()) < until:
        if lock.take():
            turns += 1
            inside(client, key, ttl, asked)
            if random.random() > CRASHES:
                with suppress(LeaseLost):  # a deployed one that has lost the race for it has written over its time
                    lock.give_back()
        time.sleep(0.005 * random.random())
    print(turns)


async def tasks(url: str, key: str, ttl: float, unit: int, until: float) -> None:
    """The same by two tasks."""
    client = redis.Redis.from_url(url)
    lock = aio.TimestampLock(url, key, ttl=ttl, unit="s" if unit == 1 else "ms", wait=0.1)
    turns = 0

    async def one() -> None:
        nonlocal turns
        while (asked := time.monotonic()) < until:
            with suppress(LeaseLost, LockTimeout):
                async with lock:
                    turns += 1
                    inside(client, key, ttl, asked)
            await asyncio.sleep(0.005 * random.random())

    await asyncio.gather(one(), one())
    print(turns)


def inside(client: Any, key: str, ttl: float, asked: float) -> None:
    """Work that only one client may do at a time; if two do, that is recorded. ``asked``: before the time in the lock's key was
    made.

    A client that was stopped for too long since then is not judged.
    """
    began = time.monotonic()
    there = client.set(f"{key}:inside", asked, nx=True, get=True)
    time.sleep(0.001)
    if there is None or time.monotonic() - asked > ttl / 2:
        client.delete(f"{key}:inside")
    elif began - float(there) < ttl / 2:
        client.rpush(f"{key}:wrong", f"taken at {float(there)} and {began}")


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "TimestampLock")
    who, url, key, ttl, unit, seconds = sys.argv[1:]
    print("ready", flush=True)
    sys.stdin.readline()
    until = time.monotonic() + float(seconds)
    if who == "tasks":
        asyncio.run(tasks(url, key, float(ttl), int(unit), until))
    else:
        crowd(who, url, key, float(ttl), int(unit), until)
