"""The address of a server, and how to log in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

DEFAULT_TIMEOUT = 5.0
"""Seconds for an answer, where the client sets none. The lock's own time-out is usually shorter."""


class Finder(Protocol):
    """Knows which server is meant, where that changes: the primary behind Sentinel, the owner of a slot."""

    @property
    def address(self) -> str:
        """For messages: never with a password."""

    def find(self, timeout: float) -> Endpoint:
        """The server to connect to now; may ask others, and block, for ``timeout`` seconds at most. Raises NotSent, Refused."""


class Topology(Protocol):
    """A Cluster (`_net.cluster`), as those see it who use its servers."""

    @property
    def known(self) -> bool:
        """It is known who owns which slot."""

    @property
    def sharded(self) -> bool:
        """Its servers have sharded pub/sub."""

    def owner(self, slot: int) -> Endpoint | None:
        """Return the owner of a slot, as far as is known."""

    def primaries(self) -> Sequence[Endpoint]:
        """All that own slots, as far as is known."""

    def shard(self, slot: int) -> Endpoint:
        """Return the server that looks after the locks of a slot: the same one for as long as possible."""

    def refresh(self, timeout: float) -> None:
        """Ask who owns what, for ``timeout`` seconds at most. Blocks; raises NotSent, Refused."""


class Handshake:
    """The commands that open a connection. Not a list: error reporters show what the variables of a frame contain, and one of
    these is a password."""

    __slots__ = ("_commands",)

    def __init__(self) -> None:
        self._commands: list[tuple[str, ...]] = []

    def append(self, command: tuple[str, ...]) -> None:
        self._commands.append(command)

    def __len__(self) -> int:
        return len(self._commands)

    def packed(self, pack: Callable[..., bytes]) -> bytes:
        """Return all commands as bytes; ``pack`` encodes each of them."""
        return b"".join(pack(*command) for command in self._commands)


class Endpoint:
    """One server. The same object for everybody who means the same one (see `interned`): they share its connections."""

    cluster: Topology | None = None
    """The Cluster's topology, where the endpoint is a Cluster or a part of one."""

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
        """Unix socket, instead of host and port."""
        self.local = local
        """URL of this machine's own server, started when needed; its socket is ``path``."""
        self.db = db
        self.username = username
        self.password = password
        self.credentials = credentials
        """A credential provider: asked for user name and password at each connection."""
        self.tls = tls
        self.timeout = timeout
        self.client = client
        """A client whose own calls are to be used, because its connections cannot be opened without it."""
        self.finder = finder
        """Asked for the server at each connection, instead of host and port."""

    def __repr__(self) -> str:
        return f"<Endpoint {self.address}>"

    @property
    def address(self) -> str:
        """For messages: never with a password."""
        if self.finder is not None:
            return self.finder.address
        where = self.local or (f"unix:{self.path}" if self.path else f"{self.host}:{self.port}")
        return f"{where}/{self.db}" if self.db else where

    def handshake(self) -> Handshake:
        """The commands that open a connection, if any."""
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
            # Whether it accepts our certificate, a server says only after the handshake: had it been a request of a lock, that
            # would be unknown, and asked again.
            commands.append(("PING",))
        return commands

    def ssl_context(self) -> ssl.SSLContext | None:
        """Certificate and host name are verified unless the client's settings say otherwise."""
        if self.tls is None:
            return None
        from holdfast._net import tls

        return tls.context(dict(self.tls))

    def why(self, error: BaseException) -> str:
        """Return the error that tells of a failed connection."""
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
    """The endpoint with these facts: the same object each time."""
    endpoint = Endpoint(**facts)
    key = tuple(id(endpoint.credentials) if name == "credentials" else getattr(endpoint, name) for name in Endpoint.__slots__)
    return endpoints.setdefault(key, endpoint)
