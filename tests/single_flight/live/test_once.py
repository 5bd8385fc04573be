"""``once`` on a real server: one run for a key, over threads, tasks and processes, and what the others get."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import pytest
import redis
import redis.asyncio

import holdfast
from holdfast import (
    ConfigError,
    HoldfastError,
    HoldfastWarning,
    InProgress,
    LeaseLost,
    NotHeld,
    Once,
    ResultNotKept,
    ServerError,
    aio,
    once,
)
from holdfast._api import access
from support.peer import Peer
from support.proxy import Proxy
from support.servers import PrivateServer
from support.witness import Monitor, in_thread, until, until_in_loop

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore:ttl=.*less than 2 s:holdfast.HoldfastWarning")

APIS = ["threads", "asyncio"]
BOTH = pytest.mark.parametrize("api", APIS)


class Api:
    """Calls of either API, for tests that are the same for both."""

    def __init__(self, api: str, url: str, template: str, **options: Any) -> None:
        self.make: Any = aio.once(url, template, **options) if api == "asyncio" else once(url, template, **options)
        self._asyncio = api == "asyncio"

    def run(self, function: Callable[[], Any], **fields: object) -> Any:
        async def awaited() -> Any:
            return function()

        return self._now(self.make.run(awaited if self._asyncio else function, **fields))

    def forget(self, **fields: object) -> bool:
        return bool(self._now(self.make.forget(**fields)))

    def _now(self, result: Any) -> Any:
        async def main() -> Any:
            return await result

        return asyncio.run(main()) if self._asyncio else result


class Count:
    """A function that says how often it ran."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self) -> int:
        self.runs += 1
        return self.runs


class Declined(Exception):
    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.code = code


# One run, and what later calls get


@pytest.mark.parametrize("api", APIS)
def test_a_later_call_gets_the_stored_result(server: PrivateServer, look: redis.Redis, name: str, api: str) -> None:
    work, job = Count(), Api(api, server.url, name + ":{n}", keep=7200)
    first, second, other = job.run(work, n=1), job.run(work, n=1), job.run(work, n=2)
    assert (first.value, first.how) == (1, "ran")
    assert (second.value, second.how, second.fence) == (1, "replayed", first.fence)
    assert (other.value, other.how) == (2, "ran")
    assert other.fence > first.fence > time.time() * 1e6 - 60e6
    kept = {key[-5:]: look.pttl(key) for key in look.keys(f"*{name}*")}
    assert 7_100_000 < kept.pop("value") <= 7_200_000
    assert {key for key, left in kept.items() if 0 < left <= 1_200_000} == {"state"}, "it does not outlive what is late by far"
    assert job.forget(n=1)
    assert not job.forget(n=1)
    assert job.run(work, n=1).value == 3


@pytest.mark.parametrize("api", APIS)
def test_the_result_is_kept_for_so_long(server: PrivateServer, name: str, api: str) -> None:
    work, job = Count(), Api(api, server.url, name, keep=0.05)
    assert job.run(work).value == 1
    assert until(lambda: job.run(work).value == 2)


def test_one_api_replays_what_the_other_has_stored(server: PrivateServer, name: str) -> None:
    values: list[Any] = [None, [], {"a": [1.5, None, "ü"]}, "x" * 3_000_000]
    for number, value in enumerate(values):
        key = f"{name}-{number}"
        assert Api("threads", server.url, key, keep=60).run(functools.partial(values.__getitem__, number)).how == "ran"
        outcome = Api("asyncio", server.url, key, keep=60).run(lambda: 7)
        assert (outcome.value, outcome.how) == (value, "replayed")


def test_decorated_functions_and_methods(server: PrivateServer, name: str) -> None:
    ran: list[object] = []

    class Shop:
        @once(redis.Redis.from_url(server.url, decode_responses=True), name + ":{order}:{day!r}", keep=60, ignore="self")
        def pay(self, order: int, day: str = "today") -> list[int]:
            """Doc."""
            ran.append((order, day))
            return [order]

        @aio.once(redis.asyncio.Redis.from_url(server.url), name + ":{order}:{day!r}", keep=60, ignore="self")
        async def pay_soon(self, order: int, *, day: str = "today") -> list[int]:
            ran.append((order, day))
            return [order]

    shop = Shop()
    assert shop.pay(1) == shop.pay(order=1, day="today") == [1]
    assert Shop.pay.run(shop, 1).how == "replayed"
    assert inspect.getdoc(Shop.pay) == "Doc."

    async def main() -> None:
        assert await shop.pay_soon(1) == [1], "the key is all that counts"
        assert await shop.pay_soon(2) == [2]
        assert (await Shop.pay_soon.run(shop, 2)).how == "replayed"
        assert await Shop.pay_soon.forget(shop, 2)

    asyncio.run(main())
    assert ran == [(1, "today"), (2, "today")]


