"""The promises of acquire and release, on every server."""

from __future__ import annotations

import pytest

from holdfast._core.lock.replies import BLOCK
from holdfast._lua import Script, codes, whole_number
from support.box import KEYS, LOCK, QUEUE, STATE, Box, token

A, B, C, D = (token(process) for process in "abcd")
KEEP = 600_000


def check_expiries(box: Box) -> None:
    assert box.keys_for_ever() == []
    for key in (STATE, QUEUE):
        if box.redis.exists(key):
            assert KEEP <= box.redis.pttl(key) <= 2 * KEEP


# acquire


def test_the_state_is_kept_for_longer_than_the_longest_lease(box: Box) -> None:
    long = 2 * KEEP
    assert box.acquire(A, long)[0] == 1
    assert 3 * long < box.redis.pttl(STATE) <= 4 * long


def test_a_free_lock_is_taken(box: Box) -> None:
    before = box.now_us()
    status, fence, last = box.acquire(A)
    assert status == 1
    assert before < fence < box.now_us()
    assert last == fence + BLOCK - 1 == box.last(), "numbers for passing it on inside the process"
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


@pytest.mark.fault(64, 66)
def test_fences_rise_whatever_the_clock_says(box: Box) -> None:
    fences = []
    for number in range(5):
        fences += box.acquire(token("a", number))[1:]
        box.release(token("a", number))
    assert fences == sorted(set(fences))
    ahead = box.now_us() + 60_000_000
    box.redis.hset(STATE, "fence", ahead)
    assert box.acquire(A) == [1, ahead + 1, ahead + BLOCK]
    assert box.acquire(A) == [1, ahead + 1, ahead + BLOCK]
    box.release(A)
    assert box.acquire(B) == [1, ahead + BLOCK + 1, ahead + 2 * BLOCK]
    box.redis.flushall()
    assert box.acquire(C)[1] > fences[-1], "the clock keeps them rising when all is forgotten"


@pytest.mark.fault(64)
def test_every_digit_of_a_fence_is_kept(box: Box) -> None:
    last = 2**53 - 1001
    box.redis.hset(STATE, "fence", last)
    assert box.acquire(A) == [1, last + 1, last + BLOCK]
    assert box.state()["fence"] == str(last + BLOCK)
    assert box.acquire(A, more=100) == [1, last + BLOCK + 1, last + BLOCK + 100]
    assert box.state()["fence"] == str(last + BLOCK + 100)


def test_the_holder_gets_more_fences(box: Box) -> None:
    _, first, last = box.acquire(A, 10_000)
    assert box.acquire(A, 30_000, more=5) == [1, last + 1, last + 5]
    assert box.redis.pttl(LOCK) > 29_000, "and the full lease"
    assert box.acquire(A, 10_000, more=BLOCK) == [1, last + 6, last + 5 + BLOCK]
    assert box.redis.pttl(LOCK) > 29_000, "never less"
    assert box.last() == last + 5 + BLOCK
    assert box.acquire(B, more=5)[:1] == [0], "not for others"
    assert box.last() == last + 5 + BLOCK
    box.release(A)
    assert box.acquire(B)[1] > last + 5 + BLOCK > first


def test_who_wants_more_fences_of_a_lock_that_he_has_lost_takes_it_anew(box: Box) -> None:
    _, _, last = box.acquire(A)
    for lost in (LOCK, STATE):
        box.redis.delete(lost)
        status, first, last_now = box.acquire(A, more=5)
        assert (status, last_now) == (1, first + BLOCK - 1)
        assert first > last
        last = last_now
    check_expiries(box)


def test_the_holders_own_fence_when_the_state_was_lost(box: Box) -> None:
    _, _, last = box.acquire(A)
    box.redis.delete(STATE)
    status, again, _ = box.acquire(A)
    assert status == 1
    assert again > last
    assert box.fence() == again
    check_expiries(box)


def test_busy_says_for_how_long_and_whose(box: Box) -> None:
    _, _, issued = box.acquire(A, 20_000)
    status, ms, last, process, lingers = box.acquire(B)
    assert (status, last, process, lingers) == (0, issued, b"a" * 12, 0)
    assert 19_000 < ms <= 20_000


