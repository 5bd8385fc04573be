"""Networks that are slow, that go silent, that have something of another make between client and server; names nobody knows."""

from __future__ import annotations

import os
import queue
import random
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Self

import pytest
import redis
import redis.asyncio

import holdfast
from holdfast._core.lock.server_queue import REFRESH_EVERY_S
from holdfast._local.server import binary
from support.apis import Admin, Aio, Api, Sync, at_most, stays, until
from support.peer import Peer
from support.proxy import Proxy, _Buffer, _parts
from support.servers import PrivateServer
from support.witness import lease_record

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

TTL = 0.4


# Slow


@pytest.mark.fault(20)
def test_answers_that_take_longer_than_the_lease(both_apis: tuple[Sync, Aio], proxy: Proxy, admin: Admin, name: str) -> None:
    """The lease counts from when it was asked for: what comes later than that is not believed, and nothing stays behind."""
    proxy.delay = lambda: TTL
    asked = [api.start(api.Lock(proxy.url, name, ttl=TTL).acquire, timeout=0.2) for api in both_apis]
    for future in asked:
        assert isinstance(future.exception(3), holdfast.ServerError)
    proxy.delay = None
    free_since = [time.monotonic()]

    def free_for_a_lease() -> bool:
        """A late copy may acquire the lock, until the request arrives that gives it up."""
        if admin.token() is not None or admin.places():
            free_since[0] = time.monotonic()
        return time.monotonic() > free_since[0] + TTL

    until(free_for_a_lease, 5)


@pytest.mark.fault(20)
def test_a_spike_beyond_the_lease(both_apis: tuple[Sync, Aio], proxy: Proxy, server: PrivateServer, name: str) -> None:
    """While holding: known at the lease's end, though everything still comes through in the end; and lost it stays."""
    locks = [(api, api.Lock(proxy.url, f"{name} {api.name}", ttl=2 * TTL)) for api in both_apis]
    assert all(api.call(lock.acquire) for api, lock in locks)
    leases = [lock.lease for _, lock in locks]
    proxy.freeze()  # no answer can tell them
    until(lambda: all(lease.lost.is_set() for lease in leases), 2 * TTL + 1)
    others = [holdfast.Lock(server.url, lock.name, ttl=5) for _, lock in locks]
    assert all(other.acquire(timeout=5) for other in others)
    proxy.thaw()
    for api, lock in locks:
        with pytest.raises(holdfast.LeaseLost):
            api.call(lock.release)
        with closing(Admin(server, lock.name)) as admin:
            assert admin.ttl_ms() > 3000, "late renewals do not disturb whose it is now"
    for other in others:
        other.release()


@pytest.mark.fault(20)
def test_jitter_costs_only_time(both_apis: tuple[Sync, Aio], proxy: Proxy, admin: Admin, name: str) -> None:
    """Up to half of what may be waited for, each way, in the middle of hand-overs: no lease is lost, nobody goes without."""
    draw = random.Random(name).random
    proxy.delay = lambda: draw() * 0.035
    locks = [(api, api.FairLock(proxy.url, name, ttl=2)) for api in both_apis for _ in range(2)]
    fences = []
    for _ in range(3):
        taken = [api.start(lock.acquire, timeout=10) for api, lock in locks]
        for _ in locks:
            until(lambda: any(lock.lease is not None for _, lock in locks))
            ((api, lock),) = [(api, lock) for api, lock in locks if lock.lease is not None]
            fences.append(lock.lease.fence)
            api.call(lock.release)
        assert all(future.result(5) for future in taken)
    assert fences == sorted(set(fences))
    proxy.delay = None
    admin.nothing_left()


# Silent


@pytest.mark.fault(24)
def test_the_inbox_is_dropped_without_a_word(api: Api, proxy: Proxy, server: PrivateServer, admin: Admin, name: str) -> None:
    """As a NAT gateway does with a connection that was idle: nothing comes through, and nobody is told. Asking, on the other
    connection, gets the lock a second later at most; long before the inbox is tested."""
    holder, lock = api.Lock(server.url, name, ttl=30), api.Lock(proxy.url, name, ttl=30)
    assert api.call(holder.acquire)
    taken = api.start(lock.acquire, timeout=10)
    until(lambda: len(admin.places()) == 1)
    message = proxy.on("message", action="lose", times=100)
    api.call(holder.release)
    assert taken.result(REFRESH_EVERY_S + 1)
    assert message.done.wait(5)
    api.call(lock.release)
    admin.nothing_left()


