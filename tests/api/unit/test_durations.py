"""Durations with a unit and timedeltas are accepted wherever seconds are, and anything else is refused before it is sent."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import aio, doctor, fencing, legacy
from holdfast._api import options
from holdfast._durations import as_number, parsed
from holdfast.cli.durations import duration
from holdfast.errors import ConfigError
from holdfast.schedule import Command, Cron, Every
from holdfast.schedule.definition import checked
from support.stage import Stage, stage

__all__ = ["stage"]

URL = "redis://127.0.0.1:1"
SERVERS = [f"redis://127.0.0.1:{port}" for port in (1, 2, 3)]
TEXTS = {
    "500ms": 0.5, "250ms": 0.25, "1.5s": 1.5, ".5s": 0.5, "2.s": 2.0, "0s": 0.0, "30s": 30.0, "5m": 300.0, "0.5h": 1800.0,
    "2h": 7200.0, "1d": 86400.0, "007s": 7.0,
}  # fmt: skip
WRONG = [
    "", "5", "m", "5 m", " 5m", "5m ", "-5m", "+5m", "5M", "5min", "1h30m", "1e3s", "5,5s", "nan", "infs", "\u0665s", "5m\n",
    "5mm",
]  # fmt: skip


@pytest.mark.parametrize(("text", "seconds"), TEXTS.items())
def test_texts_with_a_unit(text: str, seconds: float) -> None:
    assert parsed(text) == as_number(text) == duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", WRONG)
def test_other_texts_are_none(text: str) -> None:
    assert parsed(text) is None
    assert as_number(text) is text
    if text != "5":  # On the command line, everything is text, and a number without a unit means seconds.
        with pytest.raises(argparse.ArgumentTypeError, match="is not a duration"):
            duration(text)


@pytest.mark.parametrize("value", [timedelta(seconds=1.5), timedelta(0), timedelta(days=2), timedelta(seconds=-1)])
def test_a_timedelta_is_its_seconds(value: timedelta) -> None:
    assert as_number(value) == value.total_seconds()


@pytest.mark.parametrize("value", [30, 0.5, True, None, b"5m", timedelta, object(), math.inf], ids=repr)
def test_what_is_neither_stays_as_it_is(value: object) -> None:
    assert as_number(value) is value


REFUSED = ["30", "", "5 minutes", b"5m", timedelta, [30], True]


@pytest.mark.parametrize("value", REFUSED, ids=repr)
def test_an_error_names_the_option_and_the_units(value: object) -> None:
    wanted = 'ttl must be a number of seconds, a text such as "500ms", "30s", "5m", "2h" or "1d", or a timedelta, not '
    with pytest.raises(ConfigError) as caught:
        options.seconds(value, "ttl", 0.05)
    assert str(caught.value) == wanted + repr(value)


def test_a_range_is_told_in_seconds_and_the_value_as_it_was_passed() -> None:
    for value in ("1ms", timedelta(days=400), "-1s", timedelta(seconds=-1)):
        with pytest.raises(ConfigError, match=r"^ttl must be ") as caught:
            options.seconds(value, "ttl", 0.05)
        assert str(caught.value).endswith(f", not {value!r}")


# Each option of each class

MINUTE: list[Any] = ["1m", "60s", timedelta(minutes=1), 60, 60.0]
LOCK = ("ttl", "wait", "max_hold", "progress_within")
MADE: list[tuple[str, object, tuple[Any, ...], tuple[str, ...]]] = [
    ("Lock", URL, (), (*LOCK, "linger", "max_pass_time", "quarantine")),
    ("FairLock", URL, (), (*LOCK, "quarantine")),
    ("RLock", URL, (), (*LOCK, "linger", "max_pass_time", "quarantine")),
    ("RLock", SERVERS, (), (*LOCK, "max_ttl", "answer_within")),
    ("Redlock", SERVERS, (), (*LOCK, "max_pass_time", "max_ttl", "answer_within")),
    ("Semaphore", URL, (3,), LOCK),
    ("RWLock", URL, (), LOCK),
    ("MultiLock", URL, (), ("ttl", "wait", "max_hold")),
    ("Election", URL, (), ("ttl", "wait", "quarantine")),
    ("Election", SERVERS, (), ("max_ttl",)),
    ("Barrier", URL, (2,), ("timeout", "ttl", "keep")),
    ("Event", URL, (), ("keep",)),
    ("connect", URL, (), ("ttl", "wait")),
    ("CountDownLatch", URL, (2,), ("keep",)),
    ("Cache", URL, (), ("ttl", "stale", "wait", "error_ttl", "load_ttl", "max_hold")),
    ("once", URL, (), ("keep", "wait", "ttl", "max_hold")),
    ("locked", URL, (), ("wait", "ttl", "max_hold")),
    ("transactional", URL, (), ("wait",)),
]
CASES = [(cls, client, args, option) for cls, client, args, accepted in MADE for option in accepted]


def facts(thing: object, seen: set[int] | None = None) -> object:
    """The numbers that an object was made from, however deep: two objects made from the same durations have the same."""
    seen = set() if seen is None else seen
    if isinstance(thing, int | float | str | bytes | None):
        return thing
    if id(thing) in seen:
        return "again"
    seen.add(id(thing))
    if isinstance(thing, dict):
        return {key: facts(value, seen) for key, value in thing.items() if isinstance(key, str)}
    if isinstance(thing, tuple | list):
        return [facts(value, seen) for value in thing]
    if type(thing).__module__.startswith("holdfast._api") and hasattr(thing, "__dict__"):
        return {type(thing).__name__: facts(vars(thing), seen)}
    return type(thing).__name__


@pytest.mark.parametrize("module", [holdfast, aio], ids=["sync", "asyncio"])
@pytest.mark.parametrize(("cls", "client", "args", "option"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_options(module: Any, cls: str, client: object, args: tuple[Any, ...], option: str) -> None:
    def made(value: Any) -> object:
        if cls == "connect":
            return module.connect(client, **{option: value}).lock("x")
        name: Any = ["x"] if cls == "MultiLock" else "x"
        needed = {"keep": 3600} if cls == "once" and option != "keep" else {}
        return getattr(module, cls)(client, name, *args, **{option: value}, **needed)

    assert len({str(facts(made(value))) for value in MINUTE}) == 1
    for value in ("60", "1 min", [60], timedelta):
        with pytest.raises(ConfigError, match=rf"^{option} must be a number of seconds, a text such as ") as caught:
            made(value)
            if cls == "locked":
                made(value)(lambda: None)  # type: ignore[operator]
        assert caught.value.parameter == option


CALLS: list[tuple[str, Callable[[Any], object]]] = [
    ("ttl", lambda value: fencing.fenced_set(URL, "k", "v", 7, ttl=value)),
    ("keep", lambda value: fencing.accept(URL, "k", 7, keep=value)),
    ("ttl", lambda value: doctor.examine(URL, ttl=value)),
    ("ttl", lambda value: legacy.TimestampLock(URL, "k", ttl=value)),
    ("ttl", lambda value: legacy.Migrating(URL, "k", ttl=value)),
    ("wait", lambda value: legacy.Migrating(URL, "k", wait=value)),
    ("every", Every),
    ("jitter", lambda value: Cron("@daily", jitter=value)),
    ("kill_after", lambda value: Command(["true"], kill_after=value)),
    ("max_runtime", lambda value: checked("job", {"max_runtime": value})),
    ("grace", lambda value: checked("job", {"grace": value})),
    ("finish_within", lambda value: holdfast.Schedule(URL, "s").run(value)),
    ("finish_within", lambda value: holdfast.Schedule(URL, "s").stop(value)),
    ("timeout", lambda value: holdfast.Event(URL, "e").wait(value)),
    ("timeout", lambda value: holdfast.CountDownLatch(URL, "e", 2).wait(value)),
    ("timeout", lambda value: holdfast.Barrier(URL, "b", 2).wait(value)),
    ("timeout", lambda value: holdfast.Inspector(URL).wait("x", value)),
    ("ttl", lambda value: holdfast.Cache(URL, "c").memoize("x", ttl=value)),
    ("wait", lambda value: holdfast.Cache(URL, "c").get_or_load("x", list, wait=value)),
]


@pytest.mark.parametrize(("option", "call"), CALLS)
def test_calls_refuse_other_texts(option: str, call: Callable[[Any], object]) -> None:
    for value in ("60", "1 min", [60], timedelta):
        with pytest.raises(ConfigError, match=rf"^(job 'job': )?{option} must be a number of seconds, a text such as "):
            call(value)


def test_schedules_take_them() -> None:
    for value in ("5m", timedelta(minutes=5), 300):
        assert (Every(value).seconds, Cron("@daily", jitter=value).jitter) == (300.0, 300.0)
        assert Command(["true"], kill_after=value).kill_after == 300.0
        assert checked("job", {"ttl": value, "max_runtime": value}).max_runtime == 300.0
        schedule = holdfast.Schedule(URL, "s")
        schedule.every(value, name="a", grace=value)(lambda: None)
        (job,) = schedule.jobs
        assert (str(job.when), job.options.grace) == ("every 300 s", 300.0)


def test_calls_about_a_lease_take_them(stage: Stage) -> None:
    lock = holdfast.Lock(URL, "x")
    for value in ("50s", timedelta(seconds=50)):
        assert lock.acquire(timeout=value)
        lease = lock.lease
        assert lease is not None
        lease.renew(value)
        assert lease.remaining() == pytest.approx(50, abs=1)
        with pytest.raises(ConfigError, match="ttl must be a number of seconds, a text"):
            lease.renew("50")
        with pytest.raises(ConfigError, match="expires must be a number of seconds, a text"):
            lease.ticket("50")
        lock.release()


def test_a_timeout_is_as_in_threading() -> None:
    for value, seconds in ((None, None), (math.inf, None), (-5, 0.0), (timedelta(seconds=-5), 0.0), (0, 0.0), ("5m", 300.0)):
        assert options.checked_timeout(value) == seconds
    assert options.acquire_wait(7.0, True, "5m") == options.acquire_wait(7.0, True, timedelta(minutes=5)) == 300.0
    with pytest.raises(ValueError, match=r"^timeout must be 0 or more seconds"):
        options.acquire_wait(7.0, True, timedelta(seconds=-2))
    with pytest.raises(OverflowError):
        options.acquire_wait(7.0, True, timedelta.max)
    with pytest.raises(ValueError, match="non-blocking"):
        options.acquire_wait(7.0, False, "5m")
