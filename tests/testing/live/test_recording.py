"""Live runs, recorded by each process on its own, and judged together."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import redis

import holdfast
from holdfast import Lock, aio, fencing
from holdfast.testing import history
from holdfast.testing.history import Event, process_of
from holdfast.testing.recording import Recorder, Register, process
from holdfast_lab.checkers import Coverage, Violation, check, main
from support.servers import PrivateServer
from support.witness import in_thread, until

WORKER = """
import sys, threading, time
from pathlib import Path
from holdfast import Lock, fencing
from holdfast.testing.recording import Recorder, Register

url, name, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
register = Register(folder / "register", lambda fence: fencing.accept(url, name, fence))
with Recorder(folder / sys.argv[4]) as record:
    def work():
        lock = Lock(url, name, ttl=0.5)
        while not (folder / "stop").exists():
            try:
                with record.holding(lock) as lease:
                    record.write(lease, register)
                    time.sleep(0.05)
                    record.write(lease, register)
            except Exception as error:
                if type(error).__name__ != "LeaseLost":
                    raise
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def merged(folder: Path) -> list[Event]:
    return history.merge(*(history.read(path) for path in sorted(folder.iterdir()) if path.name != "stop"))


def judged(folder: Path) -> tuple[list[Violation], Coverage]:
    coverage = Coverage()
    return check(merged(folder), coverage=coverage), coverage


def writes(folder: Path) -> list[Event]:
    path = folder / "register"
    return list(history.read(path)) if path.exists() else []


def holder(folder: Path) -> Event | None:
    """The first write of an acquisition, if it is the last of all: who wrote it is about to write again."""
    written = writes(folder)
    return written[-1] if written and written[-1].attempt not in {write.attempt for write in written[:-1]} else None


def overtake(folder: Path, record: Recorder, pids: dict[str, int]) -> bool:
    """Stop a process while it holds the lock, until another has written, and let it go on: True if it wrote too late."""
    last = until(lambda: holder(folder))
    assert last is not None
    stopped = process_of(last.who)
    os.kill(pids[stopped], signal.SIGSTOP)
    record.note("paused", stopped)
    try:
        # In vain if it was stopped in the middle of a write: nobody else gets at the register then.
        with suppress(AssertionError):
            until(lambda: writes(folder)[-1].attempt != last.attempt, 5)
    finally:
        record.note("resumed", stopped)
        os.kill(pids[stopped], signal.SIGCONT)
    again = until(lambda: [write for write in writes(folder) if write.attempt == last.attempt][1:])
    return again[0].note == "refused"


@pytest.mark.turns("fleets")
@pytest.mark.fault(2)
def test_processes_and_threads_and_one_that_is_stopped(server: PrivateServer, name: str, tmp_path: Path) -> None:
    workers = [
        subprocess.Popen([sys.executable, "-W", "ignore", "-c", WORKER, server.url, name, str(tmp_path), f"worker-{n}"])
        for n in range(3)
    ]
    pids = {f"p{worker.pid}": worker.pid for worker in workers}
    try:
        with Recorder(tmp_path / "observer") as record:
            until(lambda: len({write.who for write in writes(tmp_path)}) == 6)
            while not overtake(tmp_path, record, pids):
                pass  # the stop came too late, when the second write was done
            seen = len(writes(tmp_path))
            until(lambda: len(writes(tmp_path)) > seen + 20)
            (tmp_path / "stop").touch()
            assert [worker.wait(10) for worker in workers] == [0, 0, 0]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    violations, coverage = judged(tmp_path)
    assert violations == []
    minimum = {"taken": 20, "contended": 10, "refused": 1, "expired": 1, "lost": 1, "fault pause while held": 1}
    assert coverage.missing(minimum) == [], str(coverage)
    assert main([str(path) for path in tmp_path.iterdir() if path.name != "stop"]) == 0


def always(_: int) -> bool:
    return True


