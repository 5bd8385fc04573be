"""One server in memory for the unit tests: the real scripts, on a keyspace, under a clock that only the test moves.

It knows nothing about locks that the scripts do not do. Unless a key is named, all is about the lock "x".
"""

from __future__ import annotations

from typing import TypeVar

from holdfast._core.lock.replies import ACQUIRE, BLOCK, RELEASE, Busy, Held, Reply
from holdfast._core.lock.spec import milliseconds
from holdfast._core.names import lock_keys
from holdfast._core.requests import RunScript
from holdfast._lua import Script
from holdfast.testing.keyspace import Keyspace

R = TypeVar("R")

KEYS = LOCK, STATE, QUEUE = lock_keys("x", "hf:", None)


class Server:
    def __init__(self) -> None:
        self.now = 1000.0
        """Seconds. Not the keyspace's microseconds: rounded, a moment to wait for might never come."""
        self._keyspace = Keyspace()
        self.published = self._keyspace.published
        """(channel, message) of the hand-overs that were not read yet."""

    @property
    def keyspace(self) -> Keyspace:
        self._keyspace.now = round(self.now * 1e6)
        return self._keyspace

    def perform(self, request: RunScript[R]) -> R:
        """The typed reply of a script."""
        return request.script.parse(self.keyspace.run(request.script, request.keys, request.args))

    def listen(self, process: str) -> None:
        """The inbox of a process is subscribed."""
        self.keyspace.subscribe(f"hf:inbox:{process}".encode(), 1)

    # Actions of others

    def run(self, script: Script[R], *args: str | int) -> R:
        return self.perform(RunScript(script, KEYS, args, 1.0))

    def acquire(self, token: str, seconds: float = 30.0, *, join: bool = False) -> Reply:
        return self.run(ACQUIRE, token, milliseconds(seconds), int(join))

    def take(self, token: str, seconds: float) -> None:
        """The holder loses the lock to this token."""
        self.lose()
        assert isinstance(self.acquire(token, seconds), Held)

    def join(self, token: str) -> None:
        """Somebody who listens stands in line."""
        self.listen(token.split(".", 1)[0])
        assert isinstance(self.acquire(token, join=True), Busy)

    def release(self, token: str, mode: str = "release") -> None:
        self.run(RELEASE, token, mode)

    def lose(self) -> None:
        """The lock's key is gone."""
        self.keyspace.execute("DEL", LOCK)

    # The state

    def current(self, lock: bytes = LOCK) -> str:
        """The holder; empty if there is none."""
        return self.keyspace.peek(lock)[0].decode()

    @property
    def expires(self) -> float:
        """When the holder's lease ends, in seconds."""
        ms = self.keyspace.peek(LOCK)[1]
        assert ms is not None
        return ms / 1000

    @property
    def fence(self) -> int:
        """The first number of the block that was drawn last."""
        return int(self.keyspace.execute("HGET", STATE, "fence")) - BLOCK + 1

    @property
    def queue(self) -> list[str]:
        """Return the waiters, in order."""
        return [token.decode() for token in self.keyspace.execute("ZRANGE", QUEUE, 0, -1)]

    def present(self) -> set[str]:
        """All who hold a lock or stand in line, whatever its name."""
        found: set[str] = set()
        for _, kind, value, _ in self.keyspace.dump():
            if kind == b"string":
                found.add(value.decode())
            elif kind == b"zset":
                found.update(token.decode() for token, _ in value)
        return found
