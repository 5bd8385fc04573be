"""The result of a seed, in all swarms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from holdfast.testing.history import Event
from holdfast_lab.judge.safety_rules import Violation

P = TypeVar("P")


class Server(Protocol):
    """The statistics of a simulated server."""

    calls: int
    """Number of commands and scripts that the server has run."""

    @property
    def asked_for(self) -> Mapping[str, int]:
        """Number of runs of each script or command, by name."""


class World(Protocol):
    """The part of a simulated world that users of a result read."""

    history: list[Event]
    steps: int

    @property
    def servers(self) -> Sequence[Server]:
        """The servers of the world."""


@dataclass(slots=True)
class HistoryResult(Generic[P]):
    """The history of a seed, and the violations of the rules in it."""

    seed: int
    profile: P
    """The parameters of the history."""
    world: World
    violations: list[Violation]
    counts: Counter[str] = field(default_factory=Counter)
    """Counts of events by name, in addition to the counts in the `Coverage`."""

    @property
    def history(self) -> list[Event]:
        return self.world.history
