"""When a process asks for its waiters, and what it makes of the answers: the rules of `_core/lock/server_queue.py`."""

from __future__ import annotations

import pytest

from holdfast._core.lock.replies import Busy, Held
from holdfast._core.lock.server_queue import BATCH, REFRESH_EVERY_S, REFRESH_OF_FOREIGN_LOCK_S, Waiting, refreshment
from holdfast._core.lock.spec import Permits, margin
from holdfast._core.permit import SCRIPTS
from holdfast._core.requests import Conflict, Down, Gone, Granted, NotSent
from support.waiters import INFINITY, busy, enlisted, put, queued, sent_by, waiter

# The schedule of refreshes


def test_nothing_is_sent_before_the_server_has_answered() -> None:
    waiting = Waiting()
    enlisted(waiting, waiter())
    waiting.on_listening(0.0, b"hf:")
    assert waiting.next_at() == INFINITY
    assert waiting.due(100.0) == []


def test_one_refresh_a_second() -> None:
    waiting = Waiting()
    queued(waiting, waiter())
    assert sent_by(waiting, 9.5) == [(float(n), 1) for n in range(1, 10)]


def test_one_refresh_when_the_lease_that_was_reported_ends() -> None:
    waiting = Waiting()
    this = queued(waiting, waiter(), answer=busy(remaining=0.3))
    assert 0.3 <= this.refresh_at <= 0.31


def test_a_key_that_never_expires_is_asked_for_every_second() -> None:
    waiting = Waiting()
    queued(waiting, waiter(), answer=Busy(None, 5, "another", lingers=False))
    assert waiting.next_at() == REFRESH_EVERY_S


@pytest.mark.parametrize("remaining", [None, 30.0])
def test_a_client_of_another_library_notifies_nobody_so_its_lock_is_asked_for_more_often(remaining: float | None) -> None:
    waiting = Waiting()
    foreign = queued(waiting, waiter("p.1"), answer=Busy(remaining, 5, "", lingers=False))
    queued(waiting, waiter("p.2"), answer=busy())
    sizes = []
    now = waiting.next_at()
    while now < REFRESH_EVERY_S:
        (refresh,) = waiting.due(now)
        assert refresh.batch == [foreign], "the other waiter is notified"
        sizes.append(len(refresh.batch))
        waiting.on_refreshed(refresh.batch, [Busy(remaining, 5, "", lingers=False)], now, now)
        now = waiting.next_at()
    assert len(sizes) == pytest.approx(REFRESH_EVERY_S / REFRESH_OF_FOREIGN_LOCK_S, abs=1)
    (refresh,) = waiting.due(REFRESH_EVERY_S)
    assert len(refresh.batch) == 2
    waiting.on_refreshed(refresh.batch, [busy(), busy()], now, now)  # a client of holdfast has it now
    assert waiting.next_at() == now + REFRESH_EVERY_S


def test_permits_whose_holder_is_not_known_are_asked_for_every_second() -> None:
    waiting = Waiting()
    this = waiter()
    this.attempt.spec = this.attempt.spec._replace(permits=Permits(SCRIPTS, "semaphore 1", 1, 2))
    queued(waiting, this, answer=Busy(30.0, 5, "", lingers=False))
    assert waiting.next_at() == REFRESH_EVERY_S


def test_who_comes_after_a_quiet_time_is_not_asked_for_at_once() -> None:
    """The round of those who waited before is over."""
    waiting = Waiting()
    waiting.unregister_waiter(queued(waiting, waiter("p.1")))
    assert waiting.next_at() == INFINITY
    queued(waiting, waiter("p.2"), sent=100.0, now=100.0)
    assert waiting.due(100.0) == []
    assert waiting.next_at() == 101.0


def test_all_waiters_of_a_process_share_one_refresh_a_second() -> None:
    """They came at different moments; that must not make it one refresh a second for each of them."""
    waiting = Waiting()
    for n in range(10):
        queued(waiting, waiter(f"p.{n}"), sent=n / 10, now=n / 10)
    seen = sent_by(waiting, 10.0)
    assert len(seen) <= 11, f"{len(seen)} refreshes in 10 seconds"
    assert seen[-1][1] == 10


def test_a_batch_is_kept_short() -> None:
    waiting = Waiting()
    those = [queued(waiting, waiter(f"p.{n}")) for n in range(2 * BATCH + 1)]
    batches = [refresh.batch for refresh in waiting.due(1.0)]
    assert [len(batch) for batch in batches] == [BATCH, BATCH, 1]
    assert [this for batch in batches for this in batch] == those


def test_after_the_inbox_was_subscribed_again_each_waiter_is_asked_for_once() -> None:
    waiting = Waiting()
    queued(waiting, waiter())
    waiting.on_silence()
    waiting.on_listening(0.2, b"hf:")
    (refresh,) = waiting.due(waiting.next_at())
    waiting.on_refreshed(refresh.batch, [busy()], 0.2, 0.2)
    assert waiting.next_at() == REFRESH_EVERY_S


def test_who_is_being_asked_for_is_not_asked_for_again() -> None:
    waiting = Waiting()
    this = queued(waiting, waiter())
    assert len(waiting.due(1.0)) == 1
    assert waiting.due(5.0) == []
    assert waiting.next_at() == INFINITY
    waiting.on_refreshed([this], [busy()], 1.0, 1.1)
    assert waiting.next_at() == pytest.approx(2.1)


