"""The scripts of single flight, on every server: who loads, what is stored, which values are void, who is notified."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from holdfast._core.single_flight import flight
from holdfast._core.single_flight.entry import CANCEL_LOAD, DELETE, GET_OR_LEASE, INVALIDATE, STORE, TAKE_OVER
from holdfast._lua import Script, codes
from support.box import Box, token

A, B, C = (token(process) for process in "abc")
SITE = flight.entry_spec("hf:cache:", "c", "x", lease=5.0)
LOAD, STATE, FLOORS = (key.decode() for key in SITE.spec.keys)
VALUE, FRESH, FLOOR, WAITERS = (key.decode() for key in (SITE.value, SITE.fresh, SITE.invalidated_before, SITE.waiters))
LEASE = 5000
MOST = 1000
UNREAD = (MOST, "void")


def run(box: Box, script: Script[Any], keys: tuple[str, ...], *args: object) -> Any:
    return box.redis.eval(script.body, len(keys), *keys, *args)


def look(
    box: Box,
    who: str,
    listener_id: str = "",
    stale: int = 0,
    early: int = 0,
    lease: int = LEASE,
    *,
    most: int = MOST,
    unread: str = "void",
) -> Any:
    return run(
        box, GET_OR_LEASE, (VALUE, LOAD, STATE, FLOORS, FLOOR, WAITERS), who, lease, listener_id, stale, early, most, unread
    )


def land(
    box: Box,
    who: str,
    fence: int,
    data: bytes = b"data",
    *,
    ttl: int = 60_000,
    stale: int = 0,
    cost: int = 1,
    tags: str = " t u",
    kind: str = "v",
    how: str = "release",
    older: str = "keep",
) -> Any:
    keys = (VALUE, FRESH, LOAD, STATE, FLOORS, FLOOR, WAITERS)
    return run(box, STORE, keys, who, fence, how, kind, ttl, stale, cost, tags, data, older)


def take_over(box: Box, who: str) -> Any:
    return run(box, TAKE_OVER, (LOAD, STATE, FLOORS), who, LEASE)


def put(box: Box, who: str, data: bytes = b"data", **options: Any) -> Any:
    return land(box, who, granted(take_over(box, who)), data, older="delete", **options)


def abort(box: Box, who: str, how: str = "release", fence: int = 0, tags: str = " t") -> Any:
    return run(box, CANCEL_LOAD, (LOAD, STATE, FLOORS, FLOOR, WAITERS), who, how, fence, tags)


def drop(box: Box) -> Any:
    return run(box, DELETE, (VALUE, FRESH, LOAD, STATE, WAITERS))


def invalidate(box: Box, *tags: str) -> Any:
    return run(box, INVALIDATE, (STATE, FLOORS, FLOOR), *tags)


def granted(answer: Any) -> int:
    assert answer[0] == codes.LEASED
    return int(answer[1])


def listener_id(process: str) -> str:
    return f"{process * 12}.hope"


def test_one_loads_and_all_others_find_what_it_stored(box: Box) -> None:
    box.listen("b", "c")
    fence = granted(look(box, A))
    assert look(box, A) == [codes.LEASED, fence, b"", 0], "the same again for the same request"
    what, remaining, since, process = look(box, B, listener_id("b"))
    assert (what, process) == (0, b"a" * 12)
    assert 0 < remaining <= LEASE
    assert 0 <= since < 5000
    assert look(box, C, listener_id("c"))[0] == 0
    assert land(box, A, fence, b"one\ntwo") == [1, fence]
    assert land(box, A, fence, b"one\ntwo") == [1, fence], "the same again for the same request"
    assert [box.heard(process) for process in "bc"] == [[f"3 {listener_id('b')}"], [f"3 {listener_id('c')}"]]
    what, value, left = look(box, B)
    assert (what, value.partition(b"\n")[2]) == (1, b"one\ntwo")
    assert value.split(b" ")[:3] == [b"1", b"v", str(fence).encode()]
    assert 59_000 < left <= 60_000
    assert look(box, "", lease=0)[0] == 1, "who would not load finds it, too"
    assert not box.redis.exists(LOAD, WAITERS, FRESH)
    assert "of:" + LOAD not in box.redis.hgetall(STATE)


def test_the_list_of_those_who_wait_lasts_as_long_as_the_longest_wait(box: Box) -> None:
    granted(look(box, A, lease=60_000))
    look(box, B, listener_id("b"))
    assert box.redis.pttl(WAITERS) > 50_000
    box.redis.pexpire(LOAD, 1000)
    look(box, C, listener_id("c"))
    assert box.redis.pttl(WAITERS) > 50_000, "a shorter wait does not shorten it"


def test_who_is_not_to_load_changes_nothing(box: Box) -> None:
    assert look(box, "", lease=0) == [codes.ABSENT]
    assert box.dump() == {}


def test_a_load_that_fails_leaves_it_to_the_next(box: Box) -> None:
    box.listen("b")
    fence = granted(look(box, A))
    look(box, B, listener_id("b"))
    assert abort(box, B) == 0, "not his"
    assert abort(box, A) == 1
    assert box.heard("b") == [f"3 {listener_id('b')}"]
    assert granted(look(box, B)) > fence
    assert abort(box, A) == 0
    assert land(box, A, fence) == [0]


def test_a_token_that_was_revoked_gets_nothing(box: Box) -> None:
    assert abort(box, A, "bury") == 0
    assert look(box, A) == [codes.NO_CLAIM]
    assert not box.redis.exists(LOAD)


def test_what_was_being_loaded_when_the_value_was_deleted_is_not_stored(box: Box) -> None:
    box.listen("b")
    fence = granted(look(box, A))
    look(box, B, listener_id("b"))
    assert drop(box) == 0
    assert box.heard("b") == [f"3 {listener_id('b')}"]
    assert land(box, A, fence) == [0]
    newer = granted(look(box, B))
    assert land(box, A, fence) == [0]
    assert land(box, B, newer) == [1, newer]
    assert drop(box) == 1
    assert look(box, "", lease=0) == [codes.ABSENT]


def test_a_late_copy_of_a_request_does_not_help_what_was_loaded_before(box: Box) -> None:
    fence = granted(look(box, A))
    drop(box)
    assert granted(look(box, A)) > fence
    assert land(box, A, fence) == [0], "under the fence of the first"


@pytest.mark.parametrize("tag", ["t", "u", ""])
def test_an_invalidation_makes_void_what_was_begun_before(box: Box, tag: str) -> None:
    box.listen("b")
    fence = granted(look(box, A))
    assert land(box, A, fence) == [1, fence]
    invalidate(box, "other")
    assert look(box, "", lease=0)[0] == 1
    (mark,) = invalidate(box, "another", tag)
    assert mark >= fence
    assert look(box, "", lease=0, stale=1000) == [codes.ABSENT]
    before = granted(look(box, A))
    look(box, B, listener_id("b"))
    invalidate(box, tag)
    assert land(box, A, before) == [codes.INVALIDATED]
    assert box.heard("b") == [f"3 {listener_id('b')}"]
    after = granted(look(box, B))
    assert after > before
    assert land(box, B, after) == [1, after]
    assert look(box, "", lease=0)[0] == 1
    box.redis.delete(FLOORS)  # thrown away by a server whose memory is short
    assert look(box, "", lease=0)[0] == 1
    box.redis.set(FLOOR, after, px=1000)
    assert look(box, "", lease=0) == [codes.ABSENT]


@pytest.mark.parametrize("tag", ["t", "u", ""])
def test_a_value_with_the_fence_of_the_invalidation_is_void(box: Box, tag: str) -> None:
    """Its load began before the invalidation. Both have one number within a microsecond, or after the clock was set back."""
    fence = granted(look(box, A))
    assert land(box, A, fence) == [1, fence]
    invalidate(box, "other")
    box.redis.zadd(FLOORS, {tag: fence - 1})
    assert look(box, "", lease=0)[0] == 1
    box.redis.zadd(FLOORS, {tag: fence})
    assert look(box, "", lease=0) == [codes.ABSENT]


def test_an_invalidation_counts_when_the_clock_was_set_back(box: Box) -> None:
    """The fences that were issued before that are above the clock, and those to come have to be above them."""
    box.redis.hset(STATE, mapping={"v": 1, "fence": box.now_us() + 60_000_000})
    fence = granted(look(box, A))
    assert land(box, A, fence) == [1, fence]
    (mark,) = invalidate(box, "t")
    assert mark >= fence
    assert look(box, "", lease=0) == [codes.ABSENT]
    assert granted(look(box, B)) > mark


@pytest.mark.parametrize("lost", [(FLOOR,), (FLOORS,), (STATE,), (FLOOR, FLOORS), (FLOOR, STATE), (FLOOR, FLOORS, STATE)])
@pytest.mark.parametrize("then", ["nothing", "another load", "another tag"])
def test_what_is_void_stays_void_whatever_is_thrown_away(box: Box, lost: tuple[str, ...], then: str) -> None:
    put(box, C, tags=" t")
    invalidate(box, "t")
    box.redis.delete(*lost)  # by a server whose memory is short
    other = VALUE.replace(":x", ":y")
    if then == "another load":
        keys = (other, FRESH + "y", LOAD + "y", STATE, FLOORS, FLOOR, WAITERS + "y")
        fence = granted(
            run(box, GET_OR_LEASE, (other, LOAD + "y", STATE, FLOORS, FLOOR, WAITERS + "y"), B, LEASE, "", 0, 0, *UNREAD)
        )
        assert run(box, STORE, keys, B, fence, "release", "v", 1000, 0, 1, " u", b"") == [1, fence]
    elif then == "another tag":
        invalidate(box, "u")
    assert look(box, "", lease=0) == [codes.ABSENT]
    seen = flight.fresh(box.redis.mget(VALUE, FRESH, FLOOR))
    assert seen is None, "at first glance"
    box.redis.delete(FLOORS)
    invalidate(box, "v")
    assert look(box, "", lease=0) == [codes.ABSENT]


def test_a_floor_that_was_thrown_away_is_put_back(box: Box) -> None:
    put(box, C)
    assert flight.fresh(box.redis.mget(VALUE, FRESH, FLOOR)) is not None
    box.redis.delete(FLOOR)
    assert flight.fresh(box.redis.mget(VALUE, FRESH, FLOOR)) is None
    assert look(box, "", lease=0)[0] == 1
    assert flight.fresh(box.redis.mget(VALUE, FRESH, FLOOR)) is not None
    left = box.redis.pttl(STATE)  # first: time goes on between the two
    assert 0 < box.redis.pttl(FLOOR) <= left


def test_who_lands_without_a_state_ends_his_load(box: Box) -> None:
    box.listen("b")
    fence = granted(look(box, A))
    look(box, B, listener_id("b"))
    box.redis.delete(STATE)
    assert land(box, A, fence) == [0]
    assert box.heard("b") == [f"3 {listener_id('b')}"]
    assert granted(look(box, B)) > fence


@pytest.mark.parametrize("end", [lambda box, _: abort(box, A, "bury"), lambda box, fence: land(box, A, fence)])
def test_of_a_load_whose_lease_has_ended_nothing_is_left(box: Box, end: Callable[[Box, int], Any]) -> None:
    fence = granted(look(box, A))
    box.redis.delete(LOAD)
    end(box, fence)
    assert "of:" + LOAD not in box.redis.hgetall(STATE)


def test_floors_that_nothing_is_below_are_forgotten(box: Box) -> None:
    put(box, C)
    old = box.now_us() - 3_600_000_000
    box.redis.zadd(FLOORS, {f"old{number}": old for number in range(110)})
    invalidate(box, "t")
    assert box.redis.zcard(FLOORS) == 2
    assert box.now_us() - 700_000_000 < box.redis.zscore(FLOORS, "") < box.now_us() - 500_000_000
    assert look(box, "", lease=0) == [codes.ABSENT]


def test_a_put_ends_a_load(box: Box) -> None:
    box.listen("b")
    fence = granted(look(box, A))
    look(box, B, listener_id("b"))
    what, newer = put(box, C, b"put")
    assert (what, newer > fence) == (1, True)
    assert box.heard("b") == [f"3 {listener_id('b')}"]
    assert land(box, A, fence) == [0]
    assert look(box, B)[1].endswith(b"put")


def test_a_late_copy_of_a_put_does_not_replace_a_newer_one(box: Box) -> None:
    first = granted(take_over(box, A))
    assert granted(take_over(box, A)) == first, "the same again for the same request"
    assert land(box, A, first, b"first", older="delete") == [1, first]
    assert put(box, B, b"second")[0] == 1
    assert land(box, A, first, b"first", older="delete") == [0]
    assert granted(take_over(box, A)) > first
    assert land(box, A, first, b"first", older="delete") == [0]
    assert look(box, C)[1].endswith(b"second")
    assert not box.redis.exists(LOAD), "the late copy of the first request has a lease no more"


def test_a_late_put_stores_nothing_after_a_deletion(box: Box) -> None:
    fence = granted(take_over(box, A))
    drop(box)
    assert land(box, A, fence, older="delete") == [0]
    assert look(box, "", lease=0) == [codes.ABSENT]


def test_a_put_that_another_one_has_overtaken_leaves_no_older_value(box: Box) -> None:
    assert put(box, A, b"old")[0] == 1
    fence = granted(take_over(box, B))
    assert look(box, "", lease=0)[1].endswith(b"old"), "until the put is done"
    other = granted(take_over(box, C))
    assert land(box, B, fence, b"overtaken", older="delete") == [0]
    assert look(box, "", lease=0) == [codes.ABSENT], "the other put may fail"
    assert land(box, C, other, b"new", older="delete") == [1, other]
    assert land(box, B, fence, b"overtaken", older="delete") == [0]
    assert look(box, "", lease=0)[1].endswith(b"new")


def test_a_put_whose_tag_is_invalidated_meanwhile_leaves_no_older_value(box: Box) -> None:
    assert put(box, A, b"old", tags=" other")[0] == 1
    fence = granted(take_over(box, B))
    invalidate(box, "t")
    assert land(box, B, fence, older="delete") == [codes.INVALIDATED]
    assert not box.redis.exists(VALUE, LOAD)


def test_a_load_that_is_refused_leaves_the_older_value(box: Box) -> None:
    assert put(box, C, b"old", ttl=1, stale=60_000)[0] == 1
    while box.redis.exists(FRESH):
        pass
    fence = granted(look(box, A))
    box.redis.delete(LOAD)  # its lease ends
    assert land(box, A, fence) == [0]
    assert look(box, "", lease=0, stale=50_000)[0] == codes.STALE


def test_a_put_that_was_given_up_gets_nothing_any_more(box: Box) -> None:
    abort(box, C, "bury")
    assert take_over(box, C) == [codes.NO_CLAIM]
    assert not box.redis.exists(LOAD)


def test_a_stale_value_does_for_all_but_who_loads(box: Box) -> None:
    put(box, C, b"old", ttl=1, stale=60_000)
    while box.redis.exists(FRESH):
        pass
    assert look(box, "", lease=0) == [codes.ABSENT], "who takes none"
    what, value, left = look(box, "", lease=0, stale=50_000)
    assert (what, value.endswith(b"old"), -5000 < left <= 0) == (codes.STALE, True, True)
    what, _, value, left = look(box, A, stale=50_000)
    assert (what, value.endswith(b"old"), -5000 < left <= 0) == (codes.LEASED, True, True)
    assert look(box, B, stale=50_000)[0] == codes.STALE
    assert look(box, C)[0] == 0
    assert look(box, A)[2] == b""


def test_who_is_early_loads_and_all_others_find_it_fresh(box: Box) -> None:
    put(box, C, cost=100_000)  # 100 ms
    assert look(box, A, early=500_000)[0] == 1, "50 s of the minute are to be left"
    what, _, value, left = look(box, A, early=700_000)
    assert (what, value[:1], left > 0) == (codes.LEASED, b"1", True)
    assert look(box, B, early=700_000)[0] == 1


def test_who_waits_is_listed_for_a_while(box: Box) -> None:
    look(box, A)
    for number in range(3):
        look(box, B, f"{'b' * 12}.{number}")
    assert box.redis.zcard(WAITERS) == 3
    assert LEASE < box.redis.pttl(WAITERS) <= LEASE + 2000
    box.redis.zadd(WAITERS, {f"{'b' * 12}.0": 1})
    look(box, B, f"{'b' * 12}.1")
    assert box.redis.zcard(WAITERS) == 2


def test_something_else_under_a_key_is_left_alone(box: Box) -> None:
    for key in (VALUE, LOAD, STATE):
        box.clear_keys()
        box.redis.rpush(key, "theirs")
        before = box.dump()
        assert look(box, A) == [codes.WRONG_TYPE, key.encode(), b"list"]
        assert land(box, C, 1) == [codes.WRONG_TYPE, key.encode(), b"list"]
        if key != VALUE:
            assert take_over(box, C) == [codes.WRONG_TYPE, key.encode(), b"list"]
        if key == STATE:
            assert invalidate(box, "t") == [codes.WRONG_TYPE, key.encode(), b"list"]
        assert box.dump() == before
    box.clear_keys()
    box.redis.rpush(FLOORS, "theirs")
    assert invalidate(box, "t") == [codes.WRONG_TYPE, FLOORS.encode(), b"list"]
    box.clear_keys()
    box.redis.hset(STATE, mapping={"v": "2"})
    box.redis.expire(STATE, 60)
    assert land(box, C, 1) == [-3, b"2"]
    assert take_over(box, C) == [-3, b"2"]
    assert look(box, A) == [-3, b"2"]


@pytest.mark.parametrize(
    "theirs", [b"theirs", b"2 v 1 1 0 1\n", b"1 v 1 1 0 1", b"1 v 12345678901234567 1 0 1\n", b"1 " + b"1" * 900, b"\n"]
)
def test_a_value_that_is_no_value_counts_as_none_or_is_refused(box: Box, theirs: bytes) -> None:
    box.redis.set(VALUE, theirs)
    assert look(box, "", lease=0) == [codes.ABSENT]
    assert look(box, "", lease=0, unread="keep") == [codes.WRONG_TYPE, VALUE.encode(), b"string"]
    assert box.redis.get(VALUE) == theirs
    fence = granted(look(box, A))
    assert land(box, A, fence) == [1, fence]
    assert look(box, "", lease=0)[0] == 1


def test_a_value_that_is_too_long_is_not_read(box: Box) -> None:
    put(box, C, b"x" * 2000)
    assert look(box, "", lease=0) == [codes.ABSENT]
    assert look(box, "", lease=0, most=3000)[0] == 1
    what, size = look(box, "", lease=0, unread="keep")
    assert (what, 2000 < size < 2100) == (codes.TOO_LONG, True)
    assert granted(look(box, A))


def test_a_value_that_may_be_stale_is_marked_while_it_is_fresh(box: Box) -> None:
    put(box, C, ttl=60_000, stale=60_000)
    assert flight.fresh(box.redis.mget(VALUE, FRESH, FLOOR)) is not None
    assert 50_000 < box.redis.pttl(FRESH) <= 60_000
    put(box, C)
    assert not box.redis.exists(FRESH)


def test_a_floor_that_is_no_number_is_repaired(box: Box) -> None:
    put(box, C)
    for theirs in ("theirs", "-1", "1e3", "9" * 400, ""):
        box.redis.set(FLOOR, theirs)
        assert look(box, "", lease=0)[0] == 1
        assert flight.fresh(box.redis.mget(VALUE, FRESH, FLOOR)) is not None
    box.redis.delete(FLOOR)
    box.redis.rpush(FLOOR, "theirs")
    assert look(box, "", lease=0)[0] == 1
    assert box.redis.type(FLOOR) == b"string"


def test_who_fails_learns_whether_anything_was_invalidated_since(box: Box) -> None:
    fence = granted(look(box, A))
    invalidate(box, "other")
    assert abort(box, A, fence=fence) == codes.STILL_VALID
    fence = granted(look(box, A))
    invalidate(box, "t")
    assert abort(box, A, fence=fence) == 1
    fence = granted(look(box, A))
    invalidate(box, "")
    assert abort(box, A, fence=fence, tags="") == 1
    fence = granted(look(box, A))
    drop(box)
    assert abort(box, A, fence=fence) == 0
    fence = granted(look(box, A))
    assert abort(box, A, fence=fence - 1) == 1, "another load of the same token"
    fence = granted(look(box, A))
    box.redis.delete(FLOOR, FLOORS)
    assert abort(box, A, fence=fence) == codes.STILL_VALID
    fence = granted(look(box, A))
    box.redis.delete(FLOOR, FLOORS)
    box.redis.hdel(STATE, "floor")
    assert abort(box, A, fence=fence) == 1, "nobody knows"


def test_a_mark_is_stored_though_memory_is_full(box: Box) -> None:
    fence = granted(look(box, A))
    full(box, 1)
    try:
        with pytest.raises(redis.ResponseError, match=r"OOM|maxmemory"):
            land(box, A, fence)
        assert land(box, A, fence, b"{}", kind="mark", tags="") == [1, fence]
        assert look(box, "", lease=0)[0] == 1
    finally:
        full(box, 0)


def test_when_memory_is_full_a_load_can_be_ended(box: Box) -> None:
    box.listen("b")
    fence = granted(look(box, A))
    look(box, B, listener_id("b"))
    full(box, 1)
    try:
        with pytest.raises(redis.ResponseError, match=r"OOM|maxmemory"):
            land(box, A, fence)
        assert abort(box, A) == 1
        assert box.heard("b") == [f"3 {listener_id('b')}"]
        assert drop(box) == 0
    finally:
        full(box, 0)


def full(box: Box, limit: int) -> None:
    if hasattr(box, "keyspace"):
        box.keyspace.full = bool(limit)
    else:
        box.redis.config_set("maxmemory", limit)


def _waited_for(box: Box) -> None:
    look(box, A)
    look(box, B, listener_id("b"))


def _stale(box: Box) -> None:
    put(box, C, ttl=1, stale=60_000)
    invalidate(box, "other")
    while box.redis.exists(FRESH):
        pass


def _void(box: Box) -> None:
    _waited_for(box)
    invalidate(box, "t")
    box.redis.hset(STATE, "of:" + LOAD, 1)


def _put_before(box: Box) -> None:
    put(box, B)
    take_over(box, C)
    box.redis.hset(STATE, "of:" + LOAD, 1)


def _thrown_away(box: Box) -> None:
    _stale(box)
    box.redis.delete(FLOOR)


LOOKING, LANDING = (VALUE, LOAD, STATE, FLOORS, FLOOR, WAITERS), (VALUE, FRESH, LOAD, STATE, FLOORS, FLOOR, WAITERS)
STORED = (C, 1, "bury", "v", 1000, 1000, 1, " t", b"data", "delete")

FLIGHT_CASES: list[tuple[str, tuple[str, ...], tuple[object, ...], Callable[[Box], object]]] = [
    ("single_flight/get_or_lease", LOOKING, (A, LEASE, "", 0, 0, *UNREAD), Box.clear_keys),
    ("single_flight/get_or_lease", LOOKING, (A, LEASE, "", 0, 0, *UNREAD), lambda box: look(box, A)),
    ("single_flight/get_or_lease", LOOKING, (B, LEASE, listener_id("b"), 0, 0, *UNREAD), _waited_for),
    ("single_flight/get_or_lease", LOOKING, (B, LEASE, "", 1000, 1000, *UNREAD), _stale),
    ("single_flight/get_or_lease", LOOKING, (B, LEASE, "", 1000, 1000, *UNREAD), _thrown_away),
    ("single_flight/get_or_lease", LOOKING, (B, LEASE, "", 0, 0, *UNREAD), lambda box: box.redis.rpush(VALUE, "theirs")),
    ("single_flight/take_over", (LOAD, STATE, FLOORS), (C, LEASE), _waited_for),
    ("single_flight/take_over", (LOAD, STATE, FLOORS), (A, LEASE), _waited_for),
    ("single_flight/store", LANDING, STORED, _put_before),
    ("single_flight/store", LANDING, (A, 1, *STORED[2:]), _void),
    ("single_flight/store", LANDING, (A, 1, *STORED[2:]), _waited_for),
    ("single_flight/cancel_load", (LOAD, STATE, FLOORS, FLOOR, WAITERS), (A, "bury", 0, ""), _waited_for),
    ("single_flight/cancel_load", (LOAD, STATE, FLOORS, FLOOR, WAITERS), (A, "release", 1, " t"), _void),
    ("single_flight/delete", (VALUE, FRESH, LOAD, STATE, WAITERS), (), _waited_for),
    ("single_flight/invalidate", (STATE, FLOORS, FLOOR), ("t", ""), lambda box: put(box, C)),
    (
        "single_flight/invalidate",
        (STATE, FLOORS, FLOOR),
        ("t",),
        lambda box: box.redis.zadd(FLOORS, dict.fromkeys(map(str, range(110)), 1)),
    ),
    ("lock/renew", (LOAD, STATE, FLOORS), (A, LEASE, 1), lambda box: (invalidate(box, "t"), look(box, A))),
]
"""Each script in situations in which it does all that it may do: its name, keys, arguments, and what was before."""


def test_refusing_a_token_does_not_shorten_how_long_the_state_is_kept(box: Box) -> None:
    hour = 3_600_000
    fence = granted(look(box, A))
    assert land(box, A, fence, ttl=hour, how="bury") == [1, fence]
    assert box.redis.pttl(STATE) > hour, "invalidations must be remembered for longer than the value is there"


def test_nor_if_that_was_due_to_be_set_again(box: Box) -> None:
    hour = 3_600_000
    fence = granted(look(box, A))
    box.redis.hset(STATE, "keep", 1)
    assert land(box, A, fence, ttl=hour, how="bury") == [1, fence]
    assert box.redis.pttl(STATE) > hour
