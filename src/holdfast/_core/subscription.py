"""Wait for a notification: a script publishes it to the inbox of the process, so that the operation need not poll.

A script notifies a listener by publishing ``3 <listener_id>`` to the inbox of its process. The channel follows from the prefix
of the key and the part of the listener's id before its dot (`_lua/shared/_inbox.lua`). A notification is only a hint that
something may have changed. Messages get lost while the inbox is not subscribed, so a listener also asks the server after each
subscription, and from time to time.
"""

from __future__ import annotations

from holdfast._core.names import PREFIX
from holdfast._core.requests import AwaitNotice, NewToken, Slot, Subscribe, Unsubscribe


class Listener:
    """A listener for the notifications of one server."""

    __slots__ = ("hints", "listener_id", "prefix", "slot")

    def __init__(self, listener_id: str = "", prefix: bytes = PREFIX) -> None:
        self.listener_id = listener_id
        self.slot: Slot | None = None
        self.hints: set[object] = set()
        self.prefix = prefix

    @property
    def needs_record(self) -> bool:
        return False

    @property
    def majority(self) -> int:
        return 1

    def wake(self) -> None:
        self.hints.add(self)
        if self.slot is not None:
            self.slot.put(None)


async def subscribed(until: float, prefix: bytes) -> Listener:
    """Return a new listener, whose `Listener.listener_id` can be sent to the server.

    The inbox of the prefix is subscribed on return, unless monotonic time ``until`` has passed. The caller must end with
    ``await Unsubscribe(listener)``, also after an error.
    """
    listener = Listener(await NewToken(), prefix=prefix)
    try:
        await Subscribe(listener, until)
    except BaseException:
        await Unsubscribe(listener)
        raise
    listener.hints.clear()
    return listener


async def await_notice(listener: Listener, until: float) -> None:
    """Wait until the listener is notified, at most until monotonic time ``until``.

    A notification that arrives from now on ends the next wait at once, so the caller must look for changes after this call.
    """
    if not listener.hints:
        await AwaitNotice(listener, until)
    listener.hints.clear()
