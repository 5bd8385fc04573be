"""Fixtures for all tests: servers, names, and the check that nothing is left behind. Those of a level are plugins."""

from __future__ import annotations

import fcntl
import functools
import gc
import itertools
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import holdfast
from holdfast._core.names import PREFIX, marker_key, quarantine_key
from holdfast._local.server.supervisor import BOOT, SOCKET, SocketConnection
from support.levels import level
from support.loops import choose, use_the_chosen
from support.servers import private
from support.witness import SHARED, held_by, open_sockets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.servers import PrivateServer


pytest_plugins = ["support.turns", "support.processes", "support.live", "support.faults", "support.conformance"]

_numbers = itertools.count()


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """The examples of unit tests are the same in every run."""
    if level(module_path) == "unit":
        choose_examples()


@functools.cache
def choose_examples() -> None:
    """Have hypothesis draw the same examples in every run."""
    from hypothesis import HealthCheck, settings  # here: most other tests do not need it

    settings.register_profile(
        "unit",
        derandomize=True,
        deadline=None,
        database=None,
        max_examples=60,
        suppress_health_check=[HealthCheck.too_slow],  # that a machine is busy says nothing about the examples
    )
    settings.load_profile("unit")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep only the tests to which the chosen loop can make a difference."""
    choose(config, items)


def pytest_collection() -> None:
    """Collect no garbage while tests are imported and collected: nearly all that is made then stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exclude all present objects from garbage collection: each of the many collections to come would look through them."""
    gc.enable()
    gc.collect()
    gc.freeze()


use_the_chosen()

# Tests wait for the output of their commands line by line.
os.environ["PYTHONUNBUFFERED"] = "1"

# `nohup` ignores the first, and a shell the others for what it runs in the background; what the tests start would ignore them,
# too, but for a handler, which is not handed down. And tests interrupt themselves.
for number, handler in {
    signal.SIGHUP: lambda *_: None,
    signal.SIGQUIT: lambda *_: None,
    signal.SIGINT: signal.default_int_handler,
}.items():
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


class NewServer(Protocol):
    """Starts a server of the test's own; parameters as in `holdfast._local.server.private`. It is stopped after the test."""

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
    """One server on TCP for all tests that only need a server. It keeps nothing; nobody may stop or reconfigure it.

    A test that uses ``quarantine=`` there deletes its marker. Otherwise later tests would run in a quarantine, or after one.
    """
    with private(port=True, password="") as running:
        yield running
        assert _keys_for_ever(running, marker_key(PREFIX)) == []


@pytest.fixture
def new_server() -> Iterator[NewServer]:
    """A function that starts servers (on a unix socket, unless ``port`` is given) to be killed, paused, restarted."""
    started: list[PrivateServer] = []
    with ExitStack() as stack:

        def start(
            *args: str,
            port: bool | int = False,
            appendonly: bool = False,
            password: str | None = None,
            binary: str | None = None,
        ) -> PrivateServer:
            running = stack.enter_context(
                private(*args, port=port, appendonly=appendonly, password=password or "", binary=binary)
            )
            started.append(running)
            return running

        yield start
        for running in started:
            assert _keys_for_ever(running, marker_key(PREFIX), quarantine_key(PREFIX)) == []


def _keys_for_ever(running: PrivateServer, *markers: bytes) -> list[bytes]:
    """Keys of ours without an expiry, but for these markers; a server that was ended or stopped keeps none that matter."""
    try:
        with closing(redis.Redis.from_url(running.url, socket_timeout=0.5, retry=Retry(NoBackoff(), 0))) as client:
            ours = [key for key in client.scan_iter("hf:*") if key not in markers]
            return [key for key in ours if client.pttl(key) == -1 and client.type(key) != b"list"]
    except redis.RedisError:
        return []


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return a name of a lock that no other test uses."""
    return f"{level(request.path)}-{next(_numbers)}"


@pytest.fixture(scope="module", autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each module: no thread and no connection of ours, and no exception that this thread would carry on.

    The common server is up before the first count. Unit tests need no server, and start nothing that could be left.
    """
    if level(request.path) == "unit":
        yield
        return
    assert request.getfixturevalue("server").pid
    before, handler = open_sockets(), signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is handler, "later tests interrupt themselves"
    holdfast.close()
    deadline = time.monotonic() + 10
    while True:
        gc.collect()  # each time: a task that is found dropped is ended by that, and what it held can be found only then
        threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("holdfast")]
        sockets = open_sockets() - before - SHARED
        if (not threads and not sockets) or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    assert not threads
    assert not sockets, held_by(sockets)
    assert sys.exception() is None


@pytest.fixture(autouse=True)
def dropped_is_found(request: pytest.FixtureRequest) -> Iterator[None]:
    """Find objects that a test has dropped, such as coroutines that have not begun, before the next test begins."""
    yield
    if any("PytestUnraisableExceptionWarning" in mark.args[0] for mark in request.node.iter_markers("filterwarnings")):
        gc.collect()


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
            with suppress(OSError), closing(SocketConnection(str(directory / name), 5)) as connection:
                connection("SHUTDOWN")
        time.sleep(0.002)
    pytest.fail(f"the local server in {directory} did not end")
