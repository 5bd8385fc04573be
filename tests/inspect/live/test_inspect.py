"""`inspect` on real servers: who holds what, and who waits for it; of many locks, of a Cluster, of several servers."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from contextlib import ExitStack
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pytest
import redis

import holdfast
from holdfast import ConfigError, LockInfo, ServerError, aio
from holdfast._api import access
from holdfast._runtime.process import current
from support.clusters import cluster
from support.servers import PrivateServer
from support.witness import in_thread, until

if TYPE_CHECKING:
    from conftest import NewServer

APIS = ["threads", "asyncio"]


class Seeing:
    """`inspect` of either API."""

    def __init__(self, api: str, client: Any, **options: Any) -> None:
        self._asyncio = api == "asyncio"
        self.it: Any = (aio.Inspector if self._asyncio else holdfast.Inspector)(client, **options)

    def locks(self, *pattern: str) -> list[LockInfo]:
        async def all_of_them() -> list[LockInfo]:
            return [lock async for lock in self.it.locks(*pattern)]

        return asyncio.run(all_of_them()) if self._asyncio else list(self.it.locks(*pattern))

    def names(self, *pattern: str) -> set[str]:
        return {lock.name for lock in self.locks(*pattern)}

    def show(self, *args: Any, **kwargs: Any) -> Any:
        async def shown() -> Any:
            return await self.it.show(*args, **kwargs)

        return asyncio.run(shown()) if self._asyncio else self.it.show(*args, **kwargs)


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def own(new_server: NewServer) -> PrivateServer:
    """A server with nothing on it."""
    return new_server(port=True)


def client_of(server: PrivateServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


def take_and_leave(lock: holdfast.FairLock) -> None:
    with lock:
        pass


def fill(server: PrivateServer, number: int) -> None:
    """So many held locks, of three processes, two of which have said who they are."""
    script = """
        local time = redis.call('TIME')
        for i = ARGV[1], ARGV[2] do
          local key = 'hf:{order:' .. i .. '}'
          redis.call('SET', key, string.format('%012x.%032x', i % 3, i), 'PX', 600000)
          redis.call('HSET', key .. ':state', 'v', '1', 'fence', string.format('%.0f', time[1] * 1000000 + time[2]))
          redis.call('PEXPIRE', key .. ':state', 600000)
        end
    """
    with client_of(server) as client:
        for n in range(2):
            client.set(f"hf:proc:{n:012x}", json.dumps({"host": f"h{n}", "pid": n, "label": None}), px=600_000)
        for first in range(0, number, 1000):
            client.eval(script, 0, first, min(first + 1000, number) - 1)


def test_who_holds_a_lock_and_who_waits_in_order(own: PrivateServer, api: str) -> None:
    see = Seeing(api, own.url)
    before = time.time()
    with ExitStack() as stack, client_of(own) as client:
        lock = holdfast.FairLock(own.url, "naïve {name}", label="night shift")
        stack.callback(current().set_label, None)  # type: ignore[arg-type]
        lease = stack.enter_context(lock)
        until(lambda: client.exists(f"hf:proc:{current().id}"))
        for number in range(2):
            waits = in_thread(take_and_leave, holdfast.FairLock(own.url, "naïve {name}", wait=20))
            stack.callback(waits.result, 20)
            until(lambda: client.zcard("hf:{naïve %7Bname%7D}:queue") == number + 1)  # noqa: B023 - it is over then
        (found,) = see.locks()
        shown = see.show("naïve {name}")
        token = client.get("hf:{naïve %7Bname%7D}")
        places = [client.zrange("hf:{naïve %7Bname%7D}:queue", 0, -1)]
        lock.release()
    assert (found.name, found.kind, found.held, found.waiters, found.line) == ("naïve {name}", "lock", True, 2, None)
    assert found.fence >= lease.fence
    holder = shown.holder
    assert str(holder) == f"{socket.gethostname()}:{os.getpid()} (night shift)"
    assert before - 1 < holder.since < time.time() + 1
    assert 0 <= holder.held_for < 20
    assert 20 < holder.remaining <= 30
    assert [one.pid for one in shown.line] == [os.getpid()] * 2
    assert shown.line[0].waited >= shown.line[1].waited >= 0
    assert all(one.alive for one in shown.line)
    assert holder.mark == found.holder.mark  # type: ignore[union-attr]
    said = repr(found) + repr(shown) + json.dumps(shown.facts())
    for secret in (token, *places[0]):
        assert secret.partition(".")[2] not in said
    until(lambda: not see.show("naïve {name}").held)
    assert see.names() == set()


PATTERNS = ["*", "a*", "a?b", "a[*]b", "[[]a]", "*%*", "{*", "?", "??", "[!a]", "*\n*", "日*", "a\\b", "%41", "z"]
NAMES = ["a", "ab", "a*b", "a?b", "[a]", "a\\b", "{a}", "50%", "a\nb", "ä", "日本", "x:y:z", "a}b", "%41"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_is_of_names(server: PrivateServer, pattern: str, name: str) -> None:
    prefix = f"[{name}*]:"
    with ExitStack() as stack:
        for called in NAMES:
            stack.enter_context(holdfast.Lock(server.url, called, prefix=prefix, renew=False, ttl=60))
        found = Seeing("threads", server.url, prefix=prefix).names(pattern)
    assert found == {called for called in NAMES if fnmatchcase(called, pattern)}


def test_what_is_there_and_is_no_lock_of_ours(own: PrivateServer, api: str) -> None:
    with client_of(own) as client:
        client.set("hf:{peer}", "its secret")
        client.set("hf:{peer with an end}", "1", px=50_000)
        client.rpush("hf:{list}", "x")
        client.set("hf:{odd}", "0123456789ab.0123", px=50_000)
        client.set("hf:{odd}:state", "no hash")
        client.set("hf:{odd}:queue", "no line")
        client.set("hf:proc:0123456789ab", '{"host": "h\x1b[31m", "pid": "many"}')
        client.hset("hf:{free}:state", "v", "1")
        client.set("other:{lock}", "0123456789ab.0123")
        found = {lock.name: lock for lock in Seeing(api, own.url).locks()}
        shown = Seeing(api, own.url).show("free")
        client.flushall()
    assert found.keys() == {"peer", "peer with an end", "list", "odd"}
    peer, odd = found["peer"], found["odd"]
    assert (peer.kind, peer.held, peer.fence, str(peer.holder)) == ("foreign", True, 0, "a client of another library")
    assert peer.holder is not None
    assert peer.holder.remaining is None, "it has no expiry"
    assert "secret" not in repr(peer)
    assert found["peer with an end"].holder.remaining > 40  # type: ignore[union-attr,operator]
    assert (found["list"].kind, found["list"].held) == ("other", False)
    assert (odd.kind, odd.waiters, str(odd.holder)) == ("lock", 0, "process 0123456789ab")
    assert (shown.held, shown.holders, shown.line) == (False, (), ())


def test_a_key_of_ones_own(server: PrivateServer, name: str, api: str) -> None:
    with holdfast.Lock(server.url, name, key=f"raw-{name}"):
        shown = Seeing(api, server.url).show(name, key=f"raw-{name}")
    assert (shown.name, shown.key, shown.held) == (name, f"raw-{name}".encode(), True)


def test_clients_of_every_kind(own: PrivateServer) -> None:
    with client_of(own) as client, holdfast.Lock(client, b"\xff bytes"):
        for asked in (client, redis.Redis.from_url(own.url), own.url):
            (found,) = holdfast.Inspector(asked).locks()
            assert (found.name, found.held) == ("\\xff bytes", True)
            assert holdfast.Inspector(asked).show(found).held, "what was found can be shown"
        assert holdfast.Inspector(client).show(b"\xff bytes").held


def test_many_locks_are_looked_at_a_few_at_a_time(own: PrivateServer, api: str) -> None:
    fill(own, 3000)
    with client_of(own) as client:
        client.config_resetstat()
        found = Seeing(api, own.url).locks()
        stats = client.info("commandstats")
        client.flushall()
    assert len(found) == len({lock.name for lock in found}) == 3000
    assert {str(lock.holder) for lock in found} == {"h0:0", "h1:1", "process 000000000002"}
    assert "cmdstat_keys" not in stats
    assert stats["cmdstat_mget"]["calls"] == 1 if "cmdstat_mget" in stats else True, "a process is asked for once"
    runs = stats["cmdstat_evalsha"]["calls"]
    assert 60 <= runs <= 130, "fifty in a run, or fewer at the end of a step"
    assert 6000 / 500 <= stats["cmdstat_scan"]["calls"] <= 40


@pytest.mark.soak
def test_a_hundred_thousand_locks(own: PrivateServer) -> None:
    fill(own, 100_000)
    with client_of(own) as client:
        client.config_set("slowlog-log-slower-than", 5000)
        client.slowlog_reset()
        client.config_resetstat()
        began = time.monotonic()
        locks = holdfast.Inspector(own.url).locks()
        next(locks)
        first = time.monotonic() - began
        assert sum(1 for _ in locks) == 99_999
        stats = client.info("commandstats")
        slow = client.slowlog_get(100)
        client.flushall()
    runs = stats["cmdstat_evalsha"]["calls"]
    print(
        f"first after {first:.3f} s, all after {time.monotonic() - began:.1f} s; {stats['cmdstat_evalsha']}; {len(slow)} slow"
    )
    assert first < 0.5
    assert stats["cmdstat_evalsha"]["usec"] / runs < 5000
    assert len(slow) <= runs / 100, "but for what the machine does beside"


def test_of_a_cluster_all_parts_are_seen() -> None:
    with cluster() as three, ExitStack() as stack:
        for number in range(30):
            stack.enter_context(holdfast.Lock(three.url, f"n{number}"))
        for see in (Seeing(api, three.url) for api in APIS):
            assert see.names() == {f"n{number}" for number in range(30)}
            assert see.names("n1?") == {f"n1{number}" for number in range(10)}
            until(lambda see=see: see.show("n7").holder.host is not None)  # type: ignore[misc]
            assert see.show("n7").holder.pid == os.getpid()


def test_labels_of_locks_with_other_settings(server: PrivateServer, name: str, api: str) -> None:
    """One process reaches the server by two endpoints, and has one record there."""
    urls = [server.url, f"{server.url}?socket_timeout=4.5"]
    see = Seeing(api, server.url)
    with ExitStack() as stack:
        for number, url in enumerate(urls):
            stack.enter_context(holdfast.Lock(url, f"{name} {number}", label=f"label {number}"))
        until(lambda: [see.show(f"{name} {number}").holder.label for number in range(2)] == ["label 0", "label 1"])


def test_of_several_servers_a_majority_counts(new_server: NewServer, api: str) -> None:
    servers = [new_server(port=True) for _ in range(3)]
    urls = [server.url for server in servers]
    holdfast.declare_new(urls)
    see = Seeing(api, urls)
    with holdfast.Redlock(urls, "ours") as lease, client_of(servers[1]) as client:
        until(lambda: see.show("ours").votes == 3)
        client.set("hf:{stray}", "0123456789ab.0123", px=50_000)
        found = {lock.name: lock for lock in see.locks()}
        assert {name: (lock.votes, lock.servers, lock.held) for name, lock in found.items()} == {
            "ours": (3, 3, True),
            "stray": (1, 3, False),
        }
        assert found["ours"].fence >= lease.fence
        named = dict(zip("abc", urls, strict=True))
        assert Seeing(api, named).names() == {"ours", "stray"}
        assert holdfast.connect(named).inspector().show("ours").votes == 3
        servers[0].kill()
        assert (see.show("ours").votes, see.show("ours").held) == (2, True)
        assert see.names() == {"ours", "stray"}
    servers[2].kill()
    with pytest.raises(ServerError):  # what a minority does not know may be held all the same
        see.names()


def test_a_user_who_may_only_look(own: PrivateServer, api: str) -> None:
    with client_of(own) as client, holdfast.Lock(own.url, "mine"):
        client.execute_command("ACL SETUSER", "guest", *access.rule(("inspect",)), ">secret")
        guest = own.url.replace("redis://", "redis://guest:secret@")
        assert Seeing(api, guest).names() == {"mine"}
        assert Seeing(api, guest).show("mine").held
        with pytest.raises(ServerError, match="holdfast acl"):
            holdfast.Lock(guest, "free").acquire(blocking=False)


def test_what_cannot_be_asked(new_server: NewServer, api: str) -> None:
    server = new_server(port=True)
    see = Seeing(api, server.url)
    with pytest.raises(ConfigError, match="name must have 1 to 512 bytes"):
        see.show("")
    with pytest.raises(ConfigError, match="prefix"):
        Seeing(api, server.url, prefix="{")
    server.kill()
    with pytest.raises(ServerError, match=r"lock 'x': failed: .*127\.0\.0\.1"):
        see.show("x")
    with pytest.raises(ServerError, match=r"locks '\*': failed"):
        see.locks()


def test_what_several_share(server: PrivateServer, name: str, api: str) -> None:
    prefix = f"{name}:"
    see = Seeing(api, server.url, prefix=prefix)
    with ExitStack() as stack:
        fences = [stack.enter_context(holdfast.Semaphore(server.url, "slots", 5, prefix=prefix)).fence for _ in range(3)]
        room = holdfast.RWLock(server.url, "room", prefix=prefix)
        stack.enter_context(room.read)
        term = stack.enter_context(holdfast.Election(server.url, "chief", candidate="node-1", prefix=prefix))
        found = {lock.name: lock for lock in see.locks()}
        slots, reading, chief = found["slots"], see.show("room"), see.show("chief")
        shown = see.show("slots")
    assert (slots.kind, slots.used, slots.limit, slots.held) == ("semaphore", 3, 5, True)
    assert sorted(holder.fence for holder in shown.holders) == fences
    assert {holder.pid for holder in shown.holders} <= {os.getpid(), None}
    assert (reading.kind, reading.used, len(reading.holders)) == ("rwlock", 1, 1)
    assert (chief.kind, chief.leader, term.fence <= chief.fence) == ("election", "node-1", True)
    with holdfast.RWLock(server.url, "room", prefix=prefix).write:
        assert see.show("room").used == see.show("room").limit


def test_of_more_than_are_listed_all_are_counted(
    server: PrivateServer, name: str, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("_core.inspect.scan", "_api.inspector"):
        monkeypatch.setattr(f"holdfast.{module}.LINE", 2)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(holdfast.Semaphore(server.url, name, 5))
        seen = Seeing(api, server.url).show(name)
    assert (seen.used, len(seen.holders)) == (3, 2)


def test_what_is_never_held_is_not_among_the_locks(api: str, server: PrivateServer, name: str) -> None:
    """`show` shows it."""
    prefix = f"{name}:"
    holdfast.Event(server.url, "event", prefix=prefix).set()
    holdfast.CountDownLatch(server.url, "latch", 2, prefix=prefix).count_down()
    holdfast.Barrier(server.url, "barrier", 1, prefix=prefix).wait()
    seeing = Seeing(api, server.url, prefix=prefix)
    with holdfast.Lock(server.url, "lock", prefix=prefix):
        assert seeing.names() == {"lock"}
    assert [seeing.show(kind).kind for kind in ("event", "latch", "barrier")] == ["event", "latch", "barrier"]
