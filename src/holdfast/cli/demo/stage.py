"""The server of a demo, unique keys on the server, and processes that do what the demo tells them."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
from types import TracebackType
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast._clock import monotonic
from holdfast._net.url import from_url
from holdfast.cli.demo.show import ShowError
from holdfast.errors import ServerError

PATIENCE = 15.0
"""Seconds within which a process of a demo has to answer, even on a busy machine."""


class Actor:
    """A process that runs one role of a module such as `actors`. It reads orders as lines, and answers in lines of JSON."""

    pid: int

    def __init__(self, url: str, role: str, *arguments: str, module: str = "holdfast.cli.demo.actors") -> None:
        self._said = bytearray()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, role, *arguments],  # -P: no code from the current directory
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "HOLDFAST_URL": url},  # not passed as an argument, because every user can see arguments
        )
        self.pid = self._process.pid

    def tell(self, *words: str) -> None:
        """Send the process an order, which is one line of words."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended, which `hear` reports
            self._process.stdin.write((" ".join(words) + "\n").encode())

    def hear(self, timeout: float = PATIENCE) -> dict[str, Any]:
        """Return the next answer of the process. Raises ShowError if it ends, or does not answer within ``timeout`` seconds."""
        stdout = self._process.stdout
        assert stdout is not None
        deadline = monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._said:
                if not selector.select(max(0.0, deadline - monotonic())):
                    raise ShowError(f"process {self.pid} did not answer within {timeout:g} s")
                data = os.read(stdout.fileno(), 65536)
                if not data:
                    raise ShowError(f"process {self.pid} ended before it answered")
                self._said += data
        line, _, rest = bytes(self._said).partition(b"\n")
        self._said[:] = rest
        answer: dict[str, Any] = json.loads(line)
        return answer

    def signal(self, number: signal.Signals) -> float:
        """Send the process a signal, and return the monotonic time, in seconds, just before that."""
        at = monotonic()
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()
        return at

    def dismiss(self) -> None:
        """Kill the process and close its pipes."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Stage:
    """The server, the processes and the keys of a demo. The end of ``with`` kills the processes and deletes the keys."""

    name: str
    client: redis.Redis
    server: str

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = f"holdfast-demo:{secrets.token_hex(4)}"
        self._actors: list[Actor] = []
        self._keys = [self.name]

    def __enter__(self) -> Self:
        self.client = client(self.url)
        try:
            info = self.client.info("server")
        except redis.RedisError as error:
            address = from_url(self.url).address
            raise ServerError(f"no server at {address}: {error}", address=address) from error
        assert isinstance(info, dict)
        name = "Valkey" if "valkey_version" in info else "Redis"
        self.server = f"{name} {info.get('valkey_version', info['redis_version'])}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for actor in self._actors:
            actor.dismiss()
        from holdfast import close

        close()
        with contextlib.suppress(redis.RedisError):  # if the server is gone, all keys expire by themselves
            self.client.delete(*self._keys)
        self.client.close()

    def key(self, name: str) -> str:
        """Return a unique key for data of the demo. At the end, the key and its fence (of `holdfast.fencing`) are deleted."""
        key = f"{{{self.name}}}:{name}"
        self._keys += [key, f"{key}:fence"]
        return key

    def start(self, role: str, *arguments: str, **options: str) -> Actor:
        """Start a process that runs a role, and return without waiting for its first line. The options are those of `Actor`."""
        actor = Actor(self.url, role, *arguments, **options)
        self._actors.append(actor)
        return actor


def client(url: str) -> redis.Redis:
    """Return a redis-py client for the server of a URL, which may be ``local://``, a scheme that redis-py does not know."""
    endpoint = from_url(url)
    if endpoint.local is not None:
        from holdfast._local.server import local

        local.ensure(endpoint.local)
    login: dict[str, Any] = {"db": endpoint.db, "username": endpoint.username, "password": endpoint.password}
    login["retry"] = Retry(NoBackoff(), 0)
    if endpoint.path is not None:
        return redis.Redis(unix_socket_path=endpoint.path, **login)
    tls = {} if endpoint.tls is None else {"ssl": True, **dict(endpoint.tls)}
    return redis.Redis(endpoint.host, endpoint.port, **login, **tls)
