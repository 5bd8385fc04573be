"""The servers of the workers' locks, and the faults that can hit them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import Any, NamedTuple, Protocol, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from chaos.middle import Middle
from support.servers import PrivateServer, private

NAMES = [f"chaos-{number}" for number in range(8)]
"""The locks, all wanted by everybody."""

MAX_TTL = 2.0
"""Longest lease of any worker."""

Strike = Callable[[random.Random], AbstractContextManager[None]]

Choose = Callable[[random.Random], Sequence[PrivateServer]]
"""The targets of a fault."""


class Fault(NamedTuple):
    """One thing that can go wrong, for as long as its ``with`` lasts."""

    name: str
    kind: str
    """A word of `history.FAULTS`: it decides what the judge excuses."""
    lasts: tuple[float, float]
    """Seconds."""
    strike: Strike
    replaces: bool = False
    """Another primary takes over."""


class Topology(Protocol):
    """Servers, entered when the run begins. Everything that has been broken is whole again when a fault is over."""

    name: str
    kind: str
    """Class of the locks."""
    more: dict[str, Any]
    """Options that all of them have."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def where(self, process: int) -> str | list[str]:
        """The first argument of the locks of one of the processes."""

    def faults(self) -> list[Fault]: ...

    def servers(self, key: str) -> Sequence[PrivateServer]:
        """Servers that may have a key."""

    def primaries(self) -> set[PrivateServer]:
        """Servers that consider themselves primaries now."""

    def settle(self) -> None:
        """Wait until all servers have their places."""


def client_of(server: PrivateServer) -> redis.Redis:
    return redis.Redis(unix_socket_path=server.socket, socket_timeout=5, retry=Retry(NoBackoff(), 0))


def command(choose: Choose, *words: str) -> Strike:
    """Has a command carried out."""

    @contextmanager
    def strike(rng: random.Random) -> Iterator[None]:
        for server in choose(rng):
            with closing(client_of(server)) as client:
                client.execute_command(*words)  # type: ignore[no-untyped-call]
        yield

    return strike


def stopped(choose: Choose) -> Strike:
    """SIGSTOP."""

    @contextmanager
    def strike(rng: random.Random) -> Iterator[None]:
        servers = choose(rng)
        for server in servers:
            server.pause()
        try:
            yield
        finally:
            for server in servers:
                server.resume()

    return strike


def killed(choose: Choose) -> Strike:
    """SIGKILL, and a new start."""

    @contextmanager
    def strike(rng: random.Random) -> Iterator[None]:
        servers = choose(rng)
        for server in servers:
            server.kill()
        try:
            yield
        finally:
            for server in servers:
                server.restart()

    return strike


def disturbances(choose: Choose, *, watched: bool = False) -> list[Fault]:
    """Return the faults that harm no data of a server. ``watched``: a server that does not answer PING would be replaced."""
    pause = ["800", "WRITE"] if watched else ["800"]
    return [
        Fault("SCRIPT FLUSH", "refused", (0.0, 0.0), command(choose, "SCRIPT", "FLUSH")),
        Fault("connections killed", "cut", (0.0, 0.0), command(choose, "CLIENT", "KILL", "TYPE", "normal")),
        Fault("subscribers killed", "cut", (0.0, 0.0), command(choose, "CLIENT", "KILL", "TYPE", "pubsub")),
        Fault("clients paused", "silence", (0.8, 0.8), command(choose, "CLIENT", "PAUSE", *pause)),
    ]


def on_the_way(choose: Callable[[random.Random], Sequence[Middle]]) -> list[Fault]:
    """Return the faults of the network to the servers."""

    @contextmanager
    def cut(rng: random.Random) -> Iterator[None]:
        for middle in choose(rng):
            middle.cut()
        yield

    def each(how: Callable[[Middle, random.Random], AbstractContextManager[None]]) -> Strike:
        @contextmanager
        def strike(rng: random.Random) -> Iterator[None]:
            with ExitStack() as stack:
                for middle in choose(rng):
                    stack.enter_context(how(middle, rng))
                yield

        return strike

    return [
        Fault("slow network", "slow", (1.0, 2.0), each(lambda middle, rng: middle.slow(rng.choice([0.005, 0.05, 0.3, 1.0])))),
        Fault("network cut", "cut", (0.0, 0.0), cut),
        Fault("half-open connections", "silence", (0.3, 2.0), each(lambda middle, rng: middle.frozen(rng.random() < 0.5))),
        Fault("replies lost", "silence", (0.3, 1.5), each(lambda middle, rng: middle.deaf(rng))),
    ]


class Single:
    """One server. Half of the processes reach it through a network of which the faults know. ``remembers``: it has an
    append-only file, synced always; else a restart is amnesia, which the judge excuses (two may hold), with the fences still
    to be in order."""

    kind = "Lock"
    more: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, *, remembers: bool) -> None:
        self.name = "one server with append-only file" if remembers else "one server"
        self._remembers = remembers
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        args = ("--appendfsync", "always") if self._remembers else ()
        self.server = self._stack.enter_context(private(*args, port=True, password="", appendonly=self._remembers))
        self.middle = self._stack.enter_context(Middle(self.server.socket))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def where(self, process: int) -> str:
        return self.server.url if process % 4 < 2 else self.middle.url

    def faults(self) -> list[Fault]:
        def it(_: random.Random) -> list[PrivateServer]:
            return [self.server]

        return [
            Fault("server stopped", "silence", (0.1, 2.5), stopped(it)),
            Fault("server killed", "restart" if self._remembers else "amnesia", (0.0, 1.0), killed(it)),
            Fault("FLUSHALL", "amnesia", (0.0, 0.0), command(it, "FLUSHALL")),
            *disturbances(it),
            *on_the_way(lambda _: [self.middle]),
        ]

    def servers(self, key: str) -> list[PrivateServer]:
        return [self.server]

    def primaries(self) -> set[PrivateServer]:
        return {self.server}

    def settle(self) -> None:
        pass
