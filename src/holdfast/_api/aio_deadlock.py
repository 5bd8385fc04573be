"""Finding cycles of threads, tasks and processes that wait for each other's locks, for asyncio. As `_api.sync_deadlock`."""

from __future__ import annotations

from holdfast._api.caller import AioCaller
from holdfast._core.deadlock import cycles
from holdfast._core.deadlock.cycles import Cycle, Link
from holdfast._core.names import records, start

__all__ = ["find_deadlocks"]


async def find_deadlocks(client: object, *, prefix: str = "hf:") -> list[Cycle]:
    """Those who wait for each other's locks on a server, or in a Cluster, and will for ever; empty if there are none.

    A holder that has waited half a second for another lock tells the server so. A possible cycle is checked twice,
    so this takes a moment if there is one. Source: E. G. Coffman, M. Elphick, A. Shoshani, "System Deadlocks",
    ACM Computing Surveys 3, 1971.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL.
        prefix: of the locks' keys. A cycle that goes beyond it is found if each waiter in it holds, or waits for, a lock of it.

    Raises:
        ConfigError: this is no server that can be asked.
        ServerError: the server cannot be reached, or refuses.
    """
    what, mine = "finding deadlocks", start(prefix)
    try:
        caller = AioCaller(client)
    finally:
        del client  # its URL may have a password, and error reporters send the variables of each frame
    await caller.run(cycles.waiters("", mine), records(mine), what)  # of a Cluster, it is known then who is in it
    waiting: list[Link] = []
    for one in caller.each():
        waiting += await one.run(cycles.everybody(mine), records(mine), what)
    return await caller.run(cycles.find(waiting), records(mine), what)