# While it runs


@pytest.mark.parametrize("api", APIS)
def test_a_double_click(server: PrivateServer, name: str, api: str) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def work() -> str:
        inside.set()
        assert go_on.wait(10)
        return "copied"

    first = in_thread(Api("threads", server.url, name, keep=60).run, work)
    assert inside.wait(10)
    with pytest.raises(InProgress) as caught:
        Api(api, server.url, name, keep=60, ttl=7).run(work)
    error = caught.value
    assert f":{os.getpid()}" in str(error.holder)
    assert error.name == name
    assert error.remaining is not None
    assert 20 < error.remaining <= 30
    assert 0 <= error.since < 10
    assert f"once {name!r} is in progress: " in str(error)
    with pytest.raises(InProgress) as caught:
        Api(api, server.url, name, keep=60, wait=0.05, busy="wait").run(work)
    assert 0.05 <= caught.value.waited < 5
    skipped = Api(api, server.url, name, keep=60, busy="skip").run(work)
    assert (skipped.value, skipped.how, skipped.fence) == (None, "skipped", 0)
    go_on.set()
    assert first.result(10).how == "ran"
    assert Api(api, server.url, name, keep=60).run(work).how == "replayed"


def test_who_waits_is_told_and_asks_nothing_meanwhile(server: PrivateServer, monitor: Monitor, name: str) -> None:
    inside, go_on, work = threading.Event(), threading.Event(), Count()

    def slow() -> int:
        inside.set()
        assert go_on.wait(10)
        return work()

    job = once(server.url, name, keep=60, busy="wait", wait=10)
    calls = [in_thread(job.run, slow)]
    assert inside.wait(10)
    monitor.commands()
    calls += [in_thread(job.run, slow) for _ in range(3)]
    calls.append(in_thread(Api("asyncio", server.url, name, keep=60, busy="wait", wait=10).run, slow))
    asked = monitor.until(4, about=name)
    time.sleep(0.3)
    asked += monitor.commands(about=name)
    go_on.set()
    outcomes = [call.result(5) for call in calls]
    assert [outcome.value for outcome in outcomes] == [1] * 5
    assert sorted(outcome.how for outcome in outcomes) == ["ran", *["replayed"] * 4]
    assert len(asked) <= 12, "each looks for a result, asks who runs, and is put down to be told"


@pytest.mark.parametrize("api", APIS)
def test_who_waits_for_a_call_that_fails_runs(server: PrivateServer, name: str, api: str) -> None:
    inside, go_on, work = threading.Event(), threading.Event(), Count()

    def fail() -> None:
        inside.set()
        assert go_on.wait(10)
        raise ValueError("no")

    first = in_thread(Api(api, server.url, name, keep=60).run, fail)
    assert inside.wait(10)
    others = [in_thread(Api(other, server.url, name, keep=60, busy="wait", wait=10).run, work) for other in APIS * 2]
    time.sleep(0.05)
    go_on.set()
    with pytest.raises(ValueError, match="no"):
        first.result(5)
    assert sorted((outcome.value, outcome.how) for outcome in [other.result(5) for other in others]) == [
        (1, "ran"), *[(1, "replayed")] * 3,
    ]  # fmt: skip


def test_many_processes_and_one_run(server: PrivateServer, look: redis.Redis, name: str) -> None:
    call = (
        f"holdfast.once(url, {name!r}, keep=60, busy='wait').run(lambda: [os.getpid(), __import__('time').sleep(.05)]).value[0]"
    )
    with Peer("sync", server.url, "a") as a, Peer("sync", server.url, "b") as b, Peer("sync", server.url, "c") as c:
        for peer in (a, b, c):
            peer.tell(call)
        assert len({peer.answer() for peer in (a, b, c)} & {a.pid, b.pid, c.pid}) == 1


# When it does not come to its end


