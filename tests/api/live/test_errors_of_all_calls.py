"""The usual errors of a server, in every class and function that asks one: short, with the address and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio

import holdfast
from api.live.test_usual_errors import NOWHERE, is_short
from holdfast import aio, fencing

if TYPE_CHECKING:
    from conftest import NewServer

Use = Callable[[Any, Any], Any]
"""Uses one class or function of an API, with a client. In asyncio, it returns an awaitable."""


def entered(thing: Any) -> Any:
    """Enter a ``with`` or an ``async with`` statement."""

    def enter() -> None:
        with thing:
            raise AssertionError

    async def aio_enter() -> None:
        async with thing:
            raise AssertionError

    return aio_enter() if hasattr(thing, "__aenter__") else enter()


def decorated(api: Any, decorate: Callable[[Any], Any]) -> Any:
    def plain() -> None:
        raise AssertionError

    async def coroutine() -> None:
        raise AssertionError

    return decorate(coroutine if api is aio else plain)()


def transacted(api: Any, decorate: Callable[[Any], Any]) -> Any:
    def plain(tx: object) -> None:
        raise AssertionError(tx)

    async def coroutine(tx: object) -> None:
        raise AssertionError(tx)

    return decorate(coroutine if api is aio else plain)


def first(iterator: Any) -> Any:
    return anext(iterator) if hasattr(iterator, "__anext__") else next(iterator)


def schedule(api: Any, client: object) -> Any:
    made = api.Schedule(client, "x")
    made.every(60, name="job")(asyncio.sleep if api is aio else print)
    return made


USES: dict[str, Use] = {
    "Lock": lambda api, client: entered(api.Lock(client, "x")),
    "Lock.acquire": lambda api, client: api.Lock(client, "x").acquire(),
    "Lock.locked": lambda api, client: api.Lock(client, "x").locked(),
    "FairLock": lambda api, client: entered(api.FairLock(client, "x")),
    "RLock": lambda api, client: entered(api.RLock(client, "x")),
    "RLock.acquire": lambda api, client: api.RLock(client, "x").acquire(),
    "Semaphore": lambda api, client: entered(api.Semaphore(client, "x", 2)),
    "Semaphore.acquire": lambda api, client: api.Semaphore(client, "x", 2).acquire(),
    "Semaphore.available": lambda api, client: api.Semaphore(client, "x", 2).available(),
    "BoundedSemaphore": lambda api, client: entered(api.BoundedSemaphore(client, "x", 2)),
    "RWLock.read": lambda api, client: entered(api.RWLock(client, "x").read),
    "RWLock.write": lambda api, client: api.RWLock(client, "x").write.acquire(),
    "MultiLock": lambda api, client: entered(api.MultiLock(client, ["x", "y"])),
    "MultiLock.acquire": lambda api, client: api.MultiLock(client, ["x", "y"]).acquire(),
    "connect": lambda api, client: entered(api.connect(client).lock("x")),
    "locked": lambda api, client: decorated(api, api.locked(client, "x")),
    "once": lambda api, client: decorated(api, api.once(client, "x", keep=60)),
    "Cache.set": lambda api, client: api.Cache(client, "x").set("a", 1),
    "Cache.delete": lambda api, client: api.Cache(client, "x").delete("a"),
    "Cache.clear": lambda api, client: api.Cache(client, "x").clear(),
    "Cache.get": lambda api, client: api.Cache(client, "x", down="raise").get("a"),
    "Cache.get_or_load": lambda api, client: api.Cache(client, "x", down="raise").get_or_load("a", list),
    "Cache.memoize": lambda api, client: decorated(api, api.Cache(client, "x", down="raise").memoize("a")),
    "Event.set": lambda api, client: api.Event(client, "x").set(),
    "Event.is_set": lambda api, client: api.Event(client, "x").is_set(),
    "Event.wait": lambda api, client: api.Event(client, "x").wait(),
    "Barrier": lambda api, client: entered(api.Barrier(client, "x", 2)),
    "Barrier.abort": lambda api, client: api.Barrier(client, "x", 2).abort(),
    "CountDownLatch.count_down": lambda api, client: api.CountDownLatch(client, "x", 2).count_down(),
    "CountDownLatch.wait": lambda api, client: api.CountDownLatch(client, "x", 2).wait(),
    "Election": lambda api, client: entered(api.Election(client, "x")),
    "Election.campaign": lambda api, client: api.Election(client, "x").campaign(),
    "Election.leader": lambda api, client: api.Election(client, "x").leader(),
    "Election.observe": lambda api, client: first(api.Election(client, "x").observe()),
    "Schedule": lambda api, client: entered(schedule(api, client)),
    "Schedule.run": lambda api, client: schedule(api, client).run(),
    "Schedule.status": lambda api, client: schedule(api, client).status(),
    "Schedule.run_now": lambda api, client: schedule(api, client).run_now("job"),
    "Schedule.history": lambda api, client: schedule(api, client).history("job"),
    "Inspector.locks": lambda api, client: first(api.Inspector(client).locks()),
    "Inspector.show": lambda api, client: api.Inspector(client).show("x"),
    "Inspector.wait": lambda api, client: api.Inspector(client).wait("x"),
    "Inspector.break_lock": lambda api, client: api.Inspector(client).break_lock("x"),
    "find_deadlocks": lambda api, client: api.find_deadlocks(client),
    "Transaction": lambda api, client: entered(api.Transaction(client, "x")),
    "Transaction.run": lambda api, client: api.Transaction(client, "x").run(transacted(api, lambda body: body)),
    "transactional": lambda api, client: transacted(api, api.transactional(client, "x"))(),
    "accept": lambda api, client: (fencing.aio_accept if api is aio else fencing.accept)(client, "x", 7),
    "fenced_set": lambda api, client: (fencing.aio_fenced_set if api is aio else fencing.fenced_set)(client, "x", "", 7),
}


def raised(use: Use, api: Any, client: Any, match: str) -> holdfast.ServerError:
    with pytest.raises(holdfast.ServerError, match=match) as caught:
        use(api, client)
    return caught.value


async def aio_raised(use: Use, client: Any, match: str) -> holdfast.ServerError:
    with pytest.raises(holdfast.ServerError, match=match) as caught:
        await use(aio, client)
    return caught.value


def error_of(use: Use, api: Any, client: Any, match: str) -> holdfast.ServerError:
    """Return the error of a use, after a check that it is short."""
    error = asyncio.run(aio_raised(use, client, match)) if api is aio else raised(use, api, client, match)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_next.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error.__traceback__ = trace
    is_short(error)
    return error


def clients(api: Any, url: str) -> list[object]:
    return [url, (redis.asyncio.Redis if api is aio else redis.Redis).from_url(url)]


@pytest.mark.parametrize("api", [holdfast, aio], ids=["sync", "asyncio"])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_no_server(use: Use, api: Any) -> None:
    advice = r"no server at 127\.0\.0\.1:1: .*; start one with `holdfast server .*local://"
    for client in clients(api, NOWHERE):
        error = error_of(use, api, client, advice)
        assert isinstance(error.__cause__, ConnectionRefusedError | redis.ConnectionError)


@pytest.mark.parametrize("api", [holdfast, aio], ids=["sync", "asyncio"])
def test_no_password(new_server: NewServer, api: Any) -> None:
    """A server without a password refuses a long command with another error than a short one."""
    server = new_server(port=True, password="secret-of-test")
    for use in USES.values():
        for client in clients(api, f"redis://127.0.0.1:{server.port}"):
            error = error_of(use, api, client, rf"; 127\.0\.0\.1:{server.port} needs a password: pass a client that has it")
            assert error.code == "NOAUTH"


@pytest.mark.parametrize("api", [holdfast, aio], ids=["sync", "asyncio"])
def test_a_wrong_password(new_server: NewServer, api: Any) -> None:
    server = new_server(port=True, password="secret-of-test")
    for use in USES.values():
        for client in clients(api, f"redis://:canary@127.0.0.1:{server.port}"):
            error = error_of(use, api, client, rf"; check the user name and the password for 127\.0\.0\.1:{server.port}$")
            assert error.code == "WRONGPASS"
            assert "canary" not in str(error)
