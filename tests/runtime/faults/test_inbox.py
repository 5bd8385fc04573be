"""Rows 25 to 28: the inbox, through which a process hears of hand-overs: cut, slow, late, and lied to."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest

from holdfast._core.lock.node import PING_EVERY_S
from holdfast._core.lock.replies import CLAIM_WINDOW_S
from holdfast._core.lock.server_queue import REFRESH_EVERY_S
from support.apis import Admin, Api, Sync, at_most, stays, until
from support.proxy import Proxy
from support.servers import PrivateServer

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

MAPPED = [b"%1\r\n*1\r\n+a\r\n+x\r\n", b"%1\r\n~0\r\n+x\r\n", b"*1\r\n%1\r\n%1\r\n+a\r\n:1\r\n+x\r\n"]
"""RESP3: maps with a key that is an array, a set, or another map."""

AT_ONCE = 0.8 * REFRESH_EVERY_S
"""Seconds: less than until a client that has just asked asks again by itself."""
LATE = REFRESH_EVERY_S + 0.8
"""Seconds: enough for a client to ask by itself, and less than a claim window."""


class Liar(Proxy):
    """Says something else than the server, once: after the first subscription."""

    def __init__(self, server: PrivateServer, said: bytes) -> None:
        super().__init__(server)
        self._said = said
        self.lies = 0

    def amend(self, packed: bytes) -> bytes:
        if packed.startswith(b"*3\r\n$9\r\nsubscribe\r\n") and not self.lies:
            self.lies += 1
            return packed + self._said
        return packed


@pytest.mark.fault(25)
def test_row_25_the_subscription_is_killed_while_waiting(
    api: Api, proxy: Proxy, server: PrivateServer, admin: Admin, name: str
) -> None:
    """Row 25: CLIENT KILL TYPE pubsub. Subscribed anew, everybody asks at once: a message may have been missed."""
    holder, lock = api.Lock(server.url, name, ttl=30), api.Lock(proxy.url, name, ttl=30)
    assert api.call(holder.acquire)
    taken = api.start(lock.acquire, timeout=10)
    until(lambda: len(admin.places()) == 1)
    for _ in range(3):
        before = len(proxy.names("refresh"))
        again = proxy.on("SUBSCRIBE", action="pass")
        assert admin.redis.client_kill_filter(_type="pubsub")  # the holder's, too, if it has one by now
        with at_most(AT_ONCE):
            until(again.done.is_set)
            until(lambda before=before: len(proxy.names("refresh")) > before)  # type: ignore[misc]
    assert not taken.done()
    api.call(holder.release)
    assert taken.result(AT_ONCE)
    api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(25)
def test_row_25_released_in_the_gap(api: Api, proxy: Proxy, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 25: the hand-over falls between the cut and the new subscription; no timer is waited for."""
    holder, lock = api.Lock(server.url, name, ttl=30), api.Lock(proxy.url, name, ttl=30)
    assert api.call(holder.acquire)
    taken = api.start(lock.acquire, timeout=10)
    until(lambda: len(admin.places()) == 1)
    admin.redis.client_kill_filter(_type="pubsub")
    api.call(holder.release)
    assert taken.result(AT_ONCE)
    api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(25)
