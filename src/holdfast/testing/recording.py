"""Record what live processes do with their locks, so that `holdfast_lab.checkers` can judge it.

Each process writes a file of its own. A `Register`, which stands for the resource that the lock protects, writes another file.
``python -m holdfast_lab check FILE...`` judges all files together. All times are those of the machine's monotonic clock, so all
processes must run on one machine. No secret is written, because an attempt to acquire is identified by a number, not by its
token.

    with Recorder("p1.jsonl") as record:
        with record.holding(lock) as lease:  # or ``async with``, for a lock of `holdfast.aio`
            record.write(lease, register)
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, overload

from holdfast._api.acquisition import BaseAioLock, BaseSyncLock
from holdfast._api.base_lock import BaseLock, L, member_of
from holdfast._api.flow import as_flow, complete
from holdfast._api.lease import BaseLease, core_of
from holdfast._clock import clock, monotonic
from holdfast._core.lock.records import HeldLease
from holdfast.errors import LockTimeout
from holdfast.testing.history import Event, to_line


class Register:
    """A stand-in for the resource that a lock protects. It accepts or refuses writes, and records them in order.

    Args:
        path: path of the record. All processes must pass the same path.
        accept: function that gets the fence of a write, and returns True to accept the write. For example
            ``lambda fence: holdfast.fencing.accept(url, "resource", fence)``.
    """

    def __init__(self, path: str | Path, accept: Callable[[int], bool]) -> None:
        self._path = Path(path)
        self._accept = accept

    def write(self, fence: int, who: str = "", lock: str = "", attempt: str = "") -> bool:
        """Attempt a write with this fence, record it, and return True if it was accepted.

        ``who``, ``lock``, ``attempt``: values for these fields of the recorded `Event`.
        """
        # The file is opened anew each time, so that its lock excludes other threads as well as other processes.
        with self._path.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            accepted = self._accept(fence)
            note = "accepted" if accepted else "refused"
            file.write(to_line(Event(monotonic(), "write", who, lock, attempt, fence, note=note)) + "\n")
        return accepted


class Recorder:
    """A recorder of what this process does with its locks, for any number of threads and tasks.

    The recorder looks at a lease when the lock is acquired, at each `write`, and at the release. It then records the time
    until which the lease lasts, and whether the lease was lost meanwhile.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = Path(path).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115  (closed by `close`)
        self._mutex = threading.RLock()  # reentrant, because a signal handler may use a recorded lock, too
        self._attempts = _Attempts()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Record that this process ends, and close the file."""
        self.note("end", process())
        self._file.close()

    def note(self, kind: str, who: str = "", lock: str = "", attempt: str = "", **facts: Any) -> None:
        """Record an event now, such as ``note("paused", "p123")``. ``facts`` are values for other fields of `Event`."""
        line = to_line(Event(monotonic(), kind, who, lock, attempt, **facts)) + "\n"
        with self._mutex:
            self._file.write(line)

    @overload
    def holding(self, lock: BaseSyncLock[L]) -> Holding[L]: ...

    @overload
    def holding(self, lock: BaseAioLock[L]) -> AsyncHolding[L]: ...

    def holding(self, lock: BaseSyncLock[L] | BaseAioLock[L]) -> Holding[L] | AsyncHolding[L]:
        """Return a context manager that holds the lock for one ``with`` or ``async with`` statement, and records this."""
        return Holding(self, lock) if isinstance(lock, BaseSyncLock) else AsyncHolding(self, lock)

    def write(self, lease: BaseLease, register: Register) -> bool:
        """Attempt a write to the protected resource ``register`` with the fence of this lease. Record the write, and return
        True if it was accepted."""
        holding = self._attempts.holding_of(lease)
        holding.record_changes()
        return register.write(lease.fence, holding.who, lease.key, holding.attempt)


def process() -> str:
    """Return the name of this process in records: ``p`` and its process id."""
    return f"p{os.getpid()}"


class _Attempts:
    """The recorded attempts of this process to acquire locks: their names, and the leases that they hold."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._holdings: dict[BaseLease, _Holding] = {}
        self._first: dict[HeldLease, str] = {}
        """Name of the attempt that got each lease from the server. Later attempts of this process may share the lease."""

    def new_name(self, who: str) -> str:
        """Return a name for the next attempt of the worker ``who``."""
        return f"{who}#{next(self._numbers)}"

    def took(self, lease: BaseLease, holding: _Holding) -> str:
        """Store who holds a lease. Return the name of the attempt that got the lease from the server."""
        self._holdings[lease] = holding
        return self._first.setdefault(core_of(lease).held_lease, holding.attempt)

    def holding_of(self, lease: BaseLease) -> _Holding:
        return self._holdings[lease]

    def released(self, lease: BaseLease) -> None:
        del self._holdings[lease]
        if core_of(lease).held_lease.over:
            self._first.pop(core_of(lease).held_lease, None)


