"""Fixtures of the tests on a real server: a lock name of one's own, a client to look with, and a monitor."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import redis

from holdfast._local.server.process import PrivateServer
from live.clusters import Cluster, cluster
from live.witness import SHARED, Monitor, open_sockets

_numbers = itertools.count()


@pytest.fixture(scope="session")
def common_cluster() -> Iterator[Cluster]:
    """Three primaries, for all tests that only need a cluster (it takes two seconds to start): slots may be moved, no more."""
    before = open_sockets()
    with cluster() as running:
        SHARED.update(open_sockets() - before)
        yield running


@pytest.fixture
def name() -> str:
    """Of a lock that no other test uses."""
    return f"live-{next(_numbers)}"


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
