"""Which lines the keeper has to an endpoint: those to a server, or those for the shard of a Cluster. It is decided here."""

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
    """The keeper, as its lines see it."""

    def line_to(self, endpoint: Endpoint) -> Line:
        """The line to a server, for requests."""


def inbox_address_of(endpoint: Endpoint, process_id: str) -> InboxAddress | None:
    """Return the inbox of this endpoint's node in a Cluster; None: it is one server."""
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
    """A new one; with ``on_push``: that for the inbox."""
    if endpoint.cluster is None:
        return transport.line_to(keeper, endpoint, on_push, on_closed, system=system)
    from holdfast._runtime.keeper.cluster_connection import ShardInbox, ShardLine

    return ShardLine(keeper, endpoint) if on_push is None else ShardInbox(keeper, endpoint, on_push, on_closed)
