"""The choice of a thread's driver for an endpoint, which is a single server or a Cluster shard."""

from __future__ import annotations

from holdfast._net.endpoint import Endpoint
from holdfast._runtime.drivers.sync import Driver
from holdfast._runtime.process import Process


def driver_for(process: Process, endpoint: Endpoint) -> Driver:
    if endpoint.cluster is None:
        return Driver(process, endpoint)
    from holdfast._runtime.drivers.sync_cluster import ShardDriver

    return ShardDriver(process, endpoint)
