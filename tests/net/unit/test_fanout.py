"""Late answers of several servers, for which threads and tasks no longer wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast._clock import clock
from holdfast._core.quorum.votes import YesCount
from holdfast._core.requests import Command, Poll, Unknown
from holdfast._net.endpoint import Endpoint
from holdfast._net.system import SYSTEM
from holdfast._runtime.drivers import aio_quorum
from holdfast._runtime.fanout import Fanout, FanoutPool, _Count


def test_the_keeper_looks_again_after_each_poll_that_leaves_something_owed() -> None:
    due = list[Callable[[], None]]()
    keeper = SimpleNamespace(mutex=nullcontext(), later=lambda _seconds, what: due.append(what))
    process: Any = SimpleNamespace(running_keeper=keeper)
    answers = [True, False, False]
    fanout: Any = SimpleNamespace(take=lambda *_: True, poll=lambda _poll: None, owed=True, read_replies=lambda: answers.pop(0))
    fanouts = FanoutPool((Endpoint(),), process)
    fanouts._idle.append(fanout)
    poll: Any = None
    for looks in (2, 1):
        fanouts.poll(poll)
        for _ in range(looks):
            assert len(due) == 1
            due.pop()()
        assert due == []


def test_what_is_in_use_while_the_pool_is_cleared_is_closed_after_its_use() -> None:
    process: Any = SimpleNamespace(running_keeper=None)
    fanouts, closed = FanoutPool((Endpoint(),), process), list[str]()

    def fanout(name: str, poll: Callable[[object], None]) -> Any:
        return SimpleNamespace(take=lambda *_: True, poll=poll, owed=True, close=lambda: closed.append(name))

    fanouts._idle += [fanout("idle", lambda _poll: None), fanout("used", lambda _poll: fanouts.clear())]
    poll: Any = None
    fanouts.poll(poll)
    assert closed == ["idle", "used"]
    assert fanouts._idle == []


@pytest.mark.parametrize("interrupted", ["take", "poll", "owed"])
def test_what_is_interrupted_is_closed_at_once(interrupted: str) -> None:
    """And not by the garbage collector, which warns of sockets that nobody has closed."""
    process: Any = SimpleNamespace(running_keeper=None)
    fanouts, closed = FanoutPool((Endpoint(),), process), list[str]()

    class Interrupted:
        def step(self, name: str) -> bool:
            if name == interrupted:
                raise KeyboardInterrupt
            return True

        def take(self, _wait: float) -> bool:
            return self.step("take")

        def poll(self, _poll: object) -> None:
            self.step("poll")

        @property
        def owed(self) -> bool:
            return self.step("owed")

        def close(self) -> None:
            closed.append(interrupted)

    used: Any = Interrupted()
    fanouts._idle.append(used)
    poll: Any = None
    with pytest.raises(KeyboardInterrupt):
        fanouts.poll(poll)
    assert closed == [interrupted]
    assert fanouts._idle == []


@pytest.mark.parametrize(("owed_for", "is_asked"), [(0.5, True), (1.5, False)])
def test_a_server_that_owes_an_answer_for_longer_than_a_poll_is_not_asked(owed_for: float, is_asked: bool) -> None:
    fanout, asked = Fanout((Endpoint(),), lambda _give_back: None), list[object]()

    def call(_call: object, then: Callable[[object, float], None], _packed: object) -> None:
        asked.append(then)
        then(1, 0.0)

    link = SimpleNamespace(begins=False, overdue=lambda _now: None, owes_since=lambda: clock() - owed_for, call=call)
    fanout._links = [link]
    fanout._look = lambda _wait: None  # type: ignore[method-assign,assignment]
    votes = YesCount(1, 1)
    fanout._poll(Poll([Command(("PING",), 1.0)], votes, 1.0, begins=True))
    assert bool(asked) is is_asked
    for each in (fanout._poke_in, fanout._poke_out):
        each.close()
    fanout.selector.close()


def test_a_forked_child_closes_also_what_another_thread_was_using() -> None:
    process: Any = SimpleNamespace(running_keeper=None, system=SYSTEM)
    fanouts = FanoutPool((Endpoint(),), process)
    used = fanouts._taken(fanouts._idle)
    assert set(used.sockets()) == set(fanouts.sockets()) != set()
    used._turn.release()
    used.close()


def test_a_forked_child_closes_also_what_wakes_a_poll() -> None:
    fanout = Fanout((Endpoint(),), lambda _give_back: None)
    assert {fanout._poke_in, fanout._poke_out} <= set(fanout.sockets())
    for each in fanout.sockets():
        each.close()
    fanout.selector.close()


def test_what_fails_after_the_decision_is_repeated_by_the_keeper() -> None:
    insisted = list[object]()
    poll: Any = SimpleNamespace(counter=SimpleNamespace(on_answer=lambda *_: True), otherwise=lambda number: number)
    count = _Count(poll, insisted.append, clock)
    thens = [count.expect(number) for number in range(2)]
    thens[0]([1], 0.0)
    assert count.decided
    thens[1](Unknown("cut"), 0.0)
    assert insisted == [1]


@pytest.mark.parametrize("answered", [1, 0], ids=["decided", "time-is-up"])
def test_what_fails_when_its_task_waits_no_more_is_repeated_by_the_keeper(
    answered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeated = list[tuple[object, int]]()
    process: Any = SimpleNamespace(
        clock=lambda: 0.0, send_until_answered=lambda servers, number: repeated.append((servers, number))
    )
    endpoints = (Endpoint(), Endpoint())

    async def main() -> None:
        replies = {endpoint: asyncio.get_running_loop().create_future() for endpoint in endpoints}

        def kept(_process: object, endpoint: Endpoint, _kind: object) -> Any:
            stream = SimpleNamespace(silent_for=lambda: 0.0, begins=False, send=lambda *_: replies[endpoint])
            return SimpleNamespace(stream=stream)

        monkeypatch.setattr(aio_quorum, "kept", kept)
        poll: Any = SimpleNamespace(
            calls=[Command(("PING",), 1.0)] * 2,
            counter=SimpleNamespace(on_answer=lambda *_: True),
            within=60.0 if answered else 0.0,
            begins=False,
            otherwise=lambda number: number,
        )
        for endpoint in endpoints[:answered]:
            replies[endpoint].set_result(b"PONG")
        await aio_quorum.Driver(process, endpoints)._poll(poll)
        assert repeated == []
        for endpoint in endpoints[answered:]:
            replies[endpoint].set_exception(Unknown("cut"))
        await asyncio.sleep(0)  # one turn of the loop, in which the driver learns of it

    asyncio.run(main())
    assert repeated == [(endpoints, number) for number in range(answered, 2)]


@pytest.mark.parametrize(("begins", "timers"), [(False, 1), (True, 2)])
def test_only_a_request_for_votes_waits_for_a_connection_that_is_being_opened(
    monkeypatch: pytest.MonkeyPatch, begins: bool, timers: int
) -> None:
    opening, started = [True, False], list[float]()

    class Stream:
        begins = property(lambda _: opening.pop(0) if opening else False)
        send = staticmethod(lambda *_: asyncio.get_running_loop().create_future())

        def silent_for(self) -> float:
            return 0.0

    async def main() -> None:
        loop, stream = asyncio.get_running_loop(), Stream()
        call_later: Any = loop.call_later

        def counted(seconds: float, *args: Any) -> asyncio.TimerHandle:
            started.append(seconds)
            return cast("asyncio.TimerHandle", call_later(seconds, *args))

        monkeypatch.setattr(loop, "call_later", counted)
        monkeypatch.setattr(aio_quorum, "kept", lambda *_: SimpleNamespace(stream=stream))
        driver = aio_quorum.Driver(cast("Any", SimpleNamespace(clock=clock)), (Endpoint(),))
        opening[:] = [True]
        votes = SimpleNamespace(on_answer=lambda *_: False)
        await driver._poll(cast("Any", SimpleNamespace(calls=[], counter=votes, within=0.0, begins=begins, otherwise=None)))

    asyncio.run(main())
    assert len(started) == timers
