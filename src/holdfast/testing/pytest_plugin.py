"""pytest fixtures: a server in memory, the clock of holdfast, and a real server. Each imports its modules at first use."""

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
    """Provide each test with its own server in memory: ``Lock(holdfast_memory, "name")``, or ``holdfast_memory.url``."""
    from holdfast.testing import memory

    with memory() as server:
        yield server


@pytest.fixture
def holdfast_clock() -> Iterator[Clock]:
    """Provide the clock of `holdfast.testing`, and reset it to the real time after the test."""
    from holdfast.testing import clock

    yield clock
    clock.reset()


@pytest.fixture(scope="session")
def holdfast_server() -> Iterator[PrivateServer]:
    """Provide a private real server, shared by all tests; skip the tests if there is no server program."""
    from holdfast.errors import ConfigError
    from holdfast.testing import server

    try:
        running = server()
    except ConfigError as error:
        pytest.skip(str(error))
    with running:
        yield running
