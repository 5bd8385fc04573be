"""Acquire, refresh, release and break a lock with quarantine=, on every server."""

from __future__ import annotations

import hashlib
import time

import pytest
import redis

from holdfast._core.lock.replies import BLOCK
from holdfast._lua import codes, source
from support.box import KEYS, LOCK, MARKER, QUEUE, Box, token

A, B, C = (token(process) for process in "abc")
QUARANTINE = 30_000
PAUSE = 30_302
"""The longest lease, one percent and two milliseconds."""


def declare(box: Box) -> None:
    assert box.redis.eval(source("quorum/declare_new"), 1, MARKER, QUARANTINE, "", 0) == [1]


def forget(box: Box) -> None:
    """As far as the server can know: another one wrote this."""
    box.redis.hset(MARKER, "run", "another")


def paused(answer: list[object]) -> bool:
    left, fence = answer[1:3]
    assert isinstance(left, int)
    assert isinstance(fence, int)
    assert fence > time.time() * 1e6 + 1000 * (PAUSE - 5_000), "a message with a lower one is not to be believed"
    return answer[0] == 0 and answer[3:] == [b"guard", 0] and PAUSE - 5_000 < left <= PAUSE


def test_a_new_server_grants_nothing_before_the_longest_lease_has_passed(box: Box) -> None:
    first = box.acquire(A, quarantine=QUARANTINE)
    assert paused(first)
    assert first[1] == PAUSE, "not a millisecond less: the clocks of the holders may drift"
    assert box.redis.exists(*KEYS) == 0, "who only asked leaves nothing"
    since = int(box.redis.hget(MARKER, "since"))
    assert box.redis.pttl(MARKER) == -1
    box.redis.hset(MARKER, "since", since - PAUSE + 5_000)
    assert 4_000 < box.acquire(A, quarantine=QUARANTINE)[1] <= 5_000
    box.redis.hset(MARKER, "since", since - PAUSE)
    assert box.acquire(A, quarantine=QUARANTINE)[0] == 1


def test_a_declared_server_is_as_any_other(box: Box) -> None:
    declare(box)
    first = box.acquire(A, quarantine=QUARANTINE)
    assert first[0] == 1
    assert box.acquire(A, quarantine=QUARANTINE) == first
    assert box.acquire(A, quarantine=QUARANTINE, more=5) == [1, first[2] + 1, first[2] + 5]
    box.listen("b")
    assert box.acquire(B, quarantine=QUARANTINE, join=True)[3] == b"a" * 12
    assert box.release(A, quarantine=QUARANTINE) == 1
    assert box.holder() == B
    assert box.refresh(B, inbox="b", quarantine=QUARANTINE)[1][0] == 1


@pytest.mark.parametrize("how", ["acquire", "refresh", "release", "leave", "bury"])
def test_what_may_be_forgotten_is_handed_to_nobody(box: Box, how: str) -> None:
    """Neither by asking nor by giving back; those in line keep their places, and get it in their order afterwards."""
    declare(box)
    box.listen("b", "c")
    box.acquire(A, quarantine=QUARANTINE)
    for who in (B, C):
        assert box.acquire(who, quarantine=QUARANTINE, join=True)[0] == 0
    forget(box)
    if how in {"acquire", "refresh"}:
        box.redis.delete(LOCK)
        assert paused(
            box.acquire(B, quarantine=QUARANTINE, join=True)
            if how == "acquire"
            else box.refresh(B, C, quarantine=QUARANTINE)[1]
        )
    else:
        assert box.release(A, how, quarantine=QUARANTINE) == 1
    assert box.holder() is None
    assert box.line() == [B, C]
    assert [m for one in "bc" for m in box.heard(one) if m.startswith("1 ")] == []
    assert all(paused(answer) for answer in box.refresh(B, C, quarantine=QUARANTINE)[1:])
    assert paused(box.acquire(token("d"), quarantine=QUARANTINE))
    box.redis.hset(MARKER, "since", 0)
    assert box.refresh(C, inbox="c", quarantine=QUARANTINE)[1][:1] == [0]
    assert (box.holder(), box.line()) == (B, [C])


