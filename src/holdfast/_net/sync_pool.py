"""Connections of all threads to a server: up to sixteen for one thread each, and one that all share if more threads need one.

One thread at a time uses the shared connection for all: it sends their queued requests in batches, and reads the replies. When
that thread has its own reply, another thread takes over. Sharing saves system calls and contention for the interpreter lock.

The main thread always has a connection of its own. A signal handler may interrupt the main thread for any length of time, and
no other thread must wait for that.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from threading import get_ident
from typing import Any

from holdfast._core.requests import NotSent, Refused, Unknown, WireError
from holdfast._net.endpoint import Endpoint
from holdfast._net.sync_connection import CONNECT_TIMEOUT, FULL, Connection, ConnectionPool
from holdfast._net.system import SYSTEM, System
from holdfast._net.wait_connection import Dedicated

_AGAIN = object()
"""Returned instead of a reply if the connection was lost before the request was sent. The caller may then send it again."""

_ELSEWHERE = object()
"""Returned instead of a reply if this thread is already sending a request on the shared connection.

The new request then comes from a signal handler or a finaliser, which has interrupted the sending.
"""

ROUNDS = 2
"""A thread that has its own reply still sends and reads for others in this many rounds. This is cheaper than waking
another thread."""

READ_WITHIN_S = 0.1
"""Seconds that a thread still waits after its time limit, because the thread that reads may be about to read its reply."""

OWN = 16
"""Maximum number of threads that each use a connection of their own at the same time.

