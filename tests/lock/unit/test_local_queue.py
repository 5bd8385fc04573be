"""One contender per process: when a lease is passed on, kept, or given back; `_core/lock/local_queue.py` without a server."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from holdfast._core.lock.local_queue import MORE_FENCES, PASS_LIMIT_S, RECALL_WITHIN_S, UNREAD_CHECK_EVERY_S, USEFUL_LEFT_S
from holdfast._core.lock.records import AskServer, Attempt, Extend, Grant, HeldLease
from holdfast._core.lock.replies import BLOCK, Busy
from holdfast._core.lock.spec import margin
from holdfast._core.requests import NotSent
from lock.unit.local_queues import OF_THE_SERVER, House, woken


@pytest.fixture
def house() -> House:
    return House()


# Order and fences


def test_who_comes_first_asks_for_all(house: House) -> None:
    first = house.leader()
    assert asks_independently(house)
    house.in_line()
    house.in_line()
    house.taken(first)
    assert not asks_independently(house)


def test_who_has_it_keeps_it_though_its_loop_was_closed(house: House) -> None:
    holder, _ = house.holder(closed=True)
    house.in_line()
    assert house.local_queue.turn_of is holder


def test_what_somebody_was_about_to_be_given_is_not_his_yet(house: House) -> None:
    house.holder()
    this = house.in_line()
    this.turn = AskServer()  # an interrupt has hit whoever was giving it
    assert isinstance(house.local_queue.received(this, house.node.now), Busy)


def test_all_are_served_in_order_of_arrival_with_the_next_fence_each(house: House) -> None:
    holder, held_lease = house.holder()
    those = [house.in_line() for _ in range(5)]
    assert house.is_done(holder, held_lease)
    assert house.served(*reversed(those)) == [(this, OF_THE_SERVER + 1 + n) for n, this in enumerate(those)]
    assert house.asked_of_the_server == 1
    assert house.idle


def test_the_inbox_is_opened_for_those_who_stand_in_line(house: House) -> None:
    house.leader()
    assert house.node.opened == 0, "who is alone needs none"
    house.in_line()
    assert house.node.opened == 1


def test_when_the_block_is_used_up_the_server_is_asked_for_more(house: House) -> None:
    holder, held_lease = house.holder()
    those = [house.in_line() for _ in range(BLOCK + 1)]
    house.is_done(holder, held_lease)
    fences = [fence for _, fence in house.served(*those)]
    assert fences == [*range(OF_THE_SERVER + 1, OF_THE_SERVER + BLOCK), 2 * OF_THE_SERVER, 2 * OF_THE_SERVER + 1]
    assert house.asked_of_the_server == 2


@pytest.mark.parametrize(
    ("ttl", "left", "fence"),
    [
        (30.0, USEFUL_LEFT_S, OF_THE_SERVER + 1), (30.0, USEFUL_LEFT_S - 0.001, 0),
        (2 * USEFUL_LEFT_S, USEFUL_LEFT_S, OF_THE_SERVER + 1),
        (2 * USEFUL_LEFT_S, USEFUL_LEFT_S - 0.001, 0), (0.5, 0.25, OF_THE_SERVER + 1), (0.5, 0.249, 0),
    ],
)  # fmt: skip
def test_a_lease_that_is_nearly_over_is_renewed_before_it_is_used(house: House, ttl: float, left: float, fence: int) -> None:
    """A second has to be left, or half of a lease that is shorter than two."""
    holder, held_lease = house.holder(ttl=ttl)
    heir = house.in_line(ttl=ttl)
    held_lease.deadline = house.node.now + left
    assert house.pass_on(holder, held_lease)
    turn = house.local_queue.received(heir, house.node.now)
    if fence:
        assert isinstance(turn, Grant)
        assert (turn.fence, turn.held_lease, turn.deadline) == (fence, held_lease, house.node.now + left)
    else:
        assert turn == Extend(held_lease, 0), "there are fences left"


def test_what_was_renewed_counts_from_when_it_was_asked_for_and_is_never_less(house: House) -> None:
    holder, held_lease = house.holder()
    heir = house.in_line()
    house.pass_on(holder, held_lease)
    deadline = held_lease.deadline
    sent, house.node.now = house.node.now, house.node.now + 3
    grant = house.extended(heir, held_lease, 70, 80, sent=sent - 10)
    assert isinstance(grant, Grant)
    assert grant.deadline == deadline, "the keeper has done more"
    grant = house.extended(heir, held_lease, 90, 99, sent=sent + 1)
    assert isinstance(grant, Grant)
    assert (grant.fence, grant.deadline) == (90, sent + 1 + 30 - margin(30))
    house.node.now += 40
    again = house.extended(heir, held_lease, 110, 119, sent=sent)
    assert again == Extend(held_lease, 0), "read so late that it has to be asked again"


def test_a_block_that_the_server_names_again_goes_on_where_it_was(house: House) -> None:
    """Only time was asked for: the answer is the block that we have already, from its first number on."""
    holder, held_lease = house.holder()
    heir = house.in_line()
    held_lease.deadline = house.node.now + USEFUL_LEFT_S / 2
    house.pass_on(holder, held_lease)
    grant = house.extended(heir, held_lease, OF_THE_SERVER, OF_THE_SERVER + BLOCK - 1)
    assert isinstance(grant, Grant)
    assert (grant.fence, held_lease.last_fence) == (OF_THE_SERVER + 1, OF_THE_SERVER + BLOCK - 1)
    grant = house.extended(heir, held_lease, 2000, 2010)
    assert isinstance(grant, Grant)
    assert (grant.fence, held_lease.last_fence) == (2000, 2010)


@pytest.mark.parametrize(
    ("left", "used", "outside", "wanted"),
    [
        (1, 500, False, 0),
        (1, 500, True, 0),
        (0, 500, True, BLOCK),
        (0, 0, False, BLOCK),
        (0, 500, False, 500),
        (0, 5000, False, MORE_FENCES),
    ],
)
def test_more_fences_are_wanted_when_there_are_none_as_many_as_were_used_unless_somebody_waits(
    house: House, left: int, used: int, outside: bool, wanted: int
) -> None:
    """So that what is drawn and not used never runs ahead of the server's clock."""
    holder, held_lease = house.holder()
    heir = house.in_line()
    house.pass_on(holder, held_lease)
    held_lease.holder_fence = held_lease.last_fence - left
    held_lease.passes = used
    house.local_queue.asked = outside
    assert house.local_queue.received(heir, held_lease.deadline) == Extend(held_lease, wanted)


