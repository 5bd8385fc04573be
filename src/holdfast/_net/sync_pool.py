"""Connections of all threads to a server: up to sixteen for one thread each, and one that all share if more threads need one.

If at most sixteen threads send requests at the same time, each has a connection of its own. If more threads do so, all share
one connection. At any time, one of these threads sends the queued requests of all threads in batches, and reads the replies.
When that thread has its own reply, another thread takes over. Sharing saves system calls and contention for the interpreter
lock. The threads of a process thus have at most eighteen connections to the server.

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
"""Returned instead of a reply if this thread is already sending another request. A finaliser or signal handler has interrupted
that request, and makes this one."""

ROUNDS = 2
"""Number of rounds in which a thread still sends and reads for other threads, after it has its own reply. This is cheaper than
waking another thread."""

READ_WITHIN_S = 0.1
"""Seconds that a thread still waits after its time limit has passed. In this time, the thread that reads for all can read a
reply that has arrived."""

OWN = 16
"""Maximum number of threads that each use a connection of their own at the same time.

If more threads send requests, all of them share one connection until no request is waiting. In measurements, threads that
shared a connection acquired 1.5 times as many locks per second as threads with a connection each, if there were 64 threads, and
1.4 times as many with 32 threads. With sixteen threads the ratio was between 0.67 and 1.2, and with two to four threads it was
below 1.
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
        """Wake the thread of this request. It either has its reply now, or must send and read for all threads from now on."""
        try:
            self.bell.release()
        except RuntimeError:
            pass  # it was woken before, and has not run yet


class _SharedConnection:
    """A connection and the threads that share it. After a loss of the connection, a new object replaces this one.

    One thread at a time has the turn: it sends the requests of all threads and reads the replies. If an exception keeps that
    thread from handing the turn on, the next thread whose time limit passes closes the connection. Whenever an exception comes,
    no reply is matched with the wrong request.
    """

    def __init__(self, endpoint: Endpoint, system: System) -> None:
        self.endpoint = endpoint
        self._system = system
        self._clock = system.clock
        self.connection: Connection | None = None
        self.over = False
        # Only the thread with the turn may send, read, and remove requests from these queues; any thread may add requests. The
        # lock is re-entrant, so that an interrupted thread can find out without a gap whether it has the turn.
        self._turn = threading.RLock()
        self.busy = False
        self._queue: deque[_Request] = deque()
        self._in_flight: deque[_Request] = deque()
        self._answered: deque[_Request] = deque()
        self._waiting: dict[int, _Request] = {}
        self._made = self._clock()

    def exchange(self, packed: bytes, timeout: float) -> Any:
        """Send a request and return its reply, which may be an error reply.

        Return `_AGAIN` if the request was not sent because the connection was lost, and `_ELSEWHERE` if this thread is already
        sending a request. Raises NotSent if no connection can be opened, Unknown if no reply comes within ``timeout`` seconds,
        and Refused if the server refuses the login.
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
        """Wait until another thread has read the reply to this request, or until this thread gets the turn to send and read for
        all."""
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
                    # Wait once more. If all threads were held up, the reply may have arrived, and the reading thread is about
                    # to read it.
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
        """Send the requests of all threads and read the replies until the request ``mine`` is answered, and for a few more
        rounds.

        The calling thread has the turn (it alone uses the connection), and gives it up at the end.
        """
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
        self._wake_next()  # continue the chain of wake-ups, if this thread was the next to be woken
        try:
            for _ in range(ROUNDS):
                if not (self._queue or self._in_flight):
                    break
                self._send_and_receive(connection, (self._in_flight or self._queue)[0])
        except WireError as error:
            self._end(error)  # the error belongs to the other threads; this one has its reply
        self._pass_on()

    def _send_and_receive(self, connection: Connection, first: _Request) -> None:
        """Send all queued requests, and read the replies that arrive in one round; ``first`` is the oldest unanswered request.

        Then wake the first thread that has its reply; that thread wakes the next one, and so on. If all threads woke at the
        same time, they would contend for the interpreter lock.
        """
        in_flight = self._in_flight
        if self._queue:
            connection.send(self._batch())
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
        """Move all queued requests to the list of sent requests, and return their bytes to send."""
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
        """Wake one of the threads whose requests are answered; that thread wakes the next one."""
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
        """End this thread's turn (its right to use the connection).

        If other threads wait for replies, wake the one with the newest request. Its reply comes last, so that thread can read
        for the others the longest.
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
        """Clean up after an exception in this thread.

        If the thread has the turn (the right to use the connection), end the turn. Then also close the connection if a request
        was being sent or answered.
        """
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
        """Close the connection. Sent requests fail. Queued ones move to the next connection, or fail if none could be opened.

        The calling thread has the turn (the right to use the connection).
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
            # If no connection could be opened, the queued requests fail with the same error. Otherwise they are sent over the
            # next connection.
            own = type(error)(why, address) if isinstance(error, NotSent | Refused) else None
            self._queue[0].settle(_AGAIN, own)
            self._queue.popleft()
        self._wake_all()

    def _wake_all(self) -> None:
        """Wake every waiting thread. A thread that has no reply yet waits again."""
        for request in [*self._waiting.values()]:
            request.wake()

    def _too_late(self) -> Unknown:
        """Return the error for a request whose time limit has passed, and mark the connection as unusable, because the request
        may be half sent."""
        connection = self.connection
        if connection is not None:
            self.over = True
            connection.hang_up()  # the reading thread sees the end
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
    """The connections of a process to one server: those of the main thread, of up to OWN other threads, and the
    shared one."""

    dedicated: Dedicated

    def __init__(self, endpoint: Endpoint, system: System = SYSTEM) -> None:
        self.endpoint = endpoint
        self._system = system
        self._main = threading.main_thread().ident
        # This pool has no limit, because a signal handler or a finaliser may send a request while its thread sends one.
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
            self._close_idle()  # the other connections are most likely dead too, and each would cost another round of retries
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

    def clear(self) -> None:
        """Close the idle connections. A connection in use is closed after its use."""
        lane = self._lane
        self._replace(lane)
        lane.close()
        self._of_main.clear()
        self._of_few.clear()
        self.dedicated.clear()

    def sockets(self) -> list[socket.socket]:
        """Return the sockets of all connections, which a forked child closes."""
        connection = self._lane.connection
        shared = [connection.sock] if connection is not None else []
        return self._of_main.sockets() + self._of_few.sockets() + self.dedicated.sockets() + shared
