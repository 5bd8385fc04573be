"""A primary that is left behind by its replica, with the holder on its side."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import redis

import holdfast
import holdfast.fencing
from support.apis import Aio, Sync, until

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

TTL = 1.0


@pytest.mark.fault(45, 54)
def test_the_old_primary_is_cut_off_together_with_the_holder(
    both_apis: tuple[Sync, Aio], new_server: NewServer, name: str
) -> None:
    """Told to want a replica, it refuses to renew what nobody copies any more: the lease is lost at its end. On the other side,
    the next one gets the lock when the copy has expired, under a higher fence."""
    primary = new_server("--min-replicas-to-write", "1", "--repl-diskless-sync-delay", "0", port=True)
    replica = new_server(port=True)
    with (
        closing(redis.Redis(unix_socket_path=primary.socket)) as old,
        closing(redis.Redis(unix_socket_path=replica.socket)) as new,
    ):
        new.replicaof("127.0.0.1", primary.port)
        until(lambda: info(old)["min_slaves_good_slaves"] == 1)
        locks = [(api, api.Lock(primary.url, f"{name} {api.name}", ttl=TTL)) for api in both_apis]
        assert all(api.call(lock.acquire) for api, lock in locks)
        leases = [lock.lease for _, lock in locks]
        until(lambda: new.exists(*(lock.key for _, lock in locks)) == 2)
        new.replicaof("NO", "ONE")
        others = [(api, api.Lock(replica.url, lock.name, ttl=5)) for api, lock in locks]
        taken = [api.start(other.acquire, timeout=5) for api, other in others]
        until(lambda: all(lease.lost.is_set() for lease in leases), TTL + 1)
        assert all(future.result(5) for future in taken)
        assert int(old.info("errorstats")["errorstat_NOREPLICAS"]["count"]) >= 2
        for (api, lock), (_, other), lease in zip(locks, others, leases, strict=True):
            assert other.lease.fence > lease.fence
            assert holdfast.fencing.accept(replica.url, lock.name, other.lease.fence)
            assert not holdfast.fencing.accept(replica.url, lock.name, lease.fence)
            with pytest.raises(holdfast.LeaseLost):
                api.call(lock.release)
            api.call(other.release)


def info(client: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.info("replication")
    return found
