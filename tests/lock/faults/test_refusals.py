"""Servers that answer with an error: what each kind means to those who come, hold, wait and give back."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import redis

import holdfast
from support.apis import Admin, Aio, Sync, stays, until
from support.conformance import SERVERS
from support.proxy import Proxy
from support.servers import PrivateServer
from support.witness import lease_record

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

TTL = 1.2


def settings(name: str, bad: object, good: object) -> tuple[Callable[[Any], object], Callable[[Any], object]]:
    return lambda admin: admin.config_set(name, bad), lambda admin: admin.config_set(name, good)


def commands(bad: str, good: str) -> tuple[Callable[[Any], object], Callable[[Any], object]]:
    return lambda admin: admin.execute_command(*bad.split()), lambda admin: admin.execute_command(*good.split())


def snapshot_fails(server: PrivateServer, admin: Any) -> None:
    """The server cannot write its snapshot, which does not matter yet."""
    admin.config_set("stop-writes-on-bgsave-error", "no")
    admin.config_set("save", "3600 1000000")
    (server.directory / "dump.rdb").mkdir()
    admin.bgsave()
    until(lambda: admin.info("persistence")["rdb_last_bgsave_status"] == "err")


def cut_off(_: PrivateServer, admin: Any) -> None:
    admin.config_set("replica-serve-stale-data", "no")


def impatient(_: PrivateServer, admin: Any) -> None:
    admin.config_set("lua-time-limit", 5)


def run_for_ever(admin: Any) -> None:
    """Somebody's script does not end."""

    def endless() -> None:
        with suppress(redis.ResponseError):  # killed
            admin.eval("while true do end", 0)

    def busy() -> bool:
        try:
            return not admin.ping()
        except redis.ResponseError:
            return True

    threading.Thread(target=endless, daemon=True).start()
    until(busy)


class Trouble(NamedTuple):
    code: str
    switches: tuple[Callable[[Any], object], Callable[[Any], object]]
    """Let it begin, and end."""
    passes: bool
    """It is waited out, by those who mean to wait."""
    keeps: bool = False
    """A holder can renew the lock and release it."""
    prepare: Callable[[PrivateServer, Any], None] = lambda *_: None


REPLICA = commands("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE")

TROUBLES = {
    "OOM": Trouble("OOM", settings("maxmemory", 1, 0), passes=False, keeps=True),
    "MISCONF": Trouble("MISCONF", settings("stop-writes-on-bgsave-error", "yes", "no"), False, prepare=snapshot_fails),
    "NOREPLICAS": Trouble("NOREPLICAS", settings("min-replicas-to-write", 1, 0), passes=True),
    "READONLY": Trouble("READONLY", REPLICA, passes=True),
    "MASTERDOWN": Trouble("MASTERDOWN", REPLICA, passes=True, prepare=cut_off),
    "BUSY": Trouble("BUSY", (run_for_ever, lambda admin: admin.script_kill()), passes=True, prepare=impatient),
    "NOPERM": Trouble("NOPERM", commands("ACL SETUSER default -eval -evalsha", "ACL SETUSER default +eval +evalsha"), False),
    "NOPERM inside": Trouble("NOPERM", commands("ACL SETUSER default -set", "ACL SETUSER default +set"), False, keeps=True),
}


class Stage:
    """A server with one kind of trouble, a lock on it, and a proxy that counts."""

    def __init__(self, server: PrivateServer, name: str, trouble: Trouble, proxy: Proxy) -> None:
        self.admin = Admin(server, name)
        self.trouble = trouble
        self.proxy = proxy
        trouble.prepare(server, self.admin.redis)

    def begin(self) -> None:
        self.trouble.switches[0](self.admin.redis)

    def end(self) -> None:
        self.trouble.switches[1](self.admin.redis)

    def refused(self, asked: list[Future[Any]]) -> None:
        """Each is an error soon, that says why, in the server's words."""
        for future in asked:
            error = future.exception(5)
            assert isinstance(error, holdfast.ServerError)
            assert error.code == self.trouble.code


