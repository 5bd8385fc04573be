"""Finding cycles of threads, tasks and processes that wait for each other's locks. `holdfast.aio` has the same for asyncio."""

from __future__ import annotations

from holdfast._api.caller import Caller
from holdfast._core.deadlock import cycles
from holdfast._core.deadlock.cycles import Cycle, Link, Waiter
from holdfast._core.names import records, start
from holdfast._net.redaction import hides_client

__all__ = ["Cycle", "Waiter", "find_deadlocks"]


@hides_client()
def find_deadlocks(client: object, *, prefix: str = "hf:") -> list[Cycle]:
    """Those who wait for each other's locks on a server, or in a Cluster, and will for ever; empty if there are none.

    A holder that has waited half a second for another lock tells the server so. A possible cycle is checked twice,
    so this takes a moment if there is one. Source: E. G. Coffman, M. Elphick, A. Shoshani, "System Deadlocks",
    ACM Computing Surveys 3, 1971.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL.
        prefix: of the locks' keys. A cycle that goes beyond it is found if each waiter in it holds, or waits for, a lock of it.

    Raises:
        ConfigError: this is no server that can be asked.
        ServerError: the server cannot be reached, or refuses.
    """
    caller, what = Caller(client), "finding deadlocks"
    mine = start(prefix)
    caller.run(cycles.waiters("", mine), records(mine), what)  # of a Cluster, it is known then who is in it
    waiting: list[Link] = []
    for one in caller.each():
        waiting += one.run(cycles.everybody(mine), records(mine), what)
    return caller.run(cycles.find(waiting), records(mine), what)
