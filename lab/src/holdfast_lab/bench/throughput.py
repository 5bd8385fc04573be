"""Count the acquisitions per second of threads or tasks that use locks as fast as they can."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

from holdfast_lab.bench.rivals import AnyAsyncLock, AnyLock, fence

_clock = time.monotonic


class Witness:
    """A counter of violations (``wrong``): two holders at once, or a fence that is not higher than the one before."""

    def __init__(self) -> None:
        self.wrong = 0
        self._inside = False
        self._last = 0

    def enter(self, lock: object) -> None:
        number = fence(lock)
        if self._inside or (number is not None and number <= self._last):
            self.wrong += 1
        self._inside = True
        if number is not None:
            self._last = number

    def leave(self) -> None:
        self._inside = False


def by_threads(locks: Sequence[AnyLock], seconds: float, witness: Witness | None = None) -> float:
    """Run one thread per lock object for ``seconds``. Return the acquisitions per second of all together.

    Acquisitions that still run at the end are not counted.
    """
    counts = [0] * len(locks)
    start = threading.Barrier(len(locks) + 1)
    failed: list[BaseException] = []
    end = float("inf")

    def run(number: int) -> None:
        lock, count = locks[number], 0
        try:
            start.wait()
            while _clock() < end:
                lock.acquire()
                if witness is not None:
                    witness.enter(lock)
                    witness.leave()
                lock.release()
                count += 1
            counts[number] = count - 1
        except BaseException as error:  # noqa: BLE001 (the caller raises it)
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(locks))]
    for thread in threads:
        thread.start()
    end = _clock() + seconds
    start.wait()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return sum(max(0, count) for count in counts) / seconds


async def by_tasks(locks: Sequence[AnyAsyncLock], seconds: float, witness: Witness | None = None) -> float:
    """Run one task per lock object for ``seconds``. Return the acquisitions per second of all together.

    Acquisitions that still run at the end are not counted.
    """
    end = _clock() + seconds

    async def run(lock: AnyAsyncLock) -> int:
        count = 0
        while _clock() < end:
            await lock.acquire()
            if witness is not None:
                witness.enter(lock)
                witness.leave()
            await lock.release()
            count += 1
        return max(0, count - 1)

    return sum(await asyncio.gather(*(run(lock) for lock in locks))) / seconds
