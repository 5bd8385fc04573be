"""Connections to several servers at once, used by one thread at a time: all are asked together, and nobody waits for the slow.

The connections are as those of the keeper (`_net.pipelined_connection`): pipelined, opened by threads of their own, never
blocking. Here it is the calling thread itself that looks after them, while it waits for an answer.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast._clock import clock
from holdfast._core.quorum.votes import ServerClockEstimate
from holdfast._core.requests import CONNECT_WITHIN_S, Answer, Call, GiveBack, NotSent, Poll, WireError
from holdfast._net.endpoint import Endpoint
from holdfast._net.protocol import pack
from holdfast._net.transport import line_to

if TYPE_CHECKING:
    from holdfast._runtime.keeper.thread import Keeper
    from holdfast._runtime.process import Process

RECENT_S = 0.02
"""Seconds after which a look is worth its while before anything is asked: a system call more."""

TURN_S = 0.1
"""Seconds for which a fanout is waited for that somebody else looks after, which takes much less. Then another one is
opened."""

OWED_S = 0.2
"""Seconds after which the keeper looks what has become of what nobody waits for any more."""


class Fanout:
    """One connection to each of several servers. ``send_until_answered``: has the keeper send something."""

    def __init__(self, endpoints: tuple[Endpoint, ...], send_until_answered: Callable[[GiveBack], None]) -> None:
        self.endpoints = endpoints
        self._send_until_answered = send_until_answered
        self.selector = selectors.DefaultSelector()
        self.mutex = threading.RLock()  # of no use here, but the links expect one
        self._turn = threading.Lock()
        """Held by who looks after the connections: who asks, a helper that has just opened one, or the keeper. Nobody waits for
        it for long: a signal handler or a finaliser may have interrupted the very thread that holds it."""
        self._calls: deque[Callable[[], None]] = deque()
        self._poke_out, self._poke_in = socket.socketpair()
        self._poke_out.setblocking(False)
        self._poke_in.setblocking(False)
        self.selector.register(self._poke_out, selectors.EVENT_READ)
        self._links = [self._line(endpoint) for endpoint in endpoints]
        self._looked_at = 0.0
        self._closed = False

    def _line(self, endpoint: Endpoint) -> Any:
        return line_to(self, endpoint, whole_first=True)

    def call(self, what: Callable[[], None]) -> None:
        """Do this, or have the thread that uses the fanout just now do it soon; any thread may."""
        self._calls.append(what)
        if self._tend():
            return
        try:
            self._poke_in.send(b"x")
        except OSError:
            pass  # full: it will look; or closed

    def _tend(self) -> bool:
        """Do the work that is due; False if another thread does it, which looks once more at its end. A connection may be
        open only after everything is decided: what waits for that, a vote or what takes one back, is sent nevertheless."""
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
        """Each connection is on its own."""

    def take(self, wait: float = 0.0) -> bool:
        """Begin to look after the connections. False: somebody does, also after so many seconds."""
        return self._turn.acquire(timeout=wait)

    def poll(self, poll: Poll) -> None:
        """Do what is asked, for who has taken it. Interrupted, the fanout is not to be used any more."""
        try:
            self._poll(poll)
        finally:
            self._turn.release()
        self._tend()

    def _poll(self, poll: Poll) -> None:
        start = clock()
        if start > self._looked_at + RECENT_S:
            self._look(0)  # one may have answered long ago, when nobody waited for that any more; or closed the connection
        for link in self._links:
            link.overdue(start)
        count = _Count(poll, self._send_until_answered)
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
                then(NotSent(f"has not answered for {start - link.owes_since():.1f} s", address, silent=True), start)
            else:
                link.call(call, then, packed)
        until = start + poll.within
        while count.open and not count.decided:
            left = until - clock()
            if left <= 0 and poll.begins and until < start + CONNECT_WITHIN_S and any(link.begins for link in self._links):
                until += poll.within
            elif left <= 0:
                self._look(0)  # this thread may have been held up meanwhile, and what has come is no silence
                break
            else:
                self._look(left)
        self._looked_at = clock()
        count.decided = True  # what comes later is read when somebody else asks: it must not change under who has asked this

    @property
    def owed(self) -> bool:
        """A server has yet to answer."""
        return any(link.busy for link in self._links)

    def look(self) -> bool:
        """See what has come, unless somebody is there for that. True: something is still owed."""
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
                link.overdue(clock())

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
        ours = self._turn.acquire(timeout=1.0)  # a helper may be at it; and an interrupt may have kept it locked
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
        self._tend()  # one may just have been opened: it is closed again

    def sockets(self) -> list[socket.socket]:
        """All of ours, for a forked child to let go of."""
        return [link.sock for link in self._links if link.sock is not None] + [self._poke_out, self._poke_in]


class _Count:
    """Tells a tally what comes, until it has heard enough."""

    def __init__(self, poll: Poll, send_until_answered: Callable[[GiveBack], None]) -> None:
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
                answer = reply if isinstance(reply, WireError) else Answer(reply, sent, clock())
                self.decided = self._tally.on_answer(number, answer)

        return then


class FanoutPool:
    """The fanouts of a process to the same servers: as many as threads ask at the same time."""

    def __init__(self, endpoints: tuple[Endpoint, ...], process: Process) -> None:
        self._endpoints = endpoints
        self._process = process
        self.clock_estimate = ServerClockEstimate()
        self._idle: list[Fanout] = []
        self._looks: Keeper | None = None
        """Keeper that is to read late answers."""

    def poll(self, poll: Poll) -> None:
        """As `Fanout.poll`, with one that nobody uses."""
        fanout = self._taken()
        try:
            fanout.poll(poll)
        except BaseException:
            fanout.close()
            raise
        owed = fanout.owed
        self._idle.append(fanout)
        if owed:
            self._look_later()

    def _taken(self) -> Fanout:
        for _ in range(len(self._idle)):
            try:
                fanout = self._idle.pop()
            except IndexError:
                break
            if fanout.take(TURN_S):
                return fanout
            self._idle.insert(0, fanout)
        fanout = Fanout(self._endpoints, self._send_until_answered)
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
        """A failed request was perhaps an undo, and nobody else may look for long."""
        with keeper.mutex:
            self._looks = None
        owed = [fanout.look() for fanout in list(self._idle)]  # a thread that uses one now sees for itself, and asks again
        if any(owed):
            self._look_later()

    def clear(self) -> None:
        """Close those that are idle."""
        while self._idle:
            self._idle.pop().close()

    def sockets(self) -> list[socket.socket]:
        return [sock for fanout in self._idle for sock in fanout.sockets()]


def fleets_of(process: Process, endpoints: tuple[Endpoint, ...]) -> FanoutPool:
    """Those of a process to these servers."""
    return process.own(endpoints, lambda: FanoutPool(endpoints, process))
