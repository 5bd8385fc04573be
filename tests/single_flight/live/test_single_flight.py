"""Single flight on real servers, in threads and tasks: one loads, all others get what it has loaded."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from uuid import uuid4

import pytest
import redis

import holdfast
from holdfast._api.caller import AioCaller, Caller
from holdfast._api.flow import complete
from holdfast._core.single_flight import flight
from holdfast._core.single_flight.entry import GET_OR_LEASE
from holdfast._core.single_flight.flight import EntrySpec, FoundValue, Load, Loading, LookupPolicy
from holdfast._runtime.process import current
from support.servers import PrivateServer, private
from support.witness import Monitor, in_thread, until

T = TypeVar("T")
CROWD = 20


@pytest.fixture
def entry() -> EntrySpec:
    return flight.entry_spec("hf:cache:", uuid4().hex, "x", lease=2.0)


def run(server: PrivateServer, entry: EntrySpec, operation: Coroutine[Any, Any, T]) -> T:
    return complete(Caller(server.url).run(operation, entry.value, "test"))


def loading(server: PrivateServer, entry: EntrySpec) -> Load:
    load = run(server, entry, flight.get_or_lease(entry, LookupPolicy()))
    assert isinstance(load, Load)
    return load


def wait(server: PrivateServer, entry: EntrySpec) -> object:
    return run(server, entry, flight.get_or_lease(entry, LookupPolicy(wait=10)))


def test_a_crowd_of_threads_costs_one_listener(server: PrivateServer, look: redis.Redis, entry: EntrySpec) -> None:
    load = loading(server, entry)
    with ThreadPoolExecutor(CROWD) as pool, Monitor(server.url) as monitor:
        waiting = [pool.submit(wait, server, entry) for _ in range(CROWD)]
        assert len(monitor.until(CROWD + 1, GET_OR_LEASE.sha)) == CROWD + 1, "once more, who is to be told for all"
        until(lambda: look.zcard(entry.waiters.decode()) == 1)
        coalescer = current().keeper.coalescer(Caller(server.url).endpoint, entry.value, 0)
        until(
            lambda: len(coalescer.members) == CROWD - 1
        )  # all but the leader; a caller that had not come yet would ask for itself
        assert run(server, entry, flight.store_loaded(load, "v", b"data", ttl=60))
        found = [future.result(10) for future in waiting]
        assert all(isinstance(one, FoundValue) and one.record.data == b"data" for one in found)
        assert len(monitor.commands(GET_OR_LEASE.sha)) == 1


def test_a_crowd_of_tasks(server: PrivateServer, look: redis.Redis, entry: EntrySpec) -> None:
    async def main() -> list[object]:
        caller = AioCaller(server.url)
        load = await caller.run(flight.get_or_lease(entry, LookupPolicy()), entry.value, "test")
        assert isinstance(load, Load)
        tasks = [
            asyncio.create_task(caller.run(flight.get_or_lease(entry, LookupPolicy()), entry.value, "test"))
            for _ in range(CROWD)
        ]
        while look.zcard(entry.waiters.decode()) != 1:
            await asyncio.sleep(0.002)
        tasks.pop(0).cancel()  # who was told by the server
        assert await caller.run(flight.store_loaded(load, "v", b"data", ttl=60), entry.value, "test")
        return list(await asyncio.gather(*tasks))

    found = asyncio.run(main())
    assert all(isinstance(one, FoundValue) and one.record.data == b"data" for one in found)


def test_a_load_that_takes_longer_than_its_lease_is_renewed(server: PrivateServer, look: redis.Redis) -> None:
    entry = flight.entry_spec("hf:cache:", uuid4().hex, "x", lease=1.0)
    load = loading(server, entry)
    seen: list[int] = []

    def renewed() -> bool:
        seen.append(look.pttl(entry.spec.keys[0]))
        return sum(now > before for before, now in itertools.pairwise(seen)) == 3

    until(renewed)
    assert run(server, entry, flight.store_loaded(load, "v", b"data", ttl=60))


def test_a_load_that_nobody_refers_to_is_given_back(server: PrivateServer, entry: EntrySpec) -> None:
    load = loading(server, entry)
    waiting = in_thread(wait, server, entry)
    del load
    gc.collect()
    assert isinstance(waiting.result(1.5), Load), "before the lease has ended"


def test_when_the_process_ends_its_loads_are_given_back(server: PrivateServer, look: redis.Redis, entry: EntrySpec) -> None:
    load = loading(server, entry)
    holdfast.close()
    assert not look.exists(entry.spec.keys[0])
    assert load.lost == "the process ends"
    assert not run(server, entry, flight.store_loaded(load, "v", b"data", ttl=60))


def test_who_has_lost_its_lease_is_told_and_stores_nothing(server: PrivateServer, look: redis.Redis) -> None:
    entry = flight.entry_spec("hf:cache:", uuid4().hex, "x", lease=0.3)
    load = loading(server, entry)
    told: list[Load] = []
    load.on_lost = told.append
    look.delete(entry.spec.keys[0])
    until(lambda: told)
    assert told == [load]
    assert not run(server, entry, flight.store_loaded(load, "v", b"data", ttl=60))
    assert isinstance(wait(server, entry), Load)


def test_a_server_that_goes_away_fails_all_who_wait(entry: EntrySpec) -> None:
    with private() as server:
        load = loading(server, entry)
        with ThreadPoolExecutor(5) as pool:
            waiting = [pool.submit(wait, server, entry) for _ in range(5)]
            with redis.Redis.from_url(server.url) as client:
                until(lambda: client.zcard(entry.waiters.decode()) == 1)
            server.stop()
            for future in waiting:
                with pytest.raises(holdfast.ServerError):
                    future.result(5)
        assert load.fence


def test_who_does_not_wait_is_told_who_loads(server: PrivateServer, entry: EntrySpec) -> None:
    load = loading(server, entry)
    result = run(server, entry, flight.get_or_lease(entry, LookupPolicy(wait=0)))
    assert isinstance(result, Loading)
    assert load.held_lease.token.startswith(result.process)
    assert result.remaining is not None
    assert 0 < result.remaining <= 2
    assert 0 <= result.since < 5
    run(server, entry, flight.cancel_load(load))
