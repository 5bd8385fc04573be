"""The entry of the swarm `wired`."""

from __future__ import annotations

from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.sim.theme import PLAIN, Theme
from holdfast_lab.swarms.result import Run
from holdfast_lab.wired.histories import History, Profile
from holdfast_lab.wired.objects import ObjectHistory


def simulate(seed: int, *, coverage: Coverage | None = None, trace: bool = False, theme: Theme = PLAIN) -> Run[Profile]:
    """Run the history of a seed over scripted sockets, and judge it by the rules T1 to T7.

    If ``trace`` is True, the history also has the bytes that are sent and received.
    """
    kind = ObjectHistory if theme.name == "objects" else History
    history = kind(seed, trace=trace, theme=theme)
    history.tell()
    if coverage is not None:
        coverage.histories += 1
        coverage.docket += history.docket
    return history.run
