"""Who holds a lease for long is to be reachable: somebody may take it away."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from holdfast._core.node import Node

if TYPE_CHECKING:
    from holdfast._drive.keeper import Keeper

LONG = 1.0
"""Seconds after which who holds a lease listens for what becomes of it. Up to twice that."""


class Lasting:
    """Sees which leases last, as long as there are any. The keeper's mutex is held."""

    def __init__(self, keeper: Keeper, nodes: Collection[Node]) -> None:
        self._keeper = keeper
        self._nodes = nodes
        self._looks = False
        self._seen: dict[Node, set[str]] = {}
        """Tokens that held something when that was seen last."""

    def look_later(self) -> None:
        """There is a lease."""
        if not self._looks:
            self._keeper.later(LONG, self._look)
            self._looks = True

    def _look(self) -> None:
        with self._keeper.mutex:
            held = {node: {tenure.token for tenure in node.renewing.tenures()} for node in self._nodes}
            for node, tokens in held.items():
                if tokens & self._seen.get(node, set()):
                    node.be_reachable()
            self._seen, self._looks = held, False
            if any(held.values()):
                self.look_later()
