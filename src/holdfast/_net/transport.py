"""The choice of transport for an endpoint: connections that holdfast opens, or the methods of the user's client.

The user's client is used if holdfast cannot open connections with that client's settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast._net.endpoint import Endpoint
from holdfast._net.pipelined_connection import ConnectionKeeper, PipelinedConnection
from holdfast._net.sync_pool import Pool
from holdfast._net.system import SYSTEM, System

if TYPE_CHECKING:
    from holdfast._net.aio_connection import AioConnection
    from holdfast._net.client_adapter import ClientCalls, ClientLine


def pool_to(endpoint: Endpoint, system: System = SYSTEM) -> Pool | ClientCalls:
    """Return the transport by which threads of this process send requests to an endpoint."""
    if endpoint.client is None:
        return Pool(endpoint, system)
    from holdfast._net.client_adapter import ClientCalls

    return ClientCalls(endpoint)


def stream_to(endpoint: Endpoint, system: System = SYSTEM) -> AioConnection:
    """Return the transport by which tasks of the running event loop send requests to an endpoint."""
    if endpoint.client is None:
        from holdfast._net.aio_connection import AioConnection

        return AioConnection(endpoint, system)
    from holdfast._net.client_adapter import AioClientCalls

    return AioClientCalls(endpoint, system)


def line_to(
    keeper: ConnectionKeeper,
    endpoint: Endpoint,
    on_push: Callable[[list[Any]], None] | None = None,
    on_closed: Callable[[], None] | None = None,
    *,
    whole_first: bool = False,
    system: System = SYSTEM,
) -> PipelinedConnection | ClientLine:
    """Return the transport by which the keeper, or a thread that uses several servers, sends requests to an endpoint.

    The transport never blocks. It calls ``on_push`` with each published message, and ``on_closed`` when the connection is
    closed. Without ``on_push`` it does not subscribe. With ``whole_first``, a connection that holdfast opens sends a script's
    text instead of its hash at the first use.
    """
    if endpoint.client is None:
        return PipelinedConnection(keeper, endpoint, on_push, on_closed, whole_first=whole_first, system=system)
    from holdfast._net.client_adapter import ClientLine

    return ClientLine(keeper, endpoint, on_push, on_closed)
