"""What the workers' locks are on, and what can go wrong there."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from typing import Any, NamedTuple, Protocol, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from chaos.middle import Middle
from holdfast._servers import private
from holdfast._servers.process import PrivateServer

MAX_TTL = 2.0
"""Longest lease of any worker."""

Strike = Callable[[random.Random], AbstractContextManager[None]]


class Fault(NamedTuple):
    """One thing that can go wrong, for as long as its ``with`` lasts."""

    name: str
    kind: str
    """A word of `history.FAULTS`: it decides what the judge excuses."""
    lasts: tuple[float, float]
    """Seconds."""
    strike: Strike


class Topology(Protocol):
    """Servers, entered when the run begins. Everything that has been broken is whole again when a fault is over."""

    name: str
    kind: str
    """Class of the locks."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def where(self, process: int) -> str | list[str]:
        """The first argument of the locks of one of the processes."""

    def more(self) -> dict[str, Any]:
        """Options that all locks have."""

    def faults(self) -> list[Fault]: ...

    def clients(self) -> list[redis.Redis]:
        """One for each server that has locks, to look for what was left behind."""


def client_of(server: PrivateServer) -> redis.Redis:
    return redis.Redis(unix_socket_path=server.socket, socket_timeout=5, retry=Retry(NoBackoff(), 0))


def faults_of(server: PrivateServer, *, forgets: str) -> list[Fault]:
    """What can happen to a server. ``forgets``: kind of fault that it is when its memory is lost."""

    @contextmanager
    def stopped(_: random.Random) -> Iterator[None]:
        server.pause()
        try:
            yield
        finally:
            server.resume()

    @contextmanager
    def killed(_: random.Random) -> Iterator[None]:
        server.kill()
        try:
            yield
        finally:
            server.restart()

    def command(*words: str) -> Strike:
        @contextmanager
        def strike(_: random.Random) -> Iterator[None]:
            with closing(client_of(server)) as client, suppress(redis.ResponseError):
                client.execute_command(*words)
            yield

        return strike

    remembers = "--appendfsync" in server._args
    return [
        Fault("server stopped", "silence", (0.1, 2.5), stopped),
        Fault("server killed", "restart" if remembers else forgets, (0.0, 1.0), killed),
        Fault("FLUSHALL", forgets, (0.0, 0.0), command("FLUSHALL")),
        Fault("SCRIPT FLUSH", "refused", (0.0, 0.0), command("SCRIPT", "FLUSH")),
        Fault("connections killed", "cut", (0.0, 0.0), command("CLIENT", "KILL", "TYPE", "normal")),
        Fault("subscribers killed", "cut", (0.0, 0.0), command("CLIENT", "KILL", "TYPE", "pubsub")),
        Fault("clients paused", "silence", (0.8, 0.8), command("CLIENT", "PAUSE", "800")),
    ]


def faults_between(middle: Middle) -> list[Fault]:
    """What can happen on the way to a server."""

    @contextmanager
    def cut(_: random.Random) -> Iterator[None]:
        middle.cut()
        yield

    return [
        Fault("slow network", "slow", (1.0, 2.0), lambda rng: middle.slow(rng.choice([0.005, 0.05, 0.3, 1.0]))),
        Fault("network cut", "cut", (0.0, 0.0), cut),
        Fault("half-open connections", "silence", (0.3, 2.0), lambda rng: middle.frozen(rng.random() < 0.5)),
        Fault("replies lost", "silence", (0.3, 1.5), middle.deaf),
    ]


class Single:
    """One server. Every other process reaches it through a network of which the faults know. ``remembers``: it has an
    append-only file, synced always; else a restart is amnesia, which the judge excuses (two may hold), with the fences still
    to be in order."""

    kind = "Lock"

    def __init__(self, *, remembers: bool) -> None:
        self.name = "single with append-only file" if remembers else "single"
        self._remembers = remembers
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        args = ("--appendfsync", "always") if self._remembers else ()
        self.server = self._stack.enter_context(private(*args, port=True, appendonly=self._remembers))
        self.middle = self._stack.enter_context(Middle(self.server.socket))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def where(self, process: int) -> str:
        return self.server.url if process % 4 < 2 else self.middle.url

    def more(self) -> dict[str, Any]:
        return {}

    def faults(self) -> list[Fault]:
        return [*faults_of(self.server, forgets="amnesia"), *faults_between(self.middle)]

    def clients(self) -> list[redis.Redis]:
        return [client_of(self.server)]


def left_behind(topology: Topology, names: list[str], seconds: float) -> list[str]:
    """Keys of these locks that are still there after so long, though nobody wants them: held, or in line."""
    deadline = time.monotonic() + seconds
    clients = topology.clients()
    try:
        while True:
            found = []
            for number, client in enumerate(clients):
                for name in names:
                    key = f"hf:{{{name}}}"
                    for left in (key, f"{key}:queue"):
                        if client.exists(left):
                            found.append(f"{left} on server {number}")
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.05)
    finally:
        for client in clients:
            client.close()
