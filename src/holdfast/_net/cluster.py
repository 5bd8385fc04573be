"""A Redis Cluster: the owner of each slot, and the redirection of requests to the owner.

A request is sent to the server that owns the slot of its key. A process keeps the state of its locks (`_core.lock.node`)
separately for each `Shard`. A shard is a group of locks whose slots had the same owner when these locks were first used. If one
slot moves to another owner, new attempts for its locks use another shard. A lease stays in the shard in which it was acquired.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator
from copy import copy
from typing import Any, NamedTuple

from holdfast._core.lock.slot_migration import single_key_form
from holdfast._core.requests import Answer, Call, Command, NotSent, Refused, RunScript, Unknown, WireError
from holdfast._net import protocol
from holdfast._net.endpoint import Endpoint, interned
from holdfast._net.slots import SLOTS, id_within, slot_of
from holdfast._net.sync_connection import Connection
from holdfast._net.system import SYSTEM, System

Address = tuple[str, int]

REFRESH_EVERY_S = 0.1
"""Minimum seconds between two requests for the owners of the slots (CLUSTER SLOTS)."""

ASK_WITHIN_S = 0.5
"""Seconds to wait for one server's answer to CLUSTER SLOTS."""

LEAST_TIMEOUT_S = 0.05
"""Minimum timeout of each step of a redirected request, in seconds, even if earlier steps have used up the request's
timeout."""

_HALF_MOVED = "access a non local key"
"""Part of the error for a script that writes a key which it has deleted before, while the key's slot is being moved."""

HOPS = 8
"""Maximum number of steps of one request. Each step sends the request to one server."""

_ASK_ANEW = {"CLUSTERDOWN", "READONLY", "MASTERDOWN", "LOADING"}
"""Error codes of servers that no longer own a slot, or cannot serve it at the moment."""


class ClusterEndpoint(Endpoint):
    """The endpoint of a whole Cluster, for a lock whose `Shard` has not been determined yet."""

    __slots__ = ("cluster",)

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(**cluster.facts)
        self.cluster: Cluster = cluster
        self.finder = self

    @property
    def address(self) -> str:
        return self.cluster.address

    def find(self, timeout: float) -> Endpoint:
        return self.cluster.some(timeout)


class Shard(ClusterEndpoint):
    """The endpoint of a group of locks whose slots had the same owner when these locks were first used.

    The server that now owns slot ``anchor`` publishes the notifications for the group.
    """

    __slots__ = ("anchor", "sharded")

    def __init__(self, cluster: Cluster, anchor: int, *, sharded: bool) -> None:
        super().__init__(cluster)
        self.anchor = anchor
        self.sharded = sharded
        """True if the servers send notifications by sharded pub/sub (SPUBLISH)."""

    @property
    def address(self) -> str:
        owner = self.cluster.owner(self.anchor)
        return owner.address if owner is not None else self.cluster.address

    def find(self, timeout: float) -> Endpoint:
        """Return the server that now owns slot ``anchor``. Raises NotSent if there is none, or if no server answers in time."""
        self.cluster.refresh(timeout)
        owner = self.cluster.owner(self.anchor)
        if owner is None:
            raise NotSent(f"{self.cluster.address}: no server owns slot {self.anchor}", self.cluster.address)
        return owner

    def near(self, key: bytes) -> bool:
        """Return True if the server that publishes this shard's notifications has the key.

        Also return True if this process does not know which server has the key.
        """
        cluster = self.cluster
        return cluster.stale or cluster.owner(slot_of(key)) is cluster.owner(self.anchor)

    def identity(self, process_id: str) -> str:
        """Return the id under which a process receives the notifications of this shard."""
        return id_within(process_id, self.anchor) if self.sharded and "{" not in process_id else process_id


class Hop(NamedTuple):
    """One step of a redirected request. If ``asking`` is set, the command ASKING is sent before ``call``."""

    endpoint: Endpoint
    call: Call
    asking: bool

    def within(self, seconds: float) -> Hop:
        """Return this step with the timeout ``seconds``, which is left for the whole request.

        If the present timeout of the step is hardly longer, return the step unchanged.
        """
        if seconds > self.call.timeout - LEAST_TIMEOUT_S:
            return self  # nearly the whole timeout is left, usually at the first step
        call = copy(self.call)
        call.timeout = seconds
        return self._replace(call=call)


