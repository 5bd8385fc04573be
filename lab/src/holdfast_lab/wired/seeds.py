"""The swarm `wired`, of histories over scripted sockets."""

from __future__ import annotations

from holdfast_lab.sim.theme import PLAIN, Theme
from holdfast_lab.swarms.swarm import Swarm
from holdfast_lab.wired.histories import FAULTS, WiredHistory
from holdfast_lab.wired.objects import ObjectHistory
from holdfast_lab.wired.themes import Objects


def history(seed: int, *, trace: bool = False, theme: Theme = PLAIN) -> WiredHistory:
    """Draw the history of a seed. If ``trace`` is True, the history also has the bytes that are sent and received."""
    return (ObjectHistory if isinstance(theme, Objects) else WiredHistory)(seed, trace=trace, theme=theme)


ENOUGH = {
    **{f"wired {fault}": 500 for fault in FAULTS},
    "wired closed": 100,
    "wired taken": 1000,
    "wired renewed": 500,
    "wired released": 500,
    "wired answered": 2000,
    "wired answered by link": 2000,
    "wired cancelled": 50,
    "script EVAL": 1000,
    "script EVALSHA": 5000,
    "script SUBSCRIBE": 500,
}
"""Minimum counts of events and of commands in 1,000 histories of the real drivers over scripted sockets."""

SWARM = Swarm(history, ENOUGH, ("T1", "T2", "T3", "T4"))
