"""Things that are never ended: a lock held to the last line, a loop closed while tasks wait, a handler that waits."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time

import pytest
import redis

import holdfast
from holdfast import aio
from holdfast._core.lock.records import Attempt
from holdfast._runtime.process import current
from support.servers import PrivateServer
from support.witness import in_thread, local_queue, queue_length, until, until_in_loop

HOLDS_TO_THE_END = """
import sys, time, holdfast
LOCK = holdfast.Lock(sys.argv[1], sys.argv[2])
LOCK.acquire()
time.sleep(float(sys.argv[3]))
"""


@pytest.mark.parametrize("after", ["0", "0.5"])
def test_a_program_that_holds_a_lock_at_its_end_ends(server: PrivateServer, look: redis.Redis, name: str, after: str) -> None:
    """Its lease is collected when no thread can be started any more."""
    subprocess.run([sys.executable, "-c", HOLDS_TO_THE_END, server.url, name, after], timeout=10, check=True)
    assert not look.exists(f"hf:{{{name}}}")


def test_a_program_gives_back_at_its_end_where_no_thread_can_be_started(
    server: PrivateServer, look: redis.Redis, name: str
) -> None:
    """As on Python 3.12.1, where none can from the first function that `atexit` calls on."""
    end = """
import atexit, threading
def start(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")
atexit.register(lambda: setattr(threading.Thread, "start", start))
"""
    subprocess.run([sys.executable, "-c", HOLDS_TO_THE_END + end, server.url, name, "0"], timeout=10, check=True)
    assert not look.exists(f"hf:{{{name}}}")


def stands_alone(look: redis.Redis, lock: holdfast.Lock) -> bool:
    """Somebody whose event loop is not closed asks the server for all of this process, and nobody else stands in its queue."""
    who = local_queue(lock).turn_of
    if not isinstance(who, Attempt) or who.slot is None or who.slot.gone():
        return False
    return bool(look.zrange(f"hf:{{{lock.name}}}:queue", 0, -1) == [who.token])


# A loop that is closed like that leaves its sockets and tasks to the collector, which says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("api", [aio.Lock, aio.FairLock])
def test_a_loop_is_closed_whose_task_stands_in_the_servers_queue(
    api: type[aio.Lock], server: PrivateServer, look: redis.Redis, name: str
) -> None:
    """Its place is the next one's of this process, or given up: nobody is handed a lock that nobody takes up."""
    with holdfast.FairLock(server.url, name):
        loop = asyncio.new_event_loop()
        left = [api(server.url, name) for _ in range(3)]
        tasks = [loop.create_task(lock.acquire()) for lock in left]
        here = local_queue(left[0]).node.waiting
        places = 3 if api is aio.FairLock else 1

        async def stand_in_line() -> None:
            await until_in_loop(lambda: queue_length(look, name) == places)
            await until_in_loop(lambda: all(place.told for place in here.waiters()))  # the answer has been read, too

        loop.run_until_complete(stand_in_line())
        loop.close()
        ours = holdfast.Lock(server.url, name)
        waiting = in_thread(ours.acquire)
        until(lambda: stands_alone(look, ours))
    started = time.monotonic()
    assert waiting.result(5)
    assert time.monotonic() - started < 1.0
    ours.release()
    assert all(not task.done() for task in tasks)
    del tasks, left, loop
    holdfast.close()
    gc.collect()


def test_a_handler_that_would_wait_in_the_middle_of_holdfast_is_refused(server: PrivateServer, name: str) -> None:
    """It has interrupted who holds the keeper's mutex: nothing could be handed over while it waits."""
    with holdfast.FairLock(server.url, name):
        for lock in (holdfast.Lock(server.url, name), holdfast.FairLock(server.url, name)):
            with current().keeper.mutex, pytest.raises(RuntimeError, match="signal handler"):
                lock.acquire(timeout=1)
            assert not lock.acquire(blocking=False)
