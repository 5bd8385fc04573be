"""`lease.verify()`: the server is asked whether it still has the lease."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

import holdfast
from holdfast import LeaseLost, NotHeld, aio
from support.servers import PrivateServer

MAKE: dict[str, tuple[Any, ...]] = {
    "Lock": (), "FairLock": (), "RLock": (), "Semaphore": (2,), "Election": (),
}  # fmt: skip


@pytest.mark.parametrize(("cls", "arguments"), MAKE.items())
def test_a_lease_that_the_server_has_lost(
    server: PrivateServer, look: redis.Redis, name: str, cls: str, arguments: tuple[Any, ...]
) -> None:
    """`check` would notice at the next renewal, ten seconds later."""
    holder = getattr(holdfast, cls)(server.url, name, *arguments)
    with pytest.raises(LeaseLost), holder as lease:
        lease.verify()
        assert not lease.lost, "the event counts as false while the lease is held"
        look.delete(f"hf:{{{name}}}")
        lease.check()
        with pytest.raises(LeaseLost, match="was lost"):
            lease.verify()
        assert lease.lost.is_set()
        assert lease.lost
        lease.check()


@pytest.mark.parametrize(("cls", "arguments"), MAKE.items())
def test_the_same_in_asyncio(server: PrivateServer, look: redis.Redis, name: str, cls: str, arguments: tuple[Any, ...]) -> None:
    async def main() -> None:
        async with getattr(aio, cls)(server.url, name, *arguments) as lease:
            await lease.verify()
            assert not lease.lost, "the event counts as false while the lease is held"
            look.delete(f"hf:{{{name}}}")
            lease.check()
            try:
                await lease.verify()
            finally:
                assert lease.lost

    with pytest.raises(LeaseLost, match="was lost"):
        asyncio.run(main())


def test_several_locks(server: PrivateServer, look: redis.Redis, name: str) -> None:
    with pytest.raises(LeaseLost), holdfast.MultiLock(server.url, [name, f"{name}-2"]) as lease:
        lease.verify()
        look.delete(f"hf:{{{name}-2}}")
        lease.check()
        lease.verify()

    async def main() -> None:
        async with aio.MultiLock(server.url, [name, f"{name}-2"]) as lease:
            await lease.verify()

    asyncio.run(main())


def test_a_lease_without_renewal_is_not_prolonged(server: PrivateServer, look: redis.Redis, name: str) -> None:
    lock = holdfast.Lock(server.url, name, ttl=20, renew=False)
    with lock as lease:
        lease.renew(10)
        before = int(look.pttl(f"hf:{{{name}}}"))
        lease.verify()
        assert before - 2000 < int(look.pttl(f"hf:{{{name}}}")) <= before
        lease.renew()
        assert 9 < lease.remaining() <= 10, "the length of the last renewal, not what was left of it"


def test_after_the_release(server: PrivateServer, name: str) -> None:
    with holdfast.Lock(server.url, name) as lease:
        pass
    with pytest.raises(NotHeld):
        lease.verify()