def test_busy_says_if_the_holder_may_keep_it_after_use(box: Box) -> None:
    lingering = token("a", lingers=True)
    grant = box.acquire(lingering)
    assert box.acquire(B)[3:] == [b"a" * 12, 1]
    assert box.acquire(lingering) == grant
    assert box.renew(lingering) == 1
    assert box.release(A) == codes.NO_CLAIM, "another token"
    assert box.release(lingering, "bury") == 1
    assert box.acquire(lingering) == [codes.NO_CLAIM]


@pytest.mark.parametrize("value", ["foreign", "foreign." + "ab" * 16, "f0e1." + "xyz", "f0e1.ab~~", "~", "f0e1.~", ""])
def test_busy_with_a_foreign_holder(box: Box, value: str) -> None:
    box.redis.set(LOCK, value, px=60_000)
    box.redis.persist(LOCK)
    assert box.acquire(A) == [0, -1, 0, b"", 0], "no end, and its value is nobody's business"
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


def test_who_joins_tells_the_process_that_holds_the_lock(box: Box) -> None:
    box.listen("a")
    lingering = token("a", lingers=True)
    for mine in (A, lingering):
        box.acquire(mine)
        box.acquire(B)
        assert box.heard("a") == [], "who only asks wants no place"
        box.acquire(B, join=True)
        assert box.heard("a") == [f"2 {mine}"]
        box.acquire(token("a", 7), join=True)
        assert box.heard("a") == [], "that process knows it already"
        for waiter in (B, token("a", 7)):
            box.release(waiter, "leave")
        box.release(mine)


def test_who_joins_behind_a_hand_over_tells_the_new_holder(box: Box) -> None:
    box.listen("b")
    box.acquire(A)
    box.acquire(B, join=True)
    box.redis.delete(LOCK)
    box.acquire(C, join=True)
    assert box.heard("b") == [f"1 {B} {box.fence()}", f"2 {B}"]


def test_a_foreign_holder_is_told_nothing(box: Box) -> None:
    box.listen("f")
    box.redis.set(LOCK, "f" * 12 + ".not one of ours", px=30_000)
    assert box.acquire(B, join=True)[0] == 0
    assert box.heard("f") == []


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
        assert box.acquire(A, join=join) == [codes.NO_CLAIM]
    assert box.holder() is None
    assert box.line() == []
    assert box.acquire(B)[0] == 1


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("join", [False, True])
def test_data_of_another_kind_is_named_and_left_alone(box: Box, key: str, join: bool) -> None:
    box.redis.rpush(key, "precious")
    before = box.dump()
    assert box.acquire(A, join=join) == [codes.WRONG_TYPE, key.encode(), b"list"]
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
    status, ms, last, process, _ = box.acquire(D)
    assert (status, last, process) == (0, box.last(), b"b" * 12)
    assert 1_900 < ms <= 2_000, "for the claim window"
    assert box.holder() == B
    assert box.heard("b") == [f"1 {B} {box.fence()}"]
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


