"""The ways in which an acquisition can go, each as a driver that has not started yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast._core.lock.spec import Spec
from holdfast._core.requests import Down, NotSent, TimedOut
from support.driver import ME, OTHER, Driver, spec
from support.memory_server import LOCK, Server


def held(seconds: float = 20.0, *, waiters: tuple[str, ...] = ()) -> Server:
    """A server on which somebody else holds the lock."""
    server = Server()
    server.take(OTHER, seconds)
    for waiter in waiters:
        server.join(waiter)
    return server


def freed() -> Server:
    """A server on which somebody else has held the lock."""
    server = held()
    holder_releases(server)
    return server


def in_the_way() -> Server:
    """A server on which the lock's key holds data of somebody else's."""
    server = Server()
    server.keyspace.execute("RPUSH", LOCK, "theirs")
    return server


def holder_releases(server: Server) -> None:
    server.release(OTHER)


def holder_dies(server: Server) -> None:
    server.lose()


def place_is_purged(server: Server) -> None:
    for token in server.queue:
        if token.startswith(ME):
            server.release(token, "leave")


def nothing(server: Server) -> None:
    """Nothing happens."""


@dataclass(frozen=True)
class Scenario:
    name: str
    driver: Callable[[], Driver]
    wait: float | None = None
    spec: Spec = field(default_factory=spec)
    granted: bool = True

    def __str__(self) -> str:
        return self.name


def _listening(driver: Driver) -> Driver:
    driver.waiting.on_listening(driver.server.now, b"hf:")
    return driver


SCENARIOS = [
    Scenario("free", lambda: Driver(Server())),
    Scenario("free, no patience", lambda: Driver(Server()), wait=0.0),
    Scenario("busy, no patience", lambda: Driver(held()), wait=0.0, granted=False),
    Scenario("handed over", lambda: Driver(held(), events=[holder_releases])),
    Scenario("handed over, the inbox was open", lambda: _listening(Driver(held(), events=[holder_releases]))),
    Scenario("handed over, not renewed", lambda: Driver(held(), events=[holder_releases]), spec=spec(renew=False)),
    Scenario("handed over, short hold", lambda: Driver(held(), events=[holder_releases]), spec=spec(max_hold=1.0)),
    Scenario("the holder dies", lambda: Driver(held(5.0), events=[holder_dies]), wait=8.0),
    Scenario("the lease of the holder ends", lambda: Driver(held(2.5))),
    Scenario("freed before we joined", lambda: Driver(held(0.002))),
    Scenario("place purged, then handed over", lambda: Driver(held(), events=[place_is_purged, holder_releases])),
    Scenario("time runs out", lambda: Driver(held()), wait=2.5, granted=False),
    Scenario("time runs out behind others", lambda: Driver(held(waiters=("cccccccccccc.1",))), wait=0.5, granted=False),
    Scenario("the inbox does not open", lambda: Driver(held(), inbox_opens=False), wait=0.5, granted=False),
    Scenario("the inbox is refused", lambda: Driver(held(), enlist_outcome=Down(NotSent("no server"))), granted=False),
    Scenario("time is up before the inbox opens", lambda: Driver(held(), enlist_outcome=TimedOut()), wait=1.0, granted=False),
    Scenario("answered after the lease", lambda: Driver(Server(), slow={("acquire", 0): 40.0})),
    Scenario("in the way", lambda: Driver(in_the_way()), granted=False),
]
