"""The two faces of the timestamp lock are one, and its values are read as they are meant."""

from __future__ import annotations

import inspect

import pytest

from holdfast import legacy
from holdfast._core.timestamp import Stamp, Strange, read
from holdfast.legacy import aio
from test_architecture import as_sync, described, signatures

NAMES = ("TimestampLock", "TimestampLease", "Migrating", "MigratingLease", "Base")
OTHER = {"AioCaller": "Caller", "aio.Lease": "locks.Lease"}


@pytest.mark.parametrize("name", NAMES)
def test_both_faces_say_the_same(name: str) -> None:
    sync, asynchronous = described(getattr(legacy, name)), described(getattr(aio, name))
    assert {member: as_sync(text) for member, text in asynchronous.items()} == {
        member: as_sync(text) for member, text in sync.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_both_faces_take_the_same_arguments(name: str) -> None:
    found = str(signatures(getattr(aio, name)))
    for theirs, ours in OTHER.items():
        found = found.replace(theirs, ours)
    assert found == str(signatures(getattr(legacy, name)))


@pytest.mark.parametrize("name", NAMES)
def test_what_needs_the_server_is_awaited_and_nothing_else(name: str) -> None:
    for member, thing in vars(getattr(aio, name)).items():
        if inspect.isfunction(thing) and not member.startswith("_"):
            assert inspect.iscoroutinefunction(thing), member
            assert not inspect.iscoroutinefunction(vars(getattr(legacy, name))[member])


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
    with pytest.raises(Strange, match="a Unix time in seconds, and this lock counts in milliseconds"):
        read(MILLISECONDS, raw)


@pytest.mark.parametrize(
    "raw", [b"", b" ", b".5", b"17e8", b"0x6553f100", b"1700000000s", b"-1700000000", b"17 00000000", b"9" * 17]
)
def test_what_is_not_read(raw: bytes) -> None:
    for stamp in (SECONDS, MILLISECONDS):
        with pytest.raises(Strange):
            read(stamp, raw)
