"""A name that is, or was, that of another kind: the error says which kind, until when, and what to do."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import pytest
import redis

import holdfast
from holdfast import aio
from support.servers import PrivateServer

if TYPE_CHECKING:
    from conftest import NewServer

KINDS: dict[str, Callable[[Any, str, str], Any]] = {
    "lock": lambda api, url, name: api.Lock(url, name, wait=5),
    "fair lock": lambda api, url, name: api.FairLock(url, name, wait=5),
    "semaphore": lambda api, url, name: api.Semaphore(url, name, limit=2, wait=5),
    "read-write lock": lambda api, url, name: api.RWLock(url, name, wait=5).write,
}
STATES = {"event", "latch", "barrier"}


def hold(kind: str, url: str, name: str) -> AbstractContextManager[Any]:
    """Use the name as this kind, for as long as the body runs if that can be held."""
    if kind == "event":
        holdfast.Event(url, name).set()
    elif kind == "latch":
        holdfast.CountDownLatch(url, name, count=2).count_down()
    elif kind == "barrier":
        holdfast.Barrier(url, name, parties=2).abort()
    else:
        return KINDS[kind](holdfast, url, name)  # type: ignore[no-any-return]
    return nullcontext()


def refusals(url: str, name: str, wanted: str) -> list[str]:
    """The common interface of both APIs."""

    async def there() -> None:
        async with KINDS[wanted](aio, url, name):
            raise AssertionError("a name is for one kind of object only")

    def here() -> None:
        with KINDS[wanted](holdfast, url, name):
            raise AssertionError("a name is for one kind of object only")

    said = []
    for try_it in (here, lambda: asyncio.run(there())):
        with pytest.raises(holdfast.ConfigError) as refused:
            try_it()
        assert refused.value.parameter == "name"
        said.append(str(refused.value))
    return said


@pytest.mark.parametrize("used", ["lock", "semaphore", "read-write lock", "event", "latch", "barrier"])
def test_it_says_which_kind_until_when_and_what_to_do(server: PrivateServer, name: str, used: str) -> None:
    for wanted in KINDS:
        if used == wanted or {used, wanted} == {"lock", "fair lock"}:
            continue
        own = f"{name}-{wanted}"
        with hold(used, server.url, own):
            for said in refusals(server.url, own, wanted):
                assert f"the name of a{'n' * (used == 'event')} {used}" in said
                assert "in 20 min" in said or used in STATES, said
                assert "use another name" in said
                assert ("held" in said) == (used not in STATES)
        if used not in STATES:
            for said in refusals(server.url, own, wanted):
                assert f"it was used as the name of a {used}" in said
                assert "in 20 min" in said


@pytest.mark.parametrize("wanted", ["event", "latch", "barrier"])
def test_events_too(server: PrivateServer, name: str, wanted: str) -> None:
    async def there() -> None:
        await aio.Event(server.url, name).set()

    with holdfast.Lock(server.url, name):
        use: dict[str, Callable[[], object]] = {
            "event": lambda: holdfast.Event(server.url, name).set(),
            "latch": lambda: holdfast.CountDownLatch(server.url, name, count=2).count_down(),
            "barrier": lambda: holdfast.Barrier(server.url, name, parties=2).abort(),
        }
        with pytest.raises(holdfast.ConfigError, match="is the name of a lock that is held"):
            use[wanted]()
        with pytest.raises(holdfast.ConfigError, match="is the name of a lock that is held"):
            asyncio.run(there())


def told(error: pytest.ExceptionInfo[holdfast.ConfigError], used: str, *, held: bool) -> None:
    """It says which kind, until when, and what to do."""
    said = str(error.value)
    assert error.value.parameter == "name"
    a = f"a{'n' * (used == 'event')} {used}"
    if held or used in STATES:
        assert f"it is the name of {a}" in said
    else:
        assert f"it was used as the name of {a}" in said
    assert "in 20 min" in said or used in STATES
    assert "use another name" in said


@pytest.mark.parametrize("held", [True, False], ids=["held", "before"])
@pytest.mark.parametrize("used", ["semaphore", "read-write lock", "event", "latch", "barrier"])
def test_elections_and_tickets_too(server: PrivateServer, look: redis.Redis, name: str, used: str, held: bool) -> None:
    def forgotten(of: str) -> None:
        look.delete(*look.keys(f"hf:{{{of}}}*"))

    async def there() -> None:
        await aio.Election(server.url, name).campaign(5)

    lock = holdfast.FairLock(server.url, f"{name}-lock")
    lock.acquire()
    forgotten(lock.name)
    given = holdfast.Lock(server.url, f"{name}-given")
    given.acquire()
    ticket = given.ticket()
    forgotten(given.name)
    with ExitStack() as stack:
        for of in (name, lock.name, given.name):
            use = hold(used, server.url, of)
            stack.enter_context(use)
            if not held:
                stack.pop_all().close()
        attempts: list[Callable[[], object]] = [
            lambda: holdfast.Election(server.url, name).campaign(5),
            lambda: holdfast.Election(server.url, name).leader(),
            lambda: asyncio.run(there()),
            lock.ticket,
            holdfast.redeem(server.url, ticket).acquire,
        ]
        for attempt in attempts:
            with pytest.raises(holdfast.ConfigError) as refused:
                attempt()
            told(refused, used, held=held)
    with suppress(holdfast.LeaseLost):
        lock.release()


@pytest.mark.turns
@pytest.mark.parametrize("held", [True, False], ids=["held", "before"])
@pytest.mark.parametrize("used", ["semaphore", "read-write lock", "event", "latch", "barrier"])
def test_on_several_servers_too(new_server: NewServer, name: str, used: str, held: bool) -> None:
    urls = [new_server().url for _ in range(3)]
    holdfast.declare_new(urls)

    async def there() -> None:
        await aio.Redlock(urls, name).acquire()

    with ExitStack() as stack:
        for url in urls[1:]:
            stack.enter_context(hold(used, url, name))
        if not held:
            stack.pop_all().close()
        for attempt in (
            holdfast.Redlock(urls, name).acquire,
            holdfast.Election(urls, name).campaign,
            lambda: asyncio.run(there()),
        ):
            with pytest.raises(holdfast.ConfigError) as refused:
                attempt()
            told(refused, used, held=held)


def test_a_name_that_never_expires(server: PrivateServer, name: str) -> None:
    """There is nothing to wait for: somebody has to delete the key."""
    holdfast.Event(server.url, name).set()
    with redis.Redis.from_url(server.url) as client:
        client.persist(f"hf:{{{name}}}")
        for said in refusals(server.url, name, "lock"):
            assert "it is the name of an event. A name is for one kind of object: use another name, or delete the key" in said
            assert "until then" not in said
        client.delete(f"hf:{{{name}}}")


def test_on_the_command_line(server: PrivateServer, name: str) -> None:
    """In a process of its own: the command sets signal handlers."""
    command = [sys.executable, "-m", "holdfast", "acquire", name, "--ttl", "5", "-n", "--url", server.url]
    with holdfast.Semaphore(server.url, name, limit=2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 64
    assert "is the name of a semaphore that is held" in done.stderr


def test_data_of_somebody_elses(server: PrivateServer, name: str) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.rpush(f"hf:{{{name}}}", "data")
        client.pexpire(f"hf:{{{name}}}", 60_000)
        for said in refusals(server.url, name, "lock"):
            assert "holds a list" in said
            assert "use another name or prefix" in said
        client.delete(f"hf:{{{name}}}")
