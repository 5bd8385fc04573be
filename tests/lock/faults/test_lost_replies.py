"""Replies that get lost, at every request: acquire, renew, release, joining, hand-over, refresh, giving up.

"lose" and "cut": the server did it. "refuse": it never saw it. "twice": it got it twice. The caller cannot tell the first
three apart, and in none of them may the outcome differ from that of an undisturbed run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import holdfast
from holdfast._core.lock.replies import CLAIM_WINDOW_S
from support.apis import Admin, Aio, Api, Sync, at_most, until
from support.proxy import Action, Proxy, Rule
from support.servers import PrivateServer

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

TTL = 0.9
LONGER = 2.0
"""The ttl if no test waits for its end: long enough for some lost replies in a row."""
PATIENCE = 20.0
"""Seconds to wait for what takes at most two on an idle machine."""
FAULTS: list[Action] = ["lose", "cut", "refuse", "twice"]
NAMES = {"release": ("release", "bury"), "leave": ("leave", "bury")}
"""After a request was sent twice, a release or giving up also revokes the token."""


def harm(proxy: Proxy, at: str, fault: Action, times: int = 1) -> Rule:
    """Harm so many of these requests, whatever they are called by who had to wait for an earlier answer."""
    return proxy.on(*NAMES.get(at, (at,)), action=fault, times=times)


@pytest.fixture
def holder(server: PrivateServer, name: str) -> Iterator[holdfast.Lease]:
    """Somebody who holds the lock, undisturbed. The lease is short, so that who waits asks again soon."""
    lock = holdfast.Lock(server.url, name, ttl=TTL)
    assert lock.acquire(blocking=False)
    lease = lock.lease
    assert lease is not None
    yield lease
    if lock.lease is not None:
        lease.release()


@pytest.mark.fault(16, 17, 18)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", ["acquire", "renew", "release"])
def test_rows_16_17_18_one_reply_lost_changes_nothing(
    api: Api, proxy: Proxy, admin: Admin, name: str, at: str, fault: Action
) -> None:
    """Rows 16, 17, 18: reply lost, request executed (or not); release reply lost; duplicated request."""
    lock = api.Lock(proxy.url, name, ttl=LONGER, renew=False)
    rule = harm(proxy, at, fault)
    assert api.call(lock.acquire)
    token, fence = admin.token(), lock.lease.fence
    assert fence == admin.fence()
    api.call(lock.lease.renew)
    assert (admin.token(), lock.lease.fence, admin.fence()) == (token, fence, fence)
    assert LONGER * 1000 * 0.7 < admin.ttl_ms() <= LONGER * 1000, "renewal sets the lease, it never adds"
    api.call(lock.release)
    assert rule.done.wait(1)
    assert lock.lease is None
    admin.nothing_left()


@pytest.mark.fault(16)
@pytest.mark.parametrize("fault", ["lose", "cut", "refuse"])
def test_row_16_every_reply_to_acquire_lost(api: Api, proxy: Proxy, admin: Admin, name: str, fault: Action) -> None:
    """Row 16: nobody knows whether it was done: an error, and nothing is left that nobody holds."""
    lock = api.Lock(proxy.url, name, ttl=LONGER)
    proxy.on("acquire", action=fault, times=100)
    with at_most(2.0), pytest.raises(holdfast.ServerError):
        api.call(lock.acquire)
    assert lock.lease is None
    until(lambda: admin.token() is None, 0.5)
    admin.nothing_left()


@pytest.mark.fault(17)
@pytest.mark.parametrize("fault", ["lose", "cut", "refuse"])
def test_row_17_every_reply_to_release_lost(api: Api, proxy: Proxy, admin: Admin, name: str, fault: Action) -> None:
    """Row 17: release says that it does not know; what is left ends with the lease, and is renewed no more."""
    lock = api.Lock(proxy.url, name, ttl=LONGER if fault == "lose" else TTL)
    assert api.call(lock.acquire)
    rule = harm(proxy, "release", fault, times=100)
    with at_most(3.0), pytest.raises(holdfast.ServerError):
        api.call(lock.release)
    rule.go()
    assert lock.lease is None
    until(lambda: admin.token() is None, TTL + 0.6)
    admin.nothing_left()
    with pytest.raises(holdfast.NotHeld):
        api.call(lock.release)


@pytest.mark.fault(16)
@pytest.mark.parametrize("fault", ["lose", "cut", "refuse"])
def test_row_16_every_reply_to_renew_lost(api: Api, proxy: Proxy, admin: Admin, name: str, fault: Action) -> None:
    """Row 16: renewal by hand says that it does not know, and the lease is believed no longer than was confirmed."""
    lock = api.Lock(proxy.url, name, ttl=LONGER, renew=False)
    assert api.call(lock.acquire)
    proxy.on("renew", action=fault, times=100)
    confirmed = lock.lease.remaining()
    with at_most(0.7 * LONGER), pytest.raises(holdfast.ServerError):
        api.call(lock.lease.renew)
    assert lock.lease.remaining() <= confirmed
    api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(16)
@pytest.mark.parametrize("fault", FAULTS)
def test_row_16_the_keeper_survives_a_lost_reply(any_api: Api, proxy: Proxy, admin: Admin, name: str, fault: Action) -> None:
    """Row 16: one failed renewal loses nothing."""
    lock = any_api.Lock(proxy.url, name, ttl=TTL)
    assert any_api.call(lock.acquire)
    token = admin.token()
    rule = proxy.on("renew", action=fault)
    assert rule.done.wait(TTL)
    harmed = len(proxy.names("renew"))
    until(lambda: len(proxy.names("renew")) >= harmed + 2, 2 * TTL)
    assert not lock.lease.lost.is_set()
    assert admin.token() == token
    any_api.call(lock.release)
    admin.nothing_left()


def wait_and_hold(api: Api, proxy: Proxy, admin: Admin, holder: holdfast.Lease, at: str, fault: Action) -> None:
    """A whole life with one of its requests harmed: wait, be handed the lock, hold it, give it back."""
    lock = api.Lock(proxy.url, holder.name, ttl=TTL)
    rule = harm(proxy, at, fault)
    taken = api.start(lock.acquire, timeout=PATIENCE)
    if at in {"acquire", "SUBSCRIBE", "join", "refresh"}:
        assert rule.done.wait(PATIENCE)
    until(lambda: len(admin.places()) == 1 and "SUBSCRIBE" in proxy.names("SUBSCRIBE"))
    assert not taken.done()
    refreshed = len(proxy.names("refresh"))
    holder.release()
    assert taken.result(PATIENCE)
    assert len(proxy.names("refresh")) - refreshed <= 2, "one was on its way at most, and the next one tells of the hand-over"
    assert lock.lease.fence == admin.fence() > holder.fence
    until(lambda: 0 < admin.ttl_ms() <= TTL * 1000, 1.5)  # the claim window has become the lease
    assert not lock.lease.lost.is_set()
    api.call(lock.release)
    assert rule.done.wait(1)
    admin.nothing_left()


@pytest.mark.turns
@pytest.mark.fault(16, 17, 18)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", ["acquire", "join", "release"])
def test_rows_16_17_18_hand_over_with_one_reply_lost(
    api: Api, proxy: Proxy, admin: Admin, holder: holdfast.Lease, at: str, fault: Action
) -> None:
    """Rows 16, 17, 18, seen by who waits: the lock is handed over once, whatever is lost on the way to it."""
    wait_and_hold(api, proxy, admin, holder, at, fault)


@pytest.mark.turns
@pytest.mark.fault(16, 18)
@pytest.mark.parametrize(
    ("at", "fault"),
    [*itertools.product(["SUBSCRIBE", "refresh", "renew"], FAULTS), ("message", "lose"), ("message", "cut")],
)
def test_rows_16_18_hand_over_with_one_reply_to_the_keeper_lost(
    any_api: Api, proxy: Proxy, admin: Admin, holder: holdfast.Lease, at: str, fault: Action
) -> None:
    """Rows 16, 18: the same for what the keeper asks, which is one for both APIs."""
    wait_and_hold(any_api, proxy, admin, holder, at, fault)


@pytest.mark.fault(17)
@pytest.mark.parametrize("fault", FAULTS)
def test_row_17_release_that_hands_over_is_not_done_twice(
    api: Api, proxy: Proxy, admin: Admin, server: PrivateServer, name: str, fault: Action
) -> None:
    """Row 17: the second copy of a release finds the next holder's value, leaves it there, and is no error."""
    lock = api.FairLock(proxy.url, name, ttl=TTL)
    assert api.call(lock.acquire)
    fence = lock.lease.fence
    first, second = api.FairLock(server.url, name, ttl=TTL), api.FairLock(server.url, name, ttl=TTL)
    first_taken = api.start(first.acquire, timeout=5)
    until(lambda: len(admin.places()) == 1)
    second_taken = api.start(second.acquire, timeout=5)
    until(lambda: len(admin.places()) == 2)
    rule = harm(proxy, "release", fault)
    api.call(lock.release)
    assert first_taken.result(1)
    assert rule.done.wait(1)
    assert first.lease.fence > fence
    assert not second_taken.done()
    assert len(admin.places()) == 1
    api.call(first.release)
    assert second_taken.result(1)
    api.call(second.release)
    admin.nothing_left()


