"""Clocks that are stepped, that run too fast, that stand still while the machine sleeps: a server's, and a client's.

`clock.c` is preloaded into the process whose clock it is; nobody else's changes.
"""

from __future__ import annotations

import mmap
import shlex
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
import holdfast.fencing
from holdfast._core.lock.server_queue import REFRESH_EVERY_S
from holdfast._local.server import binary
from holdfast.schedule import Every
from support.apis import Admin, Aio, Sync, at_most, until
from support.peer import Peer
from support.servers import PrivateServer
from support.witness import lease_record

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

TTL = 0.9
HOUR = 3600.0


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`clock.c`, compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("CLOCKS ARE NOT TESTED: that wants Linux and a C compiler (apt-get install gcc)")
    library = tmp_path_factory.mktemp("clock") / "clock.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, Path(__file__).with_name("clock.c")], check=True)
    return library


class Clock:
    """Of whoever is started with `environment`."""

    def __init__(self, library: Path, path: Path) -> None:
        path.write_bytes(bytes(32))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 32)
        self.environment = {"LD_PRELOAD": str(library), "TEST_CLOCK": str(path)}

    def set(self, *, step: float = 0.0, asleep: float = 0.0, gain: float = 0.0) -> None:
        """Wall time is ``step`` seconds off, and gains ``gain`` seconds per second from now on; the machine slept so long."""
        self._map[:] = struct.pack("qqqd", int(step * 1e9), int(asleep * 1e9), time.time_ns(), gain)

    def close(self) -> None:
        self._map.close()


@pytest.fixture
def clock(library: Path, tmp_path: Path) -> Iterator[Clock]:
    clock = Clock(library, tmp_path / "clock")
    yield clock
    clock.close()


@pytest.fixture
def strange(clock: Clock, new_server: NewServer, tmp_path: Path) -> PrivateServer:
    """A server that lives by this clock."""
    program = tmp_path / "server"
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in clock.environment.items())
    program.write_text(f'#!/bin/sh\n{settings} exec {shlex.quote(binary.find())} "$@"\n')
    program.chmod(0o700)
    return new_server(binary=str(program))


def lives_by(admin: Admin, step: float) -> None:
    """Wait until the server does: once more it may answer by the time that it has read before."""
    until(lambda: abs(admin.redis.time()[0] - time.time() - step) < 10)


@pytest.mark.fault(36)
def test_the_servers_clock_jumps_forward(clock: Clock, strange: PrivateServer, both_apis: tuple[Sync, Aio], name: str) -> None:
    """The lease is over at once there: somebody else gets the lock early. The holder is told by its next renewal, and until
    then, the fence keeps it out."""
    admins = [Admin(strange, f"{name} {api.name}") for api in both_apis]
    locks = [(api, api.Lock(strange.url, f"{name} {api.name}", ttl=TTL)) for api in both_apis]
    assert all(api.call(lock.acquire) for api, lock in locks)
    fences = [lock.lease.fence for _, lock in locks]
    clock.set(step=40)
    lives_by(admins[0], 40)
    assert not any(admin.token() for admin in admins)
    for (api, lock), admin, fence in zip(locks, admins, fences, strict=True):
        other = api.Lock(f"{strange.url}?socket_timeout=4", lock.name, ttl=5)  # as from another process: it asks the server
        assert api.call(other.acquire, blocking=False)
        assert other.lease.fence > fence
        assert holdfast.fencing.accept(strange.url, lock.name, other.lease.fence)
        assert not holdfast.fencing.accept(strange.url, lock.name, fence)
        until(lock.lease.lost.is_set)
        token = admin.token()
        with pytest.raises(holdfast.LeaseLost, match=r"gone|value of another client"):
            api.call(lock.release)
        assert admin.token() == token
        api.call(other.release)
        admin.nothing_left()
        admin.close()


