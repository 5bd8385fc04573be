"""A hundred thousand leases in one process: five minutes in which none is lost, for a small part of a core."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
import redis

from holdfast import Lock
from holdfast._runtime.process import current

if TYPE_CHECKING:
    from conftest import NewServer

LEASES = 100_000

SECONDS = 300

SHARE = 0.15
"""Of one core, at most, for the keeper: asking, and reading the answers."""


@pytest.mark.soak
def test_a_hundred_thousand_leases(new_server: NewServer) -> None:
    server = new_server(port=True)
    lost = threading.Event()
    locks = [Lock(server.url, f"order:{number}", ttl=30, on_lost=lambda _: lost.set()) for number in range(LEASES)]
    for lock in locks:
        assert lock.acquire()
    keeper = current().running_keeper
    assert keeper is not None
    assert keeper.thread.ident is not None
    its_clock = time.pthread_getcpuclockid(keeper.thread.ident)
    with redis.Redis.from_url(server.url) as look:
        look.config_resetstat()
    used, began = time.clock_gettime(its_clock), time.monotonic()
    assert not lost.wait(SECONDS)
    share = (time.clock_gettime(its_clock) - used) / (time.monotonic() - began)
    with redis.Redis.from_url(server.url) as look:
        held = sum(look.exists(*(f"hf:{{order:{number + n}}}" for n in range(1000))) for number in range(0, LEASES, 1000))
        runs = look.info("commandstats")["cmdstat_evalsha"]
        print(f"\n  keeper {share:.1%} of a core; {runs['calls']} scripts, {runs['usec_per_call']} us each")
    assert held == LEASES
    assert share < SHARE
    for lock in locks:
        lock.release()
