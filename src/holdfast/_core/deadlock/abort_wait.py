"""Ending what goes on: a wait for a lock that would be of no use to who waits, and an operation that nobody drives any more."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from holdfast._core.lock.records import Attempt

if TYPE_CHECKING:
    from holdfast._core.lock.server_queue import Waiting


def end_wait(waiting: Waiting | None, attempt: Attempt, error: Exception) -> bool:
    """Have this raised where an attempt waits, in the line of its process or at the server (``waiting``). False: it does not
    wait just now. The keeper's mutex is held."""
    gate = attempt.gate
    if gate is not None and gate.end_wait(attempt, error):
        return True
    waiter = None if waiting is None else waiting.get(attempt.token)
    if waiting is None or waiter is None or waiter.attempt is not attempt:
        return False
    waiting.end(waiter, error)
    return True


class Dropped(BaseException):
    """Raised in an operation that nobody drives any more, wherever it waits."""


NOTHING: Mapping[type, Callable[[Any], Any]] = MappingProxyType({})


def drop(
    operation: Coroutine[Any, Any, Any], at_once: Mapping[type, Callable[[Any], Any]] = NOTHING, *, begun: bool = True
) -> None:
    """End an operation that was interrupted between two steps, or whose event loop is gone. What it asks for to clean up is
    done as far as ``at_once`` says how; the rest is left to the caller, who knows the attempt. ``begun``: False for one that is
    such a clean-up itself. `close` does not do: it leaves an inner coroutine behind that waits while it cleans up, and when
    that is collected, "coroutine ignored GeneratorExit" is on stderr."""
    reply: Any = None
    error: BaseException | None = Dropped() if begun else None
    while operation.cr_frame is not None:  # type: ignore[attr-defined]
        with suppress(Dropped, StopIteration):
            request = operation.send(reply) if error is None else operation.throw(error)
            answer = at_once.get(type(request))
            reply, error = None, None if answer else Dropped()
            if answer is not None:
                try:
                    reply = answer(request)
                except Exception as failed:  # noqa: BLE001 - whose it is, the operation decides
                    error = failed