CASES = [(trouble, "valkey-packaged") for trouble in TROUBLES]
CASES += [(trouble, "redis-6.2") for trouble in ("NOREPLICAS", "READONLY", "NOPERM inside") if SERVERS["redis-6.2"]]
"""The oldest server that is tested says the same in other words, where a script runs into it."""


@pytest.fixture
def stage(request: pytest.FixtureRequest, new_server: NewServer, name: str) -> Iterator[Stage]:
    trouble, kind = request.param
    server = new_server(binary=SERVERS[kind])
    with Proxy(server) as proxy:
        stage = Stage(server, name, TROUBLES[trouble], proxy)
        yield stage
        stage.admin.close()


on_each = functools.partial(pytest.mark.parametrize, "stage", indirect=True, ids="-".join)


@pytest.mark.turns
@pytest.mark.fault(42, 44, 45, 46, 47, 49)
@on_each(CASES)
def test_a_server_that_refuses(stage: Stage, both_apis: tuple[Sync, Aio], name: str) -> None:
    """A newcomer is told why.

    A lease outlasts the refusal. A waiter that may hope waits on, and gets the lock when it is over.
    """
    proxy, trouble = stage.proxy, stage.trouble
    locks = [(api, api.Lock(proxy.url, f"{name} {api.name}", ttl=TTL)) for api in both_apis]
    assert all(api.call(lock.acquire) for api, lock in locks)
    leases = [lock.lease for _, lock in locks]
    deadlines = [lease_record(lease).deadline for lease in leases]
    renewals = len(proxy.names("renew"))
    stage.begin()
    new = [(api, api.Lock(proxy.url, f"{lock.name} new", ttl=TTL)) for api, lock in locks]
    stage.refused([api.start(lock.acquire, blocking=False) for api, lock in new])
    until(lambda: len(proxy.names("renew")) >= renewals + 2)
    stage.end()
    until(lambda: all(lease_record(lease).deadline > before for lease, before in zip(leases, deadlines, strict=True)))
    assert not any(lease.lost.is_set() for lease in leases)

    stage.begin()
    others = [(api, api.Lock(proxy.url, f"{lock.name} other", ttl=TTL)) for api, lock in locks]
    taken = [api.start(other.acquire, timeout=10) for api, other in others]
    released = [api.start(lock.release) for api, lock in locks]
    if trouble.keeps:
        assert [future.result(5) for future in released] == [None, None]
    else:
        stage.refused(released)
    if trouble.passes:
        assert not any(future.done() for future in taken)
    else:
        stage.refused(taken)
    stage.end()
    if trouble.passes:
        assert all(future.result(5) for future in taken)
        for api, other in others:
            api.call(other.release)
    # A lock that could not be released ends with its lease: it is no longer renewed.
    until(lambda: not stage.admin.redis.exists(*(lock.key for _, lock in [*locks, *others])), TTL + 1)


@pytest.mark.fault(45, 46)
@on_each([("MISCONF", "valkey-packaged"), ("READONLY", "valkey-packaged")])
def test_a_server_that_refuses_for_longer_than_the_lease(stage: Stage, both_apis: tuple[Sync, Aio], name: str) -> None:
    """The lease is lost at its own end, is asked for in moderation until then, and no more after it."""
    proxy, ttl = stage.proxy, 0.8
    locks = [(api, api.Lock(proxy.url, f"{name} {api.name}", ttl=ttl)) for api in both_apis]
    assert all(api.call(lock.acquire) for api, lock in locks)
    leases = [lock.lease for _, lock in locks]
    stage.begin()
    until(lambda: all(lease.lost.is_set() for lease in leases), ttl + 1)
    asked = len(proxy.names("renew"))
    assert 2 <= asked <= 2 * (ttl / 0.05 + 2)
    stays(lambda: len(proxy.names("renew")) <= asked + 2, 0.2)  # one of each may have been under way
    stage.end()
    for api, lock in locks:
        with pytest.raises(holdfast.LeaseLost, match="its time ran out"):
            api.call(lock.release)
        assert api.call(lock.acquire, timeout=5), "the server is as good as before"
        api.call(lock.release)
