"""Leftovers: data that is still in processes or on servers when a simulated history is over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast._core.names import PREFIX, marker_key, quarantine_key
from holdfast_lab.sim.world import World

if TYPE_CHECKING:
    from holdfast_lab.sim.server import Server

MARKERS = {marker_key(PREFIX), quarantine_key(PREFIX)}
"""Keys that show that a server has lost no data. They never expire, and are no leftovers."""


def write_the_end(world: World) -> None:
    """Record the leftovers and the end of the history. All workers and all leases must have ended."""
    for what in leftovers(world):
        world.note("left", note=what)
    world.note("end")


def told_at_once(world: World, *despite: str) -> None:
    """Record the leftovers right after all workers have ended, unless a fault may have caused them.

    Cancellations, and faults whose note is in ``despite``, cause no leftovers. Any other fault in the history may.
    """
    if {event.note for event in world.history if event.kind == "fault"} <= {"cancel", *despite}:
        for what in (*leftovers(world), *_listener_ids(world)):
            world.note("left", note=f"at once: {what}")


def _listener_ids(world: World) -> Iterator[str]:
    """Describe the waiters and listeners that are left on several servers."""
    for server in world.servers if len(world.servers) > 1 else ():
        for key, kind, value, _ in server.keyspace.dump():
            if kind == b"zset":
                yield from (f"{server.name}: {member.decode()} in {key.decode()}" for member, _ in value)


def leftovers(world: World) -> list[str]:
    """Describe the data that must be gone once all workers and all leases have ended."""
    found: list[str] = []
    for process in world.processes:
        if process.here:
            for node in process.nodes.values():
                found += [f"{process.name}: {len(node.waiting)} waiters"] if len(node.waiting) else []
                found += [f"{process.name}: {len(node.renewing)} renewals"] if len(node.renewing) else []
                found += [f"{process.name}: {len(node.listeners)} listeners"] if node.listeners else []
            for local_queue in process.local_queues():
                held = [name for name in ("turn_of", "queue", "held_lease") if getattr(local_queue, name)]
                found += [f"{process.name}: a local queue with {' and '.join(held)}"] if held else []
    for server in world.servers:
        found += _at(server)
    return found


def _at(server: Server) -> Iterator[str]:
    server.keyspace.now = int(server.wall() * 1e6)
    now_ms = server.keyspace.now // 1000
    for key, kind, value, expires in server.keyspace.dump():
        name = key.decode("ascii", "replace")
        if expires is None and value != b"foreign" and key not in MARKERS:
            yield f"{name} has no expiry"
        if kind == b"string" and key in server.locks and value != b"foreign":
            yield f"{name} is held"
        if kind == b"zset" and key in server.permits and any(until > now_ms for _, until in value):
            yield f"permits of {name} are held"
        if kind == b"hash":
            yield from (f"a place in {name}: {f.decode()}" for f, v in value if f.startswith(b"at:") and int(v) > now_ms)
