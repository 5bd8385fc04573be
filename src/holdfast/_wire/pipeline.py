"""Pipelines of redis-py and valkey-py, where they are not good enough for a transaction.

* When the answer to EXEC is lost, they raise WatchError, as if a key had changed. Whoever tries again then may do everything
  twice. `chain` tells the two apart.
* A connection that is closed in between is opened again without a word, and EXEC goes through without the WATCH. `Tripwire`
  lets it fail before anything is sent.
* Those of clusters send MULTI and EXEC again on a new connection, which watches nothing: they are not used at all.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

LOST = {"ConnectionError", "TimeoutError", "OSError"}
"""Kinds of errors, of whichever client, that say nothing of what the server did."""

MOVED = {"MovedError", "AskError", "ClusterDownError", "TryAgainError"}
"""Those that say: not here, or not now."""


_NOT_FOR_USERS = {"watch", "unwatch", "multi", "exec", "execute", "discard", "reset", "pipeline", "transaction"}
"""They would end a transaction, or begin another one."""


class Commands:
    """The commands of a client of redis-py or valkey-py, under their names, and nothing else of it."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in _NOT_FOR_USERS or name.startswith("_"):
            raise AttributeError(
                f"{name!r} is no command of a transaction: it has those of the client, but for WATCH, MULTI, EXEC and DISCARD"
            )
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

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        connection.register_connect_callback(self.tripped)

    def tripped(self, _connection: Any) -> None:
        """Called by the client, while it connects."""
        raise Reconnected("the connection was closed while it watched keys")

    def remove(self) -> None:
        """It may be opened anew again."""
        self._connection.deregister_connect_callback(self.tripped)


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
    """What the server said, without the values that clients and servers repeat."""
    text = str(error).partition(", with args beginning with")[0]
    found = re.search(r"^Command # (\d+) .* of pipeline caused error: (?:\(['\"])?(.*?)(?:['\"],\))?$", text, re.DOTALL)
    return f"command {found[1]}: {found[2]}" if found else text
