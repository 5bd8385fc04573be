"""The primary of a service that Sentinels watch: they are asked at each connection, so a failover is followed at the next one.

Source: the guidelines for Sentinel clients, redis.io/docs/latest/develop/reference/sentinel-clients: ask one after the other,
verify the role of the server that was named, ask again whenever a connection is made.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from time import monotonic
from typing import Any

from hiredis import ReplyError

from holdfast._core.requests import NotSent, Refused, Unknown, WireError
from holdfast._net import protocol
from holdfast._net.endpoint import Endpoint, endpoints, interned
from holdfast._net.sync_connection import Connection

LIMIT = 0.5
"""Seconds for one Sentinel, or the server it names, to answer: the others are asked instead. Half of what is left at most, so
that there is time for that."""

PORT = 26379


class Sentinel:
    """Finds the primary of one service. ``facts``: how to log in there; ``seen_by``: how many other Sentinels one has to see,
    to be believed."""

    def __init__(
        self, service: str, watchers: list[Endpoint], facts: dict[str, Any], seen_by: int = 0, host: str | None = None
    ) -> None:
        self.service = service
        self.watchers = watchers
        self._facts = facts
        self._seen_by = seen_by
        self._host = host
        """The primary's, whatever the Sentinels call it: behind a tunnel."""
        self._last: Endpoint | None = None

    @property
    def address(self) -> str:
        """For messages."""
        return f"sentinel:{self.service}" + (f" (at {self._last.address})" if self._last is not None else "")

    def find(self, timeout: float) -> Endpoint:
        """The primary, which says itself that it is one. Raises NotSent where no Sentinel answers; Refused where they name
        none, as MASTERDOWN if what they name is none just now: a failover may be under way."""
        deadline = monotonic() + timeout
        said: list[str] = []
        failures: list[WireError] = []
        doubtful: set[tuple[str, int]] = set()
        for watcher in list(self.watchers):
            limit = min(LIMIT, (deadline - monotonic()) / 2)
            if limit <= 0:
                break
            try:
                named = self._ask(watcher, limit)
                if named is None or named in doubtful:
                    continue
                found = self._endpoint(*named)
                doubtful.add(named)
                doubt = _doubt(found, min(LIMIT, max(deadline - monotonic(), 0.05)))
            except WireError as error:
                failures.append(error)
                said.append(str(error))
                continue
            if not doubt:
                # The Sentinel that was right is asked first the next time. A copy, because other threads go through the list.
                self.watchers = [watcher, *(other for other in self.watchers if other is not watcher)]
                self._last = found
                return found
            said.append(doubt)
        raise self._not_found(said, failures, named=bool(doubtful))

    def _ask(self, watcher: Endpoint, limit: float) -> tuple[str, int] | None:
        """Host and port of the primary, as this Sentinel knows it; None if it does not know the service. Raises NotSent,
        Unknown, and Refused, also where it sees too few others."""
        with closing(Connection(watcher, limit)) as connection:
            named = _reply(connection, watcher, limit, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
            if not named:
                return None
            if self._seen_by:
                others = len(_reply(connection, watcher, limit, "SENTINEL", "SENTINELS", self.service))
                if others < self._seen_by:
                    raise Refused(f"{watcher.address} sees {others} other Sentinels, of {self._seen_by} that the client wants")
        match named:
            case [bytes(host), bytes(port)] if port.isdigit() and 0 < len(port) <= 5 and host.isascii():
                return self._host or host.decode(), int(port)
        raise Refused(f"{watcher.address} answers with something else than the address of a primary", watcher.address)

    def _endpoint(self, host: str, port: int) -> Endpoint:
        return Endpoint(host=host, port=port, **self._facts)

    def _not_found(self, said: list[str], failures: list[WireError], *, named: bool) -> WireError:
        address = f"sentinel:{self.service}"
        why = "; ".join(dict.fromkeys(said))
        if named:
            return Refused(f"MASTERDOWN {address}: the primary is not there, a failover may be under way: {why}", address)
        if not failures:
            return Refused(
                f"{address}: no Sentinel knows a service of this name: see SENTINEL MASTERS for those it knows", address
            )
        if len(failures) == len(self.watchers) and all(isinstance(error, Refused) for error in failures):
            return Refused(f"{address}: the Sentinels refuse to answer: {why}", address)
        return NotSent(f"{address}: no Sentinel answers: {why}", address, silent=all(error.silent for error in failures))


def _reply(connection: Connection, endpoint: Endpoint, limit: float, *words: str) -> Any:
    connection.set_timeout(limit)
    reply = connection.exchange(protocol.command(*words))
    protocol.check(reply, endpoint)
    return reply


def _doubt(found: Endpoint, limit: float) -> str:
    """Why this server is not taken for the primary; empty if it says that it is, or is not allowed to say."""
    try:
        with closing(Connection(found, limit)) as connection:
            connection.set_timeout(limit)
            reply = connection.exchange(protocol.command("ROLE"))
    except (NotSent, Unknown) as error:
        return str(error)
    if isinstance(reply, ReplyError):
        refused = Refused(str(reply))
        return f"{found.address}: {reply}" if refused.transient else ""
    return "" if isinstance(reply, list) and reply[:1] == [b"master"] else f"{found.address} says that it is a replica"


def watched(
    service: str, watchers: list[Endpoint], facts: dict[str, Any], seen_by: int = 0, host: str | None = None
) -> Endpoint:
    """The primary of a service, wherever it is: the same endpoint for all who mean the same, in whatever order they name the
    Sentinels."""
    in_order = sorted(watchers, key=lambda watcher: (watcher.host, watcher.port))
    known = tuple(id(value) if name == "credentials" else value for name, value in sorted(facts.items()))
    key = ("sentinel", service, *map(id, in_order), *known, seen_by, host)  # watchers are interned, and so never collected
    endpoint = endpoints.get(key)
    if endpoint is None:
        finder = Sentinel(service, watchers, facts, seen_by, host)
        endpoint = endpoints.setdefault(key, Endpoint(host="", port=0, finder=finder, **facts))
    return endpoint


def of_client(client: Any, facts: dict[str, Any], endpoint_of: Callable[[Any], Endpoint]) -> Endpoint:
    """The service of a client of redis-py or valkey-py, by its ``Sentinel.master_for``. ``endpoint_of``: makes an endpoint of
    the client of one Sentinel."""
    pool = client.connection_pool
    manager = pool.sentinel_manager
    return watched(
        pool.service_name,
        [endpoint_of(sentinel) for sentinel in manager.sentinels],
        facts,
        manager.min_other_sentinels,
        getattr(manager, "_force_master_ip", None),
    )


def of_url(service: str, places: list[tuple[str, int]], facts: dict[str, Any], login: dict[str, Any]) -> Endpoint:
    """The service of a URL: ``places`` of the Sentinels, and how to log in to them, with TLS if the servers want it."""
    shared = {"tls": facts["tls"], "timeout": facts["timeout"]}
    watchers = [interned(host=host or "localhost", port=port or PORT, **shared, **login) for host, port in places]
    return watched(service, watchers, facts)
