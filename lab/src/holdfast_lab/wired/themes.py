"""Themes of the real drivers, which change histories over scripted sockets; see `wired.histories`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from holdfast_lab.sim.theme import Moment, Theme


class Voting(Theme):
    """Three servers vote on each lock. The asyncio driver for several servers is used."""

    name = "voting"
    unjudged: ClassVar[frozenset[str]] = frozenset()
    more_rules: ClassVar[tuple[str, ...]] = ("T5",)
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "wired": {"wired taken": 500, "wired released": 200, "wired answered": 500, "wired failed": 100}
    }
    api = "asyncio"

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - all the time
        rng = self._rng(seed)
        profile.api, profile.tidy, profile.scale = self.api, True, 3.0
        profile.more_rates = [rng.uniform(0.996, 1.004) for _ in range(2)]
        profile.faults = {fault: rng.choice((0.3, 1.0)) * share for fault, share in profile.faults.items()}


class Polling(Voting):
    """Three servers vote on each lock. The sync driver for several servers is used."""

    name = "polling"
    api = "sync"


class Redirecting(Theme):
    """The servers are those of a Cluster. They redirect requests, because the slots of the locks move."""

    name = "redirecting"
    unjudged: ClassVar[frozenset[str]] = frozenset()
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "wired": {
            "wired slot moves": 1000,
            "wired MOVED": 1000,
            "wired ASK": 500,
            "wired TRYAGAIN": 500,
            "wired taken": 500,
            "wired renewed": 200,
        }
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - all the time
        rng = self._rng(seed)
        profile.api, profile.nodes = "asyncio" if seed % 2 else "sync", 3
        profile.faults = {fault: rng.choice((0.1, 0.3)) * share for fault, share in profile.faults.items()}


class Foreign(Theme):
    """The real drivers send requests through a Redis client that the user passed to holdfast."""

    name = "foreign"
    unjudged: ClassVar[frozenset[str]] = frozenset()
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "wired": {"wired by client": 5000, "wired tried again": 500, "wired taken": 500}
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - all the time
        profile.api = "asyncio" if seed % 2 else "sync"
        profile.client_timeout = self._rng(seed).choice((0.3, 1.0, 5.0))


class Closing(Theme):
    """Event loops end while operations of the real drivers run or clean up.

    Operations that clean up after a cancellation are cancelled once more.
    """

    name = "closing"
    unjudged: ClassVar[frozenset[str]] = frozenset()
    more_rules: ClassVar[tuple[str, ...]] = ("T5",)
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "wired": {
            **{f"wired loops {ending} in an operation": 200 for ending in ("run", "stopped", "dropped")},
            "wired cancelled twice": 200,
            "wired taken": 500,
        }
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - all the time
        rng = self._rng(seed)
        profile.api, profile.tidy, profile.scale = "asyncio", True, 3.0
        profile.impatient = rng.choice((0.0, 0.2, 0.5))
        profile.faults = rng.choice(({}, profile.faults))
        endings = ("run", "run", "stopped", "dropped")
        profile.loops = [
            (rng.choice((0.1, 1.0, 5.0)) * rng.random(), rng.choice(endings)) for _ in range(rng.choice((1, 2, 3)))
        ]
        if rng.random() < 0.3:
            profile.more_rates = [rng.uniform(0.996, 1.004) for _ in range(2)]


class Objects(Theme):
    """Workers use the lock objects of the public API over the real drivers, and are interrupted.

    In some histories, the server accepts no more clients from some moment on.
    """

    name = "objects"
    unjudged: ClassVar[frozenset[str]] = frozenset()
    more_rules: ClassVar[tuple[str, ...]] = ("T5", "T6", "T7")
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "wired": {
            "wired taken": 5000,
            "wired released": 5000,
            "wired interrupted": 300,
            "wired cancelled": 300,
            "wired waited": 500,
            "wired turned away": 200,
            "wired forsaken": 200,
        }
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - all the time
        rng = self._rng(seed)
        profile.api = "asyncio" if seed % 2 else "sync" if seed % 4 else "shared"
        profile.objects, profile.tidy, profile.scale = True, True, 3.0
        profile.impatient = rng.choice((0.0, 0.1, 0.3))
        profile.faults = rng.choice(({}, {}, profile.faults))
        if profile.api == "sync" and rng.random() < 0.5:  # a request arrives after its undo, over another connection
            profile.faults, profile.impatient = {"late": 0.2}, 0.3
        profile.crowd = profile.api == "asyncio" and self._rng(seed, "crowd").random() < 0.1
        if not profile.faults:
            profile.delay = min(profile.delay, 0.01)  # no reply is late
            profile.full_from = rng.choice((None, 15.0 * rng.random()))


class Stalling(Objects):
    """Threads and event loops stall for longer than a lease, while many requests are late or lost.

    All workers want the same lock, and many tasks are cancelled.
    """

    name = "stalling"
    histories = 8
    unjudged: ClassVar[frozenset[str]] = frozenset(("T4",))
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "wired": {"wired taken": 3000, "wired released": 3000, "wired cancelled": 500, "wired waited": 1000}
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:
        super().redraw(seed, profile, moment)
        rng = self._rng(seed, "stalls")
        profile.api = "asyncio" if seed % 2 else "shared"
        profile.names, profile.ttls, profile.full_from = "x", rng.choice(((2.0,), (2.0, 60.0))), None
        late = profile.api == "asyncio" and rng.random() < 0.5
        profile.stalls = 0.4 if profile.api == "shared" else 0.002 if late else 0.02
        profile.impatient = 0.4 if late else 0.1
        profile.faults = {"late": 0.2, "refused": 0.1} if late else {"cut_reply": 0.05}
        profile.outages = [(20.0 * rng.random(), 4.0 * rng.random()) for _ in range(rng.choice((3, 5)))]
