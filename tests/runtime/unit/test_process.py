"""The registry of one process, and its memory of closed event loops."""

from __future__ import annotations

import math
import os
import re
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

from holdfast import _clock
from holdfast._clock import clock
from holdfast._core.quorum.nodes import QuorumNodes
from holdfast._core.requests import Command, NotSent
from holdfast._net.endpoint import Endpoint
from holdfast._net.system import System
from holdfast._runtime import closed_loops, process
from holdfast._runtime.closed_loops import UNDER_WAY, Loops
from holdfast._runtime.keeper import thread
from holdfast._runtime.keeper.thread import Keeper
from holdfast._runtime.process import Process
from support.waiters import waiter


def no_record(_waits: object, _labels: object) -> str:
    return "{}"


def test_each_token_is_the_id_of_the_process_and_a_secret_of_its_own() -> None:
    process = Process()
    tokens = [process.token() for _ in range(200)]
    assert len(set(tokens)) == 200
    assert all(re.fullmatch(f"{process.id}\\.[0-9a-f]{{32}}", token) for token in tokens)


def test_a_client_is_made_once() -> None:
    process, made = Process(), list[object]()

    def make() -> object:
        made.append(object())
        return made[-1]

    assert process.client("key", make) is process.client("key", make)
    assert len(made) == 1


class Absent(System):
    """Has no thread for the keeper."""

    def keep(self, keeper: object) -> Any:
        pass


def test_who_is_to_wait_wakes_the_keeper() -> None:
    keeper = Keeper("aaaaaaaaaaaa", no_record, Absent())
    keeper.wake_at = math.inf
    assert not keeper.register_waiter(Endpoint(), waiter())
    assert keeper.wake_at <= keeper.clock()
    keeper._stopping = True
    keeper.run()


def test_a_keeper_that_has_ended_opens_nothing() -> None:
    keeper = Keeper("aaaaaaaaaaaa", no_record, Absent())
    keeper._stopping = True
    keeper.run()
    answers = list[object]()
    keeper.line_to(Endpoint()).call(Command(("PING",), 1.0), lambda answer, _sent: answers.append(answer))
    assert [type(answer) for answer in answers] == [NotSent]


def test_what_others_read_off_their_clocks_is_compared_with_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_clock, "ahead", 1000.0)
    assert _clock.wall() > time.time() + 900


def test_a_majority_is_more_than_half_of_the_servers() -> None:
    for there, reachable in ((1, False), (2, True)):
        nodes: Any = tuple(SimpleNamespace(reachable=lambda _prefix, yes=number < there: yes) for number in range(3))
        assert QuorumNodes(nodes).reachable(b"hf:") is reachable


def test_a_listener_is_told_nothing_any_more() -> None:
    process, told, listener = Process(), list[object](), SimpleNamespace(listener_id="listener")
    endpoints: Any = ("one", "other")
    nobody: Any = SimpleNamespace(listener_id="")
    keeper: Any = SimpleNamespace(unsubscribe=lambda *what: told.append(what))
    process.unsubscribe(endpoints, nobody)
    process._keepers.append(keeper)
    process.unsubscribe(endpoints, nobody)
    process.unsubscribe(endpoints, listener)
    assert told == [("one", listener), ("other", listener)]


def test_nobody_waits_for_a_keeper_that_is_busy() -> None:
    """However often it is poked, until it looks."""

    called = list[int]()
    keeper = Keeper("aaaaaaaaaaaa", no_record, Absent())
    for number in range(20_000):
        keeper.call(partial(called.append, number))
    keeper._stopping = True
    keeper.run()
    assert called == list(range(20_000))