def test_what_was_just_renewed_is_used_however_little_of_it_the_trip_has_left(house: House) -> None:
    """Asking once more would take as long, and so on for ever."""
    holder, held_lease = house.holder(ttl=0.05)
    heir = house.in_line(ttl=0.05)
    held_lease.deadline = house.node.now + 0.01
    house.pass_on(holder, held_lease)
    sent, house.node.now = house.node.now, house.node.now + 0.03
    grant = house.extended(heir, held_lease, OF_THE_SERVER, OF_THE_SERVER + BLOCK - 1, sent=sent)
    assert isinstance(grant, Grant)
    assert grant.fence == OF_THE_SERVER + 1


# When a lease is passed on, and when it goes back to the server


def asked(house: House) -> None:
    house.local_queue.on_asked()


def later(seconds: float) -> Callable[[House], None]:
    def passes(house: House) -> None:
        house.node.now += seconds

    return passes


def passed_on_before(times: int) -> Callable[[House], None]:
    def passed(house: House) -> None:
        assert house.local_queue.held_lease is not None
        house.local_queue.held_lease.passes = times

    return passed


def has_unread(house: House) -> None:
    house.node.stirring = True


def looked_just_now(house: House) -> None:
    house.local_queue.next_look = house.node.now + UNREAD_CHECK_EVERY_S


def silent(house: House) -> None:
    house.node.listens = False


