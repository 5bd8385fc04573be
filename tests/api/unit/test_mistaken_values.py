"""Mistakes in values: each is refused before a server is asked, in one line that names the parameter and what it takes."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

import holdfast
from holdfast import aio, fencing, legacy
from holdfast.errors import ConfigError, NotHeld
from holdfast.schedule import Command, Cron, Every

URL = "redis://127.0.0.1:1"
SERVERS = [f"redis://127.0.0.1:{port}" for port in (1, 2, 3)]
CLIENT, AIO_CLIENT = redis.Redis(port=1), redis.asyncio.Redis(port=1)
LIB: Any = holdfast
"""The names of `holdfast`, for calls that a type checker refuses."""
LOCK: Any = holdfast.Lock
DURATION = "must be a number of seconds, a text such as .*, or a timedelta, not"


def plain() -> int:
    return 1


def takes(sku: str) -> str:
    return sku


def generator() -> Iterator[int]:
    yield 1


async def coroutine() -> int:
    return 1


def unstorable() -> set[int]:
    return set()


def schedule() -> Any:
    return LIB.Schedule(URL, "s")


def twice() -> None:
    jobs = schedule()
    jobs.every(5, name="a")(plain)
    jobs.every(5, name="a")(plain)


MISTAKES: list[tuple[Callable[[], object], str, str]] = [
    # Names and prefixes
    (lambda: LOCK(URL, None), "name", "must be str or bytes, not NoneType"),
    (lambda: LOCK(URL, ["a", "b"]), "name", "must be str or bytes, not list"),
    (lambda: LOCK(URL, ""), "name", "must have 1 to 512 bytes"),
    (lambda: LOCK(URL, "x", prefix=None), "prefix", "must be str or bytes"),
    (lambda: LOCK(URL, "x", prefix="{a}"), "prefix", "must not contain { or }"),
    (lambda: LOCK(URL, "x", key=""), "key", "must have 1 to 512 bytes"),
    (lambda: LIB.Inspector(URL, prefix=""), "prefix", "must have 1 to 512 bytes"),
    # Durations
    (lambda: LOCK(URL, "x", ttl=None), "ttl", f"{DURATION} None"),
    (lambda: LOCK(URL, "x", ttl="30"), "ttl", f"{DURATION} '30'"),
    (lambda: LOCK(URL, "x", wait=True), "wait", f"{DURATION} True"),
    (lambda: LOCK(URL, "x", wait=math.nan), "wait", "must be between 0 and .* seconds, not nan"),
    (lambda: LOCK(URL, "x", ttl="1ms"), "ttl", r"must be between 0\.05 and 31622400 seconds, not '1ms'"),
    (lambda: LOCK(URL, "x", max_hold=0), "max_hold", r"must be between 0\.05 and"),
    (lambda: LIB.Event(URL, "x", keep=0), "keep", "must be between 1 and"),
    (lambda: LIB.once(URL, "x", keep=0), "keep", r"must be between 0\.001 and"),
    (lambda: fencing.accept(URL, "k", 7, keep=1), "keep", "must be between 600 and"),
    (lambda: Every(0), "every", r"must be between 0\.1 and"),
    # Choices and numbers
    (lambda: LOCK(URL, "x", deadlock="ignore"), "deadlock", "must be 'wait' or 'raise', not 'ignore'"),
    (lambda: LOCK(URL, "x", on_lost="print"), "on_lost", "must be callable"),
    (lambda: LOCK(URL, "x", label="a\nb"), "label", "must be printable text of at most 200 characters"),
    (lambda: LOCK(URL, "x", replicas=1.5), "replicas", r"must be a whole number from 0, not 1\.5"),
    (lambda: LOCK(URL, "x", max_passes="3"), "max_passes", "must be a whole number from 0, not '3'"),
    (lambda: LOCK(URL, "x", ttl=120, quarantine=True), "ttl", "ttl=120 is more than quarantine=60.*pass a shorter ttl"),
    (lambda: LOCK(URL, "x", renew=False, progress_within=5), "progress_within", "needs renew=True"),
    (lambda: LOCK(URL, "x", linger=5, max_hold=3), "linger", "needs renew=True, and neither max_hold"),
    (lambda: LIB.Semaphore(URL, "x", "3"), "limit", "must be a whole number from 1 to 1000000, not '3'"),
    (lambda: LIB.Semaphore(URL, "x", 3, weight=5), "weight", "weight=5 is more than limit=3.*pass a smaller weight"),
    (lambda: LIB.Barrier(URL, "x", 0), "parties", "must be a whole number from 1, not 0"),
    (lambda: LIB.Barrier(URL, "x", 10**9), "parties", "must be at most 10000"),
    (lambda: LIB.CountDownLatch(URL, "x", "3"), "count", "must be a whole number from 1, not '3'"),
    (lambda: LIB.CountDownLatch(URL, "x", 3).count_down(-1), "n", "must be a whole number from 1, not -1"),
    (lambda: LIB.Election(URL, "x", candidate=7), "candidate", "must be printable text of 1 to 200 characters"),
    (lambda: LIB.Election(URL, "x", value=7), "value", "must be text of at most 65536 bytes"),
    (lambda: LIB.Schedule(URL, "x", concurrency=0), "concurrency", "must be a whole number, at least 1"),
    (lambda: legacy.TimestampLock(URL, "k", unit="us"), "unit", "must be 's' or 'ms'"),  # type: ignore[arg-type]
    (lambda: legacy.TimestampLock(URL, "k", clock="mine"), "clock", "must be 'own' or 'server'"),  # type: ignore[arg-type]
    (lambda: LIB.fencing.accept(URL, "k", "7"), "fence", "must be the number lease.fence, not '7'"),
    (lambda: LIB.redeem(URL, "hello"), "ticket", "the given value is not a ticket"),
    (lambda: LIB.redeem(URL, 7), "ticket", "is not text, but of type int"),
    # Several locks, several servers
    (lambda: LIB.MultiLock(URL, "ab"), "locks", "^locks: pass a list of names or lock objects"),
    (lambda: LIB.MultiLock(URL, []), "locks", "the list is empty; pass at least one"),
    (lambda: LIB.MultiLock(URL, ["a", "a"]), "locks", "'a' is listed twice"),
    (lambda: LIB.MultiLock(URL, [1]), "locks", "expected a name or a lock object, not 1"),
    (lambda: LIB.MultiLock(["a"]), "locks", r"pass its server too, as in MultiLock\(client, \['a', \.\.\.\]\)"),
    (lambda: LIB.MultiLock([LIB.RLock(URL, "a")]), "locks", "is reentrant.*pass a Lock of the same name"),
    (lambda: LIB.MultiLock([aio.Lock(URL, "a")]), "locks", "pass a Lock, FairLock, Redlock or Semaphore of holdfast$"),
    (lambda: LIB.aio.MultiLock([LOCK(URL, "a")]), "locks", r"pass a Lock, .* of holdfast\.aio$"),
    (lambda: LIB.Redlock(URL, "x"), "servers", "^servers: pass a list of clients or URLs, or .* names as keys$"),
    (lambda: LIB.Redlock("x", SERVERS), "servers", "names as keys; they are the first argument, and the name .* the second$"),
    (lambda: LIB.Redlock(SERVERS[:2], "x"), "servers", "pass three, or use one"),
    (lambda: LIB.Redlock([*SERVERS[:2], URL], "x"), "servers", "is in the list twice.*remove one"),
    (lambda: LIB.Redlock(SERVERS, "x", ttl=100), "ttl", "ttl=100 is more than max_ttl=60"),
    (lambda: LIB.RLock(SERVERS, "x", linger=3), "linger", "works only with an RLock on one server"),
    # Caches
    (lambda: LIB.Cache(URL, "x", codec="yaml"), "codec", "must be one of 'json', .*, or an object with dumps and loads"),
    (lambda: LIB.Cache(URL, "x", errors="KeyError"), "errors", "must be exception types, not 'KeyError'"),
    (lambda: LIB.Cache(URL, "x", busy="skip"), "busy", "must be 'raise' or 'load', not 'skip'"),
    (lambda: LIB.Cache(URL, "x", down="ignore"), "down", "must be 'load' or 'raise', not 'ignore'"),
    (lambda: LIB.Cache(URL, "x", max_size=0), "max_size", "must be a whole number of bytes from 1"),
    (lambda: LIB.Cache(URL, "x", beta=-1), "beta", "^beta must be a number from 0 to 1000, not -1$"),
    (lambda: LIB.Cache(URL, "x", beta="5m"), "beta", "^beta must be a number from 0 to 1000, not '5m'$"),
    (lambda: LIB.Cache(URL, "x").invalidate(tags="red"), "tags", r"must be a list or tuple, such as \('red',\)"),
    (lambda: LIB.Cache(URL, "x").get(7), "key", "must be str or bytes, not int"),
    # Functions and templates
    (lambda: LIB.Schedule(URL, "x").add(plain, "5m"), "when", r"must be a timetable, not '5m': pass Every\(300\) or Cron"),
    (lambda: LIB.Cache(URL, "x").memoize("k")(coroutine), "function", r"use holdfast\.aio\.Cache"),
    (lambda: LIB.aio.Cache(URL, "x").memoize("k")(plain), "function", r"use holdfast\.Cache"),
    (lambda: LIB.Cache(URL, "x").memoize("k")(generator), "function", "is a generator"),
    (lambda: LIB.Cache(URL, "x").memoize("k")(takes), "template", r"put {sku} into the template, or pass ignore=\('sku',\)"),
    (lambda: LIB.Cache(URL, "x").memoize(42)(takes), "template", "must be a str, not int"),
    (lambda: LIB.Cache(URL, "x").memoize("{sku}", ignore="z")(takes), "ignore", r"has no parameter 'z' \(sku\)"),
    (lambda: LIB.locked(URL, "x", busy="maybe"), "busy", "must be 'wait', 'raise' or 'skip', not 'maybe'"),
    (lambda: LIB.locked(URL, "report:%s")(takes), "template", r"same for all calls: write .* braces instead of %s, as in"),
    (
        lambda: LIB.once(URL, "pay:%(id)d", keep=60)(takes),
        "template",
        r"same for all calls: write .* braces instead of %\(, as",
    ),
    (lambda: LIB.locked(URL, "{user}")(takes), "template", r"must name a parameter \(sku\)"),
    (lambda: LIB.locked(URL, "{sku.id}")(takes), "template", "without attributes or indexes"),
    (lambda: LIB.locked(URL, "x")(generator), "function", "use a with statement inside it"),
    (lambda: LIB.locked(CLIENT, "x")(coroutine), "client", "needs an asyncio client"),
    (lambda: LIB.aio.locked(AIO_CLIENT, "x")(plain), "client", "needs a synchronous client"),
    (lambda: LIB.once(URL, "x", keep=60, busy="maybe"), "busy", "must be 'raise', 'skip' or 'wait'"),
    (lambda: LIB.once(URL, "x", keep=60)(coroutine), "function", r"use holdfast\.aio\.once"),
    (lambda: LIB.once(URL, "x", keep=60)(unstorable), "codec", "annotated to return set.*pass another codec"),
    (lambda: LIB.transaction(CLIENT), "keys", "pass at least one key to watch"),
    (lambda: LIB.transactional(CLIENT, "x")(plain), "function", "needs a parameter tx"),
    (lambda: LIB.transactional(CLIENT, "x", tries=0), "tries", "must be at least 1"),
    # Jobs
    (lambda: Cron("61 * * * *"), "cron", "'61' is not a valid minute: 0 to 59"),
    (lambda: Cron("every day"), "cron", "five fields: minute hour"),
    (lambda: Cron("@daily", "Mars/Base"), "tz", "write it as Europe/Berlin"),
    (lambda: schedule().every(plain), "seconds", r'write @schedule\.every\("5m"\)'),
    (lambda: schedule().cron(plain), "expression", r'write @schedule\.cron\("@daily"\)'),
    (lambda: schedule().every(5, tll=3)(plain), "tll", "there is no option 'tll'; options are ttl, "),
    (lambda: schedule().every(5, overlap="no")(plain), "overlap", "must be one of skip, queue, allow, not 'no'"),
    (lambda: schedule().every(5, history=0)(plain), "history", "must be a whole number from 1 to 1000"),
    (lambda: schedule().every(5)(coroutine), "function", r"use holdfast\.aio\.Schedule"),
    (lambda: schedule().every(5)(generator), "function", "declare a function that iterates over it"),
    (lambda: schedule().add(plain(), Every(5), name="a"), "function", "1 is not callable"),
    (twice, "name", "has a job 'a' already; pass another name="),
    (lambda: Command("echo hi"), "command", "write it as a list"),
]


@pytest.mark.parametrize(("mistake", "parameter", "text"), MISTAKES, ids=[f"{one[1]}-{one[2][:30]}" for one in MISTAKES])
def test_the_error_names_the_parameter_and_the_remedy(mistake: Callable[[], object], parameter: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        mistake()
    assert caught.value.parameter == parameter
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("timeout", ["5", None, [5]])
def test_a_timeout_of_acquire_that_is_no_duration(timeout: Any) -> None:
    """It is a TypeError, as in threading."""
    with pytest.raises(TypeError, match=rf"^timeout {DURATION} "):
        LOCK(URL, "x").acquire(timeout=timeout)


@pytest.mark.parametrize("cls", [LOCK, LIB.RLock, LIB.Semaphore, aio.Lock, aio.Semaphore])
@pytest.mark.parametrize("number", [2, 0.5, "5", [5]])
def test_a_number_in_the_place_of_blocking(cls: Any, number: Any) -> None:
    """threading.Lock takes it for True, and waits without a limit."""
    with pytest.raises(TypeError, match=rf"^acquire\({re.escape(repr(number))}\): .* pass timeout=.* pass weight=") as caught:
        asyncio.run(acquire) if inspect.iscoroutine(acquire := cls(URL, "x").acquire(number)) else acquire
    assert "\n" not in str(caught.value)


def test_what_is_not_held() -> None:
    with pytest.raises(NotHeld, match=r"^lock 'x' has not been acquired by this object \(at 127\.0\.0\.1:1\)$"):
        LOCK(URL, "x").release()
    with pytest.raises(NotHeld, match="does not run inside a function decorated with once"):
        LIB.once(URL, "x", keep=60).current()