@pytest.mark.fault(16, 18)
@pytest.mark.parametrize(("at", "fault"), [*itertools.product(["acquire", "join", "leave"], FAULTS), ("SUBSCRIBE", "lose")])
def test_rows_16_18_giving_up_with_one_reply_lost(
    both_apis: tuple[Sync, Aio], server: PrivateServer, admin: Admin, name: str, holder: holdfast.Lease, at: str, fault: Action
) -> None:
    """Rows 16, 18: who gives up leaves no place behind, whatever was lost."""
    apis: list[Api] = [*both_apis]
    with Proxy(server) as one, Proxy(server) as another, at_most(2.5):
        rules = [harm(proxy, at, fault) for proxy in (one, another)]
        locks = [api.Lock(proxy.url, name, ttl=TTL) for api, proxy in zip(apis, (one, another), strict=True)]
        # Time enough to come into the queue, and to ask again there.
        given_up = [api.start(lock.acquire, timeout=0.6) for api, lock in zip(apis, locks, strict=True)]
        assert [future.result(5) for future in given_up] == [False, False]
        assert all(rule.done.wait(1) for rule in rules)
        until(lambda: admin.places() == [], 1)  # as good as at once: a place that nobody gives up counts for three seconds
    holder.release()
    admin.nothing_left()