def ends_now(house: House) -> None:
    assert house.local_queue.held_lease is not None
    house.local_queue.held_lease.deadline = house.node.now


def lost(house: House) -> None:
    assert house.local_queue.held_lease is not None
    house.lose(house.local_queue.held_lease)


def made_shorter(house: House) -> None:
    assert house.local_queue.held_lease is not None
    house.local_queue.held_lease.ttl = 20.0


Deed = Callable[[House], None]
PASSED: dict[str, tuple[list[Deed], dict[str, Any], dict[str, Any], bool]] = {
    # what has happened; options of the holder, and of the next; is it passed on
    "nobody asked": ([], {}, {}, True),
    "nobody asked, however often": ([passed_on_before(10**6)], {}, {}, True),
    "nobody asked, nearly LIMIT": ([later(PASS_LIMIT_S - 0.001)], {}, {}, True),
    "nobody asked, LIMIT": ([later(PASS_LIMIT_S)], {}, {}, False),
    "asked": ([asked], {}, {}, True),
    "asked, one left": ([asked, passed_on_before(31)], {}, {}, True),
    "asked, none left": ([asked, passed_on_before(32)], {}, {}, False),
    "asked, more are allowed": ([asked, passed_on_before(32)], {"max_passes": 33}, {}, True),
    "asked, none are allowed": ([asked], {"max_passes": 0}, {}, False),
    "asked, in time": ([asked, later(0.009)], {}, {}, True),
    "asked, too late": ([asked, later(0.0101)], {}, {}, False),
    "asked, more time is allowed": ([asked, later(0.9)], {"max_pass_time": 1.0}, {}, True),
    "asked, more time is allowed than LIMIT": ([asked, later(PASS_LIMIT_S)], {"max_pass_time": 9.0}, {}, False),
    "something has come": ([has_unread, passed_on_before(31)], {}, {}, True),
    "something has come, none left": ([has_unread, passed_on_before(32)], {}, {}, False),
    "something has come, not looked for": ([has_unread, passed_on_before(32), looked_just_now], {}, {}, True),
    "something has come, looked for again": (
        [has_unread, passed_on_before(32), looked_just_now, later(UNREAD_CHECK_EVERY_S)],
        {},
        {},
        False,
    ),
    "nobody outside could ask": ([silent], {}, {}, False),
    "the lease has ended": ([ends_now], {}, {}, False),
    "the lease is lost": ([lost], {}, {}, False),
    "the next lingers, too": ([], {}, {"linger": 5.0}, True),
    "both with another ttl": ([], {"ttl": 20.0}, {"ttl": 20.0}, True),
    "the next with another ttl": ([], {}, {"ttl": 20.0}, False),
    "the next with max_hold": ([], {}, {"max_hold": 5.0}, False),
    "the next not renewed": ([], {}, {"renew": False}, False),
    "the holder with max_hold": ([], {"max_hold": 5.0}, {}, False),
    "the next has to check in": ([], {}, {"progress_within": 5.0}, False),
    "the holder has to check in": ([], {"progress_within": 5.0}, {}, False),
    "both have to check in": ([], {"progress_within": 5.0}, {"progress_within": 5.0}, False),
    "the holder not renewed": ([], {"renew": False}, {}, False),
    "both not renewed": ([], {"renew": False}, {"renew": False}, False),
    "made shorter by hand": ([made_shorter], {}, {}, False),
    "made shorter by hand to what the next wants": ([made_shorter], {}, {"ttl": 20.0}, False),
}


@pytest.mark.parametrize("rule", PASSED)
def test_passed_on_or_given_back(house: House, rule: str) -> None:
    deeds, holders, nexts, passed = PASSED[rule]
    holder, held_lease = house.holder(**holders)
    heir = house.in_line(**nexts)
    for deed in deeds:
        deed(house)
    assert house.pass_on(holder, held_lease) is passed
    assert woken(heir) == passed, "it goes back to the server first"
    assert held_lease.over is not passed
    if not passed:
        house.local_queue.on_released(holder)
    given = house.local_queue.received(heir, house.node.now)
    assert isinstance(given, Grant if passed else AskServer)


