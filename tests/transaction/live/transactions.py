"""Transactions of four kinds under one roof: threads and asyncio, redis-py and valkey-py. Tests are coroutines."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import holdfast
from holdfast import aio

KINDS = ("redis", "valkey", "redis.asyncio", "valkey.asyncio")


async def done(answer: Any) -> Any:
    """Return the result of a call in either API: at once, or awaited."""
    return await answer if inspect.isawaitable(answer) else answer


class Optimist:
    """A client of one kind, with transactions of its API. ``url`` where there is no client."""

    def __init__(self, kind: str, url: str, **options: Any) -> None:
        package = importlib.import_module(kind)
        self.is_async = kind.endswith("asyncio")
        self.kind = kind
        self.client: Any = (getattr(package, "Redis", None) or package.Valkey).from_url(url, **options)
        self.errors: Any = importlib.import_module(kind.partition(".")[0])

    def on(self, *keys: str | bytes, client: Any = None) -> Any:
        """A transaction."""
        return (aio if self.is_async else holdfast).transaction(client or self.client, *keys)

    @asynccontextmanager
    async def within(self, *keys: str | bytes, client: Any = None) -> AsyncIterator[Any]:
        """A ``with`` of this API."""
        transaction = self.on(*keys, client=client)
        if self.is_async:
            async with transaction as tx:
                yield tx
        else:
            with transaction as tx:
                yield tx

    async def run(self, function: Callable[[Any], Any], *keys: str, client: Any = None, **limits: Any) -> Any:
        """`run` of this API, with a coroutine function that waits for nothing but `done`."""
        if self.is_async:
            return await self.on(*keys, client=client).run(function, **limits)
        return self.on(*keys, client=client).run(lambda tx: _at_once(function(tx)), **limits)

    async def close(self) -> None:
        if self.is_async:
            await self.client.aclose()
            await aio.close()
        else:
            self.client.close()
            holdfast.close()


def _at_once(coroutine: Any) -> Any:
    """The result of a coroutine that never really waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")


def play(kind: str, url: str, scene: Callable[[Optimist], Any], **options: Any) -> None:
    """Run a coroutine function with an optimist of a kind."""

    async def run() -> None:
        optimist = Optimist(kind, url, **options)
        try:
            await scene(optimist)
        finally:
            await optimist.close()

    asyncio.run(asyncio.wait_for(run(), 20))