def test_what_was_ended_may_be_under_way_for_a_while() -> None:
    keeper: Any = SimpleNamespace(now=100.0, mutex=Process()._mutex, later=lambda *_: None)
    keeper.clock = lambda: keeper.now
    keeper.safely = lambda action, *args: action(*args)

    class Closed:
        """The driver of a loop that was closed in the middle of an operation."""

        unwatched = True
        running = (1,)
        loop = SimpleNamespace(is_closed=lambda: True)

        def end(self, _operation: object) -> None:
            pass

    driver: Any = Closed()
    loops = Loops(keeper)
    assert not loops.lately()
    loops.watch(driver)
    loops.end()
    keeper.now += UNDER_WAY - 0.1
    assert loops.lately()
    keeper.now += 0.1
    assert not loops.lately()


class Interrupt:
    """Raises at the n-th line that the main thread runs in one of these files."""

    FILES = (process.__file__, thread.__file__, closed_loops.__file__)

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: FrameType, event: str, _arg: object) -> Interrupt | None:
        if frame.f_code.co_filename not in self.FILES:
            return None
        if event == "line" and self.left >= 0:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        return self


def interrupted(action: Callable[[], None], number: int) -> bool:
    tracer, before = Interrupt(number), sys.gettrace()
    sys.settrace(tracer)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_the_keeper_ends_also_if_closing_is_interrupted() -> None:
    for number in range(200):
        process = Process()
        keeper = process.keeper
        if not interrupted(process.close, number):
            assert number > 20
            return
        process.close()  # as at the end of the program
        keeper.thread.join(5)
        assert not keeper.thread.is_alive(), number
    raise AssertionError("it never ends")


def test_a_keeper_with_nothing_left_to_send_takes_no_turn_more() -> None:
    """A turn could open connections, and wait for them."""
    keeper, turns = Keeper("aaaaaaaaaaaa", no_record, Absent()), list[float]()
    node = SimpleNamespace(
        address="",
        inbox=None,
        close=lambda _error: None,
        farewell=lambda: ([], []),
        turn=turns.append,
        next_at=lambda: math.inf,
    )
    keeper._nodes[Endpoint()] = cast("Any", node)
    keeper.before_wait()
    assert len(turns) == 1
    keeper.stop(30)
    assert keeper.before_wait() == 0
    assert len(turns) == 1
    keeper.run()


def test_closing_waits_for_the_last_answer_and_no_longer() -> None:
    keeper, thens = Keeper("aaaaaaaaaaaa", no_record, Absent()), list[Callable[[object, float], None]]()
    calls = [Command(("PING",), 1.0)] * 2
    node = SimpleNamespace(
        address="",
        inbox=None,
        close=lambda _error: None,
        farewell=lambda: ([], calls),
        commands=SimpleNamespace(call=lambda _call, then: thens.append(then)),
    )
    keeper._nodes[Endpoint()] = cast("Any", node)
    keeper._farewell(30)
    for then in thens:
        assert not keeper._stopping
        then(b"PONG", 0.0)
    assert keeper._stopping
    keeper._nodes.clear()
    keeper.run()


