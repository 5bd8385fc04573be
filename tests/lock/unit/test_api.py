"""The APIs over a scripted server: what a lease believes, how a ``with`` ends, what is left behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import Lock, Redlock, Semaphore, aio
from holdfast._api import lease_core
from holdfast._api.lease import BaseLease, core_of
from holdfast._core.lock.local_queue import LocalQueue
from holdfast._core.lock.records import Grant, HeldLease
from holdfast._core.lock.replies import NO_ANSWER, Busy
from holdfast._core.lock.spec import margin
from holdfast._core.quorum.votes import ServerSet, VoteRound
from holdfast._core.requests import Answer, NotSent, Refused, Unknown
from holdfast.errors import ConfigError, HoldfastWarning, LeaseLost, LockTimeout, NotHeld, ServerError
from support.driver import OTHER, Fault, always, first, never
from support.memory_server import LOCK
from support.stage import Process, Stage, stage

__all__ = ["stage"]

URL = "redis://localhost"
CUT = Fault(Unknown("cut"))
AWAY = Fault(NotSent("nobody there", "localhost:6379"))


# Nothing is left behind


def test_a_late_copy_of_the_request_that_took_the_lock_does_not_take_it_again(stage: Stage) -> None:
    """Not answered in time, asked again, held, given back; then the first copy arrives."""
    stage.script.failing = first(CUT, "acquire")
    with Lock(URL, "x"):
        assert stage.server.current() == stage.script.tokens[0]
    stage.script.late_copies_arrive()
    assert stage.script.nothing_left()


def test_the_same_for_asyncio(stage: Stage) -> None:
    async def main() -> None:
        stage.script.failing = first(CUT, "acquire")
        async with aio.Lock(URL, "x"):
            pass
        stage.script.late_copies_arrive()
        assert stage.script.nothing_left()

    asyncio.run(main())


def test_a_lock_that_was_free_is_free_since_the_question_was_sent() -> None:
    """The lease of another thread may begin before the answer comes."""
    lock, free = Lock(URL, "x"), list[float]()
    lock._found_free = lambda _endpoint, sent: free.append(sent)  # type: ignore[method-assign,assignment]
    asking = lock._is_locked()
    asking.send(None)
    with pytest.raises(StopIteration):
        asking.send(Answer(0, 1.0, 2.0))
    assert free == [1.0]


def test_clients_agree_on_a_list_of_servers_by_sixteen_digits() -> None:
    assert len(Redlock([f"redis://{name}" for name in "abc"], "x")._server_set.digest) == 16, "all releases write as many"


def test_a_lock_of_several_servers_was_free_since_each_was_asked() -> None:
    lock, free = Redlock([f"redis://{name}" for name in "abc"], "x"), list[float]()
    lock._found_free = lambda _endpoint, sent: free.append(sent)  # type: ignore[method-assign,assignment]
    asking = lock._is_locked()
    poll = asking.send(None)
    for number, value in enumerate((0, 1, 0)):
        poll.counter.on_answer(number, Answer(value, 1.0 + number, 5.0))
    with pytest.raises(StopIteration):
        asking.send(None)
    assert free == [1.0, 3.0]


@pytest.mark.parametrize("applied", [False, True])
def test_interrupted_at_every_request_of_a_with_statement(stage: Stage, applied: bool) -> None:
    for number in range(20):
        stage.script.trace.clear()
        stage.script.faults = {number: Fault(KeyboardInterrupt(), applied)}
        try:
            with Lock(URL, "x"):
                pass
        except KeyboardInterrupt:
            pass
        else:
            assert number >= 2
            break
        assert stage.script.nothing_left(), f"at request {number}"
        assert len(stage.process.keeper.renewing) == 0
        stage.script.late_copies_arrive()
        assert stage.script.nothing_left(), f"at request {number}, late copy"


def test_an_interrupt_between_the_answer_and_the_assignment(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 11: the lock is held, and the caller will never learn of it."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    lock = Lock(URL, "x")
    monkeypatch.setattr(type(lock._entered), "push", interrupted)
    with pytest.raises(KeyboardInterrupt), lock:
        pass
    assert stage.script.nothing_left()
    assert len(stage.process.keeper.renewing) == 0
    assert lock.lease is None


def test_a_keeper_that_cannot_be_started_leaves_no_lock(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Process, "keeper", property(no_thread), raising=False)
    with pytest.raises(RuntimeError):
        Lock(URL, "x").acquire()
    assert stage.scripts() == []


def test_what_fails_while_the_lease_is_registered_leaves_no_lock(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalQueue, "_note_grant", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Lock(URL, "x").acquire()
    assert stage.script.nothing_left()
    assert len(stage.process.keeper.renewing) == 0


def test_a_lock_granted_while_holdfast_is_closed_is_given_back(stage: Stage) -> None:
    lock = Lock(URL, "x")
    stage.script.before = lambda _kind, _nth: setattr(stage.process.keeper.node(lock._endpoint), "closing", True)
    with pytest.raises(ServerError, match="closed"):
        lock.acquire()
    assert stage.script.nothing_left()


# The belief of a lease


def test_remaining_counts_down_from_the_send_time(stage: Stage) -> None:
    with Lock(URL, "x", ttl=30) as lease:
        assert lease.remaining() == pytest.approx(30 - margin(30) - 0.002)
        stage.server.now += 10
        assert lease.remaining() == pytest.approx(20 - margin(30) - 0.002)


@pytest.mark.parametrize("applied", [False, True])
def test_a_lease_made_shorter_by_hand_is_not_believed_for_longer_even_if_the_answer_is_lost(
    stage: Stage, applied: bool
) -> None:
    lock = Lock(URL, "x", ttl=30)
    assert lock.acquire()
    lease = lock.lease
    assert lease is not None
    stage.script.failing = always(Fault(Unknown("cut"), applied), "renew")
    with pytest.raises(ServerError):
        lease.renew(ttl=5)
    assert lease.remaining() <= 5
    if applied:
        assert stage.server.now + lease.remaining() <= stage.server.expires
    stage.script.failing = never
    lock.release()


def test_renew_sets_and_never_adds(stage: Stage) -> None:
    with Lock(URL, "x", ttl=30) as lease:
        for ttl in (60.0, 10.0, 20.0):
            lease.renew(ttl)
            assert lease.remaining() == pytest.approx(ttl, abs=1)
        lease.renew()
        assert lease.remaining() == pytest.approx(20, abs=1), "as long as it was last"


def test_a_renewal_whose_answer_is_read_too_late_brings_nothing_back(stage: Stage) -> None:
    """The lease was over by then, for everybody who has asked: over it stays."""
    stage.script.slow = {("renew", 0): 40.0}
    with pytest.raises(LeaseLost, match="its time ran out"), Lock(URL, "x", ttl=30) as lease:
        lease.renew(60.0)
    assert lease.lost.is_set()


def test_an_end_that_nobody_has_noticed_is_noticed_by_asking(stage: Stage) -> None:
    """The whole process was stopped: the keeper too."""
    lock = Lock(URL, "x", ttl=30)
    lock.acquire()
    lease = lock.lease
    assert lease is not None
    lost = lease.lost
    stage.server.now += 31
    assert lease.remaining() == 0
    assert lost.is_set()
    assert lost.wait(0)
    with pytest.raises(LeaseLost) as caught:
        lease.check()
    assert (caught.value.name, caught.value.key, caught.value.fence) == ("x", "hf:{x}", lease.fence)
    with pytest.raises(LeaseLost):
        lease.renew()
    with pytest.raises(LeaseLost):
        lock.release()
    with pytest.raises(NotHeld):
        lock.release()


def test_threads_that_ask_for_the_event_at_the_same_moment_get_the_same(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or one of them would wait for an event that nobody sets."""
    original = lease_core.LostFlag
    theirs: list[threading.Event] = []
    leases: list[holdfast.Lease] = []

    def slowly(expired: Callable[[], bool]) -> lease_core.LostFlag:
        if not theirs:
            other = threading.Thread(target=lambda: theirs.append(leases[0].lost))
            theirs.append(threading.Event())
            other.start()
            other.join(0.05)
        return original(expired)

    monkeypatch.setattr(lease_core, "LostFlag", slowly)
    with Lock(URL, "x") as lease:
        leases.append(lease)
        mine = lease.lost
        assert theirs[1:] in ([], [mine]), "the other has to wait, or gets the same"


