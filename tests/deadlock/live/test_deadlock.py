"""Clients that wait for each other's locks are found, by process and thread, and no other client is."""

from __future__ import annotations

import asyncio
import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import redis

from holdfast import ConfigError, Cycle, Deadlock, FairLock, Lock, MultiLock, RLock, Semaphore, aio, find_deadlocks
from holdfast._core.deadlock import cycles as deadlock_cycles
from holdfast._core.requests import Answer, Command, Sleep
from holdfast._runtime.process import current
from support.servers import PrivateServer
from support.witness import in_thread, queue_length, until, waiting_here

USER = """
import sys
from holdfast import Lock
url, mine, theirs = sys.argv[1:]
with Lock(url, mine, label="has " + mine, ttl=10):
    print("holds", flush=True)
    sys.stdin.readline()
    print(Lock(url, theirs).acquire(timeout=10), flush=True)
"""

Users = list["subprocess.Popen[str]"]


@contextmanager
def ring(server: PrivateServer, names: list[str], program: str = USER) -> Iterator[Users]:
    """A process for each lock, which holds it and waits for the next one."""
    orders = [(name, following) for name, following in zip(names, [*names[1:], names[0]], strict=True)]
    with ExitStack() as stack:
        users = [
            stack.enter_context(
                subprocess.Popen([sys.executable, "-c", program, server.url, *order], stdin=-1, stdout=-1, text=True)
            )
            for order in orders
        ]
        try:
            for user in users:
                assert user.stdout is not None
                assert user.stdout.readline() == "holds\n"
            for user in users:
                assert user.stdin is not None
                user.stdin.write("\n")
                user.stdin.flush()
            yield users
        finally:
            for user in users:
                user.kill()


def about(cycles: list[Cycle], name: str) -> list[Cycle]:
    """Other tests may have left records of theirs."""
    return [cycle for cycle in cycles if any(name in waiter.lock for waiter in cycle.waiters)]


def found(server: PrivateServer, name: str) -> list[Cycle]:
    return about(find_deadlocks(server.url), name)


def key(name: str) -> str:
    return f"hf:{{{name}}}"


@pytest.mark.turns
@pytest.mark.parametrize("number", [2, 3])
def test_processes_in_a_circle_are_named(server: PrivateServer, look: redis.Redis, name: str, number: int) -> None:
    names = [f"{name}-{letter}" for letter in "abc"[:number]]
    with ring(server, names) as users:
        (cycle,) = until(lambda: found(server, name))
        waiters = {waiter.pid: waiter for waiter in cycle.waiters}
        assert set(waiters) == {user.pid for user in users}
        for user, mine, theirs in zip(users, names, [*names[1:], names[0]], strict=True):
            waiter = waiters[user.pid]
            assert (waiter.holds, waiter.lock) == (key(mine), key(theirs))
            assert (waiter.label, waiter.thread) == (f"has {mine}", "MainThread")
            assert f"{user.pid} (has {mine}) MainThread holds {key(mine)} and waits for {key(theirs)}" in str(cycle)
        assert json.loads(json.dumps(cycle.as_dict()))["waiters"][0]["pid"] == cycle.waiters[0].pid
        for each in names:
            token = str(look.get(key(each)))
            assert token.partition(".")[2] not in f"{cycle} {cycle!r} {cycle.as_dict()}"
        assert about(asyncio.run(aio.find_deadlocks(server.url)), name) == [cycle]
        users[0].kill()
        users[0].wait()
        assert found(server, name) == [], "it is dead, and will not hold the others up for longer than its lease"


def test_gone_when_one_gives_up(server: PrivateServer, name: str) -> None:
    a, b = f"{name}-a", f"{name}-b"
    with Lock(server.url, a):
        holder = in_thread(_hold_and_wait, server, b, a)
        waiting = Lock(server.url, b)
        assert until(lambda: waiting_here(Lock(server.url, a)) == 1)
        assert waiting.acquire(timeout=1.5) is False
        until(lambda: not any(wait.lock == key(b) for wait in _told(server)))
        assert found(server, name) == []
    assert holder.result(5)


def _hold_and_wait(server: PrivateServer, mine: str, theirs: str) -> bool:
    with Lock(server.url, mine), Lock(server.url, theirs):
        return True


