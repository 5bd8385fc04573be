"""Hypothesis chooses the schedule, and would shrink what it finds."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from holdfast.testing.machine import LockMachine

TestLockMachine = LockMachine.TestCase
TestLockMachine.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