def told(held_lease: HeldLease) -> None:
    """The keeper reports a loss to whoever has the lease now, as `Keeper.report` does."""
    owner = held_lease.owner()
    assert owner is not None
    owner.notice_loss()


def lost_on_its_way(lease: BaseLease) -> Grant:
    """The lease was handed on, and is lost before its next holder here has made a lease object of it.

    The keeper has not reported it yet.
    """
    held_lease = core_of(lease).held_lease
    held_lease.lose("its key is gone")
    return Grant(core_of(lease).attempt, lease.fence + 1, held_lease.deadline - 29, held_lease.deadline, held_lease=held_lease)


def another(core_type: Any, first: BaseLease, lock: Any) -> Any:
    """The next lease of a lock, which was lost on its way."""
    driver = core_of(first).driver
    return core_type(
        driver.process,
        driver.endpoint,
        lost_on_its_way(first),
        lock._on_lost,
        user_type=type(first),
        driver=driver,
    ).user_lease()


def test_a_loss_is_told_once_however_many_notice_it(stage: Stage) -> None:
    calls: list[holdfast.Lease] = []
    lock = Lock(URL, "x", on_lost=calls.append)
    with pytest.raises(LeaseLost), lock as first:
        lease = another(lease_core.SyncLeaseCore, first, lock)
        assert lease.lost.is_set(), "found lost when it was made"
        told(core_of(first).held_lease)
        for thread in threading.enumerate():
            if thread.name == "holdfast-on-lost":
                thread.join(10)
        assert calls == [lease]


