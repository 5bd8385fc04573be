"""Errors of `holdfast.aio` that derive from errors of asyncio. Only programs that use asyncio import this module."""

from __future__ import annotations

import asyncio

from holdfast._api import broken_barrier


class BrokenBarrier(broken_barrier.BrokenBarrier, asyncio.BrokenBarrierError):
    """Raised by `Barrier.wait` if the barrier is or becomes broken. It is also an `asyncio.BrokenBarrierError`."""
