"""The requests of single flight, one after the other: how long they are repeated, and what a load says when it ends."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from holdfast._core.lock.records import Attempt, Grant
from holdfast._core.lock.spec import margin
from holdfast._core.requests import Answer, KeepAlive, Now, Refused, Request, RunScript
from holdfast._core.single_flight import flight
from holdfast._core.single_flight.entry import GET_OR_LEASE, FoundValue, LoadGranted, LookupPolicy, fresh
from holdfast._core.single_flight.flight import RETRY_AFTER_S, Load
from holdfast._lua import codes
from support.driver import Driver, Fault, always
from support.memory_server import Server

SITE = flight.entry_spec("hf:cache:", "g", "x", lease=2.0)


def test_a_request_is_repeated_while_the_server_is_loading_and_no_longer() -> None:
    driver = Driver(Server(), failing=always(Fault(Refused("LOADING the dataset")), "delete"))
    began = driver.server.now
    with pytest.raises(Refused):
        driver.run(flight.delete(SITE))
    assert SITE.outage_budget - 2 * RETRY_AFTER_S < driver.server.now - began < SITE.outage_budget


def test_who_is_not_to_load_asks_for_no_lease() -> None:
    token, lease, *_ = flight._lookup(SITE, LookupPolicy(load=False)).args
    assert (token, lease) == ("", 0)


def test_a_value_with_tags_is_read_at_a_glance() -> None:
    found = fresh([b"1 v 100 200 0 1 t u\ndata", None, b"0"])
    assert found is not None
    assert (found.kind, found.data, found.fence) == ("v", b"data", 100)


def requests_of(operation: Coroutine[Any, Any, object]) -> list[Request[Any]]:
    """Return the requests if the server says yes."""
    trace, reply = list[Request[Any]](), None
    try:
        while True:
            request = operation.send(reply)
            trace.append(request)
            answers = {Now: 1000.0, RunScript: Answer(1, 1000.0, 1000.0)}
            reply = answers.get(type(request))
    except StopIteration:
        return trace


def test_the_lease_of_a_load_counts_from_when_it_was_asked_for() -> None:
    attempt = Attempt(SITE.spec, "0123456789ab.0")
    turn = flight._interpret(SITE, attempt, Answer(LoadGranted(7, None), 1000.0, 1000.5))
    keep_alive = turn.send(None)
    assert isinstance(keep_alive, KeepAlive)
    assert keep_alive.held.held_lease.deadline == 1002.0 - margin(2.0)
    turn.close()


@pytest.mark.parametrize(("doubt", "how"), [(False, "release"), (True, "bury")])
def test_a_load_that_may_have_been_asked_for_twice_refuses_late_copies(doubt: bool, how: str) -> None:
    attempt = Attempt(SITE.spec, "0123456789ab.0", may_be_on_server=True, maybe_in_flight=doubt)
    load = Load(SITE, Grant(attempt, 7, 1000.0, 1002.0), None)
    (landing,) = [
        each for each in requests_of(flight.store_loaded(load, "v", b"data", ttl=60.0)) if isinstance(each, RunScript)
    ]
    assert landing.args[:3] == ("0123456789ab.0", 7, how)


def test_how_long_a_stored_value_lasts_is_read_in_seconds() -> None:
    value = b"1 v 100 200 0 1\ndata"
    granted, found = (GET_OR_LEASE.parse(raw) for raw in ([codes.LEASED, 7, value, 1500], [1, value, 1500]))
    assert isinstance(granted, LoadGranted)
    assert isinstance(found, FoundValue)
    assert granted.record == found.record
    assert found.record.left == 1.5
