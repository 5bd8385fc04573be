"""The scripts at exact moments, which only virtual time reaches."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast._core import permit
from holdfast._core.lock.ticket import EXCHANGE_TOKEN
from holdfast._core.names import lock_keys
from holdfast._core.quorum.votes import DECLARE_NEW, VOTE
from holdfast._core.rendezvous.barrier import BARRIER
from holdfast._core.schedule.job import REGISTER, ScheduleKeys
from holdfast._lua import Script
from holdfast.testing.keyspace import Keyspace
from support.memory_server import Server

KEYS = lock_keys("x", "hf:", None)
LOCK, STATE, QUEUE = KEYS
ONE, OTHER, THIRD = (f"{letter * 12}.{0:032x}*1" for letter in "abc")
NOW_MS = 1_700_000_000_000


@pytest.fixture
def keyspace() -> Keyspace:
    """One microsecond after a millisecond has begun."""
    return Keyspace(NOW_MS * 1000 + 1)


def run(keyspace: Keyspace, script: Script[Any], *args: str | int, keys: tuple[bytes, ...] = KEYS) -> Any:
    return keyspace.run(script, keys, args)


def acquire(keyspace: Keyspace, token: str, *, join: bool = False) -> Any:
    return run(keyspace, permit.ACQUIRE, token, 30_000, int(join), "semaphore 1", 1)


def test_a_permit_is_held_for_its_lease_and_no_millisecond_longer(keyspace: Keyspace) -> None:
    for _ in range(2):  # the second time by the fast path
        assert acquire(keyspace, ONE)[0] == 1
        assert keyspace.execute("ZSCORE", LOCK, ONE) == b"%d" % (NOW_MS + 30_000)
        run(keyspace, permit.RELEASE, ONE, "release")


def test_a_place_ends_with_its_last_millisecond(keyspace: Keyspace) -> None:
    """A permit that is released then goes to the one behind it."""
    for process in "bc":
        keyspace.subscribe(f"hf:inbox:{process * 12}".encode(), 1)
    acquire(keyspace, ONE)
    acquire(keyspace, OTHER, join=True)
    end = int(keyspace.execute("HGET", STATE, f"at:{OTHER}"))
    keyspace.now += 1_000_000
    acquire(keyspace, THIRD, join=True)
    keyspace.now = end * 1000
    run(keyspace, permit.RELEASE, ONE, "release")
    assert keyspace.execute("ZRANGE", LOCK, 0, -1) == [THIRD.encode()]
    assert keyspace.execute("ZRANGE", QUEUE, 0, -1) == []


def test_the_end_of_a_lease_that_was_handed_over_is_told_to_the_millisecond(keyspace: Keyspace) -> None:
    giver, heir = (f"{letter * 12}.{0:032x}" for letter in "ab")
    server = Server()
    server._keyspace = keyspace
    server.now = keyspace.now / 1e6
    server.acquire(giver)
    for _ in range(2):  # the second time it is asked again
        answer = run(keyspace, EXCHANGE_TOKEN, giver, heir, 30_000, NOW_MS + 60_000)
        assert answer[3] == NOW_MS + 30_000


def test_an_outcome_is_forgotten_with_its_last_millisecond(keyspace: Keyspace) -> None:
    keys = tuple(b"hf:{x}:" + part for part in (b"state", b"places", b"done", b"waiters", b"action"))

    def come(token: str) -> Any:
        return run(keyspace, BARRIER, 1, 30_000, 600_000, token, "come", 0, keys=keys)

    assert come("one") == [1, 0]
    ((_, end),) = [keyspace.execute("ZRANGE", keys[2], 0, -1, "WITHSCORES")]
    keyspace.now = int(end) * 1000
    come("other")
    assert keyspace.execute("ZRANGE", keys[2], 0, -1) == [b"other"]


def test_the_state_of_a_voter_outlives_its_last_use_by_ten_minutes(keyspace: Keyspace) -> None:
    keep_ms, marker = 600_000, b"hf:marker"
    keyspace.run(DECLARE_NEW, (marker,), (60_000, "list", 0))
    for later in (0, keep_ms, 1_500):  # the last one is within the second before it is due
        keyspace.now += later * 1000
        token = f"{'a' * 12}.{keyspace.now:032x}"
        keys = (LOCK, STATE, b"hf:{x}:hopefuls", marker)
        assert run(keyspace, VOTE, token, 30_000, 0, 60_000, "list", "", 0, 0, keys=keys)[1] == 1
        left = keyspace.execute("PTTL", STATE)
        assert isinstance(left, int)
        assert left >= keep_ms
        keyspace.execute("DEL", LOCK)


def test_a_process_serves_a_schedule_to_the_millisecond(keyspace: Keyspace) -> None:
    keys, listener_id = ScheduleKeys.of("s"), f"{'a' * 12}.1"
    job = keys.job("job")
    head = (listener_id, 1, 30_000, "host", "")
    keyspace.run(REGISTER, (keys.base, keys.serving, keys.jobs, job.job), (*head, 1, "job", "d", "w", "app:job"))
    assert keyspace.execute("ZSCORE", keys.serving, listener_id) == b"%d" % (NOW_MS + 30_000)
