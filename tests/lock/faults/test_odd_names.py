"""Rows 48 and 62 to 65: odd names, other people's data under our keys, odd clients, large numbers, odd leases."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

import holdfast
from holdfast._core.lock.replies import BLOCK
from holdfast._core.names import lock_keys
from support.apis import Admin, Api, at_most, until
from support.proxy import Proxy, arguments
from support.servers import PrivateServer
from support.witness import lease_record

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

ODD: list[str | bytes] = [
    "a", "x" * 512, "ä" * 256, "\r\n", "a\r\nFLUSHALL\r\n", "\x00", "a\x00b", "{", "}", "{}", "}{", "a}b{c", "{x}:queue", "%7B",
    "%", " ", "\x7f", "\x1b[31m", "a:state", "*", "?[]\\", "'; redis.call('FLUSHALL') --", "日本語", b"\xff\xfe", b"\x80abc",
]  # fmt: skip


@pytest.fixture
def raw(server: PrivateServer) -> Iterator[Any]:
    """A client that leaves bytes as they are."""
    with redis.Redis.from_url(server.url) as client:
        yield client


def crc_slot(key: bytes) -> bytes:
    """The part of a key that decides its slot, by the Cluster specification."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    return key[start + 1 : end] if start >= 0 and end > start + 1 else key


@pytest.mark.turns
@pytest.mark.fault(62)
@pytest.mark.parametrize("odd", ODD, ids=[str(number) for number in range(len(ODD))])
def test_row_62_odd_names(api: Api, server: PrivateServer, raw: Any, odd: str | bytes) -> None:
    """Row 62: CRLF, NUL, braces, 512 bytes, not UTF-8: a lock as any other, under keys of its own and nothing else."""
    raw.flushdb()
    raw.set("bystander", "untouched")
    lock, other = (api.FairLock(server.url, odd, ttl=5) for _ in range(2))
    assert api.call(lock.acquire)
    assert api.call(other.acquire, blocking=False) is False
    taken = api.start(other.acquire, timeout=5)
    keys = lock_keys(odd, "hf:", None)
    until(lambda: raw.zcard(keys[2]) == 1)
    found = {key for key in raw.keys() if not key.startswith(b"hf:proc:")}  # noqa: SIM118
    assert found == {*keys, b"bystander"}
    assert len({crc_slot(key) for key in keys}) == 1, "one slot of a Cluster"
    assert not re.search(rb"[\x00-\x1f\x7f]", b"".join(keys))
    api.call(lock.lease.renew)
    api.call(lock.release)
    assert taken.result(5)
    api.call(other.release)
    assert not api.call(other.locked)
    assert raw.get("bystander") == b"untouched"
    assert all(raw.ttl(key) > 0 for key in keys[1:] if raw.exists(key))


@pytest.mark.fault(62)
def test_row_62_different_names_are_different_locks() -> None:
    """Row 62: none of them reaches another's keys, whatever it contains."""
    keys = [key for odd in ODD for key in lock_keys(odd, "hf:", None)]
    assert len(set(keys)) == len(keys)


@pytest.mark.fault(62)
@pytest.mark.parametrize("bad", ["", b"", "x" * 513, "ä" * 257, b"\xff" * 513, "\ud800", 7, None, ["a"]], ids=repr)
def test_row_62_names_that_are_refused(api: Api, bad: Any) -> None:
    """Row 62: empty, too long, no Unicode, no text: by the name of the parameter, before anything is sent."""
    with pytest.raises(holdfast.ConfigError) as error:
        api.Lock("redis://127.0.0.1:1", bad)
    assert error.value.parameter == "name"
    assert "name" in str(error.value)


# Other people's data


def put(client: Any, key: str, kind: str, *instead: str) -> Any:
    """Somebody's data, without an expiry, in place of what is there, and of other keys, at one stroke: as it is dumped."""
    with client.pipeline() as at_once:
        at_once.delete(key, *instead)
        match kind:
            case "list":
                at_once.rpush(key, "theirs")
            case "set":
                at_once.sadd(key, "theirs")
            case "zset":
                at_once.zadd(key, {"theirs": 1})
            case "hash":
                at_once.hset(key, "theirs", "1")
            case "stream":
                at_once.xadd(key, {"theirs": "1"})
            case _:
                at_once.set(key, "theirs")
        return at_once.dump(key).execute()[-1]


