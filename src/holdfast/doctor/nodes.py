"""The servers that vote together (`Redlock`), as ``holdfast nodes`` shows them: whether each votes, and its number of locks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hiredis import ReplyError

from holdfast._clock import monotonic, wall
from holdfast._core.names import literal
from holdfast._core.quorum.votes import ServerSet
from holdfast._core.requests import WireError
from holdfast._net.endpoint import Endpoint
from holdfast._net.sync_connection import Connection
from holdfast.doctor.facts import Facts
from holdfast.doctor.probe import LOOK, Line, clock, read_info
from holdfast.doctor.rules import flavour
from holdfast.doctor.targets import PATIENCE


@dataclass
class Node:
    """One of several servers that vote together (`Redlock`). A value is None if it is unknown."""

    name: str
    facts: Facts
    marker: tuple[str, float, float, str] | None = None
    """The server's marker, the record by which clients notice that the server has lost its data.

    The fields are the server's run id, the start of its quarantine in Unix seconds by its own clock (0: the server was declared
    new), the longest lease in seconds (``max_ttl``), and a hash of the list of servers.
    """
    now: float = 0.0
    """Unix time, in seconds, by the server's clock, or by this machine's clock if the server does not tell its time."""
    holds: int | None = None
    """Number of locks that are held on this server."""
    more: bool = False
    """True if the server may hold more locks than `holds` says, because it has too many keys to count them all."""


def ask_all(endpoints: Sequence[Endpoint], server_set: ServerSet, prefix: str) -> list[Node]:
    """Ask all servers at the same time, and return a `Node` for each. The node of an unreachable server contains the error."""
    with ThreadPoolExecutor(len(endpoints), "holdfast-nodes") as threads:
        return list(
            threads.map(lambda name, endpoint: _ask(name, endpoint, prefix, server_set.marker), server_set.names, endpoints)
        )


def _ask(name: str, endpoint: Endpoint, prefix: str, marker: bytes) -> Node:
    node = Node(name, Facts(endpoint.address))
    connection: Connection | None = None
    try:
        connection = Connection(endpoint, PATIENCE)
        connection.set_timeout(min(PATIENCE, endpoint.timeout))
        line = Line(connection)
        node.facts.info = read_info(line.ask("INFO", "server"))
        clock(line, node.facts)
        node.now = wall() + (node.facts.ahead or 0.0)
        fields = line.ask("HMGET", marker, "run", "since", "lease", "servers")
        if isinstance(fields, ReplyError):
            node.facts.error = str(fields)
        elif None not in fields:
            run, since, lease, servers = (field.decode(errors="replace") for field in fields)
            node.marker = run, int(since) / 1000, int(lease) / 1000, servers
        node.holds, node.more = _held(line, prefix)
    except WireError as error:
        node.facts.error = str(error)
    finally:
        if connection is not None:
            connection.close()
    return node


def _held(line: Line, prefix: str) -> tuple[int | None, bool]:
    """Return the number of locks counted on a server (None: unknown), and True if the time limit has ended the count."""
    found, cursor, end = 0, b"0", monotonic() + LOOK
    pattern = literal(prefix.encode()) + b"{*}"
    while True:
        reply = line.ask("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
        if isinstance(reply, ReplyError):
            return None, False
        cursor, page = reply
        found += len(page)
        if cursor == b"0" or monotonic() > end:
            return found, cursor != b"0"


def vote(node: Node, server_set: ServerSet) -> tuple[bool, str]:
    """Return True and "votes" if the server takes part in votes. Otherwise return False, and the reason as text."""
    if node.facts.error:
        return False, node.facts.error
    if node.marker is None:
        waits = f"votes {server_set.longest:g} s after the first request"
        return False, f"is new, or has lost its data: {waits}. Only if it is new: holdfast nodes init"
    run, since, lease, servers = node.marker
    if lease != server_set.longest:
        return False, f"its users have agreed on max_ttl={lease:g}"
    if servers != server_set.digest:
        return False, "its users have agreed on another list of servers"
    wait = math.ceil(lease * 1010) / 1000 + 0.002
    if node.facts.info is not None and node.facts.info.get("run_id") != run:
        return False, f"was restarted: votes {wait:.0f} s after the first request"
    left = since + wait - node.now
    return (False, f"may have lost votes; votes again in {left:.0f} s") if left > 0 else (True, "votes")


def skews(nodes: Sequence[Node]) -> dict[str, float]:
    """Return by how many seconds each server's clock is ahead of the median of the other servers' clocks, by name of server.

    A server is omitted if its clock is unknown, or if no other clock is known.
    """
    known = {node.name: node.facts.ahead for node in nodes if node.facts.ahead is not None}
    found = {}
    for name, ahead in known.items():
        others = [other for peer, other in known.items() if peer != name]
        if others:
            found[name] = ahead - statistics.median(others)
    return found


def row(node: Node, server_set: ServerSet, skew: float | None) -> dict[str, object]:
    """Return the facts about a server as a dict for JSON. ``skew``: seconds that its clock is ahead of the others, or None."""
    info = node.facts.info or {}
    votes, why = vote(node, server_set)
    return {
        "server": node.name,
        "up": not node.facts.error,
        "votes": votes,
        "why": why,
        "round_trip_ms": None if node.facts.round_trip is None else round(node.facts.round_trip * 1000, 3),
        "version": flavour(node.facts) if info else None,
        "uptime_s": int(info["uptime_in_seconds"]) if info.get("uptime_in_seconds", "").isdecimal() else None,
        "clock_ahead_s": None if skew is None else round(skew, 4),
        "clock_doubt_s": round(node.facts.doubt, 4),
        "holds": node.holds,
        "holds_more": node.more,
    }
