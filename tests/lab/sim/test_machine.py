"""Hypothesis chooses the schedule, and would shrink what it finds."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from holdfast_lab.machine import LockMachine
from holdfast_lab.sim import lock_client

TestLockMachine = LockMachine.TestCase
TestLockMachine.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def test_it_notices_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody forgot to give the lock back."""

    async def nothing(_lock: lock_client.Lock, _lease: lock_client.Lease) -> None:
        """As if there were nothing to give back."""

    monkeypatch.setattr(lock_client.Lock, "_release", nothing)
    machine = LockMachine()
    machine.build(rounds=[(None, 0.0), (0.7, 0.0)], api="threads", together=1, linger=0.0)
    with pytest.raises(AssertionError, match="left behind"):
        machine.teardown()
