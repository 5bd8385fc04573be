"""Pipelines of redis-py and valkey-py, where they are not good enough for a transaction.

* When the answer to EXEC is lost, they raise WatchError, as if a key had changed. Trying again may do everything twice
  then. `chain` tells the two apart.
* A connection that is closed in between is opened again without a word, and EXEC goes through without the WATCH. `Tripwire`
  lets it fail before anything is sent.
* Those of clusters send MULTI and EXEC again on a new connection, which watches nothing: they are not used at all.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

LOST = {"ConnectionError", "TimeoutError", "OSError"}
"""Kinds of errors, of whichever client, that say nothing of what the server did."""

NOT_SENT = {"DataError", "UnicodeEncodeError"}
"""Those of a value that is none for the server. All commands are packed before anything is sent."""

MOVED = {"MovedError", "AskError", "ClusterDownError", "TryAgainError"}
"""Those that say: not here, or not now."""


_NOT_FOR_USERS = {"watch", "unwatch", "multi", "exec", "execute", "discard", "reset", "pipeline", "transaction"}
"""They would end a transaction, or begin another one. The same as words, for `execute_command`."""


def check_word(command: str | bytes) -> None:
    """Refuse one of them as the first word of a command."""
    word = command.decode(errors="replace") if isinstance(command, bytes) else str(command)
    if word.strip().lower() in _NOT_FOR_USERS:
        _refuse(word)


def _refuse(name: str) -> NoReturn:
    raise AttributeError(
        f"{name!r} is no command of a transaction: it has those of the client, but for WATCH, MULTI, EXEC and DISCARD"
    )


CUT = "the connection that watched its keys was lost before EXEC"
MOVING = "its slot is moving"


class Commands:
    """The command methods of a redis-py or valkey-py client, without its other attributes."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in _NOT_FOR_USERS or name.startswith("_"):
            _refuse(name)
        return functools.partial(self._call, name)


@functools.lru_cache(1024)
def is_command(pipeline: type, name: str) -> bool:
    """A client has its commands from classes that hold nothing else, in a package of that name."""
    commands = (cls for cls in pipeline.__mro__ if ".commands." in cls.__module__)
    return name == "execute_command" or any(name in vars(cls) for cls in commands)


class Reconnected(Exception):
    """The connection was opened anew between WATCH and EXEC. Not of the client's kind, or it would try again."""


class Tripwire:
    """Lets a connection that watches keys fail rather than be opened anew, which would forget them."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._connection = pipeline.connection
        self._connection.register_connect_callback(self.tripped)

    def tripped(self, connection: Any) -> None:
        """Called by the client, while it connects: perhaps for somebody else, who has it from the pool already."""
        if self._pipeline.connection is connection:
            raise Reconnected("the connection was closed while it watched keys")

    def remove(self) -> None:
        """It may be opened anew again."""
        self._connection.deregister_connect_callback(self.tripped)


def unread(connection: Any) -> Any:
    """Whether something has come that nobody asked for: its end, mostly. In asyncio, to be awaited."""
    return (getattr(connection, "can_read", None) or connection.can_read_destructive)()


def kinds(error: BaseException) -> set[str]:
    """Of the client's errors, whichever client it is."""
    return {cls.__name__ for cls in type(error).__mro__}


def chain(error: BaseException, before: BaseException | None) -> list[BaseException]:
    """The error and what it was raised upon, up to what was being handled before."""
    found: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at is not before and at not in found:
        found.append(at)
        at = at.__context__
    return found


def named(command: Any) -> str:
    """A queued command, without its values."""
    words = command[0]
    return f"{words[0]} {words[1]!r}" if len(words) > 1 else str(words[0])


def brief(error: BaseException) -> str:
    """Return the server's error without the values that clients and servers repeat in it."""
    text = str(error).partition(", with args beginning with")[0]
    found = re.search(r"^Command # (\d+) .* of pipeline caused error: (?:\(['\"])?(.*?)(?:['\"],\))?$", text, re.DOTALL)
    return f"command {found[1]}: {found[2]}" if found else text


def is_moving(error: BaseException, slot: int | None) -> bool:
    """Whether it is the slot of the watched keys that is elsewhere, and not that of another key. None: not in a Cluster."""
    return slot is not None and bool(kinds(error) & MOVED) and getattr(error, "slot_id", slot) == slot


class Verdict(NamedTuple):
    """Return what came of an EXEC that failed."""

    conflict: bool
    """Nothing was carried out, and doing it again may help."""
    why: str


def verdict(error: BaseException, before: BaseException | None, slot: int | None) -> Verdict | BaseException:
    """Of a failed EXEC; what is to be raised as it is, if the client or the server has no part in it.

    ``before``: what was being handled then.
    """
    upon = chain(error, before)
    found = set().union(*map(kinds, upon))
    # The client cleans up after any failure, and may come upon the tripwire then.
    first = next((one for one in upon if not isinstance(one, Exception) or kinds(one) & (LOST | NOT_SENT)), upon[-1])
    why = (
        f"no answer to EXEC that can be read: {first}. It may or may not have been carried out, as a whole, and is not "
        "tried again by itself: look at what it writes before you do"
    )
    if not isinstance(first, Exception) or kinds(first) & NOT_SENT:
        return first
    if kinds(first) & LOST:
        pass
    elif isinstance(first, Reconnected):
        return Verdict(True, CUT)
    elif "WatchError" in found:
        return Verdict(True, "a key that it watches was changed by somebody else before EXEC")
    elif is_moving(error, slot):
        return Verdict(True, f"{MOVING} ({brief(error)})")
    elif "EXEC without MULTI" in str(error):
        why = "MULTI was refused, and its commands were carried out one by one, whatever others have changed meanwhile"
    elif "ResponseError" in found:
        hint = "a key of another slot: " if found & MOVED else ""
        why = f"refused: {hint}{brief(error)}; nothing was carried out"
    return Verdict(False, why)
