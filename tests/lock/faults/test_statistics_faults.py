"""The counts of a lock object if requests are late."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from support.proxy import Proxy
from support.servers import PrivateServer
from support.witness import in_thread


@pytest.mark.parametrize("cls", [holdfast.FairLock, holdfast.Semaphore])
def test_nobody_is_counted_as_waiting_who_got_it_when_he_joined(
    proxy: Proxy, server: PrivateServer, name: str, cls: Any
) -> None:
    """The lock is busy at the first request, and free when the attempt joins the queue."""
    limit = {"limit": 1} if cls is holdfast.Semaphore else {}
    other, lock = cls(server.url, name, **limit), cls(proxy.url, name, **limit)
    other.acquire()
    rule = proxy.on("SUBSCRIBE", action="hold")
    taken = in_thread(lock.acquire)
    assert rule.seen.wait(5)
    other.release()
    rule.go()
    assert taken.result(5)
    found = lock.statistics()
    assert (found.acquisitions, found.contended, found.waiting) == (1, 1, 0)
    assert found.total_wait > 0
    lock.release()
