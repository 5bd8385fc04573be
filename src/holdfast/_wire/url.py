"""Servers by their URL, read strictly: what is not understood is refused, and nothing of it repeated."""

from __future__ import annotations

import math
import os
from typing import Any

from holdfast._wire.endpoint import DEFAULT_TIMEOUT, TLS_OPTIONS, Endpoint, interned
from holdfast.errors import ConfigError

_BY_SENTINEL = "+sentinel"

_SCHEMES = {"redis", "rediss", "valkey", "valkeys", "unix", "local", "redis+sentinel", "rediss+sentinel"}
_SCHEMES |= {"valkey+sentinel", "valkeys+sentinel"}
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


_SENTINEL_OPTIONS = {"sentinel_username", "sentinel_password"}
"""To log in to the Sentinels themselves."""


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
    """``redis://[user:password@]host[:port][/db]``, ``rediss://`` (TLS), ``unix://[user:password@]/path[?db=n]``, ``local://``;
    ``redis+sentinel://[user:password@]host[:port],host[:port]/service[/db]``, ``rediss+sentinel://``."""
    scheme, found, rest = url.partition("://")
    if not found or scheme not in _SCHEMES:
        raise _bad_url(f"it must start with one of {', '.join(sorted(s + '://' for s in _SCHEMES))}")
    if scheme == "local":
        from holdfast._servers import local

        return interned(path=os.fspath(local.socket_path(url)), local=url)
    if rest.count("@") > 1:
        raise _bad_url("an @ inside a user name or password is written %40")
    credentials, _, place = rest.rpartition("@")
    if "#" in rest or any(c in credentials for c in "/?[]"):
        # Said without a word of it: this may be the rest of a password.
        raise _bad_url("special characters in a user name or password are written as %XX: # is %23, ? is %3F, / is %2F")
    user, _, password = credentials.partition(":")
    place, _, query = place.partition("?")
    place, _, path = place.partition("/")
    watched = scheme.endswith(_BY_SENTINEL)
    places = [_host_and_port(one) for one in (place.split(",") if watched else [place])]
    options = _options(query, _URL_OPTIONS | _SENTINEL_OPTIONS if watched else _URL_OPTIONS) if query else {}
    common: dict[str, Any] = {
        "username": _unquoted(user) or options.get("username"),
        "password": _unquoted(password) or options.get("password"),
        "db": _number(options.get("db", "0"), "db", int),
        "timeout": _number(options.get("socket_timeout", "0"), "socket_timeout", float) or DEFAULT_TIMEOUT,
    }
    if scheme == "unix":
        if not path:
            raise _bad_url("unix:// needs a path")
        return interned(path="/" + _unquoted(path), **common)
    common["tls"] = None
    if scheme.removesuffix(_BY_SENTINEL) in {"rediss", "valkeys"}:
        common["tls"] = tuple(sorted((k, v) for k, v in options.items() if k in TLS_OPTIONS))
    if watched:
        return _by_sentinel(path, places, common, options)
    if path.strip("/"):
        common["db"] = _number(path.strip("/"), "the database after the host", int)
    ((host, port),) = places
    return interned(host=host or "localhost", port=port or 6379, **common)


def _by_sentinel(path: str, places: list[tuple[str, int]], common: dict[str, Any], options: dict[str, str]) -> Endpoint:
    from holdfast._wire import sentinel  # here: most have none

    service, _, db = path.partition("/")
    if not service:
        raise _bad_url("the name of the service, as the Sentinels call it, stands behind their addresses: host,host/service")
    if db:
        common["db"] = _number(db, "the database after the service", int)
    login = {what: options.get(f"sentinel_{what}") for what in ("username", "password")}
    return sentinel.of_url(_unquoted(service), places, {"credentials": None, **common}, login)


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


def _options(query: str, known: set[str]) -> dict[str, str]:
    from urllib.parse import parse_qsl  # here: most URLs have none, and the import takes longer than a lock

    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = set(options) - known
    if unknown:
        raise _bad_url(f"unknown option {min(unknown)!r}; known are {', '.join(sorted(known))}")
    return options


def _unquoted(text: str) -> str:
    if "%" not in text:
        return text
    from urllib.parse import unquote

    return unquote(text)
