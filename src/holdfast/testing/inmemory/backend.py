"""`holdfast.testing.memory()`: a server in memory for tests, with ways to make its locks fail."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from holdfast._api.lease import BaseLease
from holdfast._api.lock import BaseLock
from holdfast._api.options import MIN_TTL, seconds
from holdfast._core.lock.records import milliseconds
from holdfast._core.lock.replies import BLOCK
from holdfast._core.names import home, lock_keys, public_part, record_key
from holdfast._net.endpoint import Endpoint
from holdfast._net.url import from_url
from holdfast._runtime.process import describe
from holdfast.testing.inmemory import inside
from holdfast.testing.inmemory.serving import Serving
from holdfast.testing.keyspace import ReplyError

Named = BaseLock[Any] | BaseLease | str
"""A lock: one of its objects, one of its leases, or its name."""

Keys = tuple[bytes, bytes, bytes]

THIEF = "c0ffee"
"""Id of the process that steals locks."""


class Holder(NamedTuple):
    """The holder of a lock."""

    who: str | None
    """As in `LockTimeout.holder`: ``host:pid (label)``, the id of a process, or None for a client of another library."""
    fence: int
    """Fence of the holder. In another process it may be a later one, if the lock was handed on inside that process."""
    remaining: float | None
    """Seconds until the lease ends on the server, unless renewed; None: it has no end."""


class Memory:
    """A server in memory: pass it where a client or a URL is wanted, ``Lock(memory, "name")``, for threads and asyncio.

    A thread of this process serves it on a unix socket, so everything else is as in production. ``url`` and ``socket`` (a
    path) let other clients in: ``redis.Redis.from_url(memory.url)``, or another process. Its time is that of
    `holdfast.testing.clock`. A forked child can connect, but not use the methods.

    Close it at the end: leases that are still held on it are lost then.
    """

    def __init__(self) -> None:
        parent = tempfile.gettempdir()
        if len(os.fsencode(parent)) > 60:
            parent = "/tmp"  # noqa: S108 - the path of a socket has to be short
        directory = Path(tempfile.mkdtemp(prefix="holdfast-memory-", dir=parent))
        self.socket = str(directory / "server.sock")
        """Path of the socket."""
        self.url = f"unix://{self.socket}"
        self._serving = Serving(Path(self.socket))
        # With the server, not with us: a lock that was made on us goes on using it.
        self._remove = weakref.finalize(self._serving, _remove, directory, os.getpid())

    def __repr__(self) -> str:
        return f"<holdfast.testing.memory {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it. Leases held on it are lost, every waiter gets a ServerError. The second time, it does nothing."""
        self._serving.close()
        inside.part(self._endpoint, "the server in memory was closed")
        self._remove()

    # Looking

    def holder(self, lock: Named) -> Holder | None:
        """Return the holder of a lock; None if it is free."""
        key, state, _ = _keys(lock)
        token = self._do("GET", key)
        if token is None:
            return None
        public = public_part(token.decode("ascii", "replace"))
        left = self._do("PTTL", key)
        who = describe(self._do("GET", record_key(home(public, key), public)), public)
        last = int(self._do("HGET", state, "fence") or 0)
        fence = inside.fence(self._endpoint, token.decode("ascii", "replace")) or max(0, last - BLOCK + 1)
        return Holder(who, fence, None if left == -1 else left / 1000)

    def waiters(self, lock: Named) -> int:
        """How many wait for a lock: in the server's queue, and in this process behind others of it."""
        key, _, queue = _keys(lock)
        places: int = self._do("ZCARD", queue)
        return max(0, places + inside.in_line(self._endpoint, key))

    def until_waiting(self, lock: Named, count: int = 1, timeout: float = 5.0) -> None:
        """Return when so many wait in line for a lock. Raises TimeoutError after ``timeout`` real seconds."""
        give_up_at = time.monotonic() + timeout
        while (found := self.waiters(lock)) < count:
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{found} in line for the lock, not {count}, after {timeout:g} s")
            time.sleep(0.001)

    # Losing locks

    def expire(self, lock: Named, *, notice: bool = True) -> None:
        """End the lease on the server, as if it had run out.

        With ``notice=False`` the holder has not noticed on return, and will at its next renewal. Otherwise all leases of this
        process have been renewed on return, and a waiter has the lock.
        """
        self._do("DEL", _keys(lock)[0])
        self._noticed(notice)

    def steal(self, lock: Named, *, ttl: float = 30.0, notice: bool = True) -> int:
        """Somebody else takes the lock, whoever holds it, for ``ttl`` seconds. Returns the thief's fence, higher than all
        before. ``notice`` as in `expire`."""
        key, state, _ = _keys(lock)
        ms = milliseconds(seconds(ttl, "ttl", MIN_TTL))

        def take() -> int:
            execute = self._execute
            now = execute("TIME")
            last = int(execute("HGET", state, "fence") or 0)
            fence = max(last + 1, int(now[0]) * 1_000_000 + int(now[1]))
            execute("HSET", state, "fence", str(fence + BLOCK - 1), "v", "1")
            if not last:
                execute("PEXPIRE", state, str(2 * max(600_000, 2 * ms)))
            execute("SET", key, f"{THIEF}.{fence:032x}", "PX", str(ms))
            return fence

        fence = self._serving.run(take)
        self._noticed(notice)
        return fence

    def flush(self, *, notice: bool = True) -> None:
        """All data is gone, as after FLUSHALL or a restart without a file. ``notice`` as in `expire`."""
        self._do("FLUSHALL")
        self._noticed(notice)

    # Troubles

    def stop(self) -> None:
        """The server is away: connections are cut, new ones refused. It keeps its data, and its time goes on."""
        self._serving.run(self._serving.down)

    def start(self) -> None:
        """The server is back."""
        self._serving.run(self._serving.up)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Take the server away for the length of a ``with``."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def slow(self, delay: float) -> None:
        """From now on each answer takes ``delay`` seconds longer (of real time); 0 ends it."""
        seconds(delay, "delay", 0)
        self._serving.delay = delay

    def drop_replies(self, count: int = 1) -> None:
        """Execute the next ``count`` scripts, but cut their connection before the answer.

        Every change of a lock by holdfast is a script.
        """
        self._serving.lost_answers = count

    # Inside

    @property
    def _endpoint(self) -> Endpoint:
        return from_url(self.url)

    def _do(self, *args: bytes | str) -> Any:
        return self._serving.run(lambda: self._execute(*args))

    def _execute(self, *args: bytes | str) -> Any:
        """In the server's thread."""
        reply = self._serving.execute([arg.encode() if isinstance(arg, str) else arg for arg in args])
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def _noticed(self, notice: bool) -> None:
        if notice:
            inside.hurry(self._endpoint)


def _keys(lock: Named) -> Keys:
    """The keys of a lock."""
    if isinstance(lock, BaseLock):
        return lock._spec.keys  # noqa: SLF001
    if isinstance(lock, BaseLease):
        return lock._held_lease.spec.keys  # noqa: SLF001
    return lock_keys(lock, "hf:", None)


def _remove(directory: Path, owner: int) -> None:
    if os.getpid() == owner:  # in a forked child it is still the parent's
        shutil.rmtree(directory, ignore_errors=True)
