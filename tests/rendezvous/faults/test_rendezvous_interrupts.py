"""Row 11, for barriers and latches: interrupted wherever it may be, who waits leaves no place, and no call counts twice."""

from __future__ import annotations

import pytest
import redis

from holdfast import Barrier, CountDownLatch
from runtime.faults.test_interrupts import at_every_line
from support.apis import until
from support.servers import PrivateServer

pytestmark = [
    pytest.mark.fault(11),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.turns
@pytest.mark.parametrize("parties", [1, 2])
def test_row_11_interrupted_at_every_line_of_a_wait(server: PrivateServer, name: str, parties: int) -> None:
    """Alone, or with nobody: then it runs out of time."""
    left: list[str] = []
    barrier = Barrier(server.url, name, parties, lambda: None, timeout=0.0)
    with redis.Redis.from_url(server.url) as look:

        def meet() -> None:
            try:
                barrier.wait()
            except RuntimeError:
                pass

        def check(where: str) -> None:
            try:
                until(lambda: not look.exists(f"hf:{{{name}}}:places", f"hf:{{{name}}}:action"), 2)
            except AssertionError:
                left.append(where)
            look.delete("-", *look.keys(f"hf:{{{name}}}*"))

        meet()
        check("")
        lines = at_every_line(meet, check, 1)
    assert not left, "left behind when interrupted at\n" + "\n".join(left)
    assert len(lines) > 50, "it was really traced"


def test_row_11_interrupted_at_every_line_of_a_call_that_counts(server: PrivateServer, name: str) -> None:
    wrong: list[str] = []
    latch = CountDownLatch(server.url, name, 3)
    with redis.Redis.from_url(server.url) as look:

        def check(where: str) -> None:
            if latch.count < 2:
                wrong.append(where)
            look.delete("-", *look.keys(f"hf:{{{name}}}*"))

        latch.count_down()
        check("")
        lines = at_every_line(latch.count_down, check, 1)
    assert not wrong
    assert len(lines) > 20
