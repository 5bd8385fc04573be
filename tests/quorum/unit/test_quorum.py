"""A lock on several servers that misbehave: votes, one fence, waiting, votes taken back. The scripts are the real ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.acquire import acquire as acquired
from holdfast._core.lock.local_queue import LocalQueue
from holdfast._core.lock.records import Grant
from holdfast._core.lock.renewal import renewal
from holdfast._core.lock.replies import Busy
from holdfast._core.lock.spec import margin
from holdfast._core.quorum import acquire
from holdfast._core.quorum.lease import QuorumLease
from holdfast._core.quorum.votes import FirstContact, QuorumAttempt, Yes, _read_vote
from holdfast._core.requests import (
    Answer,
    AwaitNotice,
    Command,
    ConfigMismatch,
    NotSent,
    Poll,
    Refused,
    RunScript,
    TooFew,
    Unknown,
)
from quorum.unit.quorum_servers import LOCK, LONGEST, ME, OTHER, STATE, Fate, Lost, Servers, Slow
from support.driver import Slot
from support.node import Node

TTL = 30.0
LENGTH = TTL - margin(TTL)
AWAY = NotSent("no connection")


def of(
    fate: Callable[[], Fate] | Fate, *servers: int, kinds: str = "vote confirm release_vote renew"
) -> Callable[[str, int, int], Fate]:
    """This becomes of all requests to these servers."""

    def fates(kind: str, _nth: int, server: int) -> Fate:
        if server not in servers or kind not in kinds.split():
            return None
        return fate() if callable(fate) else fate

    return fates


def polled(servers: Servers, kind: str) -> list[dict[int, str]]:
    """The second argument of each request of a kind, by server, in the order of the rounds."""
    found = []
    for poll in servers.trace:
        if isinstance(poll, Poll):
            calls = {n: c for n, c in enumerate(poll.calls) if isinstance(c, RunScript) and c.script.name == f"quorum/{kind}"}
            found += [{n: str(call.args[1]) for n, call in calls.items()}] if calls else []
    return found


# Votes


@pytest.mark.parametrize("count", [3, 5, 7])
def test_a_majority_of_yes_ends_the_round(count: int) -> None:
    slow = range(count // 2 + 1, count)
    servers = Servers(count, fates=of(Slow(), *slow, kinds="vote"))
    quorum_lease = servers.taken()
    assert servers.now == pytest.approx(1000.001), "nobody waited for the slow"
    assert servers.holders() == [quorum_lease.token] * count, "and they were asked all the same"
    assert quorum_lease.deadline == pytest.approx(1000.0 + LENGTH)
    assert [node_lease.believed for node_lease in quorum_lease.node_leases.values()] == [n not in slow for n in range(count)]
    assert servers.release(quorum_lease)
    assert polled(servers, "release_vote") == [{n: "bury" if n in slow else "release" for n in range(count)}]
    assert servers.clean()


def test_what_a_vote_says() -> None:
    assert _read_vote([b"run", 1, 5, 7, 9, 1]) == Yes(b"run", 5, 7, 9, others=True)


def test_a_majority_of_no_ends_the_round() -> None:
    servers = Servers(5, fates=of(Slow(), 3, 4))
    for number in range(3):
        servers.take(number)
    busy = servers.acquire()
    assert isinstance(busy, Busy)
    assert (busy.process, busy.remaining) == ("bbbbbbbbbbbb", 30.0)
    assert servers.now < 1000.01, "nobody waited for the slow"
    assert polled(servers, "release_vote") == [{3: "bury", 4: "bury"}], "who has said no has nothing to take back"
    assert servers.clean()


@pytest.mark.parametrize("away", [0, 1, 2])
@pytest.mark.parametrize("fate", [AWAY, Refused("OOM no"), Refused("WRONGTYPE x"), Unknown("cut")], ids=repr)
def test_a_busy_lock_is_busy_though_a_server_is_away(away: int, fate: Fate) -> None:
    """That it cannot be had is clear at the second answer. Whether it is busy, or too few servers are there, is not."""
    servers = Servers(3, fates=of(fate, away))
    for number in {0, 1, 2} - {away}:
        servers.take(number)
    assert isinstance(servers.acquire(), Busy)
    servers.given_back.clear()
    grant = servers.acquire(wait=40.0)
    assert isinstance(grant, Grant)
    assert 1029.9 < servers.now < 1031.5, "as soon as the holder's lease has ended"


def test_who_was_not_asked_or_has_refused_has_no_vote() -> None:
    servers = Servers(5, fates=lambda _kind, _nth, server: (AWAY, Refused("OOM no"), None, None, None)[server])
    assert list(servers.taken().node_leases) == [2, 3, 4]


def test_late_votes_count_from_their_first_renewal() -> None:
    servers = Servers(5, fates=of(Slow(), 3, 4, kinds="vote"))
    quorum_lease = servers.taken()
    books = servers.renewing(quorum_lease)
    assert servers.kept_for(1.0, books) == []
    assert all(node_lease.believed for node_lease in quorum_lease.node_leases.values()), (
        "they are asked soon: then the lease bears the loss of two"
    )
    for number in (0, 1):
        servers.forget(number)
    assert servers.kept_for(60.0, books) == []
    assert quorum_lease.remaining(servers.now) > 15
    servers.forget(2)
    assert servers.kept_for(12.0, books) == [quorum_lease]
    assert "s0: its key is gone" in quorum_lease.lost
    assert quorum_lease.remaining(servers.now) == 0.0


def test_the_answer_to_an_earlier_renewal_makes_no_late_vote_believed() -> None:
    """A renewal for less was made after it, and may be carried out last."""
    servers = Servers(3, fates=of(Slow(), 2, kinds="vote"))
    quorum_lease = servers.taken()
    node_lease = quorum_lease.node_leases[2]
    earlier = quorum_lease.note_request(servers.now, TTL)
    later = quorum_lease.note_request(servers.now, 5.0)
    node_lease.renewed(earlier, servers.now, TTL)
    assert not node_lease.believed
    node_lease.renewed(later, servers.now, 5.0)
    assert node_lease.believed


def test_a_vote_that_never_came_is_no_vote() -> None:
    servers = Servers(3, fates=of(Lost(), 2, kinds="vote"))
    quorum_lease = servers.taken()
    books = servers.renewing(quorum_lease)
    assert servers.kept_for(60.0, books) == []
    assert quorum_lease.node_leases[2].lost
    servers.late_ones_arrive()
    assert servers.holders()[2] == quorum_lease.token
    assert servers.release(quorum_lease)
    assert servers.clean(), "not even what came after all"


# The fence


def test_one_fence_at_once_when_the_clocks_agree_or_are_known() -> None:
    servers = Servers(3, ahead={1: 700, 2: 300})
    attempt = servers.attempt()
    first = servers.taken(attempt)
    assert len(polled(servers, "confirm")) == 1, "the fences differ: two confirm the higher one"
    assert [servers.fence(n) for n in (0, 1)] == [servers.fence(1)] * 2
    assert servers.release(first)
    again = servers.attempt()
    again.clock_estimate = attempt.clock_estimate
    grant = servers.acquire(0.0, again)
    assert isinstance(grant, Grant)
    assert len(polled(servers, "confirm")) == 1, "all were asked for the same fence"
    assert [servers.fence(n) for n in range(3)] == [grant.last] * 3


def test_what_was_seen_of_fences_is_asked_for_next_time() -> None:
    """Also where it is ahead of all clocks: then the servers answer with one number in the next round."""
    servers = Servers(3)
    servers.node(1).execute("HSET", STATE, "fence", ahead := 1_001_500_000)
    for number in (0, 1):
        servers.take(number, seconds=0.5)
    grant = servers.acquire(5.0)
    assert isinstance(grant, Grant)
    assert grant.fence > ahead
    assert polled(servers, "confirm") == []


def test_fences_rise_whoever_votes() -> None:
    servers = Servers(5, ahead={0: 900_000, 3: -800_000, 4: 2_500_000})
    fences = []
    for away in ((0, 1), (2, 4), (3, 4), (1, 2), (0, 3)):
        servers.fates = of(AWAY, *away)
        grant = servers.acquire()
        assert isinstance(grant, Grant)
        assert isinstance(grant.held_lease, QuorumLease)
        fences.append(grant.fence)
        servers.now += 0.01
        servers.fates = lambda *_: None
        assert servers.release(grant.held_lease)
    assert fences == sorted(set(fences))


def test_a_fence_that_no_majority_confirms_is_none() -> None:
    servers = Servers(3, ahead={1: 700})

    def fates(kind: str, nth: int, server: int) -> Fate:
        if (kind, nth, server) == ("confirm", 0, 0):
            servers.node(0).execute("DEL", LOCK)
            servers.take(0)
        return Slow() if server == 2 and nth == 0 else None

    servers.fates = fates
    assert isinstance(servers.acquire(), Busy)
    assert servers.clean()
    assert servers.holders()[0] == OTHER


@pytest.mark.parametrize("confirm", [2, 3])
def test_a_majority_of_all_servers_confirms_the_fence(confirm: int) -> None:
    """Two of the three that have granted it are no majority of five."""
    servers = Servers(5, ahead={1: 700})

    def fates(kind: str, _nth: int, server: int) -> Fate:
        return Lost() if server > 2 or (kind == "confirm" and server >= confirm) else None

    servers.fates = fates
    assert isinstance(servers.acquire(), Grant if confirm == 3 else Busy)


@pytest.mark.parametrize("kind", ["vote", "confirm"])
def test_what_comes_too_late_is_given_back(kind: str) -> None:
    """The whole process was stopped meanwhile, for longer than the lease."""
    servers = Servers(3, ahead={1: 700})

    def fates(what: str, _nth: int, server: int) -> Fate:
        if (what, server) == (kind, 1):
            servers.now += TTL
        return None

    servers.fates = fates
    assert isinstance(servers.acquire(), Busy)
    assert servers.clean()


def test_the_lease_ends_with_the_last_vote_of_a_majority() -> None:
    servers = Servers(5, resent={0: 0.1, 1: 0.05, 2: 0.07}, fates=of(0.15, 0, 1, 2))
    quorum_lease = servers.taken()
    assert quorum_lease.deadline == pytest.approx(1000.0 + LENGTH), "3 and 4 were quicker; of them all, three last so long"
    servers = Servers(3, resent={0: 0.1, 1: 0.05})
    assert servers.taken().deadline == pytest.approx(1000.05 + LENGTH)


@pytest.mark.parametrize(("late", "granted"), [(-0.2, True), (0.0, False), (0.2, False)])
def test_a_lease_that_is_over_before_its_fence_is_confirmed_is_no_lock(late: float, granted: bool) -> None:
    """One server was sent its request later than the others. Its longer grant makes no majority."""
    servers = Servers(3, ahead={1: 700}, resent={0: 0.5})
    attempt = servers.attempt(renew=False)

    def fates(kind: str, _nth: int, server: int) -> Fate:
        if (kind, server) == ("confirm", 1):
            servers.now = 1000.0 + LENGTH + late
        return None

    servers.fates = fates
    assert isinstance(servers.acquire(0.0, attempt), Grant) is granted


def test_max_hold_bounds_the_lease() -> None:
    servers = Servers(3)
    quorum_lease = servers.taken(servers.attempt(max_hold=2.0))
    books = servers.renewing(quorum_lease)
    assert servers.kept_for(3.0, books) == [quorum_lease]
    assert "max_hold has passed" in quorum_lease.lost


# Undo


def test_what_is_taken_back_and_how() -> None:
    """A server that granted is told to forget it, one that has not answered to refuse it, and one that has seen nothing is left
    alone."""
    fate: dict[int, Fate] = {1: Lost(), 2: AWAY, 3: Unknown("cut")}
    servers = Servers(5, fates=lambda kind, _nth, server: fate.get(server) if kind == "vote" else None)
    servers.take(4)
    with pytest.raises(TooFew):
        servers.acquire()
    assert polled(servers, "release_vote") == [{0: "leave", 1: "bury", 3: "bury"}]
    servers.late_ones_arrive()
    assert servers.clean()


def test_an_undo_without_answer_is_sent_again() -> None:
    fates: dict[tuple[str, int], Fate] = {("release_vote", 0): Unknown("cut"), ("vote", 1): AWAY, ("vote", 2): AWAY}
    servers = Servers(3, fates=lambda kind, _nth, server: fates.get((kind, server)))
    with pytest.raises(TooFew):
        servers.acquire()
    assert not servers.clean()
    servers.keeper_insists()
    servers.late_ones_arrive()
    assert servers.clean()


def test_the_undo_waits_for_those_who_have_answered() -> None:
    servers = Servers(5, fates=of(Slow(), 2, 3, 4))
    with pytest.raises(TooFew):
        servers.acquire()
    assert 1000.2 < servers.now < 1000.21, "once for the limit of the vote, and for those who are quick"


def test_the_undo_waits_for_nobody_who_says_nothing() -> None:
    servers = Servers(3, fates=of(Slow(), 0, 1, 2))
    with pytest.raises(TooFew):
        servers.acquire()
    assert servers.now == pytest.approx(1000.2), "they were waited for once"


# Servers that do not go together


def test_the_same_server_twice() -> None:
    servers = Servers(3)
    servers.nodes[1] = servers.nodes[0]
    with pytest.raises(ConfigMismatch, match=r"s0 and s1 are the same server .*twice") as caught:
        servers.acquire()
    assert caught.value.parameter == "servers"
    assert servers.clean()


@pytest.mark.parametrize(
    ("field", "value", "parameter", "said"),
    [("lease", "50000", "max_ttl", "its longest lease (max_ttl) is 50 s"), ("servers", "abc", "servers", "another list")],
)
def test_others_have_agreed_on_something_else(field: str, value: str, parameter: str, said: str) -> None:
    servers = Servers(3)
    for number in (0, 2):
        servers.node(number).execute("HSET", "hf:marker", field, value)
    with pytest.raises(ConfigMismatch) as caught:
        servers.acquire(wait=None)
    assert caught.value.parameter == parameter
    assert said in str(caught.value)
    assert servers.clean()


def test_one_server_with_another_longest_lease_only_loses_its_vote() -> None:
    servers = Servers(3)
    servers.node(0).execute("HSET", "hf:marker", "lease", "50000")
    assert list(servers.taken().node_leases) == [1, 2]


def test_one_server_of_another_list_is_enough() -> None:
    """With the other two, this client has a majority. A client of that list has one without them, if it has another server."""
    servers = Servers(3)
    servers.node(0).execute("HSET", "hf:marker", "servers", "abc")
    with pytest.raises(ConfigMismatch, match="s0: it belongs to another list of servers") as caught:
        servers.acquire(wait=None)
    assert caught.value.parameter == "servers"
    servers.keeper_insists()
    assert servers.clean()


@pytest.mark.parametrize("other", [True, False])
def test_a_slow_server_is_asked_for_its_list_once(other: bool) -> None:
    """By a process. Its vote comes after the majority has decided, and would not be read."""
    servers = Servers(3, fates=of(0.1, 2, kinds="vote"))
    if other:
        servers.node(2).execute("HSET", "hf:marker", "servers", "abc")
    contact = FirstContact(due=True)

    def attempt() -> QuorumAttempt:
        made = servers.attempt()
        made.first_contact = contact
        return made

    if other:
        for _ in range(2):
            with pytest.raises(ConfigMismatch, match="s2: it belongs to another list of servers"):
                servers.acquire(attempt=attempt())
        servers.keeper_insists()
        assert servers.clean()
        return
    for asked in (1, 0):
        del servers.trace[:]
        assert servers.release(servers.taken(attempt()))
        commands = [
            call for poll in servers.trace if isinstance(poll, Poll) for call in poll.calls if isinstance(call, Command)
        ]
        assert len(commands) == asked


def test_a_server_that_says_nothing_is_awaited_once() -> None:
    servers = Servers(3, fates=lambda _kind, _nth, server: Slow() if server == 2 else None)
    attempt = servers.attempt()
    attempt.first_contact = FirstContact(due=True)
    quorum_lease = servers.taken(attempt)
    assert servers.now == pytest.approx(1000.201), "a round, and the time of another one"
    assert servers.release(quorum_lease)
    servers.taken(attempt)
    assert servers.now < 1000.21


def test_data_of_somebody_else() -> None:
    servers = Servers(3)
    servers.node(0).execute("LPUSH", LOCK, "x")
    quorum_lease = servers.taken()
    assert servers.release(quorum_lease)
    for number, key in ((1, LOCK), (2, STATE)):
        servers.node(number).execute("DEL", key)
        servers.node(number).execute("LPUSH", key, "x")
    with pytest.raises(KeyConflict, match="holds a list"):
        servers.acquire(wait=None)
    assert servers.clean()


# Servers that forget, or are away


def test_a_server_that_forgot_does_not_vote() -> None:
    servers = Servers(3)
    servers.forget(1)
    quorum_lease = servers.taken()
    assert list(quorum_lease.node_leases) == [0, 2]
    assert servers.release(quorum_lease)
    servers.forget(2)
    with pytest.raises(TooFew) as caught:
        servers.acquire(wait=30.0)
    assert servers.now < 1000.01, "they have said how long it takes: too long"
    assert "does not vote for another 60.6 s" in caught.value.nodes["s1"]
    assert "declare new servers once, by holdfast.declare_new(servers) or `holdfast nodes init`" in caught.value.nodes["s1"]
    assert "nodes init" in caught.value.nodes["s2"]
    assert isinstance(servers.acquire(wait=62.0), Grant)
    assert servers.now == pytest.approx(1000.0 + 1.01 * LONGEST, abs=0.1)


def test_too_few_at_first_contact_are_an_error_at_once() -> None:
    servers = Servers(5, fates=of(AWAY, 2, 3, 4))
    with pytest.raises(TooFew) as caught:
        servers.acquire(wait=None)
    assert servers.now < 1000.01
    said = ["granted", "granted", "no connection", "no connection", "no connection"]
    assert caught.value.nodes == {f"s{number}": text for number, text in enumerate(said)}
    assert servers.clean()


@pytest.mark.parametrize("wait", [None, 20.0])
def test_too_few_later_are_ridden_out(wait: float | None) -> None:
    servers = Servers(3)
    for number in range(3):
        servers.take(number, seconds=3.0)
    gone = of(AWAY, 0, 1)
    servers.fates = lambda kind, nth, server: gone(kind, nth, server) if 1001 < servers.now < 1010 else None
    assert isinstance(servers.acquire(wait), Grant)
    assert 1010 <= servers.now < 1012


def test_an_outage_behind_a_quarantine_is_ridden_out_without_a_wait_limit() -> None:
    """It counts from when the attempt began, also where the attempt came through the queue of its process."""
    servers = Servers(3)
    servers.forget(0)
    gone, all_gone = of(AWAY, 1, 2), of(AWAY, 0, 1, 2)
    servers.fates = lambda *request: (gone if servers.now < 1000.01 else all_gone)(*request) if servers.now < 1005 else None
    attempt = servers.attempt()
    attempt.local_queue, attempt.slot = LocalQueue(Node(), b"hf:"), Slot()
    assert isinstance(servers.run(acquired(attempt, None, acquire.ON_SEVERAL_SERVERS)), Grant)
    assert 1005 <= servers.now < 1007


def test_an_outage_counts_from_the_last_answer_of_a_majority() -> None:
    """They have said for how long they do not vote, and are away for a moment when they do again."""
    servers = Servers(3)
    for number in range(3):
        servers.forget(number)
    gone = of(AWAY, 0, 1)
    servers.fates = lambda *request: gone(*request) if 1060 < servers.now < 1063 else None
    assert isinstance(servers.acquire(wait=None), Grant)
    assert 1063 <= servers.now < 1065


def test_who_says_nothing_is_asked_again_soon_though_another_has_said_how_long_it_takes() -> None:
    servers = Servers(3)
    servers.forget(1)
    for number in (0, 2):
        servers.take(number, seconds=3.0)
    gone = of(AWAY, 2)
    servers.fates = lambda kind, nth, server: gone(kind, nth, server) if 1001 < servers.now < 1010 else None
    assert isinstance(servers.acquire(wait=None), Grant)
    assert 1010 <= servers.now < 1012


@pytest.mark.parametrize(("wait", "least", "most"), [(None, 1028.5, 1031.5), (5.0, 1003.5, 1005.5)])
def test_too_few_for_too_long(wait: float | None, least: float, most: float) -> None:
    servers = Servers(3)
    for number in range(3):
        servers.take(number)
    gone = of(AWAY, 0, 1)
    servers.fates = lambda kind, nth, server: gone(kind, nth, server) if servers.now > 1000.5 else None
    with pytest.raises(TooFew):
        servers.acquire(wait)
    assert least < servers.now < most
    servers.keeper_insists()
    assert servers.clean(), "its hope is known there"


# Waiting


def harked(servers: Servers) -> list[float]:
    """For how many seconds at most each chance was waited for; the clock stood still meanwhile."""
    return [request.until - servers.now for request in servers.trace if isinstance(request, AwaitNotice)]


def hint(*servers: int) -> Callable[[QuorumAttempt], None]:
    return lambda attempt: attempt.hints.update(servers)


def test_hints_of_a_majority_end_the_wait() -> None:
    servers = Servers(3)
    for number in range(3):
        servers.take(number)

    def free(attempt: QuorumAttempt) -> None:
        for number in range(3):
            servers.node(number).execute("DEL", LOCK)
        hint(0, 2)(attempt)

    servers.harks = [hint(), hint(1), free]
    assert isinstance(servers.acquire(wait=60.0), Grant)
    first, second, third = harked(servers)[:3]
    assert first == pytest.approx(second, abs=0.05)
    assert third < 0.75 * acquire.SPREAD_S, "after one hint the others are near, and who draws little waits less than all that"
    assert servers.now < 1000.1, "no time has passed but that of the trips"
    assert servers.listener_ids() == [[], [], []]


@pytest.mark.parametrize("hints", [2, 3])
def test_who_has_the_hints_of_a_majority_asks_at_once(hints: int) -> None:
    attempt = Servers(3).attempt()
    attempt.hints.update(range(hints))
    with pytest.raises(StopIteration):
        acquire._await_hint(attempt, 2000.0).send(None)


def test_who_listeners_is_known_to_the_servers_until_the_wait_ends() -> None:
    servers = Servers(3)
    for number in range(3):
        servers.take(number)
    seen: list[list[str]] = []
    servers.harks = [lambda _candidate: seen.extend(servers.listener_ids())]
    busy = servers.acquire(wait=2.0)
    assert isinstance(busy, Busy)
    assert all(len(listener_ids) == 1 and listener_ids[0].startswith(ME) for listener_ids in seen)
    assert servers.clean()
    assert 1002.0 <= servers.now < 1002.2


def test_the_holders_time_bounds_the_wait() -> None:
    servers = Servers(3)
    for number, left in enumerate((0.3, 0.4, 20.0)):
        servers.take(number, seconds=left)
    assert isinstance(servers.acquire(wait=60.0), Grant)
    assert 1000.4 < servers.now < 1000.42, "a majority was free then"


def test_pauses_of_those_who_share_the_votes() -> None:
    """Nobody has a majority: pauses are short, differ, and grow."""
    servers = Servers(5)
    for number in range(4):
        servers.take(number, token="bc"[number % 2] * 12 + "." + "0" * 32)
    pauses: list[float] = []

    def note(_candidate: QuorumAttempt) -> None:
        request = servers.trace[-1]
        assert isinstance(request, AwaitNotice)
        pauses.append(request.until - servers.now)
        servers.now = request.until

    servers.harks = [note] * 20
    servers.tokens = ["x"] * 7
    # Tokens are drawn in order here, and give the same jitter but for their last digits: let them differ.
    draw = servers._perform
    servers._perform = lambda request: (  # type: ignore[method-assign]
        f"{ME}.{len(servers.trace) * 7919:032x}" if type(request).__name__ == "NewToken" else draw(request)
    )
    servers.acquire(wait=3.0)
    limits = [min(acquire.SPREAD_S * 2.0 ** (n + 2), acquire.SPREAD_MAX_S) for n in range(len(pauses))]
    assert all(0 <= pause <= limit for pause, limit in zip(pauses, limits, strict=True))
    assert max(pauses) > 5 * max(pauses[:2])


def test_a_listener_waits_for_inboxes_no_longer_than_it_may() -> None:
    servers = Servers(3)
    for number in range(3):
        servers.take(number)
    servers.acquire(wait=0.05)
    until = next(request.until for request in servers.trace if type(request).__name__ == "Subscribe")  # type: ignore[attr-defined]
    assert until <= 1000.05


# Renewal


def test_renewed_by_a_majority() -> None:
    servers = Servers(3)
    attempt = servers.attempt(renew=False)
    quorum_lease = servers.taken(attempt)
    servers.fates = of(Slow(), 0)
    servers.now += 20
    made = quorum_lease.note_request(servers.now, 10.0)
    servers.run(acquire.renew(attempt, quorum_lease, 10.0, made))
    assert quorum_lease.deadline == pytest.approx(1020.001 + 10 - margin(10), abs=0.01)


@pytest.mark.parametrize("silent", [(), (2,)])
def test_votes_that_the_keeper_renews_meanwhile_for_less(silent: tuple[int, ...]) -> None:
    """It does so early if the reply to the vote was late. The others are waited for; that one is silent is no error."""
    servers = Servers(5)
    attempt = servers.attempt()
    quorum_lease = servers.taken(attempt)
    made = quorum_lease.note_request(servers.now, 50.0)
    for number in (0, 1):
        node_lease = quorum_lease.node_leases[number]
        later = node_lease.note_request(servers.now, TTL)
        servers.perform(number, renewal(node_lease.spec, node_lease.token, TTL, later))
    servers.fates = lambda _kind, _nth, server: Slow() if server in silent else 0.01 if server > 1 else None
    servers.run(acquire.renew(attempt, quorum_lease, 50.0, made))
    assert (quorum_lease.remaining(servers.now) > 49) is (not silent)
    assert not quorum_lease.lost


def test_a_shorter_lease_of_a_silent_server_is_renewed_in_time() -> None:
    """Its own turn would have come when the shorter lease was over."""
    servers = Servers(3)
    attempt = servers.attempt()
    quorum_lease = servers.taken(attempt)
    books = servers.renewing(quorum_lease)
    servers.kept_for(1.0, books)
    servers.fates = of(Slow(), 2)
    made = quorum_lease.note_request(servers.now, 3.0)
    servers.run(acquire.renew(attempt, quorum_lease, 3.0, made))
    for number, node_lease in quorum_lease.node_leases.items():
        books[number].watch(node_lease)
    servers.fates = lambda *_: None
    assert servers.kept_for(20.0, books) == []
    assert not quorum_lease.node_leases[2].lost


def test_renewal_without_answer_is_an_error_and_no_loss() -> None:
    servers = Servers(3)
    attempt = servers.attempt()
    quorum_lease = servers.taken(attempt)
    servers.fates = of(Lost(), 1, 2)
    made = quorum_lease.note_request(servers.now, 10.0)
    with pytest.raises(TooFew) as caught:
        servers.run(acquire.renew(attempt, quorum_lease, 10.0, made))
    assert caught.value.nodes == {"s0": "renewed", "s1": "no answer in time", "s2": "no answer in time"}
    assert not quorum_lease.lost
    assert quorum_lease.remaining(servers.now) <= 10, "the shorter one may count"


@pytest.mark.parametrize("why", ["gone", "taken"])
def test_a_majority_that_says_no_is_a_loss(why: str) -> None:
    servers = Servers(3)
    attempt = servers.attempt()
    quorum_lease = servers.taken(attempt)
    for number in (0, 1):
        servers.node(number).execute("DEL", LOCK)
        if why == "taken":
            servers.take(number)
    made = quorum_lease.note_request(servers.now, 10.0)
    servers.run(acquire.renew(attempt, quorum_lease, 10.0, made))
    assert "no majority of its servers" in quorum_lease.lost
    assert not servers.release(quorum_lease)
    assert servers.clean()


def test_minutes_with_a_minority_away() -> None:
    servers = Servers(5)
    quorum_lease = servers.taken()
    books = servers.renewing(quorum_lease)
    assert servers.kept_for(300.0, books, away=frozenset({1, 3})) == []
    assert quorum_lease.remaining(servers.now) > 15
    assert servers.kept_for(35.0, books, away=frozenset({0, 1, 3})) == [quorum_lease]
    assert quorum_lease.lost.count("its time ran out") == 3
    assert quorum_lease.remaining(servers.now) == 0.0


# Release


@pytest.mark.parametrize("silent", [1, 2])
@pytest.mark.parametrize("fate", [Lost, Slow, lambda: AWAY])
def test_released_though_a_minority_is_silent(silent: int, fate: Callable[[], Fate]) -> None:
    servers = Servers(5)
    quorum_lease = servers.taken()
    servers.fates = of(fate, *range(silent))
    before = servers.now
    assert servers.release(quorum_lease)
    assert servers.now < before + 0.01
    servers.fates = lambda *_: None
    servers.late_ones_arrive()
    servers.keeper_insists()
    assert servers.clean()


def test_who_has_nothing_is_not_told() -> None:
    """Of a server that owes an answer, such requests would pile up, and after them what the keeper sends again."""
    servers = Servers(5, fates=of(AWAY, 0))
    quorum_lease = servers.taken()
    assert servers.release(quorum_lease)
    assert [sorted(told) for told in polled(servers, "release_vote")] == [[1, 2, 3, 4]]
    assert servers.given_back == []


def test_who_knows_no_listener_is_not_told_that_it_is_given_up() -> None:
    servers = Servers(5)
    for number in range(5):
        servers.take(number)
    servers.fates = of(AWAY, 0)
    assert isinstance(servers.acquire(2.0), Busy)
    assert {server for told in polled(servers, "release_vote") for server in told} == {1, 2, 3, 4}
    assert servers.given_back == []
    assert servers.clean()


def test_who_knows_a_listener_is_told_though_it_could_not_be_asked_any_more() -> None:
    servers = Servers(5)
    for number in range(5):
        servers.take(number, seconds=2.5)
    gone = of(AWAY, 0, kinds="vote")
    servers.fates = lambda kind, nth, server: gone(kind, nth, server) if servers.now > 1002 else None
    grant = servers.acquire(5.0)
    assert isinstance(grant, Grant)
    assert isinstance(grant.held_lease, QuorumLease)
    assert sorted(grant.held_lease.node_leases) == [1, 2, 3, 4]
    assert servers.listener_ids()[0]
    assert servers.release(grant.held_lease)
    assert servers.clean()


@pytest.mark.parametrize("fate", [Lost, Slow, lambda: AWAY, lambda: Unknown("cut")])
def test_released_while_a_majority_is_silent(fate: Callable[[], Fate]) -> None:
    servers = Servers(3)
    quorum_lease = servers.taken()
    servers.fates = of(fate, 1, 2)
    with pytest.raises(TooFew) as caught:
        servers.release(quorum_lease)
    assert caught.value.nodes["s0"] == "released"
    servers.fates = lambda *_: None
    servers.late.clear()
    servers.keeper_insists()
    assert servers.clean(), "it is told again until it answers"


@pytest.mark.parametrize("asks", ["shorter lease", "longer lease", "renewal by the keeper", "request for more"])
def test_a_release_is_repeated_until_no_server_can_keep_its_vote(asks: str) -> None:
    """Of a request without a reply, the holder believes the worse, and the keeper the worst."""
    servers = Servers(3)
    attempt = servers.attempt()
    quorum_lease = servers.taken(attempt)
    kept_until = servers.now + TTL
    servers.fates = of(Lost, 0, 1, 2)
    if asks in {"shorter lease", "longer lease"}:
        ttl = {"shorter lease": 1.0, "longer lease": 50.0}[asks]
        kept_until = max(kept_until, servers.now + ttl)
        made = quorum_lease.note_request(servers.now, ttl)
        with pytest.raises(TooFew):
            servers.run(acquire.renew(attempt, quorum_lease, ttl, made))
        assert quorum_lease.deadline < kept_until
    elif asks == "renewal by the keeper":
        servers.now += 10
        quorum_lease.node_leases[1].note_request(servers.now, TTL)
        kept_until = servers.now + TTL
    else:
        servers.now += 10
        assert servers.run(acquire.again(attempt, quorum_lease, 33)) is None
        kept_until = servers.now + TTL
        servers.given_back.clear()
    with pytest.raises(TooFew):
        servers.release(quorum_lease)
    assert {give.server for give in servers.given_back} == {0, 1, 2}
    assert min(give.until for give in servers.given_back) >= kept_until


def test_a_vote_for_more_that_was_not_waited_for_takes_nothing_later() -> None:
    """A holder that hands the lock on asks for more time and fences; the release may overtake that, on another connection."""
    servers = Servers(3, fates=lambda kind, nth, server: Slow() if (kind, nth, server) == ("vote", 1, 0) else None)
    attempt = servers.attempt()
    quorum_lease = servers.taken(attempt)
    assert servers.run(acquire.again(attempt, quorum_lease, 33)) is not None
    assert servers.release(quorum_lease)
    assert polled(servers, "release_vote") == [{0: "bury", 1: "release", 2: "release"}]
    asked = [poll for poll in servers.trace if isinstance(poll, Poll)][1].calls[0]
    assert isinstance(asked, RunScript)
    servers.late.append((0, asked))
    servers.late_ones_arrive()
    assert servers.clean()


def test_more_time_does_not_count_while_a_renewal_for_less_is_under_way() -> None:
    """That renewal may arrive at a server after the request for more, and shorten the lease."""
    servers = Servers(3)
    attempt = servers.attempt()
    quorum_lease = servers.taken(attempt)
    asked = quorum_lease.note_request(servers.now, 5.0)
    shorter = [node_lease.deadline for node_lease in quorum_lease.node_leases.values()]
    assert servers.run(acquire.again(attempt, quorum_lease, 33)) is not None
    assert [node_lease.deadline for node_lease in quorum_lease.node_leases.values()] == shorter
    quorum_lease.node_leases[0].renewed(asked, servers.now, 5.0)
    assert servers.run(acquire.again(attempt, quorum_lease, 33)) is not None
    longer = [number for number, node_lease in quorum_lease.node_leases.items() if node_lease.deadline > servers.now + 20]
    assert longer == [0], "the other servers have not answered the renewal"


def test_who_could_not_be_asked_first_and_has_granted_more_is_told() -> None:
    servers = Servers(3, fates=lambda kind, nth, server: AWAY if (kind, nth, server) == ("vote", 0, 0) else None)
    attempt = servers.attempt()
    quorum_lease = servers.taken(attempt)
    assert sorted(quorum_lease.node_leases) == [1, 2]
    assert servers.run(acquire.again(attempt, quorum_lease, 33)) is not None
    assert servers.holders()[0]
    assert servers.release(quorum_lease)
    assert servers.clean()


def test_interrupted_while_it_asks_for_more() -> None:
    servers = Servers(3)
    attempt = servers.attempt()
    quorum_lease = servers.taken(attempt)
    with pytest.raises(KeyboardInterrupt):
        servers.run(acquire.again(attempt, quorum_lease, 33), cancel=2)
    servers.release(quorum_lease)
    servers.late_ones_arrive()
    assert servers.clean()


def test_released_after_a_majority_forgot() -> None:
    servers = Servers(3)
    quorum_lease = servers.taken()
    for number in (1, 2):
        servers.forget(number)
    assert servers.release(quorum_lease) is False


def test_released_after_a_minority_forgot() -> None:
    servers = Servers(3)
    quorum_lease = servers.taken()
    servers.forget(0)
    assert servers.release(quorum_lease) is True


# Interrupted


def interrupted(prepare: Callable[[Servers], None], wait: float, *, release: bool) -> int:
    """At each request in turn, with its calls carried out or not; answers at how many."""
    points = 0
    for applied in (True, False):
        number = 0
        while True:
            servers = Servers(3)
            prepare(servers)
            attempt = servers.attempt()
            attempt.first_contact = FirstContact(due=True)
            try:
                if release:
                    quorum_lease = servers.taken(attempt)
                    quorum_lease.end()
                    servers.run(acquire.release(attempt, quorum_lease), cancel=number, applied=applied)
                else:
                    servers.run(acquired(attempt, wait, acquire.ON_SEVERAL_SERVERS), cancel=number, applied=applied)
                break
            except KeyboardInterrupt:
                pass
            except (TooFew, ConfigMismatch):
                break
            servers.keeper_insists()
            servers.late_ones_arrive()
            assert servers.clean(), f"request {number}, {applied=}: {servers.trace[-8:]}"
            assert servers.hoping == []
            number += 1
            points += 1
    return points


def busy(servers: Servers) -> None:
    for number in (0, 2):
        servers.take(number, seconds=0.5)


def apart(servers: Servers) -> None:
    servers.ahead = {1: 700}


def partly_silent(servers: Servers) -> None:
    servers.fates = of(Lost(), 1)


def of_another_list(servers: Servers) -> None:
    """Which one server says after the majority has decided."""
    servers.fates = of(0.1, 1, kinds="vote")
    servers.node(1).execute("HSET", "hf:marker", "servers", "abc")


@pytest.mark.parametrize("prepare", [busy, apart, partly_silent, of_another_list])
def test_interrupted_at_each_request_of_an_acquisition(prepare: Callable[[Servers], None]) -> None:
    assert interrupted(prepare, 2.0, release=False) >= 8


@pytest.mark.parametrize("prepare", [apart, partly_silent])
def test_interrupted_at_each_request_of_a_release(prepare: Callable[[Servers], None]) -> None:
    assert interrupted(prepare, 0.0, release=True) >= 2


def test_an_interrupted_release_is_finished_though_some_have_answered() -> None:
    """One has said that it is back; to the others, the request was never sent."""
    servers = Servers(3)
    attempt = servers.attempt()
    quorum_lease = servers.taken(attempt)
    operation = acquire.release(attempt, quorum_lease)
    quorum_lease.end()
    poll = operation.send(None)
    assert isinstance(poll, Poll)
    call = poll.calls[0]
    assert call is not None
    assert not poll.counter.on_answer(0, Answer(servers.perform(0, call), servers.now, servers.now))
    with pytest.raises(KeyboardInterrupt):
        request = operation.throw(KeyboardInterrupt())
        while True:
            request = operation.send(servers._perform(request))
    servers.keeper_insists()
    assert servers.clean()
