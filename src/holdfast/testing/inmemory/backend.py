"""`holdfast.testing.memory` starts a server in memory for tests. The server's methods make its locks fail."""

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

from holdfast._api.base_lock import BaseLock, member_of
from holdfast._api.lease import BaseLease, core_of
from holdfast._api.options import MIN_TTL, seconds
from holdfast._clock import monotonic
from holdfast._core.lock.replies import BLOCK
from holdfast._core.lock.spec import milliseconds
from holdfast._core.names import home, lock_keys, record_key
from holdfast._durations import Seconds
from holdfast._net.endpoint import Endpoint
from holdfast._net.url import from_url
from holdfast._runtime.process import describe
from holdfast.testing.inmemory import inside
from holdfast.testing.inmemory.serving import Serving
from holdfast.testing.keyspace import ReplyError

Named = BaseLock[Any, Any] | BaseLease | str
"""An argument that names a lock: a lock object, a lease of the lock, or the lock's name."""

Keys = tuple[bytes, bytes, bytes]

THIEF = "c0ffee"
"""Process id of the imaginary process for which `Memory.steal` acquires locks."""


class Holder(NamedTuple):
    """The holder of a lock on a server in memory."""

    who: str | None
    """The holder as ``host:pid (label)``, or its process id if nothing else is known; None if the holder uses another
    library."""
    fence: int
    """Fence of the holder. For a holder in another process, this is the first fence of the latest block of fences that the
    server has reserved for that process; the holder may have a later one."""
    remaining: float | None
    """Seconds until the lease ends on the server, unless it is renewed; None if the lease does not end."""


class Memory:
    """A server in memory. Pass it as the client or URL to classes of the sync and asyncio API: ``Lock(memory, "name")``.

    A thread of this process serves the server on a unix socket, so clients work as in production. Other clients and
    processes connect with ``url`` or with ``socket`` (its path): ``redis.Redis.from_url(memory.url)``.

    The server's time is that of `holdfast.testing.clock`. A forked child can connect to the server, but cannot call its
    methods.

    Close the server at the end. Leases that are still held on it are lost then.
    """

    socket: str
    url: str

    def __init__(self) -> None:
        parent = tempfile.gettempdir()
        if len(os.fsencode(parent)) > 60:
            parent = "/tmp"  # noqa: S108 - the path of a socket has to be short
        directory = Path(tempfile.mkdtemp(prefix="holdfast-memory-", dir=parent))
        self.socket = str(directory / "server.sock")
        """Path of the server's unix socket."""
        self.url = f"unix://{self.socket}"
        self._serving = Serving(Path(self.socket))
        # The function refers to the server thread, not to this object, because a lock on this server may outlive this object.
        self._remove = weakref.finalize(self._serving, _remove, directory, os.getpid())

    def __repr__(self) -> str:
        return f"<holdfast.testing.memory {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server. Leases that are held on it are lost, and waiters get a ServerError. A second call does nothing."""
        self._serving.close()
        inside.part(self._endpoint, "the server in memory was closed")
        self._remove()

    # Queries

    def holder(self, lock: Named) -> Holder | None:
        """Return the holder of a lock, according to the server; None if the lock is free."""
        key, state, _ = _keys(lock)
        token = self._do("GET", key)
        if token is None:
            return None
        text = token.decode("ascii", "replace")
        public = text.partition(".")[0] if "." in text else ""  # empty if another library wrote the token
        left = self._do("PTTL", key)
        who = describe(self._do("GET", record_key(home(public, key), public)), public)
        last = int(self._do("HGET", state, "fence") or 0)
        fence = inside.fence(self._endpoint, text) or max(0, last - BLOCK + 1)
        return Holder(who, fence, None if left == -1 else left / 1000)

    def waiters(self, lock: Named) -> int:
        """Return the number of waiters for a lock, in the server's queue and in the local queue of this process."""
        key, _, queue = _keys(lock)
        places: int = self._do("ZCARD", queue)
        return max(0, places + inside.in_line(self._endpoint, key))

    def until_waiting(self, lock: Named, count: int = 1, timeout: float = 5.0) -> None:
        """Wait until a lock has at least ``count`` waiters. Raises TimeoutError after ``timeout`` real seconds."""
        give_up_at = monotonic() + timeout
        while (found := self.waiters(lock)) < count:
            if monotonic() > give_up_at:
                raise TimeoutError(f"{found} waiters for the lock, not {count}, after {timeout:g} s")
            time.sleep(0.001)

    # Loss of locks

    def expire(self, lock: Named, *, notice: bool = True) -> None:
        """End the lease of a lock on the server, as if the lease had expired.

        If ``notice`` is True, this process renews its leases on the server before the method returns, except those with
        ``renew=False``. So a holder in this process has noticed the loss by then, and the next waiter holds the lock. If
        ``notice`` is False, the holder notices the loss at its next renewal.
        """
        self._do("DEL", _keys(lock)[0])
        self._noticed(notice)

    def steal(self, lock: Named, *, ttl: Seconds = 30.0, notice: bool = True) -> int:
        """Let an imaginary process acquire the lock for ``ttl`` seconds, even if the lock is held. Return the new fence.

        The fence is higher than all earlier ones. If ``notice`` is True, a holder in this process has noticed the loss
        when the method returns, unless its lock has ``renew=False``. If ``notice`` is False, the holder notices the loss at its
        next renewal.
        """
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
        """Delete all data of the server, as FLUSHALL or a restart without persistence does.

        If ``notice`` is True, the holders in this process have noticed the loss when the method returns, except those of locks
        with ``renew=False``. If ``notice`` is False, the holders notice the loss at their next renewal.
        """
        self._do("FLUSHALL")
        self._noticed(notice)

    # Faults

    def stop(self) -> None:
        """Make the server unreachable: cut its connections and refuse new ones. The data stays, and leases go on expiring."""
        self._serving.run(self._serving.down)

    def start(self) -> None:
        """Make a stopped server reachable again."""
        self._serving.run(self._serving.up)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Make the server unreachable inside a ``with`` block."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def slow(self, delay: Seconds) -> None:
        """Delay each reply of the server by ``delay`` seconds of real time from now on; 0: answer at once again."""
        self._serving.delay = seconds(delay, "delay", 0)

    def drop_replies(self, count: int = 1) -> None:
        """Execute the next ``count`` scripts, but cut the connection before the reply to each of them is sent.

        Only scripts are affected, because holdfast changes locks only by scripts.
        """
        self._serving.lost_answers = count

    # Internals

    @property
    def _endpoint(self) -> Endpoint:
        return from_url(self.url)

    def _do(self, *args: bytes | str) -> Any:
        return self._serving.run(lambda: self._execute(*args))

    def _execute(self, *args: bytes | str) -> Any:
        reply = self._serving.execute([arg.encode() if isinstance(arg, str) else arg for arg in args])
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def _noticed(self, notice: bool) -> None:
        if notice:
            inside.hurry(self._endpoint)


def _keys(lock: Named) -> Keys:
    if isinstance(lock, BaseLock):
        return member_of(lock).spec.keys
    if isinstance(lock, BaseLease):
        keys: Keys = core_of(lock).held_lease.spec.keys
        return keys
    return lock_keys(lock, "hf:", None)


def _remove(directory: Path, owner: int) -> None:
    if os.getpid() == owner:  # in a forked child, the directory still belongs to the parent
        shutil.rmtree(directory, ignore_errors=True)