@pytest.mark.parametrize("api", APIS)
def test_a_killed_process_frees_the_key_when_its_lease_ends(
    server: PrivateServer, look: redis.Redis, name: str, api: str
) -> None:
    running = f"holdfast.once(url, {name!r}, keep=60, ttl=1).run(lambda: __import__('time').sleep(60))"
    work = Count()
    with Peer("sync", server.url, "x") as peer:
        peer.tell(running)
        skipping = once(server.url, name, keep=60, busy="skip")
        until(lambda: look.keys(f"*{name}*"))
        assert skipping.run(work).how == "skipped"
        peer.kill()
        killed = time.monotonic()
        assert Api(api, server.url, name, keep=60, busy="wait", wait=10).run(work).value == 1
        assert time.monotonic() - killed < 3
    assert skipping.run(work).how == "replayed"


@pytest.mark.parametrize("api", APIS)
def test_an_exception_frees_it_unless_it_is_to_be_remembered(server: PrivateServer, name: str, api: str) -> None:
    attempts: list[str] = []

    def work() -> str:
        attempts.append("")
        if len(attempts) == 1:
            raise ValueError("not yet")
        raise Declined("insufficient funds", 51)

    job = Api(api, server.url, name, keep=60, errors=Declined)
    with pytest.raises(ValueError, match="not yet"):
        job.run(work)
    errors = []
    for other in (job, job, Api("asyncio", server.url, name, keep=60, errors=(KeyError, Exception))):
        with pytest.raises(Declined) as caught:
            other.run(work)
        errors.append(caught.value)
    assert [(str(error), error.args, error.code) for error in errors] == [
        ("insufficient funds", ("insufficient funds",), 51)
    ] * 3
    assert not hasattr(errors[0], "__notes__")
    assert f"once {name!r} ran before" in errors[1].__notes__[0]
    with pytest.raises(HoldfastError, match=r"ran before.*Declined"):
        Api(api, server.url, name, keep=60).run(work)
    assert len(attempts) == 2


def test_a_result_that_cannot_be_read_is_not_run_again(server: PrivateServer, name: str) -> None:
    work = Count()
    assert once(server.url, name, keep=60).run(work).value == 1
    with pytest.raises(HoldfastError, match=r"ran before.*codec 'json', not 'str'"):
        once(server.url, name, keep=60, codec="str").run(work)
    assert work.runs == 1


@BOTH
@pytest.mark.parametrize(
    ("result", "options", "why"),
    [
        ("x" * 101, {"max_size": 100}, r"it has 103 bytes, and max_size is 100"),
        ((1, 2), {}, "codec 'json' cannot store .* a tuple"),
        (object(), {"codec": "str"}, "codec 'str' cannot store"),
    ],
    ids=["too large", "tuple", "object"],
)
def test_a_result_that_cannot_be_kept_does_not_run_again(
    server: PrivateServer, name: str, api: str, result: Any, options: dict[str, Any], why: str
) -> None:
    job, runs = Api(api, server.url, name, keep=60, **options), []

    def work() -> Any:
        runs.append(1)
        return result

    with pytest.warns(HoldfastWarning, match=f"not kept: .*{why}.*later calls raise ResultNotKept"):
        assert job.run(work).value is result
    for _ in range(2):
        with pytest.raises(ResultNotKept, match=why) as caught:
            job.run(work)
        assert caught.value.fence > 0
        assert caught.value.name == name
    assert runs == [1]
    assert job.forget()
    with pytest.warns(HoldfastWarning):
        job.run(work)
    assert runs == [1, 1]


@BOTH
def test_a_remembered_exception_that_is_too_large(server: PrivateServer, name: str, api: str) -> None:
    job = Api(api, server.url, name, keep=60, errors=ValueError, max_size=100)

    def work() -> Any:
        raise ValueError("x" * 200)

    with pytest.raises(ValueError, match="xxx"), pytest.warns(HoldfastWarning, match="max_size is 100"):
        job.run(work)
    with pytest.raises(ResultNotKept):
        job.run(work)


@BOTH
@pytest.mark.parametrize("limit", ["maxmemory", "proto-max-bulk-len"])
def test_a_result_that_the_server_refuses_does_not_run_again(new_server: NewServer, name: str, api: str, limit: str) -> None:
    server = new_server()
    with redis.Redis.from_url(server.url) as admin:
        job, runs = Api(api, server.url, name, keep=60, ttl=4), []
        if limit == "proto-max-bulk-len":
            admin.config_set(limit, 1024 * 1024)

        def work() -> str:
            runs.append(1)
            if limit == "maxmemory":
                admin.config_set("maxmemory", 1)
            return "x" * 3_000_000

        with pytest.warns(HoldfastWarning, match=r"not kept: the server refused to store its 3,000,002 bytes"):
            assert len(job.run(work).value) == 3_000_000
        for _ in range(2):
            with pytest.raises(ResultNotKept, match="the server refused"):
                job.run(work)
        assert runs == [1]


