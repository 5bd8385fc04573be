"""Send a request again if its reply got lost and carrying it out twice does no harm."""

from __future__ import annotations

from typing import TypeVar

from holdfast._core.requests import NotSent, Request, Sleep, Unknown

R = TypeVar("R")


async def retry_idempotent(call: Request[R]) -> R:
    """Send a request that may be carried out twice without harm: up to three times, until a reply arrives.

    Raises the error of the third try, or Refused at once.
    """
    for _ in range(2):
        try:
            return await call
        except (NotSent, Unknown):
            await Sleep(0.02)
    return await call
