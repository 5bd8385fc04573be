"""The choice of the keeper's connection to an endpoint, which is a single server or a Cluster shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from holdfast._net import transport
from holdfast._net.pipelined_connection import ConnectionKeeper

if TYPE_CHECKING:
    from holdfast._core.lock.ports import InboxAddress, Line
    from holdfast._net.client_adapter import ClientLine
    from holdfast._net.endpoint import Endpoint
    from holdfast._net.pipelined_connection import PipelinedConnection
    from holdfast._net.system import System
    from holdfast._runtime.keeper.cluster_connection import ShardLine

    AnyLine = PipelinedConnection | ShardLine | ClientLine


class LineKeeper(ConnectionKeeper, Protocol):
    """The methods of the keeper that its connections call."""

    def line_to(self, endpoint: Endpoint) -> Line: ...


def inbox_address_of(endpoint: Endpoint, process_id: str) -> InboxAddress | None:
    """Return the id of this process's inbox on a Cluster shard; None for a single server."""
    if endpoint.cluster is None:
        return None
    from holdfast._runtime.keeper import cluster_connection

    return cluster_connection.inbox_address_of(endpoint, process_id)


def line_to(
    keeper: LineKeeper,
    endpoint: Endpoint,
    on_push: Callable[[list[Any]], None] | None,
    on_closed: Callable[[], None] | None,
    system: System,
) -> AnyLine:
    """Return a new connection of the keeper to an endpoint. It is for notifications if ``on_push`` is set, otherwise for
    requests.

    ``on_push`` gets each published message. ``on_closed`` is called when the connection is closed.
    """
    if endpoint.cluster is None:
        return transport.line_to(keeper, endpoint, on_push, on_closed, system=system)
    from holdfast._runtime.keeper.cluster_connection import ShardInbox, ShardLine

    if on_push is None:
        return ShardLine(keeper, endpoint, system)
    return ShardInbox(keeper, endpoint, on_push, on_closed, system=system)
