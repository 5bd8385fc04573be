"""Draw docs/design/architecture.svg, the rooms of the package and who imports whom; or list the files of capabilities.

    PYTHONPATH=tests python -m docs.architecture              draw the picture, and print who may import whom in the page
    PYTHONPATH=tests python -m docs.architecture election     list the files of a capability, floor by floor
    PYTHONPATH=tests python -m docs.architecture Semaphore    the same for the capability of a class or function
    PYTHONPATH=tests python -m docs.architecture linger       list the files that have most of a word of the glossary
    PYTHONPATH=tests python -m docs.architecture --all        list the files of every capability

Each arrow stands for imports that exist, at run time or for types.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import holdfast
import holdfast.aio
import holdfast_lab
from house.rooms import ROOMS as ALLOWED

PACKAGE, LAB = Path(holdfast.__file__).parent, Path(holdfast_lab.__file__).parent
ROOT = PACKAGE.parents[1]
PAGE, MARK = ROOT / "docs" / "design" / "architecture.md", "<!-- rooms -->"
PICTURE, GLOSSARY = ROOT / "docs" / "design" / "architecture.svg", ROOT / "docs" / "glossary.md"

ROOMS = {  # name: (x, y, what it does)
    "cli": (330, 20, "the command line"),
    "schedule": (330, 110, "jobs, cron"),
    "_api": (330, 200, "the classes that users hold"),
    "_runtime": (330, 290, "acts: drivers, keeper"),
    "_net": (330, 380, "bytes: connections, pools"),
    "_local": (30, 470, "servers, guardians"),
    "_core": (330, 470, "decides, without input or output"),
    "_lua": (330, 560, "runs on the server"),
    "testing": (630, 110, "memory server, recorder"),
    "lab": (630, 20, "simulator, judge, benchmarks"),
}
WIDTH, HEIGHT = 230, 54


class Step(NamedTuple):
    """A step of an acquire: an arrow from one lane of the picture to another."""

    source: str
    file: str
    about: str

    def target(self) -> str:
        """Return the lane in which the arrow ends: the room of the file."""
        return self.file.partition("/")[0] if "/" in self.file else self.file


LANES = {"user": 470, "_api": 540, "_runtime": 620, "_core": 700, "_net": 770, "_lua": 840}
"""The lanes of the second part of the picture, with their positions: the user's code and the rooms."""

ACQUIRE = {
    1: Step("user", "_api/acquisition.py", "Lock.acquire() calls the driver."),
    2: Step("_api", "_runtime/drivers/sync.py", "The driver works on the calling thread."),
    3: Step("_runtime", "_core/lock/uncontended.py", "`lead` takes the turn, and returns the request."),
    4: Step("_runtime", "_net/sync_pool.py", "The driver sends the request over a connection."),
    5: Step("_net", "_lua/lock/acquire.lua", "The server grants the lock, and replies."),
    6: Step("_runtime", "_core/lock/uncontended.py", "`took` makes a lease of the reply."),
    7: Step("_core", "_core/lock/renewal.py", "The lease is registered: the keeper renews it."),
    8: Step("_runtime", "user", "The user gets the lease."),
}
"""The steps of an acquire by their numbers. A test compares their files with the trace of an acquire."""

OTHERWISE = "If the reply is another one, the operation in _core/lock/acquire.py goes on with it."


FLOORS = {
    "api": ("src/holdfast/_api", "src/holdfast/schedule", "src/holdfast/legacy", "src/holdfast/fencing.py"),
    "core": ("src/holdfast/_core",),
    "lua": ("src/holdfast/_lua",),
    "runtime": ("src/holdfast/_runtime",),
    "net": ("src/holdfast/_net",),
    "local": ("src/holdfast/_local",),
    "cli": ("src/holdfast/cli", "lab/src/holdfast_lab/demo"),
    "simulation": ("lab/src/holdfast_lab/sim",),
    "swarm": ("lab/src/holdfast_lab/swarms",),
    "scenarios": ("lab/src/holdfast_lab/scenarios",),
    "judge": ("lab/src/holdfast_lab/judge",),
    "models": ("models",),
    "tests": ("tests",),
    "docs": ("docs",),
}
"""The files and folders of each floor."""


