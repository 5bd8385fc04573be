"""``PYTHONPATH=tests python -m chaos TOPOLOGY``: one run by hand, as long and with the seed that one likes."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from chaos.clustered import OverCluster
from chaos.quorum_topology import Quorum, QuorumRestarts
from chaos.replicated import OverSentinel
from chaos.run import ChaosRun, Size
from chaos.topologies import Single, Topology
from chaos.verdict import judge

TOPOLOGIES: dict[str, Topology] = {
    "single": Single(remembers=False),
    "single-aof": Single(remembers=True),
    "sentinel": OverSentinel(),
    "cluster": OverCluster(),
    "redlock": Quorum(),
    "redlock-restarts": QuorumRestarts(),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos", description="Locks under faults, and what is to be said of them.")
    parser.add_argument("topology", choices=TOPOLOGIES)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--every", type=float, nargs=2, default=(2.0, 5.0), metavar="SECONDS")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    print(f"{args.topology}, seed {args.seed}, history in {folder}", flush=True)
    run = ChaosRun(TOPOLOGIES[args.topology], Size(args.seconds, args.processes, tuple(args.every)), args.seed, folder)
    run.go()
    report = judge(run)
    print(report, *report.found, sep="\n")
    print(dict(report.while_held))
    return 1 if report.found else 0


if __name__ == "__main__":
    sys.exit(main())
