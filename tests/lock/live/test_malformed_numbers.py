"""A number of ours that somebody has overwritten: an error that says where it stands and what to do, and no fence twice."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from redis import Redis

import holdfast
from holdfast import aio, fencing
from support.servers import PrivateServer

ODD = ["1e400", "-1e400", "9007199254740993", "9" * 400, "abc", "nan", "-5", "1.5", ""]

FENCED: dict[str, Any] = {
    "lock": lambda api, url, name: api.Lock(url, name, ttl=30, wait=5, max_passes=0),  # a lock passed on needs no new fence
    "semaphore": lambda api, url, name: api.Semaphore(url, name, limit=1, ttl=30, wait=5),
    "writer": lambda api, url, name: api.RWLock(url, name, ttl=30, wait=5).write,
}


def refusals(kind: str, url: str, name: str) -> list[str]:
    """The common interface of both APIs."""

    async def there() -> None:
        async with FENCED[kind](aio, url, name):
            raise AssertionError("nobody knows a fence that is new")

    def here() -> None:
        with FENCED[kind](holdfast, url, name):
            raise AssertionError("nobody knows a fence that is new")

    said = []
    for try_it in (here, lambda: asyncio.run(there())):
        with pytest.raises(holdfast.ConfigError) as refused:
            try_it()
        said.append(str(refused.value))
    return said


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd[:16])
@pytest.mark.parametrize("kind", FENCED)
def test_a_fence_that_is_no_number_is_refused_until_it_is_set(server: PrivateServer, name: str, kind: str, odd: str) -> None:
    state = f"hf:{{{name}}}:state"
    with FENCED[kind](holdfast, server.url, name) as lease:
        first = lease.fence
    with Redis.from_url(server.url) as redis:
        redis.hset(state, "fence", odd)
        for said in refusals(kind, server.url, name):
            for words in (name, state, "'fence'", repr(odd[:40]), "set the field to a number above every fence that was"):
                assert words in said
        assert redis.hget(state, "fence") == odd.encode(), "nobody knows which fences there were"
        assert not redis.exists(f"hf:{{{name}}}")
        redis.hset(state, "fence", first + 10**12)
    with FENCED[kind](holdfast, server.url, name) as lease:
        assert lease.fence > first + 10**12


@pytest.mark.parametrize("kind", FENCED)
def test_who_has_it_gives_it_back_and_who_waits_is_told(server: PrivateServer, name: str, kind: str) -> None:
    said: list[str] = []

    def wait() -> None:
        said.extend(refusals(kind, server.url, name))

    with Redis.from_url(server.url) as redis:
        with FENCED[kind](holdfast, server.url, name) as lease:
            waiter = threading.Thread(target=wait)
            waiter.start()
            redis.hset(f"hf:{{{name}}}:state", "fence", "abc")
            lease.renew()
        waiter.join(10)
        assert not waiter.is_alive()
        assert len(said) == 2
        assert not redis.exists(f"hf:{{{name}}}")


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd[:16])
def test_a_guard_that_remembers_no_number_refuses(server: PrivateServer, name: str, odd: str) -> None:
    with Redis.from_url(server.url) as redis:
        redis.set(f"{{{name}}}:fence", odd, px=60_000)
        with pytest.raises(holdfast.ConfigError, match="which is not a number"):
            fencing.fenced_set(server.url, f"{{{name}}}", "mine", 7)
        assert not redis.exists(f"{{{name}}}")
        redis.set(f"{{{name}}}:fence", 6)
        assert fencing.fenced_set(server.url, f"{{{name}}}", "mine", 7)


def test_the_count_of_a_latch(server: PrivateServer, name: str) -> None:
    latch = holdfast.CountDownLatch(server.url, name, count=2)
    latch.count_down()
    with Redis.from_url(server.url) as redis:
        redis.hset(f"hf:{{{name}}}", "left", "1e400")
    with pytest.raises(holdfast.ConfigError, match="correct the number, or delete the key"):
        latch.count_down()