class Capability(NamedTuple):
    """A capability of the glossary, with the one name that its files have on every floor."""

    floors: str
    """The floors that have files of the capability."""
    public: str = ""
    """Names of public classes and of pages that have the algorithm of the capability, as file names."""
    commands: str = ""
    """Names of commands that are about the capability, as file names of the command line, its tests and its pages."""
    files: str = ""
    """Names of files of the capability that are in a folder of another one, or have a name that does not show it."""


CAPABILITIES = {
    "lock": Capability(
        "api core lua runtime cli simulation swarm scenarios models tests docs",
        "acquisition base_lock rlock lease lease_core locks",
        "acquire release run",
        "contention cron decorator leases long_leases quarantine replicas replication",
    ),
    "permit": Capability("api core lua cli simulation swarm judge models tests docs", "semaphore semaphores rwlock", "permits"),
    "quorum": Capability("api core lua runtime cli simulation swarm scenarios models tests docs", "redlock", "nodes", "fanout"),
    "election": Capability("api core lua cli simulation swarm scenarios models tests docs", "term", "elect"),
    "multilock": Capability("api core lua simulation swarm scenarios models tests docs", files="multi_acquire multi_release"),
    "ticket": Capability(
        "api core lua cli simulation swarm scenarios models tests docs", "redeem tickets", files="exchange_token"
    ),
    "single_flight": Capability(
        "api core lua cli simulation swarm scenarios models tests docs", "cache once memoize", "stampede"
    ),
    "rendezvous": Capability("api core lua simulation swarm scenarios judge models tests docs", "event events barrier latch"),
    "schedule": Capability("api core lua cli simulation swarm judge models tests docs", "", "jobs"),
    "transaction": Capability("api core net tests docs", "transactions transactional", files="client_pipeline"),
    "deadlock": Capability("api core tests docs", "deadlocks"),
    "inspect": Capability("api core lua runtime cli tests docs", "inspector inspecting", "ls show watch wait", "wait_report"),
    "break_lock": Capability("core lua cli swarm tests", files="break_permits"),
    "fencing": Capability("api lua tests docs", "fences"),
    "timestamp": Capability("api core lua models tests docs", "legacy"),
}
"""Each capability by its name. A public class whose algorithm is shared is listed under the algorithm's name."""

ABOUT_ALL = {
    "access-control", "apscheduler", "asyncio", "benchmark-details", "benchmarks", "capacity", "celery", "cluster",
    "coming-from", "coming-from-redis-py", "command-line", "connect", "databases", "demo", "django", "doctor", "dogpile",
    "environment", "errors", "exit-codes", "fastapi", "faults", "faults-of-objects", "getting-started", "glossary", "index",
    "keys", "kubernetes", "ladder", "ladder-details", "local-server", "managed", "promises", "recordings", "rq-dramatiq",
    "sentinel", "servers", "signals", "subcommands", "support", "testing", "threading", "tls", "troubleshooting", "upgrading",
    "web", "when-not",
}  # fmt: skip
"""Pages for users that are about no single capability."""

MOST = 3
"""Maximum number of files of each floor that are listed for a word that is no capability."""

