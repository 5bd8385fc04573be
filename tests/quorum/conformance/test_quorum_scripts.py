"""The promises of the scripts of a lock on several servers, on every server."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast._core.inspect.break_lock import BREAK_LOCK
from holdfast._core.lock.replies import BLOCK
from holdfast._core.quorum.votes import CONFIRM, DECLARE_NEW, RELEASE_VOTE, VOTE
from holdfast._lua import Script, codes
from support.box import LOCK, STATE, Box, token

HOPEFULS, MARKER = "hf:{x}:hopefuls", "hf:marker"
PLACES = (LOCK, STATE, HOPEFULS)
A, B, C = (token(process) for process in "abc")
HOPE = {who: token(who, 99) for who in "abc"}
LONGEST = 60_000
KEEP = 600_000


def run(box: Box, script: Script[Any], keys: tuple[str, ...], *args: object) -> Any:
    return box.redis.eval(script.body, len(keys), *keys, *args)


def vote(box: Box, who: str, ttl: int = 30_000, **options: Any) -> Any:
    """Without the run id, which every answer begins with."""
    given = {"hint": 0, "longest": LONGEST, "digest": "list", "listener_id": "", "waited": 0, "more": 0} | options
    run_id, *answer = run(box, VOTE, (*PLACES, MARKER), who, ttl, *given.values())
    assert run_id == box.redis.info("server")["run_id"].encode()
    return answer


def confirm(box: Box, who: str, fence: int) -> Any:
    return run(box, CONFIRM, PLACES[:2], who, fence)


def give(box: Box, who: str, mode: str = "release", listener_id: str = "") -> Any:
    return run(box, RELEASE_VOTE, PLACES, who, mode, listener_id)


def declare(box: Box, longest: int = LONGEST, digest: str = "list", *, force: bool = False) -> Any:
    return run(box, DECLARE_NEW, (MARKER,), longest, digest, int(force))


@pytest.fixture
def voter(box: Box) -> Iterator[Box]:
    """A server that was declared new."""
    assert declare(box) == [1]
    yield box
    assert box.keys_for_ever() == [MARKER]
    box.redis.delete(MARKER)


def hopes(box: Box) -> list[str]:
    return [one.decode() for one in box.redis.zrange(HOPEFULS, 0, -1)]


# declare, and the marker


def test_who_votes_again_when_the_fences_are_gone_gets_new_ones(voter: Box) -> None:
    vote(voter, A)
    voter.redis.delete(STATE)
    done, first, *_ = vote(voter, A)
    assert (done, first > 0) == (1, True)


def test_declared_new_once(box: Box) -> None:
    assert declare(box) == [1]
    marker = {field.decode(): value.decode() for field, value in box.redis.hgetall(MARKER).items()}
    assert marker == {"run": box.redis.info("server")["run_id"], "since": "0", "lease": "60000", "servers": "list"}
    assert declare(box) == [0]
    assert declare(box, longest=5000) == [-6, LONGEST]
    assert declare(box, digest="other") == [-7, b"list"]
    assert vote(box, A)[0] == 1
    assert declare(box, longest=5000, digest="other", force=True) == [1]
    assert box.redis.hmget(MARKER, "lease", "servers") == [b"5000", b"other"]
    box.redis.delete(MARKER)


def test_a_server_that_drops_what_was_agreed_on_waits_before_it_votes_again(box: Box) -> None:
    """It may have voted for a lease of the earlier length."""
    assert declare(box) == [1]
    code, left = run(box, DECLARE_NEW, (MARKER,), 3000, "other", "+")
    assert (code, left) == (codes.QUARANTINED, 3032)
    assert vote(box, A, longest=3000, digest="other")[0] == codes.QUARANTINED
    box.redis.hincrby(MARKER, "since", -4000)
    assert vote(box, A, longest=3000, digest="other")[0] == 1
    box.redis.delete(MARKER)


def test_a_server_that_may_have_forgotten_waits(box: Box) -> None:
    before = box.now_us() // 1000
    code, left = vote(box, A, longest=3000)
    assert (code, left) == (codes.QUARANTINED, 3032), "the longest lease, and the drift allowance"
    assert before <= int(box.redis.hget(MARKER, "since")) <= box.now_us() // 1000
    assert vote(box, A, longest=3000)[1] <= left, "it counts from when it was first asked"
    assert not box.redis.exists(*PLACES)
    box.redis.hincrby(MARKER, "since", -4000)
    assert vote(box, A, longest=3000)[0] == 1
    box.redis.hset(MARKER, "run", "0" * 40)
    assert vote(box, A, longest=3000)[0] == codes.QUARANTINED, "restarted, or the data is another server's"
    box.redis.hincrby(MARKER, "since", 10_000)
    assert vote(box, A, longest=3000)[1] <= 3050, "its clock went back: as from now"
    assert declare(box, longest=3000) == [1]
    assert vote(box, A, longest=3000)[0] == 1
    box.redis.delete(MARKER)


def test_what_was_agreed_on(voter: Box) -> None:
    assert vote(voter, A, longest=5000) == [-6, LONGEST]
    assert vote(voter, A, digest="other") == [-7, b"list"]
    assert not voter.redis.exists(*PLACES)


def test_data_of_somebody_else_is_left_alone(voter: Box) -> None:
    for key, name in ((LOCK, b"hf:{x}"), (STATE, b"hf:{x}:state")):
        voter.redis.lpush(key, "x")
        before = voter.dump()
        assert vote(voter, A) == [codes.WRONG_TYPE, name, b"list"]
        assert confirm(voter, A, 7) == 0
        assert give(voter, A) == (-1 if key == LOCK else 0)
        assert voter.dump() == before
        voter.redis.delete(key)
    voter.redis.hset(STATE, "v", "2")
    voter.redis.expire(STATE, 60)
    assert vote(voter, A) == [-3, b"2"]
    voter.redis.delete(STATE, MARKER)
    voter.redis.lpush(MARKER, "x")
    assert vote(voter, A) == [codes.WRONG_TYPE, b"hf:marker", b"list"]
    voter.redis.delete(MARKER)
    declare(voter)


# vote


def test_a_free_lock_is_granted(voter: Box) -> None:
    before = voter.now_us()
    status, first, last, now, others = vote(voter, A)
    assert (status, others) == (1, 0)
    assert before < first <= now <= voter.now_us()
    assert last == first + BLOCK - 1 == voter.last()
    assert voter.holder() == A
    assert 29_000 < voter.redis.pttl(LOCK) <= 30_000
    assert voter.redis.pttl(STATE) >= KEEP
    assert vote(voter, A)[:3] == [1, first, last], "again"
    voter.redis.pexpire(LOCK, 9_000)
    vote(voter, A)
    assert voter.redis.pttl(LOCK) > 29_000, "for the full lease"
    assert vote(voter, A, more=7, hint=1)[1:3] == [last + 1, last + BLOCK]
    assert vote(voter, A, more=100, hint=1)[1:3] == [last + BLOCK + 1, last + BLOCK + 100]


@pytest.mark.parametrize(("hint", "ahead"), [(1, 1), (1_500_000, 1_500_000), (9_000_000, 2_000_000)])
def test_the_fence_that_all_are_asked_for(voter: Box, hint: int, ahead: int) -> None:
    """Within two seconds of the server's own time; whatever is asked, it rises."""
    _, first, _, now, _ = vote(voter, A, hint=voter.now_us() + hint)
    assert first == pytest.approx(now + ahead, abs=500_000)
    give(voter, A)
    assert vote(voter, B, hint=5)[1] == first + BLOCK, "never less than what was issued"


