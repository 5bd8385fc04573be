"""Fixtures for all tests: servers."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from holdfast._servers import private
from holdfast._servers.supervisor import BOOT, SOCKET, Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._servers.process import PrivateServer


class NewServer(Protocol):
    """Starts a server of the test's own; parameters as in `holdfast._servers.private`. It is stopped after the test."""

    def __call__(
        self,
        *args: str,
        port: bool | int = False,
        appendonly: bool = False,
        password: str | None = None,
        binary: str | None = None,
    ) -> PrivateServer: ...


@pytest.fixture(scope="session")
def server() -> Iterator[PrivateServer]:
    """One server on TCP for all tests that only need a server. It keeps nothing; nobody may stop or reconfigure it."""
    with private(port=True) as running:
        yield running


@pytest.fixture
def new_server() -> Iterator[NewServer]:
    """A function that starts servers (on a unix socket, unless ``port`` is given) to be killed, paused, restarted."""
    with ExitStack() as stack:

        def start(
            *args: str,
            port: bool | int = False,
            appendonly: bool = False,
            password: str | None = None,
            binary: str | None = None,
        ) -> PrivateServer:
            return stack.enter_context(private(*args, port=port, appendonly=appendonly, password=password, binary=binary))

        yield start


@pytest.fixture
def local_url() -> Iterator[str]:
    """URL ``local:///...`` of a server that does not run yet; ended after the test, supervisor and all."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-local-", dir="/tmp"))  # short, for a socket
    lock = os.open(directory, os.O_RDONLY)
    try:
        yield f"local://{directory}"
        _end_local(directory, lock)
    finally:
        os.close(lock)
        shutil.rmtree(directory, ignore_errors=True)


def _end_local(directory: Path, lock: int) -> None:
    """When the directory's lock is free all of it has ended. That lock counts even if the directory was deleted."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        for name in (SOCKET, BOOT):
            with suppress(OSError), closing(Connection(str(directory / name), 5)) as connection:
                connection("SHUTDOWN")
        time.sleep(0.002)
    pytest.fail(f"the local server in {directory} did not end")
