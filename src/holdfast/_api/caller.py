"""Callers: how features other than locks send operations about one key to a server, in a thread or in an asyncio task."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._api.error_map import told
from holdfast._core.requests import Command, WireError
from holdfast._net.endpoint import Endpoint
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import resolve
from holdfast._runtime.drivers.choice import driver_for
from holdfast._runtime.process import current

if TYPE_CHECKING:
    from holdfast._runtime.drivers import aio, sync

T = TypeVar("T")


class Caller:
    """An object that runs operations on one key of a server, in the calling thread. Threads may share it.

    In a Cluster, it finds the server of the key. A forked child opens its own connections.
    """

    @hides_client()
    def __init__(self, client: object) -> None:
        self.endpoint: Endpoint = client if isinstance(client, Endpoint) else resolve(client, "sync")
        self._driver: sync.Driver | None = None

    def each(self) -> list[Caller]:
        """Return one caller for each server that may have keys: for a Cluster, one for each known primary."""
        cluster = self.endpoint.cluster
        return [self] if cluster is None else [Caller(endpoint) for endpoint in cluster.primaries()]

    @property
    def timeout(self) -> float:
        """Seconds to wait for one answer of the server."""
        return self.endpoint.timeout

    @property
    def address(self) -> str:
        """The address of the server, for messages."""
        return self.endpoint.address

    def run(self, operation: Coroutine[Any, Any, T], key: bytes, what: str) -> T:
        """Run an operation about ``key`` to its end and return its result. Raises ServerError, whose text
        begins with ``what``."""
        try:
            return self.driver(key).run(operation)
        except WireError as error:
            raise told(error, what, key.decode(errors="backslashreplace")) from error
        finally:
            operation.close()  # Avoids a warning if the operation was never started.

    def ask(self, command: Command, key: bytes) -> Any:
        """Send a plain command about ``key`` and return the reply. Raises WireError."""
        return self.driver(key).ask(command)

    def driver(self, key: bytes) -> sync.Driver:
        """Return the driver (runs operations on one server) for the server of ``key``. Raises WireError."""
        cluster = self.endpoint.cluster
        if cluster is not None:
            from holdfast._net.slots import slot_of

            if not cluster.known:
                cluster.refresh(self.timeout)
            return driver_for(current(), cluster.shard(slot_of(key)))
        driver = self._driver
        if driver is None or driver.process is not current():
            driver = self._driver = driver_for(current(), self.endpoint)
        return driver


class AioCaller:
    """A runner of operations about one key on a server, for asyncio in any event loop. In a Cluster, it finds
    the key's server."""

    @hides_client()
    def __init__(self, client: object) -> None:
        self.endpoint: Endpoint = client if isinstance(client, Endpoint) else resolve(client, "asyncio")
        from holdfast._runtime.drivers.aio_choice import aio_driver_for  # Imported late: programs of threads need no asyncio.

        self._driver_for = aio_driver_for

    def each(self) -> list[AioCaller]:
        """Return one caller for each server that may have keys: for a Cluster, one for each known primary."""
        cluster = self.endpoint.cluster
        return [self] if cluster is None else [AioCaller(endpoint) for endpoint in cluster.primaries()]

    @property
    def timeout(self) -> float:
        """Seconds to wait for one answer of the server."""
        return self.endpoint.timeout

    @property
    def address(self) -> str:
        """The address of the server, for messages."""
        return self.endpoint.address

    async def run(self, operation: Coroutine[Any, Any, T], key: bytes, what: str) -> T:
        """Run an operation about ``key`` to its end and return its result. Raises ServerError, whose text
        begins with ``what``."""
        try:
            try:
                driver = await self.driver(key)
            except BaseException:
                operation.close()  # Avoids a warning: the operation was never started.
                raise
            return await driver.run(operation)
        except WireError as error:
            raise told(error, what, key.decode(errors="backslashreplace")) from error

    def ask(self, command: Command, key: bytes) -> Coroutine[Any, Any, Any]:
        """Send a plain command about ``key`` and return the reply. Raises WireError."""
        if self.endpoint.cluster is None:
            return self._driver_for(current(), self.endpoint).ask(command)
        return self._ask_shard(command, key)

    async def _ask_shard(self, command: Command, key: bytes) -> Any:
        return await (await self.driver(key)).ask(command)

    async def driver(self, key: bytes) -> aio.Driver:
        """Return the driver (runs operations on one server) for the server of ``key``. Raises WireError."""
        cluster: Any = self.endpoint.cluster
        if cluster is None:
            return self._driver_for(current(), self.endpoint)
        from holdfast._net.slots import slot_of

        if not cluster.known:
            import asyncio

            await asyncio.get_running_loop().run_in_executor(None, cluster.refresh, self.timeout)
        shard: Endpoint = cluster.shard(slot_of(key))
        return self._driver_for(current(), shard)
