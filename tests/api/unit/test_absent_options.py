"""An error about an option of another class of holdfast says why the called class does not take it: see `absent_options`."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from docs import absent_options as glossary
from holdfast import aio
from holdfast._api.absent_options import _TAKEN_BY, ROWS, reason_against

URL = "redis://127.0.0.1:1"
SERVERS = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]
NAMED = (
    "Lock",
    "FairLock",
    "RLock",
    "Semaphore",
    "BoundedSemaphore",
    "RWLock",
    "Election",
    "Cache",
    "Event",
    "Schedule",
    "locked",
)
MAKERS: dict[str, Callable[..., Any]] = {
    **{name: lambda api, called=name, **given: getattr(api, called)(URL, "x", **given) for name in NAMED},
    "Redlock": lambda api, **given: api.Redlock(SERVERS, "x", **given),
    "MultiLock": lambda api, **given: api.MultiLock(URL, ["x"], **given),
    "CountDownLatch": lambda api, **given: api.CountDownLatch(URL, "x", 2, **given),
    "Barrier": lambda api, **given: api.Barrier(URL, "x", 2, **given),
    "once": lambda api, **given: api.once(URL, "x", keep=60, **given),
    "redeem": lambda api, **given: api.redeem(URL, "ticket", **given),
    "acquire": lambda api, **given: api.Lock(URL, "x").acquire(**given),
    "campaign": lambda api, **given: api.Election(URL, "x").campaign(**given),
    "Cache.get_or_load": lambda api, **given: api.Cache(URL, "x").get_or_load("a", int, **given),
    "Cache.memoize": lambda api, **given: api.Cache(URL, "x").memoize("a", **given),
    "Cache.set": lambda api, **given: api.Cache(URL, "x").set("a", 1, **given),
}
APIS = pytest.mark.parametrize("api", [holdfast, aio], ids=["sync", "asyncio"])


def options(name: str) -> set[str]:
    """Return the names of the optional parameters of a class, function or method."""
    if name in {"acquire", "campaign"}:
        name = {"acquire": "Lock.acquire", "campaign": "Election.campaign"}[name]
    thing: Any = holdfast
    for part in name.split("."):
        thing = getattr(thing, part)
    found = inspect.signature(thing).parameters.values()
    return {one.name for one in found if one.kind in {one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD} and one.name != "self"}


OURS = {word for name in MAKERS for word in options(name)} - {
    "blocking", "client", "default", "key", "loader", "locks", "name", "servers", "template", "ticket",
}  # fmt: skip


def refused(api: Any, name: str, option: str) -> str:
    """Return the text of the error for an option that does not exist."""

    async def main() -> None:
        made = MAKERS[name](api, **{option: 1})
        if inspect.isawaitable(made):
            await made

    with pytest.raises(TypeError) as caught:
        asyncio.run(main()) if api is aio else MAKERS[name](api, **{option: 1})
    assert "\n" not in str(caught.value)
    return str(caught.value)


@APIS
@pytest.mark.parametrize("name", sorted({name for row in ROWS for name in row.classes.split()}))
def test_the_error_has_the_reason_in_the_table(api: Any, name: str) -> None:
    for row in ROWS:
        for option in row.options.split() if name in row.classes.split() else ():
            assert refused(api, name, option) == f"{name}() has no {option}=: {row.why}"


@APIS
@pytest.mark.parametrize("name", MAKERS)
def test_no_option_of_ours_is_taken_for_a_typing_error(api: Any, name: str) -> None:
    for option in OURS - options(name):
        assert re.match(rf"^{re.escape(name)}\(\) has no {option}=: ", refused(api, name, option))


LOCK_CLASSES = [
    "Lock",
    "FairLock",
    "RLock",
    "Redlock",
    "Semaphore",
    "BoundedSemaphore",
    "RWLock",
    "MultiLock",
    "Election",
    "locked",
    "once",
    "redeem",
    "Cache",
    "Event",
    "CountDownLatch",
    "Barrier",
    "Schedule",
]


@pytest.mark.parametrize("name", LOCK_CLASSES)
def test_each_option_of_locks_has_a_reason_in_each_class(name: str) -> None:
    of_locks = options("Lock") | options("Redlock")
    missing = of_locks - options(name) - {"client", "servers", "name"}
    assert {option for option in missing if not reason_against(option, name)} == set()


def test_an_option_has_one_reason_and_is_known() -> None:
    pairs = [(name, option) for row in ROWS for name in row.classes.split() for option in row.options.split()]
    assert len(pairs) == len(set(pairs))
    assert set(_TAKEN_BY) >= OURS


def test_the_glossary_has_the_reasons() -> None:
    assert glossary.PAGE.read_text(encoding="utf-8") == glossary.page(), "PYTHONPATH=tests python -m docs.absent_options"
