"""The simulator's keyspace, where a real server cannot be asked: its time, its state as a whole, what goes in and out."""

from __future__ import annotations

import gc
import hashlib
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast._core.lock.replies import ACQUIRE, BLOCK, REFRESH, RELEASE, RENEW
from holdfast.testing.keyspace import Keyspace, ReplyError, Status
from holdfast.testing.keyspace.engine import LuaEngine, kinds

KEYS = (b"hf:{x}", b"hf:{x}:state", b"hf:{x}:queue")
START = 1_700_000_000_123_456
ON: dict[str, type[Keyspace]] = {
    kind: type("On", (Keyspace,), {"__slots__": (), "_engine": LuaEngine(kind)}) for kind in kinds()
}


@pytest.fixture(params=ON)
def keyspace(request: pytest.FixtureRequest) -> Keyspace:
    kind: str = request.param
    return ON[kind](START)


def script(text: str) -> Any:
    return SimpleNamespace(name="test", body=text.encode(), sha=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def filled(keyspace: Keyspace) -> Keyspace:
    """With a key of each kind, some with an expiry."""
    for step in (
        ("SET", "s", b"\x00\xff", "PX", 5_000),
        ("HSET", "h", "b", 1, "a", 2),
        ("ZADD", "z", 2, "two", 1, "one", 1, "also one", "0.5", "half"),
        ("RPUSH", "l", "x", "y", "x"),
        ("SADD", "m", "q", "p"),
        ("PEXPIRE", "h", 7_000),
    ):
        assert not isinstance(keyspace.execute(*step), ReplyError)
    return keyspace


# Time


def test_time_is_what_the_caller_says(keyspace: Keyspace) -> None:
    assert keyspace.execute("TIME") == [b"1700000000", b"123456"]
    keyspace.now = 1_800_000_000_000_007
    assert keyspace.execute("TIME") == [b"1800000000", b"7"]
    assert keyspace.run(script("return redis.call('TIME')"), (), ()) == [b"1800000000", b"7"]


def test_a_key_is_there_up_to_its_last_millisecond(keyspace: Keyspace) -> None:
    keyspace.execute("SET", "k", "v", "PX", 10)
    keyspace.now += 10_000
    assert keyspace.execute("PTTL", "k") == 0
    assert keyspace.execute("GET", "k") == b"v"
    assert len(keyspace.dump()) == 1
    keyspace.now += 1_000
    assert keyspace.dump() == ()
    assert keyspace.execute("GET", "k") is None


def test_time_may_go_back(keyspace: Keyspace) -> None:
    keyspace.execute("SET", "k", "v", "PX", 10)
    keyspace.now -= 60_000_000
    assert keyspace.execute("PTTL", "k") == 60_010


# The state as a whole


def test_dump_says_all_in_order(keyspace: Keyspace) -> None:
    assert keyspace.dump() == ()
    now = START // 1000
    assert filled(keyspace).dump() == (
        (b"h", b"hash", ((b"a", b"2"), (b"b", b"1")), now + 7_000),
        (b"l", b"list", (b"x", b"y", b"x"), None),
        (b"m", b"set", (b"p", b"q"), None),
        (b"s", b"string", b"\x00\xff", now + 5_000),
        (b"z", b"zset", ((b"half", 0.5), (b"also one", 1), (b"one", 1), (b"two", 2)), None),
    )
    assert hash(keyspace.dump()) == hash(filled(type(keyspace)(START)).dump())


def test_load_becomes_what_was_dumped_and_works_on(keyspace: Keyspace) -> None:
    dump = filled(keyspace).dump()
    other = type(keyspace)(START)
    other.execute("SET", "another", "gone")
    other.load(dump)
    assert other.dump() == dump
    assert other.execute("HDEL", "h", "a", "b") == 2
    assert other.execute("ZRANGE", "z", 0, 0) == [b"half"]
    assert other.execute("SREM", "m", "p", "q") == 2
    assert [key for key, *_ in other.dump()] == [b"l", b"s", b"z"]
    assert keyspace.dump() == dump, "nothing is shared"
    other.clear()
    assert other.dump() == ()


def test_large_contents(keyspace: Keyspace) -> None:
    for number in range(3_000):
        keyspace.execute("RPUSH", "l", number)
        keyspace.execute("HSET", "h", number, "x")
        keyspace.execute("ZADD", "z", -number, number)
    other = type(keyspace)(START)
    other.load(keyspace.dump())
    assert other.dump() == keyspace.dump()
    assert other.execute("LRANGE", "l", 0, -1) == [b"%d" % number for number in range(3_000)]
    assert other.execute("ZRANGE", "z", 0, 0) == [b"2999"]
    assert len(other.execute("HGETALL", "h")) == 6_000


def test_keyspaces_are_strangers_to_each_other(keyspace: Keyspace) -> None:
    other = type(keyspace)(START)
    keyspace.execute("SET", "k", "v")
    keyspace.execute("SCRIPT", "LOAD", "return 1")
    keyspace.subscribe(b"c", 1)
    assert other.execute("GET", "k") is None
    assert other.execute("SCRIPT", "EXISTS", hashlib.sha1(b"return 1", usedforsecurity=False).hexdigest()) == [0]
    assert other.execute("PUBLISH", "c", "x") == 0
    assert keyspace.published == []


def test_versions_tell_of_each_change(keyspace: Keyspace) -> None:
    def changed(*step: str | int) -> bool:
        before = keyspace.version(b"k")
        keyspace.execute(*step)
        return keyspace.version(b"k") != before

    assert changed("SET", "k", "v")
    assert changed("SET", "k", "v"), "the same value"
    assert not changed("SET", "other", "v")
    assert not changed("GET", "k")
    assert changed("PEXPIRE", "k", 5)
    before = keyspace.version(b"k")
    keyspace.now += 6_000
    assert keyspace.version(b"k") != before, "it has expired"
    assert not changed("DEL", "k")
    assert changed("HSET", "k", "f", 1)
    assert changed("FLUSHALL")


def test_numbers_that_are_not_whole(keyspace: Keyspace) -> None:
    keyspace.execute("ZADD", "z", "0.1", "a", "inf", "b", "-inf", "c", "1e300", "d")
    assert keyspace.execute("ZSCORE", "z", "a") == b"0.10000000000000001"
    other = type(keyspace)(START)
    other.load(keyspace.dump())
    assert other.execute("ZRANGE", "z", 0, -1) == [b"c", b"a", b"d", b"b"]


@pytest.mark.turns
def test_nothing_of_a_keyspace_stays(keyspace: Keyspace) -> None:
    class Watched(type(keyspace)):  # type: ignore[misc]
        __slots__ = ("__weakref__",)

    one = Watched(START)
    one.execute("PUBLISH", "c", "x")
    one.published.clear()
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None


# Messages, memory, identity


def test_messages(keyspace: Keyspace) -> None:
    assert keyspace.execute("PUBLISH", "c", "nobody hears") == 0
    keyspace.subscribe(b"c", 1)
    keyspace.subscribe(b"c", 1)
    assert keyspace.run(script("return redis.call('PUBLISH', 'c', 'x')"), (), ()) == 2
    keyspace.subscribe(b"c", -1)
    assert keyspace.execute("PUBSUB", "NUMSUB", "c", "d") == [b"c", 1, b"d", 0]
    keyspace.subscribe(b"c", -1)
    assert keyspace.execute("PUBSUB", "CHANNELS") == []
    assert keyspace.published == [(b"c", b"nobody hears"), (b"c", b"x")]


def test_full_memory(keyspace: Keyspace) -> None:
    keyspace.run(ACQUIRE, KEYS, ("a.1", 30_000, 0))
    keyspace.full = True
    assert keyspace.execute("SET", "k", "v").code == "OOM"
    assert keyspace.run(ACQUIRE, KEYS, ("b.1", 30_000, 1)).code == "OOM"
    assert keyspace.run(RENEW, KEYS, ("a.1", 30_000, 1)) == [1]
    assert keyspace.run(RELEASE, KEYS, ("a.1", "bury")) == 1
    keyspace.full = False
    assert keyspace.execute("SET", "k", "v") == Status(b"OK")


def test_who_it_is(keyspace: Keyspace) -> None:
    keyspace.run_id = b"ab" * 20
    assert b"run_id:" + b"ab" * 20 + b"\r\n" in keyspace.execute("INFO", "server")
    assert b"role:master" in keyspace.execute("INFO")
    assert keyspace.execute("INFO", "nonsense") == b""
    assert keyspace.execute("HELLO", 3)[4:6] == [b"proto", 3]
    assert keyspace.execute("HELLO", 4).code == "NOPROTO"
    for step in (["AUTH", "user", "secret"], ["CLIENT", "SETINFO", "LIB-NAME", "x"], ["CLIENT", "SETNAME", "x"], ["SELECT", 0]):
        assert keyspace.execute(*step) == b"OK"
    assert str(keyspace.execute("SELECT", 1)) == "ERR DB index is out of range"


# Scripts


def test_a_script_runs_as_by_eval_and_evalsha(keyspace: Keyspace) -> None:
    token = "a" * 12 + "." + "0" * 32
    fence = keyspace.now
    held = [1, fence, fence + BLOCK - 1]
    assert keyspace.run(ACQUIRE, KEYS, (token, 30_000, 0)) == held
    keyspace.now += 5
    assert keyspace.execute("EVALSHA", ACQUIRE.sha, 3, *KEYS, token, 30_000, 0).code == "NOSCRIPT"
    assert keyspace.execute("EVAL", ACQUIRE.body, 3, *KEYS, token, 30_000, 0) == held
    assert keyspace.execute("EVALSHA", ACQUIRE.sha.upper(), 3, *KEYS, token, 30_000, 0) == held
    assert keyspace.run(RELEASE, list(KEYS), [token.encode(), "release"]) == 1


def test_a_script_with_hundreds_of_keys(keyspace: Keyspace) -> None:
    args = [arg for number in range(100) for arg in (f"a.{number}", 30_000)]
    assert keyspace.run(REFRESH, KEYS * 100, ("inbox", *args)) == [0, *([[-1]] * 100)]


def test_replies(keyspace: Keyspace) -> None:
    text = "return {1, 'x', false, {ok = 'fine'}, {err = 'MY wrong'}, {{}, {2.9, -2.9}}, true, nil, 5}"
    reply = keyspace.run(script(text), (), ())
    assert reply == [1, b"x", None, b"fine", ReplyError("MY wrong"), [[], [2, -2]], 1]
    assert isinstance(reply[3], Status)
    assert keyspace.run(script("return {1, false, 'x', 2.5}"), (), ()) == [1, None, b"x", 2]
    assert keyspace.run(script("return {}"), (), ()) == []
    assert keyspace.run(script("return"), (), ()) is None
    assert keyspace.run(script("return {ok = 'fine'}"), (), ()) == b"fine"
    assert keyspace.run(script("local all = {} for i = 1, 5000 do all[i] = i end return all"), (), ()) == list(range(1, 5001))


@pytest.mark.parametrize(
    "text",
    [
        "leak = 1",
        "function leak() end",
        "KEYS = {}",
        "redis.call = nil",
        "redis.leak = 1",
        "string.leak = 1",
        "_G.leak = 1",
        "rawset(_G, 'leak', 1)",
        "setmetatable(_G, {})",
        "return leak",
        "return os",
        "return math.random()",
        "getmetatable('').__index.leak = 1",
        "redis.call('PING').ok = 'leak'",
        "redis.call('SELECT', 0).ok = 'leak'",
    ],
)
def test_no_script_leaves_anything_for_the_next(keyspace: Keyspace, text: str) -> None:
    keyspace.run(script(text), (), ())
    assert keyspace.run(script("return type(redis.call)"), (), ()) == b"function"
    for name in ("leak", "_G.leak", "redis.leak", "string.leak"):
        reply = keyspace.run(script(f"return {name}"), (), ())
        assert reply is None or "nonexistent global variable 'leak'" in str(reply)
    assert keyspace.execute("PING") == b"PONG"
    assert keyspace.execute("SELECT", 0) == b"OK"


def test_an_error_ends_a_script_and_what_it_has_written_stays(keyspace: Keyspace) -> None:
    text = "redis.call('SET', KEYS[1], 'v')\nredis.call('INCR', KEYS[1])\nreturn 1"
    reply = keyspace.run(script(text), [b"k"], ())
    sha = script(text).sha
    assert str(reply) == f"ERR value is not an integer or out of range script: {sha}, on @user_script:2."
    assert keyspace.execute("GET", "k") == b"v"
    assert str(keyspace.run(script("error('stop')"), (), ())).startswith("ERR user_script:1: stop script: ")
    with pytest.raises(ValueError, match="Error compiling script"):
        keyspace.run(script("return ("), (), ())


def test_tables_are_walked_in_order_whatever_their_history(keyspace: Keyspace) -> None:
    fields = "abcdefghijklmnopqrstuvwxyz"
    text = "local t, all = {}, {} for _, f in ipairs(ARGV) do t[f] = f end for k in %s do all[#all + 1] = k end return all"
    for walk in ("pairs(t)", "next, t"):
        for order in (fields, fields[::-1]):
            assert keyspace.run(script(text % walk), (), list(order)) == [field.encode() for field in fields]
        clear = f"local t = {{a = 1, b = 2, [1] = 3}} for k in {walk} do t[k] = nil end return next(t) == nil"
        assert keyspace.run(script(clear), (), ()) == 1


def test_threads_may_have_a_keyspace_each() -> None:
    found: list[Any] = []

    def use(number: int) -> None:
        keyspace = Keyspace(START)
        for _ in range(2_000):
            keyspace.now += 1
            keyspace.run(ACQUIRE, KEYS, (f"{number}.0", 30_000, 0))
        found.append((number, keyspace.execute("GET", KEYS[0]), len(keyspace.dump())))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [(number, f"{number}.0".encode(), 2) for number in range(3)]


def test_peek_tells_a_string_and_its_expiry() -> None:
    keyspace = Keyspace(now=1_000_000_000)
    assert keyspace.peek(b"k") == (b"", None)
    keyspace.execute("SET", "k", "v")
    assert keyspace.peek(b"k") == (b"v", None)
    keyspace.execute("PEXPIRE", "k", 10)
    assert keyspace.peek(b"k") == (b"v", 1_000_010)
    keyspace.now += 11_000
    assert keyspace.peek(b"k") == (b"", None)
    keyspace.execute("RPUSH", "k", "v")
    assert keyspace.peek(b"k") == (b"", None)
