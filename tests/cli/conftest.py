"""Fixtures for the tests of the command line."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING

import pytest
import redis

from cli.commands import Holdfast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.servers import PrivateServer

_numbers = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Start programs as fast as installed ones, whatever the environment contains.

    Without a setting in the environment, compiled files are used, instead of compiling them anew in each process that runs
    tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        if "PYTHONDONTWRITEBYTECODE" in os.environ:
            patch.delenv("PYTHONDONTWRITEBYTECODE")
            patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("bytecode")))
        yield


@pytest.fixture
def name() -> str:
    """Of a lock that no other test uses."""
    return f"cli-{next(_numbers)}"


@pytest.fixture
def hf(server: PrivateServer) -> Iterator[Holdfast]:
    """Starts ``holdfast run`` on the common server."""
    holdfast = Holdfast(server.url)
    yield holdfast
    holdfast.end()


@pytest.fixture
def hf_on() -> Iterator[Callable[[str], Holdfast]]:
    """Makes such a starter for another server."""
    with contextlib.ExitStack() as stack:

        def make(url: str) -> Holdfast:
            holdfast = Holdfast(url)
            stack.callback(holdfast.end)
            return holdfast

        yield make


@pytest.fixture
def client(server: PrivateServer) -> Iterator[redis.Redis]:
    """A client of the common server."""
    with redis.Redis.from_url(server.url) as client:
        yield client
