"""Every server that can be had here, each behind a `Box`: the scripts' contracts are tested on all of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from holdfast._local.server.binary import _packaged
from support.box import Box
from support.levels import level
from support.servers import private, redis_6_2

SERVERS = {
    "valkey-packaged": str(_packaged() or ""),
    "redis-on-path": shutil.which("redis-server"),
    "valkey-on-path": shutil.which("valkey-server"),
    "redis-6.2": redis_6_2(),
}
"""Program of each kind of server, where there is one."""


@pytest.fixture(scope="module", params=[kind for kind, program in SERVERS.items() if program])
def box(request: pytest.FixtureRequest) -> Iterator[Box]:
    """One kind of server after the other, each started for this module."""
    with private(binary=SERVERS[request.param]) as server, Box(server) as box:
        yield box


@pytest.fixture(autouse=True)
def _empty(request: pytest.FixtureRequest, dropped_is_found: None) -> Iterator[None]:
    """Each test of scripts finds an empty server, and leaves no key without an expiry."""
    if level(request.path) != "conformance" or "box" not in request.fixturenames:
        yield
        return
    box: Box = request.getfixturevalue("box")
    box.clear()
    yield
    assert box.keys_for_ever() == []
