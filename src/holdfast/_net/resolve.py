"""Finds the server that a user means: by a URL, or by a client that already exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeGuard

from holdfast._log import logger
from holdfast._net.endpoint import DEFAULT_TIMEOUT, TLS_OPTIONS, Endpoint, endpoints, interned
from holdfast._net.url import from_url
from holdfast.errors import ConfigError

log = logger("holdfast.wire")


def _of_foreign(client: Any, what: str) -> Endpoint:
    """One whose every call is the client's; the same for all clients that share a pool."""
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
        import inspect  # here: the command line does without

        log.info(
            "%s: holdfast cannot open connections of %s itself and uses the client's own calls: locks compete for its "
            "connections, each request takes longer, and %s",
            endpoint.address,
            what,
            "leases are renewed only while its event loop runs"
            if inspect.iscoroutinefunction(client.execute_command)
            else "time limits are the client's",
        )
    return endpoint


def _is_foreign(thing: type) -> bool:
    """A subclass may connect in a way of its own."""
    return thing.__module__.split(".")[0] not in {"redis", "valkey"}


def from_client(client: Any) -> Endpoint:
    """Of a ``redis.Redis``, ``redis.asyncio.Redis``, their clusters, or their namesakes of valkey-py."""
    pool = getattr(client, "connection_pool", None)
    options = getattr(pool, "connection_kwargs", None)
    if hasattr(client, "nodes_manager"):
        return _of_cluster(client)
    if not isinstance(options, dict):
        raise ConfigError(
            "client must be a redis.Redis or RedisCluster, a valkey.Valkey or ValkeyCluster, one of their asyncio namesakes "
            f"or a URL, not {type(client).__module__}.{type(client).__name__}",
            parameter="client",
        )
    opens: type = pool.connection_class  # type: ignore[union-attr]
    kinds = {cls.__name__ for cls in opens.__mro__}
    known = kinds & {"Connection", "SSLConnection", "UnixDomainSocketConnection"} and not _is_foreign(opens)
    if not known or _is_foreign(type(pool)) or options.get("redis_connect_func"):
        return _of_foreign(client, f"{opens.__name__} and {type(pool).__name__}")
    facts = {"db": int(options.get("db") or 0), **_login(options, is_tls="SSLConnection" in kinds)}
    if hasattr(pool, "sentinel_manager"):
        return _of_sentinel(client, facts)
    return interned(
        host=options.get("host") or "localhost", port=int(options.get("port") or 6379), path=options.get("path"), **facts
    )


def _login(options: dict[str, Any], *, is_tls: bool) -> dict[str, Any]:
    return {
        "username": options.get("username"),
        "password": options.get("password"),
        "credentials": options.get("credential_provider"),
        "tls": tuple(sorted((k, v) for k, v in options.items() if k in TLS_OPTIONS and v is not None)) if is_tls else None,
        "timeout": float(options.get("socket_timeout") or DEFAULT_TIMEOUT),
    }


def _of_cluster(client: Any) -> Endpoint:
    """Of a ``redis.RedisCluster``, its asyncio namesake, or those of valkey-py: where it has started."""
    from holdfast._net.cluster import cluster_at

    nodes = client.nodes_manager
    options = nodes.connection_kwargs
    opens = options.get("connection_class")
    if _is_foreign(type(client)) or (opens is not None and _is_foreign(opens)):
        raise ConfigError(
            f"client: the connections of {type(client).__name__} cannot be opened without it; "
            "give holdfast a redis.RedisCluster, or a URL redis+cluster://host:port",
            parameter="client",
        )
    is_tls = bool(options.get("ssl")) or (opens is not None and "SSLConnection" in {cls.__name__ for cls in opens.__mro__})
    seeds = [(str(node.host), int(node.port)) for node in nodes.startup_nodes.values()]
    return cluster_at(seeds, remap=getattr(nodes, "address_remap", None), **_login(options, is_tls=is_tls))


def _of_sentinel(client: Any, facts: dict[str, Any]) -> Endpoint:
    """Of a client made by ``Sentinel.master_for``."""
    from holdfast._net import sentinel  # here: most have none

    pool = client.connection_pool
    if not pool.is_master:
        raise ConfigError(
            "client: it reads from replicas, which may not know yet who holds a lock; use the Sentinel's master_for",
            parameter="client",
        )
    return sentinel.of_client(client, facts, from_client)


def check_face(client: object, face: Literal["sync", "asyncio"]) -> None:
    """Refuse a client of the other face. Raises ConfigError."""
    import inspect  # here: the command line, which has a URL, does without

    call = getattr(client, "execute_command", None)
    is_async = inspect.iscoroutinefunction(call)
    if call is not None and is_async != (face == "asyncio"):
        here, there = ("holdfast", "holdfast.aio") if face == "sync" else ("holdfast.aio", "holdfast")
        raise ConfigError(
            f"client: {here} takes {'an asyncio' if face == 'asyncio' else 'a synchronous'} client; for this one use {there}",
            parameter="client",
        )


def are_several(client: object) -> TypeGuard[Sequence[object] | Mapping[str, object]]:
    """Whether these are several servers: a lock over them is a `holdfast.Redlock`, and little else goes by them."""
    return isinstance(client, list | tuple | Mapping)


def on_one_server(what: str, why: str, instead: str, parameter: str = "client") -> ConfigError:
    """The error for what there is on one server only, where several were given."""
    return ConfigError(
        f"{parameter}: {what} stands on one server, not on several independent ones: {why}; {instead}", parameter=parameter
    )


def one_place(client: object, what: str = "what is used here") -> object:
    """The client, unless these are several: refused for the reason that nearly all have. Raises ConfigError."""
    if are_several(client):
        raise on_one_server(
            what,
            "what some of them know and others do not has neither happened nor not",
            "a lock over several servers is a holdfast.Redlock; for anything else that is to outlive a server, give Sentinels "
            "or a Cluster, which are one client",
        )
    return client


def resolve(client: object, face: Literal["sync", "asyncio"]) -> Endpoint:
    """The server meant by ``client`` (a client, a URL, or something that has one, as a server of `holdfast.testing`), for the
    given face. Raises ConfigError."""
    one_place(client)
    url = getattr(client, "url", client)
    if isinstance(url, str):
        return from_url(url)
    check_face(client, face)
    return from_client(client)