@pytest.mark.parametrize("bound", [0, 1, 7])
def test_those_outside_wait_for_a_bounded_number_of_passes(house: House, bound: int) -> None:
    holder, held_lease = house.holder(max_passes=bound)
    those = [house.in_line(max_passes=bound) for _ in range(20)]
    house.local_queue.on_asked()
    house.is_done(holder, held_lease)
    fences = [fence for _, fence in house.served(*those)]
    first_block = [fence for fence in fences if fence < 2 * OF_THE_SERVER]
    assert first_block == [OF_THE_SERVER + 1 + n for n in range(bound)]
    assert house.idle


def test_each_grant_may_be_passed_on_as_often_as_the_first(house: House) -> None:
    for _ in range(3):
        this, held_lease = house.holder(max_passes=2)
        house.local_queue.on_asked()
        passes = []
        for heir in [house.in_line(max_passes=2) for _ in range(3)]:
            passes.append(house.is_done(this, held_lease))
            this = heir
            given = house.local_queue.received(this, house.node.now)
        assert passes == [True, True, False]
        assert isinstance(given, AskServer)
        house.local_queue.settle(this, None)
        assert house.idle


@pytest.mark.parametrize("how", ["queued", "asked early"])
def test_those_outside_are_known_however_the_message_came(house: House, how: str) -> None:
    this = house.leader(max_passes=0)
    if how == "asked early":
        house.node.asked_early.add("aaaaaaaaaaaa.1")
    held_lease = house.taken(this, queued=how == "queued")
    house.in_line(max_passes=0)
    assert house.pass_on(this, held_lease) is False


@pytest.mark.parametrize("how", ["queued", "asked early", ""])
def test_a_local_queue_is_crowded_if_others_wanted_what_it_took_last(house: House, how: str) -> None:
    assert not house.local_queue.crowded
    for crowded in (bool(how), False):
        this = house.leader()
        if how == "asked early" and crowded:
            house.node.asked_early.add(f"aaaaaaaaaaaa.{house.asked_of_the_server + 1}")
        held_lease = house.taken(this, queued=how == "queued" and crowded)
        assert house.local_queue.crowded is crowded
        house.is_done(this, held_lease)
        assert house.local_queue.crowded is crowded, "for whoever leads next"


def test_who_asked_for_an_earlier_lease_is_forgotten_with_it(house: House) -> None:
    holder, held_lease = house.holder(max_passes=0)
    house.local_queue.on_asked()
    house.is_done(holder, held_lease)
    holder, held_lease = house.holder(max_passes=0)
    house.in_line(max_passes=0)
    assert house.pass_on(holder, held_lease)


def test_an_inbox_that_is_not_open_is_asked_for_when_it_is_missed(house: House) -> None:
    house.node.listens = False
    holder, held_lease = house.holder(linger=1.0)
    assert house.pass_on(holder, held_lease) is False
    assert house.node.opened == 1


# Linger


def lingering(house: House, linger: float = 5.0) -> Any:
    holder, held_lease = house.holder(linger=linger)
    assert house.is_done(holder, held_lease)
    return held_lease


def test_kept_after_use_and_taken_again_without_a_trip(house: House) -> None:
    held_lease = lingering(house)
    assert house.node.looks == [(house.local_queue, house.node.now + 5)]
    again = house.local_queue.enter(other := house.attempt(linger=5.0), house.node.now)
    assert isinstance(again, Grant)
    assert (again.held_lease, again.fence) == (held_lease, OF_THE_SERVER + 1)
    assert house.local_queue.on_time(house.node.now + 9) == inf, "it is in use: there is nothing to look at"
    assert house.is_done(other, held_lease)
    assert house.node.given_back == []


