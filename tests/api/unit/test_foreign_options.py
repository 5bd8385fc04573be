"""Every word of another library, passed as an option to every class and function: the error names our word, or its absence."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import holdfast
from api.unit.test_absent_options import MAKERS, SERVERS, URL
from holdfast import aio, fencing
from holdfast._api import foreign_words as words
from holdfast._api.absent_options import reason_against

OF_CONNECTIONS: dict[str, tuple[object, ...]] = {
    "lock": ("x",), "fair_lock": ("x",), "rlock": ("x",), "rwlock": ("x",), "semaphore": ("x",), "bounded_semaphore": ("x",),
    "multilock": (["x"],), "redeem": ("ticket",), "election": ("x",), "cache": ("x",), "schedule": ("x",), "event": ("x",),
    "barrier": ("x", 2), "count_down_latch": ("x", 2), "inspector": (), "transaction": ("x",), "locked": ("x",),
    "once": ("x",), "transactional": ("x",), "find_deadlocks": (), "accept": ("x", 1),
    "fenced_set": ("x", "value", 1),
}  # fmt: skip
"""Methods of a connection, and arguments that fit."""

CALLS: dict[str, Callable[..., Any]] = {
    **MAKERS,
    "once": lambda api, **given: api.once(URL, "x", **given),  # Without keep=, too, the unknown word is what is wrong.
    "Transaction": lambda api, **given: api.Transaction(URL, "x", **given),
    "transactional": lambda api, **given: api.transactional(URL, "x", **given),
    "Inspector": lambda api, **given: api.Inspector(URL, **given),
    "connect": lambda api, **given: api.connect(URL, **given),
    "find_deadlocks": lambda api, **given: api.find_deadlocks(URL, **given),
    "accept": lambda api, **given: (fencing.accept if api is holdfast else fencing.aio_accept)(URL, "x", 1, **given),
    "fenced_set": lambda api, **given: (fencing.fenced_set if api is holdfast else fencing.aio_fenced_set)(
        URL, "x", "value", 1, **given
    ),
    "Event.wait": lambda api, **given: api.Event(URL, "x").wait(**given),
    "CountDownLatch.wait": lambda api, **given: api.CountDownLatch(URL, "x", 2).wait(**given),
    "CountDownLatch.count_down": lambda api, **given: api.CountDownLatch(URL, "x", 2).count_down(**given),
    "Barrier.wait": lambda api, **given: api.Barrier(URL, "x", 2).wait(**given),
    "Semaphore.release": lambda api, **given: api.Semaphore(URL, "x", limit=2).release(**given),
    "Lock.ticket": lambda api, **given: api.Lock(URL, "x").ticket(**given),
    "LockLease.ticket": lambda api, **given: api.LockLease.ticket(None, **given),  # only a server grants a lease
    "Lease.renew": lambda api, **given: api.Lease.renew(None, **given),
    "MultiLease.renew": lambda api, **given: api.MultiLease.renew(None, **given),
    "Cache.get": lambda api, **given: api.Cache(URL, "x").get("a", **given),
    "Cache.delete": lambda api, **given: api.Cache(URL, "x").delete("a", **given),
    "Cache.invalidate": lambda api, **given: api.Cache(URL, "x").invalidate("a", **given),
    "Inspector.show": lambda api, **given: api.Inspector(URL).show("x", **given),
    "Inspector.wait": lambda api, **given: api.Inspector(URL).wait("x", **given),
    "Inspector.break_lock": lambda api, **given: api.Inspector(URL).break_lock("x", **given),
    "Schedule.run": lambda api, **given: api.Schedule(URL, "x").run(**given),
    "Schedule.stop": lambda api, **given: api.Schedule(URL, "x").stop(**given),
    "Schedule.history": lambda api, **given: api.Schedule(URL, "x").history("job", **given),
    "Transaction.run": lambda api, **given: api.Transaction(URL, "x").run(print, **given),
    "declare_new": lambda api, **given: api.declare_new(SERVERS, **given),
    **{
        f"connect().{method}": lambda api, method=method, arguments=arguments, **given: getattr(api.connect(URL), method)(
            *arguments, **given
        )
        for method, arguments in OF_CONNECTIONS.items()
    },
}
OURS = {
    ("locked", "reentrant"), ("connect().locked", "reentrant"), ("Election", "value"), ("connect().election", "value"),
    ("Cache.set", "value"), ("Barrier", "timeout"), ("connect().barrier", "timeout"), ("acquire", "timeout"),
    ("acquire", "blocking"),
}  # fmt: skip
"""Words of other libraries that mean the same here."""

WORDS = sorted({*words.LOCKS, *(word for name in CALLS if name in words._OF for word in words._OF[name])})
LEADS_ON = re.compile(
    r"\b(pass|use|call|write|declare) |leave it out|the template names|nothing here corresponds to it; \w|"
    r"it is an option of |holds no lock"
)
"""A hint of `foreign_words` matches this. The reasons of `absent_options` have other words."""


def told(api: Any, name: str, word: str, run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run) -> str:
    """Return the error of a call with one word of another library. ``run``: runs a coroutine in an event loop."""

    async def main() -> None:
        made = CALLS[name](api, **{word: 1})
        if inspect.isawaitable(made):
            await made

    with pytest.raises(TypeError) as caught:
        run(main()) if api is aio else CALLS[name](api, **{word: 1})
    return str(caught.value)


@pytest.mark.parametrize("api", [holdfast, aio], ids=["sync", "asyncio"])
def test_every_word_of_other_libraries_in_every_call(api: Any) -> None:
    assert len(WORDS) > 70
    silent = []
    with asyncio.Runner() as runner:  # a loop for each call would take a minute
        for name, word in itertools.product(CALLS, WORDS):
            if (name, word) in OURS or word in options_of(name):
                continue
            start, _, hint = told(api, name, word, runner.run).partition(f" has no {word}=: ")
            cls = start.removesuffix("()")
            named = re.fullmatch(r"[A-Za-z]\w*(\.\w+)?", cls) and not re.search("Aio|aio_|Base", cls)
            if not named or "\n" in hint or not (LEADS_ON.search(hint) or hint == reason_against(word, cls) != ""):
                silent.append((name, word, start, hint))
    assert silent == []


@functools.cache
def options_of(name: str) -> set[str]:
    """Return the names of the parameters of a call. Some tables have words that are ours elsewhere."""
    method = name.removeprefix("connect().")
    others = {"accept": fencing.accept, "fenced_set": fencing.fenced_set}
    thing: Any = {"acquire": holdfast.Lock.acquire, "campaign": holdfast.Election.campaign, **others}.get(name, holdfast)
    for part in method.split(".") if thing is holdfast else ():
        thing = getattr(holdfast.Connection if name.startswith("connect()") else thing, part)
    return set(inspect.signature(thing).parameters)


@pytest.mark.parametrize("api", [holdfast, aio], ids=["sync", "asyncio"])
@pytest.mark.parametrize(
    ("name", "word", "hint"),
    [
        ("once", "expire", "pass keep= for how long the result is kept, ttl= for "),
        ("once", "timeout", "pass keep= for how long the result is kept, ttl= for "),
        ("once", "blocking", "pass busy='wait', "),
        ("Event", "expire", "nobody holds it; pass keep= for "),
        ("Event", "blocking_timeout", "pass timeout= to wait()"),
        ("CountDownLatch", "permits", "pass count, the third argument"),
        ("Barrier", "lease_time", "pass ttl= for how long a crashed participant counts"),
        ("Barrier", "wait_timeout", "pass timeout= for how long to wait for the other participants"),
        ("Transaction", "timeout", "pass wait= to transactional or run()"),
        ("transactional", "retries", "pass tries= to transactional or run()"),
        ("Transaction", "expire", "a transaction holds no lock"),
        ("connect", "host", 'pass a URL that contains it; write connect("redis://HOST:PORT/DB"'),
        ("connect", "expire", "pass ttl= for how long the lock outlives a crashed holder"),
        ("connect().lock", "redis", "leave it out: the connection has the client"),
        ("connect().event", "expire", "nobody holds it; pass keep= for "),
        ("connect().once", "expire", "pass keep= for how long the result is kept"),
        ("Cache", "max_wait", "pass wait= for how long to wait for another caller's load"),
        ("Schedule", "ex", "pass ttl= to a job"),
        ("Event.wait", "wait", "pass timeout= for how long to wait"),
        ("Barrier.wait", "blocking_timeout", "pass timeout= for how long to wait"),
        ("Inspector.wait", "max_wait", "pass timeout= for how long to wait"),
        ("Inspector.break_lock", "force", "leave it out: the lease always ends at once"),
        ("Lease.renew", "additional_time", "pass ttl= for how long the lease lasts from now on"),
        ("MultiLease.renew", "replace_ttl", "leave it out: ttl= replaces the time that is left"),
        ("LockLease.ticket", "ttl", "pass expires= for how long the ticket can be redeemed"),
        ("Semaphore.release", "permits", "pass n= for the number of acquisitions to release"),
        ("Cache.get", "timeout", "reading does not change how long a value stays fresh; pass ttl= to set, "),
        ("Cache.get", "loader", "call get_or_load(key, loader)"),
        ("Cache.invalidate", "tag", "pass tags=, even for one tag"),
        ("Schedule.stop", "timeout", "pass finish_within= for how long runs may go on"),
        ("Schedule.history", "limit", "pass last= for the number of entries"),
        ("Transaction.run", "retries", "pass tries= to transactional or run()"),
        ("accept", "token", "pass fence=lease.fence"),
        ("connect().fenced_set", "ex", "pass ttl= to fenced_set, for the expiry of the key"),
        ("Lock", "labels", "pass label= for a text that other clients see"),
        ("Schedule", "limit", "pass concurrency= for the runs of this process"),
        ("Lock", "serializer", "nothing here corresponds to it; Lock takes name, ttl, wait, "),
    ],
)
def test_a_word_means_what_it_means_in_the_class(api: Any, name: str, word: str, hint: str) -> None:
    text = told(api, name, word)
    assert f"() has no {word}=: {hint}" in text