@pytest.mark.soak
@pytest.mark.fault(24)
def test_a_dropped_inbox_is_found_out_and_opened_again(
    any_api: Api, proxy: Proxy, server: PrivateServer, admin: Admin, name: str
) -> None:
    """It is tested each five seconds; two later it is given up. Then hand-overs are as quick as ever."""
    holder, lock = any_api.Lock(server.url, name, ttl=30), any_api.Lock(proxy.url, name, ttl=30)
    assert any_api.call(holder.acquire)
    taken = any_api.start(lock.acquire, timeout=20)
    until(lambda: len(admin.places()) == 1)
    ping = proxy.on("PING", action="lose")
    assert ping.seen.wait(6)
    until(lambda: len(proxy.names("SUBSCRIBE")) == 2, 3)
    until(lambda: admin.listeners(admin.places()[0].split(".")[0]) >= 1)
    any_api.call(holder.release)
    assert taken.result(REFRESH_EVERY_S / 2)
    any_api.call(lock.release)
    admin.nothing_left()


class Namespace:
    """A network of its own, with nothing but a loopback that can be taken down: what was connected hears no more."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inside = ["ip", "netns", "exec", name]
        subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)

    def loopback(self, state: str) -> None:
        subprocess.run([*self.inside, "ip", "link", "set", "lo", state], check=True, capture_output=True)

    def close(self) -> None:
        subprocess.run(["ip", "netns", "del", self.name], check=True, capture_output=True)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    try:
        namespace = Namespace(f"holdfast-{os.getpid()}")
        namespace.loopback("up")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"NETWORK NAMESPACES ARE NOT ALLOWED HERE, so a silent kernel is not tested: {error}")
    yield namespace
    namespace.close()


@pytest.mark.fault(21)
def test_packets_vanish_in_the_kernel(namespace: Namespace, new_server: NewServer, tmp_path: Path, name: str) -> None:
    """The peer is gone without a word: no reset, nothing. Shorter than the lease, nothing is lost; longer, the holder knows at
    its own deadline. (The server's unix socket is in no network: that is how we look on.)"""
    program = tmp_path / "server"
    program.write_text(f'#!/bin/sh\nexec {" ".join(namespace.inside)} {binary.find()} "$@"\n')
    program.chmod(0o700)
    server = new_server(binary=str(program), port=7000)
    with (
        closing(Admin(server, name, f"unix://{server.socket}")) as admin,
        Peer("asyncio", server.url, name, ttl=2, through=namespace.inside) as peer,
    ):
        assert peer.ask("lock.acquire()")
        token = admin.token()
        namespace.loopback("down")
        stays(lambda: admin.token() == token, 0.7)
        namespace.loopback("up")
        admin.renewed()
        assert peer.ask("lock.lease.lost.is_set()") is False
        namespace.loopback("down")
        until(lambda: admin.token() is None, 2 + 1)
        assert peer.ask("lock.lease.lost.is_set()") is True
        namespace.loopback("up")
        assert peer.ask("lock.release()") == "LeaseLost"
        stays(lambda: admin.token() is None, 0.1)


# Something in between


class Pooling:
    """As Envoy or twemproxy: speaks the protocol, sends each request over any connection it has, and knows no subscriptions.
    Clients stay connected whatever becomes of the server."""

    def __init__(self, server: PrivateServer) -> None:
        self._server = server
        self._idle: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        self.clients = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in [self._listener, *self._open]:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.clients += 1
                self._open.append(client)
                self._threads.append(threading.Thread(target=self._serve, args=(client,), daemon=True))
                self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        for packed in _Buffer(client).values():
            reply = b"-ERR unsupported command\r\n" if _parts(packed)[0] == b"SUBSCRIBE" else self._ask(packed)
            with suppress(OSError):
                client.sendall(reply)

    def _ask(self, packed: bytes) -> bytes:
        with suppress(OSError):
            try:
                upstream = self._idle.get_nowait()
            except queue.Empty:
                upstream = socket.socket(socket.AF_UNIX)
                self._open.append(upstream)
                upstream.connect(self._server.socket)
            upstream.sendall(packed)
            for reply in _Buffer(upstream).values():
                self._idle.put(upstream)
                return reply
        return b"-ERR upstream failure\r\n"


@pytest.mark.fault(23)
def test_behind_a_proxy_that_speaks_the_protocol(both_apis: tuple[Sync, Aio], new_server: NewServer, name: str) -> None:
    """Taking, renewing and giving back need nothing but scripts. Waiting needs a subscription: an error at once that says so.
    A restart behind the proxy cuts no connection; the holder is told at its next renewal all the same."""
    server = new_server()
    with Pooling(server) as proxy, closing(Admin(server, name)) as admin:
        # A long lease: what is not answered in time ends a connection, and the lease must not end before its renewal.
        locks = [(api, api.Lock(proxy.url, f"{name} {api.name}", ttl=5)) for api in both_apis]
        assert all(api.call(lock.acquire) for api, lock in locks)
        leases = [lock.lease for _, lock in locks]
        admin.redis.set(admin.lock, "foreign")
        for api in both_apis:
            other = api.Lock(proxy.url, name, ttl=5)
            assert api.call(other.acquire, blocking=False) is False
            with at_most(3), pytest.raises(holdfast.ServerError, match="unsupported command"):
                api.call(other.acquire, timeout=5)
        renewed(*leases)
        clients = proxy.clients
        server.kill()
        server.restart()
        until(lambda: all(lease.lost.is_set() for lease in leases))
        assert all("its key is gone" in lease_record(lease).lost for lease in leases)
        assert proxy.clients == clients, "nobody could have noticed by his connection"
        for api, lock in locks:
            with pytest.raises(holdfast.LeaseLost):
                api.call(lock.release)


# Names and passwords


def test_a_host_that_nobody_knows(api: Api, name: str) -> None:
    """The name service says no, or nothing: an error that names the host, whatever `wait` says."""
    lock = api.Lock("redis://:canary@no-such-host.invalid", name, ttl=5, wait=60)
    with pytest.raises(holdfast.ServerError, match=r"no server at no-such-host\.invalid:6379") as error:
        api.call(lock.acquire)
    assert "canary" not in str(error.value)


class Vault(redis.CredentialProvider):
    """Knows the password of today."""

    def __init__(self) -> None:
        self.password = "old"

    def get_credentials(self) -> tuple[str]:
        return (self.password,)


def renewed(*leases: Any) -> None:
    """Returns when all of them have been renewed once more."""
    before = [lease_record(lease).deadline for lease in leases]
    until(lambda: all(lease_record(lease).deadline > old for lease, old in zip(leases, before, strict=True)))


@pytest.mark.fault(50)
@pytest.mark.fault(51)
@pytest.mark.parametrize("refuses", ["password", "maxclients"])
def test_nobody_can_connect_any_more_before_the_first_renewal(new_server: NewServer, name: str, refuses: str) -> None:
    """Rows 50 and 51: both connections of the keeper were opened when the lease was one second old, long before that."""
    server = new_server(password="old")
    with redis.Redis(unix_socket_path=server.socket, password="old") as admin:
        before = len(admin.client_list())
        with holdfast.Lock(server.url, name, ttl=9) as lease:
            until(lambda: len(admin.client_list()) == before + 3, 1.9)  # the first renewal comes after 2.6 s
            if refuses == "password":
                admin.acl_setuser("default", reset_passwords=True, passwords=["+new"], enabled=True)
            else:
                admin.config_set("maxclients", before + 3)
            with pytest.raises(redis.RedisError), redis.Redis(unix_socket_path=server.socket, password="old") as late:
                late.ping()
            renewed(lease)
            assert not lease.lost.is_set()


@pytest.mark.fault(50)
def test_the_password_is_changed(both_apis: tuple[Sync, Aio], new_server: NewServer, name: str) -> None:
    """Connected clients stay connected until the connection is cut.

    A client that asks for the password at each connection goes on then. Others are told at the end of the lease, and do not
    send requests again and again meanwhile.
    """
    server = new_server(password="old")
    vault = Vault()
    admin = redis.Redis(unix_socket_path=server.socket, password="old", decode_responses=True)
    clients: list[Any] = [
        redis.Redis(unix_socket_path=server.socket, credential_provider=vault),
        redis.asyncio.Redis(unix_socket_path=server.socket, credential_provider=vault),
    ]
    apis: tuple[Api, ...] = both_apis
    knows = [(f, f.Lock(client, f"{name} {f.name}", ttl=2)) for f, client in zip(apis, clients, strict=True)]
    fixed = [(f, f.Lock(server.url, f"{name} {f.name} fixed", ttl=1)) for f in apis]
    assert all(api.call(lock.acquire) for api, lock in [*knows, *fixed])
    leases = [lock.lease for _, lock in fixed]
    keys = [lock.key for _, lock in knows]
    renewed(*leases, *(lock.lease for _, lock in knows))  # the keeper is connected
    admin.config_set("requirepass", "new")
    vault.password = "new"
    renewed(*leases)
    admin.client_kill_filter(skipme=True, _type="normal")
    until(lambda: all(lease.lost.is_set() for lease in leases), 1 + 1)
    assert not any(lock.lease.lost.is_set() for _, lock in knows)
    assert admin.exists(*keys) == 2
    assert 1 <= int(admin.info("stats")["acl_access_denied_auth"]) <= 20
    for api, lock in fixed:
        with pytest.raises(holdfast.LeaseLost):
            api.call(lock.release)
        with at_most(3), pytest.raises(holdfast.ServerError, match="WRONGPASS"):
            api.call(lock.acquire)
    for api, lock in knows:
        api.call(lock.release)
    for api, client in zip(apis, clients, strict=True):
        api.call(client.close if api.name == "sync" else client.aclose)
    holdfast.close()
    admin.close()
