"""What acquire and release promise in their headers, on every server."""

from __future__ import annotations

import pytest

from conformance.box import KEYS, LOCK, QUEUE, STATE, Box, token

A, B, C, D = (token(process) for process in "abcd")
KEEP = 600_000


def check_expiries(box: Box) -> None:
    assert box.keys_for_ever() == []
    for key in (STATE, QUEUE):
        if box.redis.exists(key):
            assert box.redis.pttl(key) >= KEEP


# acquire


def test_a_free_lock_is_taken(box: Box) -> None:
    before = box.now_us()
    status, fence = box.acquire(A)
    assert status == 1
    assert before < fence < box.now_us()
    assert box.holder() == A
    assert 29_000 < box.redis.pttl(LOCK) <= 30_000
    assert (box.state()["v"], box.fence()) == ("1", fence)
    assert box.redis.exists(QUEUE) == 0
    check_expiries(box)


def test_the_same_token_gets_the_same_answer(box: Box) -> None:
    first = box.acquire(A, 10_000)
    assert box.acquire(A, 30_000) == first
    assert box.redis.pttl(LOCK) > 29_000, "for the full lease"
    assert box.acquire(A, 10_000) == first
    assert box.redis.pttl(LOCK) > 29_000, "never for less: it may be a late copy"
    box.redis.persist(LOCK)
    assert box.acquire(A, 10_000) == first
    assert 9_000 < box.redis.pttl(LOCK) <= 10_000, "somebody took its expiry away"


def test_fences_rise_whatever_the_clock_says(box: Box) -> None:
    fences = []
    for number in range(5):
        fences.append(box.acquire(token("a", number))[1])
        box.release(token("a", number))
    assert fences == sorted(set(fences))
    ahead = box.now_us() + 60_000_000
    box.redis.hset(STATE, "fence", ahead)
    assert box.acquire(A) == [1, ahead + 1]
    assert box.acquire(A) == [1, ahead + 1]
    box.release(A)
    assert box.acquire(B) == [1, ahead + 2]
    box.redis.flushall()
    assert box.acquire(C)[1] > fences[-1], "the clock keeps them rising when all is forgotten"


def test_every_digit_of_a_fence_is_kept(box: Box) -> None:
    last = 2**53 - 1001
    box.redis.hset(STATE, "fence", last)
    assert box.acquire(A) == [1, last + 1]
    assert box.state()["fence"] == str(last + 1)


def test_the_holders_own_fence_when_the_state_was_lost(box: Box) -> None:
    _, fence = box.acquire(A)
    box.redis.delete(STATE)
    status, again = box.acquire(A)
    assert status == 1
    assert again > fence
    assert box.fence() == again
    check_expiries(box)


def test_busy_says_for_how_long_and_whose(box: Box) -> None:
    _, fence = box.acquire(A, 20_000)
    status, ms, last, process = box.acquire(B)
    assert (status, last, process) == (0, fence, b"a" * 12)
    assert 19_000 < ms <= 20_000


@pytest.mark.parametrize("value", ["foreign", "foreign." + "ab" * 16, "f0e1." + "xyz", ""])
def test_busy_with_a_foreign_holder(box: Box, value: str) -> None:
    box.redis.set(LOCK, value, px=60_000)
    box.redis.persist(LOCK)
    assert box.acquire(A) == [0, -1, 0, b""], "no end, and its value is nobody's business"
    box.redis.delete(LOCK)


def test_not_joining_writes_nothing(box: Box) -> None:
    box.acquire(A)
    before = box.dump()
    box.acquire(B)
    assert box.dump() == before


def test_joining(box: Box) -> None:
    box.acquire(A)
    for who in (C, B, D):
        assert box.acquire(who, join=True)[0] == 0
    assert box.line() == [C, B, D]
    at = int(box.state()[f"at:{C}"])
    assert 2_000 < at - box.now_us() // 1000 <= 3_000
    check_expiries(box)


def test_joining_twice_keeps_the_place(box: Box) -> None:
    box.acquire(A)
    for who in (B, C, B):
        box.acquire(who, join=True)
    assert box.line() == [B, C]


