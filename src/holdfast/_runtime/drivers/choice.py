"""Which driver asks an endpoint: that of a server, or that of the shard of a Cluster. It is decided here, for both faces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._net.endpoint import Endpoint
from holdfast._runtime.drivers.sync import Driver
from holdfast._runtime.process import Process

if TYPE_CHECKING:
    from holdfast._runtime.drivers import aio


def driver_for(process: Process, endpoint: Endpoint) -> Driver:
    """For threads."""
    if endpoint.cluster is None:
        return Driver(process, endpoint)
    from holdfast._runtime.drivers.sync_cluster import ShardDriver

    return ShardDriver(process, endpoint)


def aio_driver_for(process: Process, endpoint: Endpoint) -> aio.Driver:
    """For asyncio: that of the running loop, whose connection is shared by all its tasks."""
    from holdfast._runtime.drivers import aio  # here: who uses threads only does without asyncio

    if endpoint.cluster is None:
        return aio.kept(process, endpoint, aio.Driver)
    from holdfast._runtime.drivers.aio_cluster import ShardDriver

    return aio.kept(process, endpoint, ShardDriver)
