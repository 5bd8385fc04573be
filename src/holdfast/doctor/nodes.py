"""The servers that vote together (`Redlock`), as ``holdfast nodes`` shows them: whether each votes, and its number of locks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hiredis import ReplyError

from holdfast._clock import monotonic
from holdfast._core.names import literal
from holdfast._core.quorum.votes import ServerSet
from holdfast._core.requests import WireError
from holdfast._net.endpoint import Endpoint
from holdfast._net.sync_connection import Connection
from holdfast.doctor.facts import Facts
from holdfast.doctor.probe import LOOK, ProbeConnection, clock, read_info, read_marker
from holdfast.doctor.rules import flavour, vote
from holdfast.doctor.targets import PATIENCE


@dataclass
class VotingServer:
    """One of several servers that vote together (`Redlock`). A value is None if it is unknown."""

    name: str
    facts: Facts
    holds: int | None = None
    """Number of locks that are held on this server."""
    more: bool = False
    """True if the server may hold more locks than `holds` says, because it has too many keys to count them all."""


def ask_all(endpoints: Sequence[Endpoint], server_set: ServerSet, prefix: str) -> list[VotingServer]:
    """Ask all servers at the same time, and return a `VotingServer` for each, with the error if it is unreachable."""
    with ThreadPoolExecutor(len(endpoints), "holdfast-nodes") as threads:
        return list(
            threads.map(lambda name, endpoint: _ask(name, endpoint, prefix, server_set.marker), server_set.names, endpoints)
        )


def _ask(name: str, endpoint: Endpoint, prefix: str, marker: bytes) -> VotingServer:
    node = VotingServer(name, Facts(endpoint.address))
    connection: Connection | None = None
    try:
        connection = Connection(endpoint, PATIENCE)
        connection.set_timeout(min(PATIENCE, endpoint.timeout))
        line = ProbeConnection(connection)
        node.facts.info = read_info(line.ask("INFO", "server"))
        clock(line, node.facts)
        read_marker(line, node.facts, marker)
        node.holds, node.more = _held(line, prefix)
    except WireError as error:
        node.facts.error = str(error)
    finally:
        if connection is not None:
            connection.close()
    return node


def _held(line: ProbeConnection, prefix: str) -> tuple[int | None, bool]:
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


def skews(nodes: Sequence[VotingServer]) -> dict[str, float]:
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


def row(node: VotingServer, server_set: ServerSet, skew: float | None) -> dict[str, object]:
    """Return the facts about a server as a dict for JSON. ``skew``: seconds that its clock is ahead of the others, or None."""
    info = node.facts.info or {}
    votes, why = vote(node.facts, server_set)
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