WRONG = [
    *(("lock", kind) for kind in ("list", "set", "zset", "hash", "stream")),
    *(("state", kind) for kind in ("list", "string")),
    *(("queue", kind) for kind in ("hash", "string")),
]


@pytest.mark.fault(48)
@pytest.mark.parametrize(("which", "kind"), WRONG)
def test_row_48_data_of_another_type_under_our_keys(
    api: Api, server: PrivateServer, raw: Any, admin: Admin, name: str, which: str, kind: str
) -> None:
    """Row 48: a clear error that names the key and says its type; nothing is overwritten, deleted or made to expire."""
    key = getattr(admin, which)
    before = put(raw, key, kind)
    lock = api.Lock(server.url, name, ttl=5, wait=5)
    with at_most(2), pytest.raises(holdfast.HoldfastError) as error:
        api.call(lock.acquire)
    assert f"holds a {kind}" in str(error.value)
    assert key in str(error.value)
    assert raw.dump(key) == before
    assert raw.ttl(key) == -1
    assert lock.lease is None
    raw.delete(key)
    admin.nothing_left()
    assert api.call(lock.acquire)
    api.call(lock.release)


@pytest.mark.fault(48)
@pytest.mark.parametrize(("which", "kind"), [("lock", "list"), ("lock", "stream"), ("state", "list"), ("queue", "string")])
def test_row_48_data_of_another_type_comes_while_holding(
    api: Api, server: PrivateServer, raw: Any, admin: Admin, name: str, which: str, kind: str
) -> None:
    """Row 48: as above, for renewal and release."""
    lock = api.Lock(server.url, name, ttl=1)
    assert api.call(lock.acquire)
    lease = lock.lease
    key = getattr(admin, which)
    before = put(raw, key, kind)
    if which == "lock":
        until(lease.lost.is_set)
        assert lease_record(lease).lost == "its key has the value of another client", "by its next renewal"
        with pytest.raises(holdfast.LeaseLost):
            api.call(lock.release)
    else:
        admin.renewed()
        assert not lease.lost.is_set()
        api.call(lock.release)
        assert admin.token() is None
    assert raw.dump(key) == before
    assert raw.ttl(key) == -1
    raw.delete(key)


@pytest.mark.fault(48)
@pytest.mark.parametrize(("which", "kind"), [("lock", "hash"), ("state", "list"), ("queue", "string")])
def test_row_48_data_of_another_type_comes_while_waiting(
    api: Api, server: PrivateServer, raw: Any, admin: Admin, name: str, which: str, kind: str
) -> None:
    """Row 48: who waits is told at its next refresh, or gets the lock in order; nothing is overwritten."""
    holder, lock = (api.FairLock(server.url, name, ttl=0.8) for _ in range(2))
    assert api.call(holder.acquire)
    taken = api.start(lock.acquire, timeout=5)
    until(lambda: len(admin.places()) == 1)
    key = getattr(admin, which)
    before = put(raw, key, kind)
    if which == "queue":
        api.call(holder.release)  # as long as the lock is held, the queue is not looked at
    try:
        with pytest.raises(holdfast.HoldfastError, match=f"holds a {kind}"):
            taken.result(10)
        assert raw.dump(key) == before
        assert raw.ttl(key) == -1
    finally:
        raw.delete(key, admin.state, admin.queue)
    if which == "state":
        api.call(holder.release)


