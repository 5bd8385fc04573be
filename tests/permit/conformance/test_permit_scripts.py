"""The scripts of permits, on every server: who has how many, who is next, who is notified, and which permits expire."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from hashlib import sha1
from typing import Any

import pytest
import redis

from holdfast._core.inspect.break_lock import BREAK_PERMITS
from holdfast._core.lock.replies import CLAIM_WINDOW_S
from holdfast._core.permit import ACQUIRE, ALL, CHANGE, LIMIT, REFRESH, RELEASE, RENEW
from holdfast._lua import Script, codes, whole_number
from support.box import KEYS, LOCK, QUEUE, STATE, Box
from support.box import token as plain

LEASE = 30_000
MOVING: Script[int] = Script("permit/migrating", whole_number)


def run(box: Box, script: Script[Any], *args: object, keys: tuple[str, ...] = KEYS) -> Any:
    return box.redis.eval(script.body, len(keys), *keys, *args)


def token(process: str, many: int = 1, number: int = 0) -> str:
    return f"{plain(process, number)}*{many}"


def acquire(
    box: Box, who: str, limit: int | str = 2, *, join: bool = False, ttl: int = LEASE, kind: str = "semaphore 1"
) -> Any:
    return run(box, ACQUIRE, who, ttl, int(join), kind, limit)


def read(box: Box, who: str, *, join: bool = False, ttl: int = LEASE) -> Any:
    return acquire(box, who, ALL, join=join, ttl=ttl, kind="rwlock 1")


def release(box: Box, who: str, mode: str = "release") -> Any:
    return run(box, RELEASE, who, mode)


def refresh(box: Box, *who: str) -> Any:
    inbox = box.channel(who[0][0])
    return run(box, REFRESH, inbox, *(value for one in who for value in (one, LEASE)), keys=KEYS * len(who))[1:]


def renew(box: Box, who: str, ttl: int = LEASE, number: int = 1) -> Any:
    return run(box, RENEW, who, ttl, number)[0]


def taken_away(box: Box, *who: str) -> Any:
    return run(box, BREAK_PERMITS, "ops@host", *(sha1(one.encode(), usedforsecurity=False).hexdigest()[:16] for one in who))


def change(box: Box, who: str, its_fence: int = 7) -> Any:
    return run(box, CHANGE, who, 1, its_fence, LEASE, "rwlock 1", ALL)


def moving(box: Box, who: str, ttl: int = LEASE) -> Any:
    return run(box, MOVING, who, ttl, keys=KEYS[:1])


def fence(answer: Any) -> int:
    assert answer[0] == 1, answer
    return int(answer[1])


def full(box: Box) -> None:
    """One holds all, two wait."""
    acquire(box, token("a", 2))
    acquire(box, token("b"), join=True)
    acquire(box, token("b", 1, 1), join=True)


def freed(box: Box) -> None:
    """The same, and the waiter has gone without a word."""
    full(box)
    box.redis.zadd(LOCK, {token("a", 2): 1})


def forgotten(box: Box) -> None:
    """The leases of all holders have ended."""
    acquire(box, token("a", 2))
    box.redis.delete(LOCK)


def written(box: Box) -> None:
    """Held for writing, while a reader waits."""
    read(box, token("a", ALL))
    read(box, token("b"), join=True)


def theirs(box: Box) -> None:
    box.redis.rpush(LOCK, "theirs")


_ACQUIRE = (token("b"), LEASE, 1, "semaphore 1", 2)
PERMIT_CASES: list[tuple[str, tuple[str, ...], tuple[object, ...], Callable[[Box], object]]] = [
    *(("permit/acquire", KEYS, _ACQUIRE, prepare) for prepare in (Box.clear_keys, full, freed, forgotten, theirs)),
    *(("permit/release", KEYS, (token("a", 2), "release"), prepare) for prepare in (Box.clear_keys, full, freed, forgotten)),
    *(("permit/refresh", KEYS, (Box.channel("b"), token("b"), LEASE), prepare) for prepare in (full, freed, forgotten, theirs)),
    ("permit/refresh", KEYS, (Box.channel("c"), token("c"), LEASE), full),
    *(("permit/renew", KEYS, (token("a", 2), LEASE, 1), prepare) for prepare in (full, freed, forgotten)),
    *(
        ("permit/change", KEYS, (token("a", ALL), 1, 7, LEASE, "rwlock 1", ALL), prepare)
        for prepare in (written, Box.clear_keys)
    ),
    *(("permit/migrating", KEYS[:1], (token("a", 2), ttl), full) for ttl in (LEASE + 1, 0)),
    *(("permit/limit", KEYS, ("semaphore 1", limit, LEASE), prepare) for limit in ("", 3) for prepare in (full, freed, theirs)),
]
"""Script, keys, arguments, and what is there before."""


@pytest.fixture(autouse=True)
def _what_is_counted_is_what_is_held(box: Box) -> Iterator[None]:
    """At the end of each test: ``used`` is the sum of what the holders have, and each of them is noted once."""
    yield
    if box.redis.type(STATE) != b"hash" or b"limit" not in box.redis.hgetall(STATE):
        return
    run(box, LIMIT, "rwlock 1" if box.state()["v"] == "rwlock 1" else "semaphore 1", "", LEASE)  # holders whose time is over go
    held = {field[2:]: int(what.split()[1]) for field, what in box.state().items() if field.startswith("h:")}
    assert sorted(held) == sorted(one.decode() for one in box.redis.zrange(LOCK, 0, -1))
    assert int(box.state().get("used", 0)) == sum(held.values())


def test_as_many_as_there_are_and_no_more(box: Box) -> None:
    first = fence(acquire(box, token("a")))
    assert fence(acquire(box, token("b"), ttl=2 * LEASE)) > first
    what, left, last, process, _ = acquire(box, token("c"))
    assert (what, process) == (0, b"a" * 12)
    assert fence(acquire(box, token("a"))) == first, "the same again for the same request"
    assert last > first
    assert 0 < left <= LEASE
    assert release(box, token("a")) == 1
    assert release(box, token("a")) == 0
    assert fence(acquire(box, token("c"))) > last
    assert box.keys_for_ever() == []


def test_what_is_known_of_permits_outlives_the_longest_lease(box: Box) -> None:
    acquire(box, token("a"))
    acquire(box, token("b"), ttl=3_600_000)
    assert box.redis.pttl(STATE) > 3_600_000


def test_the_limit_is_agreed_on(box: Box) -> None:
    assert acquire(box, token("a"), "") == [codes.OTHER_COUNT, 0], "nobody has said"
    assert box.dump() == {}
    fence(acquire(box, token("a"), 2))
    before = box.dump()
    assert acquire(box, token("b"), 3) == [codes.OTHER_COUNT, 2]
    assert acquire(box, token("b", 3), 2) == [codes.TOO_MANY, 2]
    assert box.dump()[LOCK] == before[LOCK]
    fence(acquire(box, token("b"), ""))
    assert run(box, LIMIT, "semaphore 1", "", LEASE) == [1, 2, 2, 0]


def test_a_change_of_the_limit_reaches_who_waits_and_takes_from_nobody(box: Box) -> None:
    box.listen("c", "d")
    fence(acquire(box, token("a")))
    fence(acquire(box, token("b")))
    assert acquire(box, token("c", 2), join=True)[0] == 0
    assert acquire(box, token("d"), join=True)[0] == 0
    assert run(box, LIMIT, "semaphore 1", 4, LEASE) == [1, 4, 4, 1]
    assert [message.split()[:2] for message in box.heard("c")] == [["1", token("c", 2)]]
    assert box.heard("d") == []
    fence(acquire(box, token("a"), 2))  # knows the limit before only
    assert run(box, LIMIT, "semaphore 1", 1, LEASE) == [1, 1, 4, 1]
    assert renew(box, token("c", 2)) == 1
    for who in (token("a"), token("b")):
        assert release(box, who) == 1
        assert box.heard("d") == [], "more than there are now are held still"
    assert release(box, token("c", 2)) == 1
    assert len(box.heard("d")) == 1


def test_of_those_who_wait_for_more_than_there_are_now_each_is_told_to_ask_again(box: Box) -> None:
    box.listen("b")
    fence(acquire(box, token("a"), 3))
    acquire(box, token("b", 3), 3, join=True)
    run(box, LIMIT, "semaphore 1", 2, LEASE)
    assert refresh(box, token("b", 3)) == [[codes.NO_CLAIM]]
    assert acquire(box, token("b", 3), 3) == [codes.TOO_MANY, 2]


def test_nobody_goes_before_one_who_wants_more_than_is_free(box: Box) -> None:
    box.listen("b", "c")
    fence(acquire(box, token("a"), 2))
    assert acquire(box, token("b", 2), 2, join=True)[0] == 0
    assert acquire(box, token("c"), 2, join=True)[0] == 0
    assert acquire(box, token("d"), 2)[0] == 0, "one is free, and it is not his"
    assert box.line() == [token("b", 2), token("c")]
    release(box, token("a"))
    assert box.line() == [token("c")]
    assert box.heard("c") == []
    release(box, token("b", 2))
    assert len(box.heard("c")) == 1


def test_fifty_readers_come_in_together_and_the_next_writer_after_them(box: Box) -> None:
    box.listen("b", "c")
    fence(read(box, token("a", ALL)))
    readers = [token("b", 1, number) for number in range(50)]
    for reader in readers:
        assert read(box, reader, join=True)[0] == 0
    read(box, token("c", ALL), join=True)
    assert release(box, token("a", ALL)) == 1
    assert sorted(message.split()[1] for message in box.heard("b")) == readers
    assert box.heard("c") == []
    assert read(box, token("d"))[0] == 0, "a writer waits"
    for reader in readers:
        assert release(box, reader) == 1
    assert len(box.heard("c")) == 1


def test_a_writer_becomes_a_reader_and_lets_the_readers_in(box: Box) -> None:
    box.listen("b", "c", "d")
    first = fence(read(box, token("a", ALL)))
    for who in (token("b"), token("c", ALL), token("d")):
        read(box, who, join=True)
    assert change(box, token("a", ALL)) == 1
    assert change(box, token("a", ALL)) == 1
    assert (len(box.heard("b")), box.heard("c"), box.heard("d")) == (1, [], [])
    assert fence(read(box, token("a", ALL))) == first, "a late copy does not make it a writer again"
    assert box.state()["used"] == "2"
    release(box, token("b"))
    release(box, token("a", ALL))
    assert len(box.heard("c")) == 1
    assert change(box, token("a", ALL)) == 0


def test_who_released_its_permit_may_acquire_with_the_same_token(box: Box) -> None:
    for _ in range(2):
        box.listen("b")
        assert acquire(box, token("a", 2))[0] == 1
        acquire(box, token("b"), join=True)  # now there is a queue
        assert release(box, token("a", 2)) == 1
        assert release(box, token("b")) == 1


def test_a_writer_that_becomes_a_reader_keeps_its_longer_lease(box: Box) -> None:
    read(box, token("a", ALL), ttl=4 * LEASE)
    assert change(box, token("a", ALL)) == 1
    assert box.redis.pttl(LOCK) > 3 * LEASE


def test_a_writer_that_became_a_reader_releases_one_permit(box: Box) -> None:
    """Its token still names all permits. While another reader holds the lock, a waiting writer is not granted."""
    box.listen("c")
    fence(read(box, token("a", ALL)))
    assert change(box, token("a", ALL)) == 1
    fence(read(box, token("b")))
    assert read(box, token("c", ALL), join=True)[0] == 0
    assert release(box, token("a", ALL)) == 1
    assert box.heard("c") == []
    assert box.state()["used"] == "1"
    assert release(box, token("b")) == 1
    assert len(box.heard("c")) == 1


def test_the_permits_of_who_does_not_renew_come_back_each_in_its_time(box: Box) -> None:
    box.listen("d")
    for one in "abc":
        fence(acquire(box, token(one), 3, ttl=LEASE))
    assert acquire(box, token("d"), 3, join=True)[0] == 0
    assert renew(box, token("a"), ttl=60) == 1
    while run(box, LIMIT, "semaphore 1", "", LEASE)[2] == 3:
        time.sleep(0.01)
    assert renew(box, token("a")) == 0, "what is lost stays lost"
    assert release(box, token("a")) == 0
    assert fence(refresh(box, token("d"))[0]) > 0


def test_nothing_is_left_of_holders_whose_leases_have_all_ended(box: Box) -> None:
    for number in range(3):
        fence(acquire(box, token("a", 1, number), 3, ttl=30))
    while box.redis.exists(LOCK):
        time.sleep(0.01)
    fence(acquire(box, token("b", 3), 3))
    assert [field for field in box.state() if field.startswith("h:")] == ["h:" + token("b", 3)]


def test_what_was_given_counts_for_a_moment_until_it_is_taken_up(box: Box) -> None:
    box.listen("b")
    fence(acquire(box, token("a"), 1))
    acquire(box, token("b"), 1, join=True)
    release(box, token("a"))
    (message,) = box.heard("b")
    assert 0 < box.redis.zscore(LOCK, token("b")) - box.now_us() / 1000 <= 1000 * CLAIM_WINDOW_S
    assert fence(refresh(box, token("b"))[0]) == int(message.split()[2])
    assert box.redis.zscore(LOCK, token("b")) - box.now_us() / 1000 > 1000 * CLAIM_WINDOW_S
    assert renew(box, token("b"), number=2) == 1
    assert renew(box, token("b"), number=1) == 2, "a later request has overtaken it"


def test_who_does_not_listen_is_passed_over_and_keeps_his_place(box: Box) -> None:
    box.listen("b", "c")
    fence(acquire(box, token("a"), 1))
    acquire(box, token("b"), 1, join=True)
    acquire(box, token("c"), 1, join=True)
    box.deafen("b")
    release(box, token("a"))
    assert len(box.heard("c")) == 1
    assert box.line() == [token("b")]
    box.listen("b")
    release(box, token("c"))
    assert len(box.heard("b")) == 1


@pytest.mark.fault(49)
def test_a_waiter_that_may_not_be_told_is_granted_in_turn_all_the_same(box: Box) -> None:
    """If its process listens: it looks within a second. Passed over, it could be overtaken by everybody who comes later."""
    box.listen("b")
    box.redis.acl_setuser("mute", enabled=True, nopass=True, keys=["*"], commands=["+@all"], reset_channels=True)
    mute: Any = redis.Redis(unix_socket_path=box.server.socket, username="mute", password="x")
    try:
        acquire(box, token("a"), 1)
        acquire(box, token("b"), 1, join=True)
        mute.eval(RELEASE.body, 3, *KEYS, token("a"), "release")
        assert (box.line(), box.heard("b")) == ([], [])
        assert acquire(box, token("c"), 1, join=True)[0] == 0, "it came later"
        fence(refresh(box, token("b"))[0])
        box.deafen("b")
        acquire(box, token("b", 1, 1), 1, join=True)
        release(box, token("c"), "leave")
        mute.eval(RELEASE.body, 3, *KEYS, token("b"), "release")
        fence(acquire(box, token("c", 1, 1), 1))
        assert box.line() == [token("b", 1, 1)], "a waiter whose process does not listen is passed over"
    finally:
        mute.close()
        box.redis.acl_deluser("mute")


def test_a_waiter_without_a_sign_of_life_is_passed_over_and_keeps_its_place(box: Box) -> None:
    """Its process listens, but may hang. Each of its places would cost a claim."""
    box.listen("b", "c")
    fence(acquire(box, token("a"), 1))
    acquire(box, token("b"), 1, join=True)
    acquire(box, token("c"), 1, join=True)
    box.redis.hset(STATE, f"at:{token('b')}", box.now_us() // 1000 + 900)
    release(box, token("a"))
    assert [len(box.heard(process)) for process in "bc"] == [0, 1]
    assert box.line() == [token("b")]


def test_who_gives_up_or_is_revoked_leaves_nothing(box: Box) -> None:
    box.listen("b")
    fence(acquire(box, token("a"), 1))
    acquire(box, token("b"), 1, join=True)
    assert release(box, token("b"), "leave") == 0
    assert box.line() == []
    assert refresh(box, token("b")) == [[codes.NO_CLAIM]], "a refresh never inserts"
    assert release(box, token("b"), "bury") == 0
    assert acquire(box, token("b"), 1) == [codes.NO_CLAIM]
    assert release(box, token("a"), "bury") == 1
    assert acquire(box, token("a"), 1) == [codes.NO_CLAIM]


def test_a_state_that_is_lost_while_some_are_held_counts_them_still(box: Box) -> None:
    first = fence(acquire(box, token("a", 2), 3))
    fence(acquire(box, token("b"), 3))
    box.redis.delete(STATE)
    assert renew(box, token("a", 2)) == 1
    assert acquire(box, token("c"), 3)[0] == 0
    assert fence(acquire(box, token("a", 2), 3)) > first
    assert fence(acquire(box, token("b"), 3)) > first
    assert release(box, token("b")) == 1
    assert fence(acquire(box, token("c"), 3)) > first
    assert box.state()["used"] == "3"


@pytest.mark.parametrize("asked", [False, True], ids=["nobody", "a reader"])
def test_a_writer_whose_state_was_lost_becomes_a_reader_all_the_same(box: Box, asked: bool) -> None:
    """Its fence stays the same, and no client gets in that its permits keep out."""
    box.listen("b", "c")
    first = fence(read(box, token("a", ALL)))
    box.redis.delete(STATE)
    if asked:
        read(box, token("b"), join=True)
    assert change(box, token("a", ALL), first) == 1
    assert len(box.heard("b")) == asked
    assert box.state()["h:" + token("a", ALL)] == f"{first} 1 0"
    assert renew(box, token("a", ALL)) == 1
    assert fence(read(box, token("b"))) > first
    assert read(box, token("c", ALL), join=True)[0] == 0
    assert box.state()["used"] == "2"
    assert release(box, token("b")) == 1
    assert release(box, token("a", ALL)) == 1
    (message,) = box.heard("c")
    assert int(message.split()[2]) > first
    assert box.keys_for_ever() == []


def test_all_whose_time_is_over_are_found_at_once(box: Box) -> None:
    """Thousands may have crashed at the same time: who asks once has it."""
    fence(acquire(box, token("a"), 5001))
    with box.redis.pipeline() as pipe:
        for number in range(5000):
            dead = token("d", 1, number)
            pipe.zadd(LOCK, {dead: 1})
            pipe.hset(STATE, f"h:{dead}", "1 1 0")
        pipe.hset(STATE, "used", 5001)
        pipe.execute()
    fence(acquire(box, token("b", 5000), 5001))
    assert box.state()["used"] == "5001"
    assert renew(box, token("a")) == 1


def test_while_its_slot_is_moving_a_holder_is_renewed_and_gives_back(box: Box) -> None:
    """With the key of the holders alone. All else comes right with whatever script is next."""
    box.listen("c")
    fence(acquire(box, token("a"), 3, ttl=5000))
    fence(acquire(box, token("b", 2), 3, ttl=5000))
    acquire(box, token("c", 2), 3, join=True)
    assert moving(box, token("a")) == codes.UNNUMBERED
    assert box.redis.pttl(LOCK) > 5000
    assert box.redis.zscore(LOCK, token("a")) - box.now_us() / 1000 > 5000
    assert moving(box, token("b", 2), 1000) == codes.UNNUMBERED
    assert box.redis.zscore(LOCK, token("b", 2)) - box.now_us() / 1000 > 1000, "never shorter: it may be a late copy"
    assert moving(box, token("b", 2), 0) == 1
    for ttl in (0, LEASE):
        assert moving(box, token("b", 2), ttl) == 0, "what is given back stays so"
    assert moving(box, token("d")) == 0
    assert box.heard("c") == [], "nobody is told"
    assert fence(refresh(box, token("c", 2))[0]) > 0
    assert box.state()["used"] == "3"
    assert release(box, token("b", 2)) == 0


def test_holders_that_somebody_has_made_to_last_are_all_there_still(box: Box) -> None:
    """PERSIST, or a copy that has lost the expiry: nobody else's permits go with what one of them does."""
    fence(acquire(box, token("a"), 2))
    fence(acquire(box, token("b"), 2))
    box.redis.persist(LOCK)
    assert moving(box, token("a"), 0) == 1
    assert renew(box, token("b")) == 1
    box.redis.delete(*KEYS)
    fence(read(box, token("a", ALL)))
    box.redis.persist(LOCK)
    assert change(box, token("a", ALL)) == 1
    assert renew(box, token("a", ALL)) == 1
    assert box.keys_for_ever() == []


