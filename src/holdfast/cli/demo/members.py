"""The processes of ``holdfast demo quorum``: members of a program that locks over several servers, and a wire between two.

They are told what to do in lines, as `actors` are, and say what came of it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import holdfast
from holdfast import fencing
from holdfast.cli.demo.actors import KEEP_FENCE, act, hear, say

TTL = 2.0
"""Seconds of the leases."""

MAX_TTL = 2.0
"""The longest lease: for so long a server that has forgotten does not vote."""

WITHIN = 0.2
"""Seconds for which a server is waited for."""

SLACK = 1.0
"""Seconds that a busy machine may add to what has a limit; less than the lease, after which everything goes away by itself."""

PATIENCE = 10.0
"""Seconds for which a lock is waited for."""


def named(urls: Sequence[str]) -> dict[str, str]:
    """The servers, by what the show calls them."""
    return {f"server {number}": url for number, url in enumerate(urls, 1)}


def redlock(urls: Sequence[str], name: str) -> holdfast.Redlock:
    """The arguments that all of them take."""
    return holdfast.Redlock(named(urls), name, ttl=TTL, max_ttl=MAX_TTL, answer_within=WITHIN, wait=PATIENCE)


def insist(lock: holdfast.Redlock) -> bool:
    """Take a lock although too few servers may be able to vote just now."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return lock.acquire()
        except holdfast.QuorumError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


class Member:
    """One process. ``data`` and ``key``: what the lock protects is on a server of its own."""

    def __init__(self, urls: str, data: str, key: str) -> None:
        self._urls = urls.split()
        self._data, self._key = data, key
        self._lease: Any = None

    def _keep(self, acquire: Callable[[], bool], lock: holdfast.Lock) -> None:
        """Try to get a lock, and say what came of it."""
        start = time.monotonic()
        facts: dict[str, Any] = {"error": "", "nodes": {}}
        taken = False
        try:
            taken = acquire()
        except holdfast.HoldfastError as error:
            facts = {"error": type(error).__name__, "nodes": getattr(error, "nodes", {})}
        got = time.monotonic()
        if taken:
            self._lease = lock.lease
            facts["fence"] = self._lease.fence
        say(taken=taken, got=got, seconds=got - start, **facts)

    def work(self, name: str, times: str) -> None:
        """Take the lock so often and write, guarded by its fence, while it is held."""
        lock = redlock(self._urls, name)
        takes: list[dict[str, Any]] = []
        again = 0
        deadline = time.monotonic() + PATIENCE
        while len(takes) < int(times) and time.monotonic() < deadline:
            try:
                with lock as lease:
                    got = time.monotonic()
                    wrote = fencing.fenced_set(
                        self._data, self._key, f"by {os.getpid()}", lease.fence, ttl=600, keep=KEEP_FENCE
                    )
                    take = {"got": got, "gone": time.monotonic(), "fence": lease.fence, "wrote": wrote}
                    lease.check()
            except (holdfast.QuorumError, holdfast.LeaseLost):  # a machine too busy to answer, or to renew, in time
                again += 1
            else:
                takes.append(take)
        say(takes=takes, again=again)

    def hold(self, name: str) -> None:
        """Take the lock as soon as it is to be had, and keep it."""
        lock = redlock(self._urls, name)
        self._keep(lambda: insist(lock), lock)

    def ask(self, name: str) -> None:
        """Take the lock if it is to be had now, and keep it."""
        lock = redlock(self._urls, name)
        self._keep(lambda: lock.acquire(blocking=False), lock)

    def let_go(self) -> None:
        """Give back what is kept."""
        self._lease.release()
        say(gone=time.monotonic())

    def until(self) -> None:
        """Say until when the lease that is kept was good, and whether one is told."""
        end = time.monotonic()
        while left := self._lease.remaining():
            end = time.monotonic() + left
            time.sleep(min(left, 0.005))
        say(until=end, told=self._lease.lost.wait(SLACK))

    def left(self) -> None:
        """Say for how long the lease that is kept is still good."""
        say(left=self._lease.remaining(), fence=self._lease.fence)

    def write(self, text: str) -> None:
        """Write, whatever has become of the lease."""
        accepted = fencing.fenced_set(self._data, self._key, text, self._lease.fence, ttl=600, keep=KEEP_FENCE)
        say(accepted=accepted, fence=self._lease.fence)

    def single(self, url: str, name: str, replicas: str) -> None:
        """Take a lock on one server, and keep it."""
        lock = holdfast.Lock(url, name, ttl=2 * TTL, wait=SLACK, replicas=int(replicas))
        self._keep(lock.acquire, lock)


def member(urls: str, data: str, key: str) -> None:
    """Do as told, a method of `Member` a line."""
    self = Member(urls, data, key)
    say(ready=True)
    while words := hear().split():
        getattr(self, words[0])(*words[1:])


def wire(_: str, port: str) -> None:
    """Pass on bytes, in both directions, between whoever connects and a port of this machine; told anything, lose them."""
    broken = False

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if not broken:
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", int(port))
            await asyncio.gather(pump(reader, back), pump(there, writer))
        except OSError:  # who listened there was killed
            writer.close()

    async def serve() -> None:
        nonlocal broken
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        say(port=server.sockets[0].getsockname()[1])
        await asyncio.to_thread(hear)
        broken = True
        say(broken=True)
        await asyncio.to_thread(hear)

    asyncio.run(serve())


if __name__ == "__main__":
    act({"member": member, "wire": wire})
