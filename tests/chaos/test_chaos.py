"""Processes take locks on real servers, while servers, network and the processes themselves are broken at random.

A seed decides what is broken when. ``CHAOS_SEED=17 pytest ...`` has the same faults again; who takes which lock when is not
to be repeated, as it depends on the machine. See docs/design/chaos.md.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from chaos.clustered import OverCluster
from chaos.quorum_topology import Quorum, QuorumRestarts
from chaos.replicated import OverSentinel
from chaos.run import ChaosRun, Size, together
from chaos.topologies import Single, Topology
from chaos.verdict import Report, judge

SOAK = {"acquisitions": 12_500, "contended": 2500, "expired": 25, "refused": 25, "faults": 30}
"""For 150 seconds; four times that is what is asked of all."""

BRIEF = {"acquisitions": 100, "contended": 20, "expired": 1}


def seed() -> int:
    return int(os.environ.get("CHAOS_SEED") or secrets.randbelow(1 << 32))


def verdict(runs: list[ChaosRun]) -> Report:
    report = Report()
    for run in runs:
        one = judge(run)
        print(f"\n{run.topology.name}, seed {run.seed}: {one}")
        report += one
    assert not report.found, "\n".join(report.found)
    return report


@pytest.mark.soak
@pytest.mark.parametrize(
    ("topology", "seconds"),
    [
        pytest.param(Single(remembers=False), 75, id="one server"),
        pytest.param(Single(remembers=True), 75, id="one server that remembers"),
        # A server that was replaced has to be a replica again before the next fault: it takes longer to reach as many.
        pytest.param(OverSentinel(), 180, id="Sentinel"),
        pytest.param(OverCluster(), 150, id="Cluster"),
        pytest.param(Quorum(), 150, id="Redlock"),
        pytest.param(QuorumRestarts(), 60, id="Redlock, restarts"),
    ],
)
def test_chaos(topology: Topology, seconds: float, tmp_path: Path) -> None:
    run = ChaosRun(topology, Size(seconds), seed(), tmp_path)
    run.go()
    share = min(1.0, seconds / 150)
    report = verdict([run])
    assert report.missing({name: int(least * share) for name, least in SOAK.items()}, run.possible) == [], str(report)


def test_chaos_for_a_moment(tmp_path: Path) -> None:
    """All topologies at once."""
    topologies: list[Topology] = [Single(remembers=False), OverSentinel(), OverCluster(), QuorumRestarts()]
    runs = [
        ChaosRun(topology, Size(9, processes=2, every=(0.3, 1.0)), seed(), tmp_path / topology.name) for topology in topologies
    ]
    together(runs)
    report = verdict(runs)
    assert report.missing(BRIEF | {"faults": 9, "refused": 1}) == [], str(report)
