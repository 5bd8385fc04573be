"""An election, one request after the other: a candidate leads when the server says so, and an observer never goes back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import Elected
from holdfast._api.election_lock import BaseTermCore
from holdfast._core.election import (
    FOR_A_CANDIDATE,
    OBSERVE,
    Candidacy,
    ElectionKeys,
    LeaderWatch,
    NoLeader,
    View,
    change,
    proclaim,
    read_leader,
    transfer,
)
from holdfast._core.lock.acquire import acquire
from holdfast._core.lock.records import Grant
from holdfast._core.lock.replies import Busy
from holdfast._core.requests import Answer, NewToken, NotSent, Now, RunScript, Sleep, Subscribe, Unknown, Unsubscribe
from holdfast._lua import codes
from support.driver import OTHER, Driver, Fault, some, spec
from support.memory_server import LOCK, Server
from support.node import Node

ONE, TWO = (Elected(f"candidate {term}", term, "") for term in (1, 2))


def candidacy() -> Candidacy:
    return Candidacy(spec(), node=Node(), name="me", observers=LOCK + b":observers")


def test_a_candidate_whose_proclamation_came_too_late_does_not_lead() -> None:
    """The server has given the lock to another client between the two requests."""
    driver, candidate = Driver(Server()), candidacy()

    def taken_meanwhile(kind: str, nth: int) -> None:
        if (kind, nth) == ("proclaim", 0):
            driver.server.take(OTHER, 30.0)

    driver.before = taken_meanwhile
    assert isinstance(driver.run(acquire(candidate, 0.0, FOR_A_CANDIDATE)), Busy)
    assert driver.server.current() == OTHER
    assert driver.nothing_left()


def test_a_candidate_who_is_answered_when_its_lease_is_over_has_to_be_elected_anew() -> None:
    driver, candidate = Driver(Server()), candidacy()
    driver.slow = {("proclaim", 0): candidate.spec.first_ttl}
    grant = driver.run(acquire(candidate, 0.0, FOR_A_CANDIDATE))
    assert isinstance(grant, Grant)
    assert grant.deadline > driver.server.now
    assert (driver.counts["acquire"], driver.counts["proclaim"]) == (2, 2)


@pytest.mark.parametrize("fault", [NotSent("no connection"), Unknown("no answer")], ids=repr)
def test_a_proclamation_is_repeated_twice(fault: Exception) -> None:
    driver, candidate = Driver(Server()), candidacy()
    grant = driver.run(acquire(candidate, 0.0, FOR_A_CANDIDATE))
    assert isinstance(grant, Grant)
    driver.failing = some(Fault(fault), range(1, 3), "proclaim")
    assert driver.run(proclaim(candidate, grant.fence)) is True
    driver.failing = some(Fault(fault), range(4, 7), "proclaim")
    with pytest.raises(type(fault)):
        driver.run(proclaim(candidate, grant.fence))


def test_nobody_knows_of_a_transfer_without_an_answer_whatever_the_later_ones_come_to() -> None:
    """The first may have handed the lock over, so the caller must not be told that nothing has changed."""
    operation = transfer(ElectionKeys(spec(), LOCK + b":observers"), "aaaaaaaaaaaa.1", "somebody")
    assert isinstance(operation.send(None), RunScript)
    for error in (Unknown("no answer"), NotSent("no connection")):
        assert isinstance(operation.throw(error), Sleep)
        assert isinstance(operation.send(None), RunScript)
    with pytest.raises(Unknown):
        operation.throw(NotSent("no connection"))


def test_a_lock_without_a_lease_is_looked_at_again_in_time() -> None:
    operation = change(ElectionKeys(spec(), LOCK + b":observers"), watch := LeaderWatch())
    assert isinstance(operation.send(None), Now)
    assert isinstance(operation.send(100.0), RunScript)
    with pytest.raises(StopIteration):
        operation.send(Answer(View(NoLeader(taken=False), None), 100.0, 100.0))
    assert watch.free_at == 100.0


def test_an_observer_looks_again_once_it_has_subscribed() -> None:
    """A leader elected between the first look and the subscription would be seen ten seconds late. And only a look that
    names the listener tells the server whom to notify."""
    operation = change(ElectionKeys(spec(), LOCK + b":observers"), LeaderWatch(seen=ONE, highest=ONE.term))
    assert isinstance(operation.send(None), Now)
    assert isinstance(operation.send(100.0), RunScript)
    assert isinstance(operation.send(Answer(View(ONE, 25.0), 100.0, 100.0)), NewToken)
    assert isinstance(operation.send("aaaaaaaaaaaa.1"), Subscribe)
    second = operation.send(None)
    assert isinstance(second, RunScript)
    assert second.args[1] == "aaaaaaaaaaaa.1"
    assert isinstance(operation.send(Answer(View(TWO, 25.0), 100.0, 100.0)), Unsubscribe)
    with pytest.raises(StopIteration) as end:
        operation.send(None)
    assert end.value.value == TWO


def test_an_observer_does_not_go_back_to_an_earlier_term() -> None:
    """A server that is behind, such as a promoted replica, may still show an earlier leader."""
    watch = LeaderWatch()
    for found, news in ((ONE, True), (ONE, False), (TWO, True), (ONE, False), (NoLeader(taken=False), True), (ONE, False)):
        assert watch.is_news(found) is news
        if news:
            watch.see(found)
    assert watch.is_news(TWO), "the last leader again, after nobody was seen"


@pytest.mark.parametrize(("left", "seconds"), [(1500, 1.5), (-1, None)])
def test_how_long_a_leader_leads_is_read_in_seconds(left: int, seconds: float | None) -> None:
    assert OBSERVE.parse([codes.UNPROCLAIMED, left]) == View(NoLeader(taken=True), seconds)
    assert OBSERVE.parse([1, left, 7, b"a", b"b"]) == View(Elected("a", 7, "b"), seconds)


def test_a_leader_is_known_since_the_question_was_sent() -> None:
    looking = read_leader(ElectionKeys(spec(), LOCK + b":observers"), "")
    looking.send(None)
    with pytest.raises(StopIteration) as ended:
        looking.send(Answer(View(ONE, 25.0), 100.0, 101.0))
    assert ended.value.value == Answer(View(ONE, 25.0), 100.0, 101.0)


@pytest.mark.parametrize(("later", "goes_on"), [(29.0, True), (59.0, True), (61.0, False)])
def test_an_outage_is_borne_for_half_a_minute_or_a_lease(later: float, goes_on: bool) -> None:
    operation = change(ElectionKeys(spec(ttl=60.0), LOCK + b":observers"), LeaderWatch(seen=ONE, highest=ONE.term))
    operation.send(None)
    operation.send(100.0)
    operation.send(Answer(View(ONE, 25.0), 100.0, 100.0))  # a token is drawn, and its listener subscribed
    operation.send("aaaaaaaaaaaa.1")
    step = operation.send(None)
    while not isinstance(step, Now):
        step = operation.throw(NotSent("away")) if isinstance(step, RunScript) else operation.send(None)
    if goes_on:
        assert isinstance(operation.send(100.0 + later), Sleep)
        assert isinstance(operation.throw(KeyboardInterrupt), Unsubscribe)
        with pytest.raises(KeyboardInterrupt):
            operation.send(None)
    else:
        assert isinstance(operation.send(100.0 + later), Unsubscribe)
        with pytest.raises(NotSent):
            operation.send(None)


def test_a_term_that_was_not_handed_over_is_renewed_again() -> None:
    """The keeper has dropped its lease if it looked while the request was under way."""
    lease, watched = SimpleNamespace(over=True), list[object]()
    core: Any = SimpleNamespace(held_lease=lease, look_again=lambda: watched.append(lease.over))
    BaseTermCore.go_on(core)
    assert watched == [False]
