"""A simulated Redis Cluster behind scripted sockets: servers that redirect requests while slots move between them.

All servers share one keyspace, and a server only decides whether it serves a request or redirects it. While a slot moves from
one server to another, its keys move one by one. All further servers learn of the move later. So they redirect requests to the
former owner for a while.

Source: Redis Cluster specification, "MOVED Redirection", "ASK redirection" and "Multiple keys operations".
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast._net.slots import SLOTS, slot_of
from holdfast.testing.inmemory.front import OK, Session
from holdfast.testing.keyspace import Keyspace, ReplyError
from holdfast_lab.wired.server import Peer, Server

if TYPE_CHECKING:
    from holdfast_lab.wired.world import World

HOST = "scripted"

FIRST_PORT = 1
"""Port of the first server. The ports of the others follow."""

_KEYED = {b"SET", b"GET", b"EXISTS", b"DEL", b"ECHO"}
"""Commands whose first argument is a key.

Unlike a real server, the simulated server treats the text of ECHO as a key, and redirects it. So the rules can check that the
reply to a redirected request belongs to that request.
"""


@dataclass(slots=True)
class Move:
    """A slot that is moving between two servers, given by their indices."""

    source: int
    target: int
    arrived: set[bytes] = field(default_factory=set)
    """Keys that are on the target already."""


class Nodes:
    """The servers of a Cluster, and which of them has which slot."""

    def __init__(
        self,
        world: World,
        rng: random.Random,
        count: int,
        rate: float,
        *,
        counts: Counter[str],
        complain: Callable[[str], None],
    ) -> None:
        self.keyspace = Keyspace()
        self.peers: dict[Session, Peer] = {}
        self.listeners: dict[bytes, list[Session]] = {}
        self.moves: dict[int, Move] = {}
        """The moves that are under way, by slot."""
        self.counts = counts
        self._world, self._rng = world, rng
        self._owners: dict[int, int] = {}
        """Index of the server that owns each slot that can move. The other slots are spread evenly over the servers."""
        self._views: list[dict[int, int]] = [{} for _ in range(count)]
        """The entries of `_owners` as each server knows them. They may be out of date."""
        self._moving: list[int] = []
        """The slots that move from time to time."""
        self.servers = [ClusterServer(world, rate, complain, self, number) for number in range(count)]

    def owner(self, slot: int, view: int) -> int:
        """Return the index of the server that owns a slot, as far as the server ``view`` knows."""
        return self._views[view].get(slot, slot * len(self.servers) // SLOTS)

    def place(self, slots: list[int], server: int) -> None:
        """Give some slots to a server, and let them move from time to time."""
        for view in (self._owners, *self._views):
            view.update(dict.fromkeys(slots, server))
        self._moving = slots
        for slot in slots:
            self._world.after(self._rng.random(), partial(self._begin, slot))

    def settle(self) -> None:
        """End all moves, and begin no other."""
        for slot in list(self.moves):
            self._finish(slot)
        self._moving = []

    def ranges(self, view: int) -> list[Any]:
        """Return the reply of the server ``view`` to CLUSTER SLOTS."""
        count, known = len(self.servers), self._views[view]
        starts = {0, *(-(-number * SLOTS // count) for number in range(count)), *known, *(slot + 1 for slot in known)}
        bounds = [*sorted(start for start in starts if start < SLOTS), SLOTS]
        return [
            [first, beyond - 1, [HOST.encode(), FIRST_PORT + self.owner(first, view), b"%040d" % self.owner(first, view)]]
            for first, beyond in itertools.pairwise(bounds)
        ]

    def exists(self, key: bytes) -> bool:
        return bool(self.servers[0].execute([b"EXISTS", key]))

    # A move

    def _begin(self, slot: int) -> None:
        if slot in self._moving:
            source = self._owners[slot]
            self.moves[slot] = Move(source, self._rng.choice([n for n in range(len(self.servers)) if n != source]))
            self.counts["wired slot moves"] += 1
            self._world.after(self._pause(), partial(self._step, slot))

    def _step(self, slot: int) -> None:
        """Move one key of a slot. When all keys have arrived, the target owns the slot."""
        move = self.moves.get(slot)
        if move is None:
            return
        left = sorted(key for key, *_ in self.keyspace.dump() if slot_of(key) == slot and key not in move.arrived)
        if left:
            move.arrived.add(self._rng.choice(left))
            self._world.after(self._pause(), partial(self._step, slot))
        else:
            self._finish(slot)

    def _finish(self, slot: int) -> None:
        move = self.moves.pop(slot)
        self._owners[slot] = move.target
        for number, view in enumerate(self._views):
            if number in {move.source, move.target}:
                view[slot] = move.target
            else:
                self._world.after(self._pause(), partial(self._tell, view, slot))
        self._world.after(self._rng.random(), partial(self._begin, slot))

    def _tell(self, view: dict[int, int], slot: int) -> None:
        view[slot] = self._owners[slot]

    def _pause(self) -> float:
        return self._rng.choice((0.01, 0.3, 1.0)) * self._rng.random()


class ClusterServer(Server):
    """One server of a Cluster."""

    def __init__(self, world: World, rate: float, complain: Callable[[str], None], nodes: Nodes, number: int) -> None:
        super().__init__(world, rate, complain)
        self.nodes, self.number = nodes, number
        self.keyspace, self._peers, self._listeners = nodes.keyspace, nodes.peers, nodes.listeners
        self.scripts: set[str] = set()
        """Hashes of the scripts that this server has cached."""

    def accept(self, send: Callable[[bytes], None], hang_up: Callable[[], None]) -> Peer:
        peer = NodePeer(self, send, hang_up)
        self._peers[peer.session] = peer
        return peer

    def redirection(self, keys: list[bytes], *, asking: bool) -> str:
        """Return the error with which this server redirects a request for these keys; "" if it serves the request."""
        slot = slot_of(keys[0])
        if any(slot_of(key) != slot for key in keys):
            self.complain(f"keys of several slots in one request: {keys}")
        move, owner = self.nodes.moves.get(slot), self.nodes.owner(slot, self.number)
        if move is not None and self.number == move.source:
            here = [key for key in keys if key not in move.arrived and self.nodes.exists(key)]
            if len(here) == len(keys):
                return ""
            return f"TRYAGAIN {slot}" if here else f"ASK {slot} {HOST}:{FIRST_PORT + move.target}"
        if move is not None and self.number == move.target and asking:
            arrived = [key for key in keys if key in move.arrived and self.nodes.exists(key)]
            if len(keys) > 1 and len(arrived) < len(keys):
                return "TRYAGAIN Multiple keys request during rehashing of slot"
            move.arrived.update(keys)
            return ""
        return "" if owner == self.number else f"MOVED {slot} {HOST}:{FIRST_PORT + owner}"


class NodePeer(Peer):
    def __init__(self, node: ClusterServer, send: Callable[[bytes], None], hang_up: Callable[[], None]) -> None:
        super().__init__(node, send, hang_up)
        self._node = node
        self._asking = False
        """True if the last command was ASKING."""

    def replies(self, request: list[bytes]) -> list[Any]:
        asking, self._asking = self._asking, False
        match [request[0].upper(), *request[1:]]:
            case [b"ASKING"]:
                self._asking = True
                return [OK]
            case [b"CLUSTER", b"SLOTS"]:
                return [self._node.nodes.ranges(self._node.number)]
            case [b"PUBSUB", b"SHARDNUMSUB"]:
                return [ReplyError("ERR unknown subcommand 'SHARDNUMSUB'. Try PUBSUB HELP.")]
            case [b"EVAL" | b"EVALSHA", _, count, *rest]:
                keys = rest[: int(count)]
            case [name, *keys] if name in _KEYED:
                keys = keys[:1]
            case _:
                keys = []
        error = self._node.redirection(keys, asking=asking) if keys else ""
        if error:
            self._node.nodes.counts[f"wired {error.partition(' ')[0]}"] += 1
            return [ReplyError(error)]
        if request[0] == b"EVAL":
            self._node.scripts.add(hashlib.sha1(request[1], usedforsecurity=False).hexdigest())
        if request[0] == b"EVALSHA" and request[1].decode() not in self._node.scripts:
            return [ReplyError("NOSCRIPT No matching script. Please use EVAL.")]
        return super().replies(request)
