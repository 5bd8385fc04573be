"""The scripts of latches and barriers, on every server: which calls count, who passes, who is told what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from holdfast._core.rendezvous.barrier import BARRIER
from holdfast._core.rendezvous.latch import LATCH
from holdfast._lua import codes
from support.box import Box, token

A, B, C, D = (token(process) for process in "abcd")
STATE, WAITERS, DONE, PLACES, ACTION = (f"hf:{{m}}{side}" for side in ("", ":waiters", ":done", ":places", ":action"))
LATCH_KEYS, BARRIER_KEYS = (STATE, WAITERS, DONE), (STATE, PLACES, DONE, WAITERS, ACTION)
KEEP = 500_000
TTL = 5000


def latch(box: Box, *what: object, count: int = 2, kind: str = "latch 1") -> Any:
    return box.redis.eval(LATCH.body, 3, *LATCH_KEYS, kind, count, KEEP, *what)


def look(box: Box, listener_id: str = "", **options: Any) -> Any:
    return latch(box, "look", listener_id, 30_000, **options)


def down(box: Box, call: str, by: int = 1, name: str = "", **options: Any) -> Any:
    return latch(box, "down", call, by, name, **options)


def barrier(box: Box, who: str, *what: object, parties: int = 2, ttl: int = TTL) -> Any:
    return box.redis.eval(BARRIER.body, 5, *BARRIER_KEYS, parties, ttl, KEEP, who, *what)


def come(box: Box, who: str, acts: int = 0, **options: Any) -> Any:
    return barrier(box, who, "come", acts, **options)


def no_key_for_ever(box: Box) -> None:
    assert all(box.redis.pttl(key) > 0 for key in box.redis.keys("*"))


# Latches


def test_a_latch_opens_once_and_tells_who_is_listed(box: Box) -> None:
    box.listen("b", "c")
    assert look(box) == [2, 0, 0]
    assert not box.redis.exists(STATE), "who only asks makes nothing"
    missing, opened, born = look(box, B)
    assert (missing, opened, born > 10**14) == (2, 0, True)
    look(box, C)
    assert down(box, A) == [1, 0, born]
    assert down(box, A) == [1, 0, born], "the same again for the same call"
    assert box.heard("b") == []
    missing, opened, _ = down(box, B)
    assert (missing, opened > born) == (0, True)
    assert [box.heard(process) for process in "bc"] == [[f"3 {B}"], [f"3 {C}"]]
    assert down(box, C, 5) == [0, opened, born], "no lower, and it opens once"
    assert latch(box, "reset", D) == [2, opened, born]
    assert down(box, A) == [2, opened, born], "a late copy of a call from before"
    assert not box.redis.exists(WAITERS)
    no_key_for_ever(box)


def test_each_opening_is_later_than_the_one_before(box: Box) -> None:
    seen = []
    for number in range(3):
        seen.append(down(box, token("a", 2 * number), count=1, kind="event 1")[1])
        latch(box, "reset", token("a", 2 * number + 1), count=1, kind="event 1")
    assert seen == sorted(set(seen))
    box.redis.hset(STATE, "opened", 2**52)
    assert down(box, B, count=1, kind="event 1")[1] == 2**52 + 1, "also when the clock was set back"


def test_a_name_counts_once_until_it_is_set_back(box: Box) -> None:
    assert [down(box, token("a", n), 1, name, count=4)[0] for n, name in enumerate(("x", "y", "x"))] == [3, 2, 2]
    latch(box, "reset", B, count=4)
    assert down(box, C, 1, "x", count=4)[0] == 3
    assert down(box, token("a", 9), 1, "y", count=4)[0] == 2


def test_calls_are_remembered_for_a_minute_and_names_for_longer(box: Box) -> None:
    down(box, A, 1, "x", count=4)
    box.redis.zadd(DONE, {A: 1})
    down(box, B, count=4)
    members = box.redis.zrange(DONE, 0, -1)
    assert A.encode() not in members
    assert len(members) == 2
    box.redis.delete(*LATCH_KEYS)
    box.redis.eval(LATCH.body, 3, *LATCH_KEYS, "latch 1", 4, 1000, "down", A, 1, "")
    assert box.redis.pttl(DONE) > 50_000, "however short the latch itself is kept"


def test_another_count_is_told_and_changes_nothing(box: Box) -> None:
    down(box, A)
    before = box.dump()
    assert down(box, B, count=3) == [codes.OTHER_COUNT, 2]
    assert look(box, B, count=3) == [codes.OTHER_COUNT, 2]
    assert look(box, B, count=1, kind="event 1") == [-3, b"latch 1"]
    assert barrier(box, B, "look") == [-3, b"latch 1"]
    assert box.dump() == before
    assert latch(box, "reset", C, count=3)[0] == 3


# Barriers


def test_the_last_to_come_takes_all_on(box: Box) -> None:
    box.listen("a")
    waits, ms, at = come(box, A)
    assert (waits, 0 < ms <= TTL, at > 10**14) == (0, True, True)
    assert come(box, A)[0] == 0, "the same again for the same request"
    assert barrier(box, "", "look") == [codes.STANDING, 1, 0]
    assert come(box, B) == [1, 1]
    assert box.heard("a") == [f"3 {A}"]
    assert barrier(box, A, "wait", at) == [1, 0]
    assert come(box, B) == [1, 1]
    assert barrier(box, "", "look") == [codes.STANDING, 0, 0]
    no_key_for_ever(box)


def test_who_acts_goes_on_when_that_is_done(box: Box) -> None:
    box.listen("a", "c")
    come(box, A)
    assert come(box, B, 1) == [codes.ACTING]
    assert come(box, B, 1) == [codes.ACTING]
    assert 0 < box.redis.pttl(ACTION) <= TTL
    occupied, ms = come(box, C)
    assert (occupied, 0 < ms <= TTL) == (codes.OCCUPIED, True)
    assert barrier(box, A, "wait", 0)[0] == 0
    assert barrier(box, B, "pass") == [1, 1]
    assert barrier(box, B, "pass") == [1, 1]
    assert [box.heard(process) for process in "ac"] == [[f"3 {A}"], [f"3 {C}"]]
    assert come(box, C)[0] == 0
    assert not box.redis.exists(ACTION, WAITERS)


def test_a_sign_of_life_extends_the_lease_of_the_action(box: Box) -> None:
    """Otherwise an action that takes longer than its lease breaks the barrier."""
    come(box, A)
    come(box, B, 1)
    box.redis.pexpire(ACTION, 1000)
    assert barrier(box, A, "wait", 0)[0] == 0
    assert box.redis.pttl(ACTION) <= 1000, "only the process that runs the action extends it"
    assert barrier(box, B, "wait", 0) == [codes.ACTING]
    assert box.redis.pttl(ACTION) > TTL - 1000


def test_who_leaves_while_an_action_is_run_has_been_there(box: Box) -> None:
    come(box, A)
    come(box, B, 1)
    assert barrier(box, A, "leave") == [codes.STANDING, 2, 0]
    assert barrier(box, B, "pass")[0] == 1


@pytest.mark.parametrize("how", [("leave",), ("break", "action")])
def test_an_action_that_is_not_done_breaks_it(box: Box, how: tuple[str, ...]) -> None:
    come(box, A)
    come(box, B, 1)
    barrier(box, B, *how)
    assert barrier(box, A, "wait", 0) == [codes.BROKEN_UP, b"action", b"b" * 12]
    assert not box.redis.exists(ACTION)


def test_whoever_was_to_run_the_action_and_died_breaks_it(box: Box) -> None:
    come(box, A)
    come(box, B, 1)
    box.redis.delete(ACTION)
    assert barrier(box, A, "wait", 0) == [codes.BROKEN_UP, b"died", b"b" * 12]
    assert barrier(box, B, "pass") == [codes.BROKEN_UP, b"died", b"b" * 12]


def test_a_place_that_has_ended_breaks_it_for_all(box: Box) -> None:
    box.listen("b")
    at = come(box, A, parties=3)[2]
    come(box, B, parties=3)
    box.redis.zadd(PLACES, {A: 1})
    assert barrier(box, "", "look", parties=3) == [codes.STANDING, 0, 1]
    assert box.heard("b") == [f"3 {B}"]
    for who in (A, B):
        assert barrier(box, who, "wait", at, parties=3) == [codes.BROKEN_UP, b"died", b"a" * 12]
    assert come(box, C, parties=3) == [codes.BROKEN_UP, b"died", b"a" * 12]
    assert barrier(box, D, "reset", parties=3) == [codes.STANDING, 0, 0]
    assert come(box, C, parties=3) == [codes.BROKEN_UP, b"died", b"a" * 12], "a late copy of what was refused before"
    assert come(box, token("c", 1), parties=3)[0] == 0


def test_a_sign_of_life_lengthens_a_place(box: Box) -> None:
    at = come(box, A, ttl=3000)[2]
    barrier(box, A, "wait", at, ttl=50_000)
    assert box.redis.zscore(PLACES, A) > at / 1000 + 40_000


def test_who_has_left_does_not_come_late(box: Box) -> None:
    assert barrier(box, A, "leave") == [codes.STANDING, 0, 0]
    assert come(box, A) == [codes.BROKEN_UP, b"left", b""]
    come(box, B)
    assert barrier(box, B, "leave") == [codes.STANDING, 0, 0]
    assert come(box, B) == [codes.BROKEN_UP, b"left", b""]
    assert barrier(box, "", "look") == [codes.STANDING, 0, 0]


def test_time_that_is_over_breaks_it_unless_all_have_come(box: Box) -> None:
    come(box, A)
    come(box, B)
    assert barrier(box, A, "break", "timeout") == [1, 0], "it went on at the same time"
    come(box, C)
    assert barrier(box, C, "break", "timeout") == [codes.BROKEN_UP, b"timeout", b"c" * 12]
    assert barrier(box, token("a", 1), "break", "timeout") == [codes.BROKEN_UP, b"left", b""], "it was not there"


def test_abort_and_reset_are_done_once(box: Box) -> None:
    come(box, A)
    assert barrier(box, B, "abort") == [codes.STANDING, 0, 1]
    assert barrier(box, C, "reset") == [codes.STANDING, 0, 0]
    assert barrier(box, B, "abort") == [codes.STANDING, 0, 0], "a late copy"
    assert come(box, D)[0] == 0
    assert barrier(box, C, "reset") == [codes.STANDING, 1, 0], "a late copy"
    assert barrier(box, A, "wait", 0) == [codes.BROKEN_UP, b"abort", b"b" * 12]
    assert barrier(box, token("c", 1), "reset") == [codes.STANDING, 0, 0]
    assert barrier(box, D, "wait", 0) == [codes.BROKEN_UP, b"reset", b"c" * 12]


def test_what_the_server_has_lost_breaks_it(box: Box) -> None:
    at = come(box, A, parties=3)[2]
    box.redis.delete(STATE, PLACES)
    assert come(box, B, parties=3)[0] == 0
    assert barrier(box, A, "wait", at - 10**9, parties=3) == [codes.BROKEN_UP, b"lost", b""], "it may have gone on long since"
    assert barrier(box, "", "look", parties=3) == [codes.STANDING, 1, 0]
    assert barrier(box, token("a", 1), "wait", at, parties=3) == [codes.BROKEN_UP, b"lost", b""]
    assert barrier(box, B, "wait", at, parties=3) == [codes.BROKEN_UP, b"lost", b""]


def test_whoever_ran_an_action_that_the_server_has_lost_is_told_so(box: Box) -> None:
    come(box, A, 1)
    assert come(box, B, 1) == [codes.ACTING]
    box.redis.delete(PLACES)
    assert come(box, C, 1)[0] == codes.OCCUPIED, "an action is run, as far as is known"
    box.redis.hdel(STATE, "actor")
    assert come(box, C, 1)[0] == 0
    assert come(box, D, 1) == [codes.ACTING]
    assert barrier(box, B, "pass") == [codes.BROKEN_UP, b"lost", b""]
    assert box.redis.zscore(PLACES, B) is None
    assert barrier(box, D, "pass") == [1, 1]
    assert barrier(box, C, "wait", 0) == [1, 0]


def test_another_number_of_parties_is_told_and_changes_nothing(box: Box) -> None:
    come(box, A)
    before = box.dump()
    assert come(box, B, parties=3) == [codes.OTHER_COUNT, 2]
    assert barrier(box, B, "abort", parties=3) == [codes.OTHER_COUNT, 2]
    assert look(box, count=1, kind="event 1") == [-3, b"barrier 1"]
    assert box.dump() == before
    assert barrier(box, B, "reset", parties=3) == [codes.STANDING, 0, 0]
    assert come(box, C, parties=3)[0] == 0


def test_what_became_of_a_token_is_forgotten_in_the_end(box: Box) -> None:
    come(box, A)
    come(box, B)
    box.redis.zadd(DONE, {A: 1, B: 2})
    come(box, C)
    assert sorted(box.redis.hkeys(STATE)) == sorted([b"v", b"parties", C.encode()])
    assert not box.redis.exists(DONE)


def test_something_else_under_the_key_is_left_alone(box: Box) -> None:
    box.redis.rpush(STATE, "theirs")
    before = box.dump()
    assert down(box, A) == come(box, A) == [codes.WRONG_TYPE, STATE.encode(), b"list"]
    assert box.dump() == before


def _met(box: Box) -> None:
    come(box, C)


def _acting(box: Box) -> None:
    come(box, C)
    come(box, B, 1)


def _old(box: Box) -> None:
    come(box, A)
    come(box, B)
    box.redis.zadd(DONE, {A: 1})


COMES = (2, TTL, KEEP, A, "come", 1)
MEETING_CASES: list[tuple[str, tuple[str, ...], tuple[object, ...], Callable[[Box], object]]] = [
    ("rendezvous/latch", LATCH_KEYS, ("latch 1", 2, KEEP, "down", A, 2, "x"), lambda box: look(box, B)),
    ("rendezvous/latch", LATCH_KEYS, ("latch 1", 2, KEEP, "look", B, 1000), Box.clear_keys),
    ("rendezvous/latch", LATCH_KEYS, ("latch 1", 2, KEEP, "look", B, 1000), lambda box: box.redis.rpush(STATE, "theirs")),
    ("rendezvous/barrier", BARRIER_KEYS, COMES, Box.clear_keys),
    ("rendezvous/barrier", BARRIER_KEYS, COMES, _met),
    ("rendezvous/barrier", BARRIER_KEYS, COMES, _acting),
    ("rendezvous/barrier", BARRIER_KEYS, (2, TTL, KEEP, B, "pass"), _acting),
    ("rendezvous/barrier", BARRIER_KEYS, (2, TTL, KEEP, B, "come", 1), _acting),
    ("rendezvous/barrier", BARRIER_KEYS, (2, TTL, KEEP, C, "leave"), _met),
    ("rendezvous/barrier", BARRIER_KEYS, (2, TTL, KEEP, D, "abort"), _old),
    ("lock/renew", (ACTION, f"{ACTION}:state", f"{ACTION}:queue"), (B, TTL, 1), _acting),
    ("lock/renew", (ACTION, f"{ACTION}:state", f"{ACTION}:queue"), (B, TTL, 1), lambda box: box.redis.rpush(ACTION, "theirs")),
]
"""Each script in situations in which it does all that it may do: its name, keys, arguments, and what was before."""


def test_when_memory_is_full_nothing_is_half_done(box: Box) -> None:
    come(box, A)
    before = box.dump()
    if hasattr(box, "keyspace"):
        box.keyspace.full = True
    else:
        box.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.ResponseError, match=r"OOM|maxmemory"):
            come(box, B)
        assert box.dump() == before
    finally:
        if hasattr(box, "keyspace"):
            box.keyspace.full = False
        else:
            box.redis.config_set("maxmemory", 0)
