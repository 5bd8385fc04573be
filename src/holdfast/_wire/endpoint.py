"""Where a server is and how to log in: read from a URL, or from the client the user already has."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, Literal

from holdfast._log import logger
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    import ssl

log = logger("holdfast.wire")

DEFAULT_TIMEOUT = 5.0
"""Seconds for an answer, where the client sets none. The lock's own time-out is usually shorter."""


class Endpoint:
    """One server. The same object for everybody who means the same one (see `_shared`): they share its connections."""

    __slots__ = ("client", "credentials", "db", "host", "local", "password", "path", "port", "timeout", "tls", "username")

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

    def __repr__(self) -> str:
        return f"<Endpoint {self.address}>"

    @property
    def address(self) -> str:
        """For messages: never with a password."""
        where = self.local or (f"unix:{self.path}" if self.path else f"{self.host}:{self.port}")
        return f"{where}/{self.db}" if self.db else where

    def handshake(self) -> list[tuple[str, ...]]:
        """The commands that open a connection, if any."""
        commands: list[tuple[str, ...]] = []
        user, password = self.username, self.password
        if self.credentials is not None:
            found = self.credentials.get_credentials()
            user, password = found if len(found) == 2 else (None, found[0])
        if user or password is not None:
            commands.append(("AUTH", user, password or "") if user else ("AUTH", password or ""))
        if self.db:
            commands.append(("SELECT", str(self.db)))
        return commands

    def ssl_context(self) -> ssl.SSLContext | None:
        """Certificate and host name are verified unless the client's settings say otherwise."""
        if self.tls is None:
            return None
        import ssl

        options = dict(self.tls)
        context = ssl.create_default_context(
            cafile=options.get("ssl_ca_certs"), capath=options.get("ssl_ca_path"), cadata=options.get("ssl_ca_data")
        )
        reqs = options.get("ssl_cert_reqs", "required")
        context.check_hostname = bool(options.get("ssl_check_hostname", True)) and reqs not in {
            "none",
            None,
            ssl.CERT_NONE,
        }
        if reqs in {"none", None, ssl.CERT_NONE}:
            context.verify_mode = ssl.CERT_NONE
        elif reqs in {"optional", ssl.CERT_OPTIONAL}:
            context.verify_mode = ssl.CERT_OPTIONAL
        if options.get("ssl_certfile"):
            context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"), options.get("ssl_password"))
        if options.get("ssl_min_version"):
            context.minimum_version = options["ssl_min_version"]
        if options.get("ssl_ciphers"):
            context.set_ciphers(options["ssl_ciphers"])
        return context


_SCHEMES = {"redis", "rediss", "valkey", "valkeys", "unix", "local"}
_TLS_OPTIONS = {
    "ssl_keyfile", "ssl_certfile", "ssl_password", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_path", "ssl_ca_data",
    "ssl_check_hostname", "ssl_min_version", "ssl_ciphers",
}  # fmt: skip
_URL_OPTIONS = {
    "db",
    "username",
    "password",
    "socket_timeout",
    "ssl_cert_reqs",
    "ssl_ca_certs",
    "ssl_certfile",
    "ssl_keyfile",
}


_endpoints: dict[tuple[Any, ...], Endpoint] = {}


def _shared(**facts: Any) -> Endpoint:
    endpoint = Endpoint(**facts)
    key = tuple(id(endpoint.credentials) if name == "credentials" else getattr(endpoint, name) for name in Endpoint.__slots__)
    return _endpoints.setdefault(key, endpoint)