def test_who_has_given_no_sign_of_life_for_a_claim_is_passed_over_and_keeps_his_place(box: Box) -> None:
    """The waiter's inbox looks open, and its process may hang: with many places, each of them would cost a claim window."""
    box.listen("b", "c")
    box.acquire(A)
    other = token("b", 1)
    for who in (B, other, C, D):
        box.acquire(who, join=True)
    for who in (B, other):
        box.redis.hset(STATE, f"at:{who}", box.now_us() // 1000 + 990)  # of 3,000: two seconds old
    box.release(A)
    assert box.holder() == C
    assert box.line() == [B, other, D]
    assert box.refresh(other, inbox="b")[1][0] == 0
    box.release(C)
    assert box.holder() == other, "lively again"
    assert box.line() == [B, D]


def test_who_asks_gives_a_sign_of_life_for_his_whole_process(box: Box) -> None:
    box.listen("b", "c")
    box.acquire(A)
    other = token("b", 1)
    for who in (B, C, other):
        box.acquire(who, join=True)
        box.redis.hset(STATE, f"at:{who}", box.now_us() // 1000 + 990)
    box.redis.delete(LOCK)
    assert box.refresh(other, inbox="b")[1][0] == 0
    assert box.holder() == B, "first come, first served"
    assert box.line() == [C, other]


def test_if_nobody_is_lively_the_newcomer_takes_it(box: Box) -> None:
    box.listen("b")
    box.acquire(A)
    box.acquire(B, join=True)
    box.redis.hset(STATE, f"at:{B}", box.now_us() // 1000 + 990)
    box.release(A)
    assert box.holder() is None
    assert box.acquire(C)[0] == 1
    assert box.line() == [B]


def test_if_nobody_listens_the_newcomer_takes_it(box: Box) -> None:
    box.acquire(A)
    box.acquire(B, join=True)
    last = box.last()
    box.redis.delete(LOCK)
    status, mine, _ = box.acquire(C)
    assert status == 1
    assert mine > last + BLOCK, "the numbers that were offered in vain are not used again"
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
        assert box.release(B, mode) == codes.NO_CLAIM
    assert box.holder() == A


def test_release_of_data_of_another_kind(box: Box) -> None:
    box.redis.rpush(LOCK, "precious")
    for mode in ("release", "leave", "bury"):
        assert box.release(A, mode) == codes.NO_CLAIM
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
    _, _, last = box.acquire(A)
    for who in (B, C):
        box.acquire(who, join=True)
    assert box.release(A, mode) == 1
    assert box.holder() == B
    assert 1_000 < box.redis.pttl(LOCK) <= 2_000
    assert box.fence() > last
    assert box.heard("b") == [f"1 {B} {box.fence()}"]
    assert box.line() == [C]
    assert box.release(A, mode) == codes.NO_CLAIM, "a second copy hands over nothing"
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
    assert box.release(B, "leave") == codes.NO_CLAIM
    assert box.line() == [C]
    assert box.release(B, "release") == codes.NO_CLAIM
    assert box.line() == [C]
    assert box.acquire(B, join=True)[0] == 0, "only a buried token is refused"
    assert box.line() == [C, B]


def test_burying_is_capped(box: Box) -> None:
    for number in range(130):
        box.release(token("a", number), "bury")
    assert len(box.state()["dead"].split()) == 100
    assert box.acquire(token("a", 29)) != [codes.NO_CLAIM]
    assert box.acquire(token("a", 30)) == [codes.NO_CLAIM]
    assert box.acquire(token("a", 129)) == [codes.NO_CLAIM]
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


def test_a_fence_that_is_no_number_is_left_as_it_is_and_told(box: Box) -> None:
    box.redis.hset(STATE, mapping={"v": "1", "fence": "seven"})
    box.redis.expire(STATE, 60)
    assert box.acquire(token("a")) == [-8, STATE.encode(), b"fence", b"seven"]
    assert box.redis.hget(STATE, "fence") == b"seven"


# While a Cluster slot is being moved


@pytest.mark.turns
def test_while_its_slot_is_moving_a_lease_is_renewed_but_never_shortened(box: Box) -> None:
    script = Script("lock/migrating", whole_number)

    def moving(who: str, ttl: int) -> object:
        return box.redis.eval(script.body, 1, LOCK, who, ttl)

    assert moving(A, 30_000) == 0
    box.acquire(A, 10_000)
    assert moving(A, 30_000) == codes.UNNUMBERED
    assert box.redis.pttl(LOCK) > 29_000
    assert moving(A, 5_000) == codes.UNNUMBERED
    assert box.redis.pttl(LOCK) > 29_000, "the request may be a late copy of an earlier renewal"
    assert box.renew(A, 5_000, number=1) == 1
    assert box.redis.pttl(LOCK) <= 5_000, "the number of the later renewal is not known, so an earlier one is carried out"
    assert moving(B, 0) == codes.NO_CLAIM
    assert box.holder() == A
    assert moving(A, 0) == 1
    assert box.holder() is None
