"""Half a migration: a lock of redis-py's and one of ours, of the same name, are both granted. The log says so."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
import redis

import holdfast
from holdfast import aio
from holdfast._api import access
from holdfast._runtime.keeper.foreign_locks import AFTER_S, MOST, ForeignLocks
from holdfast._runtime.process import current
from support.clusters import Cluster
from support.peer import Peer
from support.servers import PrivateServer
from support.witness import Monitor, until

if TYPE_CHECKING:
    from conftest import NewServer

Found = Callable[[], list[str]]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[Found]:
    """The warnings of a search that has just begun, as in a new process."""
    keeper = current().keeper
    monkeypatch.setattr(keeper, "foreign_locks", ForeignLocks(keeper))
    with caplog.at_level(logging.WARNING, "holdfast.keeper"):
        yield lambda: [record.getMessage() for record in caplog.records if "another library" in record.getMessage()]


def test_redis_pys_lock_is_found(server: PrivateServer, name: str, look: redis.Redis, found: Found) -> None:
    with look.lock(name):  # without a timeout, as by default
        assert holdfast.Lock(server.url, name).acquire(blocking=False), "nothing keeps the two apart"
        until(found)
        assert holdfast.Lock(server.url, name, key=name).acquire(blocking=False) is False, "the advice of the warning"
    (warning,) = found()
    assert f"lock '{name}': the key '{name}' on 127.0.0.1:{server.port} looks like a lock" in warning
    assert f"'hf:{{{name}}}'" in warning
    assert warning.endswith(f"pass key='{name}' to this lock while other programs use that key")


def test_a_program_that_has_dropped_the_key_warns_of_one_that_has_not(server: PrivateServer, name: str, found: Found) -> None:
    """Without reason, if that program uses both keys. The page about redis-py says so."""
    with Peer("sync", server.url, name, key=name) as peer:
        assert peer.ask("lock.acquire()")
        with holdfast.Lock(server.url, name):
            until(found)
    assert found()[0].endswith(f"pass key='{name}' to this lock while other programs use that key")


def test_it_is_found_in_asyncio_and_said_once(server: PrivateServer, name: str, look: redis.Redis, found: Found) -> None:
    async def main() -> None:
        async with aio.Lock(server.url, name), aio.FairLock(server.url, f"{name}-2"):
            await asyncio.to_thread(until, found)

    with look.lock(name, timeout=9), look.lock(f"{name}-2", timeout=9):
        asyncio.run(main())
        with holdfast.Lock(server.url, f"{name}-3"), look.lock(f"{name}-3"):
            time.sleep(3 * AFTER_S)
    assert len(found()) == 1


def test_what_is_no_lock_is_not_mentioned(server: PrivateServer, name: str, look: redis.Redis, found: Found) -> None:
    look.set(f"{name}-setting", "on")
    look.rpush(f"{name}-list", "x")  # the server answers WRONGTYPE
    look.set(f"{name}-large", "x" * 1000, ex=60)
    with Monitor(server.url) as monitor:
        for what in ("setting", "list", "large", "nothing"):
            with holdfast.Lock(server.url, f"{name}-{what}"):
                pass
        assert len(monitor.until(4, f"GETRANGE {name}-")) == 4
    assert found() == []
    look.delete(*look.keys(f"{name}-*"))


def test_a_key_that_this_process_holds_itself_is_not_mentioned(server: PrivateServer, name: str, found: Found) -> None:
    """A lock with both keys, with which a fleet drops ``key=``."""
    both = holdfast.MultiLock([holdfast.Lock(server.url, f"old {name}", key=name), holdfast.Lock(server.url, name)])
    with Monitor(server.url) as monitor, both:
        monitor.until(1, f"GETRANGE {name}")
        with holdfast.Lock(server.url, f"{name}-next"):
            monitor.until(1, f"GETRANGE {name}-next")  # so the first reply has been read
    assert found() == []


def test_chosen_keys_are_not_looked_at(server: PrivateServer, name: str, look: redis.Redis, found: Found) -> None:
    with look.lock(name), Monitor(server.url) as monitor:
        with holdfast.Lock(server.url, name, prefix="app:"), holdfast.Lock(server.url, name, key=f"{name}-key"):
            time.sleep(3 * AFTER_S)
        with holdfast.Lock(server.url, f"{name}-last"):
            assert monitor.until(1, f"GETRANGE {name}") == [f"GETRANGE {name}-last 0 64"]
    assert found() == []


def test_a_name_is_looked_at_once_and_at_most_a_hundred_are(server: PrivateServer, name: str, found: Found) -> None:
    with Monitor(server.url) as monitor:
        for number in [0, 0, *range(MOST + 5)]:
            with holdfast.Lock(server.url, f"{name}-{number}"):
                pass
        looks = monitor.until(MOST, f"GETRANGE {name}-")
        time.sleep(3 * AFTER_S)
        looks += monitor.commands("GETRANGE ")
        assert sorted(looks) == sorted(f"GETRANGE {name}-{number} 0 64" for number in range(MOST))
    assert found() == []


def test_a_user_with_rights_for_locks_alone_is_refused_nothing(
    server: PrivateServer, name: str, look: redis.Redis, found: Found
) -> None:
    """Each refusal is a line of ACL LOG, which somebody may watch."""
    look.execute_command("ACL SETUSER", name, *access.rule(), ">secret")  # type: ignore[no-untyped-call]
    try:
        with holdfast.Lock(f"redis://{name}:secret@127.0.0.1:{server.port}", name):
            time.sleep(3 * AFTER_S)
        assert [entry for entry in look.acl_log() if entry["username"] == name] == []
    finally:
        look.acl_deluser(name)


def test_where_other_keys_are_forbidden_it_is_tried_once(new_server: NewServer, name: str, found: Found) -> None:
    server = new_server(port=True)
    with redis.Redis.from_url(server.url, decode_responses=True) as look, look.lock(name):
        look.execute_command("ACL SETUSER", "default", "resetkeys", "~hf:*")
        for number in ("", "-1", "-2"):
            with holdfast.Lock(server.url, name + number):
                time.sleep(2 * AFTER_S)
        assert [entry["object"] for entry in look.acl_log()] == [name]
        look.execute_command("ACL SETUSER", "default", "allkeys")
    assert found() == []


def test_a_key_on_another_server_of_a_cluster(common_cluster: Cluster, name: str, found: Found) -> None:
    """The name decides the slot of our key; of theirs, only a part of the name in braces does: the server answers MOVED."""
    url = common_cluster.url
    for tag in ("a", "b", "c", "d", "e"):
        with holdfast.Lock(url, f"{name}{{{tag}}}"):
            time.sleep(2 * AFTER_S)
    assert found() == []
