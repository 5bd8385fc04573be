"""Drives operations in the calling asyncio task."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

from holdfast._core.requests import Answer, Call, Command, Delist, Draw, Enlist, Now, Outcome, Run, Sleep, TimedOut, Wait
from holdfast._drive.clock import clock
from holdfast._drive.process import Process, current
from holdfast._wire.endpoint import Endpoint
from holdfast._wire.multiplex import Multiplex, stream_to
from holdfast._wire.resp import forgotten, pack, value

T = TypeVar("T")

CLEAN_UP = 1.0
"""Seconds for which a cancelled task waits for its clean-up; the clean-up itself goes on."""

_background: set[asyncio.Task[Any]] = set()  # a task that nobody refers to may be collected before it is done


class AioSlot:
    """Where a task waits for its hand-over; the keeper thread puts it in."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Outcome | None] = asyncio.Queue()

    def put(self, outcome: Outcome | None, /) -> None:
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, outcome)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more, and the claim window ends by itself

    async def get(self, until: float | None) -> Outcome | None:
        try:
            async with asyncio.timeout(None if until is None else max(0.0, until - clock())):
                return await self._queue.get()
        except TimeoutError:
            return TimedOut()


class Driver:
    """Does what operations ask, on one server, in one event loop."""

    def __init__(self, process: Process, endpoint: Endpoint) -> None:
        self.process = process
        self.endpoint = endpoint
        self.loop = asyncio.get_running_loop()
        self._stream = _stream(process, self.loop, endpoint)
        self._at_once: dict[type, Callable[[Any], Any]] = {
            Now: lambda _: clock(),
            Draw: lambda _: process.token(),
            Delist: self._delist,
        }
        self._do: dict[type, Callable[[Any], Coroutine[Any, Any, Any]]] = {
            Run: self._call,
            Command: self._call,
            Sleep: lambda request: asyncio.sleep(request.seconds),
            Enlist: self._enlist,
            Wait: self._wait,
        }

    async def run(self, operation: Coroutine[Any, Any, T]) -> T:
        """Drive an operation to its end. When the task is cancelled, the rest of the operation, its clean-up, goes on in a
        task of its own; the cancellation is handed on when that is done, or after a second."""
        try:
            request = operation.send(None)
            while True:
                try:
                    reply = await self._perform(request)
                except asyncio.CancelledError as cancelled:
                    await self._finish(operation, cancelled)
                    raise
                except GeneratorExit:
                    # Dropped, not cancelled: nothing can be awaited any more, and the lease has to end it.
                    with contextlib.suppress(RuntimeError):
                        operation.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - whose it is, the operation decides
                    request = operation.throw(error)
                else:
                    request = operation.send(reply)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    async def _perform(self, request: Any) -> Any:
        at_once = self._at_once.get(type(request))
        if at_once is not None:
            return at_once(request)
        return await self._do[type(request)](request)

    async def _finish(self, operation: Coroutine[Any, Any, Any], cancelled: asyncio.CancelledError) -> None:
        async def rest() -> None:
            try:
                request = operation.throw(cancelled)
                while True:
                    try:
                        reply = await self._perform(request)
                    except Exception as error:  # noqa: BLE001 - as in run
                        request = operation.throw(error)
                    else:
                        request = operation.send(reply)
            except (StopIteration, asyncio.CancelledError):
                pass

        task = self.loop.create_task(rest())
        _background.add(task)
        task.add_done_callback(_background.discard)
        try:
            await asyncio.wait([task], timeout=CLEAN_UP)
        except asyncio.CancelledError:
            pass  # cancelled once more: stop waiting; the caller raises the first one

    async def _call(self, call: Call) -> Answer[Any]:
        reply, sent = await self._stream.exchange(pack(call), call.timeout)
        if forgotten(reply):
            reply, sent = await self._stream.exchange(pack(call, whole=True), call.timeout)
        return Answer(value(call, reply, self.endpoint), sent, clock())

    def _delist(self, request: Delist) -> None:
        keeper = self.process.running_keeper
        if keeper is not None:
            keeper.delist(self.endpoint, request.waiter)

    async def _enlist(self, request: Enlist) -> Outcome | None:
        slot = AioSlot()
        if self.process.keeper.enlist(self.endpoint, request.waiter, slot):
            return None
        return await slot.get(request.until)

    async def _wait(self, request: Wait) -> Outcome:
        self.process.keeper.joined(self.endpoint, request.waiter, request.answer)
        slot = request.waiter.slot
        assert isinstance(slot, AioSlot)
        outcome = await slot.get(request.until)
        return TimedOut() if outcome is None else outcome


def _stream(process: Process, loop: asyncio.AbstractEventLoop, endpoint: Endpoint) -> Multiplex:
    streams = process.streams.get(loop)
    if streams is None:
        for other in [other for other in process.streams if other.is_closed()]:
            del process.streams[other]
        streams = process.streams[loop] = {}
        _close_with_loop(loop)
    stream = streams.get(endpoint)
    if stream is None:
        stream = streams[endpoint] = stream_to(endpoint)
    return stream


_finalisers: dict[asyncio.AbstractEventLoop, AsyncGenerator[None, None]] = {}


def _close_with_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Have the loop's connections closed by ``loop.shutdown_asyncgens()``, which asyncio.run and its like call at their
    end: it closes every asynchronous generator that was started and not finished."""

    async def finaliser() -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await close(loop)

    _finalisers[loop] = generator = finaliser()
    try:
        generator.__anext__().send(None)  # starts it; there is nothing in it to wait for
    except StopIteration:
        pass


async def close(loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Close the connections that belong to a loop (default: the running one)."""
    loop = loop or asyncio.get_running_loop()
    _finalisers.pop(loop, None)
    for stream in current().streams.pop(loop, {}).values():
        await stream.close()
