"""Chaos in a Cluster.

Replication is asynchronous: a failover may lose what was granted a moment ago, so it is an amnesia, which the judge excuses
for "one holder", and not for the fences. Moving slots, and a failover that a primary agrees to, lose nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from chaos.topologies import NAMES, Choose, Fault, Strike, command, disturbances, killed, stopped
from support import clusters
from support.servers import PrivateServer


class OverCluster:
    """Three primaries with a replica each."""

    name = "Cluster"
    kind = "Lock"
    more: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self._keys = [f"hf:{{{name}}}" for name in NAMES]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.cluster = self._stack.enter_context(clusters.cluster(replicas=1))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def where(self, process: int) -> str:
        return self.cluster.url

    def servers(self, key: str) -> list[PrivateServer]:
        return [self.cluster.primary_of(key)]

    def primaries(self) -> set[PrivateServer]:
        return set(self.cluster.primaries())

    def settle(self) -> None:
        clusters._until(lambda: clusters._complete(self.cluster), "the cluster is whole")

    def faults(self) -> list[Fault]:
        def primary(rng: random.Random) -> list[PrivateServer]:
            return [self.cluster.primary_of(rng.choice(self._keys))]

        def replica(rng: random.Random) -> list[PrivateServer]:
            return self.cluster.replicas_of(primary(rng)[0])

        return [
            Fault("primary killed", "amnesia", (0.0, 0.5), self._primary_killed, replaces=True),
            Fault("primary stopped, and replaced", "amnesia", (0.0, 0.5), self._primary_stopped, replaces=True),
            Fault("failover agreed to", "refused", (0.0, 0.0), self._failover, replaces=True),
            Fault("slot moved", "refused", (0.1, 1.0), self._slot_moved),
            Fault("primary stopped", "silence", (0.05, 0.2), stopped(primary)),
            Fault("replica killed", "restart", (0.1, 1.0), self._replica_killed(replica)),
            Fault("FLUSHALL", "amnesia", (0.0, 0.0), command(primary, "FLUSHALL")),
            *disturbances(primary, watched=True),
        ]

    @contextmanager
    def _primary_killed(self, rng: random.Random) -> Iterator[None]:
        old = self.cluster.kill_primary_of(rng.choice(self._keys))
        self.cluster.wait_ok()
        yield
        old.restart()
        self.settle()

    @contextmanager
    def _primary_stopped(self, rng: random.Random) -> Iterator[None]:
        key = rng.choice(self._keys)
        old = self.cluster.primary_of(key)
        replica = self.cluster.replicas_of(old)[0]
        old.pause()
        try:
            clusters._until(lambda: self.cluster.call(replica, "ROLE")[0] == "master", "the replica takes over")
            yield
        finally:
            old.resume()
        self.settle()

    @contextmanager
    def _failover(self, rng: random.Random) -> Iterator[None]:
        self.cluster.failover(rng.choice(self._keys))
        self.settle()
        yield

    @contextmanager
    def _slot_moved(self, rng: random.Random) -> Iterator[None]:
        """In two steps: what the slot holds is partly here and partly there meanwhile."""
        with self.cluster.migrating(self.cluster.slot(rng.choice(self._keys))) as migration:
            migration.move_keys(count=1)
            yield
        self.settle()

    def _replica_killed(self, choose: Choose) -> Strike:
        strike = killed(choose)

        @contextmanager
        def and_whole(rng: random.Random) -> Iterator[None]:
            with strike(rng):
                yield
            self.settle()

        return and_whole