If more threads send requests, all of them share one connection until no request is waiting. In measurements, sharing made 32 or
more threads 1.4 to 1.5 times as fast, made little difference for 16, and slowed down two to four.
"""


class _Request:
    """The request of one thread on the shared connection, and its reply."""

    __slots__ = ("answered", "bell", "error", "left", "packed", "reply", "sent", "timeout")

    def __init__(self, packed: bytes, timeout: float, bell: Any) -> None:
        self.packed = packed
        self.timeout = timeout
        self.sent = float("-inf")
        self.reply: Any = None
        self.error: WireError | None = None
        self.answered = False
        self.left = False
        """True if the thread of this request no longer waits."""
        self.bell = bell
        self.bell.acquire()

    def settle(self, reply: Any, error: WireError | None = None) -> None:
        if not self.answered:
            self.reply, self.error, self.answered = reply, error, True

    def wake(self) -> None:
        """Wake the thread of this request. It has its reply, or it must now send and read for all threads."""
        try:
            self.bell.release()
        except RuntimeError:
            pass  # it was woken before, and has not run yet


class _SharedConnection:
    """A connection shared by threads. One thread at a time sends and reads for all of them. It has the turn to do so.

    After a loss of the connection, a new object replaces this one. If an exception keeps the thread from ending its turn, the
    next thread whose time limit passes closes the connection. Even then, no reply is matched with the wrong request.
    """

    def __init__(self, endpoint: Endpoint, system: System) -> None:
        self.endpoint = endpoint
        self._system = system
        self._clock = system.clock
        self.connection: Connection | None = None
        self.over = False
        # Only the thread with the turn may send, read, and remove requests from these queues; any thread may add requests. The
        # lock is re-entrant, so that a thread can find out after an interrupt whether it has the turn.
        self._turn = threading.RLock()
        self.busy = False
        self._queue: deque[_Request] = deque()
        self._in_flight: deque[_Request] = deque()
        self._answered: deque[_Request] = deque()
        self._waiting: dict[int, _Request] = {}
        self._made = self._clock()

    def exchange(self, packed: bytes, timeout: float) -> Any:
        """Send a request and return its reply, which may be an error reply.

        Return `_AGAIN` or `_ELSEWHERE` if the request was not sent. Raises NotSent if no connection can be opened, Unknown if
        no reply comes within ``timeout`` seconds, and Refused if the server refuses the login.
        """
        turn = self._turn
        try:
            if turn.acquire(False):
                if self.busy:
                    turn.release()
                    return _ELSEWHERE
                self.busy = True
                connection = self.connection
                if connection is None or self._queue or self._in_flight:
                    mine = _Request(packed, timeout, self._system.lock())
                    self._queue.append(mine)
                    self._lead(mine)
                    return _outcome(mine)
                connection.set_timeout(timeout)
                reply = connection.exchange(packed)
                self._pass_on()
                return reply
        except BaseException as error:
            self._leave(error)
            raise
        return _ELSEWHERE if get_ident() in self._waiting else self._follow(_Request(packed, timeout, self._system.lock()))

    def _follow(self, mine: _Request) -> Any:
        """Wait until another thread has read the reply, or until this thread gets the turn."""
        ident = get_ident()
        deadline = self._clock() + mine.timeout
        try:
            self._waiting[ident] = mine
            self._queue.append(mine)
            while not mine.answered:
                if self._turn.acquire(False):
                    self.busy = True
                    self._lead(mine)
                elif not mine.bell.acquire(True, max(0.0, deadline - self._clock())):
                    deadline = max(deadline, mine.sent + mine.timeout)
                    if self._clock() >= deadline and not mine.bell.acquire(True, READ_WITHIN_S) and not mine.answered:
                        raise self._too_late()
            mine.left = True
            self._wake_next()
        except BaseException as error:
            mine.left = True
            self._leave(error)
            raise
        finally:
            self._waiting.pop(ident, None)
        return _outcome(mine)

    def _lead(self, mine: _Request) -> None:
        """Send and read for all threads until ``mine`` is answered, and for a few more rounds. Then end the turn."""
        if self.over:
            self._end(Unknown(f"{self.endpoint.address}: the connection was lost", self.endpoint.address))
            self._pass_on()
            return
        connection = self.connection
        if connection is None:
            connection = self.connection = Connection(self.endpoint, mine.timeout, self._system)
        while not mine.answered:
            self._send_and_receive(connection, mine)
        mine.left = True
        self._wake_next()
        try:
            for _ in range(ROUNDS):
                if not (self._queue or self._in_flight):
                    break
                self._send_and_receive(connection, (self._in_flight or self._queue)[0])
        except WireError as error:
            self._end(error)  # the error belongs to the other threads; this one has its reply
        self._pass_on()

    def _send_and_receive(self, connection: Connection, first: _Request) -> None:
        """Send all queued requests, and read the replies that arrive. ``first``: the oldest unanswered request."""
        in_flight = self._in_flight
        if self._queue:
            packed = self._batch()
            connection.set_timeout(max(first.sent + first.timeout - self._clock(), 0.001))
            connection.send(packed)
        connection.set_timeout(max(first.sent + first.timeout - self._clock(), 0.001))
        for reply in connection.receive():
            if not in_flight:
                raise Unknown(f"{self.endpoint.address}: a reply without a request", self.endpoint.address)
            request = in_flight[0]
            request.settle(reply)
            self._answered.append(request)
            in_flight.popleft()
        self._wake_next()

    def _batch(self) -> bytes:
        queue, now, batch = self._queue, self._clock(), []
        while queue:
            request = queue[0]
            if not request.left:
                request.sent = now
                self._in_flight.append(request)
                batch.append(request.packed)
            queue.popleft()
        return b"".join(batch)

    def _wake_next(self) -> None:
        """Wake one thread that has its reply. That thread wakes the next one, because threads that all wake together would
        contend for the interpreter lock."""
        answered = self._answered
        while answered:
            try:
                request = answered.popleft()
            except IndexError:
                return  # another thread removed it
            if not request.left:
                request.wake()
                return

    def _pass_on(self) -> None:
        """End the turn. If other threads wait for replies, wake the one with the newest request.

        The reply to the newest request comes last, so its thread can read for the others the longest.
        """
        self.busy = False
        self._turn.release()
        if self._queue or self._in_flight:
            self._wake_last()

    def _wake_last(self) -> None:
        for request in reversed([*self._in_flight, *self._queue]):
            if not (request.left or request.answered):
                request.wake()
                return

    def _leave(self, error: BaseException) -> None:
        """Clean up after an exception in this thread. If it has the turn, end the turn and close the connection."""
        if self._turn.acquire(False):  # acquired if the turn was this thread's, or free
            if self.busy or self.over:
                self._end(error)
            try:
                while True:
                    self._turn.release()
            except RuntimeError:
                pass  # the lock was released as often as it was acquired
        self._wake_all()

    def _end(self, error: BaseException) -> None:
        """Close the connection. The calling thread has the turn. Requests that were sent fail.

        Queued requests are sent on the next connection. If no connection could be opened, they fail, too.
        """
        self.over = True
        self.busy = False
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
        address = self.endpoint.address
        why = (
            str(error)
            if isinstance(error, WireError)
            else f"{address}: the thread that read the replies for all threads was interrupted"
        )
        while self._in_flight:
            self._in_flight[0].settle(None, Unknown(why, address))
            self._in_flight.popleft()
        while self._queue:
            own = type(error)(why, address) if isinstance(error, NotSent | Refused) else None
            self._queue[0].settle(_AGAIN, own)
            self._queue.popleft()
        self._wake_all()

    def _wake_all(self) -> None:
        """Wake every waiting thread. A thread without a reply then waits again, or gets the turn."""
        for request in [*self._waiting.values()]:
            request.wake()

    def _too_late(self) -> Unknown:
        """Return the error for a request whose time limit has passed. The connection is not used any more."""
        connection = self.connection
        if connection is not None:
            self.over = True
            connection.hang_up()  # the thread that reads sees the end of file
        elif self._clock() > self._made + CONNECT_TIMEOUT:  # while the connection is being opened, its own limit applies
            self.over = True
        return Unknown(f"{self.endpoint.address}: no answer in time", self.endpoint.address, silent=True)

    def close(self) -> None:
        """Close the connection if it is idle; otherwise its last user closes it."""
        if self._turn.acquire(False):
            if not (self.busy or self._queue or self._in_flight):
                self._end(NotSent(f"{self.endpoint.address}: closed", self.endpoint.address))
            self._turn.release()


def _outcome(request: _Request) -> Any:
    if request.error is not None:
        raise request.error
    return request.reply


class Pool:
    """The connections of a process to one server: those of the main thread, of up to OWN other threads, and the shared one."""

    dedicated: Dedicated

    def __init__(self, endpoint: Endpoint, system: System = SYSTEM) -> None:
        self.endpoint = endpoint
        self._system = system
        self._main = threading.main_thread().ident
        # No limit, because a signal handler or a finaliser may send a request while it interrupts another one.
        self._of_main = ConnectionPool(endpoint, system=system)
        self._of_few = ConnectionPool(endpoint, OWN, system)
        self._lane = _SharedConnection(endpoint, system)
        self._mutex = threading.RLock()  # re-entrant, because a signal handler may use locks, too
        self.dedicated = Dedicated(endpoint, system)

    def exchange(self, packed: bytes, timeout: float) -> Any:
        """Send one command and return its reply, which may be an error reply.

        Raises NotSent if no connection can be opened, Unknown if no reply comes within ``timeout`` seconds, and Refused if the
        server refuses the login.
        """
        try:
            if get_ident() == self._main:
                return self._of_main.exchange(packed, timeout)
            if not self._lane.busy:
                reply = self._of_few.exchange(packed, timeout)
                if reply is not FULL:
                    return reply
            return self._share(packed, timeout)
        except WireError:
            self._close_idle()  # the other connections are most likely dead too, and each would cost another retry
            raise

    def _share(self, packed: bytes, timeout: float) -> Any:
        while True:
            lane = self._lane
            reply = _AGAIN if lane.over else lane.exchange(packed, timeout)
            if reply is _ELSEWHERE:
                return self._of_main.exchange(packed, timeout)
            if reply is not _AGAIN:
                return reply
            self._replace(lane)

    def _replace(self, lane: _SharedConnection) -> None:
        with self._mutex:
            if self._lane is lane:
                self._lane = _SharedConnection(self.endpoint, self._system)

    def _close_idle(self) -> None:
        self._lane.close()
        self._of_main.close_idle()
        self._of_few.close_idle()

    def share(self) -> None:
        """Have all threads except the main thread share one connection until `clear` is called, however few they are."""
        self._of_few.use_up()

    def clear(self) -> None:
        """Close the idle connections. A connection in use is closed after its use."""
        lane = self._lane
        self._replace(lane)
        lane.close()
        self._of_main.clear()
        self._of_few.clear()
        self.dedicated.clear()

    def sockets(self) -> list[socket.socket]:
        connection = self._lane.connection
        shared = [connection.sock] if connection is not None else []
        return self._of_main.sockets() + self._of_few.sockets() + self.dedicated.sockets() + shared
