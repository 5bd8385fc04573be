"""Measure a process that holds a hundred thousand leases of 30 seconds: the cost of renewal, and lost leases."""

from __future__ import annotations

import asyncio
import gc
import re
import time
from multiprocessing.connection import Connection

import holdfast.aio
from holdfast_lab.bench.bare import Bare
from holdfast_lab.bench.machine import resident
from holdfast_lab.bench.plan import PREFIX, TTL, Plan
from holdfast_lab.bench.report import Figure, Result, Row
from holdfast_lab.bench.rivals import OURS_AIO
from holdfast_lab.bench.workers import workers

AT_ONCE = 500
"""Number of acquisitions at the same time."""

EVERY = TTL / 3
"""Seconds between two renewals of a lease. Except in a smoke test, the measurement lasts a multiple of this."""


def measure(plan: Plan) -> Result:
    count = plan.many(100_000, 10_000)
    whole = not plan.smoke
    window = EVERY * max(1, round(4 * plan.seconds / EVERY)) if whole else plan.seconds
    result = Result(f"{count:,} leases held by one process, ttl {TTL:g} s", chart="core_share")
    server = Bare(plan.url)
    memory = server.memory()
    with workers(1, _hold, plan.url, count) as (holder,):
        taking, grown = holder.hear()
        memory = server.memory() - memory
        busy, renewed = server.cpu(), _renewals(server)
        share, lost = holder.ask(window)
        busy, renewed = server.cpu() - busy, _renewals(server) - renewed
        giving = holder.ask(None)
    server.close()
    values = {
        "core_share": 100 * share,
        "server_share": 100 * busy / window,
        "lost": float(lost),
        "bytes": grown / count,
        "server_bytes": memory / count,
        "n": float(count),
    }
    result.rows.append(Row(OURS_AIO, values))
    name, limit = f"renewal of {count:,} leases: share of one core", 15 * count / 100_000
    result.figures = [
        Figure(name, 100 * share, "%", "≤", limit) if whole else Figure(name, 100 * share, "%"),
        Figure("leases lost", lost, "", "=", 0),
        Figure(f"renewals of each lease in {window:g} s", renewed / count),
        Figure("taking them all", taking, "s"),
        Figure("giving them all back", giving, "s"),
    ]
    result.notes.append(
        "other libraries are left out: redis-py does not renew its Lock, and python-redis-lock needs a thread for each lock"
    )
    return result


def _renewals(server: Bare) -> int:
    """Return how often the server has run PEXPIRE, which only renewals use during the measurement."""
    counted = re.match(r"calls=(\d+)", server.info("commandstats").get("cmdstat_pexpire", ""))
    return int(counted[1]) if counted else 0


def _hold(pipe: Connection, url: str, count: int) -> None:
    asyncio.run(_serve(pipe, url, count))


async def _serve(pipe: Connection, url: str, count: int) -> None:
    first = holdfast.aio.Lock(url, f"{PREFIX}leases:first", ttl=TTL)
    await first.acquire()
    gc.collect()
    before, start = resident(), time.monotonic()
    locks = [holdfast.aio.Lock(url, f"{PREFIX}leases:{number}", ttl=TTL) for number in range(count)]
    for number in range(0, count, AT_ONCE):
        await asyncio.gather(*(lock.acquire() for lock in locks[number : number + AT_ONCE]))
    taking = time.monotonic() - start
    gc.collect()
    pipe.send((taking, resident() - before))
    window = await asyncio.to_thread(pipe.recv)
    spent = time.process_time()
    await asyncio.sleep(window)
    spent = time.process_time() - spent
    leases = [lock.lease for lock in locks]
    pipe.send((spent / window, sum(1 for lease in leases if lease is None or lease.lost.is_set())))
    await asyncio.to_thread(pipe.recv)
    start = time.monotonic()
    for number in range(0, count, AT_ONCE):
        await asyncio.gather(*(lock.release() for lock in locks[number : number + AT_ONCE]), return_exceptions=True)
    await first.release()
    await holdfast.aio.close()
    pipe.send(time.monotonic() - start)
