"""The processes of ``holdfast demo quorum``: members, which use a Redlock, and a wire, which is a TCP proxy.

Like the processes of `actors`, they read orders as lines from stdin, and print their results as JSON.
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
"""Lease time of the Redlocks in seconds."""

MAX_TTL = 2.0
"""Longest lease in seconds. A server that restarted without its data casts no vote for this long."""

WITHIN = 0.2
"""Seconds to wait for the answer of a server."""

SLACK = 1.0
"""Seconds of delay that the checks allow on a busy machine.

This is less than `TTL`. Otherwise, a vote that was left behind by mistake could expire before the checks see it.
"""

PATIENCE = 10.0
"""Seconds to wait for a lock."""


def named(urls: Sequence[str]) -> dict[str, str]:
    """Return the URLs of the servers by the names that are printed, such as ``server 1``."""
    return {f"server {number}": url for number, url in enumerate(urls, 1)}


def redlock(urls: Sequence[str], name: str) -> holdfast.Redlock:
    return holdfast.Redlock(named(urls), name, ttl=TTL, max_ttl=MAX_TTL, answer_within=WITHIN, wait=PATIENCE)


def acquire_in_time(lock: holdfast.Redlock) -> bool:
    """Acquire a lock. Return False if another client still holds it after `PATIENCE` seconds.

    While too few servers can vote, try again. Raises QuorumError if that lasts longer than `PATIENCE` seconds.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return lock.acquire()
        except holdfast.QuorumError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


class Member:
    """A process that acquires Redlocks on command.

    ``urls`` has the URLs of the servers that vote, separated by spaces. ``data`` is the URL of the server with the protected
    ``key``.
    """

    def __init__(self, urls: str, data: str, key: str) -> None:
        self._urls = urls.split()
        self._data, self._key = data, key
        self._lease: Any = None

    def _keep(self, acquire: Callable[[], bool], lock: holdfast.Lock | holdfast.Redlock) -> None:
        """Call ``acquire``, keep the lease if it succeeds, and print the outcome."""
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
        """Acquire the lock ``times`` times, and write to the protected key each time. Then print the acquisitions."""
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
            except (holdfast.QuorumError, holdfast.LeaseLost):  # on a busy machine, an answer or a renewal may be late
                again += 1
            else:
                takes.append(take)
        say(takes=takes, again=again)

    def hold(self, name: str) -> None:
        """Wait for the lock, and keep it."""
        lock = redlock(self._urls, name)
        self._keep(lambda: acquire_in_time(lock), lock)

    def ask(self, name: str) -> None:
        """Try once to acquire the lock. Keep it if this succeeds."""
        lock = redlock(self._urls, name)
        self._keep(lambda: lock.acquire(blocking=False), lock)

    def let_go(self) -> None:
        self._lease.release()
        say(gone=time.monotonic())

    def until(self) -> None:
        """Wait for the end of the kept lease. Print when it ended, and whether its ``lost`` event was set."""
        end = time.monotonic()
        while left := self._lease.remaining():
            end = time.monotonic() + left
            time.sleep(min(left, 0.005))
        say(until=end, told=self._lease.lost.wait(SLACK))

    def left(self) -> None:
        say(left=self._lease.remaining(), fence=self._lease.fence)

    def write(self, text: str) -> None:
        """Write to the protected key with the fence of the kept lease, even if that lease is lost."""
        accepted = fencing.fenced_set(self._data, self._key, text, self._lease.fence, ttl=600, keep=KEEP_FENCE)
        say(accepted=accepted, fence=self._lease.fence)

    def single(self, url: str, name: str, replicas: str) -> None:
        """Acquire and keep a lock on a single server. ``replicas`` replicas must acknowledge it."""
        lock = holdfast.Lock(url, name, ttl=2 * TTL, wait=SLACK, replicas=int(replicas))
        self._keep(lock.acquire, lock)


def member(urls: str, data: str, key: str) -> None:
    """Run a member. Each line on stdin names a method of `Member`, with its arguments."""
    self = Member(urls, data, key)
    say(ready=True)
    while words := hear().split():
        getattr(self, words[0])(*words[1:])


def wire(_: str, port: str) -> None:
    """Run a TCP proxy to a port of this machine. After a line on stdin, it discards all bytes in both directions."""
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
        except OSError:  # the server behind the port was killed
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