@BOTH
def test_a_result_that_is_too_long_to_be_read_here_is_not_run_again(server: PrivateServer, name: str, api: str) -> None:
    assert Api(api, server.url, name, keep=60).run(lambda: "x" * 10_000).how == "ran"
    with pytest.raises(ConfigError, match=r"ran before, and its value has 10,\d\d\d bytes.*pass at least this max_size"):
        Api(api, server.url, name, keep=60, max_size=100).run(lambda: pytest.fail("ran"))


@BOTH
def test_what_somebody_else_has_stored_under_its_key_is_not_run_over(
    server: PrivateServer, name: str, api: str, look: redis.Redis
) -> None:
    key = f"hf:once:{{{name}}}:value"
    for theirs in ("x", "2 v 1 1 0 1\nx", "9" * 40_000, "1 v 1 1 0 1"):
        look.set(key, theirs)
        with pytest.raises(ConfigError, match="holds a string that another program has written"):
            Api(api, server.url, name, keep=60).run(lambda: pytest.fail("ran"))
    look.delete(key)


def test_interrupted(server: PrivateServer, name: str) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    job, work = once(server.url, name, keep=60, errors=Exception), Count()
    with pytest.raises(KeyboardInterrupt):
        job.run(interrupted)
    assert job.run(work).how == "ran"


def test_a_cancelled_task_frees_it_at_once(server: PrivateServer, name: str) -> None:
    job = aio.once(server.url, name, keep=60)

    async def main() -> None:
        inside = asyncio.Event()

        async def work() -> None:
            inside.set()
            await asyncio.Event().wait()

        async def done() -> str:
            return "done"

        running = asyncio.create_task(job.run(work))
        await inside.wait()
        waiting = asyncio.create_task(aio.once(server.url, name, keep=60, busy="wait").run(work))
        await asyncio.sleep(0.05)
        for task in (waiting, running):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (await job.run(done)).how == "ran"

    asyncio.run(main())


# A lost lease


def test_a_call_that_was_forgotten_stores_nothing(server: PrivateServer, name: str) -> None:
    job, work = once(server.url, name, keep=60), Count()

    def forgotten() -> str:
        running = Once.current()
        running.check()
        job.forget()
        assert job.run(work).value == 1
        return "late"

    with pytest.raises(ConfigError, match="in the same call stack already"):
        job.run(forgotten)
    other = once(server.url, name, keep=60)

    def forgotten_elsewhere() -> str:
        other.forget()
        assert in_thread(other.run, work).result(5).value == 1
        return "late"

    with pytest.raises(LeaseLost, match="its result is not stored") as caught:
        job.run(forgotten_elsewhere)
    assert caught.value.name == name
    assert (job.run(work).value, work.runs) == (1, 1)


def test_a_loss_ends_a_coroutine_and_is_told_to_a_thread(server: PrivateServer, name: str) -> None:
    async def cancelled() -> None:
        await aio.once(server.url, name, keep=60).forget()
        await asyncio.Event().wait()

    with pytest.raises(LeaseLost):
        asyncio.run(run_soon(aio.once(server.url, name, keep=60, ttl=0.6), cancelled))

    def told() -> None:
        running = Once.current()
        once(server.url, name, keep=60).forget()
        until(lambda: not running.remaining())
        with pytest.raises(LeaseLost, match=f"once '{name}'"):
            running.check()
        raise ValueError("on its own account")

    with pytest.raises(ValueError, match="on its own account") as caught:
        once(server.url, name, keep=60, ttl=0.6, errors=ValueError).run(told)
    assert "lost its lease" in caught.value.__notes__[0]

    def lost() -> None:
        running = Once.current()
        once(server.url, name, keep=60).forget()
        until(lambda: not running.remaining())
        running.check()

    with pytest.raises(LeaseLost) as error:
        once(server.url, name, keep=60, ttl=0.6, errors=LeaseLost).run(lost)
    assert not hasattr(error.value, "__notes__"), "it says so already"
    assert once(server.url, name, keep=60).run(Count()).how == "ran"


async def run_soon(job: Any, function: Any) -> Any:
    return await job.run(function)


