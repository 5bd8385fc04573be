"""A set of connections to several servers. One thread at a time uses it, sends requests to all servers, and counts the replies.

The connections never block (`_net.pipelined_connection`), so a server that does not answer delays no request to another server.
The calling thread reads and writes on the connections while it waits.
"""

from __future__ import annotations

import selectors
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast._core.quorum.votes import FirstContact, ServerClockEstimate
from holdfast._core.requests import CONNECT_WITHIN_S, Answer, Call, GiveBack, NotSent, Poll, WireError
from holdfast._net.endpoint import Endpoint
from holdfast._net.protocol import pack
from holdfast._net.system import SYSTEM, System
from holdfast._net.transport import line_to

if TYPE_CHECKING:
    from holdfast._runtime.keeper.thread import Keeper
    from holdfast._runtime.process import Process

RECENT_S = 0.02
"""If the connections were not used for this number of seconds, read from them before the next request.

The read shows which connections the servers have closed.
"""

TURN_S = 0.1
"""Seconds that a thread waits for a set of connections that another thread is using. After that, it opens another set."""

OWED_S = 0.2
"""Seconds from the end of a poll until the keeper reads the answers that were missing at that time."""


class Fanout:
    """A set of connections, one to each of several servers, used by one thread at a time.

    ``send_until_answered``: function that has the keeper send a request until it is answered.
    """

    def __init__(
        self, endpoints: tuple[Endpoint, ...], send_until_answered: Callable[[GiveBack], None], system: System = SYSTEM
    ) -> None:
        self.endpoints = endpoints
        self._send_until_answered = send_until_answered
        self._system = system
        self._clock = system.clock
        self.selector: selectors.BaseSelector = system.selector()
        self.mutex = threading.RLock()  # the connections need one
        self._turn = threading.Lock()
        """Lock held by the thread that uses the connections.

        It is a calling thread, a helper thread that has just opened a connection, or the keeper. No thread waits for this lock
        without a time limit, because a signal handler may have interrupted the thread that holds it.
        """
        self._calls: deque[Callable[[], None]] = deque()
        self._poke_out, self._poke_in = system.socketpair()
        self._poke_out.setblocking(False)
        self._poke_in.setblocking(False)
        self.selector.register(self._poke_out, selectors.EVENT_READ)
        self._links = [self._line(endpoint) for endpoint in endpoints]
        self._looked_at = float("-inf")
        self._closed = False

    def _line(self, endpoint: Endpoint) -> Any:
        return line_to(self, endpoint, whole_first=True, system=self._system)

    def call(self, what: Callable[[], None]) -> None:
        """Run ``what`` now. If another thread is using these connections, that thread runs it soon. Any thread may call
        this."""
        self._calls.append(what)
        if self._tend():
            return
        try:
            self._poke_in.send(b"x")
        except OSError:
            pass  # the pipe is full, so the thread will wake; or the pipe is closed

    def _tend(self) -> bool:
        """Run the queued calls, and return True. If another thread is using the connections, return False: that thread runs
        the calls.

        A queued call may report that a connection is open, even after the end of the poll. It then sends the requests that
        have waited for the connection, such as the withdrawal of a vote.
        """
        while self._calls:
            if not self.take():
                return False
            try:
                self._do_calls()
            finally:
                self._turn.release()
        return True

    def safely(self, action: Callable[..., object], *args: Any) -> bool:
        action(*args)
        return True

    def moved(self, endpoint: Endpoint, where: object) -> None:
        """Do nothing after a failover: this set has no other connection to the server, which could lead to the old primary."""

    def take(self, wait: float = 0.0) -> bool:
        """Reserve these connections for the calling thread. Return False if another thread uses them for ``wait`` seconds."""
        return self._turn.acquire(timeout=wait)

    def poll(self, poll: Poll) -> None:
        """Send the requests of a poll. Count the answers until the poll is decided or its time is over.

        The calling thread has reserved the connections by `take`. If an exception interrupts the poll, the caller must close
        them.
        """
        try:
            self._poll(poll)
        finally:
            self._turn.release()
        self._tend()

    def _poll(self, poll: Poll) -> None:
        start = self._clock()
        if start > self._looked_at + RECENT_S:
            self._look(0)  # late answers may have arrived since the last poll, or a server may have closed its connection
        for link in self._links:
            link.overdue(start)
        count = _Count(poll, self._send_until_answered, self._clock)
        last: Call | None = None
        for number, call in enumerate(poll.calls):
            if call is None:
                continue
            if call is not last:
                last, packed = call, pack(call)
            link = self._links[number]
            then = count.expect(number)
            if poll.begins and link.owes_since() < start - poll.within:
                address = self.endpoints[number].address
                then(NotSent(f"no answer for {start - link.owes_since():.1f} s", address, silent=True), start)
            else:
                link.call(call, then, packed)
        until = start + poll.within
        while count.open and not count.decided:
            left = until - self._clock()
            if left <= 0 and poll.begins and until < start + CONNECT_WITHIN_S and any(link.begins for link in self._links):
                until += poll.within
            elif left <= 0:
                self._look(0)  # this thread may have been delayed, and answers may have arrived meanwhile
                break
            else:
                self._look(left)
        self._looked_at = self._clock()
        count.decided = True  # later answers are read by a later poll, and must not change the outcome of this one

    @property
    def owed(self) -> bool:
        return any(link.busy for link in self._links)

    def read_replies(self) -> bool:
        """Read the replies that have arrived, unless another thread is using the connections. Return True if replies are
        still missing."""
        if self.take():
            try:
                self._see()
            finally:
                self._turn.release()
            self._tend()
        return self.owed

    def _see(self) -> None:
        if not self._closed:
            self._look(0)
            for link in self._links:
                link.overdue(self._clock())

    def _look(self, timeout: float) -> None:
        for key, events in self.selector.select(timeout):
            if key.data is None:
                self._poked()
                continue
            if events & selectors.EVENT_WRITE:
                key.data.on_writable()
            if events & selectors.EVENT_READ:
                key.data.on_readable()

    def _poked(self) -> None:
        try:
            while self._poke_out.recv(4096):
                pass
        except BlockingIOError:
            pass
        self._do_calls()

    def _do_calls(self) -> None:
        while self._calls:
            self._calls.popleft()()

    def close(self) -> None:
        """Close all connections. Requests that were already sent may still reach the servers."""
        ours = self._turn.acquire(timeout=1.0)  # a helper thread may hold the lock, or an interrupt may have left it locked
        try:
            self._closed = True
            for link in self._links:
                link.close()
            self.selector.close()
            self._poke_out.close()
            self._poke_in.close()
        finally:
            if ours:
                self._turn.release()
        self._tend()  # a connection may just have been opened; this closes it again

    def sockets(self) -> list[socket.socket]:
        return [link.sock for link in self._links if link.sock is not None] + [self._poke_out, self._poke_in]


