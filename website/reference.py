"""The pages of the API reference: which public names are on which page, and the text of each page.

The names come from ``tests/house/names.txt``, the list of all that is public; the text behind them comes from the docstrings.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
NAMES, HELP = ROOT / "tests" / "house" / "names.txt", ROOT / "tests" / "house" / "help.txt"


class Topic(NamedTuple):
    """Public names of `holdfast` and `holdfast.aio` that belong together."""

    title: str
    guide: str
    """The page of docs/ that explains them."""
    names: str
    """Separated by spaces, in the order in which a reader needs them."""


TOPICS = {
    "lock": Topic("Locks", "locks.md", "Lock FairLock RLock Lease LockLease LockStatistics locked close"),
    "semaphore": Topic("Semaphores", "semaphores.md", "Semaphore BoundedSemaphore"),
    "rwlock": Topic("Read-write locks", "semaphores.md", "RWLock ReadSide WriteSide WriteLease"),
    "connection": Topic("One client for a whole program", "connect.md", "connect Connection SyncClient AsyncClient Seconds"),
    "multilock": Topic("Several locks at once", "multilock.md", "MultiLock MultiLease"),
    "redlock": Topic("Several servers", "redlock.md", "Redlock declare_new"),
    "once": Topic("Once", "once.md", "once Once Outcome Running"),
    "cache": Topic("Cache", "cache.md", "Cache Memoized CacheStatistics"),
    "election": Topic("Leader election", "election.md", "Election Elected Term"),
    "events": Topic("Events, latches and barriers", "events.md", "Event CountDownLatch Barrier BrokenBarrier"),
    "ticket": Topic("Tickets", "tickets.md", "Ticket redeem RedeemedLock"),
    "transaction": Topic("Transactions", "transactions.md", "transaction Transaction transactional"),
    "inspector": Topic(
        "Who holds what", "inspecting.md", "Inspector LockInfo Holder Waiter Broken find_deadlocks Cycle CycleWaiter"
    ),
}
"""By file name. Each is a page for threads and one for asyncio."""

MODULES = {
    "holdfast.errors": Topic("Errors", "errors.md", ""),
    "holdfast.schedule": Topic("Scheduled jobs", "schedule.md", ""),
    "holdfast.fencing": Topic("Fence checks", "fences.md", ""),
    "holdfast.sqlalchemy": Topic("SQLAlchemy", "databases.md", ""),
    "holdfast.django": Topic("Django", "django.md", ""),
    "holdfast.doctor": Topic("Doctor", "doctor.md", ""),
    "holdfast.legacy": Topic("Timestamp lock", "legacy.md", ""),
    "holdfast.legacy.aio": Topic("Timestamp lock for asyncio", "legacy.md", ""),
    "holdfast.testing": Topic("Testing", "testing.md", ""),
    "holdfast.testing.recording": Topic("Recordings", "recordings.md", ""),
    "holdfast.testing.history": Topic("Histories", "recordings.md", ""),
    "holdfast_lab.checkers": Topic("Lab: rules of histories", "recordings.md", ""),
    "holdfast_lab.machine": Topic("Lab: Hypothesis machine", "testing.md", ""),
}
"""By name. Each is a page of all names of the module."""

THREADS = ("enter", "exit", "call", "iter", "contains", "len")
TASKS = ("aenter", "aexit", "call", "await", "aiter", "len")
"""Special methods that are shown: those that users cause to be called. The others of a class of threads only raise errors."""


def public() -> dict[str, dict[str, str]]:
    """Return the public names of each module, and for each the module under whose name it was listed first."""
    found: dict[str, dict[str, str]] = {}
    module = ""
    for line in NAMES.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            module = line.removeprefix("## ")
            found[module] = {}
        elif match := re.match(r"(?:class|def|async def|type) (\w+)(?:: as ([\w.]+)\.\w+)?|(\w+): ", line):
            found[module][match[1] or match[3]] = match[2] or module
    return found


def listed() -> list[str]:
    """Return the public names on the pages, each as its import path."""
    return [match[1] for text in pages().values() for match in re.finditer(r"^::: (\S+)$", text, re.MULTILINE)]


def entry(path: str, *, tasks: bool = False) -> str:
    """Return the lines that stand for the docstrings of a public name."""
    special = "|".join(TASKS if tasks else THREADS)
    return f'::: {path}\n    options:\n      filters: ["!^_", "^__({special})__$"]\n'


def pages() -> dict[str, str]:
    """Return the text of each page of the reference, by file name."""
    origins = public()
    found = {"commands.md": commands()}
    for file, topic in TOPICS.items():
        names = topic.names.split()
        guide = f"The page [{topic.title}](../{topic.guide}) explains them."
        found[f"{file}.md"] = "\n".join([f"# {topic.title}\n", f"{guide}\n", *(entry(f"holdfast.{name}") for name in names)])
        of_tasks = {name: origins["holdfast.aio"][name] for name in names if name in origins["holdfast.aio"]}
        own = [name for name, origin in of_tasks.items() if origin == "holdfast.aio"]
        shared = ", ".join(f"[`{name}`]({file}.md#holdfast.{name})" for name in of_tasks if name not in own)
        also = f" `holdfast.aio` has these names of [`holdfast`]({file}.md), too: {shared}." if shared else ""
        entries = (entry(f"holdfast.aio.{name}", tasks=True) for name in own)
        found[f"aio-{file}.md"] = "\n".join([f"# {topic.title} for asyncio\n", f"{guide}{also}\n", *entries])
    for module, topic in MODULES.items():
        guide = f"The page [{topic.title}](../{topic.guide}) explains them."
        entries = (
            entry(f"{origin}.{name}", tasks=module.endswith("aio") or name.startswith("Async"))
            for name, origin in origins[module].items()
        )
        found[f"{module}.md"] = "\n".join([f"# {topic.title}: `{module}`\n", f"{guide}\n", *entries])
    found["holdfast.schedule.md"] += "\n" + entry("holdfast.aio.Schedule", tasks=True)
    return found


def commands() -> str:
    """Return the page with the help of each subcommand."""
    parts = re.split(r"^\$ (holdfast.*?) --help\n", HELP.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    text = ["# Commands\n", "What `--help` prints. [All subcommands](../subcommands.md) says which of them you need.\n"]
    for command, told in zip(parts[::2], parts[1::2], strict=True):
        text.append(f"## `{command}`\n\n```text\n{told.strip()}\n```\n")
    return "\n".join(text)
