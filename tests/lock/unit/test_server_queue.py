"""The state of a process about its waiters, and its handling of messages: the rules of `_core/lock/server_queue.py`."""

from __future__ import annotations

import pytest

from holdfast._core.lock.replies import CLAIM_WINDOW_S, Held
from holdfast._core.lock.server_queue import REMEMBERED, USABLE_LEFT_S, Waiting
from holdfast._core.lock.spec import margin
from holdfast._core.requests import Answer, Down, Granted, NotSent, Refused, RunScript
from support.waiters import busy, enlisted, put, queued, sent_by, waiter

# The inbox


def test_who_enlists_before_the_inbox_listens_is_woken_when_it_does() -> None:
    waiting, this = Waiting(), waiter()
    assert enlisted(waiting, this) is False
    assert put(this) == []
    waiting.on_listening(1.0, b"hf:")
    assert put(this) == [None]


def test_who_enlists_while_the_inbox_listens_is_not_woken() -> None:
    waiting, this = Waiting(), waiter()
    waiting.on_listening(0.0, b"hf:")
    assert enlisted(waiting, this) is True
    waiting.on_listening(1.0, b"hf:")
    assert put(this) == []


@pytest.mark.parametrize("listening", [False, True])
def test_nobody_is_told_twice_that_the_inbox_listens(listening: bool) -> None:
    """The inbox is lost and comes back while a waiter is about to join: what is put into its slot then would be taken for
    the end of its wait."""
    waiting, this = Waiting(), waiter()
    if listening:
        waiting.on_listening(0.0, b"hf:")
    enlisted(waiting, this)
    waiting.on_listening(0.0, b"hf:")
    put(this).clear()
    waiting.on_silence()
    waiting.on_listening(1.0, b"hf:")
    assert put(this) == []


def test_a_new_subscription_asks_for_everybody_at_once() -> None:
    waiting = Waiting()
    those = [queued(waiting, waiter(f"p.{n}")) for n in range(3)]
    assert waiting.due(0.5) == []
    waiting.on_silence()
    assert not waiting.listening
    waiting.on_listening(0.5, b"hf:")
    assert waiting.listening
    assert [refresh.batch for refresh in waiting.due(0.5)] == [those]
    assert [put(this) for this in those] == [[], [], []]


@pytest.mark.parametrize("question", ["join", "refresh"])
def test_what_was_asked_before_a_new_subscription_is_asked_again_at_once(question: str) -> None:
    """The hand-over may have been published between the one and the other, and the answer is from before it."""
    waiting, this = Waiting(), waiter("p.1")
    waiting.on_listening(0.0, b"hf:")
    enlisted(waiting, this)
    if question == "refresh":
        queued(waiting, this)
        assert waiting.due(1.0)
    waiting.on_silence()
    waiting.on_listening(1.2, b"hf:")
    if question == "refresh":
        waiting.on_refreshed([this], [busy()], 1.0, 1.3)
    else:
        waiting.joined(this, Answer(busy(), 1.0, 1.3), 1.3)
    assert waiting.next_at() == 1.3


def test_the_refresh_goes_on_without_an_inbox() -> None:
    waiting = Waiting()
    queued(waiting, waiter())
    waiting.on_silence()
    assert [at for at, _ in sent_by(waiting, 3.5)] == [1.0, 2.0, 3.0]


def test_an_inbox_that_cannot_be_opened_is_waited_for_as_long_as_patience_allows() -> None:
    waiting, this = Waiting(), waiter(until=None)
    enlisted(waiting, this)
    error = NotSent("nobody there")
    waiting.on_unreachable(error, 30.0, b"hf:")
    assert put(this) == []
    assert this.down is error
    waiting.on_unreachable(error, 30.1, b"hf:")
    assert put(this) == [Down(error)]
    assert len(waiting) == 0


def test_an_inbox_that_is_forbidden_is_an_error_at_once() -> None:
    for error, at_once in [(Refused("NOPERM no channels"), True), (Refused("LOADING"), False), (NotSent("x"), False)]:
        waiting, this = Waiting(), waiter()
        enlisted(waiting, this)
        waiting.on_unreachable(error, 0.1, b"hf:")
        assert put(this) == ([Down(error)] if at_once else [])


def test_who_has_a_place_does_not_mind_an_inbox_that_cannot_be_opened() -> None:
    waiting = Waiting()
    this = queued(waiting, waiter(until=None))
    waiting.on_unreachable(Refused("NOPERM"), 50.0, b"hf:")
    assert put(this) == []


def test_what_was_wrong_is_forgotten_when_the_server_is_back() -> None:
    waiting = Waiting()
    this = queued(waiting, waiter())
    waiting.on_unreachable(NotSent("x"), 0.1, b"hf:")
    assert this.down
    waiting.on_listening(0.2, b"hf:")
    assert this.down is None


# Hand-over by message


def test_a_grant_counts_from_the_send_time_of_the_last_answer() -> None:
    waiting = Waiting()
    this = queued(waiting, waiter(), sent=10.0, now=10.3)
    assert waiting.on_message("p.1", 6, 11.0) is None
    assert put(this) == [Granted(6, 10.0 + CLAIM_WINDOW_S - margin(CLAIM_WINDOW_S), in_claim_window=True)]
    assert len(waiting) == 0


def test_a_grant_is_used_only_while_enough_of_the_claim_window_is_left() -> None:
    edge = CLAIM_WINDOW_S - margin(CLAIM_WINDOW_S) - USABLE_LEFT_S
    for now, used in [(edge - 0.001, True), (edge, True), (edge + 0.001, False)]:
        waiting = Waiting()
        this = queued(waiting, waiter())
        waiting.on_message("p.1", 6, now)
        assert bool(put(this)) is used
        if not used:
            assert waiting.due(now)[0].batch == [this], "asks at once instead"


