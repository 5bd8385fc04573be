"""Wait for a hand-over in the waiting thread itself, by watching the socket on which the keeper receives notifications.

The keeper receives notifications on one connection for each server. It lends the socket of this connection to a waiting thread,
and does not watch the socket meanwhile. The waiting thread looks at the arrived bytes (MSG_PEEK) without reading them, so an
interrupt of that thread loses no message. When the keeper has the socket back, it reads the messages. This is quicker than
waking the waiting thread from the keeper.
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

AGAIN_AFTER_S = 0.05
"""Seconds between two tries of a waiter to borrow the socket. In between, the keeper can read messages."""

DIGITS = 20
"""Maximum number of digits of a fence in a message. Longer numbers are invalid."""

LONGEST = 3_600_000.0
"""Maximum milliseconds of one poll call, because the system accepts at most 24 days."""

_closing = threading.RLock()  # re-entrant, because a signal handler may put an outcome into a slot, too
"""Lock held while a pipe is written to or closed.

Otherwise, a thread could write to a file descriptor that was closed and used again for another file.
"""


class Slot(queue.SimpleQueue["Outcome | None"]):
    """The object in which a waiting thread receives the outcome of its attempt."""

    alarm = -1
    """File descriptor of a pipe to which a byte is written when an outcome arrives while the thread polls a socket; -1:
    none."""

    waits: tuple[int, float] | None = None

    def put(self, outcome: Outcome | None) -> None:  # type: ignore[override]
        super().put(outcome)
        if self.alarm >= 0:
            with _closing:
                if self.alarm >= 0:
                    os.write(self.alarm, b"x")

    def gone(self) -> bool:
        """Return False, because a waiting thread cannot vanish, unlike a task whose event loop was closed."""
        return False

    def take(self, until: float | None) -> Outcome | None:
        """Return the next outcome; TimedOut if none has come by monotonic time ``until`` (None: wait without limit)."""
        self.waits = self.waits or (threading.get_ident(), clock())
        try:
            return self.get(timeout=None if until is None else max(0.0, until - clock()))
        except queue.Empty:
            return TimedOut()


def wait(keeper: Keeper, endpoint: Endpoint, waiter: Waiter, until: float | None) -> Outcome | None:
    """Wait for the outcome of a waiter in the server's queue, until monotonic time ``until`` (None: without limit).

    Return TimedOut if the time is up, and None if the waiter was woken without an outcome.
    """
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
        soon = clock() + AGAIN_AFTER_S
        outcome = slot.take(soon if until is None else min(soon, until))
        if not isinstance(outcome, TimedOut) or (until is not None and until < soon):
            return outcome


def _listen(slot: Slot, sock: socket.socket, until: float | None) -> bool:
    """Wait until the socket is readable or the slot has an outcome. Return True if only the socket is ready.

    Return False also at monotonic time ``until`` (None: no limit) or after `LONGEST`.
    """
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
    """Look for the message of a hand-over to ``token`` in the socket's unread bytes. Return its fence; None: no such message.

    Also return None if the bytes contain a message that a person has broken a lock. The keeper then reads all
    messages itself, so that the holder is told why its lease was lost.
    """
    try:
        data = sock.recv(65536, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return None
    if b"\r\n4 " in data:
        return None
    _, found, rest = data.partition(b"\r\n1 %b " % token.encode())
    digits, end, _ = rest.partition(b"\r\n")
    return int(digits) if found and end and digits.isdigit() and len(digits) <= DIGITS else None
