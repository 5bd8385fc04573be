"""Types of the argument ``client`` for type checkers: one type for the sync API, and one for the asyncio API.

Each type accepts a URL or a client for its own API, and nothing else. A client of redis-py is recognised by its class. A client
of valkey-py, which need not be installed, or of another library is recognised by its methods. When the program runs,
`holdfast._net.resolve` finds the server of a client.
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

        def execute_command(self, *args: Any, **options: Any) -> Any:
            """Send a command, and return the reply."""

        def __enter__(self) -> Any: ...

        def __exit__(self, kind: object, error: object, trace: object, /) -> Any: ...

    class AsyncCommands(Protocol):
        """An asyncio client of valkey-py, or one with the same methods."""

        def execute_command(self, *args: Any, **options: Any) -> Any:
            """Send a command, and return an awaitable of the reply."""

        async def __aenter__(self) -> Any: ...

        async def __aexit__(self, kind: object, error: object, trace: object, /) -> Any: ...

    class HasUrl(Protocol):
        """An object with a ``url``, such as a server of `holdfast.testing`."""

        @property
        def url(self) -> str:
            """The URL of the server."""

    class Connected(Protocol):
        """A connection of `holdfast.connect`. Some of its methods call functions of holdfast, with the connection as the
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
"""Clients of several servers, which may have names."""
