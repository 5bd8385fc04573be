"""The promises of multi_acquire and multi_release, on every server: several locks at once, all of them or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from holdfast._core.lock.replies import BLOCK
from holdfast._lua import source
from support.box import KEYS, LOCK, STATE, Box, token

A, B, C = (token(process) for process in "abc")
OTHERS = ("hf:{y}", "hf:{y}:state", "hf:{y}:queue")
BOTH = (*KEYS, *OTHERS)
A2, B2 = (token(process, 2) for process in "ab")


def run(box: Box, name: str, *args: object, keys: tuple[str, ...] = BOTH) -> Any:
    return box.redis.eval(source(name), len(keys), *keys, *args)


def gather(box: Box, first: str = A, second: str = A2, ttl: int = 30_000) -> list[int]:
    found: list[int] = run(box, "lock/multi_acquire", first, ttl, second, ttl)
    return found


def holders(box: Box) -> list[str | None]:
    return [value and value.decode() for value in box.redis.mget(LOCK, OTHERS[0])]


SEVERAL_CASES: list[tuple[str, tuple[str, ...], tuple[object, ...], Callable[[Box], object]]] = [
    ("lock/multi_acquire", BOTH, (B, 30_000, B2, 30_000), Box.clear_keys),
    ("lock/multi_acquire", BOTH, (A, 30_000, A2, 30_000), gather),
    ("lock/multi_acquire", BOTH, (B, 30_000, B2, 30_000), lambda box: box.redis.rpush(OTHERS[0], "data")),
    ("lock/multi_release", BOTH, (A, "bury", A2, "release"), gather),
    ("lock/multi_release", BOTH, (A, "release", A2, "bury"), lambda box: (gather(box), box.acquire(B, join=True))),
]


def test_all_are_taken_with_a_block_of_fences_each(box: Box) -> None:
    before = box.now_us()
    first, first_last, second, second_last = gather(box)
    assert before < first
    assert before < second
    assert (first_last - first, second_last - second) == (BLOCK - 1, BLOCK - 1)
    assert holders(box) == [A, A2]
    assert all(29_000 < box.redis.pttl(key) <= 30_000 for key in (LOCK, OTHERS[0]))
    assert box.fence() == first
    assert box.keys_for_ever() == []


def test_the_same_tokens_get_the_same_answer(box: Box) -> None:
    first = gather(box, ttl=10_000)
    assert gather(box, ttl=30_000) == first
    assert box.redis.pttl(LOCK) > 29_000, "for the full lease"
    box.release(A)
    again = gather(box)
    assert again[0] > first[0]
    assert again[2:] == first[2:]


@pytest.mark.parametrize(
    "prepare",
    [
        lambda box: run(box, "lock/acquire", B, 30_000, 0, keys=OTHERS),
        lambda box: (run(box, "lock/acquire", B, 30_000, 0, keys=OTHERS), run(box, "lock/acquire", C, 30_000, 1, keys=OTHERS),
                     box.redis.delete(OTHERS[0])),
        lambda box: run(box, "lock/release", A2, "bury", keys=OTHERS),
        lambda box: box.redis.hset(OTHERS[1], "v", "2"),
        lambda box: box.redis.rpush(OTHERS[0], "data"),
        lambda box: box.redis.set(OTHERS[1], "data"),
        lambda box: box.redis.set(OTHERS[2], "data"),
    ],
    ids=["held", "waited-for", "dead", "format", "lock-in-the-way", "state-in-the-way", "queue-in-the-way"],
)  # fmt: skip
def test_none_is_taken_if_one_is_not_to_be_had(box: Box, prepare: Callable[[Box], object]) -> None:
    prepare(box)
    for key in OTHERS:
        box.redis.expire(key, 600)
    before = box.redis.dump(OTHERS[1])
    assert gather(box) == [2]
    assert box.redis.exists(LOCK, STATE) == 0
    assert box.redis.dump(OTHERS[1]) == before


def test_each_goes_to_the_next_in_its_line(box: Box) -> None:
    gather(box)
    box.listen("b")
    box.acquire(B, join=True)
    run(box, "lock/acquire", B2, 30_000, 1, keys=OTHERS)
    assert run(box, "lock/multi_release", A, "release", A2, "release") == [1, 1]
    assert holders(box) == [B, B2]
    assert sorted(message.split()[1] for message in box.heard("b") if message.startswith("1 ")) == [B, B2]
    assert run(box, "lock/multi_release", A, "release", A2, "bury") == [-1, -1], "somebody else's stays"
    assert holders(box) == [B, B2]
    assert run(box, "lock/multi_release", B, "bury", B2, "release") == [1, 1]
    assert run(box, "lock/multi_release", B, "release", B2, "release") == [0, 0]
    assert gather(box, B, B2) == [1], "what was buried is refused"
    assert box.keys_for_ever() == []


def test_what_somebody_else_holds_is_handed_to_nobody(box: Box) -> None:
    gather(box)
    box.redis.delete(LOCK)
    assert box.acquire(B)[0] > 0
    box.listen("c")
    box.acquire(C, join=True)
    assert run(box, "lock/multi_release", A, "release", A2, "release") == [-1, 1]
    assert holders(box) == [B, None]
    assert box.heard("c") == []
    assert box.line() == [C]


def test_who_waits_with_a_token_that_is_revoked_waits_no_more(box: Box) -> None:
    run(box, "lock/acquire", B, 30_000, 0, keys=OTHERS)
    gather(box, A, B)
    run(box, "lock/acquire", A2, 30_000, 1, keys=OTHERS)
    assert run(box, "lock/multi_release", A, "bury", A2, "bury") == [1, -1]
    assert box.redis.zcard(OTHERS[2]) == 0


def test_every_key_of_them_is_declared(box: Box) -> None:
    for name, keys, args, prepare in SEVERAL_CASES:
        box.clear_keys()
        prepare(box)
        with box.watched() as commands:
            run(box, name, *args, keys=keys)
        touched = {key for command in commands for key in box.keys_in(command)}
        assert touched
        assert touched <= set(keys), name


def test_given_back_when_memory_is_full(box: Box) -> None:
    box.listen("b")
    gather(box)
    box.acquire(B, join=True)
    box.redis.config_set("maxmemory", 1)
    try:
        assert run(box, "lock/multi_release", A, "release", A2, "bury") == [1, 1]
        assert holders(box) == [B, None]
        box.release(B)
        with pytest.raises(redis.ResponseError, match=r"OOM|maxmemory"):
            gather(box, C, C)
        assert holders(box) == [None, None]
    finally:
        box.redis.config_set("maxmemory", 0)