@pytest.mark.fault(36)
def test_the_servers_clock_jumps_forward_while_others_wait(
    clock: Clock, strange: PrivateServer, both_apis: tuple[Sync, Aio], name: str
) -> None:
    """All who wait look dead to the server. They ask anew, and get the lock one after the other."""
    with closing(Admin(strange, name)) as admin:
        holder = both_apis[0].FairLock(strange.url, name, ttl=TTL)
        assert holder.acquire()
        fence = holder.lease.fence
        waiters = [(api, api.FairLock(strange.url, name, ttl=TTL)) for api in both_apis]
        taken = [api.start(lock.acquire, timeout=10) for api, lock in waiters]
        until(lambda: len(admin.places()) == 2)
        clock.set(step=40)
        until(holder.lease.lost.is_set)
        for _ in waiters:
            until(lambda: any(lock.lease is not None for _, lock in waiters), REFRESH_EVERY_S + 0.8)
            ((api, lock),) = [(api, lock) for api, lock in waiters if lock.lease is not None]
            assert lock.lease.fence > fence
            fence = lock.lease.fence
            api.call(lock.release)
        assert all(future.result() for future in taken)
        with pytest.raises(holdfast.LeaseLost, match=r"gone|value of another client"):
            holder.release()
        admin.nothing_left()


@pytest.mark.fault(37)
def test_the_servers_clock_jumps_back(clock: Clock, strange: PrivateServer, both_apis: tuple[Sync, Aio], name: str) -> None:
    """A lease that is renewed is mended by that; fences rise by the counter; nobody gets a lock while it is held."""
    for api in both_apis:
        with closing(Admin(strange, f"{name} {api.name}")) as admin:
            clock.set()
            lock = api.Lock(strange.url, f"{name} {api.name}", ttl=TTL)
            assert api.call(lock.acquire)
            fence = lock.lease.fence
            clock.set(step=-HOUR)
            lives_by(admin, -HOUR)
            until(lambda admin=admin: 0 < admin.ttl_ms() <= TTL * 1000)  # type: ignore[misc]
            assert not lock.lease.lost.is_set()
            api.call(lock.release)
            assert api.call(lock.acquire, blocking=False)
            assert lock.lease.fence > fence
            api.call(lock.release)
            admin.nothing_left()


@pytest.mark.fault(37)
def test_the_servers_clock_jumps_back_and_the_holder_is_gone(
    clock: Clock, strange: PrivateServer, any_api: Sync, name: str
) -> None:
    """The lease lasts longer than it should, by as much.

    A waiter has its own time limit, and is told how long the lease lasts. When an operator has deleted the key, the lock is
    free at once.
    """
    with closing(Admin(strange, name)) as admin, Peer("sync", strange.url, name, ttl=20) as peer:
        assert peer.ask("lock.acquire()")
        peer.kill()
        clock.set(step=-HOUR)
        lives_by(admin, -HOUR)
        lock = any_api.Lock(strange.url, name, ttl=TTL, wait=0.2)
        with at_most(1.2), pytest.raises(holdfast.LockTimeout) as error, lock:
            pass
        assert error.value.remaining == pytest.approx(HOUR + 10, abs=10)
        taken = any_api.start(lock.acquire, timeout=5)
        until(lambda: len(admin.places()) == 1)
        admin.redis.delete(admin.lock)
        assert taken.result(REFRESH_EVERY_S + 0.8)
        any_api.call(lock.release)
        admin.nothing_left()


def believed_too_long(lock: Any, admin: Admin) -> bool:
    """Whether the holder still believed when the server had let go already."""
    while lock.lease.remaining():
        held = admin.token() is not None  # asked first: what is believed afterwards, was believed then
        if not held and lock.lease.remaining():
            return True
    return False


@pytest.mark.turns
@pytest.mark.fault(38)
@pytest.mark.parametrize(("gain", "too_long"), [(0.0005, False), (0.01, False), (1.0, True)])
def test_the_servers_clock_runs_fast(
    clock: Clock, strange: PrivateServer, any_api: Sync, name: str, gain: float, too_long: bool
) -> None:
    """One second in a hundred is allowed for. (Twice as fast is not, which shows that it would be seen.)"""
    with closing(Admin(strange, name)) as admin:
        clock.set(gain=gain)
        lock = any_api.Lock(strange.url, name, ttl=TTL, renew=False)
        assert any_api.call(lock.acquire)
        assert believed_too_long(lock, admin) is too_long
        with pytest.raises(holdfast.LeaseLost):
            lock.release()


