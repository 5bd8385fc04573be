"""A lock that replicas must have, too: what is believed of the answers to the renewal and to WAIT."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast._clock import clock
from holdfast._core.lock.records import Attempt, Grant
from holdfast._core.lock.replication import acknowledged
from holdfast._core.lock.replies import RENEW
from holdfast._core.lock.spec import margin
from holdfast._core.requests import Answer, Command, Now, Refused, Replicate, RunScript
from holdfast._net.endpoint import Endpoint
from holdfast._net.protocol import ReplyError
from holdfast._net.sync_pool import Pool
from holdfast._net.wait_connection import Dedicated
from holdfast._runtime.drivers.replication import replicate
from holdfast._runtime.drivers.sync import Driver
from support.driver import spec

SPEC = spec(ttl=10.0, replicas=2)


def answered(state: int, replicas: int, takes: float = 0.001) -> Grant:
    """The grant of a lock that was taken just now, where the server answers this."""
    operation = acknowledged(Grant(Attempt(SPEC, "aaaaaaaaaaaa.1"), 7, 1000.0, 1002.0, in_claim_window=True))
    assert isinstance(operation.send(None), Now)
    assert isinstance(operation.send(1000.0), Replicate)
    with pytest.raises(StopIteration) as ended:
        operation.send(Answer(([state], replicas), 1000.0, 1000.0 + takes))
    assert isinstance(ended.value.value, Grant)
    return ended.value.value


def test_a_lock_that_enough_replicas_have_is_held_for_its_full_lease() -> None:
    grant = answered(1, 2)
    assert (grant.deadline, grant.in_claim_window) == (1010.0 - margin(10.0), False)


@pytest.mark.parametrize("state", [0, -1, 2])
def test_a_lock_that_was_lost_before_it_was_replicated_is_not_held(state: int) -> None:
    with pytest.raises(Refused, match="the lock was lost before the replicas acknowledged it"):
        answered(state, 2)


def test_an_answer_that_came_when_the_lease_was_over_is_no_lock() -> None:
    with pytest.raises(Refused, match="the lock was lost before"):
        answered(1, 2, takes=10.0)


def test_a_lock_that_too_few_replicas_have_is_not_held() -> None:
    with pytest.raises(Refused, match="1 of 2 replicas acknowledged the lock"):
        answered(1, 1)


REQUEST = RunScript(RENEW, SPEC.keys, ("token", 10_000), 1.0)


def test_a_lease_that_replicas_have_counts_from_before_the_request() -> None:
    asked = list[float]()
    pool = Pool(Endpoint())

    def answer(*_: object) -> tuple[list[int], int]:
        asked.append(clock())
        while clock() == asked[0]:
            pass
        return [1], 1

    pool.dedicated = SimpleNamespace(replicate=answer)  # type: ignore[assignment]
    process: Any = SimpleNamespace(pool=lambda _endpoint: pool)
    assert replicate(process, Endpoint(), Replicate(REQUEST, 1, 1.0)).sent <= asked[0]


def test_the_wait_that_counts_is_the_one_behind_the_write() -> None:
    """The server does not know the script. WAIT behind it answers at once, as nothing was written on its connection."""
    dedicated = Dedicated(Endpoint())
    for replies in ([[1], 0], [ReplyError("NOSCRIPT No matching script."), 1]):  # the last one is used first
        connection: Any = SimpleNamespace(
            **dict.fromkeys(("set_timeout", "send", "close"), lambda *_: None), receive=lambda replies=replies: replies
        )
        dedicated._idle.append(connection)
    assert dedicated.replicate(REQUEST, 1, 0.01) == ([1], 0)


def test_a_plain_command_that_is_refused_raises() -> None:
    pool: Any = SimpleNamespace(exchange=lambda *_: ReplyError("ERR unknown command"), clear=lambda: None)
    process: Any = SimpleNamespace(pool=lambda _endpoint: pool, clock=clock)
    with pytest.raises(Refused, match="unknown command"):
        Driver(process, Endpoint()).ask(Command(("NONSENSE",), 1.0))