_LAB = "lab/src/holdfast_lab"
CONCEPTS = {
    **dict.fromkeys(("lock", "lease", "holder", "waiter", "fence", "quarantine", "linger", "ttl", "wait", "timeout"), "lock"),
    **dict.fromkeys(("progress_within", "max_hold", "max_pass_time", "max_passes", "attempt", "token", "position"), "lock"),
    **dict.fromkeys(("place", "local queue", "turn", "hand over", "claim window", "hand on"), "lock"),
    **dict.fromkeys(("revoke", "spec", "early renewal", "outage budget", "node", "drift margin"), "lock"),
    "reserved fences": "src/holdfast/_core/lock/records.py src/holdfast/_lua/shared/_grant.lua",
    "limit": "permit",
    **dict.fromkeys(("max_ttl", "answer_within", "vote", "round"), "quorum"),
    **dict.fromkeys(("election", "candidate", "campaign", "resign", "proclaim", "observe", "term"), "election"),
    "ticket": "ticket",
    **dict.fromkeys(("keep", "tags", "busy", "errors", "load", "load lease", "stale value"), "single_flight"),
    "participant": "rendezvous",
    **dict.fromkeys(("finish_within", "max_runtime", "min_runtime", "concurrency", "last", "features", "on"), "schedule"),
    **dict.fromkeys(("job", "tick", "run", "serve", "definition"), "schedule"),
    "fence check": "fencing",
    "connection": "src/holdfast/_connection.py",
    **dict.fromkeys(("prefix", "key", "public id", "marker"), "src/holdfast/_core/names.py"),
    **dict.fromkeys(("label", "mark", "process record"), "src/holdfast/_core/control_records.py"),
    **dict.fromkeys(("operation", "request"), "src/holdfast/_core/requests.py"),
    "listener": "src/holdfast/_core/subscription.py",
    "driver": "src/holdfast/_runtime/drivers",
    **dict.fromkeys(("registry", "Home"), "src/holdfast/_runtime/process.py"),
    "keeper": "src/holdfast/_runtime/keeper",
    "inbox": "src/holdfast/_runtime/keeper/inbox_wait.py",
    "endpoint": "src/holdfast/_net/endpoint.py",
    **dict.fromkeys(("flow", "step"), "src/holdfast/_api/flow.py"),
    **dict.fromkeys(("guardian", "owner"), "src/holdfast/_local/guardian"),
    "supervisor": "src/holdfast/cli/supervise.py src/holdfast/_local/server/supervisor.py",
    "demonstration": f"src/holdfast/cli/demo {_LAB}/demo",
    "contender": f"{_LAB}/bench",
    "world": f"{_LAB}/sim/world.py",
    "worker": f"{_LAB}/sim/worker.py",
    "leftovers": f"{_LAB}/sim/leftovers.py",
    "theme": f"{_LAB}/sim/theme.py",
    **dict.fromkeys(("history", "event"), "src/holdfast/testing/history.py"),
    **dict.fromkeys(("swarm", "seed"), f"{_LAB}/swarms {_LAB}/runner.py"),
    **dict.fromkeys(("scenario", "schedule"), f"{_LAB}/scenarios {_LAB}/explore.py"),
    **dict.fromkeys(("rule", "violation", "judged", "excused", "calm"), f"{_LAB}/judge"),
    **dict.fromkeys(("ladder", "rung"), f"{_LAB}/ladder"),
}
"""Each word of the glossary, with the capability whose files have its code, or else with these files and folders."""

OTHER_NAMES = {
    "ballot", "board", "book", "breakages", "breaking", "campaign", "contest", "contests", "crossings", "ear", "flights",
    "gate", "gates", "gathering", "gatherings", "heard", "hearing", "leading", "meeting", "meetings", "optimism", "optimists",
    "panel", "reign", "reigns", "relays", "sharing", "site", "visitor",
}  # fmt: skip
"""Words that named capabilities or their parts before they had one name each."""


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
    """Return the room of a file of the package, or "" for a file beside the rooms."""
    first = file.split("/", maxsplit=1)[0]
    return first if first in ROOMS else ""


def arrows() -> set[tuple[str, str]]:
    """Return who imports whom."""
    found: set[tuple[str, str]] = set()
    for path in [*PACKAGE.rglob("*.py"), *LAB.rglob("*.py")]:
        here = room(str(path.relative_to(PACKAGE))) if path.is_relative_to(PACKAGE) else "lab"
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
    for step in ACQUIRE.values():
        if step.file not in LANES and not (PACKAGE / step.file).exists():
            raise SystemExit(f"{step.file} does not exist, but the steps of an acquire in {__file__} name it")


def _fits(word: str, names: dict[str, str]) -> str:
    """Return the value of the name that a word is, begins with or ends with; of several, the first and longest one."""
    fits = [
        (not word.startswith(name), -len(name), name)
        for name in names
        if word == name or word.startswith(f"{name}_") or word.endswith(f"_{name}")
    ]
    return names[min(fits)[2]] if fits else ""


