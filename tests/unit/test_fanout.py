"""What becomes of answers that threads no longer wait for, when they ask several servers at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from holdfast._core.requests import Unknown
from holdfast._net.endpoint import Endpoint
from holdfast._runtime.fanout import FanoutPool, _Count


def test_the_keeper_looks_again_after_each_poll_that_leaves_something_owed() -> None:
    due = list[Callable[[], None]]()
    keeper = SimpleNamespace(mutex=nullcontext(), later=lambda _seconds, what: due.append(what))
    process: Any = SimpleNamespace(running_keeper=keeper)
    answers = [True, False, False]
    fanout: Any = SimpleNamespace(take=lambda *_: True, poll=lambda _poll: None, owed=True, look=lambda: answers.pop(0))
    fanouts = FanoutPool((Endpoint(),), process)
    fanouts._idle.append(fanout)
    poll: Any = None
    for looks in (2, 1):
        fanouts.poll(poll)
        for _ in range(looks):
            assert len(due) == 1
            due.pop()()
        assert due == []


def test_what_fails_after_the_decision_is_repeated_by_the_keeper() -> None:
    insisted = list[object]()
    poll: Any = SimpleNamespace(counter=SimpleNamespace(on_answer=lambda *_: True), otherwise=lambda number: number)
    count = _Count(poll, insisted.append)
    thens = [count.expect(number) for number in range(2)]
    thens[0]([1], 0.0)
    assert count.decided
    thens[1](Unknown("cut"), 0.0)
    assert insisted == [1]
