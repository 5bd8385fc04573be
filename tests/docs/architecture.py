"""Draw docs/design/architecture.svg, the rooms of the package and who imports whom; or list the files of a capability.

    PYTHONPATH=tests python -m docs.architecture              draw the picture
    PYTHONPATH=tests python -m docs.architecture election     list all files that are named so, in every room

Each arrow stands for imports that exist, at run time or for types.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

import holdfast

PACKAGE = Path(holdfast.__file__).parent
ROOT = PACKAGE.parents[1]
PICTURE = ROOT / "docs" / "design" / "architecture.svg"

ROOMS = {  # name: (x, y, what it does)
    "cli": (330, 20, "the command line"),
    "schedule": (330, 110, "jobs, cron"),
    "_api": (330, 200, "the classes that users hold"),
    "_runtime": (330, 290, "acts: drivers, keeper"),
    "_net": (330, 380, "bytes: connections, pools"),
    "_local": (30, 470, "servers, guardians"),
    "_core": (330, 470, "decides, without input or output"),
    "_lua": (330, 560, "runs on the server"),
    "testing": (630, 110, "simulator, judge"),
}
WIDTH, HEIGHT = 230, 54

ACQUIRE = {  # the step: (its file, what happens there)
    1: ("_api/sync_lock.py", "A user calls Lock.acquire()."),
    2: ("_runtime/drivers/sync.py", "The driver runs the operation on the calling thread."),
    3: ("_core/lock/acquire.py", "The operation decides what to ask next."),
    4: ("_core/requests.py", "It awaits a request: run this script."),
    5: ("_net/sync_pool.py", "The driver sends the request over a connection."),
    6: ("_lua/lock/acquire.lua", "The server grants the lock, or queues the waiter."),
    7: ("_runtime/keeper/thread.py", "The keeper renews the lease from now on."),
}


def imported(path: Path) -> Iterator[str]:
    """Return the files below the package that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for module in (f"{node.module}.{alias.name}" for alias in node.names):
                yield from _file(module) or _file(node.module)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from _file(alias.name)


def _file(module: str) -> list[str]:
    first, *rest = module.split(".")
    if first != "holdfast":
        return []
    place = PACKAGE.joinpath(*rest)
    return [str(p.relative_to(PACKAGE)) for p in (place.with_suffix(".py"), place / "__init__.py") if p.exists()]


def room(file: str) -> str:
    """Return the room of a file, or "" for a file beside the rooms."""
    first = file.split("/", maxsplit=1)[0]
    return first if first in ROOMS else ""


def arrows() -> set[tuple[str, str]]:
    """Return who imports whom."""
    found: set[tuple[str, str]] = set()
    for path in PACKAGE.rglob("*.py"):
        here = room(str(path.relative_to(PACKAGE)))
        there = {room(file) for file in imported(path)} | (
            {"_lua"} if here == "_core" and "_lua" in path.read_text() else set()
        )
        found.update((here, other) for other in there if here and other and here != other)
    return found


def drawn(found: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the arrows but those for which a longer way stands: with all of them nobody could see anything."""

    def leads(here: str, there: str, without: tuple[str, str]) -> bool:
        todo, seen = [here], {here}
        while todo:
            at = todo.pop()
            for arrow in found:
                if arrow[0] == at and arrow != without and arrow[1] not in seen:
                    if arrow[1] == there:
                        return True
                    seen.add(arrow[1])
                    todo.append(arrow[1])
        return False

    return sorted(arrow for arrow in found if not leads(*arrow, without=arrow))


def check_steps() -> None:
    """Raise SystemExit if a file on the way of an acquire is missing."""
    for file, _ in ACQUIRE.values():
        if not (PACKAGE / file).exists():
            raise SystemExit(f"{file} is no more: the steps of an acquire in {__file__} name it")


def files_of(capability: str) -> list[str]:
    """List the files and folders of the repository that are named after a capability, with what lies in such folders."""
    found = []
    for top in ("src", "tests", "docs", "models"):
        for path in sorted((ROOT / top).rglob("*")):
            parts = [part.partition(".")[0].removeprefix("test_") for part in path.relative_to(ROOT).parts]
            named = any(
                part == capability or part.startswith(f"{capability}_") or part.endswith(f"_{capability}") for part in parts
            )
            if named and path.is_file() and path.suffix != ".pyc":
                found.append(path.relative_to(ROOT).as_posix())
    return found


def _edge(here: str, there: str) -> tuple[float, float, float, float]:
    """Return where an arrow leaves one box and enters the other."""
    (x1, y1, _), (x2, y2, _) = ROOMS[here], ROOMS[there]
    if x1 == x2:
        return x1 + WIDTH / 2, y1 + HEIGHT, x2 + WIDTH / 2, y2
    if y1 == y2:
        return x1 + (WIDTH if x2 > x1 else 0), y1 + HEIGHT / 2, x2 + (0 if x2 > x1 else WIDTH), y2 + HEIGHT / 2
    return x1 + WIDTH / 2, y1 + (HEIGHT if y2 > y1 else 0), x2 + WIDTH / 2, y2 + (0 if y2 > y1 else HEIGHT)


def svg() -> str:
    """Return the picture."""
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 850" font-family="sans-serif" font-size="13">',
        "<title>The rooms of holdfast, who imports whom, and the way of one acquire</title>",
        (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0,0 L8,4 L0,8 z" fill="#667"/></marker></defs>'
        ),
        '<rect width="880" height="850" fill="#fff"/>',
    ]
    for here, there in drawn(arrows()):
        x1, y1, x2, y2 = _edge(here, there)
        lines.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="#667" marker-end="url(#tip)"/>')
    for name, (x, y, about) in ROOMS.items():
        lines += [
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#eef3fb" stroke="#446"/>',
            f'<text x="{x + 12}" y="{y + 23}" font-weight="bold">{escape(name)}</text>',
            f'<text x="{x + 12}" y="{y + 43}">{escape(about)}</text>',
        ]
    lines.append('<text x="30" y="650" font-weight="bold">One acquire of a free lock</text>')
    for number, (file, about) in ACQUIRE.items():
        y = 654 + number * 26
        lines += [
            f'<circle cx="40" cy="{y - 4}" r="10" fill="#446"/>',
            f'<text x="40" y="{y}" fill="#fff" text-anchor="middle">{number}</text>',
            f'<text x="62" y="{y}" font-family="monospace">{escape(file)}</text>',
            f'<text x="330" y="{y}">{escape(about)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    check_steps()
    for name in sys.argv[1:]:
        print(*files_of(name), sep="\n")
    if not sys.argv[1:]:
        PICTURE.write_text(svg(), encoding="utf-8")