def test_retaken_by_the_short_way(house: House) -> None:
    held_lease = lingering(house)
    for n in range(1, 4):
        this = house.attempt(linger=5.0)
        grant = house.local_queue.retake(this)
        assert grant is not None
        assert (grant.held_lease, grant.fence) == (held_lease, OF_THE_SERVER + n)
        assert house.local_queue.retake(house.attempt(linger=5.0)) is None, "somebody has it"
        assert house.is_done(this, held_lease)


@pytest.mark.parametrize("why", ["nothing lingers", "another kind", "lost", "nearly over", "no fences", "being given back"])
def test_not_retaken_by_the_short_way(house: House, why: str) -> None:
    if why != "nothing lingers":
        held_lease = lingering(house)
        if why == "lost":
            house.lose(held_lease)
        elif why == "nearly over":
            house.node.now = held_lease.deadline - USEFUL_LEFT_S + 0.001
        elif why == "no fences":
            held_lease.holder_fence = held_lease.last_fence
        elif why == "being given back":
            house.local_queue.on_asked()
    before = house.local_queue.turn_of
    assert house.local_queue.retake(house.attempt(ttl=20.0 if why == "another kind" else 30.0)) is None
    assert house.local_queue.turn_of is before


def test_what_lingers_is_given_back_in_time(house: House) -> None:
    held_lease = lingering(house)
    assert house.local_queue.on_time(house.node.now + 4.9) == house.node.now + 5
    assert house.node.given_back == []
    assert house.local_queue.on_time(house.node.now + 5) == inf
    assert house.node.given_back == [held_lease]
    house.local_queue.on_released()
    assert house.idle


def test_who_has_waited_long_enough_is_told_even_if_its_own_timer_has_slept(house: House) -> None:
    house.holder()
    first, last, patient = house.in_line(until=1007.0), house.in_line(until=1005.0), house.in_line()
    assert [at for _, at in house.node.looks] == [1001.0, 1007.0, 1005.0], "when to question the lease, and who waits how long"
    assert house.local_queue.on_time(1004.5) == 1005.0
    assert house.local_queue.on_time(1005.0) == 1005.5
    assert (woken(first), woken(last), list(house.local_queue.queue)) == (0, 1, [first, patient])
    assert isinstance(house.local_queue.received(last, house.node.now), Busy)
    assert house.local_queue.on_time(1007.0) == 1008.0
    assert list(house.local_queue.queue) == [patient]
    house.local_queue.received(patient, house.node.now)
    assert house.local_queue.on_time(1008.0) == inf


def test_what_was_passed_on_and_is_lost_is_given_back_all_the_same(house: House) -> None:
    """A renewal that came late may have made it longer at the server, and the next one asks there."""
    first, held_lease = house.holder()
    this = house.in_line()
    house.pass_on(first, held_lease)
    house.lose(held_lease)
    assert house.local_queue.received(this, house.node.now) == AskServer()
    assert house.node.given_back == [held_lease]


def test_what_is_lost_while_it_is_extended_is_given_back_and_asked_for_anew(house: House) -> None:
    first, held_lease = house.holder()
    this = house.in_line()
    house.pass_on(first, held_lease)
    assert house.local_queue.received(this, held_lease.deadline) == Extend(held_lease, 0)
    assert house.local_queue.extended(this, held_lease, None) == AskServer()
    assert held_lease.lost
    assert house.node.given_back == [held_lease]


def test_what_lingers_is_given_back_when_somebody_asks(house: House) -> None:
    held_lease = lingering(house)
    house.local_queue.on_asked()
    assert house.node.given_back == [held_lease]
    assert house.local_queue.on_time(house.node.now + 9) == inf
    those = [house.in_line(), house.in_line()]
    assert [this for this, _ in house.served(*those)] == those
    assert house.idle


@pytest.mark.parametrize("other", [{"ttl": 20.0}, {"renew": False}, {"max_hold": 5.0}], ids=str)
def test_what_lingers_is_given_back_when_somebody_wants_another_kind(house: House, other: dict[str, Any]) -> None:
    held_lease = lingering(house)
    this = house.in_line(**other)
    assert house.node.given_back == [held_lease]
    assert [who for who, _ in house.served(this)] == [this]


