"""Clients of redis-py that holdfast creates for a URL. A transaction needs one, because it calls the client's methods."""

from __future__ import annotations

import importlib
from typing import Any, Literal

from holdfast._net.endpoint import Endpoint
from holdfast._net.sentinel import Sentinel
from holdfast.errors import ConfigError


def open_client(endpoint: Endpoint, api: Literal["sync", "asyncio"], *, decode: bool = False) -> Any:
    """Return a new redis-py client for an endpoint: one server, or the primary that Sentinels name.

    ``decode``: whether the client returns str instead of bytes. Raises ConfigError if redis-py is not installed.
    """
    package = "redis" if api == "sync" else "redis.asyncio"
    try:
        redis = importlib.import_module(package)
    except ModuleNotFoundError:
        raise ConfigError(
            "client: a transaction with a URL needs redis-py: pip install redis, or pass a client of valkey-py",
            parameter="client",
        ) from None
    options = {**_options(endpoint, package), "decode_responses": decode}
    if isinstance(endpoint.finder, Sentinel):
        watchers = endpoint.finder.watchers
        sentinels = importlib.import_module(f"{package}.sentinel").Sentinel(
            [(watcher.host, watcher.port) for watcher in watchers], sentinel_kwargs=_options(watchers[0], package), **options
        )
        return sentinels.master_for(endpoint.finder.service)
    if endpoint.path is not None:
        return redis.Redis(unix_socket_path=endpoint.path, **options)
    return redis.Redis(host=endpoint.host, port=endpoint.port, **options)


def closable(client: Any) -> list[Any]:
    """Return the clients to close: ``client``, and its clients for the Sentinels, which ``client.close()`` leaves open."""
    manager = getattr(client.connection_pool, "sentinel_manager", None)
    return [client, *(manager.sentinels if manager is not None else ())]


def _options(endpoint: Endpoint, package: str) -> dict[str, Any]:
    from redis.backoff import NoBackoff

    retry = importlib.import_module(f"{package}.retry")
    tls: dict[str, Any] = {} if endpoint.tls is None else {"ssl": True, **dict(endpoint.tls)}
    options = {
        "db": endpoint.db,
        "username": endpoint.username,
        "password": endpoint.password,
        "credential_provider": endpoint.credentials,
        "socket_timeout": endpoint.timeout,
        "socket_connect_timeout": endpoint.timeout,
        # One retry, because the server or a proxy may have closed an idle connection of the pool.
        "retry": retry.Retry(NoBackoff(), 1),
        **tls,
    }
    return {name: value for name, value in options.items() if value is not None}
