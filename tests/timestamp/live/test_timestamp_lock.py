"""The timestamp lock on a real server: with deployed clients in both directions, both APIs, and what goes wrong."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio

import holdfast
from holdfast import ConfigError, LeaseLost, Lock, LockTimeout, NotHeld, ServerError, _clock, legacy
from holdfast.legacy import Migrating, TimestampLock
from support.clusters import Cluster
from support.proxy import Proxy
from support.servers import PrivateServer
from support.witness import Monitor, in_thread, until
from timestamp.live.deployed import Deployed

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = [
    pytest.mark.filterwarnings("ignore:TimestampLock is only as good:holdfast.HoldfastWarning"),
    pytest.mark.filterwarnings("ignore:ttl=.*less than 2 s:holdfast.HoldfastWarning"),
]

UNITS = [("s", 1), ("ms", 1000)]
HERE = Path(__file__).parent


class Blocking:
    """The asyncio API, as if it were the other one: in a loop of its own."""

    def __init__(self, url: str, key: str, **options: Any) -> None:
        self.lock = legacy.aio.TimestampLock(url, key, **options)
        self.runner = asyncio.Runner()

    def acquire(self, **how: Any) -> bool:
        return self.runner.run(self.lock.acquire(**how))

    def release(self) -> None:
        self.runner.run(self.lock.release())


@pytest.fixture(params=["threads", "asyncio"])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Makes a lock of either API."""
    made: list[Blocking] = []

    def of_asyncio(*args: Any, **options: Any) -> Blocking:
        made.append(Blocking(*args, **options))
        return made[-1]

    yield TimestampLock if request.param == "threads" else of_asyncio
    for lock in made:
        lock.runner.close()