def test_busy(voter: Box) -> None:
    last = vote(voter, A)[2]
    code, left, said, process, mark, now = vote(voter, B)
    assert (code, said, process) == (0, last, b"a" * 12)
    assert 29_000 < left <= 30_000
    assert len(mark) == 12
    assert mark not in A.encode()
    assert 0 <= voter.now_us() - now < 1_000_000
    assert vote(voter, C)[4] == mark, "the same for the same holder"
    assert hopes(voter) == [], "they do not wait"
    voter.redis.set(LOCK, "foreign")
    assert vote(voter, B)[1:4:2] == [-1, b""]
    assert vote(voter, B)[4] != mark
    voter.redis.delete(LOCK)


def test_who_listens_is_told_in_the_order_of_waiting(voter: Box) -> None:
    voter.listen("a", "b", "c")
    vote(voter, A)
    vote(voter, B, listener_id=HOPE["b"], waited=100)
    assert vote(voter, A)[4] == 1, "others hope for it"
    vote(voter, C, listener_id=HOPE["c"], waited=5_000)
    assert hopes(voter) == [HOPE["c"], HOPE["b"]]
    assert voter.redis.pttl(HOPEFULS) >= KEEP - 1000
    assert voter.heard("a") == [f"2 {A}"] * 2, "so does the holder's process learn of it, once from each"
    vote(voter, C, listener_id=HOPE["c"], waited=5_100)
    assert voter.heard("a") == []
    assert give(voter, A) == 1
    assert voter.heard("c") == [f"3 {HOPE['c']}"]
    assert voter.heard("b") == []
    voter.redis.hset(STATE, "next", f"{voter.state()['next'].rpartition(' ')[0]} {2**52}")  # or it is over in a moment
    assert vote(voter, A)[:2] == [0, 0], "kept for who has waited longer"
    assert vote(voter, B, listener_id=HOPE["b"], waited=200)[:2] == [0, 0]
    assert vote(voter, C, listener_id=HOPE["c"], waited=5_200)[0] == 1
    assert hopes(voter) == [HOPE["b"]]
    assert "next" not in voter.state()


def test_who_has_waited_even_longer_goes_before_who_was_told(voter: Box) -> None:
    voter.listen("b")
    vote(voter, A)
    vote(voter, B, listener_id=HOPE["b"], waited=100)
    give(voter, A)
    assert vote(voter, C, listener_id=HOPE["c"], waited=60_000)[0] == 1


