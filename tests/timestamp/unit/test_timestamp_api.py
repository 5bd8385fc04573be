"""The timestamp lock: its two APIs are one, its values are read as they are meant, and its lease is not believed too long."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

from holdfast import legacy
from holdfast._core import timestamp
from holdfast._core.lock.spec import margin
from holdfast._core.requests import Answer, Command, NotSent, Now, Request, RunScript, Sleep, UnixTime
from holdfast._core.timestamp import Stamp, Strange, TimestampState, read
from holdfast.legacy import aio
from holdfast.legacy._shared import AioBase, Base
from holdfast.testing.keyspace import Keyspace
from house.test_architecture import as_sync, described, signatures

PAIRS = [
    (legacy.TimestampLock, aio.TimestampLock),
    (legacy.TimestampLease, aio.TimestampLease),
    (legacy.Migrating, aio.Migrating),
    (legacy.MigratingLease, aio.MigratingLease),
    (Base, AioBase),
]


@pytest.mark.parametrize(("sync", "asynchronous"), PAIRS)
def test_both_apis_say_the_same(sync: type, asynchronous: type) -> None:
    assert {member: as_sync(text) for member, text in described(asynchronous).items()} == {
        member: as_sync(text) for member, text in described(sync).items()
    }


@pytest.mark.parametrize(("sync", "asynchronous"), PAIRS)
def test_both_apis_take_the_same_arguments(sync: type, asynchronous: type) -> None:
    assert signatures(asynchronous) == signatures(sync)


@pytest.mark.parametrize(("sync", "asynchronous"), PAIRS)
def test_what_needs_the_server_is_awaited_and_nothing_else(sync: type, asynchronous: type) -> None:
    for member, thing in vars(asynchronous).items():
        if inspect.isfunction(thing) and not member.startswith("_"):
            assert inspect.iscoroutinefunction(thing), member
            assert not inspect.iscoroutinefunction(vars(sync)[member])


SECONDS, MILLISECONDS = (Stamp(b"x", 5.0, unit, False, 1.0) for unit in (1, 1000))


@pytest.mark.parametrize(
    ("stamp", "wall", "ttl", "value"),
    [
        (SECONDS, 1_700_000_000.0, 5.0, b"1700000006"),
        (SECONDS, 1_700_000_000.9, 5.0, b"1700000006"),
        (SECONDS, 1_700_000_000.0, 0.25, b"1700000002"),
        (MILLISECONDS, 1_700_000_000.5, 5.0, b"1700000005501"),
        (MILLISECONDS, 1_700_000_000.5, 0.25, b"1700000000751"),
    ],
)
def test_what_is_written(stamp: Stamp, wall: float, ttl: float, value: bytes) -> None:
    assert stamp.value(wall, ttl) == value
    assert read(stamp, value) >= wall + ttl, "never earlier than it is believed"


@pytest.mark.parametrize(
    "raw", [b"1700000000", b" 1700000000\r\n", b"1700000000.0", b"1700000000.", b"01700000000", b"1700000000\0"]
)
def test_what_is_read(raw: bytes) -> None:
    assert read(SECONDS, raw) == 1_700_000_000
    with pytest.raises(Strange, match="a Unix time in seconds, but this lock counts in milliseconds"):
        read(MILLISECONDS, raw)


@pytest.mark.parametrize(
    "raw", [b"", b" ", b".5", b"17e8", b"0x6553f100", b"1700000000s", b"-1700000000", b"17 00000000", b"9" * 17]
)
def test_what_is_not_read(raw: bytes) -> None:
    for stamp in (SECONDS, MILLISECONDS):
        with pytest.raises(Strange):
            read(stamp, raw)


class Machine:
    """A client and its server, whose keys are real, and whose clocks agree.

    ``away``: nothing can be sent. ``slow``: seconds from the moment at which a script runs to its reply.
    """

    def __init__(self, slow: float = 0.0) -> None:
        self.now = 1_700_000_000.0
        self.slow = slow
        self.server = Keyspace()
        self.away = False

    def run(self, operation: Coroutine[Any, Any, Any]) -> Any:
        try:
            request = operation.send(None)
            while True:
                if self.away and isinstance(request, RunScript | Command):
                    request = operation.throw(NotSent("no connection"))
                else:
                    request = operation.send(self._do(request))
        except StopIteration as stop:
            return stop.value

    def _do(self, request: Request[Any]) -> Any:
        self.server.now = round(self.now * 1e6)
        match request:
            case Now() | UnixTime():
                return self.now
            case Sleep(seconds):
                self.now += seconds
            case Command():
                return Answer(self.server.execute(*request.args), self.now, self.now)
            case RunScript():
                sent, raw = self.now, self.server.run(request.script, request.keys, request.args)
                self.now += self.slow
                return Answer(request.script.parse(raw), sent, self.now)
        return None

    def taken(self, stamp: Stamp) -> TimestampState:
        hold = TimestampState()
        assert self.run(timestamp.attempt(stamp, hold)) is None
        return hold

    def remaining(self, hold: TimestampState) -> float:
        return float(self.run(timestamp.remaining(hold)))


BY_THE_SERVER = Stamp(b"x", 5.0, 1000, True, 1.0)


@pytest.mark.parametrize("stamp", [SECONDS, MILLISECONDS, BY_THE_SERVER])
def test_what_is_believed_is_less_than_what_is_written(stamp: Stamp) -> None:
    """The clocks may run at different speed: the allowance is that of every lease."""
    machine = Machine()
    hold = machine.taken(stamp)
    assert machine.remaining(hold) == pytest.approx(5.0 - margin(5.0), abs=1e-6)
    assert machine.run(timestamp.renew(stamp, hold, 3.0)) is True
    assert machine.remaining(hold) == pytest.approx(3.0 - margin(3.0), abs=1e-6)


def test_a_lock_by_the_clock_of_a_slow_server_is_believed_no_longer_than_its_key_says() -> None:
    machine = Machine(slow=0.3)
    hold = machine.taken(BY_THE_SERVER)
    ends = read(BY_THE_SERVER, machine.server.execute("GET", "x"))
    assert machine.now < machine.now + machine.remaining(hold) <= ends


@pytest.mark.parametrize("ttl", [2.0, 60.0])
def test_a_renewal_without_an_answer_makes_it_shorter_and_never_longer(ttl: float) -> None:
    machine = Machine()
    hold = machine.taken(MILLISECONDS)
    machine.away = True
    with pytest.raises(NotSent):
        machine.run(timestamp.renew(MILLISECONDS, hold, ttl))
    shorter = min(ttl, 5.0)
    assert machine.remaining(hold) <= shorter - margin(shorter) + 1e-6
    machine.away = False
    assert machine.run(timestamp.release(MILLISECONDS, hold)) is True
    assert machine.server.execute("EXISTS", "x") == 0


def test_a_release_deletes_no_value_of_somebody_else() -> None:
    machine = Machine()
    hold = machine.taken(MILLISECONDS)
    theirs = b"1700000009999"
    machine.server.execute("SET", "x", theirs)
    assert machine.run(timestamp.release(MILLISECONDS, hold)) is False
    assert machine.server.execute("GET", "x") == theirs