class _Count:
    """The reader of the replies to one poll. It passes each reply to `Poll.counter`, until the counter has decided."""

    def __init__(self, poll: Poll, send_until_answered: Callable[[GiveBack], None], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tally = poll.counter
        self._otherwise = poll.otherwise
        self._send_until_answered = send_until_answered
        self.open = 0
        self.decided = False

    def expect(self, number: int) -> Callable[[Any, float], None]:
        self.open += 1

        def then(reply: Any, sent: float) -> None:
            self.open -= 1
            if self._otherwise is not None and isinstance(reply, WireError):
                self._send_until_answered(self._otherwise(number))
            if not self.decided:
                answer = reply if isinstance(reply, WireError) else Answer(reply, sent, self._clock())
                self.decided = self._tally.on_answer(number, answer)

        return then


class FanoutPool:
    """A pool of fanouts to the same servers. Each thread that polls uses one of its own."""

    def __init__(self, endpoints: tuple[Endpoint, ...], process: Process) -> None:
        self._endpoints = endpoints
        self._process = process
        self.clock_estimate = ServerClockEstimate()
        self.first_contact = FirstContact(due=True)
        self._idle: list[Fanout] = []
        """The fanouts that no thread uses. `clear` replaces the list."""
        self._open: weakref.WeakSet[Fanout] = weakref.WeakSet()
        """The open fanouts, idle or in use."""
        self._looks: Keeper | None = None
        """The keeper that has been asked to read late answers; None if no keeper has."""

    def poll(self, poll: Poll) -> None:
        idle = self._idle
        fanout = self._taken(idle)
        try:
            fanout.poll(poll)
            owed = fanout.owed
        except BaseException:
            fanout.close()
            raise
        if idle is not self._idle:  # `clear` was called meanwhile
            fanout.close()
            return
        idle.append(fanout)
        if owed:
            self._look_later()

    def _taken(self, idle: list[Fanout]) -> Fanout:
        for _ in range(len(idle)):
            try:
                fanout = idle.pop()
            except IndexError:
                break
            try:
                if fanout.take(TURN_S):
                    return fanout
            except BaseException:  # a signal handler may raise while this thread waits
                fanout.close()
                raise
            idle.insert(0, fanout)
        fanout = Fanout(self._endpoints, self._send_until_answered, self._process.system)
        self._open.add(fanout)
        fanout.take()
        return fanout

    def _send_until_answered(self, give: GiveBack) -> None:
        self._process.send_until_answered(self._endpoints, give)

    def _look_later(self) -> None:
        keeper = self._process.running_keeper
        if keeper is not None and keeper is not self._looks:
            with keeper.mutex:
                keeper.later(OWED_S, lambda: self._look(keeper))
                self._looks = keeper

    def _look(self, keeper: Keeper) -> None:
        """Read late replies, in the keeper.

        Otherwise a failed request, such as the withdrawal of a vote, would be sent again only after a thread has used these
        connections.
        """
        with keeper.mutex:
            self._looks = None
        # A thread that uses a fanout now reads its late answers itself, and schedules this again.
        owed = [fanout.read_replies() for fanout in list(self._idle)]
        if any(owed):
            self._look_later()

    def clear(self) -> None:
        """Close all fanouts: the idle ones now, and each one in use after its use."""
        idle, self._idle = self._idle, []
        while idle:
            idle.pop().close()

    def sockets(self) -> list[socket.socket]:
        return [sock for fanout in [*self._open] for sock in fanout.sockets()]


def fanouts_of(process: Process, endpoints: tuple[Endpoint, ...]) -> FanoutPool:
    return process.own(endpoints, lambda: FanoutPool(endpoints, process))
