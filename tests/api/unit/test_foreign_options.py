"""Every word of another library, passed as an option to every class and function: the error names our word, or its absence."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from api.unit.test_absent_options import MAKERS, SERVERS, URL
from holdfast import aio
from holdfast._api import foreign_words as words
from holdfast._api.absent_options import reason_against

OF_CONNECTIONS: dict[str, tuple[object, ...]] = {
    "lock": ("x",), "fair_lock": ("x",), "rlock": ("x",), "rwlock": ("x",), "semaphore": ("x",), "bounded_semaphore": ("x",),
    "multilock": (["x"],), "redeem": ("ticket",), "election": ("x",), "cache": ("x",), "schedule": ("x",), "event": ("x",),
    "barrier": ("x", 2), "count_down_latch": ("x", 2), "inspector": (), "transaction": ("x",), "locked": ("x",),
    "once": ("x",), "transactional": ("x",), "find_deadlocks": (),
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


def told(api: Any, name: str, word: str) -> str:
    """Return the error of a call with one word of another library."""

    async def main() -> None:
        made = CALLS[name](api, **{word: 1})
        if inspect.isawaitable(made):
            await made

    with pytest.raises(TypeError) as caught:
        asyncio.run(main()) if api is aio else CALLS[name](api, **{word: 1})
    return str(caught.value)


@pytest.mark.parametrize("api", [holdfast, aio], ids=["sync", "asyncio"])
def test_every_word_of_other_libraries_in_every_call(api: Any) -> None:
    assert len(WORDS) > 70
    silent = []
    for name in CALLS:
        for word in WORDS:
            if (name, word) in OURS or word in options_of(name):
                continue
            start, _, hint = told(api, name, word).partition(f" has no {word}=: ")
            cls = start.removesuffix("()")
            named = re.fullmatch(r"[A-Za-z]\w*(\.\w+)?", cls) and not re.search("Aio|aio_|Base", cls)
            if not named or "\n" in hint or not (LEADS_ON.search(hint) or hint == reason_against(word, cls) != ""):
                silent.append((name, word, start, hint))
    assert silent == []


def options_of(name: str) -> set[str]:
    """Return the names of the parameters of a call. Some tables have words that are ours elsewhere."""
    method = name.removeprefix("connect().")
    thing: Any = {"acquire": holdfast.Lock.acquire, "campaign": holdfast.Election.campaign}.get(name, holdfast)
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
        ("Lock", "serializer", "nothing here corresponds to it; Lock takes name, ttl, wait, "),
    ],
)
def test_a_word_means_what_it_means_in_the_class(api: Any, name: str, word: str, hint: str) -> None:
    text = told(api, name, word)
    assert f"() has no {word}=: {hint}" in text