def _told(server: PrivateServer) -> tuple[Any, ...]:
    keeper = current().keeper
    wait_graph = keeper._node(Lock(server.url, "x")._endpoint).wait_graph
    until(lambda: not wait_graph.untold)
    return wait_graph.waits


def test_threads_of_one_process(server: PrivateServer, name: str) -> None:
    """In the lines of their own process: no server knows that they wait."""
    a, b = f"{name}-a", f"{name}-b"
    here, ready = threading.Barrier(2), []

    def cross(mine: str, theirs: str) -> bool:
        with Lock(server.url, mine):
            here.wait(5)
            ready.append(mine)
            lock = Lock(server.url, theirs)
            got = lock.acquire(timeout=2)
            if got:
                lock.release()
            return got

    futures = [in_thread(cross, a, b), in_thread(cross, b, a)]
    (cycle,) = until(lambda: found(server, name))
    assert len({waiter.thread for waiter in cycle.waiters}) == 2
    assert {waiter.holds for waiter in cycle.waiters} == {key(a), key(b)}
    assert sum(future.result(5) for future in futures) <= 1
    until(lambda: _told(server) == ())
    assert found(server, name) == []


def test_tasks_of_one_loop(server: PrivateServer, name: str) -> None:
    a, b = f"{name}-a", f"{name}-b"

    async def cross(mine: str, theirs: str) -> bool:
        async with aio.FairLock(server.url, mine):
            await asyncio.sleep(0.05)
            return await aio.FairLock(server.url, theirs).acquire(timeout=20)

    async def main() -> Cycle:
        tasks = [asyncio.create_task(cross(a, b), name="one"), asyncio.create_task(cross(b, a), name="other")]
        async with asyncio.timeout(10):
            while not (cycles := about(await aio.find_deadlocks(server.url), name)):
                await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return cycles[0]

    assert {waiter.thread for waiter in asyncio.run(main()).waiters} == {"one", "other"}


