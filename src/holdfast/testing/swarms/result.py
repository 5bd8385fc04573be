"""The result of one seed, the same for all kinds of histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from holdfast.testing.history import Event
from holdfast.testing.judge.safety_rules import Violation

P = TypeVar("P")


class Server(Protocol):
    """A server of a history, for statistics."""

    calls: int
    """Commands that it has run."""

    @property
    def asked_for(self) -> Mapping[str, int]:
        """How often it has run each script."""


class World(Protocol):
    """The world of a history."""

    history: list[Event]
    steps: int

    @property
    def servers(self) -> Sequence[Server]:
        """Its servers."""


@dataclass(slots=True)
class Run(Generic[P]):
    """The result of one seed."""

    seed: int
    profile: P
    """The parameters that it has drawn."""
    world: World
    violations: list[Violation]
    counts: Counter[str] = field(default_factory=Counter)
    """Counts of events that coverage does not have."""

    @property
    def history(self) -> list[Event]:
        return self.world.history