def test_what_was_lost_while_it_lingered_is_asked_for_anew(house: House) -> None:
    house.lose(lingering(house))
    house.leader()


@pytest.mark.parametrize(("missing", "fence"), [(0.001, 0), (-0.001, OF_THE_SERVER + 1)])
def test_what_was_nearly_over_while_it_lingered_is_renewed_first(house: House, missing: float, fence: int) -> None:
    held_lease = lingering(house)
    house.node.now = held_lease.deadline - USEFUL_LEFT_S + missing
    again = house.local_queue.enter(house.attempt(), house.node.now)
    if fence:
        assert isinstance(again, Grant)
        assert again.fence == fence
    else:
        assert again == Extend(held_lease, 0)


@pytest.mark.parametrize("why", ["asked", "somebody waits", "not linger", "limit", "nobody outside would know"])
def test_what_does_not_linger(house: House, why: str) -> None:
    holder, held_lease = house.holder(linger=0.0 if why == "not linger" else 5.0)
    if why == "nobody outside would know":
        held_lease.token = "aaaaaaaaaaaa.1"  # taken by somebody who does not linger
    elif why == "asked":
        house.local_queue.on_asked()
    elif why == "somebody waits":
        house.in_line(ttl=20.0)
    elif why == "limit":
        house.node.now += PASS_LIMIT_S
    assert house.pass_on(holder, held_lease) is False


def test_it_is_passed_on_rather_than_kept(house: House) -> None:
    holder, held_lease = house.holder(linger=5.0)
    heir = house.in_line()
    assert house.is_done(holder, held_lease)
    assert [at for _, at in house.node.looks] == [1001.0], "only to question the lease"
    assert [this for this, _ in house.served(heir)] == [heir]
    assert house.idle


# Whether the server knows the lease still


def asks(house: House) -> Attempt | None:
    """Somebody comes who does not wait. None: told from here that it is busy."""
    this = house.attempt()
    busy = house.local_queue.enter(this, house.node.now, at_once=True)
    assert this.until == house.node.now + (RECALL_WITHIN_S if busy is None else 0)
    if busy is None:
        return this
    assert isinstance(busy, Busy)
    return None


def asks_independently(house: House) -> bool:
    """Whether somebody who comes and does not wait asks the server besides the queue."""
    this = house.attempt()
    turn = house.local_queue.enter(this, house.node.now, at_once=True)
    assert (turn == AskServer()) is (this.local_queue is None)
    house.local_queue.settle(this, None)
    return this.local_queue is None


