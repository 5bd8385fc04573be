"""A real Cluster of our own: primaries, replicas, migrations in steps, failovers.

::

    with cluster() as three:                       # three primaries; cluster(replicas=1): a replica for each
        holdfast.Lock(three.url, "name")           # redis+cluster://127.0.0.1:...,127.0.0.1:...
        key = "hf:{name}"
        three.primary_of(key).pause()              # any of a `PrivateServer`'s: kill(), pause(), restart() ...
        with three.migrating(three.slot(key)) as migration:   # the slot is open: MIGRATING here, IMPORTING there
            migration.move_keys(1)                 # one key of it (default: all) is there from now on: the others ask here
        three.move_slot(three.slot(key))           # all of that at once; leaving the `with` finishes it, too
        three.kill_primary_of(key)                 # and its replica takes over, by itself
        three.wait_ok()                            # returns when every node that runs sees the whole cluster again
        three.failover(key)                        # the replica takes over from a primary that lives, in order

Servers are known by number and by `PrivateServer`; those that a test has killed come back with their ``restart()``, under the
same name and with what they knew of the cluster. All of them end with the ``with``.
"""

from __future__ import annotations

import binascii
import contextlib
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import quote

from holdfast._local.server.supervisor import SocketConnection
from holdfast.errors import ServerError
from support.servers import PrivateServer, private

SLOTS = 16384
PATIENCE = 60.0


class Migration:
    """One slot on its way from ``source`` to ``target``, as redis-cli moves it. `finish` is the end of it."""

    def __init__(self, nodes: Cluster, slot: int, source: PrivateServer, target: PrivateServer) -> None:
        self.nodes = nodes
        self.slot = slot
        self.source = source
        self.target = target
        self.finished = False
        nodes.call(target, "CLUSTER", "SETSLOT", str(slot), "IMPORTING", nodes.id_of(source))
        nodes.call(source, "CLUSTER", "SETSLOT", str(slot), "MIGRATING", nodes.id_of(target))

    def keys(self) -> list[str]:
        """Keys that are still at the source."""
        found: list[str] = self.nodes.call(self.source, "CLUSTER", "GETKEYSINSLOT", str(self.slot), "1000")
        return found

    def move_keys(self, *keys: str, count: int = 1000) -> list[str]:
        """Move these; else ``count`` of those that are there. Answers which."""
        moved = list(keys) or sorted(self.keys())[:count]
        for key in moved:
            self.nodes.call(self.source, "MIGRATE", "127.0.0.1", str(self.target.port), key, "0", "5000")
        return moved

    def finish(self) -> None:
        """Move what is left, and tell every node who owns the slot now."""
        if self.finished:
            return
        while self.move_keys(*self.keys()):
            pass
        owner = self.nodes.id_of(self.target)
        others = [node for node in self.nodes.primaries() if node not in (self.target, self.source)]
        for node in [self.target, self.source, *others]:
            self.nodes.call(node, "CLUSTER", "SETSLOT", str(self.slot), "NODE", owner)
        self.finished = True


class Cluster:
    """The nodes of a cluster that runs."""

    def __init__(self, nodes: list[PrivateServer], password: str | None) -> None:
        self.nodes = nodes
        self._password = password
        self._ids: dict[PrivateServer, str] = {}

    @property
    def url(self) -> str:
        """Names every node."""
        secret = f":{quote(self._password, safe='')}@" if self._password else ""
        return f"redis+cluster://{secret}" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    @property
    def address(self) -> tuple[str, int]:
        """Of one node, for a client to start with."""
        port = self.nodes[0].port
        assert port is not None
        return "127.0.0.1", port

    def call(self, node: PrivateServer, *command: str) -> Any:
        """Send one command to a node. Raises OSError for an error reply."""
        with closing(SocketConnection(node.socket, 5)) as connection:
            if self._password:
                connection("AUTH", self._password)
            return connection(*command)

    def id_of(self, node: PrivateServer) -> str:
        if node not in self._ids:
            self._ids[node] = self.call(node, "CLUSTER", "MYID")
        return self._ids[node]

    @staticmethod
    def slot(key: str) -> int:
        """The slot of a key."""
        tag = re.search(r"\{([^}]+)\}", key)
        return binascii.crc_hqx((tag[1] if tag else key).encode(), 0) % SLOTS

    def running(self) -> list[PrivateServer]:
        """Nodes that answer."""
        found = []
        for node in self.nodes:
            with contextlib.suppress(OSError):
                self.call(node, "PING")
                found.append(node)
        return found

    def primaries(self) -> list[PrivateServer]:
        """Nodes that answer and are no replicas."""
        return [node for node in self.running() if self.call(node, "ROLE")[0] == "master"]

    def primary_of(self, key: str | int) -> PrivateServer:
        """The owner of a key's slot, or of a slot, as one who owns it sees it."""
        slot = self.slot(key) if isinstance(key, str) else key
        for node in self.primaries():
            for first, last, owner, *_ in self.call(node, "CLUSTER", "SLOTS"):
                if first <= slot <= last and owner[2] == self.id_of(node):
                    return node
        raise LookupError(f"nobody owns slot {slot} just now")

    def replicas_of(self, node: PrivateServer) -> list[PrivateServer]:
        port = str(node.port)
        roles = [(other, self.call(other, "ROLE")) for other in self.running()]
        return [other for other, role in roles if role[0] == "slave" and str(role[2]) == port]

    def migrating(self, slot: int, to: PrivateServer | None = None) -> contextlib.AbstractContextManager[Migration]:
        """A migration that has begun; no key is moved yet. Leaving the ``with`` finishes it."""

        @contextlib.contextmanager
        def moving() -> Iterator[Migration]:
            source = self.primary_of(slot)
            target = to or next(node for node in self.primaries() if node is not source)
            migration = Migration(self, slot, source, target)
            try:
                yield migration
            finally:
                migration.finish()

        return moving()

    def move_slot(self, slot: int, to: PrivateServer | None = None) -> PrivateServer:
        """Move a slot with all its keys, to another primary. Answers that one."""
        with self.migrating(slot, to) as migration:
            pass
        return migration.target

    def kill_primary_of(self, key: str | int) -> PrivateServer:
        """Kill the owner of a key's slot with -9. Answers it, for its ``restart()``."""
        node = self.primary_of(key)
        self.id_of(node)
        node.kill()
        return node

    def failover(self, key: str | int) -> PrivateServer:
        """Have a replica take over from the owner of a key's slot, which lives on as its replica. Answers the new one."""
        replica = self.replicas_of(self.primary_of(key))[0]
        self.call(replica, "CLUSTER", "FAILOVER")
        _until(lambda: self.call(replica, "ROLE")[0] == "master", "the replica takes over")
        return replica

    def wait_ok(self, timeout: float = PATIENCE) -> None:
        """Returns when every node that answers sees all slots served, by the same nodes."""
        _until(self._ok, "the cluster is whole", timeout)

    def _ok(self) -> bool:
        running, views = self.running(), set()
        ports = {node.port for node in running}
        for node in running:
            owners = sorted((first, last, owner[1]) for first, last, owner, *_ in self.call(node, "CLUSTER", "SLOTS"))
            if "cluster_state:ok" not in self.call(node, "CLUSTER", "INFO") or any(port not in ports for _, _, port in owners):
                return False
            views.add(repr(owners))
        return len(views) == 1


