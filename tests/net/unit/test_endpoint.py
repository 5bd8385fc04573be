"""The address of a server: URLs and clients that are understood, those that are refused, and no password in any message."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._core.requests import NotSent, Refused
from holdfast._net import sentinel
from holdfast._net.endpoint import DEFAULT_TIMEOUT, Endpoint
from holdfast._net.resolve import Kind, from_client, kind_of, listed, resolve
from holdfast._net.sentinel import Sentinel
from holdfast._net.url import from_url
from holdfast.errors import ConfigError, HoldfastWarning

CANARY = "canary"

GOOD: dict[str, dict[str, object]] = {
    "redis://": {"host": "localhost", "port": 6379},
    "redis://h": {"host": "h", "port": 6379, "db": 0, "username": None, "password": None, "path": None, "tls": None},
    "redis://h:7000/3": {"host": "h", "port": 7000, "db": 3},
    "redis://h?db=3": {"db": 3},
    "redis://h/": {"db": 0},
    "redis://:secret@h": {"username": None, "password": "secret"},
    "redis://user:secret@h": {"username": "user", "password": "secret"},
    "redis://u%40x:p%40%3A%2F%25@h": {"username": "u@x", "password": "p@:/%"},
    "redis://h?username=user&password=secret": {"username": "user", "password": "secret"},
    "redis://[::1]:7000": {"host": "::1", "port": 7000},
    "redis://h?socket_timeout=0.5": {"timeout": 0.5},
    "redis://h?socket_timeout=2": {"timeout": 2.0},
    "valkey://h:1": {"host": "h", "port": 1, "tls": None},
    "rediss://h": {"host": "h", "port": 6379, "tls": ()},
    "valkeys://h?ssl_ca_certs=/ca.pem": {"tls": (("ssl_ca_certs", "/ca.pem"),)},
    "unix:///run/x.sock": {"path": "/run/x.sock", "db": 0},
    "unix:///run/a%20b.sock?db=2": {"path": "/run/a b.sock", "db": 2},
    "unix://:secret@/run/x.sock": {"path": "/run/x.sock", "password": "secret"},
    "redis+sentinel://:secret@a,b:1/main/2": {"address": "sentinel:main", "password": "secret", "db": 2, "tls": None},
    "rediss+sentinel://a/main?ssl_ca_certs=/ca.pem": {"tls": (("ssl_ca_certs", "/ca.pem"),)},
    "valkey+sentinel://[::1]:1/a%2Fb?sentinel_password=other": {"address": "sentinel:a/b", "password": None},
}

BAD = [
    "",
    "h",
    "h:6379",
    "http://h",
    "redis:h",
    "REDIS//h",
    "redis://h:port",
    "redis://h:99999",
    f"redis://h:{'9' * 5000}",
    "redis://h:\N{FULLWIDTH DIGIT ONE}",
    "redis://h\n:1",
    "redis://[::1]7",
    "redis://h/abc",
    "redis://h/-1",
    "redis://h/1/2",
    "redis://h?db=x",
    "redis://h?db=-1",
    "redis://h?db=1.5",
    "redis://h?socket_timeout=soon",
    "redis://h?socket_timeout=-1",
    "redis://h?socket_timeout=0",
    "redis://h?socket_timeout=1_0",
    "redis://h?socket_timeout=1e3",
    "redis://h?db=1_0",
    "redis://h?db= 1",
    "redis://h?db=",
    "redis://h?db",
    "redis://h?db=1&db=1",
    "redis://h/1?db=1",
    "redis://u@h?username=u",
    "redis://:p@h?password=p",
    "redis://u:100%@h",
    "redis://u:%zz@h",
    "redis://u:%ff@h",
    "redis://h?password=100%",
    "redis://h?ssl_ca_certs=/ca.pem",
    "unix:///run/x.sock?ssl_cert_reqs=none",
    "rediss://h?ssl_cert_reqs=maybe",
    "rediss://h?ssl_check_hostname=0",
    "rediss://h?ssl_ca_cert=/ca.pem",
    "redis://h?socket_timeout=nan",
    "redis://h?socket_timeout=inf",
    "redis://h?retries=3",
    "redis://h?decode_responses=yes",
    "redis://h?timeout=3",
    "redis://h#fragment",
    "redis://[::1",
    "unix://",
    "unix://:secret@",
    "redis+sentinel://a,b",
    "redis+sentinel://a,b/",
    "redis+sentinel://a,b:port/main",
    "redis+sentinel://a/main/x",
    "redis+sentinel://a/main?retries=1",
    "redis://a,b/0?sentinel_password=x",
]

UNESCAPED = [
    f"redis://:{CANARY}@{CANARY}@h",
    f"redis://u:{CANARY}/{CANARY}@h",
    f"redis://u:{CANARY}?{CANARY}@h",
    f"redis://u:{CANARY}?{CANARY}=1@h",
    f"redis://u:1?x&{CANARY}=2@h",
    f"redis://u:{CANARY}#{CANARY}@h",
    f"redis://u:123#{CANARY}@h",
    f"redis://u:123/{CANARY}@h",
    f"redis://u:{CANARY}[{CANARY}@h",
    f"redis://u:{CANARY}]{CANARY}@h:port",
    f"redis://u:{CANARY}@h:{CANARY}",
    f"redis://u:{CANARY}@h/x",
    f"redis://u:{CANARY}@h?nonsense=1",
    f"redis://h?password={CANARY}&db=x",
    f"redis://h?password=1&{CANARY}=2",
    f"redis://h?password=1&{CANARY}",
    f"redis+sentinel://h/main?sentinel_password=1&{CANARY}",
    f"redis://h?password={CANARY}%",
    f"redis://u:{CANARY}%@h",
    f"redis://u:{CANARY}%ff@h",
    f"redis://u:{CANARY}@h?password={CANARY}",
    f"rediss://u:{CANARY}@h?ssl_cert_reqs={CANARY}",
    f"unix://u:{CANARY}@",
    f"http://u:{CANARY}@h",
    f"u:{CANARY}@h",
]


@pytest.mark.parametrize("url", GOOD)
def test_good_urls(url: str) -> None:
    endpoint = from_url(url)
    assert {fact: getattr(endpoint, fact) for fact in GOOD[url]} == GOOD[url]


@pytest.mark.parametrize("url", BAD)
def test_bad_urls(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^url: ") as caught:
        from_url(url)
    assert caught.value.parameter == "url"


@pytest.mark.parametrize("url", UNESCAPED)
def test_no_part_of_a_password_in_what_is_said_about_a_bad_url(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_url(url)
    error: BaseException | None = caught.value
    assert CANARY not in f"{error!r} {error} {caught.value.__dict__}"
    while error is not None and not error.__suppress_context__:
        assert CANARY not in f"{error!r} {error}"
        error = error.__cause__ or error.__context__


def test_sentinels_have_a_login_and_a_port_of_their_own() -> None:
    url = "redis+sentinel://user:secret@b,a:1/main?sentinel_username=watch&sentinel_password=other"
    endpoint = from_url(url)
    assert isinstance(endpoint.finder, Sentinel)
    seen = [(watcher.host, watcher.port, watcher.username, watcher.password) for watcher in endpoint.finder.watchers]
    assert seen == [("b", 26379, "watch", "other"), ("a", 1, "watch", "other")]
    assert endpoint.handshake()._commands == [("AUTH", "user", "secret")]
    assert from_url(url) is endpoint
    assert from_url(url.replace("b,a:1", "a:1,b")) is endpoint
    assert from_url(url.replace("/main", "/other")) is not endpoint


@given(st.text("ab12@:/?#[]%&=.é\x00 ", max_size=20))
def test_any_text_is_understood_or_refused(text: str) -> None:
    for url in (text, f"redis://{text}", f"unix://{text}", f"redis://h?{text}"):
        try:
            endpoint = from_url(url)
        except ConfigError:
            continue
        assert endpoint.address


@given(st.text("aB1:@/?[]%=.&", max_size=20), st.sampled_from(["", "u:p@", "u%40:p%2F@", ":p@"]))
def test_urls_mean_what_the_standard_library_takes_them_for(text: str, credentials: str) -> None:
    url = f"redis://{credentials}{text}"
    try:
        endpoint, parts = from_url(url), urlsplit(url)
    except ValueError:  # a ConfigError is one, too
        return
    options = dict(parse_qsl(parts.query))
    assert (endpoint.host, endpoint.port) == (parts.hostname or "localhost", parts.port or 6379)
    assert endpoint.username == (unquote(parts.username or "") or options.get("username"))
    assert endpoint.password == (unquote(parts.password or "") or options.get("password"))


def test_no_secret_in_the_repr_or_the_address() -> None:
    secrets = {"password": CANARY, "credentials": f"{CANARY} provider", "tls": (("ssl_password", CANARY),)}
    endpoint = Endpoint(**secrets)  # type: ignore[arg-type]
    assert CANARY not in f"{endpoint!r} {endpoint} {endpoint.address}"


def test_addresses() -> None:
    assert (Endpoint().db, Endpoint().address) == (0, "localhost:6379")
    assert from_url("redis://u:p@h:1").address == "h:1"
    assert from_url("redis://u:p@h:1/2").address == "h:1/2"
    assert from_url("unix://:p@/run/x.sock").address == "unix:/run/x.sock"
    assert Endpoint(path="/run/x.sock", local="local:x").address == "local:x"


def test_the_same_server_is_the_same_object() -> None:
    assert from_url("redis://h:1/2") is from_url("redis://h:1/2")
    assert from_url("redis://h:1/2") is not from_url("redis://h:1/3")
    assert from_url("redis://:p@h") is not from_url("redis://:q@h")
    assert from_url("redis://h") is not from_url("rediss://h")


def test_what_opens_a_connection() -> None:
    assert Endpoint().handshake()._commands == []
    assert Endpoint(password="p").handshake()._commands == [("AUTH", "p")]
    assert Endpoint(username="u", password="p", db=3).handshake()._commands == [("AUTH", "u", "p"), ("SELECT", "3")]
    provider = SimpleNamespace(get_credentials=lambda: ("u2", "p2"))
    assert Endpoint(credentials=provider, password="p").handshake()._commands == [("AUTH", "u2", "p2")]
    assert Endpoint(credentials=SimpleNamespace(get_credentials=lambda: ("p3",))).handshake()._commands == [("AUTH", "p3")]


def test_an_endpoint_is_a_server_of_this_machine_unless_it_is_told_otherwise() -> None:
    assert Endpoint().address == "localhost:6379"


def test_tls_verifies_unless_told_otherwise() -> None:
    import ssl

    context = from_url("rediss://h").ssl_context()
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    with pytest.warns(HoldfastWarning, match="the server is not verified"):
        context = from_url("rediss://h?ssl_cert_reqs=none").ssl_context()
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)
    with pytest.warns(HoldfastWarning, match="the server is not verified") as warned:
        context = from_url("rediss://h?ssl_check_hostname=false").ssl_context()
    assert warned[0].filename == __file__
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)
    assert from_url("redis://h").ssl_context() is None


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "the server requires a client certificate"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", "does it require a client certificate"),
        ("TLSV1_ALERT_UNKNOWN_CA", "the server does not trust the CA of our client certificate"),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", r"our client certificate \(ssl_certfile\) has expired"),
        ("TLSV1_ALERT_PROTOCOL_VERSION", "no version of TLS"),
        ("WRONG_VERSION_NUMBER", r"does not use TLS on this port: is it a redis:// server\?"),
        ("SOMETHING_NEW", "TLS: SOMETHING_NEW"),
    ],
)
def test_what_the_other_sides_alerts_mean(reason: str, said: str) -> None:
    import ssl

    error = ssl.SSLError(1, "[SSL] (_ssl.c:1)")
    error.reason = reason
    assert re.search(said, from_url("rediss://h").why(error))
    assert from_url("redis://h").why(OSError("as it is")) == "as it is"


# Clients: only their settings are read, no connection is made


def test_clients_of_redis_py() -> None:
    import redis

    endpoint = from_client(redis.Redis("h", 7000, 2, username="u", password="p", socket_timeout=0.5))
    facts = (endpoint.host, endpoint.port, endpoint.db, endpoint.username, endpoint.password, endpoint.timeout)
    assert facts == ("h", 7000, 2, "u", "p", 0.5)
    assert from_client(redis.Redis(socket_timeout=None)).timeout == DEFAULT_TIMEOUT
    assert from_client(redis.Redis(unix_socket_path="/run/x.sock")).path == "/run/x.sock"
    assert from_client(redis.Redis.from_url("redis://:p@h:1/4", decode_responses=True)).db == 4
    assert from_client(redis.Redis()).tls is None
    tls = dict(from_client(redis.Redis("h", ssl=True, ssl_ca_certs="/ca.pem", ssl_cert_reqs="none")).tls or ())
    assert tls["ssl_ca_certs"] == "/ca.pem"
    assert str(tls["ssl_cert_reqs"]).lower().endswith("none")
    assert from_client(redis.Redis.from_url("rediss://h")).tls is not None


def test_a_credential_provider_of_any_make() -> None:
    import redis

    @dataclass
    class Provider(redis.CredentialProvider):
        """With an __eq__, and so without a hash."""

        user: str = "u"

        def get_credentials(self) -> tuple[str, str]:
            return self.user, CANARY

    endpoint = from_client(redis.Redis("h", credential_provider=Provider()))
    assert endpoint.handshake()._commands == [("AUTH", "u", CANARY)]
    assert CANARY not in repr(endpoint)


def test_the_same_server_by_url_and_by_client_shares_its_connections() -> None:
    import redis

    assert from_client(redis.Redis("h", 1, 2, socket_timeout=5)) is from_url("redis://h:1/2")


@pytest.mark.parametrize("servers", [["redis://h"], ("redis://h", "redis://g"), {"one": "redis://h"}])
def test_a_list_of_servers_is_for_another_lock(servers: object) -> None:
    with pytest.raises(ConfigError, match=r"use holdfast\.Redlock for a lock on several servers"):
        resolve(servers, "sync")


def test_the_servers_in_a_list_or_mapping() -> None:
    assert listed({"one": "redis://h", "two": "redis://g"}) == listed(("redis://h", "redis://g")) == ["redis://h", "redis://g"]
    assert listed("redis://h") == ["redis://h"]


def test_the_kinds_of_clients() -> None:
    import redis
    import redis.asyncio
    import valkey

    class Own(redis.Connection):
        """A connection that may connect in its own way."""

    def cluster() -> object:
        made: Any = object.__new__(redis.RedisCluster)  # its constructor would connect
        made.nodes_manager = object()
        return made

    sentinels: Any = redis.sentinel.Sentinel([("h", 1)])  # type: ignore[no-untyped-call]
    kinds: list[tuple[object, Kind]] = [
        (["redis://h"], "servers"),
        ({"one": "redis://h"}, "servers"),
        ("redis://h", "URL"),
        ("nonsense", "URL"),
        (SimpleNamespace(url="redis://h"), "URL"),
        (redis.Redis().pipeline(), "pipeline"),
        (cluster(), "Cluster"),
        (redis.Redis(connection_pool=redis.ConnectionPool(Own)), "foreign"),
        (redis.Redis(connection_pool=redis.ConnectionPool(redis_connect_func=print)), "foreign"),
        (sentinels.master_for("s"), "Sentinel"),
        (redis.Redis(), "server"),
        (redis.asyncio.Redis(), "server"),
        (valkey.Valkey(unix_socket_path="/run/x.sock"), "server"),
        (SimpleNamespace(connection_pool=None), "unknown"),
        (b"redis://h", "unknown"),
        (None, "unknown"),
    ]
    assert [kind_of(client) for client, _ in kinds] == [kind for _, kind in kinds]


def test_asyncio_clients_and_valkey() -> None:
    import redis.asyncio
    import valkey
    import valkey.asyncio

    clients = [
        redis.asyncio.Redis(host="h", port=7000),
        valkey.Valkey(host="h", port=7000),
        valkey.asyncio.Valkey(host="h", port=7000),
    ]
    for client in clients:
        assert from_client(client).address == "h:7000"


@pytest.mark.parametrize("client", [None, 7, object(), b"redis://h", SimpleNamespace(connection_pool=None)])
@pytest.mark.parametrize("api", ["sync", "asyncio"])
def test_what_is_no_client_is_refused(client: object, api: Any) -> None:
    with pytest.raises(ConfigError, match=r"client must be a redis\.Redis") as caught:
        resolve(client, api)
    assert caught.value.parameter == "client"


def test_clients_of_the_other_api_are_refused_with_the_way_out() -> None:
    import redis.asyncio

    with pytest.raises(ConfigError, match=r"for this one use holdfast\.aio$") as caught:
        resolve(redis.asyncio.Redis(), "sync")
    assert caught.value.parameter == "client"
    with pytest.raises(ConfigError, match=r"for this one use holdfast$"):
        resolve(redis.Redis(), "asyncio")


def test_a_server_that_sentinels_name_in_vain_is_asked_once_and_within_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = list[float]()

    def doubt(_found: Endpoint, limit: float) -> str:
        limits.append(limit)
        return "it is a replica"

    monkeypatch.setattr(sentinel, "_doubt", doubt)
    found = Sentinel("main", [Endpoint(host="s1"), Endpoint(host="s2")], {})
    found._ask = lambda _watcher, _limit: ("h", 1)  # type: ignore[method-assign,assignment]
    with pytest.raises(Refused, match="it is a replica"):
        found.find(0.2)
    (limit,) = limits
    assert 0.05 <= limit <= 0.2
    with pytest.raises((NotSent, Refused)):
        found.find(0.0)
    assert limits == [limit], "nobody is asked when the time is up"