def _of_foreign(client: Any, what: str) -> Endpoint:
    """One whose every call is the client's; the same for all clients that share a pool."""
    key = ("client", id(client.connection_pool))
    endpoint = _endpoints.get(key)
    if endpoint is None:
        options = client.connection_pool.connection_kwargs
        endpoint = _endpoints[key] = Endpoint(
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
    """What was subclassed may connect in a way of its own."""
    return thing.__module__.split(".")[0] not in {"redis", "valkey"}


def _bad_url(why: str) -> ConfigError:
    return ConfigError(f"url: {why}", parameter="url")


def _number(text: str, what: str, kind: type[int | float]) -> Any:
    try:
        value = kind(text)
    except ValueError:
        raise _bad_url(f"{what} must be a number") from None
    if not 0 <= value < math.inf:
        raise _bad_url(f"{what} must be a number from 0")
    return value


def from_url(url: str) -> Endpoint:
    """``redis://[user:password@]host[:port][/db]``, ``rediss://`` (TLS), ``unix://[user:password@]/path[?db=n]``, ``local://``."""
    scheme, found, rest = url.partition("://")
    if not found or scheme not in _SCHEMES:
        raise _bad_url(f"it must start with one of {', '.join(sorted(s + '://' for s in _SCHEMES))}")
    if scheme == "local":
        from holdfast._servers import local

        return _shared(path=os.fspath(local.socket_path(url)), local=url)
    if rest.count("@") > 1:
        raise _bad_url("an @ inside a user name or password is written %40")
    credentials, _, place = rest.rpartition("@")
    if "#" in rest or any(c in credentials for c in "/?[]"):
        # Said without a word of it: this may be the rest of a password.
        raise _bad_url("special characters in a user name or password are written as %XX: # is %23, ? is %3F, / is %2F")
    user, _, password = credentials.partition(":")
    place, _, query = place.partition("?")
    place, _, path = place.partition("/")
    host, port = _host_and_port(place)
    options = _options(query) if query else {}
    unknown = set(options) - _URL_OPTIONS
    if unknown:
        raise _bad_url(f"unknown option {min(unknown)!r}; known are {', '.join(sorted(_URL_OPTIONS))}")
    common: dict[str, Any] = {
        "username": _unquoted(user) or options.get("username"),
        "password": _unquoted(password) or options.get("password"),
        "db": _number(options.get("db", "0"), "db", int),
        "timeout": _number(options.get("socket_timeout", "0"), "socket_timeout", float) or DEFAULT_TIMEOUT,
    }
    if scheme == "unix":
        if not path:
            raise _bad_url("unix:// needs a path")
        return _shared(path="/" + _unquoted(path), **common)
    if path.strip("/"):
        common["db"] = _number(path.strip("/"), "the database after the host", int)
    tls = None
    if scheme in {"rediss", "valkeys"}:
        tls = tuple(sorted((k, v) for k, v in options.items() if k in _TLS_OPTIONS))
    return _shared(host=host or "localhost", port=port or 6379, tls=tls, **common)


def _host_and_port(place: str) -> tuple[str, int]:
    """``host``, ``host:port``, ``[address]:port``; empty and 0 for what is not there."""
    if place.startswith("["):
        host, closed, rest = place[1:].partition("]")
        colon, port = rest[:1], rest[1:]
    else:
        closed = "]"
        host, colon, port = place.partition(":")
    digits = len(port) <= 5 and port.isascii() and port.isdecimal()
    number = int(port) if digits else 0
    understood = closed and colon in {"", ":"} and (digits or not port) and number <= 65535
    if not understood or not host.isprintable() or any(c in host for c in "[]"):
        raise _bad_url("host or port cannot be read")
    name, percent, interface = host.partition("%")  # [fe80::1%eth0]
    return name.lower() + percent + interface, number


def _options(query: str) -> dict[str, str]:
    from urllib.parse import parse_qsl  # here: most URLs have none, and the import takes longer than a lock

    return dict(parse_qsl(query, keep_blank_values=True))


def _unquoted(text: str) -> str:
    if "%" not in text:
        return text
    from urllib.parse import unquote

    return unquote(text)


def from_client(client: Any) -> Endpoint:
    """Of a ``redis.Redis``, ``redis.asyncio.Redis`` or their namesakes of valkey-py."""
    pool = getattr(client, "connection_pool", None)
    options = getattr(pool, "connection_kwargs", None)
    if not isinstance(options, dict) or hasattr(client, "nodes_manager"):
        raise ConfigError(
            f"client must be a redis.Redis, redis.asyncio.Redis, valkey.Valkey, valkey.asyncio.Valkey or a URL, "
            f"not {type(client).__module__}.{type(client).__name__}",
            parameter="client",
        )
    if hasattr(pool, "service_name"):
        raise ConfigError("client: Sentinel clients are not supported yet", parameter="client")
    opens: type = pool.connection_class  # type: ignore[union-attr]
    kinds = {cls.__name__ for cls in opens.__mro__}
    known = kinds & {"Connection", "SSLConnection", "UnixDomainSocketConnection"} and not _is_foreign(opens)
    if not known or _is_foreign(type(pool)) or options.get("redis_connect_func"):
        return _of_foreign(client, f"{opens.__name__} and {type(pool).__name__}")
    is_tls = "SSLConnection" in kinds
    timeout = options.get("socket_timeout")
    return _shared(
        host=options.get("host") or "localhost",
        port=int(options.get("port") or 6379),
        path=options.get("path"),
        db=int(options.get("db") or 0),
        username=options.get("username"),
        password=options.get("password"),
        credentials=options.get("credential_provider"),
        tls=tuple(sorted((k, v) for k, v in options.items() if k in _TLS_OPTIONS and v is not None)) if is_tls else None,
        timeout=float(timeout or DEFAULT_TIMEOUT),
    )


def resolve(client: object, face: Literal["sync", "asyncio"]) -> Endpoint:
    """The server meant by ``client`` (a client, a URL, or something that has one, as a server of `holdfast.testing`), for a
    lock of the given face."""
    url = getattr(client, "url", client)
    if isinstance(url, str):
        return from_url(url)
    import inspect  # here: the command line, which has a URL, does without

    call = getattr(client, "execute_command", None)
    is_async = inspect.iscoroutinefunction(call)
    if call is not None and is_async != (face == "asyncio"):
        here, there = ("holdfast", "holdfast.aio") if face == "sync" else ("holdfast.aio", "holdfast")
        raise ConfigError(
            f"client: {here} takes {'an asyncio' if face == 'asyncio' else 'a synchronous'} client; for this one use {there}",
            parameter="client",
        )
    return from_client(client)