@pytest.fixture
def long_ago(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Ours is in the past until this is undone."""
    with monkeypatch.context() as moved:
        moved.setattr(_clock, "ahead", -100.0)
        yield moved


# With deployed clients


@pytest.mark.parametrize(("unit", "number"), UNITS)
def test_each_excludes_the_other(make: Any, unit: Any, number: int, server: PrivateServer, look: Any, name: str) -> None:
    ours, theirs = make(server.url, name, ttl=20, unit=unit), Deployed(look, name, 20, number)
    assert theirs.take()
    assert not ours.acquire(blocking=False)
    theirs.give_back()
    before = int(time.time() * number)
    assert ours.acquire()
    assert before + 20 * number + 1 <= int(look.get(name)) <= int(time.time() * number) + 20 * number + 1
    assert look.pttl(name) == -1
    assert not theirs.take()
    ours.release()
    assert theirs.take()
    theirs.give_back()
    assert look.get(name) is None


@pytest.mark.parametrize(("unit", "number"), UNITS)
def test_ours_takes_over_what_a_deployed_one_has_left(
    make: Any, unit: Any, number: int, server: PrivateServer, look: Any, name: str
) -> None:
    dead = Deployed(look, name, 20, number, ahead=-100)
    assert dead.take()
    ours = make(server.url, name, ttl=20, unit=unit)
    assert ours.acquire(blocking=False)
    dead.ahead = -200  # it has slept, and believes to be in time
    late = Deployed(look, name, 20, number)
    assert not late.take()
    ours.release()


@pytest.mark.parametrize(("unit", "number"), UNITS)
def test_a_deployed_one_takes_over_what_ours_has_left(
    unit: Any, number: int, server: PrivateServer, look: Any, name: str, long_ago: pytest.MonkeyPatch
) -> None:
    ours = TimestampLock(server.url, name, ttl=20, unit=unit)
    lease = ours.__enter__()
    assert lease.remaining() > 19
    long_ago.undo()
    theirs = Deployed(look, name, 20, number)
    assert theirs.take()
    value = look.get(name)
    with pytest.raises(LeaseLost, match="its time has passed"):
        lease.check()
    with pytest.raises(LeaseLost, match="its time had passed when it was released"):
        ours.__exit__(None, None, None)
    assert look.get(name) == value


def contend(server: PrivateServer, key: str, seconds: float, unit: int, ttl: float, crowd: list[str]) -> list[int]:
    """How often each of them has had the lock."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path])}
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "timestamp.live.deployed", who, server.url, key, str(ttl), str(unit), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for who in crowd
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:  # all of them begin when all are there
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return [int(process.communicate(timeout=60)[0]) for process in running]


@pytest.mark.turns("fleets")
def test_a_crowd_of_both_kinds(server: PrivateServer, look: Any, name: str) -> None:
    """Now and then one of them does not give it back; the others take over when the time has passed."""
    turns = contend(server, name, 1.5, 1000, 0.3, ["ours", "tasks", "deployed", "deployed"])
    assert look.lrange(f"{name}:wrong", 0, -1) == []
    assert all(turns), turns


@pytest.mark.soak
@pytest.mark.parametrize(("unit", "ttl"), [(1, 1), (1000, 0.5)])
def test_a_crowd_of_both_kinds_for_long(server: PrivateServer, look: Any, name: str, unit: int, ttl: float) -> None:
    turns = contend(server, name, 20, unit, ttl, ["ours", "ours", "tasks", "deployed", "deployed", "deployed"])
    assert look.lrange(f"{name}:wrong", 0, -1) == []
    assert all(turns), turns


# Pickling


def test_what_is_sent(server: PrivateServer, monitor: Monitor, name: str) -> None:
    lock = TimestampLock(server.url, name, ttl=5)
    for _ in range(2):  # the first time, the text of the scripts is sent, too
        monitor.commands(name)
        with lock:
            assert monitor.names(name) == ["SETNX"]
            assert not lock.acquire(blocking=False)
            assert monitor.names(name) == ["SETNX", "GET"]
    assert monitor.names(name) == ["EVALSHA"]


def test_the_servers_clock_counts(server: PrivateServer, look: Any, name: str, long_ago: pytest.MonkeyPatch) -> None:
    """However wrong our own is."""
    lock = TimestampLock(server.url, name, ttl=5, unit="ms", clock="server")
    with lock as lease:
        assert abs(int(look.get(name)) / 1000 - time.time() - 5) < 2
        assert 3 < lease.remaining() < 5
        assert not TimestampLock(server.url, name, ttl=5, unit="ms", clock="server").acquire(blocking=False)
    assert not lock.locked()


@pytest.mark.parametrize("value", ["{}", "  {} \n", "{}.75", "{}."])
def test_values_of_others_are_understood(server: PrivateServer, look: Any, name: str, value: str) -> None:
    lock = TimestampLock(server.url, name, ttl=5, wait=0)
    look.set(name, value.format(int(time.time()) + 9))
    assert lock.locked()
    with pytest.raises(LockTimeout, match=r"its holder's time ends in [6789]\.\d s"), lock:
        pass
    look.set(name, value.format(int(time.time()) - 5))
    assert not lock.locked()
    with lock:
        assert look.get(name).isdigit()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("1", "the number 1, which is not a Unix time in seconds"),
        ("aaaaaaaaaaaa.0123", "a value of 17 bytes that is not a Unix time in seconds"),
        ("", "a value of 0 bytes"),
        ("-1700000000", "not a Unix time"),
        ("1.7e9", "not a Unix time"),
        ("4102444800000", r"a Unix time in milliseconds, but this lock counts in seconds.*same unit="),  # of the year 2100
    ],
)
def test_anything_else_is_refused_and_left_alone(server: PrivateServer, look: Any, name: str, value: str, why: str) -> None:
    look.set(name, value)
    lock = TimestampLock(server.url, name, ttl=5)
    for ask in (lock.acquire, lock.locked):
        with pytest.raises(ConfigError, match=f"{name}.*{why}.*nothing was changed") as caught:
            ask()
        assert "0123" not in str(caught.value), "it may be the secret of another lock"
    assert look.get(name) == value
    look.delete(name)
    look.rpush(name, "job")
    with pytest.raises(ConfigError, match="a list, a hash or data of another type"):
        lock.acquire()
    assert look.lrange(name, 0, -1) == ["job"]


# The API


def test_a_lease(server: PrivateServer, look: Any, name: str) -> None:
    lock = TimestampLock(server.url, name, ttl=10, unit="ms")
    with lock as lease:
        assert lock.lease is lease
        assert not hasattr(lease, "fence")
        before = int(look.get(name))
        lease.renew(60)
        assert 58 < lease.remaining() < 60
        assert int(look.get(name)) > before + 49_000
        lease.renew(5)
        assert lease.remaining() < 5
    assert look.get(name) is None
    assert lock.lease is None
    with pytest.raises(NotHeld, match="released already"):
        lease.check()
    with pytest.raises(NotHeld):
        lease.release()
    with pytest.raises(NotHeld):
        lock.release()


