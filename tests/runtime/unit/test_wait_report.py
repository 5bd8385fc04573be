"""The description of a waiting thread or task for other processes."""

from __future__ import annotations

import time

from holdfast._clock import clock
from holdfast._core.lock.ports import LockWait
from holdfast._runtime.keeper.wait_report import describe_wait


def test_waits_that_began_a_millisecond_apart_are_told_apart() -> None:
    """The one that began last is ended, if they close a cycle: others compare what they are told."""
    now = clock()
    waits = [LockWait("a", 1, now + number / 1000, ("b",), yields=True) for number in range(40)]
    assert len({describe_wait(wait)["since"] for wait in waits}) > 20


def test_when_a_wait_began_is_told_as_a_time_of_day() -> None:
    told = describe_wait(LockWait("a", 1, clock() - 100.0, (), yields=False))["since"]
    assert time.time() - 110 < told < time.time() - 90
