"""Cycles of waiters, as far as they are pure: what records say, who is in a cycle, whose wait is to be ended."""

from __future__ import annotations

import json
from contextlib import nullcontext
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast._core.deadlock import victim
from holdfast._core.deadlock.cycles import Link, cycles, links, listens, shown, youngest
from holdfast._core.deadlock.victim import DeadlockDetector
from holdfast._core.lock.records import Attempt
from holdfast._core.requests import Answer, Command
from support.driver import spec

_since = count()


def link(owner: str, waits_for: str, holds: str, *, yields: bool = False) -> Link:
    """``owner``: a process and a thread, as in p1."""
    return Link(next(_since), owner[0] * 12, owner[1:], f"thread {owner}", "host", 7, "", waits_for, tuple(holds), yields)


def test_a_cycle_of_two_and_one_of_three() -> None:
    two = [link("p1", "B", "A"), link("q1", "A", "B")]
    three = [link("r1", "Y", "X"), link("s1", "Z", "Y"), link("t1", "X", "Z")]
    outside = [link("u1", "A", "U"), link("v1", "free", "W")]
    assert cycles([*outside, *two, *three]) == [tuple(two), tuple(three)]


def test_a_chain_is_none_and_neither_are_two_threads_of_a_process() -> None:
    assert cycles([link("p1", "B", "A"), link("q1", "C", "B"), link("r1", "D", "C")]) == []
    assert cycles([link("p1", "B", "X"), link("q1", "A", "B")]) == [], "it is another thread of p that holds A"


def test_who_waits_for_what_he_holds_himself_is_in_a_cycle_of_his_own() -> None:
    alone = link("p1", "A", "A")
    assert cycles([alone]) == [(alone,)]


def test_two_cycles_through_one_waiter() -> None:
    middle = link("p1", "B", "AC")
    one, other = link("q1", "A", "B"), link("r1", "C", "B")
    assert {frozenset(cycle) for cycle in cycles([middle, one, other])} == {
        frozenset((middle, one)),
        frozenset((middle, other)),
    }


def test_many_waiters_take_no_time() -> None:
    crowd = [link("p1", "B", "A"), *(link(f"q{number}", "A", "") for number in range(2000))]
    assert cycles(crowd) == []
    everything = "".join(map(chr, range(200)))
    assert cycles([link(f"w{number}", chr(number), everything) for number in range(200)]), "forged; and not all there could be"
    ring = [link(f"r{number}", f"{(number + 1) % 30}", "") for number in range(30)]
    ring = [one._replace(holds=(str(number),)) for number, one in enumerate(ring)]
    assert cycles(ring) == [tuple(ring)]


def test_whether_the_holder_listens_is_asked_unless_it_does_so_elsewhere_in_a_cluster() -> None:
    asking = listens("a" * 12, "hf:{x}")
    assert isinstance(asking.send(None), Command)
    with pytest.raises(StopIteration) as answer:
        asking.send(Answer([b"inbox", 0], 1.0, 1.0))
    assert answer.value.value is False
    with pytest.raises(StopIteration) as answer:
        listens("a" * 12 + "{1}", "hf:{x}").send(None)
    assert answer.value.value is True


def test_a_wait_is_ended_when_two_looks_have_found_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[object] = []
    monkeypatch.setattr(victim, "abort_wait", lambda _node, attempt, _error: ended.append(attempt))
    attempt = Attempt(spec())
    node: Any = SimpleNamespace(mutex=nullcontext(), waiting=None)
    one, other = link("p1", "B", "A"), link("q1", "A", "B", yields=True)
    detector, once, changed = DeadlockDetector(), ((one, other), ((b"", b"1"),)), ((one, other), ((b"", b"2"),))
    for found, expected in ((once, []), (changed, []), (changed, [attempt])):
        detector._compare(node, {(other.owner, other.lock): attempt}, [(other, found)])
        assert ended == expected


def test_the_youngest_of_those_that_yield() -> None:
    elder, middle, last = link("p1", "B", "A", yields=True), link("q1", "C", "B", yields=True), link("r1", "A", "C")
    assert youngest((elder, middle, last)) is middle
    assert youngest((last,)) is None


def test_a_cycle_for_people() -> None:
    first, second = link("p1", "B", "A"), link("q1", "A", "B")._replace(label="\x1b[31m")
    cycle = shown((first, second))
    assert str(cycle) == (
        "deadlock: host:7 thread p1 holds A and waits for B; host:7 (?[31m) thread q1 holds B and waits for A"
    )
    assert json.loads(json.dumps(cycle.as_dict()))["waiters"][1]["lock"] == "A"


@pytest.mark.parametrize(
    "record",
    [
        None, b"", b"{", b"7", b"[1]", b"null", b'{"waits": 7, "pid": 1}', b'{"waits": [7], "pid": 1}',
        b'{"waits": [{}], "pid": 1}',
        b'{"waits": [], "pid": "x"}', b"\xff\xfe",
        b'{"host": "h", "pid": 1, "waits": [{"lock": "a", "since": "then", "id": "1", "who": "t", "holds": []}]}',
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_left_out(record: object) -> None:
    assert links("p" * 12, record) == []


def test_what_a_record_says() -> None:
    wait = {"lock": "hf:{b}", "since": 5.5, "id": "ff", "who": "main", "holds": ["hf:{a}"], "yields": True}
    record = json.dumps({"host": "web", "pid": 9, "label": None, "waits": [wait]}).encode()
    assert links("p" * 12, record) == [Link(5.5, "p" * 12, "ff", "main", "web", 9, "", "hf:{b}", ("hf:{a}",), True)]
