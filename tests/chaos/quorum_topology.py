"""Chaos on five servers that know nothing of each other.

None of them remembers anything over a restart, and none of that is excused: a server that has forgotten does not vote until the
longest lease is over, so there is one holder at a time whatever happens to whichever of them.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import Any, Self

import holdfast
from chaos.middle import Middle
from chaos.topologies import MAX_TTL, Choose, Fault, command, disturbances, killed, on_the_way, stopped
from support.servers import PrivateServer, private

SERVERS = 5


class Quorum:
    """Two of the five are reached through a network of which the faults know."""

    name = "Redlock of 5"
    kind = "Redlock"
    more: dict[str, Any] = {"max_ttl": MAX_TTL}  # noqa: RUF012

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._servers = [self._stack.enter_context(private(port=True, password="")) for _ in range(SERVERS)]
        self._middles = [self._stack.enter_context(Middle(server.socket)) for server in self._servers[:2]]
        holdfast.declare_new(self.where(0), max_ttl=MAX_TTL)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def where(self, process: int) -> list[str]:
        return [*(middle.url for middle in self._middles), *(server.url for server in self._servers[2:])]

    def servers(self, key: str) -> list[PrivateServer]:
        return self._servers

    def primaries(self) -> set[PrivateServer]:
        return set(self._servers)

    def settle(self) -> None:
        pass

    def _some(self, most: int) -> Choose:
        return lambda rng: rng.sample(self._servers, rng.randint(1, most))

    def restarts(self) -> list[Fault]:
        """Minorities that are away, that come back having forgotten everything, and that forget in between."""
        return [
            Fault("minority stopped", "silence", (0.1, 2.5), stopped(self._some(2))),
            Fault("server killed", "restart", (0.0, 1.0), killed(self._some(1))),
            Fault("two servers killed", "restart", (0.0, 1.0), killed(lambda rng: rng.sample(self._servers, 2))),
            Fault("FLUSHALL", "restart", (0.0, 0.0), command(self._some(2), "FLUSHALL")),
        ]

    def faults(self) -> list[Fault]:
        def majority(rng: random.Random) -> list[PrivateServer]:
            return rng.sample(self._servers, 3)

        return [
            *self.restarts(),
            Fault("majority killed", "restart", (0.0, 0.5), killed(majority)),
            Fault("majority stopped", "silence", (0.1, 1.0), stopped(majority)),
            *disturbances(self._some(SERVERS)),
            *on_the_way(lambda rng: rng.sample(self._middles, rng.randint(1, 2))),
        ]


class QuorumRestarts(Quorum):
    """The same, with only what might bring the fences into disorder."""

    name = "Redlock of 5, restarts"

    def faults(self) -> list[Fault]:
        return self.restarts()
