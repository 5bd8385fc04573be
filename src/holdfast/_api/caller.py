"""Callers send operations about one key to a server, from a thread or an asyncio task. Locks do not use them.

The coroutine methods of a caller are awaited in flows, which are coroutines for both APIs (see `holdfast._api.flow`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar, cast

from holdfast._api.error_map import cause, told
from holdfast._api.flow import InTasks, InThreads, Steps
from holdfast._core.requests import Command, WireError
from holdfast._net.endpoint import Endpoint
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import resolve
from holdfast._runtime.drivers.choice import driver_for
from holdfast._runtime.process import Process, current

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])
T = TypeVar("T")


def resolves_client(function: F) -> F:
    """Decorate a coroutine function so that it gets the client's server (endpoint) instead of its argument ``client``.

    A client's URL may contain a password. It must not stay in the frame, because error reporters send the variables of frames.
    """

    @functools.wraps(function)
    async def call(client: object, *args: Any, **kwargs: Any) -> Any:
        try:
            endpoint = AioCaller(client).endpoint
        finally:
            del client
        return await function(endpoint, *args, **kwargs)

    return cast("F", call)


class BaseCaller(Steps):
    """An object that runs operations on one key of a server. In a Cluster, it finds the server of the key.

    Threads may share it, and so may tasks, also of different event loops. A forked child opens its own connections.
    """

    @hides_client()
    def __init__(self, client: object) -> None:
        self.endpoint: Endpoint = client if isinstance(client, Endpoint) else resolve(client, self._api)

    def each(self) -> list[Self]:
        """Return one caller for each server that may have keys: for a Cluster, one for each known primary."""
        cluster = self.endpoint.cluster
        return [self] if cluster is None else [type(self)(endpoint) for endpoint in cluster.primaries()]

    @property
    def timeout(self) -> float:
        """Seconds to wait for one answer of the server."""
        return self.endpoint.timeout

    @property
    def address(self) -> str:
        return self.endpoint.address

    def _driver_for(self, process: Process, endpoint: Endpoint) -> Any:
        """Return the driver of operations on the server ``endpoint``. In asyncio, it is that of the running event loop."""
        raise NotImplementedError

    async def run(self, operation: Coroutine[Any, Any, T], key: bytes, what: str) -> T:
        """Run an operation about ``key`` and return its result. Raises ServerError, whose text begins with ``what``."""
        try:
            driver = await self.driver(key)
            answer = await self._run_on(driver, operation)
        except WireError as error:
            raise told(error, what, key.decode(errors="backslashreplace")) from cause(error)
        finally:
            if not (operation.cr_running or operation.cr_suspended):  # type: ignore[attr-defined]
                operation.close()  # Avoids a warning if the operation was never started.
        return answer

    async def ask(self, command: Command, key: bytes) -> Any:
        """Send a plain command about ``key`` and return the reply. Raises WireError."""
        raise NotImplementedError

    async def driver(self, key: bytes) -> Any:
        """Return the driver that runs operations on the server of ``key``. Raises WireError."""
        cluster = self.endpoint.cluster
        if cluster is None:
            return self._driver_for(current(), self.endpoint)
        from holdfast._net.slots import slot_of

        if not cluster.known:
            await self._in_background(cluster.refresh, self.timeout)
        return self._driver_for(current(), cluster.shard(slot_of(key)))


class Caller(InThreads, BaseCaller):
    """The caller of the sync API. An operation runs in the thread that calls the method."""

    @hides_client()
    def __init__(self, client: object) -> None:
        super().__init__(client)
        self._kept: Any = None
        """The driver of the latest call; None before the first call."""

    def _driver_for(self, process: Process, endpoint: Endpoint) -> Any:
        driver = self._kept
        if driver is None or driver.process is not process or driver.endpoint is not endpoint:
            driver = self._kept = driver_for(process, endpoint)
        return driver

    async def ask(self, command: Command, key: bytes) -> Any:
        return (await self.driver(key)).ask(command)


class AioCaller(InTasks, BaseCaller):
    """The caller of asyncio. An operation runs in the task that calls the method, in any event loop."""

    @hides_client()
    def __init__(self, client: object) -> None:
        super().__init__(client)
        from holdfast._runtime.drivers.aio_choice import aio_driver_for  # Imported late: programs of threads need no asyncio.

        self._driver_for = aio_driver_for  # type: ignore[method-assign]

    async def ask(self, command: Command, key: bytes) -> Any:
        return await (await self.driver(key)).ask(command)
