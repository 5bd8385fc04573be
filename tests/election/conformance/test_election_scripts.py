"""The scripts of an election, on every server: who leads, who observes the leader, who is notified, who gets the lock next."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from holdfast._core.election import JOIN_ELECTION, NOTIFY_OBSERVERS, OBSERVE, PROCLAIM, TRANSFER
from holdfast._core.inspect.scan import SCAN
from holdfast._lua import Script, codes
from support.box import LOCK, QUEUE, STATE, Box, token

A, B, C = (token(process) for process in "abc")
OBSERVERS = "hf:{x}:observers"
KEYS = (LOCK, STATE, QUEUE, OBSERVERS)


def run(box: Box, script: Script[Any], keys: tuple[str, ...], *args: object) -> Any:
    return box.redis.eval(script.body, len(keys), *keys, *args)


def proclaim(box: Box, who: str, term: int, name: str = "n", value: str = "v", ms: int = 5000) -> Any:
    return run(box, PROCLAIM, KEYS, who, ms, term, name, value)


def observe(box: Box, listener_id: str = "", ms: int = 10_000) -> Any:
    return run(box, OBSERVE, (LOCK, STATE, OBSERVERS), ms, listener_id)


def transfer(box: Box, who: str, to: str) -> Any:
    return run(box, TRANSFER, KEYS, who, to)


def introduce(box: Box, who: str, name: str) -> Any:
    return run(box, JOIN_ELECTION, (STATE,), who, name)


def listener_id(process: str) -> str:
    return f"{process * 12}.hope"


def line_up(box: Box, *who: tuple[str, str]) -> None:
    for candidate, name in who:
        assert box.acquire(candidate, 5000, join=True)[0] == 0
        assert introduce(box, candidate, name) == 1


def test_who_leads_is_seen_from_the_proclamation_on_and_as_long_as_the_lock_is_his(box: Box) -> None:
    assert observe(box) == [0]
    term = box.acquire(A, 1000)[1]
    taken, remaining = observe(box)
    assert (taken, 0 < remaining <= 1000) == (codes.UNPROCLAIMED, True)
    assert proclaim(box, A, term) == [1]
    leads, remaining, *who = observe(box)
    assert (leads, who, 1000 < remaining <= 5000) == (1, [term, b"n", b"v"], True), "with the full lease"
    assert proclaim(box, A, term, value="other", ms=0) == [1]
    assert observe(box)[2:] == [term, b"n", b"other"]
    assert box.redis.pttl(LOCK) <= 5000
    box.release(A)
    assert observe(box) == [0]
    assert proclaim(box, A, term) == [0], "too late"
    box.acquire(B, 1000)
    assert observe(box)[0] == codes.UNPROCLAIMED, "the next one has not said who he is"


def test_observers_are_told_by_each_change_and_look_again(box: Box) -> None:
    box.listen("b", "c")
    term = box.acquire(A, 5000)[1]
    for process in "bc":
        observe(box, listener_id(process))
    assert 0 < box.redis.pttl(OBSERVERS) <= 10_000
    assert all(9000 < until - box.now_us() / 1000 <= 10_000 for _, until in box.redis.zrange(OBSERVERS, 0, -1, withscores=True))
    proclaim(box, A, term)
    assert [box.heard(process) for process in "bc"] == [[f"3 {listener_id('b')}"], [f"3 {listener_id('c')}"]]
    assert not box.redis.exists(OBSERVERS), "who looks is listed again"
    observe(box, listener_id("b"))
    assert run(box, NOTIFY_OBSERVERS, (OBSERVERS,)) == 1
    assert box.heard("b") == [f"3 {listener_id('b')}"]
    assert run(box, NOTIFY_OBSERVERS, (OBSERVERS,)) == 0


def test_a_named_candidate_is_given_it_wherever_it_stands(box: Box) -> None:
    box.listen("b", "c", "d")
    term = box.acquire(A, 5000)[1]
    line_up(box, (B, "b"), (C, "c"))
    observe(box, listener_id("d"))
    assert transfer(box, A, "nobody") == [codes.NO_CANDIDATE, b"b", b"c"]
    assert box.redis.get(LOCK) == A.encode(), "nothing has changed"
    assert transfer(box, A, "c") == [1]
    ((granted, fence),) = [tuple(message.split()[1:]) for message in box.heard("c")]
    assert (granted, int(fence) > term) == (C, True)
    assert (box.redis.get(LOCK), 0 < box.redis.pttl(LOCK) <= 2000) == (C.encode(), True)
    assert box.heard("d") == [f"3 {listener_id('d')}"]
    assert transfer(box, A, "c") == [1], "the same again for the same request"
    assert box.heard("c") == []
    assert box.redis.zrange(QUEUE, 0, -1) == [B.encode()]
    assert not box.redis.hexists(STATE, f"as:{C}")
    assert transfer(box, B, "c") == [0], "it is not his"


def test_who_does_not_listen_or_has_shown_no_sign_of_life_is_no_candidate(box: Box) -> None:
    box.listen("b")
    box.acquire(A, 5000)
    line_up(box, (B, "b"))
    seconds, _ = box.redis.time()
    box.redis.hset(STATE, f"at:{B}", seconds * 1000 + 900)  # the last refresh was two seconds ago: the process may hang
    assert transfer(box, A, "b") == [codes.NO_CANDIDATE]
    box.acquire(B, 5000, join=True)
    box.deafen("b")
    assert transfer(box, A, "b") == [codes.NO_CANDIDATE]
    assert box.redis.get(LOCK) == A.encode()


def test_a_transfer_that_did_not_reach_the_candidate_changes_nothing(box: Box) -> None:
    """Access control hides from the leader that the candidate does not listen."""
    box.redis.execute_command("ACL SETUSER", "blind", "on", ">secret", "~*", "&*", "+@all", "-pubsub")
    blind: Any = redis.Redis(unix_socket_path=box.server.socket, username="blind", password="secret", protocol=2)
    try:
        box.listen("b")
        box.acquire(A, 5000)
        line_up(box, (B, "b"))
        box.deafen("b")
        assert blind.eval(TRANSFER.body, len(KEYS), *KEYS, A, "b") == [codes.NO_CANDIDATE]
        assert box.redis.get(LOCK) == A.encode()
        assert 4000 < box.redis.pttl(LOCK) <= 5000
        assert box.line() == [B]
    finally:
        blind.close()
        box.redis.acl_deluser("blind")


def test_a_name_stays_as_long_as_its_place(box: Box) -> None:
    assert introduce(box, B, "b") == 0, "without a place"
    assert not box.redis.exists(STATE)
    box.listen("b")
    box.acquire(A, 5000)
    line_up(box, (B, "b"))
    box.release(B, "leave")
    assert not box.redis.hexists(STATE, f"as:{B}")


def test_a_lost_state_is_put_right_by_the_leader(box: Box) -> None:
    term = box.acquire(A, 5000)[1]
    box.redis.delete(STATE)
    assert observe(box)[0] == codes.UNPROCLAIMED
    assert proclaim(box, A, term) == [1]
    assert observe(box)[2] == term
    assert int(box.redis.hget(STATE, "fence")) >= term
    assert box.redis.pttl(STATE) > 0


@pytest.mark.parametrize("key", [*KEYS])
def test_what_is_somebody_elses_is_left_alone(box: Box, key: str) -> None:
    box.redis.sadd(key, "theirs")
    before = box.redis.keys()
    for answer in (proclaim(box, A, 5), transfer(box, A, "b"), observe(box, listener_id("b"))):
        assert answer == [codes.WRONG_TYPE, key.encode(), b"set"] or key == QUEUE
    assert introduce(box, A, "a") == 0
    assert run(box, NOTIFY_OBSERVERS, (OBSERVERS,)) == (key == QUEUE), "only what is ours"
    assert set(box.redis.keys()) <= {*before, OBSERVERS.encode()}
    assert box.redis.smembers(key) == {b"theirs"}
    box.redis.delete(key)


def test_another_format_is_refused(box: Box) -> None:
    box.redis.hset(STATE, "v", "9")
    assert proclaim(box, A, 5) == transfer(box, A, "b") == observe(box) == [-3, b"9"]
    box.redis.delete(STATE)


def test_a_full_server_answers_observers_all_the_same(box: Box) -> None:
    term = box.acquire(A, 5000)[1]
    proclaim(box, A, term)
    box.redis.config_set("maxmemory", 1)
    try:
        assert observe(box, listener_id("b"))[2] == term
        with pytest.raises(redis.ResponseError, match="memory"):
            proclaim(box, A, term)
    finally:
        box.redis.config_set("maxmemory", 0)


@pytest.mark.turns
def test_a_scan_names_the_leader_only_while_it_holds_the_lock(box: Box) -> None:
    def look() -> Any:
        return run(box, SCAN, (LOCK, STATE, f"{LOCK}:queue", f"{LOCK}:listeners"), 10)[1]

    proclaim(box, A, box.acquire(A, 5000)[1], "n")
    assert look()[8] == b"n"
    box.release(A)
    box.acquire(B)
    for process in (C, token("d")):
        box.acquire(process, join=True)
    seen = look()
    assert seen[8] == b""
    assert [waiter[0] for waiter in seen[5]] == [b"c" * 12, b"d" * 12]
