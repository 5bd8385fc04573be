"""Bare locks, as a lower bound: a socket, hiredis' parser, and the two commands that any lock needs."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import hiredis

from holdfast._core.lock.replies import ACQUIRE, RELEASE
from holdfast._core.names import lock_keys
from holdfast._lua import Script
from holdfast.errors import ConfigError
from holdfast_lab.bench.plan import TTL

SCRIPTS = "bare, our two scripts"
SET_DELETE = "bare, SET NX PX + compare-and-delete"

COMPARE_AND_DELETE = Path(__file__).with_name("compare_and_delete.lua").read_bytes()

_TTL_MS = int(1000 * TTL)


def pack(*parts: bytes | str | int) -> bytes:
    packed: bytes = hiredis.pack_command(parts)  # type: ignore[arg-type]
    return packed


def _greeting(url: str) -> list[bytes]:
    """Return the commands with which a connection logs in and selects the database.

    Raises ConfigError if the URL does not begin with redis:// or unix://.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"redis", "unix"}:
        raise ConfigError("the benchmark needs a redis:// or unix:// URL", parameter="url")
    said = []
    if parts.password:
        said.append(pack("AUTH", unquote(parts.username or "default"), unquote(parts.password)))
    if parts.scheme == "redis" and parts.path.strip("/"):
        said.append(pack("SELECT", parts.path.strip("/")))
    return said


class Bare:
    """A blocking connection: a plain socket and a parser of replies."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        greeting = _greeting(url)
        if parts.scheme == "unix":
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(parts.path)
        else:
            self.sock = socket.create_connection((parts.hostname or "localhost", parts.port or 6379))
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        for packed in greeting:
            _checked(self.exchange(packed))

    def exchange(self, packed: bytes) -> Any:
        """Send an encoded command, and return its reply. An error reply is returned, not raised, because a check takes time."""
        self.sock.sendall(packed)
        return self.read()

    def read(self) -> Any:
        reader = self._reader
        while (reply := reader.gets()) is False:
            reader.feed(self.sock.recv(65536))
        return reply

    def __call__(self, *parts: bytes | str | int) -> Any:
        """Execute a command. Raises hiredis.ReplyError if the reply is an error."""
        return _checked(self.exchange(pack(*parts)))

    def info(self, section: str) -> dict[str, str]:
        return dict(line.split(":", 1) for line in self("INFO", section).decode().splitlines() if ":" in line)

    def memory(self) -> int:
        """Return the bytes of memory that the server uses."""
        return int(self.info("memory")["used_memory"])

    def cpu(self) -> float:
        """Return the seconds of processor time that the server has used since its start."""
        used = self.info("cpu")
        return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])

    def close(self) -> None:
        self.sock.close()


class AsyncBare(asyncio.Protocol):
    """A plain connection for an event loop. Several tasks may send commands at once."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport

    @classmethod
    async def connect(cls, url: str) -> AsyncBare:
        parts = urlsplit(url)
        loop = asyncio.get_running_loop()
        if parts.scheme == "unix":
            _, self = await loop.create_unix_connection(cls, parts.path)
        else:
            _, self = await loop.create_connection(cls, parts.hostname or "localhost", parts.port or 6379)
        for packed in _greeting(url):
            _checked(await self.exchange(packed))
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self._waiting.popleft().set_result(reply)

    def exchange(self, packed: bytes) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        self._waiting.append(future)
        self.transport.write(packed)
        return future

    def close(self) -> None:
        self.transport.close()


def _checked(reply: Any) -> Any:
    if isinstance(reply, hiredis.ReplyError):
        raise reply
    return reply


def loads(*scripts: Script[Any]) -> list[bytes]:
    return [pack("SCRIPT", "LOAD", script.body) for script in scripts]


class Requests:
    """The encoded commands that acquire and release a lock.

    Before any other command, send those in ``load``. `pair` returns the commands that acquire and release, with a new token.
    """

    def __init__(self, kind: str, name: str) -> None:
        if kind == SCRIPTS:
            keys = lock_keys(name, "hf:", None)
            self.load = loads(ACQUIRE, RELEASE)
            self._acquire: Callable[[str], bytes] = lambda token: pack("EVALSHA", ACQUIRE.sha, 3, *keys, token, _TTL_MS, 0)
            self._release: Callable[[str], bytes] = lambda token: pack("EVALSHA", RELEASE.sha, 3, *keys, token, "release")
            self.taken: Callable[[Any], bool] = lambda reply: reply[0] == 1
        else:
            self.load = [pack("SCRIPT", "LOAD", COMPARE_AND_DELETE)]
            sha = hashlib.sha1(COMPARE_AND_DELETE, usedforsecurity=False).hexdigest()
            self._acquire = lambda token: pack("SET", name, token, "NX", "PX", _TTL_MS)
            self._release = lambda token: pack("EVALSHA", sha, 1, name, token)
            self.taken = lambda reply: reply == b"OK"

    def pair(self) -> tuple[bytes, bytes]:
        token = f"{'0' * 12}.{secrets.token_hex(16)}"
        return self._acquire(token), self._release(token)


class BareLock:
    """A lock for one thread that consists of two requests only, without timeout, renewal or error handling."""

    def __init__(self, bare: Bare, kind: str, name: str) -> None:
        self._requests = Requests(kind, name)
        self._exchange = bare.exchange
        for packed in self._requests.load:
            _checked(bare.exchange(packed))

    def acquire(self) -> bool:
        acquire, self._release = self._requests.pair()
        assert self._requests.taken(self._exchange(acquire))
        return True

    def release(self) -> None:
        assert self._exchange(self._release) == 1


class AsyncBareLock:
    """Like `BareLock`, for tasks that share a connection."""

    def __init__(self, bare: AsyncBare, kind: str, name: str) -> None:
        self._requests = Requests(kind, name)
        self._exchange: Callable[[bytes], Awaitable[Any]] = bare.exchange

    async def load(self) -> None:
        """Load the scripts on the server, once."""
        for packed in self._requests.load:
            _checked(await self._exchange(packed))

    async def acquire(self) -> bool:
        acquire, self._release = self._requests.pair()
        assert self._requests.taken(await self._exchange(acquire))
        return True

    async def release(self) -> None:
        assert await self._exchange(self._release) == 1
