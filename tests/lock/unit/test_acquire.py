"""Taking a lock, with everything going wrong at every single request: nothing is left behind, nobody else is disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from holdfast._core.lock.acquire import ON_ONE_SERVER, KeyConflict, acquire
from holdfast._core.lock.records import Attempt, Grant
from holdfast._core.lock.replies import GRACE_S, Busy
from holdfast._core.lock.spec import milliseconds
from holdfast._core.requests import Command, NotSent, Refused, Request, RunScript, TimedOut, Unknown, WireError
from lock.unit.scenarios import SCENARIOS, Scenario, freed, held, holder_releases, nothing
from support.driver import OTHER, Driver, Fault, always, an_attempt, first, kind_of, some, spec
from support.memory_server import Server

INTERRUPTS = [Fault(kind(), applied) for kind in (asyncio.CancelledError, KeyboardInterrupt) for applied in (False, True)]
WIRE_FAULTS = [
    Fault(NotSent("no connection")),
    Fault(Unknown("no answer")),
    Fault(Unknown("no answer"), applied=True),
    Fault(Refused("LOADING the dataset")),
    Fault(Refused("ERR something else")),
]


def attempted(scenario: Scenario) -> tuple[Driver, Attempt]:
    return scenario.driver(), an_attempt(scenario.spec)


def result_of(driver: Driver, attempt: Attempt, scenario: Scenario) -> Grant | Busy | BaseException:
    try:
        return driver.run(acquire(attempt, scenario.wait, ON_ONE_SERVER))
    except BaseException as error:
        return error


def requests(scenario: Scenario) -> list[Request[object]]:
    driver, attempt = attempted(scenario)
    result_of(driver, attempt, scenario)
    return driver.trace


def scripts(driver: Driver) -> list[str]:
    return [kind_of(request) for request in driver.trace if isinstance(request, RunScript)]


def check_grant(driver: Driver, grant: Grant) -> None:
    server = driver.server
    assert server.current() == grant.attempt.token == driver.tokens[-1]
    assert server.fence == grant.fence
    assert server.now < grant.deadline <= server.expires, "believed only while the server keeps it"
    assert not set(server.queue) & set(driver.tokens)


def faulty_runs(scenario: Scenario, faults: list[Fault]) -> Iterator[tuple[str, Driver, Attempt, int]]:
    for number, request in enumerate(requests(scenario)):
        for fault in faults:
            if isinstance(fault.error, WireError) and not isinstance(request, RunScript | Command):
                continue
            driver, attempt = attempted(scenario)
            driver.faults = {number: fault}
            yield f"{fault} at request {number}, {type(request).__name__}", driver, attempt, number


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_without_faults(scenario: Scenario) -> None:
    driver, attempt = attempted(scenario)
    result = result_of(driver, attempt, scenario)
    assert isinstance(result, Grant) == scenario.granted, repr(result)
    if isinstance(result, Grant):
        check_grant(driver, result)
    else:
        assert not attempt.may_be_on_server
        assert driver.nothing_left()
    assert not len(driver.waiting), "nobody is waited for any more"


@pytest.mark.fault(8, 9, 11)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_interrupted_at_every_request(scenario: Scenario) -> None:
    """Rows 8, 9, 11: a cancelled or interrupted acquire leaves neither lock nor place, now or when a late copy arrives."""
    for what, driver, attempt, _ in faulty_runs(scenario, INTERRUPTS):
        error = next(iter(driver.faults.values())).error
        result = result_of(driver, attempt, scenario)
        assert result is error, what
        driver.undo(attempt)
        assert driver.nothing_left(), what
        driver.server.release(OTHER)  # a late copy would find the lock free
        driver.late_copies_arrive()
        assert driver.nothing_left(), f"{what}, then a late copy"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_wire_fault_at_every_request(scenario: Scenario) -> None:
    """A lost request, a lost reply, a refusal: a lock that is believed is held, one that is not believed is not."""
    for what, driver, attempt, number in faulty_runs(scenario, WIRE_FAULTS):
        result = result_of(driver, attempt, scenario)
        fault = driver.faults[number]
        request = driver.trace[number]
        driver.deliver()
        if isinstance(result, Grant):
            check_grant(driver, result)
            driver.late_copies_arrive()
            check_grant(driver, result)
            continue
        assert isinstance(result, Busy | WireError | KeyConflict), f"{what}: {result!r}"
        assert not attempt.may_be_on_server, what
        if isinstance(fault.error, Refused) and not fault.error.transient and kind_of(request) == "release":
            continue  # the clean-up itself is refused for good: the claim window and the lease end what is there
        assert driver.nothing_left(), what
        driver.server.release(OTHER)  # a late copy would find the lock free
        driver.late_copies_arrive()
        assert driver.nothing_left(), f"{what}, then a late copy"


@pytest.mark.parametrize("scenario", [s for s in SCENARIOS if s.name in {"free", "handed over", "time runs out"}], ids=str)
def test_interrupted_while_the_server_is_in_trouble(scenario: Scenario) -> None:
    """Two faults: an interruption anywhere, and one lost answer anywhere else."""
    count = len(requests(scenario)) + 3
    for one in range(count):
        for second in range(count):
            for lost in WIRE_FAULTS[1:3]:
                driver, attempt = attempted(scenario)
                driver.faults = {one: Fault(asyncio.CancelledError(), applied=True), second: lost}
                result = result_of(driver, attempt, scenario)
                if isinstance(result, Grant):
                    continue
                driver.undo(attempt)
                what = f"cancelled at {one}, {lost} at {second}"
                assert driver.nothing_left(), what
                driver.late_copies_arrive()
                assert driver.nothing_left(), what


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_interrupted_twice(scenario: Scenario) -> None:
    """A second interrupt hits the clean-up after the first; the API then starts the clean-up again."""
    for number in range(len(requests(scenario))):
        for applied in (False, True):
            driver, attempt = attempted(scenario)
            driver.faults = {number: Fault(KeyboardInterrupt(), applied), number + 1: Fault(KeyboardInterrupt())}
            assert isinstance(result_of(driver, attempt, scenario), KeyboardInterrupt)
            driver.undo(attempt)
            driver.late_copies_arrive()
            assert driver.nothing_left(), f"at request {number}"


def test_one_trip_when_free() -> None:
    driver = Driver(freed())
    assert isinstance(driver.run(acquire(an_attempt(spec()), None, ON_ONE_SERVER)), Grant)
    assert scripts(driver) == ["acquire"]


def test_one_trip_when_busy_and_not_patient() -> None:
    driver = Driver(held())
    busy = driver.run(acquire(an_attempt(spec()), 0.0, ON_ONE_SERVER))
    assert isinstance(busy, Busy)
    assert scripts(driver) == ["acquire"]
    assert driver.server.queue == []


@pytest.mark.parametrize("name", ["busy, no patience", "answered after the lease"])
def test_never_queued_with_wait_0(name: str) -> None:
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == name)
    driver, attempt = attempted(scenario)
    driver.run(acquire(attempt, 0.0, ON_ONE_SERVER))
    joins = [
        request.args[2] for request in driver.trace if isinstance(request, RunScript) and request.script.name == "lock/acquire"
    ]
    assert not any(joins)


def test_two_scripts_for_a_hand_over() -> None:
    """Once refused, once queued; the hand-over itself costs the waiter no trip."""
    driver = Driver(held(), events=[holder_releases])
    grant = driver.run(acquire(an_attempt(spec()), None, ON_ONE_SERVER))
    assert isinstance(grant, Grant)
    assert grant.in_claim_window
    assert scripts(driver) == ["acquire", "acquire"]


def test_without_renewal_the_claim_is_made_a_full_lease() -> None:
    driver = Driver(held(), events=[holder_releases])
    grant = driver.run(acquire(an_attempt(spec(renew=False)), None, ON_ONE_SERVER))
    assert isinstance(grant, Grant)
    assert not grant.in_claim_window
    assert driver.server.expires - driver.server.now == pytest.approx(30, abs=0.1)


def test_busy_says_who_holds_it_even_if_the_queue_was_never_reached() -> None:
    """The first answer is not forgotten when the inbox does not open in time."""
    driver = Driver(held(), enlist_outcome=TimedOut())
    busy = driver.run(acquire(an_attempt(spec()), 1.0, ON_ONE_SERVER))
    assert isinstance(busy, Busy)
    assert busy.process == OTHER.split(".", 1)[0]
    assert busy.remaining == pytest.approx(20, abs=1.5)


def test_max_hold_bounds_the_first_lease() -> None:
    driver = Driver(freed())
    driver.run(acquire(an_attempt(spec(max_hold=1.0)), None, ON_ONE_SERVER))
    run = next(request for request in driver.trace if isinstance(request, RunScript))
    assert run.args[1] == milliseconds(1.0)


def test_an_answer_is_waited_for_a_little_longer_than_the_lock() -> None:
    driver = Driver(freed())
    driver.run(acquire(an_attempt(spec()), 0.1, ON_ONE_SERVER))
    run = next(request for request in driver.trace if isinstance(request, RunScript))
    assert run.timeout == pytest.approx(min(spec().timeout, 0.1 + GRACE_S))


def test_it_was_taken_when_the_answer_came() -> None:
    driver = Driver(freed())
    driver.slow = {("acquire", 0): 5.0}
    grant = driver.run(acquire(an_attempt(spec()), None, ON_ONE_SERVER))
    assert isinstance(grant, Grant)
    assert grant.taken == driver.server.now


def test_a_hand_over_that_was_read_too_late_is_not_believed() -> None:
    """The thread slept through its claim window after the keeper had put the grant."""
    server = held()

    def slow_wake_up(kind: str, nth: int) -> None:
        if (kind, nth) == ("Delist", 0):
            server.now += 5.0

    driver = Driver(server, events=[holder_releases], before=slow_wake_up)
    grant = driver.run(acquire(an_attempt(spec()), None, ON_ONE_SERVER))
    assert isinstance(grant, Grant)
    check_grant(driver, grant)


def test_the_message_of_a_grant_that_was_learnt_by_asking_does_no_harm() -> None:
    """The answer that put us into the queue is lost, the lock is handed over, asking again says "held"; then the message of
    that hand-over is read at last. It must not give the lock back."""
    server = held()
    unread: list[tuple[bytes, bytes]] = []

    def released_meanwhile(kind: str, nth: int) -> None:
        if (kind, nth) == ("acquire", 2):
            holder_releases(server)
            unread.extend(server.published)
            server.published.clear()

    driver = Driver(
        server, failing=some(Fault(Unknown("cut"), applied=True), range(1, 2), "acquire"), before=released_meanwhile
    )
    grant = driver.run(acquire(an_attempt(spec(ttl=10.0)), None, ON_ONE_SERVER))
    assert isinstance(grant, Grant)
    assert [message for _, message in unread] == [f"1 {grant.attempt.token} {grant.fence}".encode()]
    server.published.extend(unread)
    driver.deliver()
    check_grant(driver, grant)


def test_a_claim_that_ended_while_it_was_confirmed_leaves_no_place() -> None:
    """Not renewed: the claim is confirmed by asking again, which may find somebody else there and stands in line."""
    server = held()

    def stolen(kind: str, nth: int) -> None:
        if (kind, nth) == ("acquire", 2):
            server.now += 2.5
            server.take("cccccccccccc.7", 60)

    driver = Driver(server, events=[holder_releases, nothing], before=stolen)
    result = driver.run(acquire(an_attempt(spec(renew=False)), 2.0, ON_ONE_SERVER))
    assert isinstance(result, Busy)
    assert driver.nothing_left()


def test_a_lost_first_answer_is_asked_for_again_with_the_same_token() -> None:
    for applied in (False, True):
        driver = Driver(freed(), failing=first(Fault(Unknown("cut"), applied), "acquire"))
        grant = driver.run(acquire(an_attempt(spec()), None, ON_ONE_SERVER))
        assert isinstance(grant, Grant)
        assert [request.args[0] for request in driver.trace if isinstance(request, RunScript)] == [driver.tokens[0]] * 2
        check_grant(driver, grant)
        assert grant.attempt.maybe_in_flight, "whoever gives it back has to see to the late copy"


def test_a_server_that_never_answers_is_given_up_after_three_tries() -> None:
    driver = Driver(freed(), failing=always(Fault(Unknown("cut")), "acquire", "release"))
    with pytest.raises(Unknown):
        driver.run(acquire(an_attempt(spec()), None, ON_ONE_SERVER))
    assert scripts(driver) == ["acquire"] * 3 + ["release"] * 2


def test_no_connection_at_first_contact_is_an_error_at_once() -> None:
    driver = Driver(freed(), failing=always(Fault(NotSent("nobody there")), "acquire"))
    with pytest.raises(NotSent):
        driver.run(acquire(an_attempt(spec()), None, ON_ONE_SERVER))
    assert scripts(driver)[:2] == ["acquire", "release"]


def test_first_contact_overruns_the_wait_by_little() -> None:
    driver = Driver(freed(), failing=always(Fault(Unknown("cut")), "acquire", "release"))
    started = driver.server.now
    with pytest.raises(Unknown):
        driver.run(acquire(an_attempt(spec()), 0.5, ON_ONE_SERVER))
    assert driver.server.now - started < 0.5 + 1.1


def test_a_server_that_starts_is_waited_for() -> None:
    driver = Driver(Server(), failing=some(Fault(Refused("LOADING the dataset")), range(6), "acquire"))
    assert isinstance(driver.run(acquire(an_attempt(spec()), 5.0, ON_ONE_SERVER)), Grant)


@pytest.mark.parametrize(("wait", "seconds"), [(None, 40.0), (7.0, 7.0), (50.0, 50.0)])
@pytest.mark.parametrize("fault", [Fault(NotSent("away")), Fault(Unknown("cut")), Fault(Refused("LOADING"))], ids=str)
def test_an_absence_is_ridden_out_while_queued(wait: float | None, seconds: float, fault: Fault) -> None:
    """Until ``wait`` has passed; without one for max(ttl, 30 s)."""
    driver = Driver(held(1000.0), failing=some(fault, range(1, 10**6), "acquire"))
    started = driver.server.now
    with pytest.raises(WireError):
        driver.run(acquire(an_attempt(spec(ttl=40.0)), wait, ON_ONE_SERVER))
    assert seconds <= driver.server.now - started < seconds + 12
    assert driver.nothing_left()


def test_an_absence_that_ends_costs_only_time() -> None:
    server = held(1000.0)
    driver = Driver(server, events=[holder_releases])
    driver.failing = some(Fault(NotSent("away")), range(1, 10), "acquire")
    grant = driver.run(acquire(an_attempt(spec()), 60.0, ON_ONE_SERVER))
    assert isinstance(grant, Grant)
    check_grant(driver, grant)


def test_an_inbox_that_reconnects_while_we_join_does_not_end_the_wait() -> None:
    driver = Driver(held(), events=[holder_releases])

    def reconnects(kind: str, nth: int) -> None:
        if (kind, nth) == ("acquire", 1):
            driver.waiting.on_silence()
            driver.waiting.on_listening(driver.server.now, b"hf:")

    driver.before = reconnects
    grant = driver.run(acquire(an_attempt(spec()), None, ON_ONE_SERVER))
    assert isinstance(grant, Grant), "wait=None waits for ever"
    check_grant(driver, grant)