def test_a_late_result_does_not_replace_a_newer_one(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """A process that is stopped for longer than its lease."""
    work = "(print('1', flush=True), sys.stdin.readline())[1]"
    late = f"holdfast.once(url, {name!r}, keep=60, ttl=0.3).run(lambda: {work})"
    with Peer("sync", server.url, "x") as peer:
        peer.tell(late)
        assert peer.answer() == 1
        peer.stop()
        new = once(server.url, name, keep=60, busy="wait", wait=10).run(lambda: "newer")
        assert new.how == "ran"
        peer.go_on()
        peer.tell("the end of its work")
        assert peer.answer() == "LeaseLost"
    assert once(server.url, name, keep=60).run(str).value == "newer"


# Facts about the running call, and refusals


def test_the_running_call_sees_its_lease(server: PrivateServer, name: str) -> None:
    with pytest.raises(NotHeld):
        Once.current()
    known: list[Any] = []

    @once(server.url, name + ":{n}", keep=60)
    def nested(n: int) -> int:
        running = Once.current()
        known.append(running)
        running.check()
        assert running.name == f"{name}:{n}"
        assert 0 < running.remaining() <= 30
        if n:
            assert nested(n - 1) < running.fence + 10_000_000
            assert Once.current() is running
        return running.fence

    @aio.once(server.url, name, keep=60)
    async def alone() -> int:
        return await asyncio.create_task(deeper())

    async def deeper() -> int:
        return holdfast.Once.current().fence

    assert nested.run(2).fence == nested(2) == known[0].fence
    assert asyncio.run(alone()) > known[-1].fence
    for running in known:
        assert running.remaining() == 0
        with pytest.raises(NotHeld):
            running.check()


def test_the_same_key_on_another_server_is_another_one(server: PrivateServer, new_server: NewServer, name: str) -> None:
    here, there = (once(url, name, keep=60) for url in (server.url, new_server().url))
    assert here.run(lambda: there.run(lambda: 7).value).value == 7


@pytest.mark.parametrize("busy", ["raise", "skip", "wait"])
def test_a_call_inside_itself(server: PrivateServer, name: str, busy: Literal["raise", "skip", "wait"]) -> None:
    @once(server.url, name + ":{n}", keep=60, busy=busy)
    def again(n: int) -> int | None:
        return again(n)

    with pytest.raises(ConfigError, match=f"once '{name}:7' runs in the same call stack already"):
        again(7)


def test_a_forked_child_ends_nothing(server: PrivateServer, name: str) -> None:
    job = once(server.url, name, keep=60)
    done, write = os.pipe()
    said: list[bytes] = []

    def forking() -> str:
        running = Once.current()
        if not os.fork():
            return said_by(running.check)
        said.append(os.read(done, 1000))
        with pytest.raises(InProgress):
            in_thread(job.run, str).result(5)
        return "parent"

    def said_by(check: Callable[[], None]) -> str:
        try:
            check()
        except NotHeld as error:
            return str(error)
        return "nothing"

    outcome = job.run(forking)
    if outcome.value != "parent":
        os.write(write, outcome.value.encode())
        os._exit(0)
    assert b"belongs to the process that forked this one" in said[0]
    os.wait()
    os.close(done)
    os.close(write)
    assert job.run(str).value == "parent"


# Without a server


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("after", [0, 1])
def test_what_gets_no_answer_is_asked_once_more(server: PrivateServer, name: str, api: str, after: int) -> None:
    """As on a connection that was idle while the function ran, and was dropped without a word. The first script is that which
    looks, the second that which stores."""
    work = Count()
    with Proxy(server) as proxy:
        job = Api(api, proxy.url, name, keep=60, ttl=6)
        lost = proxy.on("other", action="lose", skip=after)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert job.run(work).how == "ran"
            assert len(lost.requests) == 1
            assert job.run(work).how == "replayed"
        holdfast.close()
    assert work.runs == 1


@pytest.mark.parametrize("api", APIS)
def test_a_result_is_stored_when_the_server_is_back_in_time(new_server: NewServer, api: str) -> None:
    mortal, work = new_server(appendonly=True), Count()

    def cut_off() -> int:
        mortal.kill()
        return work()

    job = Api(api, mortal.url, "x", keep=60, busy="wait", wait=20)
    with pytest.warns(HoldfastWarning, match=r"it is unknown whether the result is stored"):
        assert job.run(cut_off).value == 1
    mortal.restart()
    again = job.run(work)
    assert (again.how, again.value, work.runs) == ("replayed", 1, 1)


@pytest.mark.parametrize("api", APIS)
def test_a_result_that_is_refused_for_a_moment_is_stored_after_it(new_server: NewServer, api: str) -> None:
    """As by a primary that is being demoted; where memory is full there is a mark."""
    server, work = new_server(), Count()
    look: Any = redis.Redis.from_url(server.url)

    def demoted() -> int:
        look.replicaof("127.0.0.1", 1)
        return work()

    def full() -> int:
        look.config_set("maxmemory", 1)
        return work()

    job = Api(api, server.url, "{key}", keep=60, busy="wait", wait=20, ttl=5)
    with pytest.warns(HoldfastWarning, match="it is unknown whether the result is stored"):
        job.run(demoted, key="a")
    look.replicaof("NO", "ONE")
    assert job.run(work, key="a").how == "replayed"
    with pytest.warns(HoldfastWarning, match="the result is not kept: the server refused to store its 1 bytes: OOM"):
        job.run(full, key="b")
    look.config_set("maxmemory", 0)
    with pytest.raises(ResultNotKept):
        job.run(work, key="b")
    look.close()


@BOTH
def test_a_result_for_which_the_server_refuses_even_a_mark_may_run_again(new_server: NewServer, api: str) -> None:
    server = new_server()
    with redis.Redis.from_url(server.url) as admin:
        admin.acl_setuser("worker", enabled=True, nopass=True, categories=["+@all"], keys=["*"], channels=["*"])
        job = Api(api, server.url.replace("://", "://worker:x@"), "{key}", keep=60, ttl=4)

        def work() -> int:
            admin.acl_setuser("worker", enabled=True, commands=["-set"])
            return 1

        with pytest.warns(HoldfastWarning, match="the result is not stored, so the function may run again") as warned:
            assert job.run(work, key="a").value == 1
        assert "later calls raise" not in str(warned[0].message), "as nothing is stored"


@pytest.mark.parametrize("api", APIS)
def test_a_server_that_is_away_before_and_after(new_server: NewServer, api: str) -> None:
    mortal, work = new_server(), Count()

    def cut_off() -> int:
        mortal.kill()
        return work()

    job = Api(api, mortal.url, "x", keep=60)
    with pytest.warns(HoldfastWarning, match=r"once 'x': failed.*it is unknown whether the result is stored"):
        assert job.run(cut_off).value == 1
    with pytest.raises(ServerError, match="once 'x': failed"):
        job.run(work)
    assert work.runs == 1
    with pytest.raises(ServerError):
        job.forget()


def test_another_thing_under_the_key(server: PrivateServer, look: redis.Redis, name: str) -> None:
    job, work = once(server.url, name, keep=60), Count()
    key = job._job(name).entry.value
    look.rpush(key, "x")
    with pytest.raises(ConfigError, match="holds a list"):
        job.run(work)
    assert (look.lrange(key, 0, -1), work.runs) == (["x"], 0)
    look.delete(key)


def test_events(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        started: list[object] = []

        async def work() -> int:
            started.append(Once.current())
            await asyncio.sleep(0.02)
            return len(started)

        job = aio.once(server.url, name, keep=60, busy="wait")
        tasks = [asyncio.create_task(job.run(work)) for _ in range(50)]
        await until_in_loop(lambda: started)
        outcomes = [await task for task in tasks]
        assert [outcome.value for outcome in outcomes] == [1] * 50
        assert sum(outcome.how == "ran" for outcome in outcomes) == 1

    asyncio.run(main())


@pytest.mark.parametrize("api", APIS)
def test_with_the_rights_that_it_needs_and_no_others(server: PrivateServer, look: redis.Redis, name: str, api: str) -> None:
    admin: Any = look
    admin.execute_command("ACL SETUSER", name, *access.rule(("lock", "once")), ">secret")
    inside, go_on = threading.Event(), threading.Event()

    def work() -> str:
        inside.set()
        assert go_on.wait(10)
        return "done"

    job = Api(api, f"redis://{name}:secret@127.0.0.1:{server.port}", name, keep=60, busy="wait", wait=10)
    calls = [in_thread(job.run, work)]
    assert inside.wait(10)
    calls.append(in_thread(job.run, work))
    until(lambda: look.exists(f"hf:once:{{{name}}}:waiters"))
    go_on.set()
    assert sorted(call.result(5).how for call in calls) == ["ran", "replayed"]
    assert job.forget()
    holdfast.close()
    admin.acl_deluser(name)
