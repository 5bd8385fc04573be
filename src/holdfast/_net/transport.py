"""The choice of transport for an endpoint: connections that holdfast opens, or the calls of the user's client.

The user's client is used if holdfast cannot open connections with that client's settings. The choice is the same for threads,
for asyncio, and for the keeper (the background thread).
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
    """Return the transport over which threads of this process send requests to an endpoint."""
    if endpoint.client is None:
        return Pool(endpoint, system)
    from holdfast._net.client_adapter import ClientCalls

    return ClientCalls(endpoint)


def stream_to(endpoint: Endpoint, system: System = SYSTEM) -> AioConnection:
    """Return the transport over which tasks of the running event loop send requests to an endpoint."""
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
    """Return a pipelined transport to an endpoint. The keeper (background thread) and threads that use several servers need it.

    ``on_push`` gets each published message; None: the transport does not subscribe. ``on_closed`` is called when the connection
    is closed. With ``whole_first``, a script's text is sent, not its hash, at its first use on a connection that holdfast
    opens.
    """
    if endpoint.client is None:
        return PipelinedConnection(keeper, endpoint, on_push, on_closed, whole_first=whole_first, system=system)
    from holdfast._net.client_adapter import ClientLine

    return ClientLine(keeper, endpoint, on_push, on_closed)
