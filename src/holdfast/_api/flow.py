"""Flows, which serve both APIs. A flow is a coroutine that awaits steps, and each API carries out the steps in its own way.

A step of the sync API has done its work when it returns. So a flow of the sync API never suspends, and `complete` runs it to
its end. In asyncio, the caller awaits the flow, which suspends at its steps. A public class has the signatures and docstrings.
Its base class has the flows, and `InThreads` or `InTasks` has the steps of its API.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, ClassVar, Literal, Protocol, TypeVar, cast

from holdfast.errors import HoldfastError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])

Flow = Callable[..., Coroutine[Any, Any, Any]]
N = TypeVar("N")


class Runner(Protocol):
    """A driver of either API. It runs operations for one process, in a thread or in an event loop."""

    def run(self, operation: Coroutine[Any, Any, Any], /) -> Any:
        """Run an operation to its end, and return its result; in asyncio, an awaitable."""


def hide_frames(error: BaseException) -> None:
    """Remove holdfast's frames from the traceback of a HoldfastError, so that it fits on a screen. Frames of the user stay."""
    if not isinstance(error, HoldfastError):
        return
    entries: list[TracebackType] = []
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_globals.get("__name__", "").startswith("holdfast."):
            entries.append(trace)
        trace = trace.tb_next
    for entry in reversed(entries):
        trace = TracebackType(trace, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    error.__traceback__ = trace


def hides_frames(flow: F) -> F:
    """Decorate a flow so that a HoldfastError leaves it without holdfast's frames. `complete` does the same in the sync API."""

    @functools.wraps(flow)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return await flow(*args, **kwargs)
        except HoldfastError as error:
            hide_frames(error)
            raise

    return cast("F", call)


def complete(flow: Coroutine[Any, Any, T]) -> T:
    """Run a flow of the sync API to its end, in the calling thread, and return its result."""
    try:
        flow.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    except HoldfastError as error:
        hide_frames(error)
        raise
    except RuntimeError as error:
        if error.args == ("coroutine raised StopIteration",) and error.__cause__ is not None:
            raise error.__cause__ from None  # A function of the user has raised it (PEP 479).
        raise
    finally:
        flow.close()  # Python would warn of a coroutine that an interrupt has kept from starting.
    raise AssertionError  # A step of the sync API never suspends.


async def as_flow(function: Callable[..., T], *args: Any) -> T:
    """Call a plain function as a step of a flow."""
    return function(*args)


def as_function(flow: Flow, like: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a plain function that runs a flow with its arguments.

    The plain function gets the name, signature and docstring of ``like``, or those of the flow if ``like`` is None.
    """

    @functools.wraps(like or flow)
    def call(*args: Any, **kwargs: Any) -> Any:
        return complete(flow(*args, **kwargs))

    return call


def as_coroutine_function(flow: Flow, like: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a coroutine function that runs a flow with its arguments. ``like``: as for `as_function`."""

    return functools.wraps(like or flow)(hides_frames(flow))


def of_asyncio(thing: N) -> N:
    """Decorate a class or function of `holdfast.aio`, so that texts and ``help`` show its public name, without ``Aio``."""
    thing.__name__ = thing.__name__.removeprefix("Aio").removeprefix("aio_")  # type: ignore[attr-defined]
    return thing


class Steps:
    """The steps of flows, which each API carries out in its own way."""

    _api: ClassVar[Literal["sync", "asyncio"]]
    _dropped: ClassVar[tuple[type[BaseException], ...]]
    """Exceptions that a flow gets if it is dropped with its event loop, where nothing can be awaited. The sync API has none."""

    @staticmethod
    def _run_on(driver: Runner, operation: Coroutine[Any, Any, T]) -> Awaitable[T]:
        raise NotImplementedError

    @staticmethod
    def _call_user(function: Callable[[], Any]) -> Awaitable[Any]:
        """Call a function of the user. In asyncio, await what it returns, if that can be awaited."""
        raise NotImplementedError

    @staticmethod
    def _in_background(function: Callable[..., T], *args: Any) -> Awaitable[T]:
        """Call a function that blocks. In asyncio, a thread calls it, so that the event loop goes on."""
        raise NotImplementedError

    @staticmethod
    def _this_task() -> object:
        """Return the calling thread, by its number, or the running task. In asyncio, the loop may be passed if it is known."""
        raise NotImplementedError

    @staticmethod
    def _owner() -> int:
        """Return the number of the calling thread, or the id of the running task; 0 if no event loop runs."""
        raise NotImplementedError

    @staticmethod
    def _as_function(flow: Flow, like: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Return the function that runs a flow: a plain function (`as_function`), in asyncio a coroutine function."""
        raise NotImplementedError


class InThreads(Steps):
    """The steps of flows in the sync API. Each returns when its work is done."""

    _api = "sync"
    _dropped = ()

    @staticmethod
    async def _run_on(driver: Runner, operation: Coroutine[Any, Any, T]) -> T:
        return driver.run(operation)  # type: ignore[no-any-return]

    @staticmethod
    async def _call_user(function: Callable[[], Any]) -> Any:
        return function()

    _in_background = staticmethod(as_flow)
    _this_task = _owner = staticmethod(threading.get_ident)

    _as_function = staticmethod(as_function)


class InTasks(Steps):
    """The steps of flows in asyncio. Each suspends the task until its work is done."""

    _api = "asyncio"
    _dropped = (GeneratorExit,)

    @staticmethod
    def _run_on(driver: Runner, operation: Coroutine[Any, Any, T]) -> Awaitable[T]:
        return driver.run(operation)  # type: ignore[no-any-return]

    @staticmethod
    async def _call_user(function: Callable[[], Any]) -> Any:
        from inspect import isawaitable  # Imported late: programs of threads need neither module.

        result = function()
        return await result if isawaitable(result) else result

    @staticmethod
    def _in_background(function: Callable[..., T], *args: Any) -> Awaitable[T]:
        from asyncio import get_running_loop

        return get_running_loop().run_in_executor(None, function, *args)

    @staticmethod
    def _this_task(loop: Any = None) -> Any:
        from asyncio import current_task

        InTasks._this_task = staticmethod(current_task)  # type: ignore[method-assign]  # The next calls import nothing.
        return current_task(loop)

    @staticmethod
    def _owner() -> int:
        try:
            return id(InTasks._this_task())
        except RuntimeError:  # No loop runs: a coroutine is being dropped.
            return 0

    @staticmethod
    def _running_loop() -> Any:
        from asyncio import _get_running_loop

        InTasks._running_loop = staticmethod(_get_running_loop)  # type: ignore[method-assign]  # as `_this_task`
        return _get_running_loop()

    _as_function = staticmethod(as_coroutine_function)
