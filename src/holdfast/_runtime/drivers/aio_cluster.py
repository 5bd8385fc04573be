"""The asyncio driver for a Cluster: it sends each request to the owner of its key's slot. `sync_cluster` is for threads."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast._core.requests import Answer, Call, Command, WireError
from holdfast._net.aio_connection import AioConnection
from holdfast._net.cluster import ASKING, LEAST_TIMEOUT_S, Cluster, ClusterEndpoint, Hop
from holdfast._net.endpoint import Endpoint
from holdfast._net.protocol import pack, value
from holdfast._net.system import System
from holdfast._runtime.drivers.aio import Driver, kept
from holdfast._runtime.keeper.cluster_connection import token_in
from holdfast._runtime.process import Process


class ShardDriver(Driver):
    """The driver of operations on the locks of a Cluster shard, in one event loop."""

    def __init__(self, process: Process, shard: Endpoint) -> None:
        assert isinstance(shard, ClusterEndpoint)  # the whole Cluster, while the shard of the lock is not known yet
        super().__init__(process, shard)
        self._cluster = shard.cluster

    async def ask(self, command: Command) -> Any:
        return (await self.call(command)).value

    def token(self) -> str:
        return token_in(self.process, self.endpoint)

    async def call(self, call: Call) -> Answer[Any]:
        """Send a call to the server that owns its slot. Return the reply with the times of the request. Raises WireError."""
        redirects, deadline = self._cluster.redirects(call), self._clock() + call.timeout
        reply: Answer[Any] | WireError | bool | None = None
        try:
            while True:
                hop = redirects.send(reply)  # type: ignore[arg-type]  # None starts it
                # LEAST_TIMEOUT_S is reserved for the step after a refresh
                left = max(LEAST_TIMEOUT_S, deadline - self._clock() - (LEAST_TIMEOUT_S if hop is None else 0.0))
                reply = await (_find_out(self._cluster, left) if hop is None else self._take(hop.within(left)))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    async def _take(self, hop: Hop) -> Answer[Any] | WireError:
        try:
            if hop.asking:
                return await _ask(hop, self.process.system)
            return await kept(self.process, hop.endpoint, Driver).call(hop.call)
        except WireError as error:
            return error


async def _find_out(cluster: Cluster, timeout: float) -> bool:
    """Ask the servers of the Cluster which of them own which slots, and store the answer. Return False on failure.

    ``timeout``: seconds to wait.
    """
    try:
        await asyncio.get_running_loop().run_in_executor(None, cluster.refresh, timeout)
    except WireError:
        return False
    return True


async def _ask(hop: Hop, system: System) -> Answer[Any]:
    """Send ASKING and then a call, on a new connection, so that no other request comes between the two."""
    stream = AioConnection(hop.endpoint, system)
    try:
        await stream.exchange(pack(ASKING), hop.call.timeout)
        reply, sent = await stream.exchange(pack(hop.call), hop.call.timeout)
        return Answer(value(hop.call, reply, hop.endpoint), sent, system.clock())
    finally:
        await stream.close()