def test_a_loss_is_told_once_in_asyncio_and_who_is_told_may_take_his_time(stage: Stage) -> None:
    """Nobody but the lease refers to the task of ``on_lost`` while it waits."""
    calls: list[aio.Lease] = []
    tasks: list[weakref.ref[asyncio.Task[object]]] = []

    async def on_lost(lease: aio.Lease) -> None:
        calls.append(lease)
        task = asyncio.current_task()
        assert task is not None
        tasks.append(weakref.ref(task))
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        lock = aio.Lock(URL, "x", on_lost=on_lost)
        await lock.acquire()
        first = lock.lease
        assert first is not None
        lease = another(lease_core.AioLeaseCore, first, lock)
        assert lease.lost.is_set(), "found lost when it was made"
        for _ in range(2):
            for _ in range(3):
                await asyncio.sleep(0)
            assert calls == [lease]
            told(core_of(first).held_lease)
            gc.collect()
        task = tasks[0]()
        assert task is not None, "collected while it waited"
        task.cancel()
        with pytest.raises(LeaseLost):
            await lock.release()

    asyncio.run(main())


def max_hold_passes(stage: Stage, *, noticed_by_keeper: bool) -> None:
    with Lock(URL, "x", ttl=30, max_hold=5) as lease:
        stage.server.now += 1.7
        stage.keep()
        stage.server.now += 6
        if noticed_by_keeper:
            stage.keep()
        assert lease.lost.is_set()


@pytest.mark.parametrize("noticed_by_keeper", [False, True])
def test_max_hold_is_the_reason_that_is_given(stage: Stage, noticed_by_keeper: bool) -> None:
    with pytest.raises(LeaseLost) as caught:
        max_hold_passes(stage, noticed_by_keeper=noticed_by_keeper)
    assert "max_hold" in caught.value.reason


def test_a_lease_that_max_hold_ends_is_given_back_at_the_server(stage: Stage) -> None:
    """It was made longer by hand; when it is given back, others need not wait for the rest."""
    lock = Lock(URL, "x", ttl=30, max_hold=5)
    lock.acquire()
    lease = lock.lease
    assert lease is not None
    lease.renew(60)
    stage.server.now += 6
    stage.keep()
    assert lease.lost.is_set()
    with pytest.raises(LeaseLost):
        lock.release()
    assert stage.server.current() == ""


def test_a_failed_release_is_not_repeated_by_the_keeper(stage: Stage) -> None:
    lock = Lock(URL, "x")
    lock.acquire()
    stage.script.failing = always(AWAY, "release")
    with pytest.raises(ServerError):
        lock.release()
    assert lock.lease is None
    assert len(stage.process.keeper.renewing) == 0


# How a with statement ends


def test_lost_and_the_body_succeeded(stage: Stage) -> None:
    with pytest.raises(LeaseLost), Lock(URL, "x"):
        stage.server.take(OTHER, 60)
    assert stage.server.current() == OTHER


def fails_and_meanwhile(lock: Lock, what: Callable[[], object]) -> None:
    with lock:
        what()
        raise ZeroDivisionError


def test_lost_and_the_body_failed(stage: Stage) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        fails_and_meanwhile(Lock(URL, "x"), lambda: stage.server.take(OTHER, 60))
    assert any("lost" in note for note in caught.value.__notes__)


