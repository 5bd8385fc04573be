"""The connections of all threads: some for one thread at a time, and one that all share when these do not suffice.

Up to some sixteen threads are quickest on a connection each. More of them share one: their requests queue up, one thread sends
them in batches and reads for everybody, until it has its own reply and hands that on. That saves most of the system calls, and
with them many of the fights for the interpreter's lock; and the server sees eighteen connections, not hundreds.

Signal handlers run in the main thread, wherever it happens to be; they may take any time, raise, and use locks themselves. So
the main thread has a connection of its own, and nobody else ever waits for it.
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
"""Instead of a reply: the connection was lost, and the request never sent."""

_ELSEWHERE = object()
"""Instead of a reply: this very thread is in the middle of a request (a finaliser asks, for example)."""

ROUNDS = 2
"""How often a thread that has its own reply sends and reads once more for those who are waiting already: to wake one of them
for that costs more than it takes."""

READ_WITHIN_S = 0.1
"""Seconds that whoever reads for all has for what has come, when somebody's time is over."""

OWN = 16
"""So many threads at a time have a connection to themselves. When these do not suffice everybody shares, until nobody waits: a
mixture has the costs of both. Measured in locks per second, against a connection for each thread: 64 threads 1.5 times as many,
32 threads 1.4. If all always shared, sixteen threads would get from two thirds to 1.2 times as many, depending on how busy the
machine is otherwise, and two to four threads always less."""


class _Request:
    """The reply that one thread waits for."""

    __slots__ = ("answered", "bell", "error", "left", "packed", "reply", "sent", "timeout")

    def __init__(self, packed: bytes, timeout: float, bell: Any) -> None:
        self.packed = packed
        self.timeout = timeout
        self.sent = 0.0
        self.reply: Any = None
        self.error: WireError | None = None
        self.answered = False
        self.left = False
        """Its thread waits no more."""
        self.bell = bell
        self.bell.acquire()

    def settle(self, reply: Any, error: WireError | None = None) -> None:
        if not self.answered:
            self.reply, self.error, self.answered = reply, error, True

    def wake(self) -> None:
        """Have its thread look what there is: its answer, or the turn to be taken."""
        try:
            self.bell.release()
        except RuntimeError:
            pass  # woken before, and not awake yet


