"""Recording what live processes do with their locks, so that `checkers` can judge it.

Each process writes a file of its own, and so does the register that stands for what the lock protects; the files are judged
together (``python -m holdfast.testing check FILE...``). All times are of the machine's monotonic clock, so all processes have
to be on one machine. Nothing secret is written: an attempt has a number, not its token.

    with Recorder("p1.jsonl") as record:
        with record.holding(lock) as lease:         # or ``async with``, for a lock of `holdfast.aio`
            record.write(lease, register)
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

from holdfast import aio
from holdfast._api import sync_lock
from holdfast._api.lease import BaseLease
from holdfast._api.lock import BaseLock
from holdfast._clock import clock
from holdfast._core.lock.records import HeldLease
from holdfast.errors import LockTimeout
from holdfast.testing.history import Event, to_line


class Register:
    """Stands for what a lock protects: it accepts writes or refuses them, and keeps a record of that, in its own order.

    Args:
        path: of the record, the same for all processes.
        accept: called with a fence; True if the write is accepted. For example
            ``lambda fence: holdfast.fencing.accept(url, "resource", fence)``.
    """

    def __init__(self, path: str | Path, accept: Callable[[int], bool]) -> None:
        self._path = Path(path)
        self._accept = accept

    def write(self, fence: int, who: str = "", lock: str = "", attempt: str = "") -> bool:
        """Write something under this fence; False if that was refused."""
        # Opened anew each time, so that threads exclude each other as processes do.
        with self._path.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            accepted = self._accept(fence)
            note = "accepted" if accepted else "refused"
            file.write(to_line(Event(time.monotonic(), "write", who, lock, attempt, fence, note=note)) + "\n")
        return accepted


class Recorder:
    """Writes down what this process does with its locks. For any number of threads and tasks.

    A belief is as long as the lease said when it was last looked at: when it was taken, at a `write`, and at the end. A loss
    is written down then, too.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = Path(path).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115  (closed by `close`)
        self._mutex = threading.RLock()  # a signal handler may use what is recorded, too
        self._numbers = itertools.count(1)
        self._holdings: dict[BaseLease, _Holding] = {}
        self._first: dict[HeldLease, str] = {}
        """Of each lease that may be passed on in this process, the attempt that took it from the server."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the record of this process."""
        self.note("end", process())
        self._file.close()

    def note(self, kind: str, who: str = "", lock: str = "", attempt: str = "", **facts: Any) -> None:
        """Write down something else that has just happened, as ``note("paused", "p123")``; facts as in `Event`."""
        line = to_line(Event(time.monotonic(), kind, who, lock, attempt, **facts)) + "\n"
        with self._mutex:
            self._file.write(line)

    @overload
    def holding(self, lock: sync_lock.Lock) -> Holding: ...

    @overload
    def holding(self, lock: aio.Lock) -> AsyncHolding: ...

    def holding(self, lock: sync_lock.Lock | aio.Lock) -> Holding | AsyncHolding:
        """The lock, for one ``with`` (or ``async with``) statement, and what comes of it is written down."""
        return Holding(self, lock) if isinstance(lock, sync_lock.Lock) else AsyncHolding(self, lock)

    def write(self, lease: BaseLease, register: Register) -> bool:
        """Write to what the lock protects, with the fence of a lease that is being recorded; False if that was refused."""
        holding = self._holdings[lease]
        holding.look()
        return register.write(lease.fence, holding.who, lease.key, holding.attempt)


def process() -> str:
    """Return the name of this process in records."""
    return f"p{os.getpid()}"


class _Holding:
    """One acquisition that is written down."""

    def __init__(self, record: Recorder, lock: BaseLock[Any], worker: str) -> None:
        self._record = record
        self._lock = lock
        self._lease: BaseLease | None = None
        self._until = 0.0
        self._over = False
        self._first = ""
        """The attempt that this one's lease was passed on from."""
        self.who = f"{process()}/{worker}"
        self.attempt = f"{self.who}#{next(record._numbers)}"  # noqa: SLF001

    def _note(self, kind: str, **facts: Any) -> None:
        self._record.note(kind, self.who, self._lock.key, self.attempt, lease=self._first, **facts)

    def _asks(self) -> None:
        wait = self._lock._wait  # noqa: SLF001
        self._note("ask", until=float("inf") if wait is None else time.monotonic() + wait)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, LockTimeout):
            self._note("busy")
        else:
            self._note("failed" if isinstance(error, Exception) else "cancelled", note=f"{type(error).__name__}: {error}")

    def _took(self, lease: BaseLease) -> None:
        self._lease = lease
        self._record._holdings[lease] = self  # noqa: SLF001
        first = self._record._first.setdefault(lease._held_lease, self.attempt)  # noqa: SLF001
        self._first = "" if first == self.attempt else first
        self._until = self._believed()
        self._note("taken", fence=lease.fence, until=self._until)

    def _believed(self) -> float:
        """Until when the lease may be believed, by the clock of the record."""
        assert self._lease is not None
        now = time.monotonic()
        return now + self._lease._held_lease.good_until - clock()  # noqa: SLF001

    def look(self) -> None:
        """Write down what has become of the lease meanwhile."""
        assert self._lease is not None
        until = self._believed()
        if abs(until - self._until) > 0.001 and not self._over:
            self._until = until
            self._note("renewed", until=until)
        if self._lease.remaining() == 0 and not self._over:
            self._over = True
            held_lease = self._lease._held_lease  # noqa: SLF001
            if held_lease.over:
                self._note("release")  # in the body
            else:
                self._note("lost", note=held_lease.lost or held_lease.why_over)

    def _releases(self) -> None:
        self.look()
        if not self._over:
            self._over = True
            self._note("release")

    def _released(self, error: BaseException | None) -> None:
        lease = self._lease
        assert lease is not None
        del self._record._holdings[lease]  # noqa: SLF001
        if lease._held_lease.over:  # noqa: SLF001
            self._record._first.pop(lease._held_lease, None)  # noqa: SLF001
        lost = "lost" if lease._held_lease.lost else ""  # noqa: SLF001
        self._note("released", note=lost or (type(error).__name__ if error else ""))


class Holding(_Holding):
    """One acquisition by a thread."""

    def __init__(self, record: Recorder, lock: sync_lock.Lock) -> None:
        super().__init__(record, lock, f"t{threading.get_native_id()}")
        self._taking = lock

    def __enter__(self) -> sync_lock.Lease:
        self._asks()
        try:
            lease = self._taking.__enter__()
        except BaseException as error:
            self._failed(error)
            raise
        self._took(lease)
        return lease

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._releases()
        try:
            self._taking.__exit__(kind, error, trace)
        except BaseException as failure:
            self._released(failure)
            raise
        self._released(None)


class AsyncHolding(_Holding):
    """One acquisition by a task."""

    def __init__(self, record: Recorder, lock: aio.Lock) -> None:
        task = asyncio.current_task()
        assert task is not None
        super().__init__(record, lock, task.get_name())
        self._taking = lock

    async def __aenter__(self) -> aio.Lease:
        self._asks()
        try:
            lease = await self._taking.__aenter__()
        except BaseException as error:
            self._failed(error)
            raise
        self._took(lease)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._releases()
        try:
            await self._taking.__aexit__(kind, error, trace)
        except BaseException as failure:
            self._released(failure)
            raise
        self._released(None)
