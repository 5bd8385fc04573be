"""Standing in the line of a process, with the real drivers: what is told there about the server's queue is not lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from holdfast._core.lock.records import AskServer, Attempt, Waiter
from holdfast._core.lock.replies import Busy
from holdfast._core.requests import Granted, Now, Outcome, Wait, WaitLocally
from holdfast._net.endpoint import Endpoint
from holdfast._runtime.drivers import aio, sync
from holdfast._runtime.process import Process
from support.driver import spec

HANDED_OVER = Granted(7, 1e9, in_claim_window=True)
ENOUGH = 0.5
"""Seconds until the wait ends, if the hand-over is lost."""


@pytest.fixture
def process() -> Iterator[Process]:
    process = Process()
    yield process
    process.close()


def inheriting(attempt: Attempt) -> Waiter:
    """The attempt is given a place in the queue, and the keeper tells of the hand-over before the attempt is woken for that."""
    place = Waiter(attempt, Busy(5.0, 6, "b", lingers=False))
    attempt.turn = AskServer(place)
    assert attempt.slot is not None
    attempt.slot.put(HANDED_OVER)
    attempt.slot.put(None)
    return place


async def inherits(attempt: Attempt) -> Outcome:
    attempt.until = await Now() + ENOUGH
    place = inheriting(attempt)
    await WaitLocally(attempt)
    return await Wait(place, None, attempt.until)


def test_a_thread_is_told_of_the_hand_over_for_a_place_it_is_just_given(process: Process) -> None:
    driver = sync.Driver(process, Endpoint())
    assert driver.run(inherits(Attempt(spec(), slot=driver.slot()))) == HANDED_OVER


def test_a_task_is_told_of_the_hand_over_for_a_place_it_is_just_given(process: Process) -> None:
    async def told() -> Outcome:
        driver = aio.Driver(process, Endpoint())
        return await driver.run(inherits(Attempt(spec(), slot=driver.slot())))

    assert asyncio.run(told()) == HANDED_OVER
