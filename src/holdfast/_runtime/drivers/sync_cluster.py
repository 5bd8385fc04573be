"""The driver of threads for a Cluster: it sends each request to the owner of its key's slot.

`_runtime.drivers.aio_cluster` does the same for asyncio, and `_runtime.keeper.cluster_connection` for the keeper.
`_net.cluster` decides about redirections.
"""

from __future__ import annotations

from typing import Any

from holdfast._core.requests import Answer, Call, Command, WireError
from holdfast._net.cluster import ASKING, LEAST_TIMEOUT_S, ClusterEndpoint, Hop
from holdfast._net.endpoint import Endpoint
from holdfast._net.protocol import pack, value
from holdfast._net.sync_connection import Connection
from holdfast._net.system import System
from holdfast._runtime.drivers.sync import Driver
from holdfast._runtime.keeper.cluster_connection import token_in
from holdfast._runtime.process import Process


class ShardDriver(Driver):
    """The driver of operations on the locks of a Cluster shard, in the calling thread."""

    def __init__(self, process: Process, shard: Endpoint) -> None:
        assert isinstance(shard, ClusterEndpoint)  # the whole Cluster, while the shard of the lock is not known yet
        super().__init__(process, shard)
        self._cluster = shard.cluster
        self._drivers: dict[Endpoint, Driver] = {}

    def ask(self, command: Command) -> Any:
        return self.call(command).value

    def token(self) -> str:
        return token_in(self.process, self.endpoint)

    def call(self, call: Call) -> Answer[Any]:
        """Send a call to the server that owns its slot. Return the reply with the times of the request. Raises WireError."""
        redirects, deadline = self._cluster.redirects(call), self._clock() + call.timeout
        reply: Answer[Any] | WireError | bool | None = None
        try:
            while True:
                hop = redirects.send(reply)  # type: ignore[arg-type]  # None starts it
                # LEAST_TIMEOUT_S is reserved for the step after a refresh
                left = max(LEAST_TIMEOUT_S, deadline - self._clock() - (LEAST_TIMEOUT_S if hop is None else 0.0))
                reply = self._find_out(left) if hop is None else self._take(hop.within(left))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def _find_out(self, timeout: float) -> bool:
        try:
            self._cluster.refresh(timeout)
        except WireError:
            return False
        return True

    def _take(self, hop: Hop) -> Answer[Any] | WireError:
        try:
            if hop.asking:
                return _ask(hop, self.process.system)
            driver = self._drivers.get(hop.endpoint)
            if driver is None:
                driver = self._drivers[hop.endpoint] = Driver(self.process, hop.endpoint)
            return driver.call(hop.call)
        except WireError as error:
            return error


def _ask(hop: Hop, system: System) -> Answer[Any]:
    """Send ASKING and then a call, on a new connection, so that no other request comes between the two."""
    connection = Connection(hop.endpoint, hop.call.timeout, system)
    try:
        connection.set_timeout(hop.call.timeout)
        connection.exchange(pack(ASKING))
        sent = system.clock()
        return Answer(value(hop.call, connection.exchange(pack(hop.call)), hop.endpoint), sent, system.clock())
    finally:
        connection.close()
