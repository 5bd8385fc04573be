"""The plan of a measurement: which server, for how long, and how contenders take turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

PREFIX = "holdfast-bench:"
"""Start of the name of every lock that is taken here."""

TTL = 30.0
"""Seconds of every lease: our default, and with renewal on."""

SECONDS, QUICK_SECONDS = 5.0, 2.0
"""How long each contender is measured, unless ``--seconds`` says something else."""

SMOKE = 0.5
"""Below so many seconds nobody wants figures, only to see that everything runs."""

SHORTEST = 0.5
"""Seconds of a round, unless there would be less than two: those that poll do so ten times a second."""


class Plan(NamedTuple):
    """``seconds`` is the time each contender gets in each group of a scenario, over all rounds."""

    url: str
    seconds: float = SECONDS
    quick: bool = False

    @property
    def rounds(self) -> int:
        return 1 if self.smoke else min(5, max(2, int(self.seconds / SHORTEST)))

    @property
    def smoke(self) -> bool:
        """Figures are not worth having: nothing is judged that needs more time."""
        return self.seconds < SMOKE

    @property
    def watch(self) -> float:
        """Seconds to watch those who wait; they show a sign of life once a second."""
        return self.seconds if self.smoke else max(2.0, self.seconds)

    @property
    def slice(self) -> float:
        """Seconds of one round."""
        return self.seconds / self.rounds

    def many(self, full: int, quick: int) -> int:
        """How many locks, waiters or leases."""
        return max(20, full // 100) if self.smoke else quick if self.quick else full


def turns(contenders: Sequence[str], rounds: int) -> Iterator[str]:
    """A B C, B C A, …: what changes on the machine meanwhile hits all alike, and nobody always comes first."""
    for number in range(rounds):
        for place in range(len(contenders)):
            yield contenders[(number + place) % len(contenders)]


def in_turns(contenders: Sequence[str], rounds: int, run: Callable[[str], T]) -> dict[str, list[T]]:
    """The results of each contender's runs."""
    found: dict[str, list[T]] = {name: [] for name in contenders}
    for name in turns(contenders, rounds):
        found[name].append(run(name))
    return found


async def tasks_in_turns(contenders: Sequence[str], rounds: int, run: Callable[[str], Awaitable[T]]) -> dict[str, list[T]]:
    """The same, where they run in an event loop."""
    found: dict[str, list[T]] = {name: [] for name in contenders}
    for name in turns(contenders, rounds):
        found[name].append(await run(name))
    return found
