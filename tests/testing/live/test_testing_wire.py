"""The replies of a server in memory and of a real one: the same bytes in both protocols, pushes and errors too."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import hiredis
import pytest

from holdfast import testing

if TYPE_CHECKING:
    from conftest import NewServer

Step = tuple[str, ...]

PLAIN: list[Step] = [
    ("PING",),
    ("PING", "hello"),
    ("ECHO", "x"),
    ("SELECT", "0"),
    ("SET", "k", "v"),
    ("SET", "k", "v", "NX"),
    ("GET", "k"),
    ("GET", "none"),
    ("INCR", "n"),
    ("MGET", "k", "none"),
    ("HSET", "h", "a", "1", "b", "2"),
    ("HGET", "h", "none"),
    ("HMGET", "h", "a", "none"),
    ("HGETALL", "none"),
    ("HSET", "one", "field", "value"),
    ("HGETALL", "one"),
    ("SADD", "s", "x"),
    ("SMEMBERS", "s"),
    ("SMEMBERS", "none"),
    ("ZADD", "z", "1.5", "one", "2", "two", "1e20", "far"),
    ("ZSCORE", "z", "one"),
    ("ZSCORE", "z", "none"),
    ("ZRANGE", "z", "0", "-1"),
    ("ZRANGE", "z", "0", "-1", "WITHSCORES"),
    ("ZRANGEBYSCORE", "z", "-inf", "+inf", "withscores"),
    ("ZRANK", "z", "none"),
    ("ZPOPMIN", "z"),
    ("ZPOPMIN", "z", "2"),
    ("ZPOPMIN", "z"),
    ("LPOP", "none"),
    ("EVAL", "return {1, 'two', false, {ok='fine'}}", "0"),
    ("EVAL", "return redis.error_reply('MINE own')", "0"),
    ("EVALSHA", "0" * 40, "0"),
    ("PUBLISH", "nobody", "x"),
    ("TYPE", "h"),
]
TRANSACTIONS: list[Step] = [
    ("EXEC",),
    ("DISCARD",),
    ("MULTI",),
    ("MULTI",),
    ("EXEC",),
    ("MULTI",),
    ("WATCH", "k"),
    ("EXEC",),
    ("MULTI",),
    ("SET", "k", "1"),
    ("GET", "none"),
    ("HSET", "h", "a", "1"),
    ("HGETALL", "h"),
    ("INCR", "h"),
    ("EXEC",),
    ("MULTI",),
    ("DISCARD",),
    ("WATCH", "k"),
    ("SET", "k", "1"),
    ("MULTI",),
    ("GET", "k"),
    ("EXEC",),
    ("WATCH", "k"),
    ("UNWATCH",),
    ("MULTI",),
    ("EXEC",),
    ("WATCH", "k", "none"),
    ("MULTI",),
    ("PING",),
    ("EXEC",),
    ("WATCH",),
]
MESSAGES: list[Step] = [
    ("UNSUBSCRIBE",),
    ("SUBSCRIBE", "a", "b"),
    ("SUBSCRIBE", "a"),
    ("PING",),
    ("PING", "x"),
    ("GET", "k"),
    ("UNSUBSCRIBE", "b", "c"),
    ("UNSUBSCRIBE",),
    ("GET", "k"),
    ("SUBSCRIBE",),
]
WITH_ITSELF: list[Step] = [("SUBSCRIBE", "a"), ("PUBLISH", "a", "x"), ("MULTI",), ("PUBLISH", "a", "y"), ("PING",), ("EXEC",)]
CLIENT: list[Step] = [
    ("CLIENT", "GETNAME"),
    ("CLIENT", "SETNAME", "me"),
    ("CLIENT", "GETNAME"),
    ("CLIENT", "SETINFO", "LIB-NAME", "x"),
    ("CLIENT", "NO-EVICT", "on"),
    ("HELLO", "9"),
]


@pytest.fixture(scope="module")
def memory() -> Iterator[testing.Memory]:
    with testing.memory() as server:
        yield server


def talk(path: str, steps: list[Step], protocol: str = "2") -> bytes:
    """All that a server answers, after the greeting."""
    with closing(socket.socket(socket.AF_UNIX)) as sock:
        sock.settimeout(5)
        sock.connect(path)
        greeting = hiredis.Reader()
        sock.sendall(request("HELLO", protocol))
        while not greeting.gets():
            greeting.feed(sock.recv(65536))
        said = b""
        for step in [("FLUSHALL",), *steps, ("QUIT",)]:
            sock.sendall(request(*step))
        while data := sock.recv(65536):
            said += data
    return said


def request(*parts: str) -> bytes:
    return hiredis.pack_command(parts)  # type: ignore[arg-type, no-any-return]


@pytest.mark.parametrize("protocol", ["2", "3"])
@pytest.mark.parametrize("steps", [PLAIN, TRANSACTIONS, MESSAGES, CLIENT], ids=["plain", "transactions", "messages", "client"])
def test_as_a_real_server(memory: testing.Memory, new_server: NewServer, steps: list[Step], protocol: str) -> None:
    real, ours = (talk(path, steps, protocol) for path in (new_server().socket, memory.socket))
    assert readable(ours) == readable(real)


def test_messages_to_oneself(memory: testing.Memory, new_server: NewServer) -> None:
    real, ours = (talk(path, WITH_ITSELF, "3") for path in (new_server().socket, memory.socket))
    assert sorted(readable(ours)) == sorted(readable(real))


def readable(said: bytes) -> list[bytes]:
    """Lines; of an error, what a program may look at: its code."""
    return [line.split(b" ")[0] if line[:1] == b"-" else line for line in said.split(b"\r\n")]


@pytest.mark.parametrize("noise", [b"GET k\r\n", b"*1\r\n:1\r\n", b"*0\r\n", b":5\r\n", b"$3\r\nGET\r\n", b"\xff\x00\r\n\r\n"])
def test_noise_ends_a_connection_and_no_more(memory: testing.Memory, noise: bytes) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as sock:
        sock.settimeout(5)
        sock.connect(memory.socket)
        sock.sendall(noise)
        assert sock.recv(100) == b""
    assert talk(memory.socket, [("PING",)]) == b"+OK\r\n+PONG\r\n+OK\r\n"


def test_requests_in_pieces_and_in_one_piece(memory: testing.Memory) -> None:
    stream = b"".join(request("SET", "k", str(n)) + request("GET", "k") for n in range(50))
    answers = b"".join(b"+OK\r\n$%d\r\n%d\r\n" % (len(str(n)), n) for n in range(50))
    for size in (1, 7, len(stream)):
        with closing(socket.socket(socket.AF_UNIX)) as sock:
            sock.settimeout(5)
            sock.connect(memory.socket)
            said = b""
            for at in range(0, len(stream), size):
                sock.sendall(stream[at : at + size])
            while len(said) < len(answers):
                said += sock.recv(65536)
            assert said == answers
