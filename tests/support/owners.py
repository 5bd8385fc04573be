"""One test for both APIs: the same steps by a thread, by a task, and by a task that uses the threads' api."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

import holdfast
from holdfast import aio
from support.witness import in_thread

T = TypeVar("T")


async def done(result: Any) -> Any:
    """Return the result of a method of either API."""
    return await result if inspect.isawaitable(result) else result


class Either:
    """A lock of either API. ``async with`` gives its lease."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    async def acquire(self, *args: Any, **kwargs: Any) -> bool:
        return bool(await done(self.lock.acquire(*args, **kwargs)))

    async def release(self) -> None:
        await done(self.lock.release())

    async def locked(self) -> bool:
        return bool(await done(self.lock.locked()))

    async def __aenter__(self) -> Any:
        lock = self.lock
        return await (lock.__aenter__() if hasattr(lock, "__aenter__") else done(lock.__enter__()))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lock = self.lock
        await (lock.__aexit__ if hasattr(lock, "__aexit__") else self._exit)(kind, error, trace)

    async def _exit(self, *how: Any) -> None:
        self.lock.__exit__(*how)

    def __call__(self) -> Self:
        return self


class Threads:
    """Threads, where no event loop runs."""

    api: Any = holdfast

    def run(self, steps: Coroutine[Any, Any, T]) -> T:
        try:
            steps.send(None)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        raise AssertionError("threads wait for nothing that is awaited")

    def other(self, steps: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        """The same by another owner, to its end."""
        return done(in_thread(lambda: self.run(steps())).result(10))


class Tasks:
    """Tasks of asyncio."""

    api: Any = aio

    def run(self, steps: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(steps)

    def other(self, steps: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        return asyncio.create_task(steps())


class TasksWithThreads(Tasks):
    """Tasks that use the API for threads: each of them is an owner, though they share a thread."""

    api: Any = holdfast


Owners = Threads | Tasks
OWNERS = (Threads(), Tasks(), TasksWithThreads())
