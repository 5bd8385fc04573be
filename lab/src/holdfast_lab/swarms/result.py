"""The result of the simulated history of one seed. All swarms (kinds of histories) return this type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from holdfast.testing.history import Event
from holdfast_lab.judge.safety_rules import Violation

P = TypeVar("P")


class Server(Protocol):
    """The part of a simulated server that the result of a history refers to: its statistics."""

    calls: int
    """Number of commands and scripts that the server has run."""

    @property
    def asked_for(self) -> Mapping[str, int]:
        """Number of runs of each script or command on the server, by name."""


class World(Protocol):
    """The part of the simulated world that the result of a history refers to."""

    history: list[Event]
    steps: int

    @property
    def servers(self) -> Sequence[Server]:
        """The servers of the world."""


@dataclass(slots=True)
class Run(Generic[P]):
    """The result of one seed: its history, and the violations of the rules in it."""

    seed: int
    profile: P
    """The parameters of the history, drawn at random from the seed."""
    world: World
    violations: list[Violation]
    counts: Counter[str] = field(default_factory=Counter)
    """Counts of events in the history, by name, besides those in the coverage."""

    @property
    def history(self) -> list[Event]:
        return self.world.history