def test_the_time_limit_suits_the_shortest_lease() -> None:
    waiting = Waiting()
    assert waiting.timeout == 1.0
    those = [queued(waiting, waiter("p.1")), queued(waiting, waiter("p.2", ttl=1.0))]
    assert waiting.timeout == those[1].attempt.spec.timeout


# Answers to refreshes


def test_held_by_answer_is_the_full_lease_from_the_send_time() -> None:
    waiting = Waiting()
    this = queued(waiting, waiter())
    waiting.on_refreshed(waiting.due(1.0)[0].batch, [Held(6, 38)], 1.0, 1.2)
    assert put(this) == [Granted(6, 1.0 + 30.0 - margin(30.0), in_claim_window=False)]


def test_held_by_answer_respects_max_hold() -> None:
    waiting = Waiting()
    this = queued(waiting, waiter(max_hold=2.0))
    waiting.on_refreshed(waiting.due(1.0)[0].batch, [Held(6, 38)], 1.0, 1.2)
    assert put(this) == [Granted(6, 1.0 + 2.0 - margin(2.0), in_claim_window=False)]


@pytest.mark.parametrize(("former", "heir", "short"), [(2.0, 30.0, True), (30.0, 2.0, False)])
def test_a_place_that_is_inherited_during_a_refresh_has_the_lease_that_was_requested(
    former: float, heir: float, *, short: bool
) -> None:
    """The server goes by the request: an heir that believed in a longer lease of its own would hold it beside the next."""
    waiting = Waiting()
    this = queued(waiting, waiter(ttl=former))
    batch = waiting.due(1.0)[0].batch
    request = refreshment(batch, b"inbox", 1.0)
    assert request.args == (b"inbox", "p.1", int(1000 * former))
    this.move_to(waiter("p.2", ttl=heir).attempt)
    waiting.on_refreshed(batch, [Held(6, 38)], 1.0, 1.2)
    assert put(this) == [Granted(6, 1.0 + 2.0 - margin(2.0), in_claim_window=short)]


def test_held_but_answered_after_the_lease_is_asked_again() -> None:
    waiting = Waiting()
    this = queued(waiting, waiter())
    waiting.on_refreshed(waiting.due(1.0)[0].batch, [Held(6, 38)], 1.0, 31.0)
    assert put(this) == []
    assert waiting.due(31.0)[0].batch == [this]


@pytest.mark.parametrize("reply", [Gone(), Conflict("a list is there")])
def test_gone_and_conflict_end_the_wait(reply: Gone | Conflict) -> None:
    waiting = Waiting()
    this = queued(waiting, waiter())
    waiting.on_refreshed(waiting.due(1.0)[0].batch, [reply], 1.0, 1.1)
    assert put(this) == [reply]
    assert len(waiting) == 0
    this.attempt.may_be_on_server = False
    assert waiting.on_message("p.1", 6, 1.2) is not None, "a grant that still comes is handed on"


def test_an_answer_for_somebody_who_left_meanwhile_is_dropped() -> None:
    waiting = Waiting()
    this = queued(waiting, waiter())
    batch = waiting.due(1.0)[0].batch
    waiting.unregister_waiter(this)
    waiting.on_refreshed(batch, [Held(6, 38)], 1.0, 1.1)
    assert put(this) == []


def test_each_gets_his_own_answer() -> None:
    waiting = Waiting()
    those = [queued(waiting, waiter(f"p.{n}")) for n in range(3)]
    waiting.on_refreshed(waiting.due(1.0)[0].batch, [busy(), Held(6, 38), Gone()], 1.0, 1.1)
    assert [len(put(this)) for this in those] == [0, 1, 1]


# Failures


def test_a_failed_refresh_is_repeated_soon_and_then_slower() -> None:
    waiting = Waiting()
    this = queued(waiting, waiter())
    now, pauses = 1.0, []
    for _ in range(8):
        batch = waiting.due(now)[0].batch
        waiting.on_failed(batch, NotSent("away"), now)
        pauses.append(this.refresh_at - now)
        now = this.refresh_at
    assert all(0.05 <= pause <= REFRESH_EVERY_S for pause in pauses)
    assert pauses == sorted(pauses)
    assert put(this) == []


def test_patience_ends_a_wait_that_nobody_answers() -> None:
    waiting = Waiting()
    this = queued(waiting, waiter(until=None))
    error = NotSent("away")
    waiting.on_failed([this], error, 30.0)
    assert put(this) == []
    assert this.down is error
    waiting.on_failed([this], error, 30.1)
    assert put(this) == [Down(error)]
    waiting.on_failed([this], error, 31.0)
    assert len(put(this)) == 1


def test_an_answer_renews_patience_and_clears_the_trouble() -> None:
    waiting = Waiting()
    this = queued(waiting, waiter(until=None))
    waiting.on_failed([this], NotSent("away"), 29.0)
    waiting.on_refreshed([this], [busy()], 29.5, 29.6)
    assert this.down is None
    waiting.on_failed([this], NotSent("away"), 59.0)
    assert put(this) == []


def test_when_the_process_stops_everybody_is_told() -> None:
    waiting = Waiting()
    those = [queued(waiting, waiter("p.1")), waiter("p.2")]
    enlisted(waiting, those[1])
    error = NotSent("closed")
    waiting.close(error)
    assert [put(this)[-1] for this in those] == [Down(error)] * 2
    assert len(waiting) == 0
