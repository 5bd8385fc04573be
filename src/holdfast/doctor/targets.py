"""The servers that the doctor checks, and the names of the locks that it tries on each of them.

In a Cluster, a lock can be tried only on the server that has the slot of its key.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from holdfast._core.names import lock_keys, record_key, start
from holdfast._core.requests import WireError
from holdfast._net.endpoint import Endpoint, Topology
from holdfast._net.slots import SLOTS, id_within, slot_of
from holdfast.doctor.facts import Finding

PATIENCE = 2.0
"""Seconds to wait for each answer."""


@dataclass(frozen=True)
class Names:
    """Names for the trial of a lock that two invented processes acquire.

    ``keys``: the keys of the lock. ``ours``, ``theirs``: the ids of the two processes. ``record``: the key of the record that a
    process leaves on the server. ``subscribe``: the command that subscribes to a process's channel. ``numsub``: the word after
    PUBSUB that counts the subscribers.
    """

    keys: tuple[bytes, bytes, bytes]
    ours: str
    theirs: str
    record: bytes
    subscribe: str = "SUBSCRIBE"
    numsub: str = "NUMSUB"


@dataclass(frozen=True)
class Target:
    """One server to check, which may be part of a Cluster."""

    endpoint: Endpoint
    cluster: Topology | None = None

    def names(self, prefix: str) -> Names:
        """Return new names for the trial of a lock. Their keys are on this server."""

        def of_lock(text: str) -> tuple[bytes, bytes, bytes]:
            return lock_keys(f"doctor:{text}", prefix, None)

        keys = of_lock(self._own(lambda text: of_lock(text)[0]))
        mine = start(prefix)
        record = record_key(mine, self._own(lambda text: record_key(mine, text)))
        ours, theirs = os.urandom(6).hex(), os.urandom(6).hex()
        if self.cluster is None or not self.cluster.sharded:
            return Names(keys, ours, theirs, record)
        slot = slot_of(keys[0])
        return Names(keys, id_within(ours, slot), id_within(theirs, slot), record, "SSUBSCRIBE", "SHARDNUMSUB")

    def _own(self, key: Callable[[str], bytes]) -> str:
        """Return a random name whose key is on this server of a Cluster. ``key``: function that returns the key of a name."""
        text = os.urandom(6).hex()
        for _ in range(20 * SLOTS):  # enough tries even for a server that has only one slot
            if self.cluster is None or self.cluster.owner(slot_of(key(text))) is self.endpoint:
                break
            text = os.urandom(6).hex()
        return text


def places(endpoint: Endpoint) -> list[Target]:
    """Return the servers to check: for a Cluster, all known primaries, otherwise only this server."""
    cluster = endpoint.cluster
    if cluster is None:
        return [Target(endpoint)]
    try:
        cluster.refresh(PATIENCE)
    except WireError:
        return [Target(endpoint)]  # the next request to the Cluster also fails, and reports the reason
    owners = dict.fromkeys(owner for slot in range(SLOTS) if (owner := cluster.owner(slot)) is not None)
    return [Target(owner, cluster) for owner in owners]


def whole(found: list[Target]) -> list[Finding]:
    """Return one finding: whether the Cluster serves all slots, and thus all locks. Return an empty list outside a Cluster."""
    cluster = found[0].cluster if found else None
    if cluster is None:
        return []
    absent = sum(cluster.owner(slot) is None for slot in range(SLOTS))
    if not absent:
        return [Finding("ok", "cluster", f"{len(found)} primaries own all slots")]
    said = f"{absent} of its {SLOTS} slots have no owner"
    return [Finding("problem", "cluster", said, "their locks, or all locks, are refused", "see CLUSTER INFO; assign the slots")]