def test_a_stolen_lock_is_not_deleted(server: PrivateServer, look: Any, name: str) -> None:
    thief = Deployed(look, name, 20, 1, ahead=100)
    with pytest.raises(LeaseLost, match="a client whose clock is ahead"), TimestampLock(server.url, name, ttl=20) as lease:
        assert thief.take()
        stolen = look.get(name)
    assert look.get(name) == stolen
    with pytest.raises(ValueError, match="body") as caught, TimestampLock(server.url, "x" + name, ttl=20) as lease:
        look.set("x" + name, 1)
        with pytest.raises(LeaseLost, match="its key has another value"):
            lease.renew()
        assert lease.remaining() == 0
        raise ValueError("body")
    assert "lost" in caught.value.__notes__[0]


def test_who_waits_gets_it(make: Any, server: PrivateServer, name: str) -> None:
    first = TimestampLock(server.url, name, ttl=20)
    assert first.acquire()
    waiting = in_thread(lambda: make(server.url, name, ttl=20).acquire(timeout=5))
    late = make(server.url, name, ttl=20)
    assert not late.acquire(timeout=0.05)
    assert not waiting.done()
    first.release()
    assert waiting.result(5)


def test_a_cancelled_task_leaves_nothing(server: PrivateServer, look: Any, name: str) -> None:
    async def main() -> None:
        client = redis.asyncio.Redis.from_url(server.url, decode_responses=True)
        lock = legacy.aio.TimestampLock(client, name, ttl=20)
        async with lock:
            waiting = asyncio.create_task(lock.acquire())
            while not waiting.done():
                await asyncio.sleep(0.02)
                waiting.cancel()
            assert waiting.cancelled()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), lock:
                await asyncio.sleep(5)
        await client.aclose()

    asyncio.run(main())
    assert look.get(name) is None


@pytest.mark.parametrize("kind", [TimestampLock, Migrating])
def test_the_end_of_with_gives_back_what_a_condition_has_taken_again(
    kind: Any, server: PrivateServer, look: Any, name: str
) -> None:
    lock = kind(server.url, name, ttl=20)
    condition = threading.Condition(lock)
    with condition:
        assert not condition.wait(0.01)
        assert lock.lease is not None
    assert lock.lease is None
    assert look.get(name) is None


async def _taken_again(lock: Any) -> None:
    async with lock:
        await lock.release()
        assert await lock.acquire()
    assert lock.lease is None


@pytest.mark.parametrize("kind", [legacy.aio.TimestampLock, legacy.aio.Migrating])
def test_the_end_of_async_with_gives_back_what_was_taken_again(kind: Any, server: PrivateServer, look: Any, name: str) -> None:
    asyncio.run(_taken_again(kind(server.url, name, ttl=20)))
    assert look.get(name) is None


def test_an_interrupt_in_the_body(server: PrivateServer, look: Any, name: str) -> None:
    with pytest.raises(KeyboardInterrupt), TimestampLock(server.url, name, ttl=20):
        raise KeyboardInterrupt
    assert look.get(name) is None


def test_a_forked_child_holds_nothing(server: PrivateServer, look: Any, name: str) -> None:
    with TimestampLock(server.url, name, ttl=20) as lease:
        pid = os.fork()
        if not pid:
            code = 1
            try:
                lease.check()
            except NotHeld:
                code = 0
            os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert look.get(name) is not None


@pytest.mark.parametrize("make", [TimestampLock, Migrating])
@pytest.mark.parametrize("harm", ["lose", "cut", "refuse"])
def test_a_look_without_an_answer_is_done_again(make: Any, harm: Any, server: PrivateServer, look: Any, name: str) -> None:
    look.set(name, int(time.time() * 1000) + 200)
    with Proxy(server) as proxy:
        harmed = proxy.on("GET", action=harm)
        with make(proxy.url, name, ttl=5, unit="ms", wait=5):
            assert harmed.requests
        assert look.get(name) is None
        holdfast.close()


def test_a_server_that_is_not_there(name: str) -> None:
    with pytest.raises(ServerError, match=f"timestamp lock '{name}'"):
        TimestampLock("redis://127.0.0.1:1", name).acquire()


def test_a_server_that_goes_away_is_ridden_out(make: Any, new_server: NewServer, name: str) -> None:
    server = new_server()
    first = TimestampLock(server.url, name, ttl=20)
    first.__enter__()
    waiting = in_thread(lambda: make(server.url, name, ttl=20).acquire(timeout=10))
    with redis.Redis.from_url(server.url) as look:
        until(lambda: asked(look) > 2)
    server.kill()
    with pytest.warns(holdfast.HoldfastWarning, match="the lock ends by itself"):
        first.__exit__(None, None, None)
    server.restart()  # and has forgotten
    assert waiting.result(10)