def _until(done: Callable[[], bool], what: str, timeout: float = PATIENCE) -> None:
    """A cluster tells nobody when it has changed: one has to ask."""
    deadline = time.monotonic() + timeout
    while True:
        with contextlib.suppress(OSError):  # a node that is starting, or ending
            if done():
                return
        if time.monotonic() > deadline:
            raise AssertionError(f"it takes too long until {what}")
        time.sleep(0.01)


def _free_port() -> int:
    """One whose companion, for what the nodes tell each other (10,000 above), is free too. Both below the range from which
    the kernel takes ports for connections."""
    while True:
        port = 10_000 + secrets.randbelow(12_000)
        with socket.socket() as one, socket.socket() as other, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10_000))
            return port


def _node(*args: str, password: str | None, binary: str | None, timeout: float) -> PrivateServer:
    settings = [
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        str(int(timeout * 1000)),
        "--repl-diskless-sync-delay",
        "0",
    ]
    if password:
        settings += ["--masterauth", password]
    for _ in range(5):
        try:
            return private(*settings, *args, port=_free_port(), password=password or "", binary=binary)
        except ServerError as error:
            if "in use" not in str(error):  # somebody else was quicker
                raise
    raise AssertionError("no free port")


def _join(nodes: Cluster, primaries: int) -> None:
    first, *others = nodes.nodes
    share = -(-SLOTS // primaries)
    for number, node in enumerate(nodes.nodes):
        nodes.call(node, "CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
        if number < primaries:
            slots = range(number * share, min(SLOTS, (number + 1) * share))
            nodes.call(node, "CLUSTER", "ADDSLOTS", *map(str, slots))  # ADDSLOTSRANGE came with 7.0 only
    for node in others:
        nodes.call(first, "CLUSTER", "MEET", "127.0.0.1", str(node.port))
    known = f"cluster_known_nodes:{len(nodes.nodes)}\r"
    _until(lambda: all(known in nodes.call(node, "CLUSTER", "INFO") for node in nodes.nodes), "the nodes know each other")
    for number, node in enumerate(nodes.nodes[primaries:]):
        primary = nodes.nodes[number % primaries]
        _until(lambda: nodes.call(node, "CLUSTER", "REPLICATE", nodes.id_of(primary)) == "OK", "it is a replica")  # noqa: B023


def _complete(nodes: Cluster) -> bool:
    return nodes._ok() and all(
        role[0] == "master" or role[3] == "connected" for role in (nodes.call(node, "ROLE") for node in nodes.nodes)
    )


@contextlib.contextmanager
def cluster(
    primaries: int = 3,
    replicas: int = 0,
    *args: str,
    password: str | None = None,
    binary: str | None = None,
    node_timeout: float = 0.6,
) -> Iterator[Cluster]:
    """A cluster on 127.0.0.1, ready for use after some two seconds (no node serves anything earlier).

    ``replicas``      of each primary
    ``args``          further settings of every node
    ``binary``        another server program than the packaged one
    ``node_timeout``  seconds after which a node counts as failed; its replica takes over within about a second more
    """
    count = primaries * (1 + replicas)
    with contextlib.ExitStack() as stack:
        with ThreadPoolExecutor(4) as starters:
            starting = [
                starters.submit(_node, *args, password=password, binary=binary, timeout=node_timeout) for _ in range(count)
            ]
        try:
            nodes = Cluster([stack.enter_context(node.result()) for node in starting], password)
        except BaseException:
            for node in starting:
                if not node.exception():
                    node.result().stop()
            raise
        _join(nodes, primaries)
        _until(lambda: _complete(nodes), "the cluster is whole")
        yield nodes
