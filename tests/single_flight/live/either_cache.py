"""A cache of either API for tests that are written once, with threads: that of asyncio runs in a loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import holdfast
from holdfast import CacheStatistics, aio


class Either:
    """The methods of a cache, callable from any thread; loaders are plain functions."""

    def __init__(self, cache: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        self.cache = cache
        self._loop = loop

    def _run(self, result: Any) -> Any:
        return result if self._loop is None else asyncio.run_coroutine_threadsafe(result, self._loop).result(30)

    def _loader(self, loader: Callable[[], Any]) -> Callable[[], Any]:
        async def load() -> Any:
            return await asyncio.to_thread(loader)

        return loader if self._loop is None else load

    def get_or_load(self, key: str, loader: Callable[[], Any], **options: Any) -> Any:
        return self._run(self.cache.get_or_load(key, self._loader(loader), **options))

    def get(self, *arguments: Any) -> Any:
        return self._run(self.cache.get(*arguments))

    def set(self, *arguments: Any, **options: Any) -> None:
        self._run(self.cache.set(*arguments, **options))

    def delete(self, key: str) -> bool:
        return bool(self._run(self.cache.delete(key)))

    def invalidate(self, *keys: str, **options: Any) -> None:
        self._run(self.cache.invalidate(*keys, **options))

    def clear(self) -> None:
        self._run(self.cache.clear())

    def statistics(self) -> CacheStatistics:
        found: CacheStatistics = self.cache.statistics()
        return found


Make = Callable[..., Either]


@contextmanager
def either(api: str) -> Iterator[Make]:
    """Makes caches: ``make(client, name, **options)``."""
    if api == "sync":
        yield lambda *arguments, **options: Either(holdfast.Cache(*arguments, **options), None)
        return
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda *arguments, **options: Either(aio.Cache(*arguments, **options), loop)
    finally:
        asyncio.run_coroutine_threadsafe(aio.close(), loop).result(10)
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