def test_the_server_is_away_at_the_end(stage: Stage) -> None:
    with pytest.warns(HoldfastWarning, match="ends with its lease") as caught, Lock(URL, "x"):
        stage.script.failing = always(AWAY, "release")
    assert caught[0].filename == __file__, "it points at the with statement"


@pytest.mark.filterwarnings("ignore:.*ends with its lease:holdfast.HoldfastWarning")
def test_the_server_is_away_at_the_end_and_the_body_failed(stage: Stage) -> None:
    stage.script.failing = always(AWAY, "release")
    with pytest.raises(ZeroDivisionError) as caught:
        fails_and_meanwhile(Lock(URL, "x"), lambda: None)
    assert caught.value.__context__ is None, "a failed release never hides or decorates the body's own exception"


def test_given_back_inside_the_body(stage: Stage) -> None:
    with Lock(URL, "x") as lease:
        lease.release()
        with pytest.raises(NotHeld):
            lease.check()
    assert [name for name, *_ in stage.scripts()] == ["acquire", "release"]


def test_the_end_gives_back_its_own_lease_and_no_other(stage: Stage) -> None:
    lock = Lock(URL, "x")
    with lock as lease:
        lease.release()
        somebody_else = threading.Thread(target=lock.acquire)
        somebody_else.start()
        somebody_else.join()
        second = lock.lease
        assert second is not None
    assert lock.lease is second
    assert stage.server.current() == stage.script.tokens[-1]
    second.check()
    lock.release()


def test_what_the_body_has_taken_again_is_given_back(stage: Stage) -> None:
    """As a Condition does: the same thread releases and takes again by hand what ``with`` has taken."""
    lock = Lock(URL, "x")
    with lock:
        lock.release()
        assert lock.acquire()
    assert lock.lease is None
    assert stage.script.nothing_left()


# Errors in the user's words


def test_who_holds_it(stage: Stage) -> None:
    stage.server.take(OTHER, 20)
    with pytest.raises(LockTimeout, match="busy") as caught, Lock(URL, "x", wait=0):
        pass
    error = caught.value
    assert (error.name, error.key, error.holder) == ("x", "hf:{x}", "process bbbbbbbbbbbb")
    assert error.remaining == pytest.approx(20, abs=0.1)
    assert 0 <= error.waited < 0.1


def test_a_foreign_holder(stage: Stage) -> None:
    stage.server.keyspace.execute("SET", LOCK, "somebody elses token")
    with pytest.raises(LockTimeout, match=r"another library.*no expiry") as caught, Lock(URL, "x", wait=0):
        pass
    assert (caught.value.holder, caught.value.foreign, caught.value.remaining) == (None, True, None)


def test_an_unknown_holder_is_not_a_foreign_one() -> None:
    """Several servers whose votes were split, or a time that ran out before any server had answered."""
    nobody_else = VoteRound(ServerSet(("a", "b", "c"), "", 60.0)).busy()
    for busy in (NO_ANSWER, nobody_else):
        error = Lock(URL, "x")._busy(busy, None, 0.6)
        assert "no server named its holder" in str(error)
        assert (error.holder, error.foreign, error.remaining) == (None, False, None)
    empty = Semaphore(URL, "x", 1)._busy(Busy(2.0, 0, "", lingers=False), None, 0.6)
    assert not empty.foreign, "permits that are all kept for others who wait"


def test_no_server(stage: Stage) -> None:
    stage.script.failing = always(AWAY, "acquire")
    with pytest.raises(ServerError, match="nobody there") as caught, Lock(URL, "x"):
        pass
    assert caught.value.address == "localhost:6379"
    assert caught.value.__cause__ is None, "an internal exception is no cause for users"
    assert caught.value.__suppress_context__


def test_refused(stage: Stage) -> None:
    stage.script.failing = always(Fault(Refused("NOPERM no permissions", "localhost:6379")), "acquire")
    with pytest.raises(ServerError, match=r"refused.*NOPERM"), Lock(URL, "x"):
        pass


def test_data_in_the_way(stage: Stage) -> None:
    stage.server.keyspace.execute("RPUSH", LOCK, "theirs")
    with pytest.raises(ConfigError, match=r"holds a list, not a lock.*nothing was changed") as caught, Lock(URL, "x"):
        pass
    assert caught.value.parameter == "name"
