"""End an operation whose caller has gone, such as a task of a closed event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any


class Dropped(BaseException):
    """Raised inside an operation whose caller has gone, at the request that it waits for, so that it cleans up."""


UNDONE = object()
"""In the place of a reply: nobody does what was asked for any more."""


def _nothing(_request: object) -> object:
    return UNDONE


def drop(operation: Coroutine[Any, Any, Any], do: Callable[[Any], Any] = _nothing, *, begun: bool = True) -> None:
    """End an operation that was interrupted between two steps, or whose event loop is gone. ``do`` carries out its requests for
    cleaning up, as far as it can; the rest (`UNDONE`) is left to the caller, which knows the attempt. ``begun``: False for one
    that is such a clean-up itself. `close` does not do: it leaves an inner coroutine behind that waits while it cleans up, and
    when that is collected, "coroutine ignored GeneratorExit" is on stderr."""
    reply: Any = None
    error: BaseException | None = Dropped() if begun else None
    while operation.cr_frame is not None:  # type: ignore[attr-defined]
        with suppress(Dropped, StopIteration):
            request = operation.send(reply) if error is None else operation.throw(error)
            reply, error = None, None
            try:
                reply = do(request)
            except Exception as failed:  # noqa: BLE001 - whose it is, the operation decides
                error = failed
            if reply is UNDONE:
                reply, error = None, Dropped()
