"""Send requests by calling `execute_command` of the user's client, if holdfast cannot open that client's connections itself.

Each request uses the client's connection pool, retries and time limits. A retry does no harm, because every script may safely
run twice. The outcome of a failed request is unknown, because one of the tries may have reached the server.

A sync client blocks its caller, so the keeper uses it in helper threads. An asyncio client can be used only in its event loop,
so the keeper's renewals run in that loop, and stop if the loop is blocked.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import queue
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import hiredis

from holdfast._clock import clock
from holdfast._core.lock.ports import Then
from holdfast._core.requests import Call, Command, Unknown, WireError
from holdfast._net.aio_connection import AioConnection
from holdfast._net.endpoint import Endpoint
from holdfast._net.protocol import is_noscript, pack, value
from holdfast._net.system import SYSTEM, System

POLL_EVERY_S = 0.2
"""A thread that waits for notifications checks, after this many seconds, whether it must subscribe to another channel."""

_CODES = {
    "NoScriptError": "NOSCRIPT",
    "ReadOnlyError": "READONLY",
    "BusyLoadingError": "LOADING",
    "OutOfMemoryError": "OOM",
    "NoPermissionError": "NOPERM",
    "AuthenticationError": "WRONGPASS",
    "MasterDownError": "MASTERDOWN",
    "ClusterDownError": "CLUSTERDOWN",
    "TryAgainError": "TRYAGAIN",
    "ResponseError": "ERR",
}
"""First word of the server's error reply for each exception class of redis-py, which removes this word from some messages."""


def _parts(packed: bytes) -> list[bytes]:
    reader = hiredis.Reader()
    reader.feed(packed)
    parts: list[bytes] = reader.gets()
    return parts


def _error_reply(error: Exception, address: str) -> hiredis.ReplyError:
    """Convert an exception of the client back to the server's error reply.

    Raises Unknown if the exception means that no reply came, and ``error`` itself if it is of another kind.
    """
    kinds = {cls.__name__ for cls in type(error).__mro__}
    for kind, code in _CODES.items():
        if kind in kinds:
            text = str(error)
            return hiredis.ReplyError(text if text.split(" ", 1)[0].isupper() else f"{code} {text}")
    if kinds & {"ConnectionError", "TimeoutError", "OSError"}:
        raise Unknown(f"{address}: {error}", address) from error
    raise error


class ClientCalls:
    """A replacement for `Pool`. It sends every request by calling the user's client."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def exchange(self, packed: bytes, timeout: float) -> Any:  # noqa: ARG002 - the client's own time limits apply
        try:
            return self.endpoint.client.execute_command(*_parts(packed), NEVER_DECODE=True)
        except Exception as error:  # noqa: BLE001 - every client has its own exceptions
            return _error_reply(error, self.endpoint.address)

    def clear(self) -> None:
        """Do nothing, because the connections belong to the client."""

    def sockets(self) -> list[socket.socket]:
        return []


class AioClientCalls(AioConnection):
    """A replacement for `AioConnection`. It calls the user's client for every request."""

    def __init__(self, endpoint: Endpoint, system: System = SYSTEM) -> None:
        super().__init__(endpoint, system)
        self._loop = _loops[endpoint] = asyncio.get_running_loop()
        self._under_way: set[asyncio.Future[Any]] = set()

    def send(self, packed: bytes, timeout: float) -> None:
        """Return None, so that the caller uses `exchange`, because a client's call must be awaited."""

    def silent_for(self) -> float:
        """Return 0: the client may wait for a connection of its own pool, which says nothing about the server."""
        return 0.0

    async def exchange(self, packed: bytes, timeout: float) -> tuple[Any, float]:
        sent = self._clock()
        # The call is a task of its own, which is never cancelled, because a cancelled client closes its connection, and
        # redis-py 8 sometimes swallows the cancellation.
        task = asyncio.ensure_future(self.endpoint.client.execute_command(*_parts(packed), NEVER_DECODE=True))
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(task), sent
        except Exception as error:  # noqa: BLE001 - every client has its own exceptions
            return _error_reply(error, self.endpoint.address), sent

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # otherwise the loop would warn of an exception that was never retrieved

    async def close(self) -> None:
        """Cancel this loop's tasks that wait for notifications, and close the subscriptions, because the loop ends.

        The client closes its other connections itself.
        """
        if _loops.get(self.endpoint) is self._loop:
            del _loops[self.endpoint]
        # They are removed first. Otherwise the thread that waits for notifications would drop them unclosed.
        subscriptions = _subscriptions.pop(self._loop, ())
        if listening := _listening.pop(self._loop, None):
            for task in listening:
                task.cancel()  # a task that is just reconnecting would leave its connection open
            await asyncio.wait(listening, timeout=POLL_EVERY_S)
        for pubsub in subscriptions:
            try:
                await pubsub.aclose()
            except Exception:  # noqa: BLE001, S110 - the subscription has ended in any case
                pass


