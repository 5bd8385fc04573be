"""The promises of renew, refresh and the fence check, on every server."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast._lua import codes
from support.box import KEYS, LOCK, QUEUE, STATE, Box, token

A, B, C = (token(process) for process in "abc")

# renew


def test_renew_sets_the_lease(box: Box) -> None:
    box.acquire(A, 30_000)
    for ttl in (60_000, 10_000, 20_000):
        assert box.renew(A, ttl) == 1
        assert ttl - 1_000 < box.redis.pttl(LOCK) <= ttl
    box.redis.persist(LOCK)
    assert box.renew(A, 20_000) == 1
    assert 19_000 < box.redis.pttl(LOCK) <= 20_000


def test_of_two_renewals_the_later_one_counts_whichever_comes_first(box: Box) -> None:
    box.acquire(A)
    assert box.renew(A, 60_000, 7) == 1
    assert box.renew(A, 1_000, 6) == 2, "overtaken, not refused: the lock is held"
    assert box.redis.pttl(LOCK) > 50_000
    assert box.renew(A, 1_000, 8) == 1
    assert box.redis.pttl(LOCK) <= 1_000
    box.release(A)
    another = token("b", 0)
    box.acquire(another)
    assert box.renew(another, 60_000, 1) == 1, "the numbers are those of one token"
    assert box.redis.pttl(LOCK) > 50_000


def test_renew_never_creates(box: Box) -> None:
    assert box.renew(A) == 0
    assert box.dump() == {}
    box.acquire(B)
    before = box.dump()
    assert box.renew(A) == codes.NO_CLAIM
    assert box.dump() == before
    box.redis.delete(LOCK)
    box.redis.rpush(LOCK, "precious")
    assert box.renew(A) == codes.NO_CLAIM


def test_renew_keeps_state_and_queue_alive(box: Box) -> None:
    box.acquire(A)
    box.acquire(B, join=True)
    box.redis.hdel(STATE, "keep")
    for key in (STATE, QUEUE):
        box.redis.pexpire(key, 1_000)
    assert box.renew(A) == 1
    assert box.redis.pttl(STATE) >= 600_000
    assert box.redis.pttl(QUEUE) >= 600_000
    assert box.renew(A, 3_600_000) == 1
    assert box.redis.pttl(STATE) >= 7_200_000, "twice the lease"


@pytest.mark.parametrize("key", [STATE, QUEUE])
def test_renew_works_whatever_is_in_the_other_keys(box: Box, key: str) -> None:
    box.redis.set(LOCK, A, px=5_000)
    box.redis.rpush(key, "precious")
    assert box.renew(A) == 1
    assert box.redis.pttl(LOCK) > 29_000
    assert box.redis.lrange(key, 0, -1) == [b"precious"]
    assert box.redis.pttl(key) == -1, "its expiry is not ours either"
    box.redis.delete(key)


def test_renew_of_many_gives_each_its_own_answer(box: Box) -> None:
    """If one lock cannot be renewed, the others are renewed."""
    locks = [(f"hf:{{{name}}}", f"hf:{{{name}}}:state", f"hf:{{{name}}}:queue") for name in "stuvwxy"]
    mine, _, foreign, list_there, state_there, queue_there, last = locks
    for keys in (mine, foreign, last):
        box.run("acquire", A, 5_000, 0, keys=keys)
    box.redis.set(foreign[0], "of another make", px=5_000)
    box.redis.rpush(list_there[0], "precious")
    for keys, there in ((state_there, 1), (queue_there, 2)):
        box.redis.set(keys[0], B, px=5_000)
        box.redis.rpush(keys[there], "precious")
    whose = {state_there: B, queue_there: B}
    args = [value for keys in locks for value in (whose.get(keys, A), 30_000 + locks.index(keys), 1)]
    answers = box.run("renew", *args, keys=tuple(key for keys in locks for key in keys))
    assert answers == [1, 0, -1, -1, 1, 1, 1]
    for keys, answer in zip(locks, answers, strict=True):
        if answer == 1:
            assert 29_000 < box.redis.pttl(keys[0]) <= 30_000 + locks.index(keys)
    assert box.redis.pttl(foreign[0]) <= 5_000
    assert box.run("renew", *args[:3], *args[-3:-1], 0, keys=mine + last) == [1, 2], "each has numbers of its own"
    box.redis.delete(state_there[1], queue_there[2])


# refresh


def test_refresh_says_whether_the_inbox_has_a_listener(box: Box) -> None:
    assert box.refresh()[0] == 0
    box.listen("a")
    assert box.refresh()[0] == 1


def test_refresh_extends_places(box: Box) -> None:
    box.acquire(A)
    box.acquire(B, join=True)
    box.redis.hset(STATE, f"at:{B}", box.now_us() // 1000 - 1)
    _, answer = box.refresh(B)
    assert answer[0] == 0
    assert answer[2:] == [box.last(), b"a" * 12, 0]
    assert 2_000 < int(box.state()[f"at:{B}"]) - box.now_us() // 1000 <= 3_000
    assert box.line() == [B]


def test_refresh_keeps_state_and_queue_alive(box: Box) -> None:
    """Otherwise a waiter loses its place when it waits for longer than they last."""
    box.acquire(A)
    box.acquire(B, join=True)
    box.redis.hdel(STATE, "keep")
    for key in (STATE, QUEUE):
        box.redis.pexpire(key, 1_000)
    assert box.refresh(B)[1][0] == 0
    assert min(box.redis.pttl(STATE), box.redis.pttl(QUEUE)) >= 600_000


def test_refresh_never_inserts(box: Box) -> None:
    box.acquire(A)
    before = box.dump()
    assert box.refresh(B) == [0, [codes.NO_CLAIM]]
    assert box.dump() == before
    box.redis.delete(LOCK)
    assert box.refresh(B) == [0, [codes.NO_CLAIM]], "not even into a free lock"
    assert box.holder() is None


def test_refresh_grants_by_reply_what_a_lost_message_granted(box: Box) -> None:
    box.listen("b")
    box.acquire(A)
    box.acquire(B, join=True)
    box.release(A)
    assert box.redis.pttl(LOCK) <= 2_000
    assert box.refresh(B) == [0, [1, box.fence(), box.last()]]
    assert box.redis.pttl(LOCK) > 29_000, "and sets the full lease"
    assert box.refresh(B, ttl=5_000) == [0, [1, box.fence(), box.last()]]
    assert box.redis.pttl(LOCK) > 28_000, "never less"


def test_refresh_takes_a_free_lock_for_the_first_in_line(box: Box) -> None:
    box.acquire(A)
    for who in (B, C):
        box.acquire(who, join=True)
    box.redis.delete(LOCK)
    assert box.refresh(B)[1] == [1, box.fence(), box.last()]
    assert box.holder() == B
    assert box.line() == [C]


def test_refresh_helps(box: Box) -> None:
    """A free lock whose first waiter is another one is handed over to that waiter."""
    box.listen("b")
    box.acquire(A)
    for who in (B, C):
        box.acquire(who, join=True)
    box.redis.delete(LOCK)
    answer = box.refresh(C)[1]
    assert answer[0] == 0
    assert answer[3] == b"b" * 12
    assert box.holder() == B
    assert box.heard("b") == [f"1 {B} {box.fence()}"]


def test_refresh_passes_over_who_does_not_listen(box: Box) -> None:
    box.acquire(A)
    for who in (B, C):
        box.acquire(who, join=True)
    box.redis.delete(LOCK)
    assert box.refresh(C)[1][0] == 1
    assert box.holder() == C
    assert box.line() == [B]


def test_refresh_of_somebody_far_behind_those_who_do_not_listen(box: Box) -> None:
    """A run looks at a bounded number of places; the answer must not make the process ask again without a pause."""
    box.acquire(A)
    for number in range(150):
        box.acquire(token("b", number), join=True)
    box.acquire(C, join=True)
    box.redis.delete(LOCK)
    answer = box.refresh(C)[1]
    assert answer[0] == 1 or answer[1] != -2, "neither granted nor told when to ask again"


def test_refresh_of_many_gives_each_his_own_answer(box: Box) -> None:
    other = ("hf:{y}", "hf:{y}:state", "hf:{y}:queue")
    third = ("hf:{z}", "hf:{z}:state", "hf:{z}:queue")
    box.acquire(A)
    box.acquire(B, join=True)
    box.run("acquire", A, 5_000, 0, keys=other)
    box.redis.rpush(third[0], "precious")
    args = [box.channel("a"), B, 30_000, A, 30_000, C, 30_000, C, 30_000]
    _, first, second, foreign, gone = box.run("refresh", *args, keys=KEYS + other + third + KEYS)
    assert first[0] == 0
    assert second[0] == 1
    assert foreign == [codes.WRONG_TYPE, b"hf:{z}", b"list"]
    assert gone == [codes.NO_CLAIM]


@pytest.mark.parametrize("key", KEYS)
def test_refresh_and_data_of_another_kind(box: Box, key: str) -> None:
    box.redis.rpush(key, "precious")
    answer = box.refresh(B)[1]
    assert answer in ([codes.WRONG_TYPE, key.encode(), b"list"], [codes.NO_CLAIM])
    assert box.redis.lrange(key, 0, -1) == [b"precious"]


def test_refresh_leaves_data_of_another_kind_in_the_place_of_the_queue(box: Box) -> None:
    box.acquire(A)
    box.acquire(B, join=True)
    box.redis.delete(QUEUE)
    box.redis.rpush(QUEUE, "precious")
    box.redis.hdel(STATE, "keep")
    assert box.refresh(B)[1][0] == 0, "who holds it is all that counts"
    box.redis.delete(LOCK)
    assert box.refresh(B)[1] == [codes.WRONG_TYPE, QUEUE.encode(), b"list"]
    assert box.holder() is None
    assert box.redis.lrange(QUEUE, 0, -1) == [b"precious"]
    assert box.redis.pttl(QUEUE) == -1
    box.redis.delete(QUEUE)


def test_refresh_and_another_format(box: Box) -> None:
    box.redis.hset(STATE, mapping={"v": "2", f"at:{B}": 7})
    box.redis.expire(STATE, 60)
    before = box.dump()
    assert box.refresh(B) == [0, [-3, b"2"]]
    assert box.dump() == before


# fence check


def test_guard(box: Box) -> None:
    keys = ("data", "{data}:fence")

    def check(*args: object) -> Any:
        return box.run("check", *args, keys=keys)

    assert check(5, 60_000) == 1
    assert box.redis.get("data") is None
    assert check(5, 60_000, "one", 30_000) == 1
    assert check(4, 60_000, "late", 30_000) == 0
    assert box.redis.get("data") == b"one"
    assert 29_000 < box.redis.pttl("data") <= 30_000
    assert check(6, 60_000, "two", "") == 1
    assert (box.redis.get("data"), box.redis.pttl("data")) == (b"two", -1)
    assert box.redis.get("{data}:fence") == b"6"
    assert 59_000 < box.redis.pttl("{data}:fence") <= 60_000
    assert check(2**53 - 1, 60_000) == 1
    assert check(2**53 - 2, 60_000) == 0
