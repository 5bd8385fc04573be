"""Parse server URLs. An unknown option is refused, and no error shows a part of the URL that may be a password."""

from __future__ import annotations

import os
import re
import warnings
from typing import Any

from holdfast._log import of_the_user
from holdfast._net.endpoint import DEFAULT_TIMEOUT, TLS_OPTIONS, Endpoint, interned
from holdfast.errors import ConfigError, HoldfastWarning

_BY_SENTINEL = "+sentinel"
_CLUSTER = "+cluster"

_SCHEMES = {"redis", "rediss", "valkey", "valkeys", "unix", "local"}
_SCHEMES |= {f"{plain}{kind}" for plain in ("redis", "rediss", "valkey", "valkeys") for kind in (_BY_SENTINEL, _CLUSTER)}
_URL_OPTIONS = {
    "db",
    "username",
    "password",
    "socket_timeout",
    "ssl_cert_reqs",
    "ssl_ca_certs",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_check_hostname",
}
_CHOICES: dict[str, dict[str, Any]] = {
    "ssl_cert_reqs": {"required": "required", "optional": "optional", "none": "none"},
    "ssl_check_hostname": {"true": True, "false": False},
}


_SENTINEL_OPTIONS = {"sentinel_username", "sentinel_password"}
"""URL options with the user name and the password for the Sentinels themselves."""


def _bad_url(why: str) -> ConfigError:
    return ConfigError(f"url: {why}", parameter="url")


def no_scheme(url: str, advice: str = "") -> str:
    """Return what is wrong with a URL that has no known scheme, and ``advice`` for a text that may be no URL at all.

    The message repeats the URL only if it looks like an address without a password.
    """
    if re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(:[0-9]{1,5})?", url):
        return f"{url!r} is not a URL; if it is the address of a server, pass 'redis://{url}'{advice}"
    if url.startswith(("http://", "https://")):
        return "holdfast speaks the protocol of Redis, not HTTP: pass redis://HOST:PORT, or rediss:// for TLS"
    return f"it must start with redis://, rediss:// (TLS), unix:// or local:// (or valkey://, +sentinel, +cluster){advice}"


def _number(text: str, what: str, kind: type[int | float]) -> Any:
    if not re.fullmatch(r"[0-9]{1,9}" if kind is int else r"[0-9]{1,9}(\.[0-9]*)?|\.[0-9]+", text):
        raise _bad_url(f"{what} must be a {'whole ' if kind is int else ''}number, 0 or more")
    return kind(text)


def _seconds(text: str, what: str) -> float:
    if not (value := float(_number(text, what, float))):
        raise _bad_url(f"{what} must be more than 0")
    return value


def from_url(url: str) -> Endpoint:
    """Return the endpoint of a URL. Raises ConfigError if the URL is invalid; the message never contains a password.

    The forms are ``redis://[user:password@]host[:port][/db]``, ``rediss://`` (TLS),
    ``unix://[user:password@]/path[?db=n]``, ``local://``;
    ``redis+sentinel://[user:password@]host[:port],host[:port]/service[/db]``, ``rediss+sentinel://``;
    ``redis+cluster://[user:password@]host[:port],host[:port]``, ``rediss+cluster://``.
    Each ``redis`` may be written ``valkey``. Options may follow a ``?``, such as ``?socket_timeout=2``.
    """
    try:
        return _parsed(url)
    except ConfigError as error:
        # Error reporters would send the frames of this error, whose variables contain parts of the URL.
        raise error.with_traceback(None) from None
    finally:
        del url


def _parsed(url: str) -> Endpoint:
    scheme, found, rest = url.partition("://")
    if not found or scheme not in _SCHEMES:
        advice = "; in Python, the first argument is a client or a URL, and the name is the second"
        raise _bad_url(no_scheme(url, advice))
    if scheme == "local":
        from holdfast._local.server import paths

        return interned(path=os.fspath(paths.socket_path(url)), local=url)
    if rest.count("@") > 1:
        raise _bad_url("an @ inside a user name or password must be written %40")
    credentials, _, place = rest.rpartition("@")
    if "#" in rest or any(c in credentials for c in "/?[]"):
        # The error repeats no part of the text, which may be the rest of a password.
        raise _bad_url("special characters in a user name or password must be written as %XX: # is %23, ? is %3F, / is %2F")
    user, _, password = credentials.partition(":")
    place, _, query = place.partition("?")
    place, _, path = place.partition("/")
    watched = scheme.endswith(_BY_SENTINEL)
    places = [_host_and_port(one) for one in (place.split(",") if "+" in scheme else [place])]
    options = _options(query, _URL_OPTIONS | _SENTINEL_OPTIONS if watched else _URL_OPTIONS) if query else {}
    database = "" if scheme == "unix" else path.partition("/")[2] if watched else path.strip("/")
    for option, before in {"username": user, "password": password, "db": database}.items():
        if before and option in options:
            raise _bad_url(f"{option} is given twice, before and after the ?")
    is_tls = scheme.partition("+")[0] in {"rediss", "valkeys"}
    common: dict[str, Any] = {
        "username": _unquoted(user) or options.get("username"),
        "password": _unquoted(password) or options.get("password"),
        "db": _number(database or options.get("db", "0"), "db", int),
        "timeout": _seconds(options.get("socket_timeout", str(DEFAULT_TIMEOUT)), "socket_timeout"),
    }
    tls = _tls(options, is_tls)
    if scheme == "unix":
        if not path:
            raise _bad_url("a unix:// URL needs the path of the server's socket")
        return interned(path="/" + _unquoted(path), **common)
    common["tls"] = tls if is_tls else None
    if "+" in scheme:
        return _by_sentinel(path, places, common, options) if watched else _cluster(places, **common)
    ((host, port),) = places
    return interned(host=host or "localhost", port=port or 6379, **common)