@pytest.mark.fault(16)
def test_row_16_giving_up_that_never_arrives(
    api: Api, proxy: Proxy, admin: Admin, server: PrivateServer, name: str, holder: holdfast.Lease
) -> None:
    """Row 16, danger "waiter gives up": a grant for an attempt that ended is handed on at once to the next in line."""
    lock, other = api.FairLock(proxy.url, name, ttl=TTL), api.FairLock(server.url, name, ttl=TTL)
    refused = proxy.on("leave", "bury", action="refuse", times=2)
    late = proxy.on("bury", action="hold")  # the keeper repeats it
    assert api.call(lock.acquire, timeout=0.2) is False
    assert refused.left == 0
    assert len(admin.places()) == 1, "nobody could tell the server"
    taken = api.start(other.acquire, timeout=5)
    until(lambda: len(admin.places()) == 2)
    told = proxy.on("message", action="pass")
    holder.release()
    assert told.seen.wait(CLAIM_WINDOW_S / 2), "it is granted to the one that is gone"
    late.go()
    assert taken.result(CLAIM_WINDOW_S / 2), "and comes on from there"
    api.call(other.release)
    admin.nothing_left()


def _late(proxy: Proxy, *names: str) -> Rule:
    """The first of these requests is on its way until told to arrive."""
    return proxy.on(*names, action="hold")


@pytest.mark.fault(19)
def test_row_19_late_acquire_after_giving_up_is_refused(api: Api, proxy: Proxy, admin: Admin, name: str) -> None:
    """Row 19, danger "undo overtaking its do": the token was declared dead before its acquire arrived."""
    lock = api.Lock(proxy.url, name, ttl=TTL)
    rules = [_late(proxy, "acquire") for _ in range(3)]
    with pytest.raises(holdfast.ServerError):
        api.call(lock.acquire)
    assert "bury" in proxy.names()
    for rule in rules:
        rule.go()
        assert rule.done.wait(2)
        assert admin.token() is None
    assert api.call(lock.acquire, blocking=False), "under another token it is to be had"
    api.call(lock.release)


@pytest.mark.fault(19)
def test_row_19_late_copy_of_an_acquire_after_its_release_is_refused(api: Api, proxy: Proxy, admin: Admin, name: str) -> None:
    """Row 19, danger "undo overtaking its do": asked twice, held, given back; then the first copy arrives."""
    lock = api.Lock(proxy.url, name, ttl=TTL)
    late = _late(proxy, "acquire")
    assert api.call(lock.acquire)
    api.call(lock.release)
    late.go()
    assert late.done.wait(2)
    assert admin.token() is None, "a lock that nobody holds"
    admin.nothing_left()


