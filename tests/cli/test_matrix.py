"""Each way to start work under ``holdfast run`` x each way to end it: the next holder never overlaps, but where it is said."""

from __future__ import annotations

import itertools
import multiprocessing
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import redis

import holdfast
from cli.matrix import ENDS, Cell, starts
from support.servers import private
from support.sources import turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Begin = Callable[[str, list[str]], list[Future[str]]]

AT_A_TIME = 24
ROUNDS = 25

TURNS = 4
"""Of the ways to start work, each ending has every fourth one in a run: others after each change of a source, and in the soak
all."""

_numbers = itertools.count()


@pytest.fixture(scope="module")
def begin() -> Iterator[Begin]:
    """Begins cells of an ending. They wait more than they compute, so many of them run at the same time."""
    with private() as server, redis.Redis.from_url(server.url) as client, ThreadPoolExecutor(AT_A_TIME) as pool:

        def submit(end: str, ways: list[str]) -> list[Future[str]]:
            cells = [Cell(server, client, start, end, f"matrix-{next(_numbers)}") for start in ways]
            return [pool.submit(cell.run) for cell in cells]

        yield submit
        holdfast.close()


def in_turn(end: str) -> list[str]:
    """The ways to start work whose turn it is with this ending. The next endings have the others."""
    first = turn("matrix") + ENDS.index(end)
    return starts()[first % TURNS :: TURNS]


@pytest.fixture(scope="module")
def begun(begin: Begin, request: pytest.FixtureRequest) -> dict[str, list[Future[str]]]:
    """The cells of all endings that are asked for, begun in this order, so that no test waits for those before it to end."""
    wanted = [item.name for item in request.session.items if item.path == request.path]
    return {end: begin(end, in_turn(end)) for end in ENDS if any(f"[{end}]" in name for name in wanted)}


@pytest.mark.turns
@pytest.mark.parametrize("end", ENDS)
def test_the_work_has_ended_when_the_next_holder_begins(begun: dict[str, list[Future[str]]], end: str) -> None:
    assert [wrong for cell in begun[end] if (wrong := cell.result(120))] == []


@pytest.mark.soak
def test_the_same_under_load(begin: Begin) -> None:
    stop = multiprocessing.get_context("spawn").Event()
    burners = [multiprocessing.get_context("spawn").Process(target=burn, args=(stop,)) for _ in range(4)]
    for burner in burners:
        burner.start()
    try:
        cells = [cell for _ in range(ROUNDS) for end in ENDS for cell in begin(end, starts())]
        wrong = [found for cell in cells if (found := cell.result())]
        assert not wrong, "\n".join(wrong)
    finally:
        stop.set()
        for burner in burners:
            burner.join()


def burn(stop: multiprocessing.synchronize.Event) -> None:
    """Take a processor."""
    while not stop.is_set():
        sum(range(100_000))