def broken(box: Box) -> str:
    """Break the lock of A, for which B waits. Return the process that the lock was handed over to."""
    box.listen("b")
    box.acquire(A)
    box.acquire(B, join=True)
    mark = hashlib.sha1(A.encode(), usedforsecurity=False).hexdigest()[:16]
    answer = box.redis.eval(source("inspect/break_lock"), 5, *KEYS, "hf:{x}:hopefuls", MARKER, mark, "ops@host")
    assert answer[0] == 1
    assert box.holder() == (B if answer[3] else None)
    return str(answer[3].decode())


def test_a_broken_lock_is_handed_over_after_the_quarantine(box: Box) -> None:
    """Whether this lock has quarantine= or not, which who breaks it does not know."""
    declare(box)
    assert broken(box) == "b" * 12


@pytest.mark.parametrize(
    "field",
    [
        ("run", "another"),
        ("run", ""),
        ("since", str(2**50)),
        ("since", "text"),
        ("lease", "text"),
    ],
)
def test_a_broken_lock_is_handed_to_nobody_if_the_server_may_be_in_quarantine(box: Box, field: tuple[str, str]) -> None:
    declare(box)
    box.redis.hset(MARKER, *field)
    assert broken(box) == ""


@pytest.mark.parametrize(("left", "heir"), [(2_000, ""), (0, "b" * 12)])
def test_a_broken_lock_is_handed_over_when_the_quarantine_has_passed(box: Box, left: int, heir: str) -> None:
    declare(box)
    seconds, microseconds = box.redis.time()
    box.redis.hset(MARKER, "since", seconds * 1000 + microseconds // 1000 - PAUSE + left)
    assert broken(box) == heir


def test_what_is_remembered_goes_on(box: Box) -> None:
    declare(box)
    first = box.acquire(A, 10_000, quarantine=QUARANTINE)
    forget(box)
    assert box.acquire(A, quarantine=QUARANTINE) == first, "asked again by its holder"
    assert box.redis.pttl(LOCK) > 29_000
    assert box.acquire(A, quarantine=QUARANTINE, more=BLOCK)[:2] == [1, first[2] + 1]
    assert box.renew(A, 20_000) == 1
    assert box.refresh(A, quarantine=QUARANTINE)[1][0] == 1, "handed over before"
    assert box.acquire(B, quarantine=QUARANTINE, join=True)[3] == b"a" * 12, "busy, and not paused"


def test_one_who_was_told_of_another_longest_lease_changes_nothing(box: Box) -> None:
    declare(box)
    box.listen("b")
    with pytest.raises(redis.ResponseError, match=r"agreed on quarantine=30(\.0)?: pass the same"):
        box.acquire(A, quarantine=20_000)
    box.acquire(A, quarantine=QUARANTINE)
    box.acquire(B, quarantine=QUARANTINE, join=True)
    status, message = box.refresh(B, quarantine=20_000)[1]
    assert (status, b"agreed on quarantine=30" in message) == (codes.SERVER_ERROR, True)
    assert box.release(A, quarantine=20_000) == 1
    assert (box.holder(), box.redis.zcard(QUEUE)) == (None, 1)


def test_somebody_elses_data_in_place_of_the_marker(box: Box) -> None:
    box.redis.set(MARKER, "text", px=60_000)
    assert box.acquire(A, quarantine=QUARANTINE) == [codes.WRONG_TYPE, MARKER.encode(), b"string"]


def test_a_lock_without_guard_knows_nothing_of_it(box: Box) -> None:
    forget(box)
    with box.watched() as commands:
        assert box.acquire(A)[0] == 1
        assert box.acquire(B, join=True)[0] == 0
        box.refresh(B)
        box.release(A)
    assert not {command[0] for command in commands} & {b"INFO"}
    assert all(MARKER.encode() not in command for command in commands)