def asked(look: Any) -> int:
    """How often somebody has tried to take a lock."""
    calls: int = look.info("commandstats").get("cmdstat_setnx", {}).get("calls", 0)
    return calls


def test_options() -> None:
    for options, parameter in (
        ({"unit": "us"}, "unit"),
        ({"clock": "mine"}, "clock"),
        ({"ttl": 0}, "ttl"),
        ({"wait": -1}, "wait"),
    ):
        for kind in (TimestampLock, Migrating, legacy.aio.TimestampLock, legacy.aio.Migrating):
            with pytest.raises(ConfigError) as caught:
                kind("redis://localhost", "x", **options)
            assert caught.value.parameter == parameter
    with pytest.raises(TypeError, match="pass ttl="):
        TimestampLock("redis://localhost", "x", timeout=3)  # type: ignore[arg-type]


PROGRAM = """
import holdfast
from holdfast.legacy import TimestampLock
first = TimestampLock("redis://localhost", "x")
second = TimestampLock("redis://localhost", "x")
third = holdfast.legacy.aio.TimestampLock("redis://localhost", "x")
fourth = holdfast.legacy.Migrating("redis://localhost", "x")
"""


def test_it_warns_once_and_points_at_the_users_line(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run([sys.executable, "-W", "always", program], capture_output=True, text=True, check=True)
    assert done.stderr.count("Warning") == 1
    assert done.stderr.startswith(f"{program}:4: HoldfastWarning: TimestampLock is only as good as the clocks")
    assert "docs/legacy.md" in done.stderr


# In a Cluster


def test_in_a_cluster(common_cluster: Cluster) -> None:
    for number in range(4):
        for which in ("own", "server"):
            lock = TimestampLock(common_cluster.url, f"stamp-{number}", ttl=5, clock=which)
            with lock as lease:
                lease.renew()
                assert lock.locked()
    with Migrating(common_cluster.url, "stamp", ttl=5) as both:
        both.check()


# On the way to Lock


def test_migrating_excludes_both(server: PrivateServer, look: Any, name: str) -> None:
    both, new = Migrating(server.url, name, name="n" + name, ttl=5), Lock(server.url, "n" + name)
    old = TimestampLock(server.url, name, ttl=5)
    with both as lease:
        assert not old.acquire(blocking=False)
        assert not new.acquire(blocking=False)
        assert not Migrating(server.url, name, name="n" + name, ttl=5).acquire(timeout=0.02)
        assert both.locked()
        lease.renew()
        lease.check()
        assert lease.fence > 0
        assert 4 < lease.remaining() <= 5
    assert not both.locked()
    for other in (old, new):
        with other:
            assert not both.acquire(timeout=0.02)
            assert both.locked()
    assert look.get(name) is None
    assert look.get(f"hf:{{n{name}}}") is None


def test_when_one_half_is_lost_all_is(server: PrivateServer, look: Any, name: str) -> None:
    for key in (name, f"hf:{{{name}}}"):
        with pytest.raises(LeaseLost), Migrating(server.url, name, ttl=5) as lease:
            look.set(key, int(time.time()) + 50)
            with pytest.raises(LeaseLost):
                lease.renew()
            with pytest.raises(LeaseLost):
                lease.check()
            assert lease.remaining() == 0
        assert look.delete(name, f"hf:{{{name}}}") == 1, "its own half was given back, the other one left alone"


def test_migrating_in_tasks(server: PrivateServer, look: Any, name: str) -> None:
    async def main() -> None:
        lock = legacy.aio.Migrating(server.url, name, name="n" + name, ttl=5)
        async with lock as lease:
            lease.check()
            with pytest.raises(LockTimeout):
                async with legacy.aio.Migrating(server.url, name, name="n" + name, ttl=5, wait=0.02):
                    pass
            waiting = asyncio.create_task(lock.acquire())
            await asyncio.sleep(0.02)
            waiting.cancel()
            await lease.renew()
        assert not await lock.locked()
        assert await lock.acquire()
        await lock.release()

    asyncio.run(main())
    assert look.get(name) is None


def test_who_waits_for_the_old_key_gives_the_new_lock_back(server: PrivateServer, look: Any, name: str) -> None:
    old = TimestampLock(server.url, name, ttl=5)
    with old:
        with pytest.raises(LockTimeout, match=r"timestamp lock .* is busy"), Migrating(server.url, name, ttl=5, wait=0.05):
            pass
        with Lock(server.url, name, wait=0):  # the old lock and the new one alone see nothing of each other
            assert old.locked()
