"""The promises of exchange_token, on every server."""

from __future__ import annotations

import pytest
import redis

from holdfast._core.lock.replies import BLOCK
from holdfast._lua import codes, source
from support.box import LOCK, MARKER, QUEUE, STATE, Box, token

A, B, C, D, T = (token(process) for process in "abcde")


def test_a_held_lock_is_handed_on_with_higher_fences(box: Box) -> None:
    _, _, last = box.acquire(A, 10_000)
    done, first, upto, ends = box.rotate(A, T, 60_000)
    assert (done, upto) == (1, first + BLOCK - 1)
    assert first > last
    assert box.holder() == T
    assert 59_000 < box.redis.pttl(LOCK) <= 60_000
    assert abs(ends - box.now_us() // 1000 - box.redis.pttl(LOCK)) < 500
    done, again, _, _ = box.rotate(T, B, 5_000, ends)
    assert again > upto
    assert box.holder() == B
    assert box.redis.pttl(LOCK) <= 5_000, "of the new holder, not of the ticket"
    assert box.keys_for_ever() == []


def test_the_same_two_get_the_same_answer(box: Box) -> None:
    box.acquire(A)
    first = box.rotate(A, T, 10_000)
    again = box.rotate(A, T, 10_000)
    assert again[:3] == first[:3]
    assert box.last() == first[2]
    assert box.rotate(A, T, 60_000)[3] > first[3] + 40_000
    box.rotate(A, T, 1_000)
    assert box.redis.pttl(LOCK) > 50_000, "never less: it may be a late copy"


def test_a_ticket_is_good_for_once(box: Box) -> None:
    box.acquire(A)
    *_, ends = box.rotate(A, T)
    box.rotate(T, B, 30_000, ends)
    before = box.dump()
    assert box.rotate(T, C, 30_000, ends) == [codes.NO_CLAIM]
    box.release(B)
    assert box.rotate(T, C, 30_000, ends) == [codes.NO_CLAIM], "nor when the lock is free"
    assert box.holder() is None
    assert before[STATE] == box.dump()[STATE]


def test_nothing_that_the_giver_has_sent_does_anything(box: Box) -> None:
    box.acquire(A)
    box.rotate(A, T)
    assert box.renew(A) == codes.NO_CLAIM
    assert box.release(A) == codes.NO_CLAIM
    assert box.rotate(A, C) == [codes.NO_CLAIM], "no second ticket"
    assert box.holder() == T
    box.release(T)
    assert box.acquire(A) == [codes.NO_CLAIM], "a late copy of the request that took it"
    assert box.holder() is None


@pytest.mark.parametrize("other", [None, B], ids=["free", "somebody else's"])
def test_when_its_time_is_over_or_it_was_taken_away(box: Box, other: str | None) -> None:
    box.acquire(A)
    *_, ends = box.rotate(A, T)
    box.redis.delete(LOCK)
    if other is not None:
        box.acquire(other)
    assert box.rotate(T, C, 30_000, ends) == [codes.LOST], "before its time"
    assert box.rotate(T, C, 30_000, box.now_us() // 1000 - 1) == [0]
    assert box.holder() == other


def test_who_is_dead_gets_nothing(box: Box) -> None:
    """Redemption was given up; a late copy of the request comes."""
    box.acquire(A)
    *_, ends = box.rotate(A, T)
    assert box.release(B, "bury") == codes.NO_CLAIM
    assert box.rotate(T, B, 30_000, ends) == [codes.NO_CLAIM]
    assert box.holder() == T
    assert box.rotate(T, C, 30_000, ends)[0] == 1, "the ticket is as good as it was"


def test_those_in_line_keep_their_places(box: Box) -> None:
    box.listen("b", "c")
    box.acquire(A)
    box.acquire(B, join=True)
    box.acquire(C, join=True)
    *_, ends = box.rotate(A, T)
    assert box.line() == [B, C]
    box.rotate(T, D, 30_000, ends)
    assert box.line() == [B, C]
    assert box.refresh(B, inbox="b")[1][2] == box.last(), "and know the last fence"
    box.release(D)
    assert box.holder() == B
    assert box.line() == [C]


def test_a_ticket_that_nobody_redeems_falls_to_the_next_in_line(box: Box) -> None:
    box.listen("b")
    box.acquire(A)
    box.acquire(B, join=True)
    box.rotate(A, T)
    box.redis.delete(LOCK)  # as its end does
    assert box.refresh(B, inbox="b")[1][0] == 1
    assert box.holder() == B


def test_when_memory_is_full(box: Box) -> None:
    box.acquire(A)
    box.redis.config_set("maxmemory", 1)
    try:
        *_, ends = box.rotate(A, T)
        assert box.rotate(T, B, 30_000, ends)[0] == 1
        assert box.holder() == B
    finally:
        box.redis.config_set("maxmemory", 0)


def test_other_data_and_other_formats_are_left_alone(box: Box) -> None:
    box.redis.rpush(LOCK, "data")
    assert box.rotate(A, T) == [codes.WRONG_TYPE, LOCK.encode(), b"list"]
    box.redis.delete(LOCK)
    box.acquire(A)
    box.redis.hset(STATE, "v", "2")
    before = box.dump()
    assert box.rotate(A, T) == [-3, b"2"]
    assert box.dump() == before
    assert box.redis.exists(QUEUE) == 0


def test_the_state_is_lost(box: Box) -> None:
    _, _, last = box.acquire(A)
    box.redis.delete(STATE)
    _, first, upto, ends = box.rotate(A, T)
    assert first > last
    box.redis.delete(STATE)
    assert box.rotate(T, B, 30_000, ends)[1] > upto
    assert box.keys_for_ever() == []


def test_a_server_that_may_have_forgotten_hands_nothing_on(box: Box) -> None:
    box.redis.eval(source("quorum/declare_new"), 1, MARKER, 30_000, "", 0)
    box.acquire(A, quarantine=30_000)
    *_, ends = box.rotate(A, T, quarantine=30_000)
    box.redis.hset(MARKER, "run", "another")
    code, ms = box.rotate(T, B, 30_000, ends, quarantine=30_000)
    assert code == codes.QUARANTINED
    assert 29_000 < ms <= 30_302
    assert box.holder() == T
    assert box.rotate(A, T, quarantine=30_000)[0] == 1, "what it has done it says again"
    with pytest.raises(redis.ResponseError, match="quarantine=30"):
        box.rotate(T, B, 30_000, ends, quarantine=20_000)


@pytest.mark.parametrize("value", ["1", "1.5", "on", "12.5e", f"{'a' * 12}.{'0' * 31}", f"{'a' * 12}.{'0' * 32} "])
def test_an_ordinary_key_is_not_taken_for_a_lock(box: Box, value: str) -> None:
    """A client that knows the value may have forged a ticket with it as its token."""
    box.redis.set(LOCK, value, px=60_000)
    before = box.dump()
    assert box.rotate(value, B, 30_000, 10**13) == [codes.LOST]
    assert box.dump() == before


def test_a_lock_of_another_make_is_no_ticket_either(box: Box) -> None:
    box.acquire(A)
    box.redis.set(LOCK, "its secret", px=60_000)
    assert box.rotate("its secret", B, 30_000, 10**13) == [codes.LOST]
    assert box.holder() == "its secret"
