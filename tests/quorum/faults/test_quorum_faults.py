"""Locks over five servers, while some of these are stopped, killed, emptied, cut off, full, or not what they should be."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import redis

import holdfast
import holdfast.aio
from holdfast._core.names import lock_keys
from holdfast._core.requests import GiveBack
from holdfast._net.endpoint import Endpoint
from holdfast._runtime.fanout import Fanout, fanouts_of
from holdfast._runtime.process import Process, current
from runtime.faults.test_fork import in_child, run
from support.apis import PATIENCE, Api, at_most, stays, until
from support.peer import Peer
from support.proxy import Action, Proxy
from support.servers import private
from support.witness import lease_record

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

TTL = 20.0
MAX_TTL = 60.0
WITHIN = 1.0
"""Seconds for which a server is waited for. All three are so long that nothing ends because this machine is busy."""

SOON = 1.5
"""A lease that is to be renewed, or to end, while a test waits for that."""

SHORT = {"ttl": 0.6, "max_ttl": 0.8, "answer_within": 0.2}
"""For tests in which the longest lease is waited for."""

MINORITY, MAJORITY = (0, 1), (0, 1, 2)

NAMES = {"vote": ("vote",), "renew": ("renew",), "release": ("release", "bury")}
"""Of the requests. A vote that was not waited for is buried."""


class Five:
    """Five servers, each behind a proxy, and a client of each that looks on."""

    def __init__(self, stack: ExitStack) -> None:
        self.servers = [stack.enter_context(private()) for _ in range(5)]
        self.proxies = [stack.enter_context(Proxy(server)) for server in self.servers]
        self.urls = [proxy.url for proxy in self.proxies]
        self.orders = itertools.cycle(itertools.permutations(self.urls))
        self.clients: list[Any] = [
            stack.enter_context(redis.Redis(unix_socket_path=server.socket, decode_responses=True)) for server in self.servers
        ]

    def declare(self, max_ttl: float = MAX_TTL) -> None:
        """All vote at once."""
        for client in self.clients:
            client.flushall()
        assert set(holdfast.declare_new(self.urls, max_ttl=max_ttl).values()) == {"declared new: ready now"}

    def lock(self, api: Api, name: str, **options: Any) -> Any:
        """As of a process of its own: those who list the servers in another order do not pass the lock on to each other."""
        lock = api.Redlock(next(self.orders), name, **{"ttl": TTL, "max_ttl": MAX_TTL, "answer_within": WITHIN, **options})
        fanouts_of(
            current(), lock._endpoint
        ).first_contact.due = False  # this process has asked each server for its list before
        return lock

    def two(self, name: str) -> tuple[holdfast.Redlock, holdfast.Redlock]:
        """Of one process, which has the same connections for both."""
        urls = next(self.orders)
        options = {"ttl": TTL, "max_ttl": MAX_TTL, "answer_within": WITHIN}
        return holdfast.Redlock(urls, name, **options), holdfast.Redlock(urls, f"{name} besides", **options)  # type: ignore[arg-type]

    def tokens(self, name: str) -> list[str | None]:
        """Return the holder, by server."""
        key = lock_keys(name, "hf:", None)[0].decode()
        return [client.get(key) for client in self.clients]

    def take(self, api: Api, lock: Any) -> None:
        """At the first try, unless this machine is so busy that a majority has no time to answer, or connects anew."""

        def taken() -> Any:
            try:
                return api.call(lock.acquire, timeout=0.5)
            except holdfast.QuorumError:
                return False

        until(taken, 5)

    def take_from_all(self, api: Api, lock: Any, name: str) -> None:
        """Again, while a server had no time to answer."""

        def taken() -> bool:
            self.take(api, lock)
            if None not in self.tokens(name):
                return True
            api.call(lock.release)
            return False

        until(taken)

    def renewed(self, lease: Any) -> None:
        """Returns when it has been renewed."""
        before = lease_record(lease).deadline
        until(lambda: lease_record(lease).deadline > before)

    def usable(self, api: Api, name: str) -> None:
        """As if nothing had been."""
        lock = self.lock(api, name)
        self.take(api, lock)
        api.call(lock.release)

    def give_back(self, api: Api, lock: Any) -> None:
        """If the servers have little time to answer, the undo is sent again, and `nothing_left` waits for it."""
        with suppress(holdfast.QuorumError):
            api.call(lock.release)

    def nothing_left(self, name: str, seconds: float = 10.0) -> None:
        """Nobody has it anywhere, and nobody will. (A vote that was not waited for may be seen just before its undo.)"""

        def nobody() -> bool:
            quiet = time.monotonic() + 0.05
            while time.monotonic() < quiet:
                if self.tokens(name) != [None] * 5:
                    return False
            return True

        until(nobody, seconds)


@pytest.fixture(scope="module")
def servers() -> Iterator[Five]:
    with ExitStack() as stack:
        yield Five(stack)
        holdfast.close()


@pytest.fixture
def five(servers: Five) -> Iterator[Five]:
    """As new, and mended afterwards."""
    servers.declare()
    yield servers
    for server, proxy, client in zip(servers.servers, servers.proxies, servers.clients, strict=True):
        server.resume()
        proxy.thaw()
        proxy.up()
        proxy.delay = None
        proxy._rules.clear()
        client.config_set("maxmemory", 0)


def with_each(which: Iterable[int], do: Callable[[int], object]) -> None:
    for number in which:
        do(number)


# Answers that are lost


@pytest.mark.turns
@pytest.mark.fault(16, 17, 18)
@pytest.mark.parametrize("fault", ["lose", "cut", "refuse", "twice"])
@pytest.mark.parametrize("at", ["vote", "renew", "release"])
def test_answers_of_a_minority_are_lost(five: Five, both_apis: tuple[Api, Api], name: str, at: str, fault: Action) -> None:
    """Nobody notices: neither who takes, nor who holds, nor who gives back. And nothing is left, there neither."""
    for api in both_apis:
        rules = [five.proxies[number].on(*NAMES[at], action=fault) for number in MINORITY]
        lock = five.lock(api, name)
        with at_most(WITHIN):
            assert api.call(lock.acquire)
        fence = lock.lease.fence
        api.call(lock.lease.renew)
        api.call(lock.release)
        assert all(rule.seen.wait(5) for rule in rules)
        five.nothing_left(name)
        assert api.call(lock.acquire)
        assert lock.lease.fence > fence
        api.call(lock.release)
        five.nothing_left(name)


@pytest.mark.fault(16)
@pytest.mark.parametrize("fault", ["lose", "cut", "refuse"])
def test_the_votes_of_a_majority_are_lost(five: Five, api: Api, name: str, fault: Action) -> None:
    """Nobody can know who holds it: an error that says what each of them did, and no vote is left anywhere."""
    rules = [five.proxies[number].on("vote", action=fault, times=100) for number in MAJORITY]
    with at_most(1.6 * WITHIN), pytest.raises(holdfast.QuorumError, match="needs 3 of its 5") as error:
        api.call(five.lock(api, name).acquire)
    assert set(error.value.nodes) == {url.removeprefix("redis://") for url in five.urls}
    assert sorted(error.value.nodes.values())[:2] == ["granted", "granted"] or fault != "lose"
    for rule, proxy in zip(rules, five.proxies, strict=False):
        rule.go()
        proxy.cut()  # or what was lost would be waited for a while
    five.nothing_left(name)
    five.usable(api, name)


@pytest.mark.fault(17)
def test_a_release_that_no_majority_hears(five: Five, api: Api, name: str) -> None:
    """An error, and the lock ends before its lease, as the servers are told again when they can be."""
    lock = five.lock(api, name)
    five.take(api, lock)
    with_each(MAJORITY, lambda number: five.proxies[number].down())
    with at_most(3 * WITHIN), pytest.raises(holdfast.QuorumError):
        api.call(lock.release)
    assert lock.lease is None
    with_each(MAJORITY, lambda number: five.proxies[number].up())
    five.nothing_left(name)


@pytest.mark.fault(17)
def test_a_minority_fails_when_the_others_have_given_it_back(five: Five, api: Api, name: str) -> None:
    """Nobody waits for those, and they are told again all the same, even if nobody uses the servers any more."""
    lock = five.lock(api, name)
    five.take_from_all(api, lock, name)
    with_each(MINORITY, lambda number: five.proxies[number].freeze())
    api.call(lock.release)
    assert five.tokens(name)[2:] == [None] * 3
    assert None not in five.tokens(name)[:2]
    for number in MINORITY:
        five.proxies[number].cut()
        five.proxies[number].thaw()
    five.nothing_left(name)


@pytest.mark.fault(16)
def test_an_undo_that_nobody_waits_for_is_lost(five: Five, api: Api, name: str) -> None:
    """Of votes whose answers were lost, too."""
    votes = [five.proxies[number].on("vote", action="cut", times=100) for number in MAJORITY]
    undos = [five.proxies[number].on(*NAMES["release"], action="hold", times=100) for number in MAJORITY]
    with pytest.raises(holdfast.QuorumError):
        api.call(five.lock(api, name).acquire)
    for number in MAJORITY:
        assert undos[number].seen.wait(5)
        five.proxies[number].cut()
        votes[number].go()
        undos[number].go()
    five.nothing_left(name)


@pytest.mark.fault(16)
def test_an_undo_that_was_to_wait_for_a_connection_when_the_loop_ends(five: Five, name: str) -> None:
    """The keeper does not end with the loop."""
    votes = [five.proxies[number].on("vote", action="stall") for number in MAJORITY]

    async def main() -> None:
        lock = holdfast.aio.Redlock(five.urls, name, ttl=TTL, max_ttl=MAX_TTL, answer_within=PATIENCE)
        taken = asyncio.ensure_future(lock.acquire())
        while not all(vote.done.is_set() for vote in votes):
            await asyncio.sleep(0.001)
        for number in MAJORITY:
            five.proxies[number].freeze()  # the next connections do not come about
            five.proxies[number].cut()
        with pytest.raises(holdfast.QuorumError):
            await taken

    asyncio.run(main())
    for number, vote in zip(MAJORITY, votes, strict=True):
        five.proxies[number].thaw()
        vote.go()
    five.nothing_left(name)


def test_a_finaliser_that_interrupts_the_keepers_look(five: Five, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may use a Redlock over the same servers, and does not wait for the thread that it runs in."""
    lock, other = five.two(name)
    interrupted, answered = threading.Event(), threading.Event()
    see = Fanout._see

    def see_late(fanout: Fanout) -> None:
        if not interrupted.is_set():
            interrupted.set()
            assert other.acquire(timeout=0)
            other.release()
        see(fanout)

    monkeypatch.setattr(Fanout, "_see", see_late)
    five.proxies[0].freeze()
    assert lock.acquire()
    lock.release()
    assert interrupted.wait(5)
    current().keeper.call(answered.set)
    assert answered.wait(5)
    assert other.acquire(timeout=0)
    other.release()


