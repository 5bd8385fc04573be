"""A lock that replicas must have, too: what is believed of the answers to the renewal and to WAIT."""

from __future__ import annotations

import pytest

from holdfast._core.lock.records import Attempt, Grant, margin
from holdfast._core.lock.replication import acknowledged
from holdfast._core.requests import Answer, Now, Refused, Replicate
from unit.driver import spec

SPEC = spec(ttl=10.0, replicas=2)


def answered(state: int, replicas: int, takes: float = 0.001) -> Grant:
    """The grant of a lock that was taken just now, where the server answers this."""
    operation = acknowledged(Grant(Attempt(SPEC, "aaaaaaaaaaaa.1"), 7, 1000.0, 1002.0, claim=True))
    assert isinstance(operation.send(None), Now)
    assert isinstance(operation.send(1000.0), Replicate)
    with pytest.raises(StopIteration) as ended:
        operation.send(Answer(([state], replicas), 1000.0, 1000.0 + takes))
    assert isinstance(ended.value.value, Grant)
    return ended.value.value


def test_a_lock_that_enough_replicas_have_is_held_for_its_full_lease() -> None:
    grant = answered(1, 2)
    assert (grant.deadline, grant.claim) == (1010.0 - margin(10.0), False)


@pytest.mark.parametrize("state", [0, -1, 2])
def test_a_lock_that_was_lost_before_it_was_replicated_is_not_held(state: int) -> None:
    with pytest.raises(Refused, match="it was lost before the replicas had acknowledged it"):
        answered(state, 2)


def test_an_answer_that_came_when_the_lease_was_over_is_no_lock() -> None:
    with pytest.raises(Refused, match="it was lost before"):
        answered(1, 2, takes=10.0)


def test_a_lock_that_too_few_replicas_have_is_not_held() -> None:
    with pytest.raises(Refused, match="1 of 2 replicas acknowledged it"):
        answered(1, 1)