@pytest.mark.fault(48)
@pytest.mark.parametrize(("which", "kind"), [("lock", "hash"), ("state", "list"), ("queue", "string")])
def test_row_48_one_spoilt_lock_does_not_harm_other_waiters(
    api: Api, proxy: Proxy, server: PrivateServer, raw: Any, admin: Admin, name: str, which: str, kind: str
) -> None:
    """Row 48: all waiters of a process are refreshed together; what is wrong with one of them is its own affair."""
    sound = Admin(server, f"{name} sound")
    holder, spoilt_holder = holdfast.Lock(server.url, f"{name} sound", ttl=0.8), holdfast.Lock(server.url, name, ttl=0.8)
    lock, spoilt = api.Lock(proxy.url, f"{name} sound", ttl=5), api.Lock(proxy.url, name, ttl=5)
    assert holder.acquire()
    assert spoilt_holder.acquire()
    never, taken = api.start(spoilt.acquire, timeout=5), api.start(lock.acquire, timeout=5)
    until(lambda: len(admin.places()) == len(sound.places()) == 1)
    put(raw, getattr(admin, which), kind, admin.lock)
    try:
        proxy.on("message", action="lose", times=100)  # so that only asking helps
        holder.release()
        assert taken.result(10)
        api.call(lock.release)
        with pytest.raises(holdfast.HoldfastError, match=f"holds a {kind}"):
            never.result(10)
    finally:
        raw.delete(*(getattr(admin, one) for one in ("lock", "state", "queue")))
        with suppress(holdfast.LeaseLost):
            spoilt_holder.release()
        sound.close()


@pytest.mark.fault(48)
def test_row_48_a_foreign_string_is_a_foreign_lock(api: Api, server: PrivateServer, raw: Any, admin: Admin, name: str) -> None:
    """Row 48: a string is a lock of another make: busy for as long as it is there, with or without an expiry."""
    lock = api.Lock(server.url, name, ttl=5, wait=0)
    raw.set(admin.lock, "theirs")
    assert api.call(lock.acquire) is False
    raw.pexpire(admin.lock, 150)
    with at_most(0.8):  # and not after a second, when all who wait ask
        assert api.call(lock.acquire, timeout=5)
    api.call(lock.release)
    admin.nothing_left()


# Clients


def client_of(api: Api, library: str, url: str, **options: Any) -> Any:
    if library == "redis":
        make: Any = redis.Redis if api.name == "sync" else redis.asyncio.Redis
    else:
        make = valkey.Valkey if api.name == "sync" else valkey.asyncio.Valkey
    return make.from_url(url, **options)


@pytest.mark.fault(63)
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("library", ["redis", "valkey"])
def test_row_63_all_kinds_of_clients(
    api: Api, server: PrivateServer, admin: Admin, name: str, library: str, decode: bool, protocol: int
) -> None:
    """Row 63: bytes or str, RESP2 or RESP3, redis-py or valkey-py: the same lock, waiting included."""
    client = client_of(api, library, server.url, decode_responses=decode, protocol=protocol)
    holder, lock = (api.FairLock(client, name, ttl=5) for _ in range(2))
    assert api.call(holder.acquire)
    taken = api.start(lock.acquire, timeout=5)
    until(lambda: len(admin.places()) == 1)
    api.call(holder.lease.renew)
    api.call(holder.release)
    assert taken.result(5)
    assert type(lock.lease.fence) is int
    assert api.call(lock.locked) is True
    api.call(lock.release)
    admin.nothing_left()
    assert "token" not in repr(client)
    api.call(client.aclose if api.name == "asyncio" else client.close)


