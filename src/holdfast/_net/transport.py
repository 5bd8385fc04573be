"""How an endpoint is talked to: over connections of our own, or by the user's client, where these cannot be opened without it.

It is decided here, for threads, for asyncio, and for the keeper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast._net.endpoint import Endpoint
from holdfast._net.pipelined_connection import Link, LinkKeeper
from holdfast._net.sync_pool import Pool
from holdfast._net.system import SYSTEM, System

if TYPE_CHECKING:
    from holdfast._net.aio_connection import Multiplex
    from holdfast._net.client_adapter import Calls, ForeignLine


def pool_to(endpoint: Endpoint, system: System = SYSTEM) -> Pool | Calls:
    """For threads."""
    if endpoint.client is None:
        return Pool(endpoint, system)
    from holdfast._net.client_adapter import Calls

    return Calls(endpoint)


def stream_to(endpoint: Endpoint, system: System = SYSTEM) -> Multiplex:
    """For the running event loop."""
    if endpoint.client is None:
        from holdfast._net.aio_connection import Multiplex

        return Multiplex(endpoint, system)
    from holdfast._net.client_adapter import AioCalls

    return AioCalls(endpoint)


def line_to(
    keeper: LinkKeeper,
    endpoint: Endpoint,
    on_push: Callable[[list[Any]], None] | None = None,
    on_closed: Callable[[], None] | None = None,
    *,
    whole_first: bool = False,
    system: System = SYSTEM,
) -> Link | ForeignLine:
    """For the keeper, or a thread that asks several servers."""
    if endpoint.client is None:
        return Link(keeper, endpoint, on_push, on_closed, whole_first=whole_first, system=system)
    from holdfast._net.client_adapter import ForeignLine

    return ForeignLine(keeper, endpoint, on_push, on_closed)
