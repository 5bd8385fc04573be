"""The holders of permits on a simulated server. Each change is recorded."""

from __future__ import annotations

from typing import Protocol

from holdfast._core.permit import ALL
from holdfast.testing.keyspace import Keyspace
from holdfast_lab.sim import network


class Server(Protocol):
    """The part of `server.Server` that `PermitHolders` uses."""

    name: str
    keyspace: Keyspace

    @property
    def world(self) -> network.World:
        """The world of the server."""

    def whose(self, value: bytes) -> str:
        """Return the name that the history gives to the acquisition with this token."""

    def true(self, ms: int) -> float:
        """Return the virtual time at which the server's clock shows ``ms`` milliseconds."""

    def deaf_waiters(self, state: bytes) -> str:
        """Return "deaf" and the processes in a lock's queue that are not subscribed to notifications; "" if all are.

        ``state`` is the key of the lock's state.
        """


class PermitHolders:
    """The holders of one semaphore or read-write lock on one server."""

    def __init__(self, server: Server, key: bytes, state: bytes) -> None:
        self.server, self.key, self.state = server, key, state
        self._holders: dict[bytes, int] = {}
        """Server time in milliseconds at which each holder's permits expire, by token."""
        self._limit = 0
        self._lowered: set[bytes] = set()
        """Tokens of the holders that have fewer permits now than they acquired."""

    def record_changes(self) -> None:
        """Record what has changed since the last call: permits that were granted, extended, lowered or freed, and the limit."""
        server, lock = self.server, self.key.decode()
        keyspace, world = server.keyspace, server.world
        now_ms = keyspace.now // 1000
        line = keyspace.execute("ZRANGE", self.key, 0, -1, "WITHSCORES") or []
        assert isinstance(line, list), line
        holders = {token: int(until) for token, until in zip(line[::2], line[1::2], strict=True) if int(until) > now_ms}
        limit = int(keyspace.execute("HGET", self.state, "limit") or 0)
        if limit not in {0, self._limit}:
            self._limit = limit
            world.note("limit", server.name, lock, last=limit)
        for token in sorted(holders.keys() - self._lowered):
            if self._has(token) < int(token.rpartition(b"*")[2]):
                self._lowered.add(token)
                world.note("lowered", server.name, lock, server.whose(token))
        if holders == self._holders:
            return
        before, self._holders = self._holders, holders
        for token, until in before.items():
            if token not in holders or until <= now_ms:
                world.note("freed", server.name, lock, server.whose(token))
        for token in sorted(holders.keys(), key=lambda token: (self._fence(token), token)):
            if before.get(token) != holders[token]:
                fence = self._fence(token)
                kind = "extended" if before.get(token, 0) > now_ms else "granted"
                ends = server.true(holders[token])
                note = server.deaf_waiters(self.state) if kind == "granted" else ""
                world.note(kind, server.name, lock, server.whose(token), fence=fence, last=fence, until=ends, note=note)

    def _has(self, token: bytes) -> int:
        noted = self.server.keyspace.execute("HGET", self.state, b"h:" + token)
        return int(noted.split()[1]) if noted else ALL

    def _fence(self, token: bytes) -> int:
        noted = self.server.keyspace.execute("HGET", self.state, b"h:" + token)
        return int(noted.split()[0]) if noted else 0
