"""What came of one seed: the same for all kinds of histories."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from holdfast.testing.history import Event
from holdfast.testing.judge.rules import Violation
from holdfast.testing.sim.world import World

P = TypeVar("P")


@dataclass(slots=True)
class Run(Generic[P]):
    """What came of one seed."""

    seed: int
    profile: P
    """What it has drawn."""
    world: World
    violations: list[Violation]
    counts: Counter[str] = field(default_factory=Counter)
    """What happened in it and how often, where coverage does not say that."""

    @property
    def history(self) -> list[Event]:
        return self.world.history
