"""The driver for transactions in asyncio tasks. It carries out each request by calling a method of a redis-py client."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, assert_never

from holdfast._clock import clock
from holdfast._core.requests import CallClient, CallUser, Now, RandomFraction, Sleep
from holdfast._net.endpoint import Endpoint
from holdfast._net.own_clients import closable
from holdfast._runtime.drivers.aio import Runner, kept
from holdfast._runtime.process import Process, current

if TYPE_CHECKING:
    from holdfast._core.requests import ClientAwaited, ClientInstant


class _Clients:
    """The redis-py clients that holdfast has opened in one event loop, which are closed when the loop ends."""

    def __init__(self) -> None:
        self.open: dict[Hashable, Any] = {}

    async def close(self) -> None:
        while self.open:
            for one in closable(self.open.popitem()[1]):
                await one.aclose()

    def sockets(self) -> list[socket.socket]:
        """Return no sockets, because the clients close their own in a forked child."""
        return []


class Driver(Runner):
    def __init__(self, process: Process, endpoint: Endpoint) -> None:
        self.process = process
        self.endpoint = endpoint
        self.loop = asyncio.get_running_loop()
        self.running = set()
        self.clients = _Clients()
        self.stream = self.clients

    def at_once(self, request: ClientInstant) -> Any:
        match request:
            case Now():
                return clock()
            case RandomFraction():
                return random.random()  # noqa: S311 - no secret
            case _:
                assert_never(request)

    def awaited(self, request: ClientAwaited) -> Awaitable[Any]:
        match request:
            case CallClient():
                return self._ask(request)
            case CallUser():
                return request.call()  # type: ignore[no-any-return]
            case Sleep():
                return asyncio.sleep(request.seconds)
            case _:
                assert_never(request)

    def _be_watched(self) -> None:
        """Do nothing, because a transaction needs no clean-up. When its loop is closed, its connection and the transaction
        end."""

    async def _ask(self, request: CallClient) -> Any:
        """Await a call of the client, and return its result.

        If the task is cancelled meanwhile, raise CancelledError after the call. Otherwise the cancellation could get lost, by a
        bug in `asyncio.wait_for` up to Python 3.11.
        """
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        try:
            answer = await request.call()
        except Exception as error:
            if task.cancelling() > before:
                raise asyncio.CancelledError from error
            raise
        if task.cancelling() > before:
            raise asyncio.CancelledError
        return answer

    def client(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return holdfast's own client for ``key``. ``make`` creates it at the first call for this key."""
        if key not in self.clients.open:
            self.clients.open[key] = make()
        return self.clients.open[key]


_HERE = Endpoint(host="transactions", port=0)
"""Key of a loop's driver for transactions. Other drivers have an endpoint as their key, but this one has no server."""


def driver() -> Driver:
    return kept(current(), _HERE, Driver)
