"""Locks with ``quarantine=``: a server that may have lost data grants none until the longest lease has passed."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import redis

import holdfast
from holdfast import ConfigError, LockTimeout, ServerError, aio
from support.apis import Aio, Sync, until

if TYPE_CHECKING:
    from conftest import NewServer

LONGEST = 2.0
TTL = 1.5

pytestmark = pytest.mark.filterwarnings("ignore:ttl=1.5:holdfast.HoldfastWarning")


def quarantined(api: Any, url: str, name: str, *, kind: str = "FairLock", **options: Any) -> Any:
    return getattr(api, kind)(url, name, **{"ttl": TTL, "quarantine": LONGEST, "wait": 10, **options})


def refused(api: Any, url: str, name: str, **options: Any) -> bool:
    """The server grants nothing, and says for how long."""
    lock = quarantined(api, url, name, wait=0, **options)
    with pytest.raises(LockTimeout, match=r"may have lost data.*grants no lock for another [0-2]\.\d s \(quaran") as caught:
        api.call(lock.__aenter__ if isinstance(api, Aio) else lock.__enter__)
    assert caught.value.holder is None
    assert 0 < (caught.value.remaining or 0) < LONGEST * 1.01 + 0.01
    return not api.call(lock.acquire)


def free_again(both_apis: tuple[Sync, Aio], url: str, name: str, seconds: float) -> None:
    for api in both_apis:
        lock = quarantined(api, url, name, wait=0, quarantine=seconds)
        assert api.call(lock.acquire)
        api.call(lock.release)


@pytest.mark.fault(29, 34)
@pytest.mark.parametrize("what", ["restart", "flush"])
def test_all_is_forgotten_while_a_lock_is_held(
    both_apis: tuple[Sync, Aio], new_server: NewServer, name: str, what: str
) -> None:
    """Without quarantine= somebody else gets it at once. With it nobody does before the holder has stopped to believe, and then
    those who came meanwhile do, in their order."""
    server = new_server(port=True)
    assert list(holdfast.declare_new(server.url, max_ttl=LONGEST).values()) == ["declared new: ready now"]
    held = [(api, f"{name} {api.name}", quarantined(api, server.url, f"{name} {api.name}")) for api in both_apis]
    believed = [api.FairLock(server.url, f"{name} {api.name} bare", ttl=20, renew=False) for api, _, _ in held]
    assert all(api.call(lock.acquire) for (api, _, mine), bare in zip(held, believed, strict=True) for lock in (mine, bare))
    leases = [lock.lease for _, _, lock in held]
    with closing(redis.Redis.from_url(server.url)) as admin:
        if what == "flush":
            admin.flushall()
        else:
            server.kill()
            server.restart()
        for (api, its_name, _), bare in zip(held, believed, strict=True):
            second = api.FairLock(server.url, f"{its_name} bare", ttl=20)
            assert api.call(second.acquire), "no quarantine"
            assert bare.lease.fence < second.lease.fence
            assert bare.lease.lost.is_set(), "in one process, who had it is told before"
            api.call(second.release)
            assert refused(api, server.url, its_name)
        waiting = []
        for api, its_name, _ in held:
            for number in range(2):
                other = quarantined(api, server.url, its_name)
                waiting.append((api, other, api.start(other.acquire)))
                until(lambda: admin.zcard(f"hf:{{{its_name}}}:queue") == number + 1)  # noqa: B023
        for (api, _, lock), lease in zip(held, leases, strict=True):
            until(lambda: lease.remaining() == 0)  # noqa: B023
            assert not any(future.done() for _, _, future in waiting), "nobody before all of them have stopped to believe"
            with pytest.raises(holdfast.LeaseLost):
                api.call(lock.release)
        fences = []
        for api, other, future in waiting:
            assert future.result(LONGEST + 2)
            fences.append(other.lease.fence)
            api.call(other.release)
        assert fences[0] < fences[1] > leases[0].fence
        assert fences[2] < fences[3] > leases[1].fence
        free_again(both_apis, server.url, f"{name} later", LONGEST)
    for (api, _, _), bare in zip(held, believed, strict=True):
        with pytest.raises(holdfast.LeaseLost):
            api.call(bare.release)


@pytest.mark.fault(31, 32)
def test_a_server_that_remembers_lets_holders_go_on_and_hands_nothing_over(
    both_apis: tuple[Sync, Aio], new_server: NewServer, name: str
) -> None:
    """It was started again: it cannot know that its log was complete.

    A lock that it remembers is renewed, and on release handed over to nobody.
    """
    server = new_server(appendonly=True)
    holdfast.declare_new(server.url, max_ttl=LONGEST)
    held = [(api, quarantined(api, server.url, f"{name} {api.name}")) for api in both_apis]
    assert all(api.call(lock.acquire) for api, lock in held)
    waiting = []
    with closing(redis.Redis(unix_socket_path=server.socket)) as admin:
        for api, lock in held:
            other = quarantined(api, server.url, lock.name)
            waiting.append((api, other, api.start(other.acquire)))
            until(lambda: admin.zcard(f"{lock.key}:queue"))  # noqa: B023
        server.kill()
        server.restart()
        for api, lock in held:
            api.call(lock.lease.renew)
            busy = quarantined(api, server.url, lock.name, wait=0)
            assert api.call(busy.acquire) is False, "it has a holder"
            api.call(lock.release)
            assert refused(api, server.url, lock.name)
            assert admin.zcard(f"{lock.key}:queue") == 1, "a place outlives the pause"
        assert not any(future.done() for _, _, future in waiting)
        for api, other, future in waiting:
            assert future.result(LONGEST + 2)
            assert other.lease.fence
            api.call(other.release)


def test_one_who_says_another_longest_lease_is_refused(both_apis: tuple[Sync, Aio], new_server: NewServer, name: str) -> None:
    server = new_server()
    holdfast.declare_new(server.url, max_ttl=LONGEST)
    assert list(holdfast.declare_new(server.url, max_ttl=LONGEST).values()) == ["ready already"]
    assert "2 s" in str(holdfast.declare_new(server.url, max_ttl=3))
    for api in both_apis:
        with pytest.raises(ServerError, match=r"have agreed on quarantine=2(\.0)?: pass the same"):
            api.call(quarantined(api, server.url, name, quarantine=True).acquire)
        mine = quarantined(api, server.url, name)
        assert api.call(mine.acquire)
        with pytest.raises(ConfigError, match=r"ttl must be between 0\.05 and 2 seconds, not 2\.5"):
            api.call(mine.lease.renew, 2.5)
        api.call(mine.release)
    holdfast.declare_new(server.url, max_ttl=60, force=True)
    free_again(both_apis, server.url, name, True)


def test_why_a_server_could_not_be_declared_new_is_said() -> None:
    (why,) = holdfast.declare_new("redis://127.0.0.1:1").values()
    assert "Connection refused" in why


def test_what_was_taken_without_quarantine_is_not_passed_on_to_one_with_it(new_server: NewServer, name: str) -> None:
    """In one process, the same lock."""
    server = new_server()
    bare = holdfast.Lock(server.url, name, ttl=TTL, linger=5)

    def kept() -> bool:
        with bare:
            pass
        return bare._local_queue is not None and bare._local_queue.held_lease is not None

    until(kept)  # once its inbox is open
    assert refused(Sync(), server.url, name, kind="Lock"), "the server is asked, and it is new"
    holdfast.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quarantine": 1.9}, "quarantine must be between 2 and"),
        ({"quarantine": 0}, "quarantine must be between 2 and"),
        ({"quarantine": "60"}, "quarantine must be a number of seconds"),
        ({"quarantine": 10, "ttl": 10.5}, r"ttl=10.5 is more than quarantine=10, the longest lease"),
        ({"quarantine": True, "ttl": 61}, r"ttl=61 is more than quarantine=60"),
    ],
)
def test_what_is_no_longest_lease(options: dict[str, Any], message: str) -> None:
    for kind in (holdfast.Lock, holdfast.FairLock):
        with pytest.raises(ConfigError, match=message):
            kind("redis://", "x", **options)


def test_a_server_is_declared_new_in_asyncio(new_server: NewServer, name: str) -> None:
    server = new_server()

    async def main() -> None:
        assert list((await aio.declare_new(server.url)).values()) == ["declared new: ready now"]
        async with aio.Lock(server.url, name, quarantine=True, wait=0):
            pass
        with pytest.raises(ConfigError, match="needs an asyncio client"), redis.Redis.from_url(server.url) as client:
            await aio.declare_new(client)

    asyncio.run(main())


def test_not_in_a_cluster() -> None:
    with pytest.raises(ConfigError, match="does not work in a Cluster"):
        holdfast.Lock("redis+cluster://127.0.0.1:1", "x", quarantine=True)
    with pytest.raises(ConfigError, match="Cluster"):
        holdfast.declare_new("redis+cluster://127.0.0.1:1")
