"""Asking again, where that does no harm."""

from __future__ import annotations

from typing import TypeVar

from holdfast._core.requests import NotSent, Request, Sleep, Unknown

R = TypeVar("R")


async def retry_idempotent(call: Request[R]) -> R:
    """Ask for something that does no harm when it is done twice: up to three times if there is no answer."""
    for _ in range(2):
        try:
            return await call
        except (NotSent, Unknown):
            await Sleep(0.02)
    return await call