class _Holding:
    """One recorded acquisition: the base class of `Holding` (threads) and `AsyncHolding` (tasks)."""

    who: str
    attempt: str

    def __init__(self, record: Recorder, lock: BaseLock[Any, Any], worker: str) -> None:
        self._record = record
        self._attempts = record._attempts  # noqa: SLF001 - known to the recorder and its holdings only
        self._lock = lock
        self._lease: BaseLease | None = None
        self._until = 0.0
        self._over = False
        self._first = ""
        """Name of the attempt that got the lease from the server; "" if it is this attempt."""
        self.who = f"{process()}/{worker}"
        self.attempt = self._attempts.new_name(self.who)

    def _note(self, kind: str, **facts: Any) -> None:
        self._record.note(kind, self.who, self._lock.key, self.attempt, lease=self._first, **facts)

    async def _enter(self, acquiring: Awaitable[Any]) -> Any:
        wait = member_of(self._lock).wait
        self._note("ask", until=float("inf") if wait is None else monotonic() + wait)
        try:
            lease = await acquiring
        except LockTimeout:
            self._note("busy")
            raise
        except BaseException as error:
            self._note("failed" if isinstance(error, Exception) else "cancelled", note=f"{type(error).__name__}: {error}")
            raise
        self._took(lease)
        return lease

    async def _exit(self, releasing: Awaitable[Any]) -> None:
        self.record_changes()
        if not self._over:
            self._over = True
            self._note("release")
        try:
            await releasing
        except BaseException as failure:
            self._released(failure)
            raise
        self._released(None)

    def _took(self, lease: BaseLease) -> None:
        self._lease = lease
        first = self._attempts.took(lease, self)
        self._first = "" if first == self.attempt else first
        self._until = self._believed()
        self._note("taken", fence=lease.fence, until=self._until)

    def _believed(self) -> float:
        """Return the time, in seconds of the monotonic clock, until which the lease may be relied on."""
        assert self._lease is not None
        now = monotonic()
        until: float = core_of(self._lease).held_lease.good_until
        return now + until - clock()

    def record_changes(self) -> None:
        """Record what has happened to the lease since the last call: a renewal, a loss or a release."""
        assert self._lease is not None
        until = self._believed()
        if abs(until - self._until) > 0.001 and not self._over:
            # A shorter lease counts from its request on, and the process may have been stopped since.
            since = monotonic() + core_of(self._lease).held_lease.asked_at - clock() if until < self._until else 0.0
            self._until = until
            self._note("renewed", until=until, since=since)
        if self._lease.remaining() == 0 and not self._over:
            self._over = True
            held_lease = core_of(self._lease).held_lease
            if held_lease.over:
                self._note("release")  # the lease was released inside the `with` block
            else:
                self._note("lost", note=held_lease.lost or held_lease.why_over)

    def _released(self, error: BaseException | None) -> None:
        lease = self._lease
        assert lease is not None
        self._attempts.released(lease)
        lost = "lost" if core_of(lease).held_lease.lost else ""
        self._note("released", note=lost or (type(error).__name__ if error else ""))


class Holding(_Holding, Generic[L]):
    """A context manager that acquires a lock in a thread, and records the acquisition."""

    def __init__(self, record: Recorder, lock: BaseSyncLock[L]) -> None:
        super().__init__(record, lock, f"t{threading.get_native_id()}")
        self._taking = lock

    def __enter__(self) -> L:
        lease: L = complete(self._enter(as_flow(self._taking.__enter__)))
        return lease

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        complete(self._exit(as_flow(self._taking.__exit__, kind, error, trace)))


class AsyncHolding(_Holding, Generic[L]):
    """An async context manager that acquires a lock in a task, and records the acquisition."""

    def __init__(self, record: Recorder, lock: BaseAioLock[L]) -> None:
        task = asyncio.current_task()
        assert task is not None
        super().__init__(record, lock, task.get_name())
        self._taking = lock

    async def __aenter__(self) -> L:
        lease: L = await self._enter(self._taking.__aenter__())
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit(self._taking.__aexit__(kind, error, trace))
