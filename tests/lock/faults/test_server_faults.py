"""Servers that are away, restarted, paused, full, or have forgotten their scripts."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast._core.lock.replies import ACQUIRE, RELEASE
from support.apis import Admin, Aio, Api, Sync, at_most, stays, until
from support.proxy import Proxy
from support.servers import PrivateServer

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

TTL = 0.4


@pytest.fixture
def fragile(new_server: NewServer, name: str) -> Iterator[tuple[PrivateServer, Admin]]:
    """A server to be killed and restarted; it forgets everything."""
    server = new_server()
    admin = Admin(server, name)
    yield server, admin
    admin.close()


@pytest.fixture
def durable(new_server: NewServer, name: str) -> Iterator[tuple[PrivateServer, Admin]]:
    """A server to be killed and restarted; it remembers everything."""
    server = new_server(appendonly=True)
    admin = Admin(server, name)
    yield server, admin
    admin.close()


# Scripts


@pytest.mark.fault(41)
def test_row_41_scripts_are_forgotten_all_the_time(api: Api, proxy: Proxy, admin: Admin, name: str) -> None:
    """Row 41: SCRIPT FLUSH before each request of a whole life; each is sent again in full, and its result is the same."""

    def whole() -> set[str]:
        return {request.name for request in proxy.log if b"\r\n$4\r\nEVAL\r\n" in request.packed}

    holder, lock = api.FairLock(proxy.url, name, ttl=1), api.FairLock(proxy.url, name, ttl=2, renew=False)
    admin.redis.script_flush()
    assert api.call(holder.acquire)
    admin.redis.script_flush()
    api.call(holder.lease.renew)
    admin.redis.script_flush()
    joining = proxy.on("join", action="hold")
    taken = api.start(lock.acquire, timeout=5)
    assert joining.seen.wait(5)
    admin.redis.script_flush()
    joining.go()
    until(lambda: len(admin.places()) == 1)
    admin.redis.script_flush()
    until(lambda: "refresh" in whole())
    admin.redis.script_flush()
    api.call(holder.release)
    assert taken.result(5)
    admin.redis.script_flush()
    api.call(lock.release)
    admin.nothing_left()
    assert whole() == {"acquire", "join", "refresh", "renew", "release"}


@pytest.mark.fault(41, 49)
def test_row_41_no_right_to_load_scripts_is_needed(api: Api, new_server: NewServer, name: str) -> None:
    """Row 41: EVAL, not SCRIPT LOAD, which tight ACLs forbid."""
    server = new_server()
    admin = Admin(server, name)
    admin.redis.acl_setuser(
        "tight",
        enabled=True,
        passwords=["+secret"],
        keys=["hf:*"],
        channels=["hf:*"],
        categories=["+@all"],
        commands=["-script"],
    )
    lock = api.Lock(server.url.replace("unix://", "unix://tight:secret@"), name, ttl=5)
    assert api.call(lock.acquire)
    api.call(lock.release)
    admin.nothing_left()
    admin.close()


# Restarts


@pytest.mark.fault(29, 41)
def test_row_41_restarted_empty_while_holding(api: Api, fragile: tuple[PrivateServer, Admin], name: str) -> None:
    """Rows 29, 41: the lock is gone; its holder learns of it at the next renewal, and does not take it again."""
    server, admin = fragile
    lock, other = api.Lock(server.url, name, ttl=TTL), api.Lock(server.url, name, ttl=5)
    assert api.call(lock.acquire)
    lease = lock.lease
    server.kill()
    server.restart()
    until(lease.lost.is_set)
    stays(lambda: admin.token() is None, 0.3)
    with pytest.raises(holdfast.LeaseLost):
        api.call(lock.release)
    assert api.call(other.acquire, blocking=False)
    assert other.lease.fence > lease.fence, "by the server's clock"
    api.call(other.release)


@pytest.mark.fault(31)
def test_row_31_restarted_with_its_memory_while_holding(any_api: Api, durable: tuple[PrivateServer, Admin], name: str) -> None:
    """Row 31: killed and back with an append-only file: the lease goes on."""
    server, admin = durable
    lock = any_api.Lock(server.url, name, ttl=3)
    assert any_api.call(lock.acquire)
    token = admin.token()
    server.kill()
    server.restart()
    admin.renewed()
    assert admin.token() == token
    assert not lock.lease.lost.is_set()
    any_api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(29)
def test_row_29_restarted_empty_while_waiting(api: Api, fragile: tuple[PrivateServer, Admin], name: str) -> None:
    """Row 29: queue and lock are gone; who waited is told so, and takes the free lock."""
    server, admin = fragile
    holder, lock = api.FairLock(server.url, name, ttl=5), api.FairLock(server.url, name, ttl=5)
    assert api.call(holder.acquire)
    taken = api.start(lock.acquire, timeout=10)
    until(lambda: len(admin.places()) == 1)
    server.kill()
    server.restart()
    assert taken.result(8)
    with pytest.raises(holdfast.LeaseLost):
        api.call(holder.release)
    api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(31)
def test_row_31_restarted_with_its_memory_while_waiting(api: Api, durable: tuple[PrivateServer, Admin], name: str) -> None:
    """Row 31: the place is still there, and the hand-over finds its way."""
    server, admin = durable
    holder, lock = api.FairLock(server.url, name, ttl=5), api.FairLock(server.url, name, ttl=5)
    assert api.call(holder.acquire)
    taken = api.start(lock.acquire, timeout=10)
    until(lambda: len(admin.places()) == 1)
    place = admin.places()
    process = place[0].split(".")[0]
    server.kill()
    server.restart()
    until(lambda: admin.listeners(process) == 1)
    assert admin.places() == place
    assert not taken.done()
    with at_most(0.6):
        api.call(holder.release)
        assert [admin.token()] == place
        assert taken.result(5)
    api.call(lock.release)
    admin.nothing_left()


def test_away_for_a_second_while_waiting_is_ridden_out(
    both_apis: tuple[Sync, Aio], fragile: tuple[PrivateServer, Admin], name: str
) -> None:
    """With a limit and without one: nobody who waits gets an error because the server is restarted."""
    server, admin = fragile
    holders = [holdfast.FairLock(server.url, f"{name} {number}", ttl=5) for number in range(4)]
    assert all(holder.acquire() for holder in holders)
    locks = [
        (both_apis[number % 2], both_apis[number % 2].FairLock(server.url, f"{name} {number}", ttl=5)) for number in range(4)
    ]
    taken = [api.start(lock.acquire, timeout=8 if number < 2 else -1) for number, (api, lock) in enumerate(locks)]
    until(lambda: len(admin.redis.keys("*:queue")) == 4)
    server.kill()
    stays(lambda: not any(future.done() for future in taken), 1.0)
    server.restart()
    assert all(future.result(5) for future in taken)
    for api, lock in locks:
        api.call(lock.release)
    admin.nothing_left()
    for holder in holders:
        with pytest.raises(holdfast.LeaseLost):
            holder.release()


def test_away_until_the_end_of_waiting_is_an_error(
    api: Api, proxy: Proxy, server: PrivateServer, name: str, admin: Admin
) -> None:
    """Not "busy": nobody could say whether it still is."""
    holder, lock = api.Lock(server.url, name, ttl=5), api.Lock(proxy.url, name, ttl=5)
    assert api.call(holder.acquire)
    taken = api.start(lock.acquire, timeout=1)
    until(lambda: len(admin.places()) == 1)
    proxy.down()
    with pytest.raises(holdfast.ServerError):
        taken.result(1 + 1.5)
    api.call(holder.release)


# First contact


def test_no_server_at_first_contact(api: Api, name: str, tmp_path: Path) -> None:
    """ServerError at once, with the address and without the password, whatever `wait` says."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for url, address in [
        (f"redis://joe:canary@127.0.0.1:{port}/3", f"127.0.0.1:{port}/3"),
        (f"unix://joe:canary@{tmp_path}/none.sock", f"unix:{tmp_path}/none.sock"),
    ]:
        lock = api.Lock(url, name, ttl=5, wait=60)
        with at_most(3), pytest.raises(holdfast.ServerError) as error:
            api.call(lock.acquire)
        assert error.value.address == address
        assert address in str(error.value)
        assert "canary" not in f"{error.value} {error.value!r} {error.value.__cause__!r} {lock!r}"
        with pytest.raises(holdfast.ServerError):
            api.call(lock.locked)


