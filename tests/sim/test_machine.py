"""Hypothesis chooses the schedule, and would shrink what it finds."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast._core import acquire
from holdfast._core.mutex import Attempt
from holdfast.testing import machine
from holdfast.testing.machine import LockMachine
from holdfast.testing.sim import lock

TestLockMachine = LockMachine.TestCase
TestLockMachine.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def test_it_finds_and_shrinks_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody forgot to give up what a wait that was cancelled leaves behind."""

    async def nothing(_attempt: Attempt) -> None:
        """As if there were nothing to undo."""

    monkeypatch.setattr(acquire, "give_up", nothing)
    monkeypatch.setattr(lock, "give_up", nothing)
    monkeypatch.setattr(machine, "ALL_FAULTS", ("cancel",))
    with pytest.raises(AssertionError) as caught:
        run_state_machine_as_test(
            LockMachine, settings=settings(TestLockMachine.settings, max_examples=300, database=None, print_blob=False)
        )
    told = "\n".join(caught.value.__notes__)
    assert "left behind" in str(caught.value)
    assert told.count("state.goes_wrong") <= 1, f"it was not shrunk:\n{told}"
    assert told.count("state.happens") <= 15, f"it was not shrunk:\n{told}"