@pytest.mark.parametrize("key", KEYS)
def test_data_of_others_is_left_alone(box: Box, key: str) -> None:
    box.redis.rpush(key, "theirs")
    before = box.dump()
    assert acquire(box, token("a"), join=True) == [codes.WRONG_TYPE, key.encode(), b"list"]
    assert refresh(box, token("a")) == [[codes.WRONG_TYPE, key.encode(), b"list"]]
    assert run(box, LIMIT, "semaphore 1", 3, LEASE) == [codes.WRONG_TYPE, key.encode(), b"list"]
    assert renew(box, token("a")) == 0
    assert release(box, token("a")) == 0
    assert change(box, token("a")) == 0
    assert moving(box, token("a")) == 0
    assert box.dump() == before


def test_a_name_is_of_one_kind(box: Box) -> None:
    box.acquire(plain("a"))
    before = box.dump()
    assert acquire(box, token("b")) == [codes.WRONG_TYPE, LOCK.encode(), b"string"]
    assert box.dump() == before
    box.release(plain("a"))
    before = box.dump()
    assert acquire(box, token("b")) == [-3, b"1"]
    assert run(box, LIMIT, "semaphore 1", 2, LEASE) == [-3, b"1"]
    assert box.dump() == before
    box.clear_keys()
    fence(acquire(box, token("a")))
    before = box.dump()
    assert box.acquire(plain("b")) == [codes.WRONG_TYPE, LOCK.encode(), b"zset"]
    assert read(box, token("b")) == [-3, b"semaphore 1"]
    release(box, token("a"))
    assert box.acquire(plain("b"))[0] in {codes.WRONG_TYPE, codes.OTHER_FORMAT}


