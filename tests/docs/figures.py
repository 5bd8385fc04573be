"""The measured figures in the pages, written from docs/bench/results.json: ``python -m docs.figures`` (``make bench`` does it).

The text between ``<!-- figures: NAME -->`` and ``<!-- end of figures -->`` is replaced by that of `TABLES` for the name; the
name of a scenario stands for the table of its contenders.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from docs.pages import PAGES, ROOT
from holdfast_lab.bench.report import shown

RESULTS = ROOT / "docs" / "bench" / "results.json"
MARKED = re.compile(r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)

Document = dict[str, Any]


def filled(text: str, document: Document) -> str:
    """The text of a page with the figures of this document."""
    return MARKED.sub(lambda found: f"{found[1]}\n{table(found[2], document)}\n\n{found[3]}", text)


def table(name: str, document: Document) -> str:
    """Return the text for a mark."""
    if name in TABLES:
        return "\n".join(TABLES[name](document))
    return "\n".join(_contenders(document, name))


def _scenario(document: Document, name: str) -> dict[str, Any]:
    return next(scenario for scenario in document["scenarios"] if scenario["name"] == name)


def _value(document: Document, scenario: str, contender: str, measure: str, group: str = "") -> float:
    rows = _scenario(document, scenario)["contenders"]
    row = next(row for row in rows if row["contender"] == contender and row["group"].endswith(group))
    return float(row["values"][measure])


def _contenders(document: Document, name: str) -> Iterator[str]:
    rows = _scenario(document, name)["contenders"]
    measures = list(dict.fromkeys(measure for row in rows for measure in row["values"]))
    grouped = any(row["group"] for row in rows)
    heads = [f"{measure.removesuffix('_ms')} {document['measures'][measure]['unit']}".strip() for measure in measures]
    heads = [head.replace("_", " ") for head in heads]
    yield f"| {'| ' if grouped else ''}| {' | '.join(heads)} |"
    yield f"|---|{'---|' if grouped else ''}{'--:|' * len(heads)}"
    for row in rows:
        cells = [_cell(measure, row["values"].get(measure, "")) for measure in measures]
        yield f"| {row['group'] + ' | ' if grouped else ''}{row['contender']} | {' | '.join(cells)} |"


def _cell(measure: str, value: float | str | None) -> str:
    return "∞" if value is None else value if isinstance(value, str) else shown(measure, value)


def _machine(document: Document) -> Iterator[str]:
    machine, options = document["machine"], document["options"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    yield f"Measured on: {machine['cpu']}, {machine['cores']} cores, {machine['system']}; {machine['server']} over"
    yield f"{machine['transport']}, {machine['python']}, {packages}."
    yield f"{options['seconds']:g} s for each contender; load of the machine before the start {machine['load']:g}."


def _targets(document: Document) -> Iterator[str]:
    yield "| scenario | | measured | target | |"
    yield "|---|---|--:|--:|---|"
    for scenario in document["scenarios"]:
        for figure in scenario["figures"]:
            if figure["held"] is not None:
                unit = f" {figure['unit']}" if figure["unit"] else ""
                value = "∞" if figure["value"] is None else f"{figure['value']:.3g}{unit}"
                target = f"{figure['relation']} {figure['target']:g}{unit}"
                verdict = "held" if figure["held"] else "**missed**"
                yield f"| {scenario['name']} | {figure['name']} | {value} | {target} | {verdict} |"


def _measures(document: Document) -> Iterator[str]:
    yield "| measure | unit | |"
    yield "|---|---|---|"
    for name, measure in document["measures"].items():
        yield f"| `{name}` | {measure['unit']} | {measure['meaning']} |"


def _readme(document: Document) -> Iterator[str]:
    ours, theirs = "holdfast.Lock", "redis-py Lock"
    aio, redis_aio = "holdfast.aio.Lock", "redis.asyncio Lock"
    crowd = "threads, 1 ms inside"
    lines = [
        ("acquire and release a free lock, ms", "uncontended", (ours, theirs), "p50_ms", "sync"),
        ("the same in asyncio, ms", "uncontended", (aio, redis_aio), "p50_ms", "asyncio"),
        ("200 asyncio tasks on 200 locks, acquisitions per second", "tasks", (aio, redis_aio), "per_second", ""),
        ("16 tasks of one process on one lock, acquisitions per second", "one-lock", (aio, redis_aio), "per_second", "tasks"),
        ("hand-over to one waiting process, ms", "handover", (ours, theirs), "p50_ms", ""),
        ("commands per second of a process that waits", "handover", (ours, theirs), "idle_commands", ""),
        ("2 processes of 8 threads, held for 1 ms, acquisitions per second", "crowd", (ours, theirs), "per_second", crowd),
        ("… longest wait, ms", "crowd", (ours, theirs), "longest_ms", crowd),
        ("… fairness (Jain's index; 1: all got the same)", "crowd", (ours, theirs), "jain", crowd),
    ]
    yield "| | holdfast | redis-py's Lock |"
    yield "|---|--:|--:|"
    for text, scenario, contenders, measure, group in lines:
        one, other = (shown(measure, _value(document, scenario, name, measure, group)) for name in contenders)
        yield f"| {text} | {one} | {other} |"


def _memory(document: Document) -> Iterator[str]:
    def server(name: str) -> float:
        return _value(document, "capacity", name, "server_bytes", "server")

    lease = _value(document, "leases", "holdfast.aio.Lock", "bytes")
    waiter = _value(document, "waiters", "holdfast.aio.Lock", "bytes")
    task = _value(document, "waiters", "asyncio.Event (no lock)", "bytes")
    held, waiting = server("a held lock"), server("a waiter in its queue")
    yield "| | bytes each | of 100,000 |"
    yield "|---|--:|--:|"
    for text, each in (
        ("on the server: a held lock", held),
        ("on the server: a waiter in its queue", waiting),
        ("in the process: a lease that is held, with its lock object", lease),
        ("in the process: a task that waits, with its lock object", waiter),
        ("for comparison: a task that waits for an asyncio.Event", task),
    ):
        yield f"| {text} | {each:,.0f} | {each * 100_000 / 1e6:,.0f} MB |"


def _work(document: Document) -> Iterator[str]:
    yield "| one core of the server carries out, per second | |"
    yield "|---|--:|"
    for row in _scenario(document, "capacity")["contenders"]:
        if "per_core_second" in row["values"]:
            yield f"| {row['contender']} | {row['values']['per_core_second']:,.0f} |"


def _sizes(document: Document) -> Iterator[str]:
    def rate(name: str) -> float:
        return _value(document, "capacity", name, "per_core_second")

    yield "| load | share of one core of the server |"
    yield "|---|--:|"
    yield f"| 1,000 acquisitions of free locks per second | {100 * 1_000 / rate('acquire + release'):.1f} % |"
    yield f"| 10,000 acquisitions of free locks per second | {100 * 10_000 / rate('acquire + release'):.0f} % |"
    yield f"| 100,000 leases held, ttl 30 (10,000 renewals per second) | {100 * 10_000 / rate('renewal of a lease'):.0f} % |"
    yield f"| 10,000 processes that wait, each for one lock | {100 * 10_000 / rate('refresh of a waiter'):.0f} % |"


TABLES: dict[str, Callable[[Document], Iterator[str]]] = {
    "machine": _machine,
    "targets": _targets,
    "measures": _measures,
    "readme": _readme,
    "memory": _memory,
    "work": _work,
    "sizes": _sizes,
}


def main() -> None:
    """Write them into all pages."""
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if MARKED.search(text):
            page.write_text(filled(text, document), encoding="utf-8")


if __name__ == "__main__":
    main()
