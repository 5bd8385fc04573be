"""Send a request again if its reply got lost and carrying it out twice does no harm."""

from __future__ import annotations

from typing import TypeVar

from holdfast._core.requests import NotSent, Request, Sleep, Unknown

R = TypeVar("R")


async def retry_idempotent(call: Request[R]) -> R:
    """Send a request up to three times, until a reply arrives. Carrying it out twice must do no harm.

    Raises the error of the third try. An error reply is raised at once, as Refused.
    """
    for _ in range(2):
        try:
            return await call
        except (NotSent, Unknown):
            await Sleep(0.02)
    return await call