def test_no_false_alarm(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """Two processes whose waiting threads are not the holding ones; a client that waits for itself; a chain."""
    a, b = f"{name}-a", f"{name}-b"
    with ExitStack() as stack, Lock(server.url, a):
        other = stack.enter_context(
            subprocess.Popen([sys.executable, "-c", USER, server.url, b, a], stdin=-1, stdout=-1, text=True)
        )
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "holds\n"
        other.stdin.write("\n")
        other.stdin.flush()
        blocked = FairLock(server.url, b)
        waiting = in_thread(blocked.acquire, True, 5)
        until(lambda: queue_length(look, b) == 1)
        record = f"hf:proc:{str(look.get(key(b))).partition('.')[0]}"
        until(lambda: "waits" in json.loads(str(look.get(record) or "{}")))
        assert found(server, name) == [], "this thread holds, another one waits"
    assert waiting.result(5)
    blocked.release()


def test_a_multilock_is_in_none_but_may_be_seen_waiting(server: PrivateServer, look: redis.Redis, name: str) -> None:
    a, b = f"{name}-a", f"{name}-b"
    with Lock(server.url, b):
        lock = MultiLock(server.url, [b, a], wait=5)
        waiting = in_thread(lock.acquire)
        until(lambda: [(wait.lock, wait.holds) for wait in _told(server)] == [(key(b), (key(a),))])
    assert waiting.result(5)
    lock.release()
    until(lambda: _told(server) == ())


def found_with(server: PrivateServer, name: str, between: Callable[[], object]) -> list[Cycle]:
    """As `found`, with something done between the two looks."""

    async def find() -> list[Cycle]:
        return await deadlock_cycles.find(await deadlock_cycles.everybody(b"hf:"))

    steps = find()
    reply: Answer[Any] | None = None
    with redis.Redis.from_url(server.url, protocol=2) as client:
        client.response_callbacks.clear()  # the operation wants what the server says
        while True:
            try:
                request = steps.send(reply)
            except StopIteration as stop:
                return about(stop.value, name)
            if isinstance(request, Sleep):
                between()
                reply = None
            else:
                assert isinstance(request, Command)
                reply = Answer(client.execute_command(*request.args), 0.0, 0.0)


def test_what_looks_like_a_cycle_is_looked_at_twice(server: PrivateServer, look: redis.Redis, name: str) -> None:
    a, b = f"{name}-a", f"{name}-b"
    with ring(server, [a, b]):
        until(lambda: found(server, name))
        record = f"hf:proc:{str(look.get(key(a))).partition('.')[0]}"
        said = str(look.get(record))
        assert found_with(server, name, lambda: None), "it stands at both looks"
        assert not found_with(
            server, name, lambda: look.set(record, json.dumps({**json.loads(said), "waits": []}), keepttl=True)
        )
        look.set(record, said, keepttl=True)
        assert not found_with(server, name, lambda: look.hincrby(f"{key(a)}:state", "fence", 1)), "it was held anew meanwhile"


@pytest.mark.parametrize("forge", [b"\xff", b"[]", b'{"waits": [{"lock": 1}]}'])
def test_records_that_cannot_be_read_are_left_out(server: PrivateServer, look: redis.Redis, name: str, forge: bytes) -> None:
    look.set("hf:proc:ffffffffffff", forge, px=2000)
    assert found(server, name) == []
    look.delete("hf:proc:ffffffffffff")


# Ended


YIELDING = (
    USER.replace("Lock(url, theirs)", "Lock(url, theirs, deadlock='raise')").replace(
        "    print(Lock", "    try:\n        print(Lock"
    )
    + "    except Deadlock as error:\n        print(error.cycle, flush=True)\n"
)


@pytest.mark.turns
@pytest.mark.parametrize("number", [2, 3])
def test_one_of_a_circle_gets_the_error_and_the_others_go_on(server: PrivateServer, name: str, number: int) -> None:
    names = [f"{name}-{letter}" for letter in "abc"[:number]]
    program = YIELDING.replace("import Lock", "import Deadlock, Lock")
    with ring(server, names, program) as users:
        said = [user.stdout.readline() for user in users if user.stdout is not None]
        assert sorted(line == "True\n" for line in said) == [False, *[True] * (number - 1)]
        (told,) = (line for line in said if line != "True\n")
        assert told.startswith("deadlock: ")
        assert told.count(" and waits for ") == number
        assert [user.wait(10) for user in users] == [0] * number


@pytest.mark.parametrize("kind", [Lock, RLock])
def test_the_younger_of_two_threads_gets_the_error(server: PrivateServer, name: str, kind: Any) -> None:
    """Whether the other one may give way or not."""
    a, b = f"{name}-a", f"{name}-b"
    waits = threading.Event()

    def elder() -> bool:
        with Lock(server.url, a):
            waits.wait(5)
            with Lock(server.url, b, wait=10):
                return True

    with pytest.raises(Deadlock) as caught, kind(server.url, b):
        elder_got = in_thread(elder)
        until(Lock(server.url, a).locked)
        waits.set()
        until(lambda: waiting_here(Lock(server.url, b)) == 1)
        kind(server.url, a, deadlock="raise").acquire()
    assert elder_got.result(5)
    error = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (error.name, error.key) == (a, key(a))
    assert {waiter.thread for waiter in error.cycle.waiters} >= {"MainThread"}
    assert waiting_here(Lock(server.url, a)) == 0


def crossed(*waits: tuple[list[Lock], Lock]) -> list[Future[bool]]:
    """Threads that each hold some locks, and then wait for one more, one after the other: whether they got it."""
    ready = threading.Barrier(len(waits) + 1)
    turns = [threading.Event() for _ in waits]

    def cross(number: int, holds: list[Lock], wants: Lock) -> bool:
        with ExitStack() as stack:
            for lock in holds:
                stack.enter_context(lock)
            ready.wait(20)
            turns[number].wait(20)
            return stack.enter_context(wants) is not None

    threads = [in_thread(cross, number, *wait) for number, wait in enumerate(waits)]
    ready.wait(20)
    for turn, (_, wants) in zip(turns, waits, strict=True):
        turn.set()
        until(lambda wants=wants: waiting_here(wants) == 1)  # type: ignore[misc]
    return threads


def many(server: PrivateServer, name: str) -> list[Lock]:
    """More locks than the record of a process has room for."""
    return [Lock(server.url, f"{name}-{number:02}-{'x' * 50}") for number in range(70)]


def test_who_holds_more_than_a_record_tells_is_found_by_the_first(server: PrivateServer, name: str) -> None:
    holds, other = many(server, name), f"{name}-other"
    first = Lock(server.url, holds[0].name, wait=20, deadlock="raise")
    elder, younger = crossed((holds, Lock(server.url, other, wait=20)), ([Lock(server.url, other)], first))
    with pytest.raises(Deadlock):
        younger.result(20)
    assert elder.result(20)


def test_the_error_is_raised_where_the_cycle_is_though_others_have_no_room(server: PrivateServer, name: str) -> None:
    """The record has room for some of those who wait: the waits in it are paired with the right ones here."""
    long = "%" * 480  # three times as long in a key
    busy = [Lock(server.url, f"{name}-busy-{number}{long}", wait=20, deadlock="raise") for number in range(2)]
    crowd = [(many(server, f"{name}-{number}"), lock) for number, lock in enumerate(busy)]
    a, b = f"{name}-y", f"{name}-z"
    with ExitStack() as stack:
        for lock in busy:
            stack.enter_context(Lock(server.url, lock.name))
        *outside, elder, younger = crossed(
            *crowd,
            ([Lock(server.url, a)], Lock(server.url, b, wait=20)),
            ([Lock(server.url, b)], Lock(server.url, a, wait=20, deadlock="raise")),
        )
        with pytest.raises(Deadlock):
            younger.result(20)
        assert elder.result(20)
        assert not any(future.done() for future in outside)
    assert all(future.result(20) for future in outside)


def test_a_cycle_is_found_by_whatever_labels_its_records_show(server: PrivateServer, name: str) -> None:
    """Each prefix has a record of its own, with the labels of the locks in it."""
    labelled = Lock(server.url, name, prefix="a:", label="importer")
    mine, theirs = (Lock(server.url, f"{name}-{letter}", prefix="b:") for letter in "xy")
    elder, younger = crossed(
        ([theirs], Lock(server.url, mine.name, prefix="b:", wait=20)),
        ([labelled, mine], Lock(server.url, theirs.name, prefix="b:", wait=20, deadlock="raise")),
    )
    with pytest.raises(Deadlock):
        younger.result(20)
    assert elder.result(20)


def test_a_task_gets_the_error_and_leaves_nothing(server: PrivateServer, look: redis.Redis, name: str) -> None:
    a, b = f"{name}-a", f"{name}-b"

    async def cross(mine: str, theirs: str) -> str:
        try:
            async with aio.FairLock(server.url, mine):
                await asyncio.sleep(0.05)
                async with aio.FairLock(server.url, theirs, deadlock="raise"):
                    return "both"
        except Deadlock:
            return "deadlock"

    async def main() -> list[str]:
        return list(await asyncio.gather(cross(a, b), cross(b, a)))

    assert sorted(asyncio.run(main())) == ["both", "deadlock"]
    assert [look.exists(key(a)), look.exists(key(b)), queue_length(look, a), queue_length(look, b)] == [0] * 4


@pytest.mark.parametrize("make", [Lock, FairLock, RLock, aio.Lock, aio.FairLock, aio.RLock])
def test_another_word_is_refused(make: Any) -> None:
    with pytest.raises(ConfigError, match="deadlock must be 'wait' or 'raise', not 'ignore'"):
        make("redis://localhost:1", "x", deadlock="ignore")


def test_permits_are_in_no_circle(server: PrivateServer, name: str) -> None:
    """Somebody else may give one back."""
    semaphore, lock = Semaphore(server.url, f"{name}-s", 1), Lock(server.url, f"{name}-l")
    with semaphore:
        with lock:
            assert Semaphore(server.url, f"{name}-s", 1).acquire(timeout=0.8) is False
            assert _told(server) == ()
        with in_thread_lock(lock):
            assert lock.acquire(timeout=0.8) is False
            assert _told(server) == ()


@contextmanager
def in_thread_lock(lock: Lock) -> Iterator[None]:
    """Somebody else has it."""
    in_thread(lock.acquire).result(5)
    yield
    lock.release()