@pytest.mark.parametrize("servers", [1, 3, 5])
def test_who_does_not_wait_has_the_lease_questioned(house: House, servers: int) -> None:
    house.node.servers = servers
    _, held_lease = house.holder()
    first, second = asks(house), asks(house)
    assert first is not None
    assert second is not None
    assert house.node.questioned == [held_lease], "one question for both"
    house.local_queue.answered(held_lease.token, house.node.now - 0.01, known=True)
    for _ in range(servers // 2 + 1):
        assert woken(first) == woken(second) == 0, "the answer to an earlier renewal says nothing, nor does that of a minority"
        house.local_queue.answered(held_lease.token, house.node.now, known=True)
    assert woken(first) == woken(second) == 1
    assert first.until == second.until == house.node.now, "they wait no more"
    assert isinstance(house.local_queue.received(first, house.node.now), Busy)
    assert isinstance(house.local_queue.received(second, house.node.now), Busy)


@pytest.mark.parametrize(("wait", "at_once"), [(1.0, True), (1.001, False)])
def test_who_waits_for_a_second_at_most_has_the_lease_questioned_at_once(house: House, wait: float, at_once: bool) -> None:
    house.holder()
    house.in_line(until=house.node.now + wait)
    assert len(house.node.questioned) == at_once


def test_the_lease_is_questioned_once_a_second(house: House) -> None:
    _, held_lease = house.holder()
    assert asks(house) is not None
    house.local_queue.answered(held_lease.token, house.node.now, known=True)
    assert asks(house) is None
    house.node.now += 0.99
    assert asks(house) is None
    house.in_line()
    house.local_queue.on_time(house.node.now)
    assert len(house.node.questioned) == 1
    house.node.now += 0.02
    house.local_queue.on_time(house.node.now)
    assert len(house.node.questioned) == 2
    assert asks(house) is not None, "the question of the first in line is that of all"
    assert len(house.node.questioned) == 2


@pytest.mark.parametrize("servers", [1, 3])
def test_lost_when_it_was_questioned(house: House, servers: int) -> None:
    house.node.servers = servers
    holder, held_lease = house.holder()
    first, second = asks(house), asks(house)
    assert first is not None
    assert second is not None
    house.lose(held_lease)
    house.local_queue.on_released(holder)
    for _ in range(servers):
        house.local_queue.answered(held_lease.token, house.node.now, known=False)
    assert house.local_queue.received(first, house.node.now) == AskServer(), "the first asks the server"
    assert isinstance(house.local_queue.received(second, house.node.now), Busy)
    assert second.until == house.node.now


def test_who_waits_shortly_has_a_new_lease_questioned(house: House) -> None:
    house.holder()
    house.in_line(until=house.node.now + 0.5)
    assert len(house.node.questioned) == 1


def test_who_waits_long_has_a_new_lease_questioned_after_a_second(house: House) -> None:
    _, held_lease = house.holder()
    house.in_line(until=house.node.now + 5)
    house.node.now += 1
    assert house.node.questioned == []
    assert house.local_queue.on_time(house.node.now) == house.node.now + 1
    assert house.node.questioned == [held_lease]


def test_an_old_lease_is_questioned_at_once(house: House) -> None:
    _, held_lease = house.holder()
    house.node.now += 5
    house.in_line()
    assert house.node.questioned == [held_lease]


@pytest.mark.parametrize("servers", [0, 1])
def test_what_is_given_back_is_not_questioned(house: House, servers: int) -> None:
    house.node.servers = servers
    _, held_lease = house.holder()
    if servers:
        held_lease.end()
    assert asks(house) is None
    assert not house.local_queue.awaits_check


# Loss


def test_after_a_loss_the_next_one_asks_the_server_at_once(house: House) -> None:
    holder, held_lease = house.holder()
    those = [house.in_line(), house.in_line()]
    house.lose(held_lease)
    house.local_queue.on_released(holder)
    assert house.local_queue.received(those[0], house.node.now) == AskServer()
    second = house.taken(those[0])
    assert house.pass_on(holder, held_lease) is False, "who has lost it learns of that when it gives it back"
    house.local_queue.on_released(holder)
    house.is_done(those[0], second)
    assert [this for this, _ in house.served(those[1])] == [those[1]]
    assert house.pass_on(holder, held_lease) is None


def test_what_is_lost_on_its_way_is_asked_for_anew(house: House) -> None:
    holder, held_lease = house.holder()
    heir = house.in_line()
    house.pass_on(holder, held_lease)
    house.lose(held_lease)
    assert house.served(heir) == [(heir, 2 * OF_THE_SERVER)]
    assert house.idle


def test_a_lease_that_was_dropped_is_nobody_s(house: House) -> None:
    """Its holder has vanished without giving it back."""
    _, held_lease = house.holder()
    heir = house.in_line()
    house.local_queue.on_collected(held_lease)
    assert house.local_queue.received(heir, house.node.now) == AskServer()
    second = house.taken(heir)
    house.local_queue.on_collected(held_lease)
    assert house.local_queue.held_lease is second, "whatever became of an earlier one"


# Two who release the same


@pytest.mark.parametrize("where", ["passed on", "lingers", "given back"])
def test_of_two_who_give_back_one_lease_one_is_too_late(house: House, where: str) -> None:
    holder, held_lease = house.holder(linger=5.0 if where == "lingers" else 0.0)
    if where == "passed on":
        house.in_line()
    first = house.pass_on(holder, held_lease)
    assert first is (where != "given back")
    assert house.pass_on(holder, held_lease) is None


def test_a_lease_is_given_back_once_though_a_handler_releases_lost_ones_meanwhile(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, held_lease = house.holder()
    house.in_line()
    other, gone = house.attempt(), HeldLease(Grant(house.attempt(), 1, 0.0, 1.0))
    gone.lose("its time ran out")
    said: list[bool | None] = []

    def interrupted(_prefix: bytes) -> bool:
        monkeypatch.undo()
        said.extend((house.pass_on(other, gone), house.pass_on(holder, held_lease)))
        return True

    monkeypatch.setattr(house.node, "reachable", interrupted)
    assert house.pass_on(holder, held_lease)
    assert said == [False, None]


def test_a_label_is_told_when_the_lease_is_passed_on_to_it(house: House) -> None:
    holder, held_lease = house.holder(label="first")
    others = house.in_line(label="first"), house.in_line(label="second"), house.in_line()
    assert house.pass_on(holder, held_lease)
    house.served(*others)
    assert house.node.relabelled == ["second", None]


def test_a_late_release_does_not_take_the_lease_from_who_has_it_now(house: House) -> None:
    holder, held_lease = house.holder()
    heir, other = house.in_line(), house.in_line()
    house.pass_on(holder, held_lease)
    assert house.pass_on(holder, held_lease) is None
    house.local_queue.on_released(holder)
    house.local_queue.settle(holder, None)
    assert house.local_queue.turn_of is heir
    assert woken(other) == 0


# Failure


def test_a_server_that_is_away_is_told_to_those_who_would_wait_for_ever(house: House) -> None:
    leader = house.leader()
    patient, first, second = house.in_line(), house.in_line(until=2000.0), house.in_line(until=1001.0)
    error = NotSent("away")
    house.local_queue.settle(leader, error)
    house.local_queue.settle(leader, None)
    assert house.local_queue.received(patient, house.node.now) == error
    house.local_queue.settle(patient, None)
    assert woken(second) == 0
    assert [this for this, _ in house.served(first, second)] == [first, second]
    assert house.idle


def test_a_failure_of_who_leads_no_more_is_his_own(house: House) -> None:
    leader = house.leader()
    patient = house.in_line()
    house.local_queue.on_released(leader)
    house.local_queue.settle(leader, NotSent("away"))
    assert house.local_queue.received(patient, house.node.now) == AskServer()


def test_when_the_process_stops_nobody_stands_in_line_any_more(house: House) -> None:
    house.holder()
    those = [house.in_line(), house.in_line(until=2000.0)]
    error = NotSent("closed")
    house.local_queue.close(error)
    assert [house.local_queue.received(this, house.node.now) for this in those] == [error] * 2
    assert not house.local_queue.queue


# Attempts without a wait


def test_told_at_once_who_holds_it_here(house: House) -> None:
    house.holder()
    assert asks(house) is not None
    this = house.attempt()
    house.local_queue.check.question = None  # the answer has come
    busy = house.local_queue.enter(this, house.node.now, at_once=True)
    assert isinstance(busy, Busy)
    assert (busy.remaining, busy.process, busy.lingers) == (30.0, "aaaaaaaaaaaa", False)


@pytest.mark.parametrize(
    ("state", "turn"),
    [("nobody", AskServer), ("leader", AskServer), ("keeper", type(None)), ("lingers", Grant), ("lost", AskServer)],
)
def test_not_told_but_to_be_asked_for(house: House, state: str, turn: type) -> None:
    if state == "leader":
        house.leader()
    elif state != "nobody":
        held_lease = lingering(house)
        if state == "keeper":
            house.local_queue.on_asked()
        elif state == "lost":
            house.lose(held_lease)
    this = house.attempt()
    assert type(house.local_queue.enter(this, house.node.now, at_once=True)) is turn
    assert (this.local_queue is None) is (state == "leader"), "besides the queue"
