"""The settings of a measurement, and the order in which contenders take turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

PREFIX = "holdfast-bench:"
"""Start of the names of all locks."""

TTL = 30.0
"""Lease time of all locks in seconds: the default of holdfast, which renews such leases."""

SECONDS, QUICK_SECONDS = 5.0, 2.0
"""Seconds of measurement for each contender, by default and with ``--quick``."""

SMOKE = 0.5
"""With fewer seconds for a contender, the run is a smoke test: it only shows that everything works."""

SHORTEST = 0.5
"""Shortest length of a round in seconds. Rounds are shorter only if two of them would not fit into the planned time.

A lock that polls asks only ten times a second, so a shorter round would contain only a few of its requests.
"""


class Plan(NamedTuple):
    """The settings of a measurement.

    A scenario may measure a contender in several groups. ``seconds`` is its time in each group, over all rounds.
    """

    url: str
    seconds: float = SECONDS
    quick: bool = False

    @property
    def rounds(self) -> int:
        return 1 if self.smoke else min(5, max(2, int(self.seconds / SHORTEST)))

    @property
    def smoke(self) -> bool:
        """True if the run is too short for reliable figures. Then some targets are not checked."""
        return self.seconds < SMOKE

    @property
    def watch(self) -> float:
        """Seconds for which the requests of waiters are counted.

        This is at least 2, except in a smoke test, because a waiter sends only one request per second.
        """
        return self.seconds if self.smoke else max(2.0, self.seconds)

    @property
    def slice(self) -> float:
        """Duration of one round in seconds."""
        return self.seconds / self.rounds

    def many(self, full: int, quick: int) -> int:
        """Return how many locks, waiters or leases to use: ``quick`` with --quick, fewer in a smoke test, else ``full``."""
        return max(20, full // 100) if self.smoke else quick if self.quick else full


def turns(contenders: Sequence[str], rounds: int) -> Iterator[str]:
    """Yield the contenders in rotating order (A B C, B C A, …), so that the machine's load affects all of them equally."""
    for number in range(rounds):
        for place in range(len(contenders)):
            yield contenders[(number + place) % len(contenders)]


def in_turns(contenders: Sequence[str], rounds: int, run: Callable[[str], T]) -> dict[str, list[T]]:
    """Run the contenders in turns, and return the results of each."""
    found: dict[str, list[T]] = {name: [] for name in contenders}
    for name in turns(contenders, rounds):
        found[name].append(run(name))
    return found


async def tasks_in_turns(contenders: Sequence[str], rounds: int, run: Callable[[str], Awaitable[T]]) -> dict[str, list[T]]:
    """Run the contenders in turns in an event loop, and return the results of each."""
    found: dict[str, list[T]] = {name: [] for name in contenders}
    for name in turns(contenders, rounds):
        found[name].append(await run(name))
    return found
