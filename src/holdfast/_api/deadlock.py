"""`find_deadlocks` finds cycles of clients that wait for each other's locks. For threads and for asyncio."""

from __future__ import annotations

from holdfast._api.caller import AioCaller, BaseCaller, Caller, resolves_client
from holdfast._api.flow import complete, of_asyncio
from holdfast._api.options import explain_words
from holdfast._core.deadlock import cycles
from holdfast._core.deadlock.cycles import Cycle, CycleWaiter, Link
from holdfast._core.names import records, start
from holdfast._net.clients import AsyncClient, Connected, SyncClient
from holdfast._net.redaction import hides_client

__all__ = ["Cycle", "CycleWaiter", "aio_find_deadlocks", "find_deadlocks"]


@hides_client(words=explain_words)
def find_deadlocks(client: SyncClient | Connected, *, prefix: str = "hf:") -> list[Cycle]:
    """Return the cycles of clients on a server or Cluster that would wait for each other's locks forever.

    The list is empty if there are none. Once a holder has waited for another lock for about half a second, its process reports
    this wait to the server. Semaphores and read-write locks do not count. The call finds only reported waits. It checks a
    possible cycle twice, which takes a moment longer. Source: E. G. Coffman, M. Elphick, A. Shoshani, "System Deadlocks", ACM
    Computing Surveys 3, 1971.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL.
        prefix: prefix of the locks. A cycle over several prefixes is found if each of its waiters holds, or waits for, a lock
            with this prefix.

    Raises:
        ConfigError: ``client`` is neither a supported client nor a URL.
        ServerError: the server cannot be reached, or refuses the request.
    """
    return complete(_find(Caller(client), start(prefix)))


@of_asyncio
@resolves_client
@hides_client("find_deadlocks", words=explain_words)
async def aio_find_deadlocks(client: AsyncClient | Connected, *, prefix: str = "hf:") -> list[Cycle]:
    """Return the cycles of clients on a server or Cluster that would wait for each other's locks forever.

    The list is empty if there are none. Once a holder has waited for another lock for about half a second, its process reports
    this wait to the server. Semaphores and read-write locks do not count. The call finds only reported waits. It checks a
    possible cycle twice, which takes a moment longer. Source: E. G. Coffman, M. Elphick, A. Shoshani, "System Deadlocks", ACM
    Computing Surveys 3, 1971.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL.
        prefix: prefix of the locks. A cycle over several prefixes is found if each of its waiters holds, or waits for, a lock
            with this prefix.

    Raises:
        ConfigError: ``client`` is neither a supported client nor a URL.
        ServerError: the server cannot be reached, or refuses the request.
    """
    return await _find(AioCaller(client), start(prefix))


async def _find(caller: BaseCaller, prefix: bytes) -> list[Cycle]:
    key, what = records(prefix), "finding deadlocks"
    await caller.run(cycles.waiters("", prefix), key, what)  # This also looks up the servers of a Cluster.
    waiting: list[Link] = []
    for one in caller.each():
        waiting += await one.run(cycles.everybody(prefix), key, what)
    return await caller.run(cycles.find(waiting), key, what)
