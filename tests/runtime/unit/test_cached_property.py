"""A property that is computed once: who computes it is waited for by nobody, and so by no child that is forked meanwhile."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import holdfast
from holdfast._core.struct import cached_property
from support.witness import in_thread


class Thing:
    def __init__(self, go: threading.Event) -> None:
        self.entered = threading.Event()
        self.go = go
        self.times = 0

    @cached_property
    def slow(self) -> int:
        """Takes until it may go on."""
        self.times += 1
        self.entered.set()
        assert self.go.wait(10)
        return 7


def test_nobody_waits_for_who_computes_it() -> None:
    go, gone = threading.Event(), threading.Event()
    gone.set()
    first, second = Thing(go), Thing(gone)
    value = in_thread(lambda: first.slow)
    assert first.entered.wait(5)
    assert in_thread(lambda: second.slow).result(5) == 7
    go.set()
    assert value.result(5) == first.slow == 7
    assert (first.times, second.times) == (1, 1)
    assert Thing.slow.__doc__ == "Takes until it may go on."


def test_the_one_that_has_a_mutex_is_used_nowhere() -> None:
    files = list(Path(holdfast.__file__).parent.rglob("*.py"))
    assert len(files) > 100
    theirs = re.compile(r"@functools\.cached_property|from functools import .*cached_property")
    assert [file for file in files if theirs.search(file.read_text(encoding="utf-8"))] == []