@pytest.mark.fault(21)
def test_a_server_that_does_not_answer_at_first_contact(api: Api, proxy: Proxy, admin: Admin, name: str) -> None:
    """Row 21: the network swallows everything. An error in bounded time; afterwards nothing is left that nobody holds."""
    proxy.freeze()
    lock = api.Lock(proxy.url, name, ttl=TTL)
    with at_most(2), pytest.raises(holdfast.ServerError):
        api.call(lock.acquire)
    proxy.thaw()
    until(lambda: "bury" in proxy.names())
    # The keeper's connection stays; what the others carried has arrived when they end.
    until(lambda: sum(any(thread.is_alive() for thread in link.threads) for link in proxy._links) <= 1)
    until(lambda: admin.token() is None, TTL + 1)
    assert admin.places() == []


def test_signals_put_no_time_limit_off(fragile: tuple[PrivateServer, Admin], name: str) -> None:
    """The kernel's own begins anew whenever a signal comes, as a profiler's do all the time."""
    server, _ = fragile
    lock = holdfast.Lock(f"{server.url}?socket_timeout=0.5", name)
    assert not lock.locked()
    end = time.monotonic() + 10

    def tick(*_: object) -> None:
        assert time.monotonic() < end, "there is no time limit"

    before = signal.signal(signal.SIGALRM, tick)
    server.pause()
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        with pytest.raises(holdfast.ServerError, match="no answer in time"):
            lock.locked()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        server.resume()


