"""The scripts of single flight answer as documented, and soon, whatever data is under the keys of a cache."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast._core.requests import Conflict
from holdfast._core.single_flight import flight
from holdfast._core.single_flight.entry import CANCEL_LOAD, DELETE, GET_OR_LEASE, INVALIDATE, MAX_SIZE, STORE, TAKE_OVER
from holdfast._lua import Script, codes
from single_flight.conformance.test_single_flight_scripts import (
    FLOOR,
    FLOORS,
    FRESH,
    LANDING,
    LOAD,
    LOOKING,
    STATE,
    UNREAD,
    VALUE,
    WAITERS,
    A,
    B,
    C,
    listener_id,
)
from support.box import Box
from support.fuzzing import AMOUNTS

BATCH = 100

LONG = 1_000_000
"""Bytes of the texts that are made to be slow."""

SOON = 2.0
"""Seconds for an answer about texts of that length: some hundredths where it takes time in proportion, days where it takes the
square of it."""

WORDS = (
    b"", b" ", b"\n", b"1", b"2", b"v", b"v2", b"mark", b"0", b"-1", b"1e400", b"nan", b"inf", b"0x10", b"7" * 16, b"9" * 17,
    b"9" * 400, b"1700000000000000", b"1" * 300, b"a" * 300, b"\x00", b"\xff", b"%", b".", b"t", b"1.5", b"null", b"[1]",
    A.encode(), B.encode(), listener_id("b").encode(), b"theirs",
)  # fmt: skip

CALLS: dict[Script[Any], Callable[[random.Random], tuple[tuple[str, ...], tuple[object, ...]]]] = {
    GET_OR_LEASE: lambda draw: (
        LOOKING,
        (
            *draw.choice(((A, 5000), (C, 5000), ("", 0))),
            draw.choice(("", listener_id("b"))),
            draw.choice((0, 1000)),
            draw.choice((0, 9000)),
            draw.choice((10, UNREAD[0])),
            draw.choice(("void", "keep")),
        ),
    ),
    STORE: lambda draw: (
        LANDING,
        (
            draw.choice((A, C)),
            draw.choice((1, 1700000000000000)),
            draw.choice(("release", "bury")),
            draw.choice(("v", "mark")),
            1000,
            draw.choice((0, 1000)),
            1,
            draw.choice(("", " t")),
            b"data",
            draw.choice(("keep", "delete")),
        ),
    ),
    TAKE_OVER: lambda draw: ((LOAD, STATE, FLOORS), (draw.choice((A, C)), 5000)),
    CANCEL_LOAD: lambda draw: (
        (LOAD, STATE, FLOORS, FLOOR, WAITERS),
        (draw.choice((A, C)), draw.choice(("release", "bury")), draw.choice((0, 1, 1700000000000000)), " t"),
    ),
    DELETE: lambda _: ((VALUE, FRESH, LOAD, STATE, WAITERS), ()),
    INVALIDATE: lambda draw: ((STATE, FLOORS, FLOOR), draw.choice((("t",), ("",), ("t", "u")))),
}


def text(draw: random.Random) -> bytes:
    """A value on the server: one of ours with something wrong in it, or something else."""
    if draw.random() < 0.4:
        return draw.choice(WORDS)
    words = [b"1", b"v", b"1700000000000000", b"1700000060000", b"0", b"1000", b"t"]
    for _ in range(draw.choice((0, 0, 1, 1, 2))):
        words[draw.randrange(len(words))] = draw.choice(WORDS)
    return b" ".join(words) + draw.choice((b"\ndata", b"\n", b"", b"\n\n", b" u\ndata"))


def fields(draw: random.Random) -> dict[bytes, bytes]:
    names = (b"v", b"fence", b"dead", b"keep", b"life", b"floor", b"of:" + LOAD.encode())
    chosen = {name: draw.choice(WORDS) for name in names if draw.random() < 0.4}
    if draw.random() < 0.8:
        chosen.pop(b"v", None)
    return chosen or {b"x": b"y"}


def put(draw: random.Random, server: Any, key: str) -> None:
    """Something under a key: of the kind that belongs there, or of another one."""
    kind = {STATE: "hash", FLOORS: "zset", WAITERS: "zset"}.get(key, "string")
    if draw.random() < 0.15:
        kind = draw.choice(("string", "hash", "zset", "list"))
    if kind == "hash":
        server.hset(key, mapping=fields(draw))
    elif kind == "zset":
        scores = ("inf", "-inf", 0, 1.5, 1, 1700000000000000, 9e15, 1e300)
        server.zadd(key, {draw.choice(WORDS): draw.choice(scores) for _ in range(draw.choice((1, 3)))})
    elif kind == "list":
        server.rpush(key, draw.choice(WORDS))
    else:
        server.set(key, text(draw) if key == VALUE else draw.choice(WORDS))
    if draw.random() < 0.5:
        server.pexpire(key, draw.choice((1000, 1 << 50)))


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("script", CALLS, ids=lambda script: script.name)
def test_whatever_there_is_the_answer_is_a_documented_one(box: Box, script: Script[Any], amount: int) -> None:
    draw = random.Random(f"{script.name} {box.redis.info('server')['redis_version']}")
    sha = box.redis.script_load(script.body)
    for _ in range(amount // BATCH):
        pipe, begun, calls = box.redis.pipeline(transaction=False), [], []
        for _ in range(BATCH):
            begun.append(len(pipe))
            pipe.flushall()
            for key in (VALUE, FRESH, LOAD, STATE, FLOORS, FLOOR, WAITERS):
                if draw.random() < 0.6:
                    put(draw, pipe, key)
            keys, args = CALLS[script](draw)
            calls.append(len(pipe))
            pipe.evalsha(sha, len(keys), *keys, *args)
        steps = [step[0] for step in pipe.command_stack]
        replies = pipe.execute(raise_on_error=False)
        for start, at in zip(begun, calls, strict=True):
            case = steps[start : at + 1]
            assert not isinstance(replies[at], Exception), (replies[at], case)
            answer = script.parse(replies[at])
            assert not isinstance(answer, Conflict) or replies[at][0] in {codes.WRONG_TYPE, codes.OTHER_FORMAT}, (
                replies[at],
                case,
            )
    box.clear_keys()  # what was put there has no expiry


SLOW = {
    "digits": b"1 v 1 1 0 " + b"1" * LONG,
    "digits, all of it": b"1" * LONG,
    "a kind": b"1 " + b"v" * LONG,
    "numbers": b"1 v " + b"1 " * (LONG // 2),
    "a fence": b"1 v " + b"1" * LONG + b" 1 0 1\ndata",
    "tags": b"1 v 1 1 0 1" + b" t" * (LONG // 2) + b"\ndata",
    "blanks": b" " * LONG,
    "lines": b"\n" * LONG,
    "a token": b"a" * LONG + b".",
    "points": b"." * LONG,
}


@pytest.mark.turns
@pytest.mark.parametrize("theirs", SLOW.values(), ids=SLOW)
@pytest.mark.parametrize("script", CALLS, ids=lambda script: script.name)
def test_a_long_text_takes_time_in_proportion(box: Box, script: Script[Any], theirs: bytes) -> None:
    draw = random.Random(1)
    for place in (VALUE, LOAD, FLOOR, STATE, WAITERS):
        box.clear_keys()
        if place == STATE:
            fields = (b"fence", b"dead", b"keep", b"life", b"floor", b"of:" + LOAD.encode())
            box.redis.hset(STATE, mapping=dict.fromkeys(fields, theirs))
        elif place == WAITERS:
            box.redis.zadd(WAITERS, {theirs: 1})
        else:
            box.redis.set(place, theirs)
        keys, args = CALLS[script](draw)
        if script is GET_OR_LEASE:
            args = (*args[:-2], MAX_SIZE, args[-1])
        started = time.monotonic()
        box.redis.eval(script.body, len(keys), *keys, *args)
        assert time.monotonic() - started < SOON, place
    box.clear_keys()


@pytest.mark.turns
@pytest.mark.parametrize("theirs", [*WORDS, *SLOW.values()], ids=lambda text: text[:20])
def test_a_first_glance_finds_nothing_in_what_is_no_value(theirs: bytes) -> None:
    good = b"1 v 1700000000000000 1700000060000 0 1000\ndata"
    assert flight.fresh([good, None, b"0"]) is not None
    assert flight.fresh([theirs, b"1", b"0"]) is None
    if not theirs.isdigit() or len(theirs) > 16:
        assert flight.fresh([good, b"1", theirs]) is None