def test_when_memory_is_full_what_is_held_can_be_kept_made_less_and_given_back(box: Box) -> None:
    fence(read(box, token("a", ALL)))
    box.listen("b")
    read(box, token("b"), join=True)
    box.redis.config_set("maxmemory", 1)
    try:
        assert renew(box, token("a", ALL)) == 1
        assert moving(box, token("a", ALL)) == codes.UNNUMBERED
        assert change(box, token("a", ALL)) == 1
        assert len(box.heard("b")) == 1
        assert release(box, token("a", ALL)) == 1
        assert release(box, token("b")) == 1
    finally:
        box.redis.config_set("maxmemory", 0)
    assert box.redis.exists(QUEUE) == 0


def test_the_limit_may_be_said_before_anybody_has_had_a_permit(box: Box) -> None:
    assert run(box, LIMIT, "semaphore 1", 3, LEASE) == [1, 3, 0, 0]
    one = acquire(box, token("a"), "")
    assert one[0] == 1
    assert one[1] > 0


@pytest.mark.parametrize("kind", ["semaphore 1", "rwlock 1"])
def test_a_token_may_be_declared_dead_before_anything_is_there(box: Box, kind: str) -> None:
    """Its request was lost, or is late. The name is of no kind by that, least of all a lock's."""
    late = token("a")
    assert release(box, late, "bury") == 0
    assert 0 < box.redis.pttl(STATE) <= 2 * 600_000
    assert acquire(box, token("b"), ALL, kind=kind)[0] == 1
    assert acquire(box, late, ALL, kind=kind) == [codes.NO_CLAIM]


def test_a_renewal_tells_whose_permits_were_taken_away(box: Box) -> None:
    a, b, c = (token(process) for process in "abc")
    acquire(box, a)
    acquire(box, b)
    assert renew(box, c) == 0, "it never had any"
    assert taken_away(box, a)[0] == 1
    assert [renew(box, who) for who in (a, b, c)] == [codes.TAKEN_AWAY, 1, 0]


def test_of_several_whose_permits_were_taken_away_each_is_refused(box: Box) -> None:
    """So is a token that was revoked before them: copies of their requests may arrive late."""
    a, b, c = (token(process) for process in "abc")
    acquire(box, a)
    acquire(box, b)
    assert release(box, c, "bury") == 0
    assert taken_away(box, a, b)[0] == 1
    assert [acquire(box, who) for who in (a, b, c)] == [[codes.NO_CLAIM]] * 3
