"""Drives transactions in the calling asyncio task, and keeps the clients of redis-py that holdfast has opened in its loop."""

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
    """Ours, in the place of a driver's connection: closed with their loop."""

    def __init__(self) -> None:
        self.open: dict[Hashable, Any] = {}

    async def close(self) -> None:
        while self.open:
            for one in closable(self.open.popitem()[1]):
                await one.aclose()

    def sockets(self) -> list[socket.socket]:
        """A forked child has copies of them; the clients see to that themselves."""
        return []


class Driver(Runner):
    """Does what transactions ask."""

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
        """The rest of a transaction is the server's."""

    async def _ask(self, request: CallClient) -> Any:
        """Clients swallow a cancellation that comes when a request has just left: they send by `asyncio.wait_for`, whose fault
        that is up to Python 3.11. It is raised when the client has done: with its answer, or when its time is up."""
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
        """A client that is ours, made when it is first wanted."""
        if key not in self.clients.open:
            self.clients.open[key] = make()
        return self.clients.open[key]


_HERE = Endpoint(host="transactions", port=0)
"""No server: the key under which a loop has its driver."""


def driver() -> Driver:
    """That of the running loop."""
    return kept(current(), _HERE, Driver)
