"""Being told: an operation waits until a script publishes something to the inbox of its process, and polls nothing.

A script tells a listener by publishing ``3 <hope>`` to the inbox of its process, which follows from the prefix of the key and
the part of the hope before its dot (`_lua/shared/_inbox.lua`). What is told is only that there may be something to look at:
messages get lost while the inbox is away, so whoever listens looks when it listens again, and from time to time besides.
"""

from __future__ import annotations

from typing import Protocol

from holdfast._core.lock.records import Slot
from holdfast._core.names import PREFIX
from holdfast._core.requests import Draw, Request


class Hopeful(Protocol):
    """Who is told."""

    hope: str
    """Under which the servers know it: drawn as a token."""
    slot: Slot | None
    """Where it waits; the driver puts it there."""
    hints: set[object]
    """Of which servers it has been told something."""

    @property
    def prefix(self) -> bytes:
        """The prefix whose inbox it is told by."""

    @property
    def meets(self) -> bool:
        """Others wait for it: they may ask which process it is."""

    @property
    def majority(self) -> int:
        """How many inboxes have to listen before it can rely on that."""

    def wake(self) -> None:
        """Have it look: it was told something, or may have missed something."""


class Enroll(Request[None]):
    """Have a listener told: returns when the inboxes that it relies on listen, at local time ``until`` at the latest."""

    __slots__ = __match_args__ = ("listener", "until")

    def __init__(self, listener: Hopeful, until: float) -> None:
        self.listener = listener
        self.until = until


class Hark(Request[None]):
    """Wait until a listener is woken, until local time ``until`` at the latest."""

    __slots__ = __match_args__ = ("listener", "until")

    def __init__(self, listener: Hopeful, until: float) -> None:
        self.listener = listener
        self.until = until


class Withdraw(Request[None]):
    """The listener wants to be told nothing any more."""

    __slots__ = __match_args__ = ("listener",)

    def __init__(self, listener: Hopeful) -> None:
        self.listener = listener


class Listener:
    """Who is told something by one server."""

    __slots__ = ("hints", "hope", "prefix", "slot")

    def __init__(self, hope: str = "", prefix: bytes = PREFIX) -> None:
        self.hope = hope
        self.slot: Slot | None = None
        self.hints: set[object] = set()
        self.prefix = prefix

    @property
    def meets(self) -> bool:
        return False

    @property
    def majority(self) -> int:
        return 1

    def wake(self) -> None:
        self.hints.add(self)
        if self.slot is not None:
            self.slot.put(None)


async def listen(until: float, prefix: bytes) -> Listener:
    """A listener that can be told to the server, under its `Listener.hope`: the inbox of the prefix listens, unless local time
    ``until`` has passed. What it is good for has to end with ``await Withdraw(listener)``, whatever happens."""
    listener = Listener(await Draw(), prefix=prefix)
    try:
        await Enroll(listener, until)
    except BaseException:
        await Withdraw(listener)
        raise
    listener.hints.clear()
    return listener


async def hear(listener: Listener, until: float) -> None:
    """Wait until there may be something to look at, until local time ``until`` at the latest. What is told from now on ends the
    next wait at once: so look after this, not before."""
    if not listener.hints:
        await Hark(listener, until)
    listener.hints.clear()