@cache
def capability_of(path: Path) -> str:
    """Return the capability of a file, given by its path in the repository, or "" if the file is of none.

    The name of the capability in the name of the file counts most, then that of its folder, then names of public classes.
    Commands count on the command line.
    """
    word = path.name.partition(".")[0].lstrip("_").replace("-", "_")
    elsewhere = {file: name for name, capability in CAPABILITIES.items() for file in capability.files.split()}
    if word in elsewhere:
        return elsewhere[word]
    for prefix in ("test_", "demo_", "sync_", "aio_"):
        word = word.removeprefix(prefix)
    own = {name: name for name in CAPABILITIES}
    folder = next((part for part in reversed(path.parts[:-1]) if part in CAPABILITIES), "")
    public = {word: name for name, capability in CAPABILITIES.items() for word in capability.public.split()}
    if word in public:
        return folder or public[word]
    found = _fits(word, own) or folder or _fits(word, public)
    found = found or next((public[part] for part in path.parts[:-1] if part in public), "")
    if not found and {"cli", "demo", "docs"} & set(path.parts):
        commands = {word: name for name, capability in CAPABILITIES.items() for word in capability.commands.split()}
        found = commands.get(word.partition("_")[0], "")
    return found


@cache
def files() -> dict[str, list[Path]]:
    """Return all files of each floor, by their paths in the repository."""
    found = {}
    for floor, places in FLOORS.items():
        paths = [path for place in places for path in [ROOT / place, *sorted((ROOT / place).rglob("*"))] if path.is_file()]
        ours = [path.relative_to(ROOT) for path in paths if path.suffix in {".py", ".lua", ".pml", ".md"}]
        found[floor] = [path for path in ours if path.stem != "__init__"]
    return found


@cache
def _text(path: Path, *, lower: bool = False) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    return text.lower() if lower else text


def files_of(capability: str) -> dict[str, list[str]]:
    """Return the files of a capability on each floor that has some."""
    found = {
        floor: [path.as_posix() for path in paths if capability_of(path) == capability] for floor, paths in files().items()
    }
    return {floor: paths for floor, paths in found.items() if paths}


def files_with(word: str, capability: str = "") -> dict[str, list[str]]:
    """Return the files of each floor that have a word most often, with `MOST` of each floor.

    The words of a name of several words may also stand together, as in ``local_queue`` and ``LocalQueue``. Options count where
    they are declared or passed.

    ``capability``: count only the files of this capability; empty: all files.
    """
    option = re.search(rf"^\| [^|]*`{word}`", _text(GLOSSARY).partition("## Election")[0], re.MULTILINE)
    after = r"(?:=|: )" if option else ""
    lower = not _public(word)
    words = re.split(r"[ _]", word.lower() if lower else word)
    name = re.compile(r"(?<![a-z])" + r"[ _-]?".join(words) + after)
    found = {}
    for floor, paths in files().items():
        ours = [path for path in paths if not capability or capability_of(path) == capability]
        texts = {path.as_posix(): _text(path, lower=lower) for path in ours}
        counts = {path: len(name.findall(text)) for path, text in texts.items() if words[0] in text}
        most = sorted((path for path in counts if counts[path]), key=lambda path: -counts[path])[:MOST]
        if most:
            found[floor] = most
    return found


def capability_named(name: str) -> str:
    """Return the capability with this name, or that of the public class or function with this name; "" if there is none."""
    word = re.sub(r"\B(?=[A-Z][a-z])", "_", name).lower()
    public = {word: found for found, capability in CAPABILITIES.items() for word in capability.public.split()}
    if word in CAPABILITIES or word in public:
        return public.get(word, word)
    module = getattr(_public(name), "__module__", "") or ""
    file = Path("src", *module.split("."))
    return (capability_of(file) if module else "") or _fits(word, {found: found for found in CAPABILITIES})


def _public(name: str) -> object:
    """Return the public class, function, type or module with this name; None if there is none."""
    return next((getattr(api, name) for api in (holdfast, holdfast.aio) if name in api.__all__), None)


