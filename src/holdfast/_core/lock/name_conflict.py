"""Explain a name conflict in a ConfigError: what kind of object uses the name, until when, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from holdfast._core.requests import Command, Conflict, WireError
from holdfast._core.retry import retry_idempotent
from holdfast._core.struct import NamedTuple

NAMES = {
    b"": "lock",
    b"semaphore": "semaphore",
    b"rwlock": "read-write lock",
    b"event": "event",
    b"latch": "latch",
    b"barrier": "barrier",
}
"""Names of the kinds of objects, by the first word of their data on the server. The data of a lock has no such word."""

KINDS_OF: dict[str, tuple[bytes, ...]] = {
    "lock": (b"string", b"none"),
    "semaphore": (b"zset", b"none"),
    "read-write lock": (b"zset", b"none"),
}
KINDS_OF |= dict.fromkeys(("event", "latch", "barrier"), (b"hash",))
"""Redis types that the key of each kind of object may have."""

LONGEST = 40
"""Maximum number of bytes to read of the text that names an object's data format, such as "semaphore 1"."""

ADVICE = "use another name or prefix, or delete that key if nobody needs it"


class Look(NamedTuple):
    """Facts about a name that is in use, as read from the server."""

    key: bytes
    type: bytes
    version: bytes
    """Format of the data that the server has under this name, such as "semaphore 1"; empty: unknown."""
    left: int
    """Milliseconds until the object's key expires; negative: it never expires or does not exist."""
    kept: int
    """Milliseconds until the object's state expires. Only then can the name be used for another kind of object."""


Ask = Callable[[Command], Coroutine[Any, Any, Any]]
"""Function that sends a command and returns its reply. It raises WireError if the server is unreachable."""


async def ask(command: Command) -> Any:
    return (await retry_idempotent(command)).value


async def explained(found: Conflict, key: bytes, state: bytes, timeout: float, ask: Ask = ask) -> str:
    """Return a text for the user about a conflict: which kind of object uses the name, until when, and what to do.

    Return the shorter text in ``found`` if the server gives no further facts. ``key`` and ``state``: keys of the lock.
    ``timeout``: maximum seconds to wait for each reply. ``ask``: function that sends a command.
    """
    if not found.other_kind:
        return found.why
    if found.key not in {b"", key}:  # another key of the lock has the wrong data, whose type does not show what uses the name
        return f"{found.why}; {ADVICE}"
    try:
        look = await _look(ask, key, state, timeout)
    except WireError:
        return found.why
    return found.why if look is None else _told(found.why, look)


async def _look(ask: Ask, key: bytes, state: bytes, timeout: float) -> Look | None:
    kind = await ask(Command(("TYPE", key), timeout))
    where, version = key if kind == b"hash" else state, b""
    length = await ask(Command(("HSTRLEN", where, "v"), timeout))
    if type(length) is int and 0 < length <= LONGEST:
        version = await ask(Command(("HGET", where, "v"), timeout))
    left = await ask(Command(("PTTL", key), timeout))
    kept = left if kind == b"hash" else await ask(Command(("PTTL", state), timeout))
    match kind, version, left, kept:
        case bytes(), bytes(), int(), int():
            return Look(key, kind, version, left, kept)
    return None


def _told(why: str, look: Look) -> str:
    word, _, number = look.version.rpartition(b" ")
    name = NAMES.get(word) if number == b"1" else "lock" if look.type == b"string" and not look.version else None
    if name is None or look.type not in KINDS_OF.get(name, ()):
        return f"{why}; {ADVICE}"
    a = f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
    if look.type == b"none":
        now = f"it was used as the name of {a}"
    elif look.type == b"hash":
        now = f"it is the name of {a}"
    else:
        left = f", {_span(look.left)} of its lease left" if look.type == b"string" and look.left > 0 else ""
        now = f"it is the name of {a} that is held{left}"
    until = f"; if it is not used again, the name is free for another kind in {_span(look.kept)}" if look.kept > 0 else ""
    what = "wait until then" if until else "delete the key if nobody needs it"
    return f"{now}{until}. A name is for one kind of object: use another name, or {what}"


def _span(ms: int) -> str:
    if ms < 100_000:
        return f"{ms / 1000:.1f} s"
    return f"{ms / 60_000:.0f} min" if ms < 7_200_000 else f"{ms / 3_600_000:.0f} h"
