"""Which commands the usual runs of scripts take: the short ways are taken, and nothing is looked at in vain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast._core import permit
from holdfast._core.lock.multilock import MULTI_RELEASE
from holdfast._lua import Script
from multilock.conformance.test_multilock_scripts import BOTH
from quorum.conformance.test_quorum_scripts import declare, give, vote
from support.box import KEYS, STATE, Box, token

MOST = 2**53 - 1
"""The highest fence, as in `shared/_constants.lua`."""
A, B = (token(process) for process in "ab")


def commands(box: Box, work: Callable[[], Any]) -> set[str]:
    """Return the commands that scripts run meanwhile."""
    box.redis.config_resetstat()
    work()
    stats: dict[str, Any] = box.redis.info("commandstats")
    return {name.removeprefix("cmdstat_") for name in stats} & {"exists", "get", "zrange", "zrem", "zscore", "zcard"}


def run(box: Box, script: Script[Any], keys: tuple[str, ...], *args: object) -> Any:
    return box.redis.eval(script.body, len(keys), *keys, *args)


def test_a_lock_is_acquired_by_the_short_way_whatever_its_last_fence(box: Box) -> None:
    box.acquire(A)
    box.release(A)
    box.redis.hset(STATE, "fence", MOST)
    assert commands(box, lambda: box.acquire(A)) == {"exists"}
    box.redis.flushall()


def test_a_permit_is_released_by_the_short_way(box: Box) -> None:
    run(box, permit.ACQUIRE, KEYS, f"{A}*1", 30_000, 0, "semaphore 1", 2)
    assert commands(box, lambda: run(box, permit.RELEASE, KEYS, f"{A}*1", "release")) == {"exists", "zrem"}


def test_a_server_votes_by_the_short_way(box: Box) -> None:
    declare(box)
    vote(box, A)
    give(box, A)
    assert commands(box, lambda: vote(box, B)) == {"exists"}
    box.redis.flushall()


def test_locks_without_waiters_are_released_without_a_look_for_them(box: Box) -> None:
    for lock, who in ((BOTH[0], A), (BOTH[3], B)):
        box.redis.set(lock, who, px=30_000)
    assert commands(box, lambda: run(box, MULTI_RELEASE, BOTH, A, "release", B, "release")) == {"get", "zcard"}
