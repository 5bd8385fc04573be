"""Find the server for the argument ``client`` of a lock, which is a URL or a client object.

No other module examines what such an argument is. They ask `kind_of`, `are_several` or `is_async`, or read the `Endpoint`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeGuard

from holdfast._log import logger
from holdfast._net.endpoint import DEFAULT_TIMEOUT, TLS_OPTIONS, Endpoint, endpoints, interned
from holdfast._net.url import from_url
from holdfast.errors import ConfigError

log = logger("holdfast.wire")


def _of_foreign(client: Any, what: str) -> Endpoint:
    """Return an endpoint whose requests go through this client's own methods. ``what``: kind of the client, for messages.

    Raises ConfigError if the client's pool is limited to one connection. The subscription to notifications would use it up, and
    no lease could be renewed.
    """
    limit = getattr(client.connection_pool, "max_connections", None)
    if isinstance(limit, int) and limit < 2:
        raise ConfigError(
            f"client: its pool has max_connections={limit}. holdfast needs one connection for notifications, so none is left "
            f"for renewals, and it cannot open connections of {what} itself: pass a client with at least 3 connections",
            parameter="client",
        )
    key = ("client", id(client.connection_pool))
    endpoint = endpoints.get(key)
    if endpoint is None:
        options = client.connection_pool.connection_kwargs
        endpoint = endpoints[key] = Endpoint(
            host=str(options.get("host") or type(client).__name__),
            port=int(options.get("port") or 0),
            path=options.get("path"),
            db=int(options.get("db") or 0),
            client=client,
        )
        log.info(
            "%s: holdfast cannot open connections of %s itself, so it uses the client's own calls: locks compete for its "
            "connections, each request takes longer, and %s",
            endpoint.address,
            what,
            "leases are renewed only while the client's event loop runs"
            if is_async(client)
            else "the client's time limits apply",
        )
    return endpoint


def _is_foreign(thing: type) -> bool:
    """Return True if a class is not one of redis-py's or valkey-py's own. It may connect differently."""
    return thing.__module__.split(".")[0] not in {"redis", "valkey"}


Usable = Literal["Cluster", "foreign", "Sentinel", "server"]
Kind = Literal["servers", "URL", "pipeline", "unknown"] | Usable


def kind_of(client: Any) -> Kind:  # noqa: PLR0911 - one for each kind
    """Return what the argument ``client`` of a lock is.

    "servers": a list or mapping of independent servers. "URL": a URL, or an object with a ``url``. "pipeline", "Cluster": a
    pipeline, or the client of a Cluster. "foreign": a client whose connections only it can open. "Sentinel": the client of a
    primary that Sentinels name. "server": any other client of one server. "unknown": none of these.
    """
    if are_several(client):
        return "servers"
    if isinstance(getattr(client, "url", client), str):
        return "URL"
    if hasattr(client, "immediate_execute_command"):
        return "pipeline"
    if hasattr(client, "nodes_manager"):
        return "Cluster"
    pool = getattr(client, "connection_pool", None)
    options = getattr(pool, "connection_kwargs", None)
    if pool is None or not isinstance(options, dict):
        return "unknown"
    known = _bases(pool.connection_class) & {"Connection", "SSLConnection", "UnixDomainSocketConnection"}
    if not known or any(map(_is_foreign, (pool.connection_class, type(pool)))) or options.get("redis_connect_func"):
        return "foreign"
    return "Sentinel" if hasattr(pool, "sentinel_manager") else "server"


def _bases(thing: type) -> set[str]:
    return {cls.__name__ for cls in thing.__mro__}


def from_client(client: Any) -> Endpoint:
    """Return the endpoint of a client of redis-py or valkey-py: sync or asyncio, of one server or of a Cluster.

    Raises ConfigError if ``client`` is none of these, or if it cannot be used for locks.
    """
    return _of_kind(client, check_usable(client, kind_of(client)))


def _of_kind(client: Any, kind: Usable) -> Endpoint:
    if kind == "Cluster":
        return _of_cluster(client)
    pool = client.connection_pool
    opens: type = pool.connection_class
    if kind == "foreign":
        return _of_foreign(client, f"{opens.__name__} and {type(pool).__name__}")
    options = pool.connection_kwargs
    facts = {"db": int(options.get("db") or 0), **_login(options, is_tls="SSLConnection" in _bases(opens))}
    if kind == "Sentinel":
        return _of_sentinel(client, facts)
    return interned(
        host=options.get("host") or "localhost", port=int(options.get("port") or 6379), path=options.get("path"), **facts
    )


def check_usable(client: object, kind: Kind) -> Usable:
    """Return ``kind``, which is that of ``client``. Raises ConfigError if holdfast cannot use a client of this kind."""
    if kind == "pipeline":
        raise ConfigError("client: a pipeline only collects commands; pass the client that created it", parameter="client")
    if kind == "servers" or kind == "URL" or kind == "unknown":  # noqa: PLR1714 - mypy narrows comparisons only
        given = (
            f"the class {client.__name__}" if isinstance(client, type) else f"{type(client).__module__}.{type(client).__name__}"
        )
        pool = "; pass redis.Redis(connection_pool=...)" if hasattr(client, "connection_kwargs") else ""
        raise ConfigError(
            "client must be a redis.Redis or RedisCluster, a valkey.Valkey or ValkeyCluster, one of their asyncio variants, "
            f"or a URL, not {given}{pool}",
            parameter="client",
        )
    return kind


def _login(options: dict[str, Any], *, is_tls: bool) -> dict[str, Any]:
    return {
        "username": options.get("username"),
        "password": options.get("password"),
        "credentials": options.get("credential_provider"),
        "tls": tuple(sorted((k, v) for k, v in options.items() if k in TLS_OPTIONS and v is not None)) if is_tls else None,
        "timeout": float(options.get("socket_timeout") or DEFAULT_TIMEOUT),
    }


def _of_cluster(client: Any) -> Endpoint:
    from holdfast._net.cluster import cluster_at

    nodes = client.nodes_manager
    options = nodes.connection_kwargs
    opens = options.get("connection_class")
    if _is_foreign(type(client)) or (opens is not None and _is_foreign(opens)):
        raise ConfigError(
            f"client: holdfast cannot open the connections of {type(client).__name__} itself; "
            "pass a redis.RedisCluster, or a URL redis+cluster://host:port",
            parameter="client",
        )
    is_tls = bool(options.get("ssl")) or (opens is not None and "SSLConnection" in _bases(opens))
    seeds = [(str(node.host), int(node.port)) for node in nodes.startup_nodes.values()]
    return cluster_at(seeds, remap=getattr(nodes, "address_remap", None), **_login(options, is_tls=is_tls))


def _of_sentinel(client: Any, facts: dict[str, Any]) -> Endpoint:
    """Return the endpoint of a client that ``Sentinel.master_for`` has created. ``facts``: settings of its connections."""
    from holdfast._net import sentinel  # imported here, because most programs use no Sentinel

    pool = client.connection_pool
    if not pool.is_master:
        raise ConfigError(
            "client: this client reads from replicas, which may not know the holder of a lock yet; use Sentinel.master_for",
            parameter="client",
        )
    return sentinel.of_client(client, facts, from_client)


def is_async(client: object) -> bool:
    """Return True for an asyncio client."""
    import inspect  # imported here, because the command line passes a URL, and does not need it

    return inspect.iscoroutinefunction(getattr(client, "execute_command", None))


def check_api(client: object, api: Literal["sync", "asyncio"]) -> None:
    """Raise ConfigError for an asyncio client passed to the sync API, or a sync client passed to the asyncio API."""
    if hasattr(client, "execute_command") and is_async(client) != (api == "asyncio"):
        here, there = ("holdfast", "holdfast.aio") if api == "sync" else ("holdfast.aio", "holdfast")
        raise ConfigError(
            f"client: {here} needs {'an asyncio' if api == 'asyncio' else 'a synchronous'} client; for this one use {there}",
            parameter="client",
        )


def are_several(client: object) -> TypeGuard[Sequence[object] | Mapping[str, object]]:
    """Return True if ``client`` is a list or mapping of independent servers, as it may be passed to `holdfast.Redlock`."""
    return isinstance(client, list | tuple | Mapping)


def listed(client: object) -> list[object]:
    """Return the clients and URLs in a list or mapping of servers, or ``client`` alone in a list."""
    if not are_several(client):
        return [client]
    return list(client.values() if isinstance(client, Mapping) else client)


def on_one_server(what: str, why: str, instead: str, parameter: str = "client") -> ConfigError:
    """Return the error for several servers passed to the class ``what``, which works on one server only.

    ``why``: reason for this limit. ``instead``: advice what to use. ``parameter``: name of the parameter with the servers.
    """
    return ConfigError(
        f"{parameter}: {what} needs one server, not several independent ones: {why}; {instead}", parameter=parameter
    )


def one_place(client: object, what: str = "this object") -> object:
    """Return ``client`` unchanged. Raises ConfigError if it is a list or mapping of independent servers.

    The answers of independent servers could contradict each other. ``what``: subject of the error message.
    """
    if are_several(client):
        raise on_one_server(
            what,
            "if only some of them record a change, nobody can tell whether it happened",
            "use holdfast.Redlock for a lock on several servers; for anything else, pass one client of Sentinels or of a "
            "Cluster, which go on working when a server fails",
        )
    return client


def resolve(client: object, api: Literal["sync", "asyncio"] | None) -> Endpoint:
    """Return the endpoint of ``client``: a client, a URL, or an object with a ``url``, such as a server of `holdfast.testing`.

    Raises ConfigError if it is none of these, or if it is a client for the other API than ``api`` (None: either API).
    """
    kind = kind_of(client)
    if kind == "servers":
        one_place(client)
    if kind == "URL":
        return from_url(getattr(client, "url", client))  # type: ignore[arg-type]  # `kind_of` has seen that it is a str
    if api is not None:
        check_api(client, api)
    return _of_kind(client, check_usable(client, kind))
