"""`once`, in many histories: one run for a result, however things go wrong; and nobody waits for ever."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from holdfast._core.single_flight import flight
from holdfast._core.single_flight.flight import Load
from single_flight.sim.once_swarm import simulate

ENOUGH = {"stored": 500, "replayed": 500, "remembered": 100, "in progress": 50, "died running": 20, "lost": 50, "failed": 200,
          "cancelled": 50, "forgotten": 50, "unknown": 5, "not kept": 5}  # fmt: skip
"""Minimum counts of events in 1,000 histories; with fewer, they have proved nothing."""


def run(first: int, count: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + count):
        story = simulate(seed)
        assert story.wrong == [], f"seed {seed}"
        counts += story.counts
    assert {what: counts[what] for what, least in ENOUGH.items() if counts[what] < least * count / 1000} == {}


def test_hundreds_of_histories() -> None:
    run(0, 300)


def complaints(histories: int = 100) -> str:
    """Events that a few histories contain."""
    return " ".join(wrong for seed in range(histories) for wrong in simulate(seed).wrong)


def test_a_result_that_is_kept_too_shortly_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    land = flight.store_loaded

    async def forgetful(load: Load, kind: str, data: bytes, *, ttl: float, **more: Any) -> bool:
        return await land(load, kind, data, ttl=ttl / 100, **more)

    monkeypatch.setattr(flight, "store_loaded", forgetful)
    assert "again, whose result" in complaints()


def test_a_lease_that_is_believed_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Load, "remaining", lambda _load, _now: 1.0)
    assert "runs x while" in complaints(200)


def test_a_run_that_ends_without_a_word_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease is renewed for as long as somebody refers to it."""

    async def nothing(_load: Load) -> None:
        pass

    monkeypatch.setattr(flight, "cancel_load", nothing)
    assert "still waiting" in complaints(20)


@pytest.mark.soak
def test_twenty_thousand_histories() -> None:
    run(1_000_000, 20_000)
