"""End an operation (a coroutine of this library) whose caller does not run any more, such as a task of a closed event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any


class Dropped(BaseException):
    """Raised inside an operation whose caller does not run any more, so that the operation cleans up and ends."""


UNDONE = object()
"""The reply to a request that is not carried out, because the code that called the operation has ended."""


def _nothing(_request: object) -> object:
    return UNDONE


def drop(operation: Coroutine[Any, Any, Any], do: Callable[[Any], Any] = _nothing, *, begun: bool = True) -> None:
    """End an operation that was interrupted between two steps, or whose event loop is closed, and let it clean up.

    ``do``: function that carries out the requests of the clean-up. It returns `UNDONE` for a request that it cannot carry out.
    ``begun``: True: the operation has begun, so raise Dropped inside it, which starts its clean-up. False: the operation is
    itself a clean-up that has not begun, so run it from its start to its end.

    ``operation.close()`` cannot replace this function, because Python prints "coroutine ignored GeneratorExit" if the clean-up
    awaits something.
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
