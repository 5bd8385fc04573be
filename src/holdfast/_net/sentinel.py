"""The primary of a service that Redis Sentinels monitor.

Whenever a connection is opened, the Sentinels are asked for the primary, one after the other. The server that they name must
confirm its role. So a new connection leads to the new primary after a failover. Source: the guidelines for Sentinel clients,
redis.io/docs/latest/develop/reference/sentinel-clients.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from hiredis import ReplyError

from holdfast._clock import monotonic
from holdfast._core.requests import NotSent, Refused, Unknown, WireError
from holdfast._net import protocol
from holdfast._net.endpoint import Endpoint, endpoints, interned
from holdfast._net.sync_connection import Connection

LIMIT = 0.5
"""Maximum seconds to wait for one Sentinel, or for the server that it names.

The wait for a Sentinel is also at most half of the caller's remaining time, so that time is left for the server that it names.
"""

PORT = 26379


class Sentinel:
    """An object that finds the primary of one service by asking the Sentinels.

    ``watchers``: endpoints of the Sentinels. ``facts``: settings for the connection to the primary, such as the login.
    ``seen_by``: how many other Sentinels a Sentinel must see, or else its answer is ignored. ``host``: host to connect to
    instead of the primary's host, for example behind a tunnel; None: the primary's host.
    """

    def __init__(
        self, service: str, watchers: list[Endpoint], facts: dict[str, Any], seen_by: int = 0, host: str | None = None
    ) -> None:
        self.service = service
        self.watchers = watchers
        self._facts = facts
        self._seen_by = seen_by
        self._host = host
        self._last: Endpoint | None = None

    @property
    def address(self) -> str:
        """Return the name of the service, with the last known address of its primary, for messages."""
        return f"sentinel:{self.service}" + (f" (at {self._last.address})" if self._last is not None else "")

    def find(self, timeout: float) -> Endpoint:
        """Return the primary, after it has confirmed its role.

        Raises NotSent if no Sentinel answers within ``timeout`` seconds, and Refused if the Sentinels refuse or do not know the
        service. The code of Refused is MASTERDOWN if no server that they name is a primary now, as during a failover.
        """
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
                # The Sentinel that was right is asked first the next time. The list is replaced, because other threads
                # iterate over it.
                self.watchers = [watcher, *(other for other in self.watchers if other is not watcher)]
                self._last = found
                return found
            said.append(doubt)
        raise self._not_found(said, failures, named=bool(doubtful))

    def _ask(self, watcher: Endpoint, limit: float) -> tuple[str, int] | None:
        """Return the primary's host and port from one Sentinel; None if that Sentinel does not know the service.

        ``limit``: maximum seconds to wait for each reply. Raises Refused if the Sentinel refuses the command or sees too few
        others, and NotSent or Unknown if it does not answer.
        """
        with closing(Connection(watcher, limit)) as connection:
            named = _reply(connection, watcher, limit, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
            if not named:
                return None
            if self._seen_by:
                others = len(_reply(connection, watcher, limit, "SENTINEL", "SENTINELS", self.service))
                if others < self._seen_by:
                    raise Refused(f"{watcher.address} sees {others} other Sentinels, but the client wants {self._seen_by}")
        match named:
            case [bytes(host), bytes(port)] if port.isdigit() and 0 < len(port) <= 5 and host.isascii():
                return self._host or host.decode(), int(port)
        raise Refused(f"{watcher.address} did not answer with the address of a primary", watcher.address)

    def _endpoint(self, host: str, port: int) -> Endpoint:
        return Endpoint(host=host, port=port, **self._facts)

    def _not_found(self, said: list[str], failures: list[WireError], *, named: bool) -> WireError:
        address = f"sentinel:{self.service}"
        why = "; ".join(dict.fromkeys(said))
        if named:
            return Refused(f"MASTERDOWN {address}: no primary answers, a failover may be under way: {why}", address)
        if not failures:
            return Refused(f"{address}: no Sentinel knows a service of this name: SENTINEL MASTERS lists the names", address)
        if len(failures) == len(self.watchers) and all(isinstance(error, Refused) for error in failures):
            return Refused(f"{address}: the Sentinels refuse to answer: {why}", address)
        return NotSent(f"{address}: no Sentinel answers: {why}", address, silent=all(error.silent for error in failures))


def _reply(connection: Connection, endpoint: Endpoint, limit: float, *words: str) -> Any:
    connection.set_timeout(limit)
    reply = connection.exchange(protocol.command(*words))
    protocol.check(reply, endpoint)
    return reply


def _doubt(found: Endpoint, limit: float) -> str:
    """Return the reason why a server must not be used as the primary; "" if it may be used.

    A server that does not permit the command ROLE may be used. ``limit``: seconds to wait for the reply.
    """
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
    """Return the endpoint of a service's primary. Equal calls return the same object. For the parameters see `Sentinel`."""
    in_order = sorted(watchers, key=lambda watcher: (watcher.host, watcher.port))
    known = tuple(id(value) if name == "credentials" else value for name, value in sorted(facts.items()))
    # The ids stay unique, because the endpoints of the Sentinels are interned, and so never garbage-collected.
    key = ("sentinel", service, *map(id, in_order), *known, seen_by, host)
    endpoint = endpoints.get(key)
    if endpoint is None:
        finder = Sentinel(service, watchers, facts, seen_by, host)
        endpoint = endpoints.setdefault(key, Endpoint(host="", port=0, finder=finder, **facts))
    return endpoint


def of_client(client: Any, facts: dict[str, Any], endpoint_of: Callable[[Any], Endpoint]) -> Endpoint:
    """Return the endpoint for a client that ``Sentinel.master_for`` of redis-py or valkey-py has created.

    ``endpoint_of``: function that returns the endpoint for the client of one Sentinel.
    """
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
    """Return the endpoint of a service that a URL names.

    ``places``: hosts and ports of the Sentinels. ``facts``: settings for the connection to the primary. Its TLS settings also
    apply to the Sentinels. ``login``: user name and password for the Sentinels.
    """
    shared = {"tls": facts["tls"], "timeout": facts["timeout"]}
    watchers = [interned(host=host or "localhost", port=port or PORT, **shared, **login) for host, port in places]
    return watched(service, watchers, facts)
