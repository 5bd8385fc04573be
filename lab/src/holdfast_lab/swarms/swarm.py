"""The base class of the histories of all swarms, which runs and judges them, and the declaration of a swarm."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.judge.verdicts import Docket
from holdfast_lab.sim.faults import mishaps
from holdfast_lab.sim.theme import PLAIN, Theme
from holdfast_lab.sim.virtual_time import Stuck, Weather
from holdfast_lab.sim.world import World
from holdfast_lab.swarms.result import HistoryResult


class Drawn(Protocol):
    """The parameters that every history draws."""

    latency: float
    """Mean delay of a message, in seconds."""
    slow_share: float
    """Share of the messages that are much slower."""
    mishaps: float
    """Share of the requests that are lost, repeated or late."""


P = TypeVar("P", bound=Drawn)


class History(Generic[P]):
    """The base class of a random history. Each swarm has a subclass, which draws, runs and judges the history.

    A subclass draws the profile, lets the theme change it, and calls this ``__init__``. Then it adds servers, processes,
    workers and faults to the world. Nothing runs before `tell`.
    """

    hangs: ClassVar[str]
    """Rule that is violated if no step is possible although workers wait."""
    fails: ClassVar[str]
    """Rule that is violated if the history raises an exception."""

    def __init__(self, seed: int, rng: random.Random, profile: P, *, trace: bool) -> None:
        self.seed, self.rng, self.profile = seed, rng, profile
        self.found: list[Violation] = []
        """The violations that were found while the history ran."""
        self.docket = Docket()
        self.counts: Counter[str] = Counter()
        weather = Weather(rng, profile.latency, 1.0 / profile.latency, profile.slow_share)
        self.world = World(rng, weather, trace=trace)
        if profile.mishaps:
            self.world.mishap = mishaps(self.world, profile.mishaps)

    def go(self) -> None:
        """Run the history to its end. Append violations to `found`."""
        raise NotImplementedError

    def judge(self, coverage: Coverage | None) -> list[Violation]:
        """Return all violations: those in `found`, and those that rules find in the whole history.

        Add what happened in the history to ``coverage``, unless it is None.
        """
        if coverage is not None:
            coverage.histories += 1
            coverage.docket += self.docket
            coverage.events += len(self.world.history)
        return self.found

    def tell(self, coverage: Coverage | None = None) -> HistoryResult[P]:
        """Run the history, and judge it. Add the verdicts to ``coverage``, unless it is None."""
        try:
            self.go()
        except Stuck:
            self.found.append(Violation(self.hangs, self.stuck()))
        except Exception as error:  # noqa: BLE001 - report any exception with the seed
            self.found.append(Violation(self.fails, f"the history raised {error!r}"))
        self.world.close()
        return HistoryResult(self.seed, self.profile, self.world, self.judge(coverage), self.counts)

    def stuck(self) -> str:
        """Describe a history in which no step is possible."""
        return f"no step is possible, but workers wait: {self.waiting()}"

    def waiting(self) -> str:
        """Describe the workers that wait, and what they wait for."""
        return ", ".join(sorted(f"{worker.name} in {worker.asked}" for worker in self.world.working))


class DrawnHistory(Protocol):
    """A history that a swarm has drawn, and that has not run yet."""

    def tell(self, coverage: Coverage | None = None) -> HistoryResult[Any]:
        """Run the history, and judge it. Add the verdicts to ``coverage``, unless it is None."""


class Swarm(NamedTuple):
    """A kind of random histories, all about one capability, such as elections."""

    history: Callable[..., DrawnHistory]
    """Draws a history from a seed, with the keyword arguments ``trace`` and ``theme``."""
    enough: Mapping[str, int]
    """Minimum counts of events in 1,000 histories (rule R11)."""
    rules: tuple[str, ...]
    """The rules that apply. Each must judge some cases, because a rule that excuses every case proves nothing."""
    theme: Theme = PLAIN

    def under(self, theme: Theme, of: str) -> Swarm:
        """Return this swarm, but with the rare fault of a theme in each history. ``of`` is the name of this swarm."""
        rules = (*(rule for rule in self.rules if rule not in theme.unjudged), *theme.more_rules)
        return Swarm(self.history, theme.swarms[of], rules, theme)

    def simulate(self, seed: int, *, trace: bool = False, coverage: Coverage | None = None) -> HistoryResult[Any]:
        """Run the history of a seed, and judge it. Add the verdicts to ``coverage``, unless it is None."""
        run = self.history(seed, trace=trace, theme=self.theme).tell(coverage)
        run.counts.update(self.theme.counts(run.world))
        return run
