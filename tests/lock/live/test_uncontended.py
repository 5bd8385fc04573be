"""The walk of one acquire and release that nobody disturbs: which of our functions run, and in which files they are."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import holdfast
import holdfast.aio
from docs.architecture import ACQUIRE
from support.servers import PrivateServer

HOME = Path(holdfast.__file__).parent

BELOW = ("_net/", "_clock.py")
"""Files that every room may use."""


class Walk:
    """The calls of functions of holdfast, also each time that a coroutine goes on."""

    def __init__(self) -> None:
        self.calls: list[CodeType] = []

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(HOME)):
            self.calls.append(frame.f_code)

    @property
    def lines(self) -> int:
        return sum(len(inspect.getsourcelines(code)[0]) for code in set(self.calls))

    @property
    def files(self) -> set[str]:
        return {str(Path(code.co_filename).relative_to(HOME)) for code in self.calls}

    @property
    def route(self) -> list[str]:
        """The files in the order of the calls, without repetitions next to each other."""
        return [file for file, _ in itertools.groupby(str(Path(code.co_filename).relative_to(HOME)) for code in self.calls)]

    @property
    def above(self) -> set[str]:
        return {file for file in self.files if not file.startswith(BELOW)}

    def is_short(self) -> bool:
        print(len(self.calls), "calls,", self.lines, "lines,", sorted(self.files))
        return len(self.calls) <= 60 and self.lines <= 450 and len(self.above) <= 6 and len(self.files) <= 9


@contextmanager
def walk() -> Iterator[Walk]:
    seen, before = Walk(), sys.getprofile()
    sys.setprofile(seen.note)
    try:
        yield seen
    finally:
        sys.setprofile(before)


PAIRS = 1000
"""Of the first ones, some walk further: the stock of tokens is filled, and the record of the process is soon written."""


def quickest(walks: list[Walk]) -> Walk:
    """One in which nothing else is due."""
    return min(walks, key=lambda one: len(one.calls))


def in_threads(lock: Any) -> Walk:
    walks = []
    for _ in range(PAIRS):
        with walk() as seen:
            lock.acquire()
            lock.release()
        walks.append(seen)
    return quickest(walks)


@pytest.mark.turns
@pytest.mark.parametrize("kind", ["Lock", "FairLock"])
def test_the_walk_is_short(server: PrivateServer, name: str, kind: str) -> None:
    assert in_threads(getattr(holdfast, kind)(server.url, name)).is_short()


@pytest.mark.turns
@pytest.mark.parametrize("kind", ["Lock", "FairLock"])
def test_the_walk_is_short_for_asyncio(server: PrivateServer, name: str, kind: str) -> None:
    async def main() -> list[Walk]:
        lock, walks = getattr(holdfast.aio, kind)(server.url, name), []
        for _ in range(PAIRS):
            with walk() as seen:
                await lock.acquire()
                await lock.release()
            walks.append(seen)
        return walks

    assert quickest(asyncio.run(main())).is_short()


def test_an_owner_walks_hardly_further(server: PrivateServer, name: str) -> None:
    assert len(in_threads(holdfast.RLock(server.url, name)).calls) <= 60


UNDRAWN = {"_api/lease_core.py", "_clock.py", "_core/lock/records.py", "_net/sync_connection.py"}
"""Files of an acquire that the picture in docs/design/architecture.md leaves out: records, the clock, and inside a pool."""


def test_the_drawn_acquire_is_the_real_one(server: PrivateServer, name: str) -> None:
    lock, walks = holdfast.Lock(server.url, name), []
    for _ in range(PAIRS):
        with walk() as seen:
            lock.acquire()
        lock.release()
        walks.append(seen)
    drawn = [step.file for step in ACQUIRE.values() if "/" in step.file]
    script = f"_lua/{lock._spec.acquire_frame.script.name}.lua"
    assert [file for file in drawn if file.startswith("_lua/")] == [script]
    assert {file for file in drawn if file != script} == quickest(walks).files - UNDRAWN
    route = iter(quickest(walks).route)
    assert [file for file in drawn if file != script and file not in route] == []
