"""A wait ends when its time has come by the local clock, whoever looks first; and servers that say where they are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from holdfast._core.requests import Answer, TimedOut
from holdfast._core.waiting import Waiting
from holdfast._wire.endpoint import from_url, resolve
from holdfast.errors import ConfigError
from unit.waiters import busy, enlisted, put, queued, waiter


def test_who_has_no_time_left_is_told_and_asks_no_more() -> None:
    waiting, bounded, patient = Waiting(), waiter("p.1"), waiter("p.2")
    bounded.until = 10.0
    for this in (bounded, patient):
        queued(waiting, this)
    assert [len(refresh.batch) for refresh in waiting.due(9.9)] == [2]
    waiting.on_refreshed([bounded, patient], [busy()] * 2, 9.9, 9.9)
    assert put(bounded) == []
    assert [refresh.batch for refresh in waiting.due(31.0)] == [[patient]]
    assert put(bounded) == [TimedOut()]
    assert put(patient) == []
    assert len(waiting) == 1


def test_who_is_about_to_join_finds_that_his_time_is_over() -> None:
    waiting, this = Waiting(), waiter()
    this.until = 10.0
    waiting.on_listening(0.0)
    enlisted(waiting, this)
    assert waiting.due(10.0) == []
    waiting.joined(this, Answer(busy(), 9.0, 10.1), 10.1)
    assert put(this) == [TimedOut()]
    assert waiting.next_at() == float("inf")


def test_an_answer_to_who_has_timed_out_meanwhile_is_nobody_s() -> None:
    waiting, this = Waiting(), queued(Waiting(), waiter())
    this.until = 5.0
    queued(waiting, this)
    (refresh,) = waiting.due(1.0)
    assert waiting.due(6.0) == []
    waiting.on_refreshed(refresh.batch, [busy()], 1.0, 6.1)
    assert put(this) == [TimedOut()]


def test_what_has_a_url_is_a_server() -> None:
    for face in ("sync", "asyncio"):
        assert resolve(SimpleNamespace(url="redis://h:7000/3"), face) is from_url("redis://h:7000/3")
    for wrong in (SimpleNamespace(url=None), SimpleNamespace(url=5), object()):
        with pytest.raises(ConfigError, match="client"):
            resolve(wrong, "sync")
