"""Wait for notifications, which a script on the server publishes to the inbox (pub/sub channel) of the waiting process.

A listener is an object that waits for notifications, under an id of its own. A script notifies it by the message ``3
<listener_id>``. The name of the inbox follows from the key prefix and from the part of the id before its dot
(`_lua/shared/_inbox.lua`). A notification only says that something may have changed, so the listener then asks the server.
Messages get lost while the inbox is not subscribed. So a listener also asks the server after each subscription, and from time
to time.
"""

from __future__ import annotations

from holdfast._core.names import PREFIX
from holdfast._core.requests import AwaitNotice, NewToken, Slot, Subscribe, Unsubscribe


class Listener:
    """An object that waits for notifications of one server, under an id that the server uses in its messages."""

    __slots__ = ("hints", "listener_id", "prefix", "slot")

    listener_id: str
    prefix: bytes

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
    """Return a new listener, whose id can be sent to the server, once the inbox of its prefix is subscribed.

    If the inbox (pub/sub channel) is not subscribed by monotonic time ``until``, return the listener anyway. The caller must
    remove the listener with ``await Unsubscribe(listener)`` at the end, also after an error.
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
    """Wait until the listener is notified, or until monotonic time ``until`` has passed.

    The caller must ask the server for changes after this call, not before it. A notification that arrives after the return ends
    the next call at once.
    """
    if not listener.hints:
        await AwaitNotice(listener, until)
    listener.hints.clear()