def test_order_is_that_of_arrival_even_if_the_clock_goes_back(box: Box) -> None:
    box.acquire(A)
    box.acquire(B, join=True)
    box.redis.zadd(QUEUE, {B: box.now_us() + 3_600_000_000})
    box.acquire(C, join=True)
    assert box.line() == [B, C]


def test_a_dead_token_is_refused(box: Box) -> None:
    box.release(A, "bury")
    for join in (False, True):
        assert box.acquire(A, join=join) == [-1]
    assert box.holder() is None
    assert box.line() == []
    assert box.acquire(B)[0] == 1


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("join", [False, True])
def test_data_of_another_kind_is_named_and_left_alone(box: Box, key: str, join: bool) -> None:
    box.redis.rpush(key, "precious")
    before = box.dump()
    assert box.acquire(A, join=join) == [-2, key.encode(), b"list"]
    assert box.dump() == before


@pytest.mark.parametrize("version", ["2", "10", ""])
def test_another_format_is_refused(box: Box, version: str) -> None:
    box.redis.hset(STATE, mapping={"v": version, "fence": 7})
    box.redis.expire(STATE, 60)
    before = box.dump()
    for join in (False, True):
        assert box.acquire(A, join=join) == [-3, version.encode()]
    assert box.dump() == before


# acquire, with others in line


def test_a_free_lock_goes_to_the_first_in_line(box: Box) -> None:
    box.listen("b", "c")
    box.acquire(A)
    box.acquire(B, join=True)
    box.acquire(C, join=True)
    box.redis.delete(LOCK)
    status, ms, fence, process = box.acquire(D)
    assert (status, process) == (0, b"b" * 12)
    assert 1_900 < ms <= 2_000, "for the claim window"
    assert box.holder() == B
    assert box.heard("b") == [f"1 {B} {fence}"]
    assert box.heard("c") == []
    assert box.line() == [C]
    check_expiries(box)


def test_the_first_in_line_takes_it_by_asking(box: Box) -> None:
    box.acquire(A)
    box.acquire(B, join=True)
    box.acquire(C, join=True)
    box.redis.delete(LOCK)
    assert box.acquire(B)[0] == 1
    assert box.holder() == B
    assert box.redis.pttl(LOCK) > 29_000, "for the full lease"
    assert box.line() == [C]


def test_joining_a_line_that_was_emptied_in_the_same_run(box: Box) -> None:
    """The new queue needs an expiry of its own."""
    box.listen("b")
    box.acquire(A)
    box.acquire(B, join=True)
    box.redis.delete(LOCK)
    assert box.acquire(C, join=True)[0] == 0
    assert box.holder() == B
    assert box.line() == [C]
    check_expiries(box)


def test_who_does_not_listen_is_passed_over_and_keeps_his_place(box: Box) -> None:
    box.listen("c")
    box.acquire(A)
    for who in (B, C):
        box.acquire(who, join=True)
    box.redis.delete(LOCK)
    box.acquire(D)
    assert box.holder() == C
    assert box.line() == [B]


def test_if_nobody_listens_the_newcomer_takes_it(box: Box) -> None:
    box.acquire(A)
    box.acquire(B, join=True)
    fence = box.fence()
    box.redis.delete(LOCK)
    status, mine = box.acquire(C)
    assert status == 1
    assert mine > fence + 1, "the number that was offered in vain is not used again"
    assert box.holder() == C
    assert box.line() == [B]


