"""The address of a server, the login, and the settings of its connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

DEFAULT_TIMEOUT = 5.0
"""Seconds to wait for an answer, if the user's client sets no ``socket_timeout``."""


class Finder(Protocol):
    """An object that finds the server to connect to: the primary that Sentinels name, or the owner of a Cluster slot.

    The server may be another one each time.
    """

    @property
    def address(self) -> str:
        """Return the address for messages, without a password."""

    def find(self, timeout: float) -> Endpoint:
        """Return the server to connect to now. This may ask other servers, and block for up to ``timeout`` seconds. Raises
        NotSent if no server answers, and Refused if the servers refuse the question or do not know the answer."""


class Topology(Protocol):
    """The owners of a Cluster's slots, as an interface for code that sends requests. `_net.cluster` implements it."""

    @property
    def known(self) -> bool:
        """Return True if this process has learned the owners of the slots. They may have changed since then."""

    @property
    def sharded(self) -> bool:
        """Return True if the servers of the Cluster have sharded pub/sub."""

    def owner(self, slot: int) -> Endpoint | None:
        """Return the server that owns a slot, as far as is known; None if unknown."""

    def primaries(self) -> Sequence[Endpoint]:
        """Return all primaries that own slots, as far as is known."""

    def shard(self, slot: int) -> Endpoint:
        """Return the endpoint to use for the locks of a slot. It may change when the slot moves to another server."""

    def refresh(self, timeout: float) -> None:
        """Ask the servers for the owners of the slots. Blocks for up to ``timeout`` seconds. Raises NotSent if no server
        answers, and Refused if they refuse the command."""


class Handshake:
    """The commands that open a connection, such as AUTH.

    Error reporters send the local variables of each stack frame. A list of commands would show them the password, and the
    `repr` of this object does not.
    """

    __slots__ = ("_commands",)

    def __init__(self) -> None:
        self._commands: list[tuple[str, ...]] = []

    def append(self, command: tuple[str, ...]) -> None:
        self._commands.append(command)

    def __len__(self) -> int:
        return len(self._commands)

    def packed(self, pack: Callable[..., bytes]) -> bytes:
        return b"".join(pack(*command) for command in self._commands)


class Endpoint:
    """One server: its address, login and connection settings.

    All locks with equal settings share one endpoint object (see `interned`), and thereby share connections.
    """

    cluster: Topology | None = None
    """Topology of the Cluster, if the endpoint is a Cluster or one of its servers."""

    __slots__ = (
        "client",
        "credentials",
        "db",
        "finder",
        "host",
        "local",
        "password",
        "path",
        "port",
        "timeout",
        "tls",
        "username",
    )

    host: str
    port: int
    path: str | None
    local: str | None
    db: int
    username: str | None
    password: str | None
    credentials: Any
    tls: tuple[tuple[str, Any], ...] | None
    timeout: float
    client: Any
    finder: Finder | None

    def __init__(
        self,
        *,
        host: str = "localhost",
        port: int = 6379,
        path: str | None = None,
        local: str | None = None,
        db: int = 0,
        username: str | None = None,
        password: str | None = None,
        credentials: Any = None,
        tls: tuple[tuple[str, Any], ...] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        client: Any = None,
        finder: Finder | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.path = path
        """Path of the server's Unix socket, used instead of host and port; None: use host and port."""
        self.local = local
        """``local://`` URL of a server that is started at its first use, with the socket ``path``; None: another server."""
        self.db = db
        self.username = username
        self.password = password
        self.credentials = credentials
        """Credential provider. It is asked for the user name and password whenever a connection is opened."""
        self.tls = tls
        self.timeout = timeout
        self.client = client
        """The user's client, if requests must be sent by calling its methods; None: holdfast opens its own connections."""
        self.finder = finder
        """Finder that is asked for the server whenever a connection is opened; None: connect to this endpoint's host and
        port."""

    def __repr__(self) -> str:
        return f"<Endpoint {self.address}>"

    @property
    def address(self) -> str:
        if self.finder is not None:
            return self.finder.address
        where = self.local or (f"unix:{self.path}" if self.path else f"{self.host}:{self.port}")
        return f"{where}/{self.db}" if self.db else where

    def is_among(self, endpoints: Sequence[Endpoint]) -> bool:
        """Return True if this is one of these endpoints, or a server of the Cluster of one of them."""
        return any(self is one or (self.cluster is not None and self.cluster is one.cluster) for one in endpoints)

    def handshake(self) -> Handshake:
        commands = Handshake()
        user, password = self.username, self.password
        if self.credentials is not None:
            found = self.credentials.get_credentials()
            user, password = found if len(found) == 2 else (None, found[0])
            del found
        if user or password is not None:
            commands.append(("AUTH", user, password or "") if user else ("AUTH", password or ""))
        if self.db:
            commands.append(("SELECT", str(self.db)))
        if self.tls is not None and not commands:
            # A server rejects our certificate only after the handshake. If the first request were that of a lock, its outcome
            # would be unknown, and the driver would repeat it.
            commands.append(("PING",))
        return commands

    def ssl_context(self) -> ssl.SSLContext | None:
        if self.tls is None:
            return None
        from holdfast._net import tls

        return tls.context(dict(self.tls))

    def why(self, error: BaseException) -> str:
        if self.tls is None:
            return str(error)
        from holdfast._net import tls

        return tls.why(error, self.host)


TLS_OPTIONS = {
    "ssl_keyfile", "ssl_certfile", "ssl_password", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_path", "ssl_ca_data",
    "ssl_check_hostname", "ssl_min_version", "ssl_ciphers",
}  # fmt: skip

endpoints: dict[tuple[Any, ...], Endpoint] = {}


def interned(**facts: Any) -> Endpoint:
    """Return the endpoint with these attributes. Calls with the same attributes return the same object."""
    endpoint = Endpoint(**facts)
    key = tuple(id(endpoint.credentials) if name == "credentials" else getattr(endpoint, name) for name in Endpoint.__slots__)
    return endpoints.setdefault(key, endpoint)