_loops: dict[Endpoint, asyncio.AbstractEventLoop] = {}
"""Event loop in which the asyncio client of each endpoint was used last."""

_subscriptions: dict[asyncio.AbstractEventLoop, list[Any]] = {}

_listening: dict[asyncio.AbstractEventLoop, set[asyncio.Task[Any]]] = {}
"""For each event loop, its tasks that wait for notifications on behalf of the keeper."""


async def _listens(result: Coroutine[Any, Any, Any], endpoint: Endpoint) -> Any:
    """Await a call that waits for notifications, in the client's event loop, until `AioClientCalls.close` cancels it."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if _loops.get(endpoint) is not loop or task is None:
        result.close()
        raise Unknown(f"{endpoint.address}: the client's event loop has ended", endpoint.address)
    tasks = _listening.setdefault(loop, set())
    tasks.add(task)
    try:
        return await result
    finally:
        tasks.discard(task)
        if not tasks and _listening.get(loop) is tasks:
            del _listening[loop]


class ClientLineKeeper(Protocol):
    """The methods of the keeper that a `ClientLine` calls."""

    def call(self, what: Callable[[], None]) -> None:
        """Call ``what`` soon, in the keeper thread."""

    def safely(self, action: Callable[..., object], *args: Any) -> bool:
        """Call ``action``. If it raises an exception, log it and return False, so that other leases are not affected."""


class _Job:
    __slots__ = ("call", "deadline", "done", "sent", "then")

    def __init__(self, call: Call, then: Then) -> None:
        self.call = call
        self.then = then
        self.sent = clock()
        self.deadline = self.sent + call.timeout
        self.done = False


class ClientLine:
    """A connection of the keeper over the user's client. A helper thread makes the calls one by one."""

    sock: socket.socket | None = None
    begins = False

    def __init__(
        self,
        keeper: ClientLineKeeper,
        endpoint: Endpoint,
        on_push: Callable[[list[Any]], None] | None = None,
        on_closed: Callable[[], None] | None = None,
    ) -> None:
        self._keeper = keeper
        self._endpoint = endpoint
        self._on_push = on_push
        self._on_closed = on_closed
        self._pending: deque[_Job] = deque()
        self._todo: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._reset = self._closed = self._listening = False

    # Methods for the keeper's thread

    def call(self, call: Call, then: Then, _packed: bytes | None = None) -> None:
        """Queue a call. The keeper calls ``then`` exactly once, with the reply as its script's parser returns it, or a
        WireError."""
        job = _Job(call, then)
        self._pending.append(job)
        self._todo.put(job)
        if self._thread is None:
            run = self._answer if self._on_push is None else self._listen
            self._thread = threading.Thread(target=run, name="holdfast-client", daemon=True)
            self._thread.start()

    def owes_since(self) -> float:
        """Return the monotonic time, in seconds, of the oldest unanswered call; infinity if all calls are answered."""
        return min((job.sent for job in [*self._pending] if not job.done), default=float("inf"))

    @property
    def busy(self) -> bool:
        return any(not job.done for job in [*self._pending])

    def _settle(self, job: _Job, answer: Any) -> None:
        if not job.done:
            job.done = True
            self._keeper.safely(job.then, answer, job.sent)
        while self._pending and self._pending[0].done:
            self._pending.popleft()

    def has_unread(self) -> bool:
        """Return False, because unread bytes are in the buffer of the client, which does not show them."""
        return False

    def reclaim(self) -> None:
        """Do nothing, because a socket of this connection is never lent to a waiter."""

    def overdue(self, now: float) -> None:
        """Fail each call whose deadline has passed, even if the client still waits for the reply."""
        for job in [job for job in self._pending if now >= job.deadline]:
            self._settle(job, self._unknown("no answer in time"))

    def next_at(self) -> float:
        return min((job.deadline for job in self._pending if not job.done), default=float("inf"))

    def fail(self, why: str) -> None:
        self._reset = True
        for job in list(self._pending):
            self._settle(job, self._unknown(why))
        if self._on_closed is not None:
            self._on_closed()

    def close(self) -> None:
        self._closed = True
        self._todo.put(None)
        for job in list(self._pending):
            self._settle(job, self._unknown("closed"))

    def _unknown(self, why: str) -> Unknown:
        return Unknown(f"{self._endpoint.address}: {why}", self._endpoint.address)

    # Methods for the client's thread

    def _answer(self) -> None:
        while not self._closed:
            job = self._todo.get()
            if job is not None and not job.done:
                job.sent = clock()
                self._done(job, self._ask(job.call))

    def _ask(self, call: Call) -> Any:
        try:
            reply = self._exchange(pack(call))
            if is_noscript(reply):
                reply = self._exchange(pack(call, whole=True))
            return value(call, reply, self._endpoint)
        except WireError as error:
            return error
        except Exception as error:  # noqa: BLE001 - the keeper must be notified, whatever the client raises
            return self._unknown(repr(error))

    def _exchange(self, packed: bytes) -> Any:
        try:
            return self._result(self._endpoint.client.execute_command(*_parts(packed), NEVER_DECODE=True))
        except WireError:
            raise
        except Exception as error:  # noqa: BLE001 - every client has its own exceptions
            return _error_reply(error, self._endpoint.address)

    def _result(self, result: Any, *, listens: bool = False) -> Any:
        """Return the result of a call of the client. If it is a coroutine, await it in the event loop of the asyncio client.

        ``listens``: True if the call waits for notifications, so that `AioClientCalls.close` may cancel it.
        """
        if not inspect.iscoroutine(result):
            return result
        loop = _loops.get(self._endpoint)
        if loop is None or loop.is_closed():
            result.close()
            raise self._unknown("the client's event loop has ended")
        future = asyncio.run_coroutine_threadsafe(_listens(result, self._endpoint) if listens else result, loop)
        while True:
            try:
                return future.result(POLL_EVERY_S)
            except concurrent.futures.TimeoutError:
                if future.done():
                    raise
                if self._closed or _loops.get(self._endpoint) is not loop:
                    future.cancel()
                    raise self._unknown("the client's event loop has ended") from None

    def _subscription(self) -> Any:
        pubsub = self._endpoint.client.pubsub()
        loop = _loops.get(self._endpoint)
        if loop is not None:
            _subscriptions.setdefault(loop, []).append(pubsub)
        return pubsub

    def _unsubscribe(self, pubsub: Any) -> None:
        for open_ones in [*_subscriptions.values()]:
            if pubsub in open_ones:
                open_ones.remove(pubsub)
        try:
            self._result(pubsub.aclose() if hasattr(pubsub, "aclose") else pubsub.close())
        except Exception:  # noqa: BLE001, S110 - the subscription is lost anyway
            pass

    def _done(self, job: _Job, answer: Any) -> None:
        self._keeper.call(lambda: self._settle(job, answer))

    def _listen(self) -> None:
        """Pass published messages to the keeper until the connection is closed. Subscribe to the channels that the keeper
        names."""
        pubsub: Any = None
        subscribing: _Job | None = None
        while not self._closed:
            try:
                job = self._todo.get(block=pubsub is None)
            except queue.Empty:
                job = None
            try:
                if self._reset and pubsub is not None:
                    pubsub, old = None, pubsub
                    self._listening = False
                    self._unsubscribe(old)
                self._reset = False
                if job is not None and not job.done:
                    assert isinstance(job.call, Command)
                    pubsub = pubsub or self._subscription()
                    if job.call.args[0] == "SUBSCRIBE":
                        subscribing = job
                        self._result(pubsub.subscribe(*job.call.args[1:]), listens=True)
                    else:
                        self._result(pubsub.ping(), listens=True)
                        self._done(job, b"PONG")
                if pubsub is not None:
                    subscribing = self._heard(self._result(pubsub.get_message(timeout=POLL_EVERY_S), listens=True), subscribing)
            except Exception as error:  # noqa: BLE001 - every client has its own exceptions
                self._lose(pubsub, error, subscribing or job)
                pubsub = subscribing = None
        if pubsub is not None:
            self._unsubscribe(pubsub)

    def _heard(self, message: dict[str, Any] | None, subscribing: _Job | None) -> _Job | None:
        if message is None:
            return subscribing
        if message["type"] == "message":
            text = message["data"]
            reply = [b"message", b"", text.encode() if isinstance(text, str) else text]
            self._keeper.call(lambda: self._on_push(reply) if self._on_push is not None else None)
        elif message["type"] == "subscribe" and subscribing is not None:
            self._listening = True
            self._done(subscribing, None)
            return None
        elif message["type"] == "subscribe":
            self._deaf()  # the client has reconnected by itself, so messages published meanwhile are lost
        return subscribing

    def _deaf(self) -> None:
        if self._listening and self._on_closed is not None:
            self._keeper.call(self._on_closed)

    def _lose(self, pubsub: Any, error: Exception, job: _Job | None) -> None:
        if job is not None:
            self._done(job, self._unknown(repr(error)))
        self._deaf()
        self._listening = False
        if pubsub is not None:
            self._unsubscribe(pubsub)
