"""Events, latches and barriers of either API, for tests that are the same for both."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import Future
from typing import Any

import holdfast
from holdfast import aio
from support.witness import in_thread

APIS = ["threads", "asyncio"]


class Either:
    """A barrier, latch or event, whose methods may be called by any thread, and properties asked."""

    def __init__(self, api: str, kind: str, *args: Any, **options: Any) -> None:
        self.api = api
        self.made: Any = getattr(aio if api == "asyncio" else holdfast, kind)(*args, **options)

    def __call__(self, method: str, *args: Any, **options: Any) -> Any:
        def call() -> Any:
            found = getattr(self.made, method)
            return found(*args, **options) if callable(found) else found

        if self.api == "asyncio":

            async def awaited() -> Any:
                found = call()
                return await found if inspect.isawaitable(found) else found

            return asyncio.run(awaited())
        return call()

    def later(self, method: str, *args: Any, **options: Any) -> Future[Any]:
        """Called by a thread of its own."""
        return in_thread(self, method, *args, **options)

    def at_once(self, count: int, method: str, *args: Any) -> list[Any]:
        """Called by so many threads; what they get, an error too."""
        futures = [self.later(method, *args) for _ in range(count)]
        return [future.exception(20) or future.result() for future in futures]
