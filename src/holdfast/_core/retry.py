"""Send a request again if its reply is lost and a second run is harmless."""

from __future__ import annotations

from typing import TypeVar

from holdfast._core.requests import NotSent, Request, Sleep, Unknown

R = TypeVar("R")


async def retry_idempotent(call: Request[R]) -> R:
    """Send a request that may safely be carried out twice, up to three times until there is a reply."""
    for _ in range(2):
        try:
            return await call
        except (NotSent, Unknown):
            await Sleep(0.02)
    return await call