@pytest.mark.fault(19)
def test_row_19_late_copy_of_joining_after_the_release_is_refused(
    api: Api, proxy: Proxy, admin: Admin, name: str, holder: holdfast.Lease
) -> None:
    """Row 19: the first copy of the request that joins the queue arrives when the lock was held and given back."""
    lock = api.Lock(proxy.url, name, ttl=TTL)
    late = _late(proxy, "join")
    taken = api.start(lock.acquire, timeout=5)
    until(lambda: len(admin.places()) == 1)
    holder.release()
    assert taken.result(1)
    api.call(lock.release)
    late.go()
    assert late.done.wait(2)
    admin.nothing_left()


@pytest.mark.fault(19)
def test_row_19_late_joining_after_giving_up_is_refused(
    api: Api, proxy: Proxy, admin: Admin, name: str, holder: holdfast.Lease
) -> None:
    """Row 19: time ran out while nobody knew whether the place was taken."""
    lock = api.Lock(proxy.url, name, ttl=TTL)
    rules = [_late(proxy, "join") for _ in range(8)]
    with at_most(2.0), pytest.raises(holdfast.ServerError):
        api.call(lock.acquire, timeout=0.3)
    for rule in rules:
        rule.go()
    until(lambda: all(rule.done.is_set() for rule in rules if rule.seen.is_set()))
    assert admin.places() == []
    holder.release()
    admin.nothing_left()


@pytest.mark.fault(19)
@pytest.mark.parametrize("held", ["release", "renew"])
def test_row_19_late_request_of_an_earlier_holder_changes_nothing(
    api: Api, proxy: Proxy, admin: Admin, server: PrivateServer, name: str, held: str
) -> None:
    """Row 19: by the time it arrives the lock is somebody else's."""
    lock = api.Lock(proxy.url, name, ttl=LONGER, renew=False)
    assert api.call(lock.acquire)
    late = _late(proxy, *NAMES.get(held, (held,)))
    api.call(lock.lease.renew)
    api.call(lock.release)
    other = api.Lock(server.url, name, ttl=5)
    assert api.call(other.acquire)
    token = admin.token()
    late.go()
    assert late.done.wait(2)
    assert admin.token() == token
    assert admin.ttl_ms() > 4000
    api.call(other.release)
    admin.nothing_left()


@pytest.mark.fault(18, 19)
def test_row_19_replayed_requests_change_nothing_under_a_later_holder(
    api: Api, proxy: Proxy, admin: Admin, server: PrivateServer, name: str, holder: holdfast.Lease
) -> None:
    """Rows 18, 19: every request of a whole life (wait, refresh, hold, renew, give back) once more, much later."""
    lock = api.Lock(proxy.url, name, ttl=TTL)
    taken = api.start(lock.acquire, timeout=5)
    until(lambda: "refresh" in proxy.names())
    holder.release()
    assert taken.result(1)
    until(lambda: "renew" in proxy.names())
    api.call(lock.release)
    other = api.Lock(server.url, name, ttl=5)
    assert api.call(other.acquire)
    token = admin.token()
    requests = [request for request in proxy.log if request.name in {"acquire", "refresh", "renew", *NAMES["release"]}]
    assert {request.name for request in requests} - {"bury"} | {"release"} == {"acquire", "refresh", "renew", "release"}
    assert not {request.name for request in requests}.isdisjoint(NAMES["release"])
    for request in requests:
        proxy.replay(request)
    assert admin.token() == token
    assert admin.places() == []
    assert admin.ttl_ms() > 4000
    api.call(other.release)
    admin.nothing_left()


@pytest.mark.fault(10)
def test_row_10_a_reply_that_comes_after_its_time_is_nobodys(
    api: Api, proxy: Proxy, admin: Admin, name: str, holder: holdfast.Lease
) -> None:
    """Row 10: the connection that owes an answer is not used again, so nobody gets somebody else's."""
    taken, free = api.Lock(proxy.url, name, ttl=TTL), api.Lock(proxy.url, f"{name} free", ttl=TTL)
    assert api.call(taken.locked)
    rule = proxy.on("EXISTS", action="stall")
    assert api.call(free.locked) is False, "asked again, by another connection"
    rule.go()
    assert rule.done.wait(1)
    assert [api.call(lock.locked) for lock in (taken, free, taken)] == [True, False, True]
    first, *later = [request.link for request in proxy.log if request.name == "EXISTS"][1:]
    assert first not in later