def test_row_25_cut_again_and_again(api: Api, proxy: Proxy, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 25: all connections of the waiter, ten times, at any moment; it keeps its place and gets the lock."""
    holder, lock = api.Lock(server.url, name, ttl=30), api.Lock(proxy.url, name, ttl=30)
    assert api.call(holder.acquire)
    taken = api.start(lock.acquire, timeout=10)
    until(lambda: len(admin.places()) == 1)
    place = admin.places()
    for number in range(10):
        time.sleep(number * 0.004)
        proxy.cut()
    assert admin.places() == place
    api.call(holder.release)
    assert taken.result(LATE)
    api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(26)
def test_row_26_a_slow_subscriber_is_thrown_out(api: Api, new_server: NewServer, name: str) -> None:
    """Row 26: output buffer limit. As a killed subscription; the flood itself changes nothing."""
    server = new_server("--client-output-buffer-limit", "pubsub 64kb 0 0")
    admin = Admin(server, name)
    with Proxy(server) as proxy:
        holder, lock = api.Lock(server.url, name, ttl=30), api.Lock(proxy.url, name, ttl=30)
        assert api.call(holder.acquire)
        taken = api.start(lock.acquire, timeout=10)
        until(lambda: len(admin.places()) == 1)
        process = admin.places()[0].split(".")[0]
        rule, again = proxy.on("message", action="stall"), proxy.on("SUBSCRIBE", action="pass")  # nothing is read behind it
        (listener,) = admin.redis.client_list(_type="pubsub")  # the holder, in the same process, may have one later
        while listener["id"] in {client["id"] for client in admin.redis.client_list(_type="pubsub")}:
            admin.redis.publish(f"hf:inbox:{process}", "x" * 4000)
        rule.go()
        until(again.done.is_set, AT_ONCE)
        assert not taken.done()
        api.call(holder.release)
        assert taken.result(AT_ONCE)
        api.call(lock.release)
        admin.nothing_left()
    admin.close()


@pytest.mark.fault(27)
def test_row_27_a_message_read_when_its_claim_is_over(proxy: Proxy, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 27: grant, message and refresh are under way until somebody else holds; then the message comes first. (In one
    API: it is the keeper's part. A whole process that reads late is in `test_processes`.)"""
    api = Sync()
    holder, lock = api.Lock(server.url, name, ttl=30), api.Lock(proxy.url, name, ttl=30)
    assert api.call(holder.acquire)
    taken = api.start(lock.acquire, timeout=20)
    until(lambda: len(admin.places()) == 1)
    message = proxy.on("message", action="stall")
    refresh = proxy.on("refresh", action="hold", times=100)
    (token,) = admin.places()
    api.call(holder.release)
    assert admin.token() == token
    until(lambda: api.call(holder.acquire, blocking=False), CLAIM_WINDOW_S + 0.8, every=0.02)
    message.go()
    assert message.done.wait(1)
    stays(lambda: not taken.done(), 0.1)
    refresh.go()
    stays(lambda: not taken.done(), 0.2)
    fence = holder.lease.fence
    api.call(holder.release)
    assert taken.result(LATE)
    assert lock.lease.fence > fence
    api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(28)
def test_row_28_forged_and_malformed_messages(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 28: garbage, 10 MB, wrong numbers, another version, another's token, an old fence: none of them is believed."""
    holder, lock = api.FairLock(server.url, name, ttl=30), api.FairLock(server.url, name, ttl=30)
    assert api.call(holder.acquire)
    taken = api.start(lock.acquire, timeout=10)
    until(lambda: len(admin.places()) == 1)
    (token,) = admin.places()
    assert token
    process, _, secret = token.partition(".")
    fence = admin.last_fence()
    other = f"{process}.{secret[::-1]}"
    held = admin.token()
    payloads: list[str | bytes] = [
        b"", b" ", b"  ", b"1", b"garbage", b"\x00" * 100, b"\xff\xfe\xfd", b"x" * 10_000_000, b'{"a": 1}',
        f"1 {token}", f"1 {token} ", f"1 {token} x", f"1 {token} -1", f"1 {token} 1.5", f"1 {token} ²",
        f"1 {token} {fence}", f"1 {token} {fence - 1}", f"1 {token} 0", f"1 {token} {fence + 1} more",
        f"2 {token} {fence + 1}", f"0 {token} {fence + 1}", f" {token} {fence + 1}",
        f"1 {other} {fence + 1}", f"1 {held} {fence + 1}", f"1 {token[:-1]} {fence + 1}", f"1 {process} {fence + 1}",
        f"1 {token}x {fence + 1}", f"1  {fence + 1}", f"1 {token} {'9' * 300}",
    ]  # fmt: skip
    for payload in payloads:
        assert admin.redis.publish(f"hf:inbox:{process}", payload) == 1
    stays(lambda: not taken.done(), 0.1)
    assert admin.token() == held
    assert admin.places() == [token]
    api.call(holder.release)
    assert taken.result(1)
    assert lock.lease.fence == admin.fence() > fence
    api.call(lock.release)
    admin.nothing_left()


@pytest.mark.turns
@pytest.mark.fault(28)
@pytest.mark.parametrize(
    "said",
    [b"*1\r\n$4\r\nwhat\r\n", b":7\r\n", b"$-1\r\n", b"!garbage\r\n", b"*-1\r\n", b"*0\r\n", b"*1\r\n%0\r\n", *MAPPED],
)
def test_row_28_a_server_that_says_nonsense(api: Api, name: str, server: PrivateServer, admin: Admin, said: bytes) -> None:
    """Row 28: an answer that is none, to the subscription: it is dropped with its connection, and the wait goes on."""
    holder = api.Lock(server.url, name, ttl=30)
    assert api.call(holder.acquire)
    with Liar(server, said) as liar:
        lock = api.Lock(liar.url, name, ttl=30)
        taken = api.start(lock.acquire, timeout=10)
        until(lambda: liar.lies)
        until(lambda: len(admin.places()) == 1)
        api.call(holder.release)
        assert taken.result(LATE)
        api.call(lock.release)
        admin.nothing_left()


@pytest.mark.fault(21)
def test_row_21_a_half_open_inbox(api: Api, proxy: Proxy, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 21, as far as waiting goes: the peer vanished without a word. Asking goes on by another connection in time."""
    holder, lock = api.Lock(server.url, name, ttl=0.9), api.Lock(proxy.url, name, ttl=0.4)
    assert api.call(holder.acquire)
    taken = api.start(lock.acquire, timeout=10)
    until(lambda: len(admin.places()) == 1)
    proxy.freeze()
    api.call(holder.release)
    time.sleep(0.9)  # until that lease would have ended: it has asked
    proxy.cut()
    proxy.thaw()
    assert taken.result(PING_EVERY_S - 1)
    api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(28)
@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", *MAPPED], ids=["http", "array", "set", "map"])
def test_a_stranger_on_the_port_is_an_error(api: Api, name: str, said: bytes) -> None:
    """Row 28: something that speaks another protocol is there: an error, no hang."""
    import holdfast

    with socket.create_server(("127.0.0.1", 0)) as listener:
        lock = api.Lock(f"redis://127.0.0.1:{listener.getsockname()[1]}", name, ttl=0.3)
        asked = api.start(lock.acquire, timeout=0.1)
        connection, _ = listener.accept()
        with connection:
            connection.sendall(said)
            listener.close()
            with pytest.raises(holdfast.ServerError):
                asked.result(3)
