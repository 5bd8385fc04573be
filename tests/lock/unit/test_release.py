"""Release, renewal and giving up, with everything going wrong at every single request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast._core.lock.acquire import start_over
from holdfast._core.lock.records import Attempt
from holdfast._core.lock.release import give_up, release
from holdfast._core.lock.renewal import renew
from holdfast._core.lock.replies import Revoked
from holdfast._core.lock.spec import margin
from holdfast._core.operation import Dropped
from holdfast._core.requests import NotSent, Now, Refused, RunScript, SendUntilAnswered, Unknown, WireError
from support.driver import ME, OTHER, Driver, Fault, always, first, kind_of, never, some, spec
from support.memory_server import Server

TOKEN = f"{ME}.{7:032x}"
WAITER = "cccccccccccc.1"
SPEC = spec(ttl=10.0)
INTERRUPTS = [Fault(kind(), applied) for kind in (asyncio.CancelledError, KeyboardInterrupt) for applied in (False, True)]
LOST = [Fault(NotSent("no connection")), Fault(Unknown("no answer")), Fault(Unknown("no answer"), applied=True)]
IN_A_MOMENT = Fault(Refused("LOADING the dataset"))
FOR_GOOD = Fault(Refused("NOPERM this user has no permissions"))


def holding(*, waiter: bool = False) -> Driver:
    """We hold the lock."""
    server = Server()
    server.take(TOKEN, 30.0)
    if waiter:
        server.join(WAITER)
    return Driver(server, tokens=[TOKEN])


def queued() -> Driver:
    """Somebody else holds the lock, we stand in line."""
    server = Server()
    server.take(OTHER, 30.0)
    server.join(TOKEN)
    return Driver(server, tokens=[TOKEN])


def lost_to(holder: str) -> Driver:
    """We held the lock, now somebody else does, or nobody."""
    driver = holding()
    driver.server.lose()
    if holder:
        driver.server.take(holder, 30.0)
    return driver


def releasing(*, in_time: bool = True, doubt: bool = False) -> Coroutine[Any, Any, bool]:
    return release(SPEC, TOKEN, in_time, doubt)


def numbers(driver: Callable[[], Driver], operation: Callable[[], Coroutine[Any, Any, object]]) -> range:
    """The requests of an operation, with one fault, so that those of the retry are among them."""
    trial = driver()
    trial.failing = some(Fault(Unknown("cut")), range(1), "release", "renew")
    trial.run(operation())
    return range(len(trial.trace))


def error_of(driver: Driver, operation: Coroutine[Any, Any, object]) -> BaseException | None:
    try:
        driver.run(operation)
    except BaseException as error:
        return error
    return None


# Release


@pytest.mark.parametrize("waiter", [False, True])
def test_release(waiter: bool) -> None:
    driver = holding(waiter=waiter)
    assert driver.run(releasing()) is True
    assert driver.server.current() == (WAITER if waiter else "")
    assert len(driver.trace) == 1, "one trip"


@pytest.mark.parametrize("fault", [*LOST, IN_A_MOMENT], ids=str)
@pytest.mark.parametrize("waiter", [False, True])
def test_release_in_spite_of_one_fault(fault: Fault, waiter: bool) -> None:
    driver = holding(waiter=waiter)
    driver.failing = first(fault, "release")
    assert driver.run(releasing()) is True, "whoever has it now got it from us"
    assert driver.server.current() == (WAITER if waiter else "")
    driver.late_copies_arrive()
    assert driver.server.current() == (WAITER if waiter else ""), "a late copy releases nobody else's"


def test_release_of_what_was_lost() -> None:
    for holder in (OTHER, ""):
        driver = lost_to(holder)
        assert driver.run(releasing()) is False
        assert driver.server.current() == holder


@pytest.mark.fault(17)
def test_a_resent_release_that_finds_another_value_is_success_only_before_the_deadline() -> None:
    """Row 17."""
    for in_time in (True, False):
        driver = holding(waiter=True)
        driver.failing = first(Fault(Unknown("cut"), applied=True), "release")
        assert driver.run(releasing(in_time=in_time)) is in_time


@pytest.mark.parametrize("fault", [*LOST, IN_A_MOMENT], ids=str)
def test_release_gives_up_after_three_tries(fault: Fault) -> None:
    driver = holding()
    driver.failing = always(fault, "release")
    with pytest.raises(type(fault.error)):
        driver.run(releasing())
    assert [kind_of(request) for request in driver.trace].count("release") == 3


def test_release_refused_for_good_is_not_repeated() -> None:
    driver = holding()
    driver.failing = always(FOR_GOOD, "release")
    with pytest.raises(Refused):
        driver.run(releasing())
    assert len(driver.trace) == 1


def test_release_in_doubt_refuses_the_copy_that_took_the_lock() -> None:
    driver = holding()
    assert driver.run(releasing(doubt=True)) is True
    assert isinstance(driver.server.acquire(TOKEN), Revoked)
    assert driver.nothing_left()


@pytest.mark.parametrize("waiter", [False, True])
@pytest.mark.parametrize("first_fault", [None, *LOST, IN_A_MOMENT], ids=str)
def test_release_interrupted_at_every_request(waiter: bool, first_fault: Fault | None) -> None:
    for number in numbers(lambda: holding(waiter=waiter), releasing):
        for interrupt in INTERRUPTS:
            driver = holding(waiter=waiter)
            driver.faults = {number: interrupt}
            driver.failing = first(first_fault, "release") if first_fault else never
            ended_with = error_of(driver, releasing())
            if number < len(driver.trace):
                assert ended_with is interrupt.error, f"{interrupt} at request {number}: never swallowed, never replaced"
            assert driver.nothing_left(), f"{interrupt} at request {number}, {driver.trace[-1]}"
            driver.late_copies_arrive()
            assert driver.nothing_left(), f"{interrupt} at request {number}, then a late copy"
            assert driver.server.current() == (WAITER if waiter else "")


# Renewal


def test_renew_sets_and_never_adds() -> None:
    driver = holding()
    driver.server.now += 10
    before = driver.server.now
    kept, sent, numbered = driver.run(renew(SPEC, TOKEN, 5.0, 1000.0))
    assert kept
    assert numbered
    assert sent == before
    assert driver.server.expires == pytest.approx(before + 5, abs=0.01)


@pytest.mark.parametrize("fault", [None, *LOST], ids=str)
def test_renew_counts_from_the_request_that_was_answered(fault: Fault | None) -> None:
    driver = holding()
    driver.failing = first(fault, "renew") if fault else never
    kept, sent, _ = driver.run(renew(SPEC, TOKEN, 30.0, 1000.0))
    assert kept
    assert sent + 30 <= driver.server.expires
    driver.late_copies_arrive()
    assert driver.server.current() == TOKEN


def test_renew_never_brings_back_what_is_lost() -> None:
    for holder in (OTHER, ""):
        driver = lost_to(holder)
        kept, _, _ = driver.run(renew(SPEC, TOKEN, 30.0, 1000.0))
        assert not kept
        assert driver.server.current() == holder


@pytest.mark.parametrize("fault", LOST, ids=str)
def test_renew_gives_up_after_three_tries(fault: Fault) -> None:
    driver = holding()
    driver.failing = always(fault, "renew")
    with pytest.raises(type(fault.error)):
        driver.run(renew(SPEC, TOKEN, 30.0, 1000.0))
    assert [kind_of(request) for request in driver.trace].count("renew") == 3


def test_a_late_copy_of_a_renewal_brings_nothing_back() -> None:
    for number in numbers(holding, lambda: renew(SPEC, TOKEN, 30.0, 1000.0)):
        for interrupt in INTERRUPTS:
            driver = holding()
            driver.faults = {number: interrupt}
            assert error_of(driver, renew(SPEC, TOKEN, 30.0, 1000.0)) in {interrupt.error, None}
            assert driver.server.current() == TOKEN, "an interrupted renewal is no release"
            driver.faults = {}
            assert driver.run(releasing())
            driver.late_copies_arrive()
            assert driver.nothing_left()


# Giving up


def attempt(*, pending: bool = True, doubt: bool = False) -> Attempt:
    return Attempt(SPEC, TOKEN, may_be_on_server=pending, maybe_in_flight=doubt)


def test_nothing_to_give_up_costs_nothing() -> None:
    driver = queued()
    driver.run(give_up(attempt(pending=False)))
    assert driver.trace == []


@pytest.mark.parametrize("start", [holding, queued])
@pytest.mark.parametrize("doubt", [False, True])
@pytest.mark.parametrize("fault", [None, *LOST, IN_A_MOMENT], ids=str)
def test_give_up_leaves_nothing(start: Callable[[], Driver], doubt: bool, fault: Fault | None) -> None:
    driver = start()
    driver.failing = first(fault, "release") if fault else never
    trying = attempt(doubt=doubt)
    driver.run(give_up(trying))
    assert driver.nothing_left()
    assert not trying.may_be_on_server
    assert driver.server.current() == ("" if start is holding else OTHER)


def test_give_up_hands_over_what_was_granted_meanwhile() -> None:
    driver = holding(waiter=True)
    driver.run(give_up(attempt()))
    assert driver.server.current() == WAITER


def test_give_up_in_doubt_declares_the_token_dead() -> None:
    driver = queued()
    driver.run(give_up(attempt(doubt=True)))
    assert isinstance(driver.server.acquire(TOKEN, join=True), Revoked)
    driver.server.release(OTHER)
    assert isinstance(driver.server.acquire(TOKEN, join=True), Revoked)


def test_give_up_without_an_answer_declares_the_token_dead() -> None:
    """The connection may be gone on which the lock was asked for, and with it the order of the two."""
    for fault in LOST:
        driver = queued()
        driver.failing = first(fault, "release")
        driver.run(give_up(attempt()))
        assert isinstance(driver.server.acquire(TOKEN, join=True), Revoked)


def test_give_up_never_raises_and_ends_in_less_than_a_second() -> None:
    for fault in [*LOST, IN_A_MOMENT, FOR_GOOD]:
        driver = holding()
        driver.failing = always(fault, "release")
        started = driver.server.now
        driver.run(give_up(trying := attempt()))
        assert driver.server.now - started < 1
        assert [call.args[:2] for call in driver.for_keeper] == [(TOKEN, "bury")] * (fault is not FOR_GOOD)
        assert not trying.may_be_on_server


def test_what_could_not_be_given_up_in_an_outage_is_given_up_after_it() -> None:
    for start in (holding, queued):
        driver = start()
        driver.failing = always(LOST[1], "release")
        driver.run(give_up(attempt()))
        driver.failing = never
        (call,) = driver.for_keeper
        driver.server.perform(call)
        assert driver.nothing_left()


@pytest.mark.parametrize("doubt", [False, True])
def test_give_up_that_is_refused_is_left_to_the_keeper(doubt: bool) -> None:
    """The rights may change, or the memory suffice, before the lease ends. Without doubt, the server has nothing of it."""
    driver = holding()
    driver.failing = always(FOR_GOOD, "release")
    trying = attempt(doubt=doubt)
    driver.run(give_up(trying))
    left = [request for request in driver.trace if isinstance(request, SendUntilAnswered)]
    assert len(left) == doubt
    assert not trying.may_be_on_server
    for request in left:
        assert request.until >= driver.server.now + SPEC.first_ttl
        driver.server.perform(request.call)
        assert driver.server.current() == ""
        assert isinstance(driver.server.acquire(TOKEN), Revoked)


@pytest.mark.parametrize("start", [holding, queued])
def test_give_up_interrupted_at_every_request_is_still_pending(start: Callable[[], Driver]) -> None:
    for number in numbers(start, lambda: give_up(attempt())):
        for interrupt in INTERRUPTS:
            driver = start()
            driver.faults = {number: interrupt}
            driver.failing = first(Fault(Unknown("cut")), "release") if number else never
            trying = attempt()
            with pytest.raises(type(interrupt.error)):
                driver.run(give_up(trying))
            assert trying.may_be_on_server, "or nobody would clean up"
            driver.undo(trying)
            driver.late_copies_arrive()
            assert driver.nothing_left()


def test_a_new_token_buries_the_old_one_if_in_doubt() -> None:
    for doubt in (False, True):
        driver = queued()
        trying = attempt(doubt=doubt)
        driver.run(start_over(trying))
        assert trying.token == driver.tokens[-1] != TOKEN
        assert (trying.may_be_on_server, trying.maybe_in_flight) == (False, False)
        assert isinstance(driver.server.acquire(TOKEN), Revoked) is doubt


def test_every_script_has_a_time_limit_far_below_the_lease() -> None:
    for operation in (releasing(), renew(SPEC, TOKEN, 30.0, 1000.0), give_up(attempt())):
        driver = holding()
        driver.run(operation)
        for request in driver.trace:
            if isinstance(request, RunScript):
                assert request.timeout <= SPEC.ttl / 10


def test_the_drift_allowance_is_one_percent_and_two_milliseconds() -> None:
    assert margin(30.0) == pytest.approx(0.302)


def test_wire_errors_say_where() -> None:
    for error in (NotSent("x", "here:1"), Unknown("x", "here:1"), Refused("BUSY x", "here:1")):
        assert isinstance(error, WireError)
        assert error.address == "here:1"
    transient = {"LOADING x": True, "BUSY x": True, "READONLY x": True, "NOREPLICAS x": True, "ERR x": False, "OOM x": False}
    assert {text: Refused(text).transient for text in transient} == transient


WRAPPED = "ERR Error running script (call to f_1c): @user_script:90: @user_script: 90: "


@pytest.mark.fault(44, 46, 49)
@pytest.mark.parametrize(
    ("said", "message", "code"),
    [
        (
            "READONLY You can't: no. script: on @user_script:9.",
            "READONLY You can't: no. script: on @user_script:9.",
            "READONLY",
        ),
        (f"{WRAPPED}-OOM not: allowed", "OOM not: allowed", "OOM"),
        (f"{WRAPPED}The user executing the script can't run this", "The user executing the script can't run this", "NOPERM"),
        ("ERR ACL failure in script: User x may not", "ERR ACL failure in script: User x may not", "NOPERM"),
        ("ERR Error running script", "ERR Error running script", "ERR"),
    ],
)
def test_errors_from_inside_a_script_are_known_in_every_servers_words(said: str, message: str, code: str) -> None:
    error = Refused(said, "here:1")
    assert (str(error), error.code) == (message, code)


def test_a_lease_that_was_renewed_is_revoked_until_it_would_have_ended() -> None:
    for latest, until in ((1100.0, 1100.0), (1001.0, 1000.0 + SPEC.timeout + SPEC.first_ttl)):
        driver = holding()
        driver.failing = always(LOST[1], "release")
        driver.run(give_up(attempt(), latest))
        (left,) = [request for request in driver.trace if isinstance(request, SendUntilAnswered)]
        assert left.until == pytest.approx(until, abs=1)


def test_what_is_given_up_without_waiting_is_revoked_until_its_lease_would_have_ended() -> None:
    trying = attempt()
    giving = give_up(trying)
    giving.send(None)
    assert isinstance(giving.throw(Dropped()), Now)
    request = giving.send(1000.0)
    assert isinstance(request, SendUntilAnswered)
    assert request.until == 1000.0 + trying.spec.timeout + trying.spec.first_ttl
    giving.close()
