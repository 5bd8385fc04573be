"""Trying again: how often, for how long, with which pauses. No server, no clock."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

import pytest
import redis

from holdfast import Transaction
from holdfast._core.requests import CallUser, Now, RandomFraction, Sleep
from holdfast._core.transaction import GROWTH, LONGEST_PAUSE, TRIES, GivenUp, RetryableConflict, longest_pause, persist
from holdfast._net.client_pipeline import is_command, named
from holdfast.errors import ConfigError


class World:
    """Carries out `persist`. A try takes ``takes`` seconds; the first ``conflicts`` of them come to nothing."""

    def __init__(self, conflicts: int, takes: float = 0.01, chance: float = 1.0) -> None:
        self.now = 100.0
        self.conflicts = conflicts
        self.takes = takes
        self.chance = chance
        self.tries = 0
        self.pauses: list[float] = []

    def once(self) -> str:
        self.tries += 1
        self.now += self.takes
        if self.tries <= self.conflicts:
            raise RetryableConflict(f"number {self.tries}")
        return "done"

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def run(self, tries: int = TRIES, wait: float | None = None, once: Callable[[], Any] | None = None) -> Any:
        does: dict[type, Callable[[Any], Any]] = {
            CallUser: lambda request: request.call(),
            Now: lambda _: self.now,
            RandomFraction: lambda _: self.chance,
            Sleep: lambda request: self.pause(request.seconds),
        }
        operation = persist(CallUser(once or self.once), tries, wait)
        reply: Any = None
        error: Exception | None = None
        while True:
            try:
                request = operation.throw(error) if error is not None else operation.send(reply)
            except StopIteration as stop:
                return stop.value
            try:
                reply, error = does[type(request)](request), None
            except Exception as caught:
                error = caught


@pytest.mark.parametrize("conflicts", [0, 1, 5, TRIES - 1])
def test_until_it_counts(conflicts: int) -> None:
    world = World(conflicts)
    assert world.run() == "done"
    assert (world.tries, len(world.pauses)) == (conflicts + 1, conflicts)


@pytest.mark.parametrize("tries", [1, 2, TRIES])
def test_not_more_often_than_allowed(tries: int) -> None:
    world = World(10**6)
    with pytest.raises(GivenUp) as caught:
        world.run(tries)
    assert (caught.value.tries, world.tries, len(world.pauses)) == (tries, tries, tries - 1)
    assert caught.value.why == f"number {tries}"
    assert caught.value.waited == pytest.approx(world.now - 100.0)


def test_not_longer_than_allowed() -> None:
    """A pause that would end after that is not begun."""
    world = World(10**6, takes=0.1)
    with pytest.raises(GivenUp) as caught:
        world.run(wait=2.0)
    assert 1.0 < caught.value.waited <= 2.0
    assert world.now - 100.0 == pytest.approx(caught.value.waited)
    with pytest.raises(GivenUp) as caught:
        World(10**6).run(wait=0)
    assert caught.value.tries == 1


def test_pauses_grow_with_what_a_try_takes_and_end_somewhere() -> None:
    world = World(10, takes=0.01)
    world.run()
    assert world.pauses == [pytest.approx(0.01 * 2 ** min(n, GROWTH)) for n in range(1, 11)]
    assert longest_pause(10**6, 10.0) == LONGEST_PAUSE
    world = World(10, chance=0.0)
    world.run()
    assert set(world.pauses) == {0.0}


def test_one_slow_try_does_not_make_all_pauses_long() -> None:
    world = World(5)
    times = iter([0.01, 5.0, 0.02, 0.03, 0.04, 0.05])

    def once() -> str:
        world.takes = next(times)
        return world.once()

    world.run(once=once)
    assert max(world.pauses) == pytest.approx(0.01 * 2**5)


def test_any_other_error_ends_it() -> None:
    world = World(0)

    def once() -> None:
        world.tries += 1
        raise KeyError("the user's")

    with pytest.raises(KeyError, match="the user's"):
        world.run(once=once)
    assert (world.tries, world.pauses) == (1, [])


def test_what_is_a_command_of_a_pipeline() -> None:
    Pipeline = type(redis.Redis().pipeline())  # noqa: N806  # a class
    assert [is_command(Pipeline, name) for name in ("get", "execute_command", "pipeline", "raise_first_error")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_queued_command_is_named_without_its_values() -> None:
    assert [named((words,)) for words in (("PING",), ("GET", "key"), ("SET", "key", "secret"))] == [
        "PING",
        "GET 'key'",
        "SET 'key'",
    ]


def test_the_same_key_is_watched_once_by_whatever_url_of_the_server() -> None:
    def watch() -> None:
        Transaction("redis://localhost", "key")._claim("me")
        Transaction("redis://localhost:6379", "another key")._claim("me")
        with pytest.raises(ConfigError, match="inside another transaction"):
            Transaction("redis://localhost:6379", "key")._claim("me")

    contextvars.copy_context().run(watch)
