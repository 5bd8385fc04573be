"""Types of the argument ``client`` for type checkers: one type for the sync API, and one for the asyncio API.

Each type accepts a URL or a client for its own API. It recognises a client of redis-py by its class, and other clients, such as
those of valkey-py, by their methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:  # importing redis takes longer than the rest of holdfast
    import redis
    import redis.asyncio
    import redis.asyncio.cluster
    import redis.cluster

    class SyncCommands(Protocol):
        """A synchronous client of valkey-py, or one with the same methods."""

        def execute_command(self, *args: Any, **options: Any) -> Any: ...

        def __enter__(self) -> Any: ...

        def __exit__(self, kind: object, error: object, trace: object, /) -> Any: ...

    class AsyncCommands(Protocol):
        """An asyncio client of valkey-py, or one with the same methods."""

        def execute_command(self, *args: Any, **options: Any) -> Any: ...

        async def __aenter__(self) -> Any: ...

        async def __aexit__(self, kind: object, error: object, trace: object, /) -> Any: ...

    class HasUrl(Protocol):
        """An object with a ``url``, such as a server of `holdfast.testing`."""

        @property
        def url(self) -> str: ...

    class Connected(Protocol):
        """A connection of `holdfast.connect`. Some of its methods call functions of holdfast, and pass the connection as the
        client."""

        _endpoints: list[Any]

    SyncClient: TypeAlias = str | redis.Redis | redis.cluster.RedisCluster | SyncCommands | HasUrl
    """A synchronous client of redis-py or valkey-py, or a URL."""

    AsyncClient: TypeAlias = str | redis.asyncio.Redis | redis.asyncio.cluster.RedisCluster | AsyncCommands | HasUrl
    """An asyncio client of redis-py or valkey-py, or a URL."""

else:
    SyncClient = AsyncClient = Connected = Any

Client = TypeVar("Client")
"""`SyncClient` or `AsyncClient`, in classes that both APIs share."""

Servers: TypeAlias = Sequence[Client] | Mapping[str, Client]
"""Clients of several servers. In a mapping, each has a name."""
