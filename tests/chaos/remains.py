"""Data that locks leave on the servers after a run, and the part of it that is allowed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import redis

import holdfast
from chaos.topologies import MAX_TTL, NAMES, Topology, client_of
from chaos.worker import LAST_WAIT
from holdfast._core.lock.server_queue import REFRESH_EVERY_S
from support.servers import PrivateServer

PLACE = 3 * REFRESH_EVERY_S
"""Seconds a place in line counts after the last sign of life."""


class Place(NamedTuple):
    """One in line."""

    name: str
    token: str
    seen: float
    """Last sign of life, in monotonic seconds."""
    server: PrivateServer


def left_behind(topology: Topology, healed: float, patience: float = MAX_TTL + 2) -> list[str]:
    """Return the data that should not be there. ``healed``: monotonic time since which nothing is broken.

    A lock may be held until its lease has ended, at most ``patience`` seconds. A place in the queue counts for `PLACE`, and
    goes when the queue is next touched after that. A waiter may leave its place behind if it could not give it up: it was
    killed; its server did not answer, or was replaced by one without the place; or its slot was being moved, when no client can
    reach more of a lock than its own key. So a place from the time of the faults has to go when it is touched. There must be no
    place from later: nothing kept its waiter from leaving.
    """
    deadline = time.monotonic() + patience
    while True:
        places = list(_places(topology))
        found = _held(topology) + [f"place of {place.token} in {place.name}" for place in places if place.seen > healed]
        if not found or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    for place in places:
        time.sleep(max(0.0, place.seen + PLACE - time.monotonic()))
    for name in {place.name for place in places}:
        with getattr(holdfast, topology.kind)(topology.where(0), name, wait=LAST_WAIT, **topology.more):
            pass
    return found + [f"place of {place.token} in {place.name}, touched when its time was over" for place in _places(topology)]


def _held(topology: Topology) -> list[str]:
    return [f"{key} on {server}" for _, key, server, client in _everywhere(topology) if client.exists(key)]


def _places(topology: Topology) -> Iterator[Place]:
    ahead = time.time() - time.monotonic()
    for name, key, server, client in _everywhere(topology):
        tokens: list[bytes] = client.zrange(f"{key}:queue", 0, -1)  # type: ignore[assignment]
        for token in tokens:
            until: bytes | None = client.hget(f"{key}:state", b"at:" + token)  # type: ignore[assignment]
            yield Place(name, token.decode(), int(until or 0) / 1000 - PLACE - ahead, server)


def _everywhere(topology: Topology) -> Iterator[tuple[str, str, PrivateServer, redis.Redis]]:
    for name in NAMES:
        key = f"hf:{{{name}}}"
        for server in topology.servers(key):
            with closing(client_of(server)) as client:
                yield name, key, server, client
