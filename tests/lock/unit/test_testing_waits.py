"""A wait ends when its time has come by the local clock, whoever looks first; and servers that say where they are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from holdfast._core.lock.records import Attempt
from holdfast._core.lock.replies import Held, Reply
from holdfast._core.lock.server_queue import Waiting
from holdfast._core.requests import Answer, TimedOut
from holdfast._net.resolve import resolve
from holdfast._net.url import from_url
from holdfast.errors import ConfigError
from support.driver import Slot, slot_of
from support.waiters import busy, enlisted, put, queued, waiter


def test_who_has_no_time_left_is_told_once_and_his_place_stays_until_he_takes_it_away() -> None:
    """Somebody else of this process may inherit it."""
    waiting, bounded, patient = Waiting(), waiter("p.1", until=10.0), waiter("p.2")
    for this in (bounded, patient):
        queued(waiting, this)
    assert [len(refresh.batch) for refresh in waiting.due(9.9)] == [2]
    waiting.on_refreshed([bounded, patient], [busy()] * 2, 9.9, 9.9)
    assert put(bounded) == []
    assert [refresh.batch for refresh in waiting.due(31.0)] == [[bounded, patient]]
    assert put(bounded) == [TimedOut()]
    assert put(patient) == []
    assert waiting.is_waiting(bounded)
    waiting.on_refreshed([bounded, patient], [busy()] * 2, 31.0, 31.0)
    waiting.unregister_waiter(bounded)
    assert [refresh.batch for refresh in waiting.due(33.0)] == [[patient]]
    assert put(bounded) == [TimedOut()]
    assert not waiting.is_waiting(bounded)


def test_who_inherits_a_place_is_told_of_his_own_end() -> None:
    waiting, this = Waiting(), waiter(until=10.0)
    former, heir = this.attempt, Attempt(this.attempt.spec, until=20.0, slot=Slot())
    queued(waiting, this)
    waiting.due(10.0)
    this.move_to(heir)
    assert waiting.is_waiting(this)
    assert (heir.token, heir.may_be_on_server, former.token, former.may_be_on_server) == ("p.1", True, "", False)
    waiting.due(19.9)
    assert put(this) == []
    waiting.due(20.0)
    assert put(this) == [TimedOut()]
    assert slot_of(former).outcomes == [TimedOut()]


def test_who_is_about_to_join_finds_that_his_time_is_over() -> None:
    waiting, this = Waiting(), waiter(until=10.0)
    waiting.on_listening(0.0, b"hf:")
    enlisted(waiting, this)
    assert waiting.due(10.0) == []
    waiting.joined(this, Answer(busy(), 9.0, 10.1), 10.1)
    assert put(this) == [TimedOut()]
    waiting.unregister_waiter(this)
    assert waiting.next_at() == float("inf")


@pytest.mark.parametrize("answer", [busy(), Held(6, 38)], ids=["waiting", "granted"])
def test_an_answer_to_who_has_timed_out_and_gone_meanwhile_is_nobody_s(answer: Reply) -> None:
    waiting, this = Waiting(), waiter(until=5.0)
    queued(waiting, this)
    (refresh,) = waiting.due(1.0)
    assert waiting.due(6.0) == [], "one question at a time"
    waiting.unregister_waiter(this)
    waiting.on_refreshed(refresh.batch, [answer], 1.0, 6.1)
    assert put(this) == [TimedOut()]


def test_what_has_a_url_is_a_server() -> None:
    for api in ("sync", "asyncio"):
        assert resolve(SimpleNamespace(url="redis://h:7000/3"), api) is from_url("redis://h:7000/3")
    for wrong in (SimpleNamespace(url=None), SimpleNamespace(url=5), object()):
        with pytest.raises(ConfigError, match="client"):
            resolve(wrong, "sync")
