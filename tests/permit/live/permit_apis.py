"""Semaphores and read-write locks of both APIs, for tests that are written once: everything is called from a thread."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import holdfast
from holdfast import aio


class Api:
    """One of the APIs. An asyncio lock lives in a loop that runs in a thread of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.module: Any = holdfast if name == "threads" else aio
        self._ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),), daemon=True)
        self._thread.start()
        self._ready.wait(10)
        self._made: list[Any] = []

    def make(self, what: str, *args: Any, **options: Any) -> Any:
        """A lock of this API, which is given back at the end of the test."""
        lock = getattr(self.module, what)(*args, **options)
        self._made += [lock.read, lock.write] if what == "RWLock" else [lock]
        return lock

    def close(self) -> None:
        for lock in self._made:
            for lease in lock._holding() if hasattr(lock, "_holding") else [lock.lease] if lock.lease else []:
                with suppress(holdfast.HoldfastError):
                    self.do(lease.release)
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    async def _run(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._end.wait()

    def start(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Call it elsewhere: in another thread, or in a task."""
        if self.name != "threads":
            return asyncio.run_coroutine_threadsafe(_awaited(call, args, kwargs), self._loop)
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(call(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future

    def do(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call it elsewhere, and wait for what it gives."""
        return self.start(call, *args, **kwargs).result(15)

    def held(self, lock: Any) -> Any:
        """Enter it, as ``with`` does; the lease."""
        return self.do(lock.__enter__ if self.name == "threads" else lock.__aenter__)


async def _awaited(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value = call(*args, **kwargs)
    return await value if inspect.isawaitable(value) else value
