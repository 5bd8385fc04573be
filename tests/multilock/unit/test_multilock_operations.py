"""Several locks given back at once: what is said of each, when answers get lost and when its time was over."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast._api.multilock import BaseMultiCore, Whole
from holdfast._core.lock.multilock import multi_acquire, multi_release
from holdfast._core.lock.records import Attempt
from holdfast._core.lock.spec import Spec
from holdfast._core.names import lock_keys
from holdfast._core.requests import Unknown, WireError
from support.driver import ME, OTHER, Driver, Fault, first
from support.memory_server import KEYS, Server

MINE = tuple(f"{ME}.{n:032x}" for n in range(2))
BOTH = (KEYS, lock_keys("y", "hf:", None))


class Part:
    """One of the locks; ``in_time``: its lease was not over when the release began."""

    def __init__(self, number: int, in_time: bool) -> None:
        self.attempt = Attempt(Spec("xy"[number], BOTH[number], 30.0, True, None, 1.0), MINE[number])
        self.in_time = in_time

    def giving(self) -> tuple[str, bool, bool]:
        return self.attempt.token, False, self.in_time


def given_back(driver: Driver, *in_time: bool) -> list[bool | WireError]:
    parts: list[Any] = [Part(number, one) for number, one in enumerate(in_time)]
    return driver.run(multi_release(parts))


def holding() -> Driver:
    driver = Driver(Server())
    for token, keys in zip(MINE, BOTH, strict=True):
        driver.server.keyspace.execute("SET", keys[0], token, "PX", 30_000)
    return driver


def test_a_lock_that_somebody_else_has_was_not_ours() -> None:
    driver = holding()
    driver.server.take(OTHER, 30.0)
    assert given_back(driver, True, True) == [False, True], "whatever the local clock says"
    assert driver.server.current() == OTHER


@pytest.mark.parametrize("applied", [False, True])
def test_after_a_lost_answer_the_local_time_counts(applied: bool) -> None:
    """The first copy may have released a lock that another client has by now. If the lease was over, it may have been lost."""
    for in_time in (False, True):
        driver = holding()
        driver.failing = first(Fault(Unknown("no answer"), applied), "multi_release")
        if not applied:
            driver.server.take(OTHER, 30.0)
        assert given_back(driver, in_time, True) == [in_time, True]


def test_a_busy_answer_says_nothing_of_an_earlier_request_without_one() -> None:
    """A copy of the earlier one may arrive when all are free. It must not take locks that nobody would know of."""
    driver, parts = Driver(Server()), [Part(0, in_time=True), Part(1, in_time=True)]
    operands: list[Any] = [*parts]
    driver.failing = first(Fault(Unknown("no answer")), "multi_acquire")
    assert driver.run(multi_acquire(operands, None)) == 0
    driver.server.take(OTHER, 30.0)
    assert driver.run(multi_acquire(operands, None)) == 0, "the first of them is busy"
    for part in parts:
        driver.undo(part.attempt)
    driver.server.release(OTHER)
    driver.late_copies_arrive()
    assert driver.server.present().isdisjoint(MINE)


def test_the_loss_of_several_is_told_once() -> None:
    core = object.__new__(BaseMultiCore)
    core.told_loss, core._tally = False, None
    assert [core.first_to_tell() for _ in range(3)] == [True, False, False]


def test_a_loss_between_two_locks_ends_no_wait() -> None:
    Whole(1).on_loss()