@pytest.mark.fault(63)
def test_row_63_encodings_of_the_client_do_not_matter(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 63: names are UTF-8 whatever the client's encoding is, or two processes would not exclude each other."""
    latin = client_of(api, "redis", server.url, encoding="latin-1", decode_responses=True)
    one, two = api.Lock(latin, f"ä {name}", ttl=5), api.Lock(server.url, f"ä {name}", ttl=5)
    assert api.call(one.acquire)
    assert api.call(two.acquire, blocking=False) is False
    api.call(one.release)
    api.call(latin.aclose if api.name == "asyncio" else latin.close)


@pytest.mark.fault(63)
def test_row_63_a_database_of_its_own(api: Api, new_server: NewServer, name: str) -> None:
    """Row 63: the client's database counts, for keys and for hand-overs."""
    server = new_server()
    holder, lock, elsewhere = (api.FairLock(f"{server.url}?db={db}", name, ttl=5) for db in (3, 3, 4))
    assert api.call(holder.acquire)
    assert api.call(elsewhere.acquire)
    taken = api.start(lock.acquire, timeout=5)
    with redis.Redis.from_url(f"{server.url}?db=3") as client:
        until(lambda: client.zcard(lock_keys(name, "hf:", None)[2]) == 1)
    api.call(holder.release)
    assert taken.result(0.9)
    api.call(lock.release)
    api.call(elsewhere.release)


# Numbers


@pytest.mark.fault(64)
def test_row_64_fences_are_whole_numbers_of_16_digits(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 64: neither 1.7e+15 nor rounded, on the way from the server's clock to the holder, and after it."""
    lock = api.Lock(server.url, name, ttl=5)
    fences = []
    for _ in range(3):
        assert api.call(lock.acquire)
        fences.append(lock.lease.fence)
        assert str(lock.lease.fence + BLOCK - 1) == admin.redis.hget(admin.state, "fence")
        api.call(lock.release)
    seconds, micros = admin.redis.time()
    assert fences == sorted(set(fences))
    assert 10**15 < fences[-1] <= seconds * 10**6 + micros
    ahead = 4_102_444_800_000_001  # the year 2100, by a clock that was wrong
    admin.redis.hset(admin.state, "fence", str(ahead))
    assert api.call(lock.acquire)
    assert lock.lease.fence == ahead + 1
    api.call(lock.release)
    assert api.call(lock.acquire)
    assert lock.lease.fence == ahead + 1 + BLOCK
    assert holdfast.fencing.accept(server.url, f"resource {name}", ahead + 1 + BLOCK)
    assert not holdfast.fencing.accept(server.url, f"resource {name}", ahead + 1)
    api.call(lock.release)


@pytest.mark.fault(65)
@pytest.mark.parametrize("parameter", ["ttl", "max_hold", "wait"])
@pytest.mark.parametrize(
    "value", [0, -1, -0.001, 0.049, math.nan, math.inf, -math.inf, 1e300, 366 * 86400 + 1, "1", True, [1], None]
)
def test_row_65_leases_and_waits_that_are_refused(api: Api, parameter: str, value: Any) -> None:
    """Row 65: before anything is sent, by the name of the parameter."""
    allowed = {"wait": (0, 0.049, math.inf, None, 366 * 86400 + 1), "max_hold": (None,), "ttl": ()}[parameter]
    if any(value is one or (value == one and type(value) is type(one)) for one in allowed):
        api.Lock("redis://127.0.0.1:1", "name", **{parameter: value})
        return
    with pytest.raises(holdfast.ConfigError) as error:
        api.Lock("redis://127.0.0.1:1", "name", **{parameter: value})
    assert error.value.parameter == parameter
    assert parameter in str(error.value)


@pytest.mark.fault(65)
@pytest.mark.parametrize("ttl", [0.05, 0.1, 0.299, 1.999, 2.5, 1, 366 * 86400])
def test_row_65_leases_are_not_rounded_to_seconds(api: Api, proxy: Proxy, admin: Admin, name: str, ttl: float) -> None:
    """Row 65: sub-second leases are what they say, to the millisecond, and the holder believes a little less."""
    lock = api.Lock(proxy.url, name, ttl=ttl, renew=False)
    assert api.call(lock.acquire)
    assert lock.lease.remaining() < ttl
    assert -1 != admin.ttl_ms() <= ttl * 1000
    try:
        api.call(lock.lease.renew)
        assert -1 != admin.ttl_ms() <= ttl * 1000
        api.call(lock.release)
        assert {"acquire", "renew"} <= set(proxy.names())
    except holdfast.LeaseLost:
        assert ttl < 1, "on a busy machine, a short one is soon over"
    for request in proxy.log:
        if request.name in {"acquire", "renew"}:
            _token, asked_for, *_ = arguments(request.packed)
            assert int(asked_for) == round(ttl * 1000)
    until(lambda: admin.token() is None)
    admin.nothing_left()