def test_a_signal_handler_that_interrupts_who_asks_the_keeper(five: Five, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread holds the keeper's mutex, for which the keeper waits while it looks after the very connections."""
    lock, other = five.two(name)
    looks, goes_on, used = threading.Event(), threading.Event(), threading.Event()
    insist = Process.send_until_answered

    def insist_late(process: Process, endpoints: tuple[Endpoint, ...], give: GiveBack) -> None:
        looks.set()
        assert goes_on.wait(5)
        insist(process, endpoints, give)

    def handler() -> None:
        with current().keeper.mutex:
            goes_on.set()
            assert other.acquire(timeout=0)
            other.release()
        used.set()

    monkeypatch.setattr(Process, "send_until_answered", insist_late)
    assert lock.acquire()
    until(lambda: five.tokens(name)[0])  # its connection is there to be cut: a majority may have answered before
    five.proxies[0].freeze()
    lock.release()
    five.proxies[0].cut()
    assert looks.wait(5)
    threading.Thread(target=handler, daemon=True).start()
    assert used.wait(5)
    five.proxies[0].thaw()
    five.nothing_left(name)


@pytest.mark.fault(19)
def test_votes_that_arrive_late(five: Five, api: Api, name: str) -> None:
    """Held up on their way until the lock was given back: refused there, or taken back behind it."""
    rules = [five.proxies[number].on("vote", action="hold") for number in MINORITY]
    lock, other = five.lock(api, name), five.lock(api, name, wait=2)
    assert api.call(lock.acquire)
    api.call(lock.release)
    assert api.call(other.acquire)
    for rule in rules:
        rule.go()
    until(lambda: not any(token and token != five.tokens(name)[4] for token in five.tokens(name)))
    api.call(other.release)
    five.nothing_left(name)


# Servers that are silent, or slow


HARMS: dict[str, Callable[[Five, int], object]] = {
    "stopped": lambda five, number: five.servers[number].pause(),
    "half open": lambda five, number: five.proxies[number].freeze(),
    "cut off": lambda five, number: five.proxies[number].down(),
    "slow": lambda five, number: setattr(five.proxies[number], "delay", lambda: 1.2 * WITHIN),
}


@pytest.mark.fault(20, 21, 22, 39)
@pytest.mark.parametrize("harm", HARMS)
def test_a_minority_is_silent(five: Five, both_apis: tuple[Api, Api], name: str, harm: str) -> None:
    """It makes no difference: not for those who come, hold, wait and give back, nor for how long that takes them."""
    for api in both_apis:
        lock, other = five.lock(api, f"{name} {api.name}"), five.lock(api, f"{name} {api.name}")
        five.take(api, lock)
        lease = lock.lease
        api.call(lease.renew, SOON)
        with_each(MINORITY, lambda number: HARMS[harm](five, number))
        five.renewed(lease)
        taken = api.start(other.acquire, timeout=5)
        time.sleep(0.05)
        assert not taken.done()
        fence = lease.fence
        with at_most(WITHIN):
            api.call(lock.release)
        assert taken.result(5)
        assert other.lease.fence > fence
        with at_most(WITHIN):
            api.call(other.release)


@pytest.mark.turns
@pytest.mark.fault(20, 21, 22, 39)
@pytest.mark.parametrize("harm", HARMS)
def test_a_majority_is_silent(five: Five, both_apis: tuple[Api, Api], name: str, harm: str) -> None:
    """A newcomer gets its error within the time limit of one server, a holder at the end of the lease; nothing is left."""
    within = 0.9  # so long that what a busy machine adds is little
    locks = [(api, five.lock(api, f"{name} {api.name}", answer_within=within)) for api in both_apis]
    for api, lock in locks:
        five.take(api, lock)
    leases = [lock.lease for _, lock in locks]
    for (api, _), lease in zip(locks, leases, strict=True):
        api.call(lease.renew, SOON)
    with_each(MAJORITY, lambda number: HARMS[harm](five, number))
    for api in both_apis:
        with at_most(1.9 * within), pytest.raises(holdfast.QuorumError):
            api.call(five.lock(api, f"{name} new", answer_within=within).acquire)
    until(lambda: all(lease.lost.is_set() for lease in leases), SOON + 1)
    for api, lock in locks:
        with pytest.raises(holdfast.LeaseLost):
            api.call(lock.release)
    for server, proxy in zip(five.servers, five.proxies, strict=True):
        server.resume()
        proxy.thaw()
        proxy.up()
        proxy.delay = None
    for lock_name in (f"{name} new", *(lock.name for _, lock in locks)):
        five.nothing_left(lock_name)
    for api in both_apis:
        five.usable(api, f"{name} new")


# Servers that forget


def forget(five: Five, number: int, how: str) -> None:
    if how == "restart":
        five.servers[number].restart()
    else:
        five.clients[number].execute_command(*how.split())


@pytest.mark.turns
@pytest.mark.fault(29, 34)
@pytest.mark.parametrize(
    ("how", "declared"), [("restart", False), ("FLUSHALL", False), ("SWAPDB 0 1", False), ("restart", True)]
)
def test_one_that_voted_forgets(five: Five, api: Api, name: str, how: str, declared: bool) -> None:
    """With two that never heard of the lock, it could give it away a second time. It casts no vote until the longest lease is
    over. (Declared to be new, which is a lie then, it does; the fence tells the two holders apart.)"""
    options = {} if declared else SHORT
    if not declared:
        five.declare(SHORT["max_ttl"])
    lock, other = five.lock(api, name, renew=False, **options), five.lock(api, name, **options)
    with_each((3, 4), lambda number: five.proxies[number].down())
    five.take(api, lock)  # by the votes of 0, 1 and 2
    fence, until_then = lock.lease.fence, time.monotonic() + lock.lease.remaining()
    with_each((3, 4), lambda number: five.proxies[number].up())
    forget(five, 0, how)
    if declared:
        holdfast.declare_new(five.urls, max_ttl=MAX_TTL, force=True)
    taken = early = False
    while not taken and lock.lease.remaining():
        with suppress(holdfast.QuorumError):  # its connections to those that were cut off may be of old
            taken = api.call(other.acquire, blocking=False)
        early = taken and time.monotonic() < until_then
    assert early is declared
    if not taken:
        five.take(api, other)
    assert other.lease.fence > fence
    five.give_back(api, other)
    with pytest.raises(holdfast.LeaseLost):
        api.call(lock.release)
    five.nothing_left(name)


@pytest.mark.fault(29, 34)
def test_one_of_five_forgets_while_all_hold(five: Five, api: Api, name: str) -> None:
    """The other four are a majority: the lease goes on."""
    lock = five.lock(api, name)
    five.take(api, lock)
    api.call(lock.lease.renew, SOON)
    until(lambda: all(vote.believed for vote in lease_record(lock.lease).node_leases.values()))  # it has heard of all of them
    five.servers[0].restart()
    for _ in range(2):
        five.renewed(lock.lease)
    assert five.tokens(name)[0] is None, "what is lost is not taken again"
    assert not lock.lease.lost.is_set()
    api.call(lock.release)
    five.nothing_left(name)


@pytest.mark.turns
@pytest.mark.fault(29, 34)
@pytest.mark.parametrize("how", ["restart", "FLUSHALL"])
def test_a_majority_forgets(five: Five, api: Api, name: str, how: str) -> None:
    """The holder is told by its next renewal. Nobody gets the lock until the longest lease is over; then it is as before."""
    five.declare(SHORT["max_ttl"])
    lock, other = (five.lock(api, name, **{**SHORT, "ttl": SHORT["max_ttl"]}) for _ in range(2))
    five.take(api, lock)
    lease, fence = lock.lease, lock.lease.fence
    with_each(MAJORITY, lambda number: forget(five, number, how))
    forgot = time.monotonic()
    with pytest.raises(holdfast.QuorumError, match="does not vote for another"):
        api.call(other.acquire, blocking=False)
    until(lease.lost.is_set)
    if how == "FLUSHALL":  # which takes no time: the lease would not have been over yet
        assert sum("its key is gone" in vote.lost for vote in lease_record(lease).node_leases.values()) >= len(MAJORITY)
    five.take(api, other)
    assert time.monotonic() > forgot + SHORT["max_ttl"]
    assert other.lease.fence > fence
    with pytest.raises(holdfast.LeaseLost):
        api.call(lock.release)
    # A release is over when a majority has answered: what the others still have of the lost lease goes a moment later.
    until(lambda: set(five.tokens(name)) <= {None, lease_record(other.lease).token})
    assert five.tokens(name).count(lease_record(other.lease).token) >= len(MAJORITY), "the next holder's votes stay"
    five.give_back(api, other)
    five.nothing_left(name)


# Servers that refuse


REFUSALS: dict[str, Callable[[Five, int, str], object]] = {
    "OOM": lambda five, number, _: five.clients[number].config_set("maxmemory", 1),
    "READONLY": lambda five, number, _: five.clients[number].replicaof("127.0.0.1", 1),
    "holds a list": lambda five, number, key: five.clients[number].lpush(key, "data"),
}


@pytest.mark.fault(44, 46, 48, 59)
@pytest.mark.parametrize("why", REFUSALS)
def test_some_refuse(five: Five, api: Api, name: str, why: str) -> None:
    """Full, a replica, or with somebody's data under the lock's key: a minority of these makes no difference; a majority is an
    error that says why. Nothing is left, and the data stays."""
    lock = five.lock(api, name)
    with_each(MINORITY, lambda number: REFUSALS[why](five, number, lock.key))
    five.take(api, lock)
    api.call(lock.lease.renew, SOON)
    five.renewed(lock.lease)
    api.call(lock.release)
    data = why == "holds a list"
    REFUSALS[why](five, 2, lock.key)
    with at_most(3 * WITHIN), pytest.raises((holdfast.QuorumError, holdfast.ConfigError), match=why) as error:
        api.call(lock.acquire)
    assert isinstance(error.value, holdfast.ConfigError) is data
    kinds = ["list" if data else "none"] * 3 + ["none"] * 2
    until(lambda: [client.type(lock.key) for client in five.clients] == kinds)
    for client in five.clients[:3]:
        client.replicaof("NO", "ONE")


@pytest.mark.fault(59)
def test_one_server_is_listed_twice(five: Five, api: Api, name: str) -> None:
    """By the same address, it is refused at once; by another one, when it answers as the same."""
    with pytest.raises(holdfast.ConfigError, match="in the list twice"):
        api.Redlock([*five.urls[:4], five.urls[0]], name)
    with Proxy(five.servers[0]) as again:
        for client in five.clients:
            client.flushall()
        urls = [*five.urls[:2], again.url]
        holdfast.declare_new(urls, max_ttl=MAX_TTL)
        lock = api.Redlock(urls, name, ttl=TTL, max_ttl=MAX_TTL, answer_within=0.5)
        other = five.proxies[1].on("vote", action="stall")  # or it may be decided without one of the two
        with pytest.raises(holdfast.ConfigError, match="the same server"):
            api.call(lock.acquire)
        other.go()
        five.nothing_left(name)
        holdfast.close()


@pytest.mark.turns
@pytest.mark.fault(60, 61)
@pytest.mark.parametrize(
    ("urls", "max_ttl", "parameter", "says"),
    [
        (slice(0, 3), MAX_TTL, "servers", "another list of servers"),
        (slice(0, 5), 2 * MAX_TTL, "max_ttl", "longest lease"),
        (slice(0, 5), TTL, "max_ttl", "longest lease"),
    ],
)
def test_programs_that_do_not_agree(
    five: Five, both_apis: tuple[Api, Api], name: str, urls: slice, max_ttl: float, parameter: str, says: str
) -> None:
    """About the servers, or the longest lease: refused, with what the others have agreed on; nothing is left. Those others are
    not disturbed."""
    for api in both_apis:
        lock = five.lock(api, name)
        five.take(api, lock)
        other = api.Redlock(next(five.orders)[urls], name, ttl=TTL, max_ttl=max_ttl, answer_within=WITHIN)
        with pytest.raises(holdfast.ConfigError, match=says) as error:
            api.call(other.acquire, blocking=False)
        assert error.value.parameter == parameter
        lock.lease.check()
        api.call(lock.release)
        five.nothing_left(name)
    with pytest.raises(holdfast.ConfigError, match="longest lease"):
        both_apis[0].Redlock(five.urls, name, ttl=2, max_ttl=1)


@pytest.mark.fault(60)
@pytest.mark.parametrize("late", [False, True])
def test_lists_with_one_server_in_common(five: Five, both_apis: tuple[Api, Api], name: str, late: bool) -> None:
    """The other two servers of the second list are a majority, and free. All the same the client is refused, also if the common
    server answers last. So the holder of the first list stays alone."""
    for client in five.clients:
        client.flushall()
    options = {"ttl": TTL, "max_ttl": MAX_TTL, "answer_within": 5.0}
    common, *others = five.urls
    holdfast.declare_new([common, *others[:2]], max_ttl=MAX_TTL)
    said = holdfast.declare_new([common, *others[2:]], max_ttl=MAX_TTL)
    assert [text.startswith("declared new") for text in said.values()] == [False, True, True]
    for number, api in enumerate(both_apis):
        lock = api.Redlock([common, *others[:2]], name, **options)
        assert api.call(lock.acquire)
        until(lambda: None not in five.tokens(name)[:3])  # a majority may have decided before the third vote
        holder, *_ = five.tokens(name)
        other = api.Redlock([*others[2:], common][:: 1 - 2 * number], name, **options)
        rule = five.proxies[0].on("vote", action="hold") if late else None
        asked = api.start(other.acquire)
        if rule is not None:
            until(lambda: None not in five.tokens(name))
            rule.go()
        with pytest.raises(holdfast.ConfigError, match="another list of servers") as error:
            asked.result()
        assert error.value.parameter == "servers"
        api.call(lock.lease.verify)
        until(lambda holder=holder: five.tokens(name) == [holder] * 3 + [None] * 2)  # type: ignore[misc]
        api.call(lock.release)
        five.nothing_left(name)


@pytest.mark.fault(60)
def test_a_server_that_missed_a_new_list(five: Five, api: Api, name: str) -> None:
    """It was away when the others were declared with a new list. Back again, it stops all clients until it joins that list."""
    for client in five.clients:
        client.flushall()
    longest = SHORT["max_ttl"]
    holdfast.declare_new(five.urls[:3], max_ttl=longest)
    five.proxies[0].down()
    said = list(holdfast.declare_new(five.urls, max_ttl=longest, force=True).values())
    assert said[1:] == ["declared new: ready now"] * 4 != said[:4]
    five.proxies[0].up()
    lock = api.Redlock(next(five.orders), name, **SHORT)  # as of a process of its own
    with pytest.raises(holdfast.ConfigError, match="another list of servers"):
        api.call(lock.acquire)
    assert list(holdfast.declare_new(five.urls, max_ttl=longest).values())[1:] == ["ready already"] * 4
    five.take(api, lock)
    five.give_back(api, lock)
    until(lambda: set(holdfast.declare_new(five.urls, max_ttl=longest).values()) == {"ready already"})


@pytest.mark.fault(60)
def test_a_silent_server_delays_the_first_lock_of_a_process_only(five: Five, api: Api, name: str) -> None:
    """It may belong to another list, so its answer is awaited for the time of a round, once."""
    urls = next(five.orders)
    rule = five.proxies[five.urls.index(urls[0])].on("vote", action="stall")
    lock = api.Redlock(urls, name, ttl=TTL, max_ttl=MAX_TTL, answer_within=WITHIN)
    started = time.monotonic()
    assert api.call(lock.acquire)
    assert WITHIN <= time.monotonic() - started < 2 * WITHIN
    api.call(lock.release)
    with at_most(WITHIN):
        assert api.call(lock.acquire)
    rule.go()
    five.give_back(api, lock)
    five.nothing_left(name)


# The program


@pytest.mark.fault(8, 9)
@pytest.mark.parametrize("at", ["vote", "release"])
@pytest.mark.parametrize("fault", ["hold", "stall"])
def test_cancelled(five: Five, name: str, at: str, fault: Action) -> None:
    """While all servers are asked, before or after they have done it: no vote is left, now or when it arrives."""

    async def main() -> None:
        lock = holdfast.aio.Redlock(five.urls, name, ttl=TTL, max_ttl=MAX_TTL, answer_within=WITHIN)
        if at == "release":
            assert await lock.acquire()
        rules = [proxy.on(*NAMES[at], action=fault) for proxy in five.proxies]
        task = asyncio.create_task(lock.acquire() if at == "vote" else lock.release())
        await asyncio.to_thread(lambda: [rule.seen.wait(5) for rule in rules])
        task.cancel()
        await asyncio.sleep(0)
        for rule in rules:
            rule.go()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(five.nothing_left, name)
        assert await lock.acquire(timeout=5)
        await lock.release()

    asyncio.run(main())
    five.nothing_left(name)


@pytest.mark.fault(7)
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child(five: Five, api: Api, name: str) -> None:
    """Holds nothing, gives nothing back, and may ask for itself; its parent's lease goes on."""
    lock = five.lock(api, name)

    def there_and_back() -> Any:
        with lock:
            return True

    async def there_and_back_again() -> Any:
        async with lock:
            return True

    five.take(api, lock)
    lease = lock.lease
    seen = in_child(lambda: [run(api, lock.release), lease.remaining(), lease.lost.is_set()])
    assert seen == ["NotHeld", 0.0, True]
    api.call(lease.renew, SOON)
    five.renewed(lease)
    api.call(lock.release)
    five.nothing_left(name)
    assert in_child(lambda: run(api, there_and_back_again if api.name == "asyncio" else there_and_back)) is True
    five.nothing_left(name)


@pytest.mark.fault(1, 2)
def test_a_holder_is_stopped_or_killed(five: Five, both_apis: tuple[Api, Api], name: str) -> None:
    """The next client has the lock when the lease is over.

    The stopped holder notices when it resumes, and its writes are refused.
    """
    for api, kill in zip(both_apis, (True, False), strict=True):
        with Peer(api.name, " ".join(five.urls), name, ttl=1, max_ttl=MAX_TTL) as peer:
            assert peer.ask("lock.acquire()")
            fence = peer.ask("lock.lease.fence")
            lock = five.lock(api, name)
            taken = api.start(lock.acquire, timeout=5)
            if kill:
                peer.kill()
            else:
                peer.stop()
            assert taken.result(1 + 1)
            assert lock.lease.fence > fence
            if not kill:
                peer.tell("lock.lease.lost.is_set(), lock.lease.remaining()")
                peer.go_on()
                assert peer.answer() == (True, 0.0)
                assert peer.ask("lock.release()") == "LeaseLost"
                until(lambda lock=lock: set(five.tokens(name)) <= {None, lease_record(lock.lease).token})  # type: ignore[misc]
            api.call(lock.release)
            five.nothing_left(name)


@pytest.mark.fault(2)
def test_an_answer_that_has_come_counts_however_late_it_is_read(five: Five, api: Api, name: str) -> None:
    """A process that was held up while all have answered has no reason to say that nobody did."""
    with Peer(api.name, " ".join(five.urls), name, ttl=TTL, max_ttl=MAX_TTL, answer_within=WITHIN) as peer:
        assert peer.ask("lock.acquire()") is True
        assert peer.ask("lock.release()") is None
        rules = [proxy.on("vote", action="stall") for proxy in five.proxies]
        peer.tell("lock.acquire()")
        assert all(rule.done.wait(5) for rule in rules)
        peer.stop()
        for rule in rules:
            rule.go()
        time.sleep(1.1 * WITHIN)  # longer than it means to wait
        peer.go_on()
        assert peer.answer() is True
        assert peer.ask("lock.release()") is None
    five.nothing_left(name)


@pytest.mark.fault(29)
def test_all_connections_are_cut_while_nobody_asks(five: Five, api: Api, name: str) -> None:
    """By a time-out for idle clients, or by restarts one after the other: the next one who asks need not know."""
    lock = five.lock(api, name)
    assert api.call(lock.acquire)
    api.call(lock.release)
    five.nothing_left(name)
    links = [link for proxy in five.proxies for link in proxy._links]  # the keeper may open new ones meanwhile
    for client in five.clients:
        client.client_kill_filter(skipme=True, _type="normal")
        client.client_kill_filter(skipme=True, _type="pubsub")
    until(lambda: not any(thread.is_alive() for link in links for thread in link.threads))
    assert api.call(lock.acquire, blocking=False)
    api.call(lock.release)
    five.nothing_left(name)


@pytest.mark.turns
@pytest.mark.fault(22)
def test_busy_and_a_minority_is_away(five: Five, api: Api, name: str) -> None:
    """Busy is what it is, whichever of the servers answer first: who waits waits, who does not is told False."""
    lock, other = five.lock(api, name), five.lock(api, name)
    five.take(api, lock)
    api.call(lock.lease.renew, SOON)
    until(lambda: all(client.pttl(lock.key) <= 1000 * SOON for client in five.clients))
    with_each(MINORITY, lambda number: five.proxies[number].down())
    for _ in range(20):
        assert api.call(other.acquire, blocking=False) is False
    taken = api.start(other.acquire, timeout=5)
    stays(lambda: not taken.done(), 0.1)
    api.call(lock.release)
    assert taken.result(5)
    api.call(other.release)
    five.nothing_left(name)  # where nobody can be told, by the end of the lease
