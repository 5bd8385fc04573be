"""``make bench``: what a lock costs here, against the bare server and against the locks people use today.

Prints its targets and whether they held; never fails because of them, since a busy machine misses any target.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import crowd, handover, machine, uncontended
from benchmarks.bare import Bare
from benchmarks.report import Section
from holdfast._servers import private


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="half a minute instead of two; rougher")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all figures there too")
    args = parser.parse_args()
    started = time.monotonic()
    with private(port=True) as server:
        bare = Bare(server.url)
        found = machine.facts(bare)
        bare.close()
        print(machine.text(found), flush=True)
        sections: list[Section] = []
        for section in _sections(server.url, args.quick):
            sections.append(section)
            print(section.text(), flush=True)
    judged = [figure for section in sections for figure in section.figures if figure.held is not None]
    held = sum(1 for figure in judged if figure.held)
    found["load_after"] = round(os.getloadavg()[0], 2)
    print(f"\n{held} of {len(judged)} targets held; {time.monotonic() - started:.0f} s, load now {found['load_after']}")
    if args.json:
        report = {"machine": found, "sections": [section.facts() for section in sections]}
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _sections(url: str, quick: bool) -> Iterator[Section]:
    yield uncontended.measure(url, rounds=40 if quick else 400)
    yield handover.measure(url, rounds=15 if quick else 150, watch=3 if quick else 10)
    yield crowd.measure(url, processes=8, seconds=1.5 if quick else 5, rivals=0.5 if quick else 5)


if __name__ == "__main__":
    main()