ASKING = Command(("ASKING",), ASK_WITHIN_S)

Redirects = Generator[Hop | None, Answer[Any] | WireError | bool, Answer[Any]]
"""Type of a generator that directs one request through a Cluster. It returns the answer to the request, or raises WireError.

The generator yields a Hop (one request to one server), and receives the server's answer or the WireError. To have the owners of
the slots looked up, it yields None, and receives True if they are known afterwards.
"""


class Cluster:
    """The owners of the slots of one Cluster, as far as this process knows.

    Any thread may call the methods. Only `refresh` and `some` send requests and block.
    """

    def __init__(
        self,
        seeds: tuple[Address, ...],
        facts: dict[str, Any],
        remap: Callable[[Address], Address] | None,
        system: System = SYSTEM,
    ) -> None:
        self.address = "cluster at " + ", ".join(f"{host}:{port}" for host, port in seeds)
        self.facts = facts
        """Keyword arguments of `Endpoint` for each server: the login, TLS and the timeout."""
        self.whole = ClusterEndpoint(self)
        self.stale = True
        """True if the known owners may be outdated."""
        self._remap = remap
        self._system = system
        self._owners: list[Endpoint | None] = [None] * SLOTS
        self._seeds = seeds
        self._nodes = deque(seeds)
        self._sharded: bool | None = None
        self._last = self._endpoint(seeds[0])
        self._shards: list[Shard] = []
        self._shard_of: dict[int, Shard] = {}
        self._asked_at = float("-inf")
        self._failure: WireError | None = None
        self.reset()
        _clusters.add(self)

    def reset(self) -> None:
        """Replace the mutexes and flags in a forked child, because another thread of the parent may have held or set them."""
        self._asking = False
        self._mutex = threading.RLock()  # re-entrant, because a signal handler may use locks, too
        self._turn = self._system.rlock()

    # Owners of slots

    @property
    def known(self) -> bool:
        return self._sharded is not None

    @property
    def sharded(self) -> bool:
        return bool(self._sharded)

    def owner(self, slot: int) -> Endpoint | None:
        return self._owners[slot]

    def primaries(self) -> list[Endpoint]:
        return list(dict.fromkeys(owner for owner in self._owners if owner is not None))

    def shard(self, slot: int) -> Shard:
        """Return the shard of a slot. It stays the same while one server owns both the slot and the shard's slot ``anchor``."""
        owners, shard = self._owners, self._shard_of.get(slot)
        if shard is not None and (self.stale or owners[shard.anchor] is owners[slot]):
            return shard
        with self._mutex:
            near = [shard for shard in self._shards if owners[shard.anchor] is owners[slot]]
            if not near:
                near = [Shard(self, slot, sharded=self.sharded)]
                self._shards += near
            self._shard_of[slot] = near[0]
            return near[0]

    def some(self, timeout: float) -> Endpoint:
        self.refresh(timeout)
        return self._last

    def refresh(self, timeout: float) -> None:
        """Ask one server after the other for the owners of the slots, until one answers.

        Repeat the outcome of the last call if it ended less than REFRESH_EVERY_S seconds ago. Raises NotSent if no server
        answers within ``timeout`` seconds, and Refused if the servers refuse the command.
        """
        with self._turn:
            if self._system.clock() < self._asked_at + REFRESH_EVERY_S:
                if self._failure is not None:
                    again = type(self._failure)(str(self._failure), self.address)
                    again.silent = self._failure.silent
                    raise again
                return
            try:
                self._ask(self._system.clock() + timeout)
                self._failure = None
            except WireError as error:
                self._failure = error
                raise
            finally:
                self._asked_at = self._system.clock()

    def refresh_soon(self) -> None:
        """Ask for the owners of the slots in a background thread, for a caller that must not block."""

        def ask() -> None:
            try:
                self.refresh(4 * ASK_WITHIN_S)
            except WireError:
                pass  # the next request reports the failure
            finally:
                self._asking = False

        if not self._asking and self._system.clock() >= self._asked_at + REFRESH_EVERY_S:
            self._asking = True
            try:
                self._system.start(ask, name="holdfast-cluster")
            except (RuntimeError, MemoryError):  # no thread can be started, or the interpreter is shutting down
                self._asking = False

    def _ask(self, deadline: float) -> None:
        why: WireError | None = None
        for _ in range(len(self._nodes)):
            left = deadline - self._system.clock()
            if left <= 0:
                break
            self._nodes.rotate(-1)  # another server each time, because one that is cut off from the Cluster still answers
            node = self._endpoint(self._nodes[-1])
            try:
                self._learn(node, *self._view(node, min(left, ASK_WITHIN_S)))
                self._last = node
                return
            except (NotSent, Unknown) as error:
                why = error if not isinstance(why, Refused) else why
            except Refused as error:
                why = error
        if isinstance(why, Refused):
            raise Refused(str(why), self.address)
        silent = why is None or why.silent
        raise NotSent(f"{self.address}: no server answers; the last error: {why}", self.address, silent=silent)

    def _view(self, node: Endpoint, timeout: float) -> tuple[list[Any], bool]:
        connection = Connection(node, timeout, self._system)
        try:
            connection.set_timeout(timeout)
            ranges = connection.exchange(protocol.command("CLUSTER", "SLOTS"))
            protocol.check(ranges, node)
            sharded = self._sharded
            if sharded is None:
                probe = connection.exchange(protocol.command("PUBSUB", "SHARDNUMSUB"))  # since Redis 7
                # A user without the permission gets an error of the same class as for an unknown subcommand of PUBSUB. Only the
                # text of the error tells the two apart.
                sharded = type(probe) is not protocol.ReplyError or "pubsub|shardnumsub" in str(probe)
            return ranges, sharded
        finally:
            connection.close()

    def _learn(self, told_by: Endpoint, ranges: list[Any], sharded: bool) -> None:
        owners: list[Endpoint | None] = [None] * SLOTS
        nodes: dict[Address, None] = {}
        for first, last, served in _ranges(ranges, told_by):
            addresses = [self._address(host, port, told_by) for host, port in served]
            nodes |= dict.fromkeys(addresses)
            owners[first : last + 1] = [self._endpoint(addresses[0])] * (last + 1 - first)
        with self._mutex:
            self._owners = owners
            self._nodes = deque(dict.fromkeys([*nodes, *self._seeds]))
            self._sharded = sharded
            self.stale = False

    def _address(self, host: bytes | None, port: int, told_by: Endpoint) -> Address:
        """Return the address of a server from an entry of CLUSTER SLOTS.

        A server that does not know its own host sends None, "" or "?" as its host. Then use the host of ``told_by``, the server
        that sent the entry.
        """
        name = (host or b"").decode()
        address = (name if name not in {"", "?"} else told_by.host, port)
        return self._remap(address) if self._remap is not None else address

    def _endpoint(self, address: Address) -> Endpoint:
        return interned(**self.facts | {"host": address[0], "port": address[1]})

    # Redirection of a request

    def redirects(self, call: Call) -> Redirects:
        """Direct one request to the server that can answer it. See `Redirects`."""
        key = call.keys[0] if type(call) is RunScript else call.args[1]
        slot = slot_of(key if isinstance(key, bytes) else str(key).encode())
        if self.stale:
            yield None
        hop = self._home(slot, call)
        retried = False
        for _ in range(HOPS):
            inner: Call = hop.call
            # ASKING applies to one command only, so the text of the script is sent at once.
            if hop.asking and isinstance(inner, RunScript):
                answer = yield hop._replace(call=protocol.in_full(inner))
                if isinstance(answer, Answer):
                    answer.value = protocol.parsed(inner, answer.value)
            else:
                answer = yield hop
            if isinstance(answer, Answer):
                return answer
            assert isinstance(answer, WireError)
            onward = self._onward(hop, slot, call, answer)
            if onward is None and isinstance(answer, NotSent) and not retried:
                retried = True
                self.stale = True
                if (yield None):
                    onward = self._elsewhere(hop, slot, answer)
            if onward is None:
                raise answer
            hop = onward
        raise Refused(f"TRYAGAIN slot {slot}: the servers redirect the request to each other", self.address)

    def _home(self, slot: int, call: Call) -> Hop:
        owner = self._owners[slot]
        if owner is None:
            self.stale = True
            raise Refused(f"CLUSTERDOWN no server owns slot {slot}", self.address)
        return Hop(owner, call, False)

    def _onward(self, hop: Hop, slot: int, call: Call, failure: WireError) -> Hop | None:
        """Return the next step after a step that has failed with ``failure``; None if the request fails."""
        if not isinstance(failure, Refused):
            self.stale = True
            return None
        words = str(failure).split()
        if failure.code in {"MOVED", "ASK"} and len(words) == 3:
            host, _, port = words[2].rpartition(":")
            if not _is_place(host, port):
                return None  # malformed; the error shows the server's answer
            there = self._endpoint(self._address(host.encode(), int(port), hop.endpoint))
            if failure.code == "MOVED":
                self._owners[slot] = there
                self.stale = True  # other slots have probably moved, too
            return Hop(there, hop.call, failure.code == "ASK")
        half = _HALF_MOVED in str(failure)
        if half:
            failure.code = "TRYAGAIN"
        if failure.code == "TRYAGAIN" and hop.call is call:
            less = single_key_form(call, half=half)
            return self._home(slot, less) if less is not None else None
        self.stale = self.stale or failure.code in _ASK_ANEW
        return None

    def _elsewhere(self, hop: Hop, slot: int, failure: NotSent) -> Hop:
        """Return the next step, after a slot's owner could not be reached and the owners were looked up again.

        Raises Refused if the slot still has the same owner. The caller may try again later, after a failover.
        """
        home = self._home(slot, hop.call)
        if home.endpoint is hop.endpoint:
            raise Refused(f"CLUSTERDOWN the owner of slot {slot} cannot be reached: {failure}", failure.address)
        return home