def test_a_holder_is_told_before_its_lock_is_released_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code has to stop before another client gets the lock."""
    keeper, done = Keeper("aaaaaaaaaaaa", no_record, Absent()), list[object]()
    node = SimpleNamespace(
        address="",
        inbox=None,
        close=lambda _error: None,
        farewell=lambda: (["lease"], ["release"]),
        commands=SimpleNamespace(call=lambda call, _then: done.append(call)),
    )
    keeper._nodes[Endpoint()] = cast("Any", node)
    monkeypatch.setattr(keeper, "report", done.append)
    keeper._farewell(30)
    assert done == ["lease", "release"]
    keeper._nodes.clear()
    keeper._stopping = True
    keeper.run()


def test_a_forked_child_closes_the_sockets_that_are_open() -> None:
    """One may have been closed before the process forked, and not been forgotten yet."""
    ours, theirs = socket.socketpair()
    theirs.close()
    process = Process()
    process._pools[Endpoint()] = cast("Any", SimpleNamespace(sockets=lambda: [theirs, ours]))
    process.let_go()
    assert os.path.samestat(os.fstat(ours.fileno()), Path(os.devnull).stat())
    ours.close()


def test_a_forked_child_closes_the_sockets_to_several_servers() -> None:
    ours, theirs = socket.socketpair()
    process = Process()
    process.own("servers", lambda: SimpleNamespace(sockets=lambda: [ours]))
    process.let_go()
    assert os.path.samestat(os.fstat(ours.fileno()), Path(os.devnull).stat())
    ours.close()
    theirs.close()


def test_a_listener_is_subscribed_at_every_server_though_the_first_is_down() -> None:
    process, asked = Process(), list[object]()
    endpoints: Any = ("down", "other", "third")
    listener: Any = SimpleNamespace(majority=2)

    def subscribe(endpoint: object, _listener: object) -> bool:
        asked.append(endpoint)
        return endpoint != "down"

    keeper: Any = SimpleNamespace(subscribe=subscribe, ended=False)
    process._keepers.append(keeper)
    assert process.subscribe(endpoints, listener)
    assert asked == ["down", "other", "third"]


def test_a_keeper_does_what_is_due_in_its_very_moment() -> None:
    keeper, done = Keeper("aaaaaaaaaaaa", no_record, Absent()), list[float]()
    keeper._later = [(7.0, partial(done.append, 7.0)), (7.1, partial(done.append, 7.1))]
    keeper._do_what_is_due(7.0)
    assert done == [7.0]
    keeper._stopping = True
    keeper.run()


def test_many_tokens_cost_one_system_call() -> None:
    process, sizes = Process(), list[int]()

    def urandom(size: int) -> bytes:
        sizes.append(size)
        return os.urandom(size)

    process.system = cast("Any", SimpleNamespace(urandom=urandom))
    assert len({process.token() for _ in range(64)}) == 64
    assert sizes == [16 * 64]


def test_a_keeper_whose_turns_fail_takes_no_more_than_twenty_in_a_second(caplog: pytest.LogCaptureFixture) -> None:
    keeper, turns = Keeper("aaaaaaaaaaaa", no_record, Absent()), list[float]()

    def turn() -> None:
        turns.append(clock())
        keeper._stopping = len(turns) == 2
        raise OSError("as by a full table of files")

    keeper._turn = turn  # type: ignore[method-assign]
    keeper._turns()
    keeper.run()
    assert turns[1] - turns[0] >= 0.049
    assert caplog.text.count("the keeper continues") == 2


def test_a_keeper_ends_at_once_when_the_last_answer_has_come() -> None:
    keeper = Keeper("aaaaaaaaaaaa", no_record, Absent())
    keeper.after_wait(keeper.selector.select(0))
    keeper._halt()
    assert keeper.selector.select(0)
    keeper.run()


class Driver:
    """In the middle of an operation, in a loop that is closed."""

    def __init__(self, end: Callable[[object], None]) -> None:
        self.loop = SimpleNamespace(is_closed=lambda: True)
        self.running = {"operation"}
        self.unwatched = True
        self.end = end


def test_a_driver_is_watched_also_if_that_was_interrupted() -> None:
    """The next operation in the loop says again that the driver is to be watched."""
    for number in range(100):
        keeper = Keeper("aaaaaaaaaaaa", no_record, Absent())
        loops, ended = Loops(keeper), list[object]()
        driver = Driver(ended.append)
        done = not interrupted(partial(loops.watch, cast("Any", driver)), number)
        if driver.unwatched:
            loops.watch(cast("Any", driver))
        for _, look in [*keeper._later]:
            look()
        assert ended[:1] == ["operation"], number
        keeper._stopping = True
        keeper.run()
        if done:
            assert number > 5
            return
    raise AssertionError("it never ends")


def test_a_driver_is_watched_by_the_keeper_that_follows() -> None:
    """`close` ends a keeper while an event loop goes on: the next operation there must say that it is to be watched."""
    process = Process()
    driver: Any = Driver(lambda _operation: None)
    driver.loop = SimpleNamespace(is_closed=lambda: False)
    for _ in range(2):
        assert driver.unwatched
        process.keeper.loops.watch(driver)
        assert not driver.unwatched
        process.close()
    assert driver.unwatched