def test_it_is_not_kept_for_long(voter: Box) -> None:
    voter.listen("b")
    vote(voter, A)
    vote(voter, B, listener_id=HOPE["b"])
    before = voter.now_us() // 1000
    give(voter, A)
    listener_id, since, until = voter.state()["next"].split()
    assert listener_id == HOPE["b"]
    assert before + 100 <= int(until) <= voter.now_us() // 1000 + 100
    voter.redis.hset(STATE, "next", f"{listener_id} {since} {voter.now_us() // 1000 - 1}")
    assert vote(voter, A)[0] == 1


# confirm


def test_only_the_holder_confirms_and_never_less(voter: Box) -> None:
    last = vote(voter, A)[2]
    assert confirm(voter, A, last) == 1
    assert confirm(voter, A, last + 50) == 1
    assert voter.last() == last + 50
    assert confirm(voter, A, last + 49) == 0
    assert confirm(voter, B, last + 60) == 0
    give(voter, A)
    assert confirm(voter, A, last + 60) == 0
    assert voter.last() == last + 50
    assert vote(voter, B)[1] > last + 50


# yield


def test_given_back(voter: Box) -> None:
    assert give(voter, A) == 0
    vote(voter, A)
    assert give(voter, B) == codes.NO_CLAIM
    assert voter.holder() == A
    assert give(voter, A) == 1
    assert give(voter, A) == 0
    assert voter.holder() is None
    assert vote(voter, A)[0] == 1, "not declared dead"


@pytest.mark.parametrize("held", [False, True])
def test_revoked(voter: Box, held: bool) -> None:
    if held:
        vote(voter, A)
    assert give(voter, A, "bury") == held
    assert vote(voter, A) == [codes.NO_CLAIM]
    for number in range(150):
        give(voter, token("c", number), "bury")
    assert vote(voter, token("c", 149)) == [codes.NO_CLAIM]
    assert vote(voter, token("c", 51)) == [codes.NO_CLAIM]
    assert len(voter.state()["dead"]) <= 100 * (len(A) + 1), "the newest hundred"


def test_who_leaves_lets_the_next_one_know(voter: Box) -> None:
    voter.listen("b", "c")
    vote(voter, A)
    vote(voter, B, listener_id=HOPE["b"], waited=10)
    vote(voter, C, listener_id=HOPE["c"])
    give(voter, A)
    assert voter.heard("b") == [f"3 {HOPE['b']}"]
    assert give(voter, B, "leave", HOPE["b"]) == 0
    assert voter.heard("c") == [f"3 {HOPE['c']}"], "the one who was told does not want it any more"
    assert hopes(voter) == []
    assert give(voter, C, "leave", HOPE["c"]) == 0
    assert "next" not in voter.state()


def test_who_does_not_listen_is_passed_over(voter: Box) -> None:
    voter.listen("c")
    vote(voter, A)
    vote(voter, B, listener_id=HOPE["b"], waited=10)
    vote(voter, C, listener_id=HOPE["c"])
    give(voter, A)
    assert voter.heard("c") == [f"3 {HOPE['c']}"]
    assert hopes(voter) == []


def test_all_candidates_are_told_when_the_lock_is_broken(voter: Box) -> None:
    """A break on one server does not decide who is the next."""
    voter.listen("b", "c")
    vote(voter, A)
    for who in "bc":
        vote(voter, token(who), listener_id=HOPE[who])
    mark = hashlib.sha1(A.encode(), usedforsecurity=False).hexdigest()[:16]
    assert run(voter, BREAK_LOCK, (*PLACES[:2], "hf:{x}:queue", HOPEFULS, MARKER), mark, "ops@host")[0] == 1
    assert [voter.heard(who) for who in "bc"] == [[f"3 {HOPE[who]}"] for who in "bc"]
    assert voter.holder() is None


def test_when_memory_is_full_a_vote_can_be_given_back(voter: Box) -> None:
    voter.listen("b")
    vote(voter, A)
    vote(voter, B, listener_id=HOPE["b"])
    voter.redis.config_set("maxmemory", 1)
    try:
        assert give(voter, A) == 1
        assert voter.holder() is None
    finally:
        voter.redis.config_set("maxmemory", 0)


@pytest.mark.turns
def test_every_key_is_declared(voter: Box) -> None:
    voter.listen("b")
    vote(voter, A)
    calls: list[tuple[Script[Any], tuple[str, ...], tuple[object, ...]]] = [
        (VOTE, (*PLACES, MARKER), (B, 30_000, 0, LONGEST, "list", HOPE["b"], 0, 0)),
        (CONFIRM, PLACES[:2], (A, voter.last() + 1)),
        (RELEASE_VOTE, PLACES, (A, "bury", HOPE["a"])),
        (DECLARE_NEW, (MARKER,), (LONGEST, "list", 1)),
    ]
    for script, keys, args in calls:
        with voter.watched() as commands:
            run(voter, script, keys, *args)
        touched = {key for command in commands for key in voter.keys_in(command)}
        assert touched
        assert touched <= set(keys), script