def test_who_has_not_shown_up_is_purged(box: Box) -> None:
    box.listen("b", "c")
    box.acquire(A)
    for who in (B, C):
        box.acquire(who, join=True)
    box.redis.hset(STATE, f"at:{B}", box.now_us() // 1000 - 1)
    box.redis.delete(LOCK)
    box.acquire(D)
    assert box.holder() == C
    assert box.line() == []


def test_a_place_that_the_state_has_forgotten_does_not_count(box: Box) -> None:
    box.listen("b")
    box.acquire(A)
    box.acquire(B, join=True)
    box.redis.delete(LOCK, STATE)
    assert box.acquire(C)[0] == 1
    assert box.redis.zcard(QUEUE) == 0


def test_one_run_purges_a_bounded_number(box: Box) -> None:
    box.acquire(A)
    for number in range(250):
        box.acquire(token("b", number), join=True)
    box.redis.hset(STATE, mapping={f"at:{token('b', number)}": 1 for number in range(250)})
    box.redis.delete(LOCK)
    box.acquire(C)
    assert len(box.line()) == 250 - 100


# release


def test_release_frees(box: Box) -> None:
    box.acquire(A)
    assert box.release(A) == 1
    assert box.holder() is None
    assert box.release(A) == 0
    assert box.redis.exists(QUEUE) == 0
    check_expiries(box)


def test_release_of_somebody_elses(box: Box) -> None:
    box.acquire(A)
    for mode in ("release", "leave", "bury"):
        assert box.release(B, mode) == -1
    assert box.holder() == A


def test_release_of_data_of_another_kind(box: Box) -> None:
    box.redis.rpush(LOCK, "precious")
    for mode in ("release", "leave", "bury"):
        assert box.release(A, mode) == -1
    assert box.redis.lrange(LOCK, 0, -1) == [b"precious"]


@pytest.mark.parametrize("key", [STATE, QUEUE])
def test_release_works_whatever_is_in_the_other_keys(box: Box, key: str) -> None:
    for mode in ("release", "leave", "bury"):
        box.clear()
        box.redis.set(LOCK, A, px=30_000)
        box.redis.rpush(key, "precious")
        assert box.release(A, mode) == 1
        assert box.holder() is None
        assert box.redis.lrange(key, 0, -1) == [b"precious"]


@pytest.mark.parametrize("mode", ["release", "leave", "bury"])
def test_release_hands_over_in_order(box: Box, mode: str) -> None:
    box.listen("b", "c")
    _, fence = box.acquire(A)
    for who in (B, C):
        box.acquire(who, join=True)
    assert box.release(A, mode) == 1
    assert box.holder() == B
    assert 1_900 < box.redis.pttl(LOCK) <= 2_000
    assert box.fence() > fence
    assert box.heard("b") == [f"1 {B} {box.fence()}"]
    assert box.line() == [C]
    assert box.release(A, mode) == -1, "a second copy hands over nothing"
    assert box.holder() == B
    assert box.release(B) == 1
    assert box.holder() == C
    check_expiries(box)


def test_release_of_a_lock_that_is_free_already_wakes_the_next(box: Box) -> None:
    box.listen("b")
    box.acquire(A)
    box.acquire(B, join=True)
    box.redis.delete(LOCK)
    assert box.release(A) == 0
    assert box.holder() == B


def test_if_nobody_listens_the_lock_is_free(box: Box) -> None:
    box.acquire(A)
    box.acquire(B, join=True)
    assert box.release(A) == 1
    assert box.holder() is None
    assert box.line() == [B]


def test_leaving_the_line(box: Box) -> None:
    box.acquire(A)
    for who in (B, C):
        box.acquire(who, join=True)
    assert box.release(B, "leave") == -1
    assert box.line() == [C]
    assert box.release(B, "release") == -1
    assert box.line() == [C]
    assert box.acquire(B, join=True)[0] == 0, "only a buried token is refused"
    assert box.line() == [C, B]


def test_burying_is_capped(box: Box) -> None:
    for number in range(130):
        box.release(token("a", number), "bury")
    assert len(box.state()["dead"].split()) == 100
    assert box.acquire(token("a", 29)) != [-1]
    assert box.acquire(token("a", 30)) == [-1]
    assert box.acquire(token("a", 129)) == [-1]
    check_expiries(box)


def test_burying_on_an_empty_server(box: Box) -> None:
    assert box.release(A, "bury") == 0
    assert box.state()["v"] == "1"
    assert set(box.dump()) == {STATE}
    check_expiries(box)


def test_release_under_another_format_frees_and_touches_nothing_else(box: Box) -> None:
    box.redis.set(LOCK, A, px=30_000)
    box.redis.hset(STATE, mapping={"v": "2", "fence": 7})
    box.redis.expire(STATE, 60)
    state = box.state()
    assert box.release(A, "bury") == 1
    assert box.holder() is None
    assert box.state() == state
