"""A waiting thread listens to the inbox itself, so that a hand-over wakes this thread and not the keeper first.

The keeper lends the socket of its inbox, and looks away meanwhile. The thread only looks (MSG_PEEK) and reads nothing, so there
is nothing to undo wherever an interrupt hits it; what there is to read, the keeper reads when it has the socket back.
"""

from __future__ import annotations

import os
import queue
import select
import socket
import threading
from typing import TYPE_CHECKING

from holdfast._clock import clock
from holdfast._core.lock.records import Waiter
from holdfast._core.requests import Outcome, TimedOut

if TYPE_CHECKING:
    from holdfast._net.endpoint import Endpoint
    from holdfast._runtime.keeper.thread import Keeper

AGAIN = 0.05
"""Seconds after which the keeper has read what was not for us, and may lend the socket again."""

DIGITS = 20
"""Of a fence, at most: what has more is garbage."""

LONGEST = 3_600_000.0
"""Milliseconds of one look, at most: the system takes no more than 24 days."""

_closing = threading.RLock()  # a signal handler may put something in, too
"""Nobody writes to a pipe that is being closed: its number may be another file's by then."""


class Slot(queue.SimpleQueue["Outcome | None"]):
    """The place where a thread waits for the outcome of its attempt."""

    alarm = -1
    """A pipe that is written to as well, while the thread looks at a socket."""

    waits: tuple[int, float] | None = None

    def put(self, outcome: Outcome | None) -> None:  # type: ignore[override]
        super().put(outcome)
        if self.alarm >= 0:
            with _closing:
                if self.alarm >= 0:
                    os.write(self.alarm, b"x")

    def gone(self) -> bool:
        """A thread ends its wait itself."""
        return False

    def take(self, until: float | None) -> Outcome | None:
        """Return what was put in first; TimedOut if there is nothing before local time ``until`` (None: for ever)."""
        self.waits = self.waits or (threading.get_ident(), clock())
        try:
            return self.get(timeout=None if until is None else max(0.0, until - clock()))
        except queue.Empty:
            return TimedOut()


def wait(keeper: Keeper, endpoint: Endpoint, waiter: Waiter, until: float | None) -> Outcome | None:
    """As `Slot.take` for a waiter that stands in the queue of the server, but quicker, where the inbox is to be had."""
    slot = waiter.attempt.slot
    assert isinstance(slot, Slot)
    slot.waits = slot.waits or (threading.get_ident(), clock())
    while True:
        try:
            sock = keeper.lend_socket(endpoint, waiter)
            if sock is None:
                return slot.take(until)
            if _listen(slot, sock, until):
                fence = _seen(waiter.attempt.token, sock)
                if fence is not None:
                    keeper.on_handover_seen(endpoint, waiter, fence)
        finally:
            keeper.return_socket(endpoint, waiter, soon=slot.empty())
        soon = clock() + AGAIN
        outcome = slot.take(soon if until is None else min(soon, until))
        if not isinstance(outcome, TimedOut) or (until is not None and until < soon):
            return outcome


def _listen(slot: Slot, sock: socket.socket, until: float | None) -> bool:
    """True when there is something to read on the socket; False when something is in the slot, or time is up."""
    here, alarm = os.pipe()
    try:
        poll = select.poll()
        poll.register(here, select.POLLIN)
        poll.register(sock, select.POLLIN)
        slot.alarm = alarm
        if not slot.empty():
            return False
        ready = poll.poll(None if until is None else min(LONGEST, max(0.0, 1000 * (until - clock()) + 1)))
        return bool(ready) and all(fd != here for fd, _ in ready)
    finally:
        with _closing:
            slot.alarm = -1
            os.close(alarm)
        os.close(here)


def _seen(token: str, sock: socket.socket) -> int | None:
    """The fence of the hand-over to this token, if that is among what is to be read. A message that only resembles it means
    nothing: the keeper throws it away. Nothing either where a lease was broken: the keeper reads that first, or the lease of
    this process that is lost by the hand-over would be lost without the name of whoever has broken it."""
    try:
        data = sock.recv(65536, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return None
    if b"\r\n4 " in data:
        return None
    _, found, rest = data.partition(b"\r\n1 %b " % token.encode())
    digits, end, _ = rest.partition(b"\r\n")
    return int(digits) if found and end and digits.isdigit() and len(digits) <= DIGITS else None