@pytest.mark.fault(50)
def test_a_refused_login(api: Api, new_server: NewServer, name: str) -> None:
    """Wrong password, none, and a user who does not exist: an error at once that shows no password."""
    server = new_server(password="canary")
    for url in (f"unix://{server.socket}", f"unix://:wrong-canary@{server.socket}", f"unix://joe:canary@{server.socket}"):
        lock = api.Lock(url, name, ttl=5, wait=60)
        with at_most(3), pytest.raises(holdfast.ServerError, match=r"NOAUTH|WRONGPASS") as error:
            api.call(lock.acquire)
        assert "canary" not in f"{error.value} {error.value.__cause__!r}"


def test_a_user_without_password_is_not_the_default_user(api: Api, new_server: NewServer, name: str) -> None:
    """A user name in the URL counts even when its password is empty, as in redis-py."""
    server = new_server()
    admin = Admin(server, name)
    admin.redis.acl_setuser("nobody", enabled=True, nopass=True, categories=["-@all"])
    for url in (f"unix://nobody:@{server.socket}", f"unix://nobody@{server.socket}"):
        with pytest.raises(holdfast.ServerError, match="NOPERM"):
            api.call(api.Lock(url, name, ttl=5).acquire)
    admin.close()


# Stopped, paused, full


@pytest.mark.fault(19)
def test_row_19_a_stopped_server_does_late_what_it_was_asked(api: Api, fragile: tuple[PrivateServer, Admin], name: str) -> None:
    """Row 19: asked, given up, and executed when it goes on. No longer than a lease, and nobody believes to hold it."""
    server, admin = fragile
    lock = api.Lock(server.url, name, ttl=TTL)
    assert not api.call(lock.locked)  # connected
    server.pause()
    with at_most(3), pytest.raises(holdfast.ServerError):
        api.call(lock.acquire)
    assert lock.lease is None
    server.resume()
    until(lambda: admin.token() is None, TTL + 1)
    assert admin.places() == []
    other = api.Lock(server.url, name, ttl=5)
    assert api.call(other.acquire)
    api.call(other.release)


@pytest.mark.fault(39)
def test_row_39_a_stopped_server_while_holding(api: Api, fragile: tuple[PrivateServer, Admin], name: str) -> None:
    """Row 39: shorter than the lease: nothing is lost."""
    server, admin = fragile
    ttl = 1.5
    lock = api.Lock(server.url, name, ttl=ttl)
    assert api.call(lock.acquire)
    token = admin.token()
    server.pause()
    stays(lambda: not lock.lease.lost.is_set(), ttl / 3)
    server.resume()
    admin.renewed()
    assert admin.token() == token
    api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(39)
