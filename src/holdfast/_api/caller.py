"""How what stands beside the locks asks a server: operations about one key, on the calling thread or in the calling task."""

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
    """Runs operations on the server that ``client`` means (a client, or a URL), for threads. In a Cluster, on the one that has
    the key. May be shared by threads; in a forked child it begins anew."""

    @hides_client()
    def __init__(self, client: object) -> None:
        self._endpoint: Endpoint = client if isinstance(client, Endpoint) else resolve(client, "sync")
        self._driver: sync.Driver | None = None

    def each(self) -> list[Caller]:
        """One for each server that has some of the keys: of a Cluster, for all primaries that are known."""
        cluster = self._endpoint.cluster
        return [self] if cluster is None else [Caller(endpoint) for endpoint in cluster.primaries()]

    @property
    def timeout(self) -> float:
        """Seconds to wait for an answer."""
        return self._endpoint.timeout

    @property
    def address(self) -> str:
        """Address of the server, for messages."""
        return self._endpoint.address

    def run(self, operation: Coroutine[Any, Any, T], key: bytes, what: str) -> T:
        """Drive an operation about ``key`` to its end. Raises ServerError, which names ``what`` it was about."""
        try:
            return self.driver(key).run(operation)
        except WireError as error:
            raise told(error, what, key.decode(errors="backslashreplace")) from error
        finally:
            operation.close()  # where it has not begun

    def ask(self, command: Command, key: bytes) -> Any:
        """The reply to a plain command about ``key``, with no operation around it. Raises WireError."""
        return self.driver(key).ask(command)

    def driver(self, key: bytes) -> sync.Driver:
        """Return the driver for operations about ``key``. Raises WireError."""
        cluster = self._endpoint.cluster
        if cluster is not None:
            from holdfast._net.slots import slot_of

            if not cluster.known:
                cluster.refresh(self.timeout)
            return driver_for(current(), cluster.shard(slot_of(key)))
        driver = self._driver
        if driver is None or driver.process is not current():
            driver = self._driver = driver_for(current(), self._endpoint)
        return driver


class AioCaller:
    """The same for asyncio: in whatever event loop it is used."""

    @hides_client()
    def __init__(self, client: object) -> None:
        self._endpoint: Endpoint = client if isinstance(client, Endpoint) else resolve(client, "asyncio")
        from holdfast._runtime.drivers.aio_choice import aio_driver_for  # here: threads do without asyncio

        self._driver_for = aio_driver_for

    def each(self) -> list[AioCaller]:
        """One for each server that has some of the keys: of a Cluster, for all primaries that are known."""
        cluster = self._endpoint.cluster
        return [self] if cluster is None else [AioCaller(endpoint) for endpoint in cluster.primaries()]

    @property
    def timeout(self) -> float:
        """Seconds to wait for an answer."""
        return self._endpoint.timeout

    @property
    def address(self) -> str:
        """Address of the server, for messages."""
        return self._endpoint.address

    async def run(self, operation: Coroutine[Any, Any, T], key: bytes, what: str) -> T:
        """Drive an operation about ``key`` to its end. Raises ServerError, which names ``what`` it was about."""
        try:
            try:
                driver = await self.driver(key)
            except BaseException:
                operation.close()  # it has not begun
                raise
            return await driver.run(operation)
        except WireError as error:
            raise told(error, what, key.decode(errors="backslashreplace")) from error

    def ask(self, command: Command, key: bytes) -> Coroutine[Any, Any, Any]:
        """The reply to a plain command about ``key``, with no operation around it. Raises WireError."""
        if self._endpoint.cluster is None:
            return self._driver_for(current(), self._endpoint).ask(command)
        return self._ask_shard(command, key)

    async def _ask_shard(self, command: Command, key: bytes) -> Any:
        return await (await self.driver(key)).ask(command)

    async def driver(self, key: bytes) -> aio.Driver:
        """Return the driver for operations about ``key``. Raises WireError."""
        cluster: Any = self._endpoint.cluster
        if cluster is None:
            return self._driver_for(current(), self._endpoint)
        from holdfast._net.slots import slot_of

        if not cluster.known:
            import asyncio

            await asyncio.get_running_loop().run_in_executor(None, cluster.refresh, self.timeout)
        shard: Endpoint = cluster.shard(slot_of(key))
        return self._driver_for(current(), shard)
