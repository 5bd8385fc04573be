"""The asyncio driver of operations on several servers. The driver for threads is `_runtime.drivers.sync_quorum`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, assert_never

from holdfast._core.requests import (
    CONNECT_WITHIN_S,
    Answer,
    AwaitNotice,
    Call,
    GiveBack,
    NewToken,
    NotSent,
    Now,
    Poll,
    RunOn,
    RunScript,
    Sleep,
    Subscribe,
    Unsubscribe,
    WaitLocally,
    WireError,
)
from holdfast._net.endpoint import Endpoint
from holdfast._net.protocol import is_noscript, pack, value
from holdfast._runtime.drivers.aio import Driver as ServerDriver
from holdfast._runtime.drivers.aio import Runner, kept, running_loop
from holdfast._runtime.process import Process

if TYPE_CHECKING:
    from holdfast._core.requests import QuorumAwaited, QuorumInstant

TURNS = 3
"""Iterations of the event loop that a poll waits after its time limit.

If the event loop was blocked until then, replies may have arrived that it has not read yet.
"""


class _Unanswered:
    """The servers that have not answered a poll yet. If the event loop is closed, the keeper sends each another request.

    ``otherwise``: function that returns this other request, such as the withdrawal of a vote, for a server's number.
    """

    __slots__ = ("otherwise", "servers")

    def __init__(self, otherwise: Callable[[int], GiveBack], servers: set[int]) -> None:
        self.otherwise = otherwise
        self.servers = servers


class Driver(Runner):
    """The driver of operations on several servers in one event loop, over the connections of that loop."""

    def __init__(self, process: Process, endpoints: tuple[Endpoint, ...]) -> None:
        self.process = process
        self.endpoint = self.servers = endpoints
        self.loop = running_loop()
        self.running, self.unwatched = set(), True
        self._streams = [kept(process, endpoint, ServerDriver).stream for endpoint in endpoints]

    def at_once(self, request: QuorumInstant) -> Any:
        match request:
            case NewToken():
                return self.process.token()
            case Now():
                return self.process.clock()
            case GiveBack():
                return self.process.send_until_answered(self.servers, request)
            case Unsubscribe():
                return self.process.unsubscribe(self.servers, request.listener)
            case _:
                assert_never(request)

    def awaited(self, request: QuorumAwaited) -> Awaitable[Any]:
        match request:
            case Poll():
                return self._poll(request)
            case WaitLocally():
                return self._wait_locally(request)
            case Sleep():
                return asyncio.sleep(request.seconds)
            case Subscribe():
                return self._subscribe(request)
            case AwaitNotice():
                return self._await_notice(request)
            case RunOn():
                return request.home.run(request.operation)  # type: ignore[no-any-return]
            case _:
                assert_never(request)

    def end(self, operation: Any, *, begun: bool = True) -> None:
        if not isinstance(operation, _Unanswered):
            super().end(operation, begun=begun)
            return
        self.running.discard(operation)
        for number in operation.servers:  # the event loop is closed, and nobody will learn of an answer
            self.process.send_until_answered(self.endpoint, operation.otherwise(number))

    async def _poll(self, poll: Poll) -> None:
        enough = self.loop.create_future()
        asked = {number for number, call in enumerate(poll.calls) if call is not None}
        unanswered = _Unanswered(poll.otherwise, asked) if poll.otherwise is not None else None
        if unanswered is not None:
            self.running.add(unanswered)  # the poll may end before the answers arrive, and the event loop may then be closed

        def tell(number: int, answer: Answer[Any] | WireError) -> None:
            asked.discard(number)
            if not asked:
                self.running.discard(unanswered)
            if poll.otherwise is not None and isinstance(answer, WireError):
                self.process.send_until_answered(self.endpoint, poll.otherwise(number))
            if not enough.done() and (poll.counter.on_answer(number, answer) or not asked):
                enough.set_result(None)

        for number, call in enumerate(poll.calls):
            if call is not None:
                self._ask(number, call, poll, functools.partial(tell, number))
        await self._wait_for(enough, poll)

    async def _wait_for(self, enough: asyncio.Future[None], poll: Poll) -> None:
        """Wait until the future ``enough`` is done, because the poll is decided. If its time is over, cancel the future."""
        start = self.loop.time()
        timer: asyncio.TimerHandle

        def over(turns: int = 0) -> None:
            nonlocal timer
            if poll.begins and self.loop.time() < start + CONNECT_WITHIN_S and any(stream.begins for stream in self._streams):
                timer = self.loop.call_later(poll.within, over)
            elif poll.within and turns < TURNS:
                timer = self.loop.call_later(0.0, over, turns + 1)
            else:
                enough.cancel()

        timer = self.loop.call_later(poll.within, over)
        try:
            await asyncio.wait([enough])
        finally:
            if not self.loop.is_closed():  # a closed loop would raise an error of its own, which would hide the present one
                enough.cancel()
                timer.cancel()

    def _ask(self, number: int, call: Call, poll: Poll, then: Callable[[Answer[Any] | WireError], None]) -> None:
        stream, endpoint, sent = self._streams[number], self.endpoint[number], self.process.clock()
        silent = stream.silent_for()
        if poll.begins and silent > poll.within:
            then(NotSent(f"no answer for {silent:.1f} s", endpoint.address))
            return

        def on_reply(future: asyncio.Future[Any]) -> None:
            if future.cancelled():  # cancelled together with its loop
                then(NotSent("the event loop has ended", endpoint.address))
                return
            error = future.exception()
            if isinstance(error, WireError):
                then(error)
                return
            reply, at = future.result() if isinstance(future, asyncio.Task) else (future.result(), sent)
            if is_noscript(reply):
                later(pack(call, whole=True))
                return
            try:
                then(Answer(value(call, reply, endpoint), at, self.process.clock()))
            except WireError as refused:
                then(refused)

        def later(packed: bytes) -> None:
            # The stream refers to the task until it is done.
            task = self.loop.create_task(stream.exchange(packed, call.timeout))
            task.add_done_callback(on_reply)

        new = isinstance(call, RunScript) and call.script.sha not in stream.told
        if isinstance(call, RunScript):
            stream.told.add(call.script.sha)
        packed = pack(call, whole=new)
        future = stream.send(packed, call.timeout)
        if future is not None:
            future.add_done_callback(on_reply)
        else:
            later(packed)
