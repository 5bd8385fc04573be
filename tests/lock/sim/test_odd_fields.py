"""A script with any data under its keys ends soon, answers as documented, takes no held lock, and issues no fence twice."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

import holdfast._lua
from holdfast import fencing
from holdfast._core import control_records, election, permit, timestamp
from holdfast._core.inspect import break_lock, scan
from holdfast._core.lock import multilock, replies, slot_migration, ticket
from holdfast._core.quorum import votes
from holdfast._core.rendezvous import barrier, latch
from holdfast._core.requests import Conflict, RunScript, Unknown
from holdfast._core.schedule import job
from holdfast._lua import Script
from holdfast._net import protocol
from holdfast.testing.keyspace import Keyspace, ReplyError
from single_flight.conformance import test_single_flight_values
from support.fuzzing import AMOUNTS, ODD_NUMBERS, SHARE, explore

LOCK, STATE, QUEUE = KEYS = (b"hf:{x}", b"hf:{x}:state", b"hf:{x}:queue")
HOPEFULS, OBSERVERS, MARKER = b"hf:{x}:hopefuls", b"hf:{x}:observers", b"hf:guard"
PLACES, DONE, WAITERS, ACTION, FENCE = (b"hf:{x}:" + name for name in (b"places", b"done", b"waiters", b"action", b"fence"))
SCHEDULE = job.ScheduleKeys.of("x")
JOB = SCHEDULE.job("job")
SCHEDULED = (SCHEDULE.base, SCHEDULE.serving, SCHEDULE.jobs)
RUN = JOB.run(0)
A, B = (f"{process * 12}.{process * 32}" for process in "ab")
A1, MARK = f"{A}*1", "0" * 16
NOW = 1_700_000_000_000_000
WHEN = (NOW - 2_000_000, f"{NOW - 9_000_000} {NOW - 5_000_000} 3", f"{NOW - 1_000_000} {NOW}", NOW + 1_000_000)

Case = tuple[Script[Any], tuple[bytes, ...], tuple[str | int, ...]]


def serving(policy: str, *ended: str) -> Case:
    """A process claims what is due, says what has ended, and wants something to run."""
    options = job.Options(overlap="queue") if policy == "queue" else job.Options()
    head = (B, 7, NOW // 1000 + 9000, 30_000, "host", options.slots, 5, options.policy)
    keys = (SCHEDULE.base, SCHEDULE.serving, *JOB.serving(options.slots))
    return job.SERVE, keys, (*head, *(ended or ("", "", "", "")), *WHEN, A)


SCRIPTS: list[Case] = [
    (replies.ACQUIRE, KEYS, (A, 30_000, 0)),
    (replies.ACQUIRE, KEYS, (A, 30_000, 1)),
    (replies.ACQUIRE, KEYS, (A, 30_000, 0, 33)),
    (replies.ACQUIRE, (*KEYS, MARKER), (A, 30_000, 1, 0, 30_000)),
    *((replies.RELEASE, KEYS, (A, how)) for how in ("release", "leave", "bury")),
    (replies.RENEW, KEYS, (A, 30_000, 7)),
    (replies.REFRESH, KEYS, ("a" * 12, A, 30_000)),
    (ticket.EXCHANGE_TOKEN, KEYS, (A, B, 30_000, 0)),
    (ticket.EXCHANGE_TOKEN, KEYS, (A, B, 30_000, 10**13)),
    (multilock.MULTI_ACQUIRE, KEYS, (A, 30_000)),
    *((multilock.MULTI_RELEASE, KEYS, (A, how)) for how in ("release", "bury")),
    *((script, KEYS[:1], (A, ttl)) for script, ttl in ((slot_migration._RENEW, 30_000), (slot_migration._RELEASE[0], 0))),
    (slot_migration._PERMIT_RENEW, KEYS[:1], (A1, 30_000)),
    (slot_migration._PERMIT_RELEASE[0], KEYS[:1], (A1, 0)),
    (scan.SCAN, (*KEYS, HOPEFULS), (10,)),
    (control_records.CONTROL_RECORDS, KEYS, ()),
    (break_lock.BREAK_LOCK, (*KEYS, HOPEFULS), (MARK, "me")),
    (break_lock.BREAK_PERMITS, KEYS, ("me", MARK)),
    (votes.VOTE, (LOCK, STATE, HOPEFULS, MARKER), (A, 30_000, 0, 30_000, "digest", A, 0, 0)),
    (votes.CONFIRM, KEYS[:2], (A, 10**15)),
    *((votes.DECLARE_NEW, (MARKER,), (30_000, "digest", what)) for what in "?01+"),
    (votes.RELEASE_VOTE, (LOCK, STATE, HOPEFULS), (A, "bury", A)),
    (election.JOIN_ELECTION, (STATE,), (A, "me")),
    (election.PROCLAIM, (*KEYS, OBSERVERS), (A, 0, 1, "me", "")),
    (election.OBSERVE, (LOCK, STATE, OBSERVERS), (1000, A)),
    (election.TRANSFER, (*KEYS, OBSERVERS), (A, "you")),
    (election.NOTIFY_OBSERVERS, (OBSERVERS,), ()),
    (permit.ACQUIRE, KEYS, (A1, 30_000, 1, "semaphore 1", 2)),
    (permit.ACQUIRE, KEYS, (A1, 30_000, 0, "semaphore 1", "")),
    *((permit.RELEASE, KEYS, (A1, how)) for how in ("release", "leave", "bury")),
    (permit.RENEW, KEYS, (A1, 30_000, 7)),
    (permit.REFRESH, KEYS, ("a" * 12, A1, 30_000)),
    (permit.CHANGE, KEYS, (A1, 0, 7, 30_000, "semaphore 1", 2)),
    *((permit.LIMIT, KEYS, ("semaphore 1", limit, 30_000)) for limit in ("", 3)),
    *((latch.LATCH, (STATE, WAITERS, DONE), ("latch 1", 2, 60_000, *what)) for what in (("look", A, 1000), ("look", "", 0))),
    *((latch.LATCH, (STATE, WAITERS, DONE), ("latch 1", 2, 60_000, *what)) for what in (("down", A, 1, "me"), ("reset", A))),
    *(
        (barrier.BARRIER, (STATE, PLACES, DONE, WAITERS, ACTION), (2, 3000, 60_000, A, *what))
        for what in (
            ("come", "0"), ("come", "1"), ("wait", NOW), ("pass",), ("leave",), ("break", "action"), ("abort",), ("reset",),
            ("look",),
        )
    ),
    serving("skip"),
    serving("queue", "0", A, "crashed", "text"),
    (job.JOBS, (SCHEDULE.base, SCHEDULE.serving, *JOB.looking()), (job.BESIDE, 9)),
    *(
        (job.REGISTER, (*SCHEDULED, JOB.job), (A, 7, 30_000, "host", mode, 1, "job", "d", "w", "o"))
        for mode in ("", "strict")
    ),
    *(
        (job.COMMAND, (*SCHEDULED, JOB.job, JOB.log), (what, A, "job"))
        for what in ("pause", "resume", "run", "cancel", "remove")
    ),
    (fencing.FENCE_CHECK, (LOCK, FENCE), (10**15, 60_000, "mine", "")),
    (timestamp.COMPARE_AND_SET, (LOCK,), (A, B, "")),
    (timestamp.CLOCK, (LOCK,), ()),
]  # fmt: skip

FIELDS = ["v", "fence", "dead", "keep", "renewed", "limit", "was", "used", "leader", "term", "name", "value", "given", "broken"]
FIELDS += ["next", f"at:{A}", f"at:{B}", f"as:{B}", f"h:{A}*1", f"h:{B}*1"]
FIELDS += ["count", "left", "opened", "born", "round", "parties", "actor", A]
MARKED = ["run", "since", "lease", "servers"]
BASE = ["v", "changes", f"seq:{A}", f"seq:{B}", f"reg:{A}", f"reg:{B}", f"who:{A}", f"who:{B}"]
JOBS = [
    "v",
    "def",
    "origin",
    "rev",
    "when",
    "by",
    "last",
    "fence",
    "paused",
    "resumed",
    "cancel",
    "orders",
    "queued",
    "run:0",
    "run:1",
]
LOG = ["n", "size", "0", "1", "2", "8"]

HASHES = {
    STATE: FIELDS, RUN[1]: FIELDS, MARKER: MARKED, SCHEDULE.base: BASE, JOB.job: JOBS, JOB.log: LOG,
}  # fmt: skip
SETS = {QUEUE, HOPEFULS, OBSERVERS, PLACES, DONE, WAITERS, SCHEDULE.serving, SCHEDULE.jobs, RUN[2]}

number = st.sampled_from([*ODD_NUMBERS, "0", "1", "5", "33", "1.5", "-1", str(NOW), str(2**53), "9" * 400, "abc", ""])
format_ = st.sampled_from(["1", "semaphore 1", "rwlock 1", "latch 1", "barrier 1"])
word = number | st.sampled_from([A, B, A1, MARK, "t", "h", "skipped", "passed", "waiting", "died", "host", "x\ny"])
value = (
    format_
    | number
    | st.sampled_from([A, f"{B} ", f"{A} 1 7", "5 1 0", f"{NOW}/1/t ", "7/1/h 8/2/t ", "passed 1", "reset a"])
    | st.lists(word, max_size=8).map(" ".join)
    | st.text(max_size=8)
)
right = {
    "v": format_, "fence": st.just("33") | number, "run:0": st.tuples(*[word] * 6).map(" ".join).map((A + " {} host").format),
    "queued": st.tuples(number, number, st.sampled_from("th")).map("/".join).map("{} ".format),
    f"h:{A}*1": st.tuples(*[number] * 3).map(" ".join), f"h:{B}*1": st.tuples(*[number] * 3).map(" ".join),
    "0": st.tuples(*[word] * 9).map(" ".join).map("{}\nhost\ntext".format),
}  # fmt: skip
"""The contents of these fields, without their numbers."""
member = st.sampled_from([A, B, A1, f"{B}*1", f"{A}*0", f"{A}*9999999999", f"{A}*{'9' * 400}", "", ".", "no token"])
score = st.sampled_from(["0", "1", "1.5", "-1", "inf", "-inf", "1e300", str(NOW // 1000 + 5000), str(NOW)])
members = st.dictionaries(member | st.text(max_size=8), score, min_size=1, max_size=4)


def fields(names: list[str]) -> st.SearchStrategy[Any]:
    """A hash with some of these."""
    return st.fixed_dictionaries({}, optional={name: right.get(name, value) | value for name in names})


def belonging(key: bytes) -> st.SearchStrategy[Any]:
    """Generate data for a key: mostly of the kind that belongs there."""
    if key in HASHES:
        return fields(HASHES[key]) | fields(HASHES[key]) | value
    return members | members | value if key in SETS else value | members


def filled(content: dict[bytes, Any]) -> Keyspace:
    """A server on which somebody has written that."""
    space = Keyspace(NOW)
    for key, what in content.items():
        if isinstance(what, str):
            space.execute("SET", key, what.encode("utf-8", "replace"), "PX", "60000")
        elif key in HASHES:
            for field, text in what.items():
                space.execute("HSET", key, field, text.encode("utf-8", "replace"))
        else:
            for one, points in what.items():
                space.execute("ZADD", key, points, one.encode("utf-8", "replace"))
    return space


def as_number(text: Any) -> int | None:
    """Return whether a script takes this text for a number."""
    try:
        found = float(text)
    except (TypeError, ValueError):
        return None
    return int(found) if 0 <= found <= 2**53 - 1 and found == int(found) else None


def check_fence(place: bytes, before: Any, after: Any) -> None:
    """An issued fence is never issued again; an unreadable value stays until a person corrects it."""
    if not isinstance(before, bytes) or after is None:
        return
    if as_number(before) is None:
        assert after == before, place
    else:
        assert as_number(after) is not None, place
        assert as_number(after) >= as_number(before), place  # type: ignore[operator]


def test_every_script_is_here() -> None:
    folder = Path(holdfast._lua.__path__[0])
    files = {str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.lua") if not path.stem.startswith("_")}
    assert {script.name for script, _, _ in SCRIPTS} | {script.name for script in test_single_flight_values.CALLS} == files


@pytest.mark.turns
@pytest.mark.parametrize("name", sorted({script.name for script, _, _ in SCRIPTS}))
@pytest.mark.parametrize("amount", [pytest.param(SHARE // 3, id="share"), *AMOUNTS[1:]])
def test_any_content_gets_a_documented_answer(amount: int, name: str) -> None:
    def holds(drawn: tuple[Case, dict[bytes, Any]]) -> None:
        (script, names, args), content = drawn
        space = filled(content)
        fences = [(key, space.execute("HGET", key, "fence")) for key in names if key in HASHES]
        before = space.execute("GET", LOCK)
        raw = space.run(script, names, args)
        if isinstance(raw, ReplyError):
            assert raw.code == "WRONGTYPE" or "user_script" not in str(raw), raw
        else:
            try:
                answer = protocol.parsed(RunScript(script, names, args, 1.0), raw)
            except Unknown:
                raise AssertionError(raw) from None
            assert not isinstance(answer, Conflict) or not answer.why.startswith("unexpected"), raw
        for key, fence in fences:
            check_fence(key, fence, space.execute("HGET", key, "fence"))
        if (
            isinstance(before, bytes)
            and before != A.encode()
            and script not in {fencing.FENCE_CHECK, timestamp.COMPARE_AND_SET}
        ):
            assert space.execute("GET", LOCK) == before, "somebody has it"

    def contents(case: Case) -> st.SearchStrategy[tuple[Case, dict[bytes, Any]]]:
        return st.tuples(st.just(case), st.fixed_dictionaries({}, optional={key: belonging(key) for key in case[1]}))

    explore(amount, holds, *(contents(case) for case in SCRIPTS if case[0].name == name))


@pytest.mark.parametrize("score", ["1e300", "inf"])
def test_a_holder_that_never_expires_is_busy(score: str) -> None:
    args = (A1, 30_000, 0, "semaphore 1", 1)
    raw = filled({LOCK: {f"{B}*1": score}}).run(permit.ACQUIRE, KEYS, args)
    assert isinstance(protocol.parsed(RunScript(permit.ACQUIRE, KEYS, args, 1.0), raw), replies.Busy)


def time_of(case: Case, long: str) -> float:
    """Seconds that a script takes where such a text stands in all places."""
    script, names, args = case
    content: dict[bytes, Any] = {}
    for key in names:
        of_hash = dict.fromkeys(HASHES.get(key, []), long) | {"v": "1"}
        content[key] = of_hash if key in HASHES else {long: "1"} if key in SETS else long
    space = filled(content)
    began = time.thread_time()
    space.run(script, names, args)
    return time.thread_time() - began


def test_the_time_rises_no_faster_than_the_size() -> None:
    """A pattern that looks at each digit again from each other one took 13 s for 40 kB."""
    offenders = []
    for at, case in enumerate(SCRIPTS):
        for unit in ("7", "7 ", "a.", f"{A} ", "ab~", "7/1/t "):
            short, long = (time_of(case, (unit * size)[:size]) for size in (20_000, 320_000))
            if long >= 16 * 4 * short + 0.05:
                offenders.append(f"{case[0].name}-{at} {unit!r}: {short} s, {long} s")
    assert offenders == []


def size(reply: Any) -> int:
    """Bytes of an answer, about."""
    if isinstance(reply, list):
        return sum(map(size, reply))
    return len(reply) if isinstance(reply, bytes) else 8


def with_one_long_field(case: Case, key: bytes, field: str | None, long: str) -> dict[bytes, Any]:
    """Generate the data that a script finds, with a long text in one place: in a field of a hash, or as the whole value of a
    key."""
    script, names, _ = case
    content: dict[bytes, Any] = {}
    for other in HASHES.keys() & set(names):
        content[other] = dict.fromkeys(HASHES[other], "1") | {"leader": A, f"at:{A}": str(NOW), "run": "x"}
        content[other]["v"] = {"rendezvous/latch": "latch 1", "rendezvous/barrier": "barrier 1"}.get(script.name, "1")
    content |= {LOCK: A, QUEUE: {A: "1", B: "2"}} if script is not permit.ACQUIRE else {}
    if field is not None:
        content[key][field] = long
    elif key in SETS:
        content[key] = {long + ".b": "1"}
    elif key not in HASHES and script is not control_records.CONTROL_RECORDS:
        content[key] = long + ".b"
    return content


def test_an_answer_repeats_no_long_field() -> None:
    """A client that can write one would make each process that asks read as many megabytes as the server can store."""
    offenders = [
        f"{case[0].name}-{at} {key!r} {field} {unit!r}"
        for at, case in enumerate(SCRIPTS)
        for unit in ("7", f"{A} 1 1 1 1 t ", "1 b ")
        for key in case[1]
        for field in [*HASHES.get(key, ()), None]
        if size(filled(with_one_long_field(case, key, field, (unit * 100_000)[:100_000])).run(*case)) >= 70_000
    ]
    assert offenders == []