def files_named(name: str) -> dict[str, list[str]]:
    """Return the files, floor by floor, of a capability, of a public name or of a word of the glossary.

    Raises SystemExit if there is no such name or word.
    """
    if name in CAPABILITIES:
        return files_of(name)
    concept = CONCEPTS.get(name, "" if _public(name) else CONCEPTS.get(name.lower(), ""))
    if concept in CAPABILITIES:
        return files_with(name, concept)
    if concept:
        places = [ROOT / place for place in concept.split()]
        paths = [path for place in places for path in [place, *sorted(place.rglob("*.py"))] if path.is_file()]
        others = {floor: most for floor, most in files_with(name).items() if floor in {"tests", "docs"}}
        return {"code": [path.relative_to(ROOT).as_posix() for path in paths], **others}
    capability = capability_named(name)
    if capability:
        return files_of(capability)
    if _public(name):
        return files_with(name)
    raise SystemExit(
        f"no capability, public name or word of the glossary is {name!r}; the capabilities are: {', '.join(CAPABILITIES)}"
    )


def listed(name: str) -> str:
    """Return the files of a capability, public name or word as text, with the floor of each."""
    lines = [name]
    for floor, paths in files_named(name).items():
        lines += [f"  {floor if number == 0 else '':11} {path}" for number, path in enumerate(paths)]
    return "\n".join(lines)


def _edge(here: str, there: str) -> tuple[float, float, float, float]:
    """Return where an arrow leaves one box and enters the other."""
    (x1, y1, _), (x2, y2, _) = ROOMS[here], ROOMS[there]
    if x1 == x2:
        return x1 + WIDTH / 2, y1 + HEIGHT, x2 + WIDTH / 2, y2
    if y1 == y2:
        return x1 + (WIDTH if x2 > x1 else 0), y1 + HEIGHT / 2, x2 + (0 if x2 > x1 else WIDTH), y2 + HEIGHT / 2
    return x1 + WIDTH / 2, y1 + (HEIGHT if y2 > y1 else 0), x2 + WIDTH / 2, y2 + (0 if y2 > y1 else HEIGHT)


def _arrow(number: int, step: Step, y: int) -> list[str]:
    """Return a step of an acquire: its number and texts at the left, and its arrow between two lanes."""
    x1, x2 = LANES[step.source], LANES[step.target()]
    path = f"M{x1},{y} L{x2},{y}" if x1 != x2 else f"M{x1},{y - 6} h30 v12 h-20"
    return [
        f'<path d="{path}" fill="none" stroke="#446" marker-end="url(#tip)"/>',
        f'<circle cx="{x1}" cy="{y}" r="9" fill="#446"/>',
        f'<text x="{x1}" y="{y + 4}" fill="#fff" text-anchor="middle">{number}</text>',
        f'<text x="30" y="{y - 2}">{number}. {escape(step.about)}</text>',
        f'<text x="46" y="{y + 14}" font-family="monospace" fill="#556">{escape(step.file if "/" in step.file else "")}</text>',
    ]


def printed() -> str:
    """Return the page, with the table of the rooms that each room may import."""
    rows = [f"| `{name}` | {' '.join(f'`{other}`' for other in allowed.split())} |" for name, allowed in ALLOWED.items()]
    table = "\n".join(["| room | may import |", "|---|---|", *rows])
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(f"{MARK}\n\n")
    return f"{before}{MARK}\n\n{table}\n\n{rest.partition(chr(10) * 2)[2]}"


def svg() -> str:
    """Return the picture."""
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 1040" font-family="sans-serif" font-size="13">',
        "<title>The rooms of holdfast, who imports whom, and the way of one acquire</title>",
        (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0,0 L8,4 L0,8 z" fill="#667"/></marker></defs>'
        ),
        '<rect width="880" height="1040" fill="#fff"/>',
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
    bottom = 680 + len(ACQUIRE) * 40
    for lane, x in LANES.items():
        lines += [
            f'<text x="{x}" y="650" font-weight="bold" text-anchor="middle">{lane}</text>',
            f'<line x1="{x}" y1="658" x2="{x}" y2="{bottom}" stroke="#aab" stroke-dasharray="3 4"/>',
        ]
    for number, step in ACQUIRE.items():
        lines += _arrow(number, step, 650 + number * 40)
    lines.append(f'<text x="30" y="{bottom + 24}">{escape(OTHERWISE)}</text>')
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    check_steps()
    for name in CAPABILITIES if "--all" in sys.argv else sys.argv[1:]:
        print(listed(name))
    if not sys.argv[1:]:
        PICTURE.write_text(svg(), encoding="utf-8")
        PAGE.write_text(printed(), encoding="utf-8")