def test_what_a_thread_does_is_written_down(server: PrivateServer, look: redis.Redis, name: str, tmp_path: Path) -> None:
    register = Register(tmp_path / "register", always)
    lock = Lock(server.url, name, wait=0)
    with Recorder(tmp_path / "record") as record:
        with record.holding(lock) as lease:
            assert record.write(lease, register)
            token = str(look.get(lease.key))
            other = in_thread(lambda: record.holding(Lock(server.url, name, wait=0.01)).__enter__())
            assert isinstance(other.exception(10), holdfast.LockTimeout)
            lease.renew(40)
        with record.holding(lock) as lease:
            lease.release()
        with pytest.raises(holdfast.LeaseLost), record.holding(lock) as lease:
            look.delete(lease.key)
        with pytest.raises(ValueError, match="body"), record.holding(lock) as lease:
            raise ValueError("body")
        with pytest.raises(holdfast.ServerError), record.holding(Lock("redis://127.0.0.1:1", name)):
            pass
    me = [(event.kind, event.note) for event in history.read(tmp_path / "record") if event.who != process()]
    whole = [("ask", ""), ("taken", ""), ("release", ""), ("released", "")]
    assert [kind for kind, _ in me[-2:]] == ["ask", "failed"]
    assert me[:-2] == [
        *(*whole[:2], ("ask", ""), ("busy", ""), ("renewed", ""), *whole[2:]),
        *whole,
        *(*whole[:3], ("released", "lost")),
        *whole,
    ]
    text = (tmp_path / "record").read_text() + (tmp_path / "register").read_text()
    assert token.partition(".")[2] not in text, "a token is nobody's business"
    violations, coverage = judged(tmp_path)
    assert violations == []
    assert (coverage.taken, coverage.contended, coverage.renewed, coverage.gave_up, coverage.written) == (4, 0, 1, 2, 1)


def test_a_shorter_lease_counts_from_its_request_on(server: PrivateServer, name: str, tmp_path: Path) -> None:
    """A process may be stopped before it can write down that its lease has become shorter, as at the end of a claim window."""
    register = Register(tmp_path / "register", always)
    with Recorder(tmp_path / "record") as record, record.holding(Lock(server.url, name, renew=False)) as lease:
        before = time.monotonic()
        lease.renew(2)
        after = time.monotonic()
        record.write(lease, register)
        lease.renew(40)
        record.write(lease, register)
    shorter, longer = (event for event in history.read(tmp_path / "record") if event.kind == "renewed")
    assert before - 0.001 <= shorter.since <= after + 0.001
    assert longer.since == 0


def test_tasks(server: PrivateServer, name: str, tmp_path: Path) -> None:
    register = Register(tmp_path / "register", lambda fence: fencing.accept(server.url, name, fence))

    async def work(record: Recorder) -> None:
        lock = aio.Lock(server.url, name)
        for _ in range(5):
            async with record.holding(lock) as lease:
                await asyncio.sleep(0)
                await asyncio.to_thread(record.write, lease, register)

    async def stopped(record: Recorder) -> None:
        async with record.holding(aio.Lock(server.url, name)):
            await asyncio.sleep(60)

    async def run(record: Recorder) -> None:
        await asyncio.gather(*(work(record) for _ in range(4)))
        async with record.holding(aio.Lock(server.url, name)):
            task = asyncio.create_task(stopped(record))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await aio.close()

    with Recorder(tmp_path / "record") as record:
        asyncio.run(run(record))
    violations, coverage = judged(tmp_path)
    assert violations == []
    assert (coverage.taken, coverage.written, coverage.gave_up) == (21, 20, 1)
    assert coverage.contended > 10
    assert coverage.passed > 10, "what is passed on inside a process names the acquisition that it came from"


def test_a_lock_that_excludes_nobody_is_found_out(server: PrivateServer, name: str, tmp_path: Path) -> None:
    """Two locks that their users take for the same one."""
    with Recorder(tmp_path / "record") as record:
        with record.holding(Lock(server.url, name)) as one, record.holding(Lock(server.url, name, prefix="other:")):
            assert record.write(one, Register(tmp_path / "register", always))
        text = (tmp_path / "record").read_text()
    (tmp_path / "record").write_text(text.replace("other:", "hf:"))
    assert [violation.rule for violation in judged(tmp_path)[0]][:1] == ["R1"]
