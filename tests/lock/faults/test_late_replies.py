"""Replies that are late and come all the same: a lease counts from its request, and is never believed beyond its key.

The comparison is with PTTL, read over another connection: of the key, or of the keys of a majority of the servers.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast._clock import clock
from holdfast._net.aio_connection import AioConnection
from holdfast._runtime.fanout import RECENT_S, fanouts_of
from holdfast._runtime.process import current
from net.faults.test_tls import CA, good
from support.apis import Admin, Aio, Api, Sync, stays, until
from support.proxy import Action, Proxy, Rule
from support.servers import PrivateServer, private
from support.terminator import Terminator

TTL, LATE = 30, 400
"""Seconds of a lease, and milliseconds for which a reply is held back: more than what is taken off for the drift of clocks."""

SHORT, LATE_FOR_SHORT = 6, 300
"""The same, where the keeper's renewal is waited for."""

WAYS = ["main", "pooled", "shared", "asyncio"]
"""Over which connection is asked: that of the main thread, of another thread, of many threads, of an event loop."""


class Way:
    """One of these."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.api: Api = Aio() if name == "asyncio" else Sync()

    def lock(self, url: str, name: str, **options: Any) -> Any:
        """A lock that is asked for in this way."""
        lock = self.api.Lock(url, name, **options)
        if self.name == "shared":
            pool: Any = current().pool(lock._endpoint)
            pool.share()
        return lock

    def call(self, what: Callable[..., Any], *args: Any) -> Any:
        return self.api.call(what, *args) if self.name == "main" else self.api.start(what, *args).result(10)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    """Each of the ways."""
    way = Way(request.param)
    yield way
    way.api.close()


class Encrypted:
    """Puts TLS in front of proxies, or nothing."""

    def __init__(self, stack: ExitStack, ca: Path | None) -> None:
        self._stack, self._ca = stack, ca

    def __call__(self, proxy: Proxy) -> str:
        """The URL under which clients find the server behind it."""
        if self._ca is None:
            return proxy.url
        terminator = self._stack.enter_context(Terminator(good(), ("127.0.0.1", proxy.port)))
        return f"rediss://localhost:{terminator.port}?ssl_ca_certs={self._ca}"


@pytest.fixture(params=["plain", "tls"])
def url_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Encrypted]:
    """Without TLS, and with it."""
    ca = tmp_path / "ca.pem" if request.param == "tls" else None
    if ca is not None:
        CA.cert_pem.write_to_path(ca)
    with ExitStack() as stack:
        yield Encrypted(stack, ca)
        holdfast.close()


def ends_at(lease: Any) -> float:
    """When the lease ends, as its holder believes; not later, however slow this machine is."""
    return time.monotonic() + float(lease.remaining())


def not_believed_too_long(lease: Any, admins: Sequence[Admin]) -> bool:
    """Compare the end of the lease with the end of its keys; the latter is not read too early, however slow this machine is."""
    believed = ends_at(lease)
    left = sorted(admin.ttl_ms() / 1000 for admin in admins)[len(admins) // 2]
    assert believed <= time.monotonic() + left + 0.001
    return True


def late(rules: Sequence[Rule], admins: Sequence[Admin], ttl: float, by: int) -> None:
    """Let go of the replies of a majority when so many milliseconds of the lease are over."""
    until(lambda: sum(rule.done.is_set() for rule in rules) > len(rules) // 2)
    until(lambda: max(admin.ttl_ms() for admin in admins) < 1000 * ttl - by)
    for rule in rules:
        rule.go()


def used_up(lock: Any) -> None:
    """Its process has passed the lock on as often as it has fences, and at once: the next one here asks for more."""
    local_queue = lock._local_queue
    until(lambda: local_queue.queue and local_queue.reachable)
    held_lease = local_queue.held_lease
    held_lease.holder_fence, held_lease.since = held_lease.last_fence, local_queue.clock()


@pytest.mark.turns
@pytest.mark.fault(20)
def test_late_replies_to_the_driver(way: Way, url_of: Encrypted, proxy: Proxy, admin: Admin, name: str) -> None:
    """The connection is opened, used again, and opened anew after it was cut. In the end the first reply is lost, and that to
    the same question, asked again, is late."""
    lock = way.lock(url_of(proxy), name, ttl=TTL)
    for what, before in (("acquire", ""), ("renew", ""), ("acquire", "cut"), ("acquire", "lost")):
        if what == "acquire" and lock.lease is not None:
            way.call(lock.release)
        if before == "cut":
            proxy.cut()
        if before == "lost":
            proxy.on(what, action="cut")
        letting_go = Sync().start(late, [proxy.on(what, action="stall")], [admin], TTL, LATE)
        way.call(lock.acquire if what == "acquire" else lock.lease.renew)
        letting_go.result(1)
        not_believed_too_long(lock.lease, [admin])
    way.call(lock.release)


@pytest.mark.fault(20)
def test_late_replies_to_the_next_one_of_a_process(way: Way, url_of: Encrypted, proxy: Proxy, admin: Admin, name: str) -> None:
    """A waiter to which the lock is handed on in its process asks for more fences, under the token that has the lock."""
    url = url_of(proxy)
    first, second = (way.lock(url, name, ttl=TTL) for _ in range(2))
    assert way.call(first.acquire)
    asked = way.api.start(second.acquire)
    used_up(first)
    rule = proxy.on("acquire", action="stall")
    time_left = ends_at(first.lease)
    way.call(first.release)
    late([rule], [admin], TTL, LATE)
    assert asked.result(10)
    assert ends_at(second.lease) > time_left
    not_believed_too_long(second.lease, [admin])
    way.call(second.release)


@pytest.mark.fault(20)
def test_late_replies_to_the_keeper(any_api: Api, url_of: Encrypted, proxy: Proxy, admin: Admin, name: str) -> None:
    """It renews over its first connection, and over the one that it opens after that was cut."""
    lock = any_api.Lock(url_of(proxy), name, ttl=SHORT)
    assert any_api.call(lock.acquire)
    lease = lock.lease
    for again in (False, True):
        if again:
            proxy.cut()
        before = ends_at(lease)
        late([proxy.on("renew", action="stall")], [admin], SHORT, LATE_FOR_SHORT)
        until(lambda before=before: ends_at(lease) > before + 0.5)  # type: ignore[misc]
        not_believed_too_long(lease, [admin])
    any_api.call(lock.release)


class Three:
    """Three servers, each behind a proxy, and a client of each that looks on."""

    def __init__(self, servers: Sequence[PrivateServer], stack: ExitStack, url_of: Encrypted, name: str) -> None:
        self.proxies = [stack.enter_context(Proxy(server)) for server in servers]
        self.admins = [Admin(server, name) for server in servers]
        for admin in self.admins:
            stack.callback(admin.close)
        self.urls = [url_of(proxy) for proxy in self.proxies]

    def on(self, what: str, action: Action) -> list[Rule]:
        return [proxy.on(what, action=action) for proxy in self.proxies]

    def late(self, rules: list[Rule], ttl: float, by: int) -> Any:
        """As `late`, while somebody else waits."""
        return Sync().start(late, rules, self.admins, ttl, by)


@pytest.fixture(scope="module")
def three_servers() -> Iterator[list[PrivateServer]]:
    """Three that were declared new."""
    with ExitStack() as stack:
        servers = [stack.enter_context(private()) for _ in range(3)]
        yield servers


@pytest.fixture
def three(three_servers: list[PrivateServer], url_of: Encrypted, name: str) -> Iterator[Three]:
    """These three, behind proxies."""
    with ExitStack() as stack:
        three = Three(three_servers, stack, url_of, name)
        for admin in three.admins:
            admin.redis.flushall()
        holdfast.declare_new(three.urls)
        yield three
        holdfast.close()


def cut(three: Three, lock: Any) -> None:
    """Cut the connections, and wait until both ends know it, so that nobody asks in vain."""
    for proxy in three.proxies:
        proxy.cut()
    fleets = fanouts_of(current(), lock._endpoint)._idle
    idle = [link.sock for fanout in fleets for link in fanout._links]
    until(lambda: len(select.select(idle, [], [], 0)[0]) == len(idle))
    until(lambda: all(clock() > fanout._looked_at + RECENT_S for fanout in fleets))
    streams: list[Any] = [driver.stream for drivers in current().drivers.values() for driver in drivers.values()]
    until(lambda: all(stream._protocol is None for stream in streams if isinstance(stream, AioConnection)))


def disagree(three: Three) -> None:
    """Each server has issued other fences: the highest has to be confirmed."""
    for number, admin in enumerate(three.admins, 1):
        admin.redis.hincrby(admin.state, "fence", 1_000_000_000 * number)


@pytest.mark.turns
@pytest.mark.fault(20)
def test_late_votes(api: Api, three: Three, name: str) -> None:
    """For a new connection, an open one, and one that was cut; of a renewal, and of the confirmation of a fence."""
    lock = api.Redlock(three.urls, name, ttl=TTL, answer_within=2.0)
    for what, before in (("vote", ""), ("renew", ""), ("vote", "cut"), ("confirm", "fences")):
        if what != "renew" and lock.lease is not None:
            api.call(lock.release)
        if before == "cut":
            cut(three, lock)
        if before == "fences":
            disagree(three)
        letting_go = three.late(three.on(what, "stall"), TTL, LATE)
        api.start(lock.lease.renew if what == "renew" else lock.acquire).result(10)
        letting_go.result(1)
        stays(lambda: not_believed_too_long(lock.lease, three.admins), 0.05)
    api.call(lock.release)


@pytest.mark.fault(20)
def test_late_votes_for_the_next_one_of_a_process(api: Api, three: Three, name: str) -> None:
    """As on one server: more fences for the token that has the lock."""
    first, second = (api.Redlock(three.urls, name, ttl=TTL, answer_within=2.0) for _ in range(2))
    assert api.start(first.acquire).result(10)
    asked = api.start(second.acquire)
    used_up(first)
    before = ends_at(first.lease)
    letting_go = three.late(three.on("vote", "stall"), TTL, LATE)
    api.call(first.release)
    assert asked.result(10)
    letting_go.result(1)
    assert ends_at(second.lease) > before
    stays(lambda: not_believed_too_long(second.lease, three.admins), 0.05)
    api.call(second.release)


@pytest.mark.turns
@pytest.mark.fault(20)
def test_late_renewals_of_votes(any_api: Api, three: Three, name: str) -> None:
    """By the keeper, over its first connections, and over others."""
    lock = any_api.Redlock(three.urls, name, ttl=SHORT, answer_within=1.0)
    assert any_api.call(lock.acquire)
    lease = lock.lease
    for again in (False, True):
        for proxy in three.proxies if again else ():
            proxy.cut()
        before = ends_at(lease)
        late(three.on("renew", "stall"), three.admins, SHORT, LATE_FOR_SHORT)
        until(lambda before=before: ends_at(lease) > before + 0.5)  # type: ignore[misc]
        stays(lambda: not_believed_too_long(lease, three.admins), 0.05)
    any_api.call(lock.release)
