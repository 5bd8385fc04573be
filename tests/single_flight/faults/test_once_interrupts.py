"""Row 11, for `once`: interrupted wherever it may be, it leaves no key busy."""

from __future__ import annotations

import pytest
import redis

from holdfast import once
from runtime.faults.test_interrupts import at_every_line
from support.apis import until
from support.servers import PrivateServer


@pytest.mark.fault(11)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.soak)])
def test_row_11_interrupted_at_every_line_of_a_call(server: PrivateServer, name: str, step: int) -> None:
    left: list[str] = []
    job = once(server.url, name, keep=60)
    busy = job._job(name).entry.spec.keys[0]
    with redis.Redis.from_url(server.url) as look:
        job.run(int)  # connections are open, scripts are known

        def check(where: str) -> None:
            try:
                until(lambda: not look.exists(busy), 3)  # the keeper may be giving it back just now
            except AssertionError:
                left.append(where)
            look.delete("-", *look.keys(f"*{{{name}}}*"))

        check("")
        lines = at_every_line(lambda: job.run(int), check, step)
    assert not left, "left behind when interrupted at\n" + "\n".join(left)
    assert len(lines) > 50, "it was really traced"
