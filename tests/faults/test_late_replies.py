"""Replies that are late and come all the same: a lease counts from its request, and is never believed beyond its key."""

from __future__ import annotations

import time
from typing import Any

import pytest

from faults.faces import Admin, Face, until
from faults.proxy import Proxy, Rule

LATE = 1000
"""Milliseconds for which a reply is held back: more than what is taken off these leases for the drift of clocks."""


def ends_at(lease: Any) -> float:
    """When the lease ends, as its holder believes; not later, however slow this machine is."""
    return time.monotonic() + float(lease.remaining())


def not_believed_too_long(lease: Any, admin: Admin) -> None:
    """Compare the end of the lease with the end of its key; the latter is not read too early, however slow this machine is."""
    believed = ends_at(lease)
    left = admin.ttl_ms() / 1000
    assert believed <= time.monotonic() + left + 0.001


def late(rule: Rule, admin: Admin, ttl: float, by: int) -> None:
    """Let go of the reply when so many milliseconds of the lease are over."""
    assert rule.done.wait(10)
    until(lambda: admin.ttl_ms() < 1000 * ttl - by)
    rule.go()


@pytest.mark.fault(20)
def test_late_replies_to_the_driver(face: Face, proxy: Proxy, admin: Admin, name: str) -> None:
    """The connection is opened, used again, and opened anew after it was cut."""
    lock = face.Lock(proxy.url, name, ttl=30)

    def renew() -> Any:
        return lock.lease.renew()

    for cut in (False, False, True):
        if cut:
            proxy.cut()
        for what, ask in (("acquire", lock.acquire), ("renew", renew)):
            rule = proxy.on(what, action="stall")
            asked = face.start(ask)
            late(rule, admin, 30, LATE)
            asked.result(10)
            not_believed_too_long(lock.lease, admin)
        face.call(lock.release)


@pytest.mark.fault(20)
def test_late_replies_to_the_keeper(any_face: Face, proxy: Proxy, admin: Admin, name: str) -> None:
    """It renews over its first connection, and over the one that it opens after that was cut."""
    lock = any_face.Lock(proxy.url, name, ttl=6)
    assert any_face.call(lock.acquire)
    lease = lock.lease
    for cut in (False, True):
        if cut:
            proxy.cut()
        before = ends_at(lease)
        late(proxy.on("renew", action="stall"), admin, 6, 300)
        while ends_at(lease) < before + 0.5:
            time.sleep(0.002)
        not_believed_too_long(lease, admin)
    any_face.call(lock.release)
