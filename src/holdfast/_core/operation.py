"""End an operation whose caller has gone, such as a task of a closed event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any


class Dropped(BaseException):
    """Raised inside an operation whose caller has gone, so that the operation cleans up."""


UNDONE = object()
"""A reply which says that a request of a dropped operation was not carried out."""


def _nothing(_request: object) -> object:
    return UNDONE


def drop(operation: Coroutine[Any, Any, Any], do: Callable[[Any], Any] = _nothing, *, begun: bool = True) -> None:
    """End an operation that was interrupted between two steps, or whose event loop is closed, and let it clean up.

    ``do``: function that carries out the requests of the clean-up, or returns `UNDONE` for requests that it does not carry out.
    ``begun``: False if the operation is itself a clean-up. ``operation.close()`` would leave behind an inner coroutine that
    awaits during its clean-up, and Python would print "coroutine ignored GeneratorExit" on stderr.
    """
    reply: Any = None
    error: BaseException | None = Dropped() if begun else None
    while operation.cr_frame is not None:  # type: ignore[attr-defined]
        with suppress(Dropped, StopIteration):
            request = operation.send(reply) if error is None else operation.throw(error)
            reply, error = None, None
            try:
                reply = do(request)
            except Exception as failed:  # noqa: BLE001 - the operation decides about each error
                error = failed
            if reply is UNDONE:
                reply, error = None, Dropped()
