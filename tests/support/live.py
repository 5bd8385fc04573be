"""Fixtures of the tests on a real server: a client to look with, a monitor, and a Cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from support.clusters import Cluster, cluster
from support.servers import PrivateServer
from support.witness import SHARED, Monitor, open_sockets


@pytest.fixture(scope="session")
def common_cluster() -> Iterator[Cluster]:
    """Three primaries, for all tests that only need a cluster (it takes two seconds to start): slots may be moved, no more."""
    before = open_sockets()
    with cluster() as running:
        SHARED.update(open_sockets() - before)
        yield running


@pytest.fixture
def look(server: PrivateServer) -> Iterator[redis.Redis]:
    """Looks at the common server; answers text."""
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        yield client


@pytest.fixture
def monitor(server: PrivateServer) -> Iterator[Monitor]:
    """Sees every command that clients send to the common server."""
    with Monitor(server.url) as monitor:
        yield monitor