def _cluster(places: list[tuple[str, int]], *, db: int, **common: Any) -> Endpoint:
    from holdfast._net import cluster  # imported here, because most programs use no Cluster

    if db:
        raise _bad_url("a Cluster has only database 0: leave out db")
    return cluster.cluster_at([(host or "localhost", port or 6379) for host, port in places], **common)


def _by_sentinel(path: str, places: list[tuple[str, int]], common: dict[str, Any], options: dict[str, str]) -> Endpoint:
    from holdfast._net import sentinel  # imported here, because most programs use no Sentinel

    service, _, _ = path.partition("/")
    if not service:
        raise _bad_url("the service name of the Sentinels is missing after their addresses: host,host/service")
    login = {what: options.get(f"sentinel_{what}") for what in ("username", "password")}
    return sentinel.of_url(_unquoted(service), places, {"credentials": None, **common}, login)


def _tls(options: dict[str, str], is_tls: bool) -> tuple[tuple[str, Any], ...]:
    found: dict[str, Any] = {name: value for name, value in options.items() if name in TLS_OPTIONS}
    if found and not is_tls:
        raise _bad_url(f"{min(found)} is an option of rediss:// and valkeys://, which use TLS")
    for name, choices in _CHOICES.items():
        if name in found:
            if found[name] not in choices:
                raise _bad_url(f"{name} must be one of {', '.join(choices)}")
            found[name] = choices[found[name]]
    if found.get("ssl_cert_reqs") == "none" or found.get("ssl_check_hostname") is False:
        warnings.warn(
            "url: the server is not verified: an attacker in between can read the password and grant locks. Leave out "
            "ssl_cert_reqs and ssl_check_hostname; set ssl_ca_certs to trust a CA of your own",
            HoldfastWarning,
            stacklevel=of_the_user(),
        )
    return tuple(sorted(found.items()))


def _host_and_port(place: str) -> tuple[str, int]:
    """Return host and port of ``host``, ``host:port`` or ``[address]:port``; "" and 0 for a missing part."""
    if place.startswith("["):
        host, closed, rest = place[1:].partition("]")
        colon, port = rest[:1], rest[1:]
    else:
        closed = "]"
        host, colon, port = place.partition(":")
    digits = len(port) <= 5 and port.isascii() and port.isdecimal()
    number = int(port) if digits else 0
    understood = closed and colon in {"", ":"} and (digits or not port) and number <= 65535
    if not understood or not host.isprintable() or any(c in host for c in "[],"):
        raise _bad_url("the host or the port is invalid; write redis://HOST:PORT/DB, and %40 for @, %2F for / in a password")
    name, percent, interface = host.partition("%")  # IPv6 with an interface: [fe80::1%eth0]
    return name.lower() + percent + interface, number


def _options(query: str, known: set[str]) -> dict[str, str]:
    # imported here, because most URLs have no options, and the import takes longer than acquiring a lock
    from urllib.parse import parse_qsl

    pairs = parse_qsl(_checked(query), keep_blank_values=True)
    options = dict(pairs)
    if len(options) < len(pairs):
        raise _bad_url("an option is given twice after the ?")
    unknown = set(options) - known
    if unknown:
        # If the URL has a password with an & that was not written as %26, this option may be the rest of that password.
        hidden = "password" in options or "sentinel_password" in options
        which = "; an & in a password must be written %26" if hidden else f" {min(unknown)!r}"
        raise _bad_url(f"unknown option{which}; the known options are {', '.join(sorted(known))}")
    return options


def _checked(text: str) -> str:
    if "%" in text and re.search("%(?![0-9a-fA-F]{2})", text):
        raise _bad_url("a % sign must be written %25")
    return text


def _unquoted(text: str) -> str:
    if "%" not in text:
        return text
    from urllib.parse import unquote

    try:
        return unquote(_checked(text), errors="strict")
    except UnicodeDecodeError:
        raise _bad_url("the characters written as %XX are not valid UTF-8") from None
