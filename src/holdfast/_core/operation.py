"""Ending an operation that nobody drives any more."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any


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