class _SharedConnection:
    """A connection and those who use it. When the connection is lost the lane is over, and the next one is new.

    An exception may be raised in any thread at any point (`PyThreadState_SetAsyncExc`). The order of the steps is such that
    no reply ever meets the wrong request. Should a turn not be handed on, the others' own time limits end the lane.
    """

    def __init__(self, endpoint: Endpoint, system: System) -> None:
        self.endpoint = endpoint
        self._system = system
        self._clock = system.clock
        self.connection: Connection | None = None
        self.over = False
        # The thread that has the turn may send, read, and take requests from these; any thread may add to the queue.
        # Re-entrant: a thread that was interrupted can then find out, without a gap, whether it has it.
        self._turn = threading.RLock()
        self.busy = False
        self._queue: deque[_Request] = deque()
        self._in_flight: deque[_Request] = deque()
        self._answered: deque[_Request] = deque()
        self._waiting: dict[int, _Request] = {}
        self._made = self._clock()

    def exchange(self, packed: bytes, timeout: float) -> Any:
        """Send a request and return its reply, `_AGAIN` or `_ELSEWHERE`. Raises NotSent, Unknown or Refused."""
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
        """Wait until somebody else has read our reply, or the turn is ours."""
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
                    # Once more: where all were held up, what has come is no silence, and whoever reads is just getting to it.
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
        """Send and read for everybody until our own request is answered, and a little longer. The turn is ours, and is free
        afterwards."""
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
        self._wake_next()  # if it was our turn to be woken
        try:
            for _ in range(ROUNDS):
                if not (self._queue or self._in_flight):
                    break
                self._send_and_receive(connection, (self._in_flight or self._queue)[0])
        except WireError as error:
            self._end(error)  # theirs; we have our reply
        self._pass_on()

    def _send_and_receive(self, connection: Connection, first: _Request) -> None:
        """One round, in which ``first`` may be answered. Those who are, are woken one by one, each by the one before: if they
        all woke now, they would only fight for the interpreter."""
        in_flight = self._in_flight
        if self._queue:
            connection.send(self._batch())
        connection.set_timeout(max(first.sent + first.timeout - self._clock(), 0.001))
        for reply in connection.receive():
            if not in_flight:
                raise Unknown(f"{self.endpoint.address}: an answer to nothing", self.endpoint.address)
            request = in_flight[0]
            request.settle(reply)
            self._answered.append(request)
            in_flight.popleft()
        self._wake_next()

    def _batch(self) -> bytes:
        """Take the requests out of the queue: they are in flight from now on."""
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
        """Wake one of those who are answered; it wakes the next."""
        answered = self._answered
        while answered:
            try:
                request = answered.popleft()
            except IndexError:
                return  # another thread took it
            if not request.left:
                request.wake()
                return

    def _pass_on(self) -> None:
        """Our turn is over. If somebody waits, wake the last in line to take it: it will be of use for the longest time."""
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
        """After an exception: the turn, if it is ours, is free afterwards; in the middle of something, the lane is over."""
        if self._turn.acquire(False):  # ours, or nobody's
            if self.busy or self.over:
                self._end(error)
            try:
                while True:
                    self._turn.release()
            except RuntimeError:
                pass  # so it was released as often as it was taken
        self._wake_all()

    def _end(self, error: BaseException) -> None:
        """Close the connection and answer everybody. The turn is ours."""
        self.over = True
        self.busy = False
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
        address = self.endpoint.address
        why = str(error) if isinstance(error, WireError) else f"{address}: the thread that read for all was interrupted"
        while self._in_flight:
            self._in_flight[0].settle(None, Unknown(why, address))
            self._in_flight.popleft()
        while self._queue:
            # Without a connection: they would not get one either. Otherwise they go over the next.
            own = type(error)(why, address) if isinstance(error, NotSent | Refused) else None
            self._queue[0].settle(_AGAIN, own)
            self._queue.popleft()
        self._wake_all()

    def _wake_all(self) -> None:
        """A thread that should have been woken and was not, is now; the others look, and go on waiting."""
        for request in [*self._waiting.values()]:
            request.wake()

    def _too_late(self) -> Unknown:
        """Our time limit has passed: the connection is not to be trusted any more. (Nobody can say whether our request is just
        being sent.)"""
        connection = self.connection
        if connection is not None:
            self.over = True
            connection.hang_up()  # whoever reads hears of it
        elif self._clock() > self._made + CONNECT_TIMEOUT:  # while it is opened there is no hurry
            self.over = True
        return Unknown(f"{self.endpoint.address}: no answer in time", self.endpoint.address, silent=True)

    def close(self) -> None:
        """Close the connection, if it is idle; otherwise it closes with its last user."""
        if self._turn.acquire(False):
            if not (self.busy or self._queue or self._in_flight):
                self._end(NotSent(f"{self.endpoint.address}: closed", self.endpoint.address))
            self._turn.release()


def _outcome(request: _Request) -> Any:
    if request.error is not None:
        raise request.error
    return request.reply


class Pool:
    """The connections of a process to one server: of the main thread, of some others at a time, and the shared one."""

    def __init__(self, endpoint: Endpoint, system: System = SYSTEM) -> None:
        self.endpoint = endpoint
        self._system = system
        self._main = threading.main_thread().ident
        # Without limit: a signal handler may ask while the thread is asking, and so may a finaliser, in any thread.
        self._of_main = ConnectionPool(endpoint, system=system)
        self._of_few = ConnectionPool(endpoint, OWN, system)
        self._lane = _SharedConnection(endpoint, system)
        self._mutex = threading.RLock()  # a signal handler may use locks, too
        self.dedicated = Dedicated(endpoint)

    def exchange(self, packed: bytes, timeout: float) -> Any:
        """Send one command: its reply; an error reply is returned, not raised. Raises NotSent, Unknown or Refused."""
        try:
            if get_ident() == self._main:
                return self._of_main.exchange(packed, timeout)
            if not self._lane.busy:
                reply = self._of_few.exchange(packed, timeout)
                if reply is not FULL:
                    return reply
            return self._share(packed, timeout)
        except WireError:
            self._close_idle()  # they are most likely dead too, and each would cost a round of asking again
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
        self._of_main.clear()
        self._of_few.clear()

    def clear(self) -> None:
        """Close what is idle. A connection in use is closed after its use."""
        lane = self._lane
        self._replace(lane)
        lane.close()
        self._close_idle()
        self.dedicated.clear()

    def sockets(self) -> list[socket.socket]:
        """For a forked child to let go of."""
        connection = self._lane.connection
        shared = [connection.sock] if connection is not None else []
        return self._of_main.sockets() + self._of_few.sockets() + self.dedicated.sockets() + shared