@pytest.mark.parametrize("fence", [1, 4, 5])
def test_an_old_grant_is_ignored(fence: int) -> None:
    """Its fence is not greater than the last one that the server had issued when it said "waiting"."""
    waiting = Waiting()
    this = queued(waiting, waiter())
    assert waiting.on_message("p.1", fence, 0.1) is None
    assert put(this) == []
    assert waiting.due(0.1) == []


def test_a_grant_that_was_new_is_old_after_a_later_answer() -> None:
    waiting = Waiting()
    this = queued(waiting, waiter())
    batch = waiting.due(1.0)[0].batch
    waiting.on_refreshed(batch, [busy(last_fence=9)], 1.0, 1.1)
    waiting.on_message("p.1", 8, 1.2)
    assert put(this) == []
    waiting.on_message("p.1", 10, 1.2)
    assert put(this) == [Granted(10, 1.0 + CLAIM_WINDOW_S - margin(CLAIM_WINDOW_S), in_claim_window=True)]


def test_a_message_before_the_answer_that_queued_us_is_remembered() -> None:
    waiting, this = Waiting(), waiter()
    enlisted(waiting, this)
    waiting.on_listening(0.0, b"hf:")
    put(this).clear()
    assert waiting.on_message("p.1", 6, 0.1) is None
    assert put(this) == [], "not before the answer"
    waiting.joined(this, Answer(busy(), 0.05, 0.2), 0.2)
    assert put(this) == [Granted(6, 0.05 + CLAIM_WINDOW_S - margin(CLAIM_WINDOW_S), in_claim_window=True)]


def test_an_old_message_before_the_answer_grants_nothing() -> None:
    waiting, this = Waiting(), waiter()
    enlisted(waiting, this)
    waiting.on_listening(0.0, b"hf:")
    put(this).clear()
    waiting.on_message("p.1", 5, 0.1)
    waiting.joined(this, Answer(busy(), 0.05, 0.2), 0.2)
    assert put(this) == []


def test_a_grant_settles_once() -> None:
    waiting = Waiting()
    this = queued(waiting, waiter())
    assert waiting.on_message("p.1", 6, 0.1) is None
    assert waiting.on_message("p.1", 6, 0.2) is None
    assert waiting.on_message("p.1", 7, 0.2) is None
    assert len(put(this)) == 1


# Messages for nobody


def test_a_token_that_was_never_here_is_nobodys_business() -> None:
    assert Waiting().on_message("p.99", 6, 0.0) is None


def test_a_grant_for_somebody_who_left_is_handed_on_at_once() -> None:
    waiting = Waiting()
    this = queued(waiting, waiter())
    waiting.unregister_waiter(this)
    assert waiting.on_message("p.1", 6, 0.1) is None, "it is about to be given up, which hands on as well"
    this.attempt.may_be_on_server = False
    leave = waiting.on_message("p.1", 6, 0.1)
    assert isinstance(leave, RunScript)
    assert leave.script.name == "lock/release"
    assert leave.keys == this.attempt.spec.keys
    assert leave.args == ("p.1", "leave")


def test_a_grant_that_was_taken_up_is_never_handed_on() -> None:
    for by_message in (True, False):
        waiting = Waiting()
        this = queued(waiting, waiter())
        if by_message:
            waiting.on_message("p.1", 6, 0.1)
        else:
            waiting.on_refreshed(waiting.due(1.0)[0].batch, [Held(6, 38)], 1.0, 1.1)
        waiting.unregister_waiter(this)
        assert waiting.on_message("p.1", 6, 1.2) is None


def test_a_grant_that_was_learnt_by_asking_is_never_handed_on() -> None:
    """The answer to its acquire said "held" while it was on the list; it is delisted, and the message comes after."""
    waiting, this = Waiting(), waiter()
    enlisted(waiting, this)
    waiting.unregister_waiter(this)
    assert waiting.on_message("p.1", 6, 1.0) is None


def test_a_grant_under_a_token_that_was_replaced_is_handed_on() -> None:
    waiting = Waiting()
    this = queued(waiting, waiter())
    waiting.unregister_waiter(this)
    this.attempt.token = "p.2"
    leave = waiting.on_message("p.1", 6, 1.0)
    assert leave is not None
    assert leave.args == ("p.1", "leave")


def test_those_who_left_are_forgotten_after_a_thousand_more() -> None:
    waiting = Waiting()
    for n in range(REMEMBERED + 1):
        this = queued(waiting, waiter(f"p.{n}"))
        waiting.unregister_waiter(this)
        this.attempt.may_be_on_server = False
    assert waiting.on_message("p.0", 6, 0.0) is None
    assert waiting.on_message("p.1", 6, 0.0) is not None


def test_delisting_twice_or_unknown_does_nothing() -> None:
    waiting = Waiting()
    this = queued(waiting, waiter())
    waiting.unregister_waiter(this)
    waiting.unregister_waiter(this)
    waiting.unregister_waiter(waiter("p.2"))
    assert len(waiting) == 0
    assert waiting.on_message("p.2", 6, 0.0) is None


def test_each_subscription_of_an_inbox_has_the_next_number() -> None:
    waiting, numbers = Waiting(), list[int]()
    for _ in range(3):
        numbers.append(waiting.subscription(b"hf:"))
        waiting.on_listening(1.0, b"hf:")
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
