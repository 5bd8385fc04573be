"""Row 11 for an RLock: interrupted at any line, it is given back as often as it was taken, and not once more."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import holdfast
from runtime.faults.test_interrupts import at_every_line
from support.apis import Admin, until
from support.servers import PrivateServer

pytestmark = [
    pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning"),
    pytest.mark.filterwarnings("ignore:lease of .* was dropped without release:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def judge(body: Callable[[], object], admin: Admin, name: str, server: PrivateServer, *, least: int) -> None:
    """Nothing is left of it at the server, nor of this thread's count, wherever it is interrupted."""
    left: list[str] = []
    lock = holdfast.RLock(server.url, name)

    def check(where: str) -> None:
        try:
            until(lambda: admin.token() is None, 3)  # the keeper may be giving it back just now
            assert lock._recursion_count() == 0
        except AssertionError:
            left.append(where)
            admin.redis.delete(admin.lock)

    body()  # connections are open, scripts are known
    lines = at_every_line(body, check)
    assert not left, "left behind when interrupted at\n" + "\n".join(left)
    assert len(lines) > least, "it was really traced"
    assert admin.places() == []


@pytest.mark.fault(11)
def test_row_11_interrupted_at_every_line_of_a_nested_with(server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 11: and whatever becomes of the inner one, the outer one has it until its end."""
    wrong: list[int] = []
    outer, inner = (holdfast.RLock(server.url, name, ttl=30) for _ in range(2))

    def body() -> None:
        with outer:
            try:
                with inner:
                    pass
            finally:
                if outer._recursion_count() != 1 or admin.token() is None:
                    wrong.append(outer._recursion_count())

    judge(body, admin, name, server, least=100)
    assert wrong == []


@pytest.mark.fault(11)
def test_row_11_interrupted_at_every_line_of_taking_it_twice(server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 11: `acquire` within a ``with`` that a finally gives back."""
    lock = holdfast.RLock(server.url, name, ttl=30)

    def body() -> None:
        with lock:
            if lock.acquire():
                lock.release()

    left: list[str] = []

    def check(where: str) -> None:
        # Interrupted between the two, nobody has given back what `acquire` took: the count says so, and the lock is kept.
        count = lock._recursion_count()
        if count == 1 and admin.token() is not None:
            lock.release()
        if lock._recursion_count() or (count == 0 and admin.token() is not None):
            until(lambda: admin.token() is None, 3)
        if lock._recursion_count():
            left.append(where)

    body()
    lines = at_every_line(body, check)
    assert not left
    assert len(lines) > 100
    until(lambda: admin.token() is None, 3)


@pytest.mark.turns("interrupted lines")
@pytest.mark.fault(11)
def test_row_11_a_condition_that_is_interrupted(server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 11: between giving all of it back and having it all again."""
    lock = holdfast.RLock(server.url, name, ttl=30)
    condition = threading.Condition(lock)  # type: ignore[arg-type]

    def body() -> None:
        with condition, condition:
            condition.wait(0.0001)

    judge(body, admin, name, server, least=200)
