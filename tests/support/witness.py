"""Observers for the live tests: commands that reach a server, conditions that come true, threads that report."""

from __future__ import annotations

import asyncio
import gc
import inspect
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CoroutineType, FrameType
from typing import Any, Self, TypeVar
from uuid import uuid4

import pytest
import redis

from holdfast._api.base_lock import BaseLock
from holdfast._api.lease import core_of
from holdfast._core.lock import foreign_lock
from holdfast._core.lock.local_queue import LocalQueue
from holdfast._core.lock.replies import ACQUIRE, REFRESH, RELEASE, RENEW
from holdfast._runtime.process import current
from holdfast.fencing import FENCE_CHECK

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds after which something that should have happened counts as never happening."""


def until(condition: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Wait until it holds."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)
    return value


@contextmanager
def warned_of_drop(about: str) -> Iterator[None]:
    """A lease is dropped in here. Left when its warning is there: the keeper says so at its next turn."""
    with pytest.warns(ResourceWarning, match=f"{about}' was dropped without release") as said:  # noqa: PT031 - by a thread
        yield
        until(lambda: len(said))


async def until_in_loop(condition: Callable[[], object]) -> None:
    """Wait until it holds, and let other tasks run meanwhile."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.002)


def in_thread(what: Callable[..., T], *args: Any, **kwargs: Any) -> Future[T]:
    """Call it in a thread of its own."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(what(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


class Monitor:
    """Record the commands that clients send to a server, in order, without those inside scripts.

    The keeper's search for locks of other libraries is shown on request only: it comes a tenth of a second after the first use
    of a name, wherever the test is then.
    """

    def __init__(self, url: str) -> None:
        self._client: redis.Redis = redis.Redis.from_url(url)
        for script in (ACQUIRE, REFRESH, RELEASE, RENEW, FENCE_CHECK):
            self._client.script_load(script.body)  # or the first use of each would be two commands

    def __enter__(self) -> Self:
        client: Any = self._client
        self._monitor = client.monitor().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._monitor.connection.disconnect()
        self._client.close()

    def commands(self, about: str = "") -> list[str]:
        """All since the last call, in which this text occurs."""
        marker = uuid4().hex
        self._client.echo(marker)
        seen: list[str] = []
        while marker not in (line := self._monitor.next_command())["command"]:
            command = line["command"]
            searches = command.startswith("GETRANGE ") and command.endswith(f" 0 {foreign_lock.LONGEST}")
            if line["client_type"] != "lua" and about in command and (not searches or about.startswith("GETRANGE ")):
                seen.append(command)
        return seen

    def until(self, count: int, about: str = "") -> list[str]:
        """Waits for so many of them."""
        seen: list[str] = []
        deadline = time.monotonic() + PATIENCE
        while len(seen) < count:
            assert time.monotonic() < deadline, f"only {seen}"
            seen += self.commands(about)
            time.sleep(0.002)
        return seen

    def names(self, about: str = "") -> list[str]:
        """The same, the names of the commands alone."""
        return [command.split()[0].upper() for command in self.commands(about)]


def queue_length(look: redis.Redis, name: str) -> int:
    """How many stand in line for a lock."""
    return int(look.zcard(f"hf:{{{name}}}:queue"))


def local_queue(lock: BaseLock[Any, Any]) -> LocalQueue:
    """Return the local queue of this process for a lock."""
    return current().keeper.local_queue(lock._endpoint, lock._spec)


def lease_record(lease: Any) -> Any:
    """Return the record of a lease that the keeper renews: a `HeldLease`, or the `QuorumLease` of several servers."""
    return core_of(lease).held_lease


def waiting_here(lock: BaseLock[Any, Any]) -> int:
    """How many stand in line for a lock in this process."""
    return len(local_queue(lock).queue)


def connections(look: redis.Redis) -> set[str]:
    """The ids of all connections to a server."""
    return {str(client["id"]) for client in look.client_list()}


def nobody_else(look: redis.Redis) -> set[str]:
    """The ids of `look`'s own connections, once all others are gone: the server hears of those that were closed later."""
    own = {str(look.client_id())}
    until(lambda: connections(look) == own)
    return own


SHARED: set[str] = set()
"""Sockets of servers that several modules use, and that start when the first of these needs them."""


def _inode(fd: str) -> str:
    return str(Path("/proc/self/fd", fd).readlink())


def _called(holder: object) -> str:
    if isinstance(holder, FrameType):
        return f"frame {holder.f_code.co_qualname}:{holder.f_lineno}"
    if isinstance(holder, CoroutineType):
        line = holder.cr_frame.f_lineno if holder.cr_frame is not None else "ended"
        return f"coroutine {holder.__qualname__}:{line}"
    return type(holder).__qualname__


def held_by(sockets: set[str]) -> str:
    """Return the objects to which these are connected, and through which they are still referred to; and what each thread does,
    as a frame that runs is nobody's referrer."""
    lines = [f"handled: {sys.exception()!r}"]
    lines += ["".join(["a thread:\n", *traceback.format_stack(frame)]) for frame in sys._current_frames().values()]
    for thing in gc.get_objects():
        if isinstance(thing, socket.socket) and thing.fileno() >= 0 and _inode(str(thing.fileno())) in sockets:
            lines.append(repr(thing))
            holders: list[object] = [thing]
            mine = inspect.currentframe()
            for _ in range(6):
                holders = [one for one in gc.get_referrers(*holders) if one is not holders and one is not mine]
                lines.append(f"  of {sorted({_called(one) for one in holders})}")
    return "\n".join(lines)


def open_sockets() -> set[str]:
    """The sockets this process has open."""
    found = set()
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if (target := _inode(fd.name)).startswith("socket:"):
                found.add(target)
    return found
