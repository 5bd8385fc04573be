"""pytest fixtures: a server in memory, the clock of holdfast, and a private real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast._local.server.process import PrivateServer
    from holdfast.testing.inmemory.backend import Memory
    from holdfast.testing.inmemory.timekeeping import Clock


@pytest.fixture
def holdfast_memory() -> Iterator[Memory]:
    """Provide each test with its own server in memory. Pass it as ``Lock(holdfast_memory, "name")``, or use its ``url``."""
    from holdfast.testing import memory

    with memory() as server:
        yield server


@pytest.fixture
def holdfast_clock() -> Iterator[Clock]:
    """Provide the clock of `holdfast.testing`, with which a test moves time. After the test, set it back to real time."""
    from holdfast.testing import clock

    yield clock
    clock.reset()


@pytest.fixture(scope="session")
def holdfast_server() -> Iterator[PrivateServer]:
    """Provide a private real server that all tests share. Skip the tests if there is no server program."""
    from holdfast.errors import ConfigError
    from holdfast.testing import server

    try:
        running = server()
    except ConfigError as error:
        pytest.skip(str(error))
    with running:
        yield running
