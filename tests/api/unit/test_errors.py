"""One error tree, facts that survive pickling, messages of whole sentences."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import pytest

import holdfast
import holdfast.schedule
from holdfast import BrokenBarrier, Cycle, CycleWaiter, errors
from holdfast.errors import (
    CommandFailed,
    ConfigError,
    Deadlock,
    HolderChanged,
    HoldfastError,
    HoldfastWarning,
    InProgress,
    LeaseLost,
    LockTimeout,
    NoCandidate,
    NotHeld,
    QuorumError,
    ReleasedTooOften,
    ResultNotKept,
    ServerError,
    TicketRefused,
    TransactionConflict,
)
from holdfast.schedule import Cancelled, JobFailed

FACTS: dict[type[HoldfastError], dict[str, Any]] = {
    HoldfastError: {},
    LockTimeout: {"name": "x", "key": "hf:{x}", "waited": 1.5, "holder": "host:7 (me)", "remaining": 2.5, "foreign": False},
    InProgress: {
        "name": "x",
        "key": "hf:once:{x}",
        "waited": 0.0,
        "holder": "host:7",
        "remaining": 9.5,
        "since": 3.5,
    },
    Deadlock: {
        "name": "x",
        "key": "hf:{x}",
        "cycle": Cycle((CycleWaiter("hf:{x}", "hf:{y}", "host", 7, "me", "MainThread", 1.5),)),
    },
    LeaseLost: {"name": "x", "key": "hf:{x}", "fence": 1_700_000_000_000_000, "reason": "its key is gone"},
    NoCandidate: {"name": "x", "key": "hf:{x}", "candidate": "b", "candidates": ("c",)},
    BrokenBarrier: {"name": "x", "key": "hf:{x}", "reason": "died", "by": "host:7 (me)"},
    NotHeld: {"name": "x", "key": "hf:{x}"},
    HolderChanged: {"name": "x", "key": "hf:{x}"},
    ReleasedTooOften: {"name": "x", "key": "hf:{x}"},
    ResultNotKept: {"name": "x", "key": "hf:once:{x}", "fence": 1_700_000_000_000_000, "reason": "too large"},
    TicketRefused: {"name": "x", "key": "hf:{x}", "reason": "used"},
    QuorumError: {"name": "x", "nodes": {"one:1": "busy", "two:2": "no answer"}},
    TransactionConflict: {"keys": ("a", "b"), "tries": 16, "waited": 1.5},
    CommandFailed: {"keys": ("a",), "results": [True, None], "failed": {1: "INCRBY 'a': not an integer"}},
    ServerError: {"address": "localhost:6379", "code": "NOPERM", "name": "x", "key": "hf:{x}"},
    ConfigError: {"parameter": "ttl"},
    JobFailed: {},
    Cancelled: {},
}
ELSEWHERE = {JobFailed, Cancelled, BrokenBarrier}
"""Errors that are defined beside the code that raises them."""

BESIDES: dict[type[HoldfastError], type[Exception]] = {
    LockTimeout: TimeoutError,
    InProgress: TimeoutError,
    BrokenBarrier: threading.BrokenBarrierError,
    NotHeld: RuntimeError,
    ReleasedTooOften: ValueError,
    NoCandidate: LookupError,
    ConfigError: ValueError,
}


def test_one_tree() -> None:
    found = {thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, Exception)}
    assert found - {HoldfastWarning} == set(FACTS) - ELSEWHERE
    for cls in FACTS:
        assert issubclass(cls, HoldfastError)
        assert getattr(holdfast.schedule if cls in {JobFailed, Cancelled} else holdfast, cls.__name__) is cls
    assert issubclass(HoldfastWarning, UserWarning)
    assert not issubclass(HoldfastWarning, HoldfastError)


@pytest.mark.parametrize("cls", BESIDES)
def test_caught_by_the_builtin_too(cls: type[HoldfastError]) -> None:
    assert issubclass(cls, BESIDES[cls])
    with pytest.raises(BESIDES[cls], match="what happened"):
        raise cls("what happened", **FACTS[cls])


@pytest.mark.parametrize("cls", FACTS)
def test_facts_are_attributes(cls: type[HoldfastError]) -> None:
    error = cls("what happened", **FACTS[cls])
    assert str(error) == "what happened"
    assert error.args == ("what happened",)
    assert {fact: getattr(error, fact) for fact in FACTS[cls]} == FACTS[cls]
    documented = {fact for fact in cls.__annotations__ if not fact.startswith("_")}
    assert documented <= set(FACTS[cls]), "every documented fact is among those tested"


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("cls", FACTS)
def test_pickled_with_facts_and_notes(cls: type[HoldfastError], protocol: int) -> None:
    error = cls("what happened", **FACTS[cls])
    error.add_note("and then")
    for twin in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error), copy.deepcopy(error)):  # noqa: S301
        assert type(twin) is cls
        assert (str(twin), twin.args, twin.__dict__) == (str(error), error.args, error.__dict__)
        assert twin.__notes__ == ["and then"]


def test_a_job_says_that_it_was_cancelled_with_or_without_words() -> None:
    for error in (Cancelled(), Cancelled("enough")):
        twin = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert (type(twin), str(twin)) == (Cancelled, str(error))


def test_a_subclass_with_a_constructor_of_its_own_is_pickled_too() -> None:
    twin = pickle.loads(pickle.dumps(Odd(7)))  # noqa: S301
    assert (type(twin), str(twin), twin.number) == (Odd, "odd: 7", 7)


class Odd(LockTimeout):
    def __init__(self, number: int) -> None:
        super().__init__(f"odd: {number}", number=number)


def test_documented_in_the_module() -> None:
    assert errors.__doc__
    for cls in FACTS:
        assert cls.__name__ in errors.__doc__
        assert cls.__doc__
