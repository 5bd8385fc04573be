"""Chaos behind Sentinels.

Replication is asynchronous: a failover may lose what was granted a moment ago, so it is an amnesia, which the judge excuses
for "one holder", and not for the fences.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from chaos.topologies import Fault, command, disturbances, killed, stopped
from support.sentinels import Sentinels
from support.servers import PrivateServer


class OverSentinel:
    """A primary, two replicas, three Sentinels."""

    name = "Sentinel"
    kind = "Lock"
    more: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.sentinels = self._stack.enter_context(Sentinels(replicas=2))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def where(self, process: int) -> str:
        return self.sentinels.url

    def servers(self, key: str) -> list[PrivateServer]:
        return [self.sentinels.primary]

    def primaries(self) -> set[PrivateServer]:
        return {server for server in self.sentinels.servers if self.sentinels.role(server) == "master"}

    def settle(self) -> None:
        try:
            self.sentinels.rejoined()
        except AssertionError:
            # On a machine that has too much to do, Sentinels have been seen to leave an old primary as it is. An operator
            # would tell it whom to follow; what is tested here is not Sentinel.
            primary = self.sentinels.await_primary()
            for server in self.sentinels.servers:
                if server is not primary:
                    self.sentinels.command(server, "REPLICAOF", "127.0.0.1", str(primary.port))
            self.sentinels.rejoined()

    def faults(self) -> list[Fault]:
        sentinels = self.sentinels

        def primary(_: random.Random) -> list[PrivateServer]:
            return [sentinels.primary]

        def replica(rng: random.Random) -> list[PrivateServer]:
            return [rng.choice(sentinels.replicas)]

        return [
            Fault("primary killed", "amnesia", (0.0, 0.5), self._primary_killed, replaces=True),
            Fault("primary stopped, and replaced", "amnesia", (0.0, 0.5), self._primary_stopped, replaces=True),
            Fault("failover", "amnesia", (0.0, 0.0), self._failover, replaces=True),
            Fault("primary stopped", "silence", (0.05, 0.15), stopped(primary)),
            Fault("replica killed", "restart", (0.1, 1.0), killed(replica)),
            Fault("Sentinel killed", "restart", (0.1, 1.0), self._sentinel_killed),
            Fault("FLUSHALL", "amnesia", (0.0, 0.0), command(primary, "FLUSHALL")),
            *disturbances(primary, watched=True),
        ]

    @contextmanager
    def _primary_killed(self, _: random.Random) -> Iterator[None]:
        old = self.sentinels.kill_primary()
        self.sentinels.await_primary(instead_of=old)
        yield
        old.restart()
        self.settle()

    @contextmanager
    def _primary_stopped(self, _: random.Random) -> Iterator[None]:
        """For as long as it takes to elect another one: when it goes on, there are two for a moment."""
        old = self.sentinels.primary
        old.pause()
        try:
            self.sentinels.await_primary(instead_of=old)
            yield
        finally:
            old.resume()
        self.settle()

    @contextmanager
    def _failover(self, _: random.Random) -> Iterator[None]:
        self.sentinels.failover()
        self.settle()
        yield

    @contextmanager
    def _sentinel_killed(self, rng: random.Random) -> Iterator[None]:
        watcher = rng.choice(self.sentinels.watchers)
        watcher.kill()
        yield
        primary = self.sentinels.await_primary()  # by the others: this one has forgotten whom it watches
        watcher.restart()
        self.sentinels.watch(watcher, primary)
        self.settle()
