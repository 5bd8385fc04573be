"""`Barrier` on a real server: what CPython's own tests of barriers check, and what processes that die add to that."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis

import holdfast
from holdfast import Barrier, BrokenBarrier, ConfigError, ServerError, aio
from rendezvous.live.rendezvous_apis import APIS, Either
from support.peer import Peer
from support.proxy import Proxy
from support.witness import in_thread, until, until_in_loop

if TYPE_CHECKING:
    from conftest import NewServer
    from support.servers import PrivateServer

apis = pytest.mark.parametrize("api", APIS)
N = 4


def waiting(look: redis.Redis, name: str) -> int:
    return int(look.zcard(f"hf:{{{name}}}:places"))


# As threading.Barrier


@apis
def test_all_go_on_together_again_and_again(api: str, server: PrivateServer, name: str) -> None:
    barrier = Either(api, "Barrier", server.url, name, N)
    came: list[list[int]] = [[], [], []]

    def participant() -> list[int]:
        numbers = []
        for results in came:
            results.append(1)
            numbers.append(barrier("wait"))
            assert len(results) == N, "somebody goes on before all have come"
        return numbers

    threads = [in_thread(participant) for _ in range(N)]
    for numbers in zip(*(thread.result(20) for thread in threads), strict=True):
        assert sorted(numbers) == list(range(N))
    assert (barrier("broken"), barrier("n_waiting"), barrier("parties")) == (False, 0, N)


@apis
def test_the_action_is_run_once_before_anybody_goes_on(api: str, server: PrivateServer, name: str) -> None:
    ran: list[int] = []
    done: list[int] = []

    def action() -> None:
        assert done == []
        ran.append(1)

    barrier = Either(api, "Barrier", server.url, name, N, action)

    def participant() -> None:
        number: int = barrier("wait")
        assert ran == [1]
        done.append(number)

    threads = [in_thread(participant) for _ in range(N)]
    assert len([thread.result(20) for thread in threads]) == N
    assert sorted(done) == list(range(N))


@apis
def test_an_action_that_raises_breaks_it(api: str, server: PrivateServer, name: str) -> None:
    def action() -> None:
        raise ArithmeticError("no")

    results = Either(api, "Barrier", server.url, name, 3, action).at_once(3, "wait")
    assert sorted(type(result).__name__ for result in results) == ["ArithmeticError", "BrokenBarrier", "BrokenBarrier"]
    broken = next(result for result in results if isinstance(result, BrokenBarrier))
    assert (broken.reason, f":{os.getpid()}" in str(broken.by)) == ("action", True)
    assert Barrier(server.url, name, 3).broken


@apis
def test_whoever_aborts_breaks_it(api: str, server: PrivateServer, name: str, look: redis.Redis) -> None:
    barrier = Either(api, "Barrier", server.url, name, N)
    others = [barrier.later("wait") for _ in range(N - 1)]
    until(lambda: waiting(look, name) == N - 1)
    assert barrier("n_waiting") == N - 1
    barrier("abort")
    assert {type(other.exception(10)) for other in others} == {barrier.made._error}
    assert (barrier("broken"), barrier("n_waiting")) == (True, 0)
    with pytest.raises(threading.BrokenBarrierError, match=r"is broken: .*:\d+ aborted it; reset\(\) makes it usable again"):
        barrier("wait")
    barrier("reset")
    assert sorted(barrier.at_once(N, "wait")) == list(range(N))


@apis
def test_a_reset_ends_the_wait_of_all(api: str, server: PrivateServer, name: str, look: redis.Redis) -> None:
    barrier = Either(api, "Barrier", server.url, name, 2)
    other = barrier.later("wait")
    until(lambda: waiting(look, name))
    barrier("reset")
    assert isinstance(error := other.exception(10), BrokenBarrier)
    assert error.reason == "reset"
    assert not barrier("broken")
    assert sorted(barrier.at_once(2, "wait")) == [0, 1]


@apis
def test_who_runs_out_of_time_breaks_it(api: str, server: PrivateServer, name: str, look: redis.Redis) -> None:
    barrier = Either(api, "Barrier", server.url, name, 3)
    other = barrier.later("wait")
    until(lambda: waiting(look, name))
    with pytest.raises(BrokenBarrier) as caught:
        barrier("wait", 0.1)
    assert isinstance(error := other.exception(10), BrokenBarrier)
    assert caught.value.reason == error.reason == "timeout"
    assert pickle.loads(pickle.dumps(error)).by == error.by  # noqa: S301
    barrier("reset")
    with pytest.raises(BrokenBarrier):
        Either(api, "Barrier", server.url, name, 3, None, 0.05)("wait")
    barrier("reset")
    with pytest.raises(BrokenBarrier):
        barrier("wait", 0)


@apis
def test_one_party_is_enough(api: str, server: PrivateServer, name: str) -> None:
    barrier = Either(api, "Barrier", server.url, name, 1)
    assert [barrier("wait"), barrier("wait", 0)] == [0, 0]


@apis
@pytest.mark.parametrize("parties", [0, -1, 2.0, True, 10_001])
def test_a_number_of_parties_is_needed(api: str, parties: Any) -> None:
    with pytest.raises(ValueError, match="parties must be"):
        Either(api, "Barrier", "redis://a", "x", parties)


@apis
def test_users_that_disagree_are_told_so(api: str, server: PrivateServer, name: str, look: redis.Redis) -> None:
    two, three = (Either(api, "Barrier", server.url, name, parties) for parties in (2, 3))
    other = two.later("wait")
    until(lambda: waiting(look, name))
    with pytest.raises(ConfigError, match="created elsewhere with parties=2: all users must pass the same"):
        three("wait")
    assert two("wait") != other.result(10)
    three("reset")
    assert sorted(three.at_once(3, "wait")) == [0, 1, 2]
    with pytest.raises(ConfigError, match="it is the name of a barrier"):
        holdfast.Event(server.url, name).set()


@apis
def test_with_is_a_wait(api: str, server: PrivateServer, name: str) -> None:
    """As asyncio.Barrier has it."""
    numbers: list[int] = []

    async def enter() -> None:
        async with aio.Barrier(server.url, name, 2) as number:
            numbers.append(number)

    def enter_in_thread() -> None:
        with Barrier(server.url, name, 2) as number:
            numbers.append(number)

    for thread in [in_thread(lambda: asyncio.run(enter()) if api == "asyncio" else enter_in_thread()) for _ in range(2)]:
        thread.result(10)
    assert sorted(numbers) == [0, 1]


# As asyncio.Barrier


def test_a_cancelled_task_leaves_and_another_one_has_its_place(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        barrier = aio.Barrier(server.url, name, 3)
        tasks = [asyncio.create_task(barrier.wait()) for _ in range(2)]
        async with asyncio.timeout(10):
            while await barrier.n_waiting != 2:
                await asyncio.sleep(0.002)
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        assert (await barrier.n_waiting, await barrier.broken) == (1, False)
        assert sorted(await asyncio.gather(tasks[1], barrier.wait(), barrier.wait())) == [0, 1, 2]
        assert (await barrier.n_waiting, await barrier.broken) == (0, False)

    asyncio.run(main())


def test_asyncio_knows_the_error(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        barrier = aio.Barrier(server.url, name, 2)
        with pytest.raises(asyncio.BrokenBarrierError):
            await barrier.wait(0.01)
        with pytest.raises(BrokenBarrier) as caught:
            await barrier.wait()
        again: BrokenBarrier = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
        assert isinstance(again, asyncio.BrokenBarrierError)
        assert vars(again)["reason"] == "timeout"

    asyncio.run(main())


def test_an_action_may_be_awaited_and_cancelled(server: PrivateServer, name: str, look: redis.Redis) -> None:
    async def main() -> None:
        acting = asyncio.Event()

        async def action() -> None:
            acting.set()
            await asyncio.sleep(60)

        other = in_thread(Barrier(server.url, name, 2).wait)
        await until_in_loop(lambda: waiting(look, name))
        last = asyncio.create_task(aio.Barrier(server.url, name, 2, action).wait())
        await acting.wait()
        last.cancel()
        with pytest.raises(asyncio.CancelledError):
            await last
        await until_in_loop(other.done)
        assert isinstance(error := other.exception(), BrokenBarrier)
        assert error.reason == "action"

    asyncio.run(main())


# Only between processes


@pytest.mark.turns
@apis
@pytest.mark.parametrize("acting", [False, True])
def test_a_killed_participant_breaks_it_for_the_others(
    api: str, acting: bool, server: PrivateServer, name: str, look: redis.Redis
) -> None:
    ttl = 0.9
    barrier = Either(api, "Barrier", server.url, name, 3, ttl=ttl)
    with Peer("sync", server.url, "x") as peer:
        others = [barrier.later("wait") for _ in range(2 if acting else 1)]
        until(lambda: waiting(look, name) == len(others))
        action = "lambda: __import__('time').sleep(60)" if acting else "None"
        peer.tell(f"holdfast.Barrier(url, {name!r}, 3, {action}, ttl={ttl}).wait()")
        until(lambda: waiting(look, name) == len(others) + 1)
        until(lambda: any(f'"pid": {peer.pid},' in str(look.get(key)) for key in look.keys("hf:proc:*")))
        time.sleep(ttl)  # it is alive, and so is its place
        assert not any(other.done() for other in others)
        peer.kill()
        killed = time.monotonic()
        for other in others:
            assert isinstance(error := other.exception(10), BrokenBarrier)
            assert error.reason == "died"
            assert f":{peer.pid}" in str(error.by)
        assert time.monotonic() - killed < ttl + 2
    assert barrier("broken")


@apis
def test_a_participant_that_stops_is_as_good_as_dead_and_told_so_when_it_goes_on(
    api: str, server: PrivateServer, name: str, look: redis.Redis
) -> None:
    barrier = Either(api, "Barrier", server.url, name, 3, ttl=0.4)
    with Peer("sync", server.url, "x") as peer:
        peer.tell(f"holdfast.Barrier(url, {name!r}, 3, ttl=0.4).wait()")
        until(lambda: waiting(look, name))
        peer.stop()
        with pytest.raises(BrokenBarrier, match="gave no sign of life"):
            barrier("wait", 10)
        barrier("reset")
        peer.go_on()
        assert peer.answer() == "BrokenBarrier"


@apis
@pytest.mark.parametrize("action", ["lose", "cut"])
def test_who_comes_once_counts_once_though_an_answer_gets_lost(
    api: str, action: Any, server: PrivateServer, name: str, look: redis.Redis
) -> None:
    with Proxy(server) as proxy:
        barrier = Either(api, "Barrier", proxy.url, name, 2)
        lost = proxy.on("other", action=action)
        first = barrier.later("wait", 10)
        until(lambda: lost.requests and waiting(look, name) == 1)
        assert not first.done()
        assert {Barrier(server.url, name, 2).wait(10), first.result(10)} == {0, 1}
        holdfast.close()


@apis
def test_who_waited_is_told_when_the_server_has_forgotten_it(
    api: str, server: PrivateServer, name: str, look: redis.Redis
) -> None:
    barrier = Either(api, "Barrier", server.url, name, 3, ttl=1)
    other = barrier.later("wait")
    until(lambda: waiting(look, name))
    look.delete(*look.keys(f"hf:{{{name}}}*"))
    assert isinstance(error := other.exception(10), BrokenBarrier)
    assert error.reason == "lost"
    assert barrier("broken"), "and whoever comes is told so, too"


@apis
def test_without_a_server_an_error_says_so(api: str, new_server: NewServer) -> None:
    server = new_server()
    barrier = Either(api, "Barrier", server.url, "x", 2)
    server.kill()
    with pytest.raises(ServerError, match=r"Barrier 'x': "):
        barrier("wait")
    with pytest.raises(ServerError):
        barrier("abort")


def test_an_interrupted_wait_leaves(server: PrivateServer, name: str, look: redis.Redis) -> None:
    barrier = Barrier(server.url, name, 2)

    def interrupt() -> None:
        until(lambda: waiting(look, name))
        os.kill(os.getpid(), 2)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        barrier.wait()
    thread.join()
    assert (barrier.n_waiting, barrier.broken) == (0, False)


def test_nothing_is_kept_for_ever(server: PrivateServer, name: str, look: redis.Redis) -> None:
    barrier = Barrier(server.url, name, 2, lambda: None)
    other = in_thread(barrier.wait)
    until(lambda: waiting(look, name))
    barrier.wait()
    other.result(10)
    assert look.hget(barrier.key, "v") == "barrier 1"
    assert {int(look.pttl(key)) > 0 for key in look.scan_iter(f"hf:{{{name}}}*")} == {True}


def test_many_who_come_are_told_in_a_moment(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        barrier = aio.Barrier(server.url, name, 500)
        async with asyncio.timeout(20):
            assert sorted(await asyncio.gather(*(barrier.wait() for _ in range(500)))) == list(range(500))

    asyncio.run(main())
