"""Corrections to the pipelines of redis-py and valkey-py, because three of their faults make transactions unsafe.

* When the answer to EXEC is lost, the pipelines raise WatchError, as if a key had changed. A retry could then execute
  everything twice. `verdict` distinguishes the two cases.
* When a connection is closed between WATCH and EXEC, the pipelines reopen it silently, and EXEC succeeds without the WATCH.
  `Tripwire` makes such a transaction fail before anything is sent.
* The pipelines of clusters send MULTI and EXEC again on a new connection, which watches nothing. So holdfast does not use them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from holdfast._core.requests import Refused

LOST = {"ConnectionError", "TimeoutError", "OSError"}
"""Names of client exceptions after which nobody knows what the server has executed."""

NOT_SENT = {"DataError", "UnicodeEncodeError"}
"""Names of client exceptions for a value that cannot be encoded. No command was sent, because all are encoded first."""

MOVED = {"MovedError", "AskError", "ClusterDownError", "TryAgainError"}
"""Names of client exceptions for a command that a Cluster refuses. The slot is on another server, or not available now."""


_NOT_FOR_USERS = {"watch", "unwatch", "multi", "exec", "execute", "discard", "reset", "pipeline", "transaction"}
"""Client methods and commands that a user may not call in a transaction, because they would end it or begin another one."""


def check_word(command: str | bytes) -> None:
    word = command.decode(errors="replace") if isinstance(command, bytes) else str(command)
    if word.strip().lower() in _NOT_FOR_USERS:
        _refuse(word)


def _refuse(name: str) -> NoReturn:
    raise AttributeError(
        f"{name!r} is not allowed in a transaction: call a command method of the client other than watch, multi, exec, discard"
    )


CUT = "the connection that watched its keys was lost before EXEC"
MOVING = "the slot of its keys is moving"


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
    """Return True if a method of a pipeline sends a command.

    Both libraries define these methods in packages named "commands".
    """
    commands = (cls for cls in pipeline.__mro__ if ".commands." in cls.__module__)
    return name == "execute_command" or any(name in vars(cls) for cls in commands)


class Reconnected(Exception):
    """Raised if a connection was reopened between WATCH and EXEC.

    It does not inherit from an exception of the client library, because the client would then retry.
    """


class Tripwire:
    """A callback that makes a connection with watched keys fail instead of reconnecting.

    The server would not watch the keys on a new connection.
    """

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._connection = pipeline.connection
        self._connection.register_connect_callback(self.tripped)

    def tripped(self, connection: Any) -> None:
        """Raise Reconnected, unless the client has given the connection to another pipeline."""
        if self._pipeline.connection is connection:
            raise Reconnected("the connection was closed while it watched keys")

    def remove(self) -> None:
        self._connection.deregister_connect_callback(self.tripped)


def unread(connection: Any) -> Any:
    """Return True if a connection has unread data, which usually means that the server has closed it (end of file).

    For an asyncio connection, return an awaitable of the result.
    """
    return (getattr(connection, "can_read", None) or connection.can_read_destructive)()


def kinds(error: BaseException) -> set[str]:
    """Return the names of an exception's class and of its base classes. The names are the same in redis-py and valkey-py."""
    return {cls.__name__ for cls in type(error).__mro__}


def chain(error: BaseException, before: BaseException | None) -> list[BaseException]:
    """Return an error and the errors that were being handled when it was raised, newest first.

    The list ends before ``before``, the error that was already being handled when the call began (None: no error).
    """
    found: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at is not before and at not in found:
        found.append(at)
        at = at.__context__
    return found


def named(command: Any) -> str:
    """Return the name and the key of a queued command, without its values, which may be secret."""
    words = command[0]
    return f"{words[0]} {words[1]!r}" if len(words) > 1 else str(words[0])


def brief(error: BaseException) -> str:
    """Return the text of a server's error without the arguments of the command, which may be secret."""
    text = str(error).partition(", with args beginning with")[0]
    found = re.search(r"^Command # (\d+) .* of pipeline caused error: (?:\(['\"])?(.*?)(?:['\"],\))?$", text, re.DOTALL)
    return f"command {found[1]}: {found[2]}" if found else text


def shorten(error: BaseException) -> None:
    """Remove the client library's frames and earlier errors from its error. Otherwise, up to 100 lines would be printed.

    An error of another kind, which may be a defect, stays as it is.
    """
    if kinds(error) & {"RedisError", "ValkeyError"}:
        error.__traceback__ = error.__cause__ = None


def refusal(error: BaseException, text: str, address: str) -> Refused:
    """Return the internal error for a reply with which the server has refused a command. ``text``: its text."""
    if "AuthenticationError" in kinds(error) and not text.startswith(("NOAUTH", "WRONGPASS", "ERR")):
        # The client has removed the first word. It says HELLO or AUTH to the server before the first command.
        text = f"{'NOAUTH' if 'required' in text or 'already authenticated' in text else 'WRONGPASS'} {text}"
    return Refused(text, address)


def is_moving(error: BaseException, slot: int | None) -> bool:
    """Return True if the error says that the slot of the watched keys is moving. ``slot`` is None outside a Cluster."""
    return slot is not None and bool(kinds(error) & MOVED) and getattr(error, "slot_id", slot) == slot


class Verdict(NamedTuple):
    """The outcome of an EXEC that failed."""

    conflict: bool
    """True if no command was executed and a retry may succeed."""
    why: str


def verdict(error: BaseException, before: BaseException | None, slot: int | None) -> Verdict | BaseException:
    """Return the outcome of a failed EXEC, or an exception to raise: an interrupt, or a value that cannot be encoded.

    ``before``: the exception that was already being handled when EXEC was sent; None: no exception. ``slot``: the slot of the
    keys; None outside a Cluster.
    """
    upon = chain(error, before)
    found = set().union(*map(kinds, upon))
    # The client cleans up after any failure, and this may trigger the tripwire, too. So find the cause, not the newest error.
    first = next((one for one in upon if not isinstance(one, Exception) or kinds(one) & (LOST | NOT_SENT)), upon[-1])
    why = (
        f"no readable answer to EXEC: {first}. The whole transaction may or may not have been carried out. Check the keys "
        "that it writes before you repeat it, because holdfast does not repeat it"
    )
    if not isinstance(first, Exception) or kinds(first) & NOT_SENT:
        return first
    if kinds(first) & LOST:
        pass
    elif isinstance(first, Reconnected):
        return Verdict(True, CUT)
    elif "WatchError" in found:
        return Verdict(True, "another client changed a watched key before EXEC")
    elif is_moving(error, slot):
        return Verdict(True, f"{MOVING} ({brief(error)})")
    elif "EXEC without MULTI" in str(error):
        why = "MULTI was refused, and its commands were executed one by one, without regard to changes by other clients"
    elif "ResponseError" in found:
        hint = "a key of another slot: " if found & MOVED else ""
        why = f"refused: {hint}{brief(error)}; nothing was carried out"
    return Verdict(False, why)