@pytest.mark.fault(3)
def test_the_holders_machine_sleeps(
    clock: Clock, server: PrivateServer, admin: Admin, both_apis: tuple[Sync, Aio], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """For longer than the lease: it knows the moment it wakes, before anything else happens."""
    for api in both_apis:
        with monkeypatch.context() as patch:
            for variable, value in clock.environment.items():
                patch.setenv(variable, value)
            peer = Peer(api.name, server.url, name, ttl=30)
        with peer:
            clock.set()
            assert peer.ask("lock.acquire()")
            assert peer.ask("lock.lease.lost.is_set()") is False
            clock.set(asleep=31)
            assert peer.ask("lock.lease.remaining()") == 0.0
            assert peer.ask("lock.lease.lost.is_set()") is True
            assert peer.ask("lock.release()") == "LeaseLost"
        admin.redis.delete(admin.lock)


@pytest.mark.fault(36, 37)
@pytest.mark.parametrize("step", [40, -HOUR])
def test_one_of_several_servers_has_a_clock_that_jumps(
    clock: Clock, strange: PrivateServer, new_server: NewServer, both_apis: tuple[Sync, Aio], name: str, step: float
) -> None:
    """The lease goes on, by the votes of the others, and fences rise whichever way it jumps."""
    urls = [strange.url, new_server().url, new_server().url]
    holdfast.declare_new(urls, max_ttl=TTL)
    for api in both_apis:
        clock.set()
        lock = api.Redlock(urls, f"{name} {api.name}", ttl=TTL, max_ttl=TTL)
        assert api.call(lock.acquire, timeout=2)
        fence, votes = lock.lease.fence, lease_record(lock.lease).node_leases
        until(lambda votes=votes: all(vote.believed for vote in votes.values()))  # type: ignore[misc]
        clock.set(step=step)
        for _ in range(2):
            before = lease_record(lock.lease).deadline
            until(lambda lock=lock, before=before: lease_record(lock.lease).deadline > before)  # type: ignore[misc]
        assert not lock.lease.lost.is_set()
        api.call(lock.release)
        assert api.call(lock.acquire, timeout=2)
        assert lock.lease.fence > fence
        api.call(lock.release)


# A schedule: its ticks are named by the server's clock


def ticking(server: PrivateServer, name: str) -> tuple[holdfast.Schedule, list[float]]:
    """A schedule with a job five times a second, and the ticks that ran."""
    ran: list[float] = []
    schedule = holdfast.Schedule(server.url, name)
    schedule.add(lambda run: ran.append(run.scheduled), Every(0.2), name="job", ttl=TTL, history=1000)
    return schedule, ran


@pytest.mark.fault(36)
def test_the_servers_clock_jumps_forward_for_a_schedule(clock: Clock, strange: PrivateServer, name: str) -> None:
    """One run starts late, the latest tick; the others are missed, and the history says so."""
    schedule, ran = ticking(strange, name)
    with schedule:
        until(lambda: len(ran) > 2)
        before, last = len(ran), time.time()
        clock.set(step=40)
        until(lambda: len(ran) > before + 5)
        assert len([tick for tick in ran if last + 3 < tick < last + 39]) == 0, "none of those that were jumped over"
        assert len(set(ran)) == len(ran)
        missed = [record for record in schedule.history("job", 1000) if record.status == "missed"]
        assert sum(record.count for record in missed) > 150
        assert {record.error for record in missed} == {"a later tick was due, too"}


@pytest.mark.fault(37)
def test_the_servers_clock_jumps_back_for_a_schedule(
    clock: Clock, strange: PrivateServer, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No tick that is shown again runs again: jobs wait. By more than three hours, the clock was wrong before: they go on."""
    schedule, ran = ticking(strange, name)
    with schedule:
        until(lambda: len(ran) > 2)
        clock.set(step=-1.5)
        before = len(ran)
        until(lambda: len(ran) > before + 4)
        assert len(set(ran)) == len(ran), "each tick once"
        assert sorted(ran) == ran
        clock.set(step=-5 * HOUR)
        before = len(ran)
        until(lambda: len(ran) > before + 4)
        assert max(ran[-3:]) < time.time() - 4 * HOUR
        assert "the server's clock was set back by 1799" in caplog.text
        assert "jobs go on by the new time" in caplog.text
