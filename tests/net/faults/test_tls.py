"""Locks over TLS: a CA of one's own is enough, and every reason for distrust is refused, named, and told the way out."""

from __future__ import annotations

import asyncio
import datetime
import gc
import select
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme

import holdfast
import holdfast.aio
from holdfast._net import tls
from support.servers import PrivateServer, private
from support.terminator import Terminator

CA = trustme.CA()
STRANGER = trustme.CA()


@pytest.fixture(scope="module")
def plain() -> Iterator[PrivateServer]:
    """The server behind."""
    with private(port=True, password="") as server:
        yield server


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``ca.pem``, ``client.pem``, ``client.key`` and their like of a stranger."""
    directory = tmp_path_factory.mktemp("certificates")
    for ca, prefix in ((CA, ""), (STRANGER, "stranger-")):
        ca.cert_pem.write_to_path(directory / f"{prefix}ca.pem")
        client = ca.issue_cert("client@example.org")
        client.private_key_pem.write_to_path(directory / f"{prefix}client.key")
        client.cert_chain_pems[0].write_to_path(directory / f"{prefix}client.pem")
    return directory


def certified(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def good() -> ssl.SSLContext:
    return certified(CA.issue_cert("localhost", "127.0.0.1"))


def self_signed() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with STRANGER.private_key_pem.tempfile() as key, STRANGER.cert_pem.tempfile() as certificate:
        context.load_cert_chain(certificate, key)
    return context


def expired() -> ssl.SSLContext:
    day = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    return certified(CA.issue_cert("localhost", not_before=day, not_after=day + datetime.timedelta(1)))


def wants_client_certificate() -> ssl.SSLContext:
    context = good()
    CA.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def keys(plain: PrivateServer, name: str) -> Any:
    with closing(redis.Redis.from_url(plain.url)) as look:
        return look.keys(f"*{name}*")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_ca_of_ones_own(plain: PrivateServer, files: Path, api: Any, name: str, host: str) -> None:
    """The lock itself, and through the keeper: a renewal, and a hand-over to one who waits."""
    with Terminator(good(), plain.socket) as server:
        url = f"rediss://{host}:{server.port}?ssl_ca_certs={files}/ca.pem"
        lock, other = api.FairLock(url, name), api.FairLock(url, name, wait=10)
        assert api.call(lock.acquire) is True
        before = lock.lease.remaining()
        waiting = api.start(other.acquire)
        with closing(redis.Redis.from_url(plain.url)) as look:
            while not look.zcard(f"hf:{{{name}}}:queue"):
                assert not waiting.done()
        api.call(lock.lease.renew)
        assert lock.lease.remaining() > before - 1
        api.call(lock.release)
        assert waiting.result(5) is True
        api.call(other.release)
        holdfast.close()


@pytest.mark.parametrize(
    ("context", "said"),
    [
        (lambda: certified(CA.issue_cert("other.example")), r"is not for host 'localhost'"),
        (expired, "the server's certificate has expired"),
        (self_signed, "the server's certificate is self-signed"),
        (lambda: certified(STRANGER.issue_cert("localhost")), "a CA that is not trusted here: .* ssl_ca_certs"),
        (wants_client_certificate, "client certificate"),
    ],
    ids=["another-host", "expired", "self-signed", "unknown-ca", "no-client-certificate"],
)
def test_distrust_is_named(plain: PrivateServer, files: Path, api: Any, name: str, context: Any, said: str) -> None:
    with Terminator(context(), plain.socket) as server:
        lock = api.Lock(f"rediss://:canary@localhost:{server.port}?ssl_ca_certs={files}/ca.pem", name)
        with pytest.raises(holdfast.ServerError, match=said) as caught:
            api.call(lock.acquire)
        assert "canary" not in str(caught.value)
        holdfast.close()
    assert keys(plain, name) == []


def test_the_server_resets_the_connection_before_the_handshake() -> None:
    """No socket is left open, about which Python would warn."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as sock:
        server, _ = listener.accept()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.close()
        select.select([sock], [], [])
        with pytest.raises(ConnectionResetError):
            tls.context({}).wrap_socket(sock, server_hostname="localhost")
    gc.collect()


def test_system_cas_are_trusted_by_default_and_no_others(plain: PrivateServer, api: Any, name: str) -> None:
    with Terminator(good(), plain.socket) as server:
        with pytest.raises(holdfast.ServerError, match="a CA that is not trusted here"):
            api.call(api.Lock(f"rediss://localhost:{server.port}", name).acquire)
        with pytest.warns(holdfast.HoldfastWarning, match="the server is not verified"):
            lock = api.Lock(f"rediss://localhost:{server.port}?ssl_cert_reqs=none", name)
        assert api.call(lock.acquire) is True
        api.call(lock.release)
        holdfast.close()


def test_a_client_certificate(plain: PrivateServer, files: Path, api: Any, name: str) -> None:
    with Terminator(wants_client_certificate(), plain.socket) as server:
        url = f"rediss://localhost:{server.port}?ssl_ca_certs={files}/ca.pem"
        ours = f"&ssl_certfile={files}/client.pem&ssl_keyfile={files}/client.key"
        lock = api.Lock(url + ours, name)
        assert api.call(lock.acquire) is True
        api.call(lock.release)
        for options, said in (
            (ours.replace("client.", "stranger-client."), "client certificate"),
            (ours.replace("client.key", "absent.key"), "ssl_certfile and ssl_keyfile cannot be used: No such file"),
            (ours.replace("client.key", "stranger-client.key"), "cannot be used: KEY_VALUES_MISMATCH"),
        ):
            with pytest.raises(holdfast.ServerError, match=said):
                api.call(api.Lock(url + options, name).acquire)
        with pytest.raises(holdfast.ServerError, match="ssl_ca_certs cannot be used: No such file"):
            api.call(api.Lock(f"rediss://localhost:{server.port}?ssl_ca_certs=/absent", name).acquire)
        holdfast.close()


def test_a_server_that_does_not_speak_tls(plain: PrivateServer, api: Any, name: str) -> None:
    with pytest.raises(holdfast.ServerError, match="without TLS"):
        api.call(api.Lock(f"rediss://localhost:{plain.port}?socket_timeout=0.2", name).acquire)


def test_a_client_that_the_user_has(plain: PrivateServer, files: Path, name: str) -> None:
    with Terminator(good(), plain.socket) as server:
        for ca, trusted in (("ca.pem", True), ("stranger-ca.pem", False)):
            with redis.Redis("localhost", server.port, ssl=True, ssl_ca_certs=str(files / ca)) as client:
                lock = holdfast.Lock(client, name)
                if trusted:
                    with lock:
                        pass
                else:
                    with pytest.raises(holdfast.ServerError, match="a CA that is not trusted here"):
                        lock.acquire()
        holdfast.close()


def test_a_server_that_has_vanished_delays_the_end_of_a_loop_for_a_moment_only(
    plain: PrivateServer, files: Path, name: str
) -> None:
    """Over TLS, asyncio waits for the other side to confirm the end of a connection, for up to half a minute."""

    async def main(server: Terminator) -> float:
        async with holdfast.aio.Lock(f"rediss://localhost:{server.port}?ssl_ca_certs={files}/ca.pem", name):
            pass
        server.thawed.clear()
        return time.monotonic()

    with Terminator(good(), plain.socket) as server:
        ended = asyncio.run(main(server))
        assert time.monotonic() - ended < 5
        holdfast.close()
