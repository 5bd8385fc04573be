"""Whatever stands in the keys of a lock, a script ends soon, answers what it documents or an error, and takes no held lock."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import strategies as st

from fuzzing import AMOUNTS, ODD_NUMBERS, explore
from holdfast._core import ballot, breaking, control, inspecting, leading, mutex, permits, tickets
from holdfast._core.requests import Run, Unknown
from holdfast._lua import Script
from holdfast._wire import resp
from holdfast.testing.keyspace import Keyspace, ReplyError

LOCK, STATE, QUEUE, HOPEFULS, MARKER = b"hf:{x}", b"hf:{x}:state", b"hf:{x}:queue", b"hf:{x}:hopefuls", b"hf:marker"
A, B = (f"{process * 12}.{process * 32}" for process in "ab")
KEYS = (LOCK, STATE, QUEUE)

SCRIPTS: list[tuple[Script[Any], tuple[bytes, ...], tuple[str | int, ...]]] = [
    (mutex.ACQUIRE, KEYS, (A, 30_000, 0)),
    (mutex.ACQUIRE, KEYS, (A, 30_000, 1)),
    (mutex.ACQUIRE, KEYS, (A, 30_000, 0, 33)),
    *((mutex.RELEASE, KEYS, (A, how)) for how in ("release", "leave", "bury")),
    (mutex.RENEW, KEYS, (A, 30_000, 7)),
    (mutex.REFRESH, KEYS, ("a" * 12, A, 30_000)),
    (tickets.ROTATE, KEYS, (A, B, 30_000, 0)),
    (tickets.ROTATE, KEYS, (A, B, 30_000, 10**13)),
    (inspecting.INSPECT, (*KEYS, HOPEFULS), (10,)),
    (control.RECORDS, KEYS, ()),
    (breaking.BREAK, (*KEYS, HOPEFULS), ("0" * 16, "me")),
    (ballot.VOTE, (LOCK, STATE, HOPEFULS, MARKER), (A, 30_000, 0, 30_000, "digest", A, 0, 0)),
    (ballot.YIELD, (LOCK, STATE, HOPEFULS), (A, "bury", A)),
    (leading.PROCLAIM, (*KEYS, b"hf:{x}:observers"), (A, 0, 1, "me", "")),
    (leading.TRANSFER, (*KEYS, b"hf:{x}:observers"), (A, "you")),
    (permits.ACQUIRE, KEYS, (f"{A}*1", 30_000, 1, "semaphore 1", 2)),
    *((permits.RELEASE, KEYS, (f"{A}*1", how)) for how in ("release", "leave", "bury")),
    (permits.RENEW, KEYS, (f"{A}*1", 30_000, 7)),
    (permits.REFRESH, KEYS, ("a" * 12, f"{A}*1", 30_000)),
]
FIELDS = ["v", "fence", "dead", "keep", "renewed", "limit", "was", "used", "leader", "term", "name", "given", "broken", "next"]
FIELDS += [f"at:{A}", f"at:{B}", f"as:{B}", f"h:{A}*1", f"h:{B}*1"]

value = st.sampled_from(["1", "semaphore 1", "rwlock 1", "2", A, f"{B} ", f"{A} 1 7", "5 1 0", *ODD_NUMBERS]) | st.text(
    max_size=8
)
member = st.sampled_from([A, B, f"{A}*1", f"{B}*1", f"{A}*0", f"{A}*9999999999", "", ".", "no token"]) | st.text(max_size=8)
score = st.sampled_from(["0", "1", "inf", "-inf", "1e300", "1700000000000", "1700000000000000"])
keys = st.fixed_dictionaries(
    {},
    optional={
        "lock": value | st.dictionaries(member, score, min_size=1, max_size=3),
        "state": value | st.dictionaries(st.sampled_from(FIELDS), value, min_size=1, max_size=8),
        "queue": value | st.dictionaries(member, score, min_size=1, max_size=4),
        "hopefuls": value | st.dictionaries(member, score, min_size=1, max_size=4),
    },
)
NAMES = {"lock": LOCK, "state": STATE, "queue": QUEUE, "hopefuls": HOPEFULS}


def filled(content: dict[str, Any]) -> Keyspace:
    """A server on which somebody has written that."""
    space = Keyspace(1_700_000_000_000_000)
    for name, what in content.items():
        if isinstance(what, str):
            space.execute("SET", NAMES[name], what.encode("utf-8", "replace"), "PX", "60000")
        elif name == "state":
            for field, text in what.items():
                space.execute("HSET", STATE, field, text.encode("utf-8", "replace"))
        else:
            for one, points in what.items():
                space.execute("ZADD", NAMES[name], points, one.encode("utf-8", "replace"))
    return space


@pytest.mark.parametrize("number", range(len(SCRIPTS)), ids=lambda number: f"{SCRIPTS[number][0].name}-{number}")
@pytest.mark.parametrize("amount", AMOUNTS)
def test_any_content_gets_a_documented_answer_or_an_error(amount: int, number: int) -> None:
    script, names, args = SCRIPTS[number]

    def holds(content: dict[str, Any]) -> None:
        space = filled(content)
        before = space.execute("GET", LOCK)
        raw = space.run(script, names, args)
        if not isinstance(raw, ReplyError):
            try:
                resp.parsed(Run(script, names, args, 1.0), raw)
            except Unknown:
                pass  # an error for the user, too
        if isinstance(before, bytes) and before != A.encode():
            assert space.execute("GET", LOCK) == before, "somebody has it"

    explore(amount, holds, keys)


@pytest.mark.parametrize("number", range(len(SCRIPTS)), ids=lambda number: f"{SCRIPTS[number][0].name}-{number}")
def test_the_time_rises_no_faster_than_the_size(number: int) -> None:
    """A pattern that looks at each digit again from each other one took 13 s for 40 kB."""
    script, names, args = SCRIPTS[number]
    for unit in ("7", "7 ", "a.", f"{A} ", "ab~"):
        took = []
        for size in (20_000, 320_000):
            long = (unit * size)[:size]
            space = filled({"lock": long, "state": dict.fromkeys(FIELDS, long) | {"v": "1"}, "queue": {long: "1"}})
            began = time.thread_time()
            space.run(script, names, args)
            took.append(time.thread_time() - began)
        assert took[1] < 16 * 4 * took[0] + 0.05, f"{unit!r}: {took}"
