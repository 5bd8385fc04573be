"""Two tasks of the keeper: connect to renew leases that are held for a second, and release leases of closed event loops."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from holdfast._core.lock.node import Node

if TYPE_CHECKING:
    from holdfast._runtime.keeper.ports import KeeperThread

LONG_S = 1.0
"""Seconds after the grant of a lease until the keeper opens its connections to the server.

If the keeper opened them only for the first renewal, and the server refused them then, the lease would be lost. The server
refuses them if the password has changed, or if it accepts no more clients.
"""

PAUSE_S = 0.05
"""Minimum seconds between two checks. It matters if leases are granted and released quickly."""


class LongLeases:
    """A check that is repeated while this process holds leases.

    It finds leases held for LONG_S seconds, and leases whose event loop was closed.
    """

    def __init__(self, keeper: KeeperThread, nodes: Collection[Node]) -> None:
        self._keeper = keeper
        self._nodes = nodes
        self._connected: set[Node] = set()
        """Nodes with a long lease, for which the keeper was asked to open connections."""

    def look_later(self) -> None:
        """Schedule the next check after a lease was granted, unless one is scheduled. The caller holds the keeper's mutex."""
        if not self._keeper.looks:
            self._keeper.later(LONG_S, self._look)
            self._keeper.looks = True

    def _look(self) -> None:
        holders: list[Any] = []
        with self._keeper.mutex:
            now, connected, young = self._keeper.clock(), set(), []
            for node in self._nodes:
                held = node.renewing.held_leases()
                long = [held_lease for held_lease in held if now >= held_lease.since + LONG_S]
                young += [held_lease.since for held_lease in held if now < held_lease.since + LONG_S]
                if long:
                    connected.add(node)
                    holders += [held_lease.holder() for held_lease in long]
                    for prefix in {held_lease.spec.prefix for held_lease in long}:
                        node.be_reachable(prefix)
                    if node not in self._connected:
                        node.connect(long[0].spec.keys[0])
            self._connected, self._keeper.looks = connected, bool(connected or young)
            if self._keeper.looks:
                self._keeper.later(max(PAUSE_S, min(young, default=now) + LONG_S - now), self._look)
        for holder in holders:
            if holder is not None and holder.forsaken():  # a lease of an event loop that is closed
                self._keeper.safely(holder.end_forsaken)