def _is_place(host: str, port: str) -> bool:
    """Return True if a host and port from a server's reply, which may be malformed, can be an address."""
    plain = host.isascii() and host.isprintable() and " " not in host and len(host) <= 253
    named = host in {"", "?"} or (plain and all(0 < len(label) < 64 for label in host.split(".")))
    return named and port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) <= 65535


def _ranges(said: Any, told_by: Endpoint) -> list[tuple[int, int, list[tuple[bytes | None, int]]]]:
    """Return the slot ranges with their servers, from the answer to CLUSTER SLOTS. Raises Refused if the answer is
    malformed."""
    found = []
    for row in said if isinstance(said, list) else [None]:
        match row:
            case [int(first), int(last), *served] if 0 <= first <= last < SLOTS and served:
                places = [(one[0], one[1]) for one in served if isinstance(one, list) and len(one) > 1]
                if len(places) == len(served) and all(_is_told(*place) for place in places):
                    found.append((first, last, places))
                    continue
        raise Refused(f"{told_by.address} sent a malformed answer to CLUSTER SLOTS", told_by.address)
    return found


def _is_told(host: object, port: object) -> bool:
    if type(port) is not int:
        return False
    return host is None or (isinstance(host, bytes) and _is_place(host.decode(errors="replace"), str(port)))


_clusters: weakref.WeakSet[Cluster] = weakref.WeakSet()


def _reset() -> None:
    for cluster in list(_clusters):
        cluster.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset)

_known: dict[tuple[Any, ...], Cluster] = {}


def cluster_at(
    seeds: list[Address], *, remap: Callable[[Address], Address] | None = None, credentials: Any = None, **facts: Any
) -> Endpoint:
    """Return the endpoint of the Cluster with these servers. Calls with the same servers and settings return the same object.

    ``remap``: function that returns the address to connect to for an address that the Cluster reports; None: connect to the
    reported address.
    """
    places = tuple(dict.fromkeys(seeds))
    key = (frozenset(places), remap, id(credentials), *sorted(facts.items(), key=lambda fact: fact[0]))
    cluster = _known.get(key)
    if cluster is None:
        cluster = _known.setdefault(key, Cluster(places, facts | {"credentials": credentials}, remap))
    return cluster.whole