def test_row_39_a_server_stopped_for_longer_than_the_lease(
    both_apis: tuple[Sync, Aio], fragile: tuple[PrivateServer, Admin], name: str
) -> None:
    """Row 39: the holder knows at its own deadline, whatever the server does when it goes on."""
    server, admin = fragile
    locks = [(api, api.Lock(server.url, f"{name} {api.name}", ttl=TTL)) for api in both_apis]
    assert all(api.call(lock.acquire) for api, lock in locks)
    leases = [lock.lease for _, lock in locks]
    server.pause()
    until(lambda: all(lease.lost.is_set() for lease in leases), TTL + 1)
    server.resume()
    keys = [lock.key for _, lock in locks]
    until(lambda: not admin.redis.exists(*keys), TTL + 1)  # a renewal that was under way may still be done
    stays(lambda: all(lease.lost.is_set() for lease in leases) and not admin.redis.exists(*keys), 0.2)
    for api, lock in locks:
        with pytest.raises(holdfast.LeaseLost):
            api.call(lock.release)


@pytest.mark.fault(40)
def test_row_40_a_short_client_pause(api: Api, fragile: tuple[PrivateServer, Admin], name: str) -> None:
    """Row 40: CLIENT PAUSE: it is waited out."""
    server, admin = fragile
    lock = api.Lock(server.url, name, ttl=5)
    assert not api.call(lock.locked)
    admin.redis.client_pause(50)
    assert api.call(lock.acquire)
    api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(40)
def test_row_40_a_long_client_pause(both_apis: tuple[Sync, Aio], fragile: tuple[PrivateServer, Admin], name: str) -> None:
    """Row 40: an error, and nothing is left for longer than a lease."""
    server, admin = fragile
    locks = [(api, api.Lock(server.url, f"{name} {api.name}", ttl=0.3)) for api in both_apis]
    assert not any(api.call(lock.locked) for api, lock in locks)
    admin.redis.client_pause(2000)
    asked = [api.start(lock.acquire) for api, lock in locks]
    for future in asked:
        with at_most(3), pytest.raises(holdfast.ServerError):
            future.result(5)
    until(lambda: not admin.redis.exists(*(lock.key for _, lock in locks)), 2 + 0.3 + 1)
    assert admin.redis.keys("*:queue") == []


@pytest.mark.fault(51)
def test_row_51_no_more_clients_allowed(any_api: Api, new_server: NewServer, name: str) -> None:
    """Row 51: who holds or waits goes on by the connections it has; who comes gets an error."""
    server = new_server("--maxclients", "20")
    admin = Admin(server, name)
    for script in (ACQUIRE, RELEASE):
        admin.redis.script_load(script.body)
    holder, lock = (any_api.FairLock(server.url, name, ttl=4) for _ in range(2))
    assert any_api.call(holder.acquire)
    token = admin.token()
    taken = any_api.start(lock.acquire, timeout=20)
    until(lambda: len(admin.places()) == 1)
    until(lambda: admin.redis.exists(f"hf:proc:{(token or '').split('.')[0]}"))  # the keeper is connected
    sockets = []
    try:
        said = b""
        while not said.startswith(b"-ERR max"):
            sock = socket.socket(socket.AF_UNIX)
            sockets.append(sock)
            sock.connect(server.socket)
            with suppress(BrokenPipeError):
                sock.sendall(b"PING\r\n")
            said = sock.recv(100)
        with pytest.raises(holdfast.ServerError):  # another time-out: connections are not shared with the others
            any_api.call(any_api.FairLock(server.url + "?socket_timeout=3", f"{name} new", ttl=5).acquire)
        admin.renewed()
        assert admin.token() == token
        assert not holder.lease.lost.is_set()
        any_api.call(holder.release)
        assert taken.result(5)
    finally:
        for sock in sockets:
            sock.close()
    until(lambda: admin.ttl_ms() > 2000)  # its own lease, and not the claim any more
    any_api.call(lock.release)
    admin.nothing_left()
    admin.close()


@pytest.mark.fault(12)
def test_row_12_an_exhausted_pool_of_the_application(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 12: all connections of the client's own pool are in use; locks have their own."""
    import redis
    import redis.asyncio

    module = redis if api.name == "sync" else redis.asyncio
    client = module.Redis.from_url(server.url, max_connections=1)
    lock = api.Lock(client, name, ttl=1)
    pool = client.connection_pool
    used = api.call(pool.get_connection)
    assert api.call(lock.acquire)
    token = admin.token()
    admin.renewed()
    assert admin.token() == token
    api.call(lock.release)
    api.call(pool.release, used)
    api.call(client.close if api.name == "sync" else client.aclose)
    admin.nothing_left()
