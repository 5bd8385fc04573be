"""Draw a history as text. Time runs down, and each worker and each server has a column, called its lane.

A bar ┃ in a lane means that the worker believes that it holds the lock. ┊ means that the worker's process is stopped, and ╏
means both. Times are milliseconds since the history began. An ! marks the events of a violation.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from holdfast.testing.history import Event, process_of
from holdfast_lab.judge.safety_rules import Violation

WIDTH: Final = 110
"""Width of the drawing, in characters, if it has at most four lanes."""

TIME: Final = 12
SERVER: Final = ("granted", "extended", "freed", "served")
WORDS: Final = {
    "ask": "asks{lock}, waits {wait}",
    "queued": "joins the queue{lock}",
    "taken": "HOLDS{lock} {until}{fence}",
    "busy": "busy{lock}, gives up",
    "renewed": "renewed{lock} {until}",
    "lost": "LOST{lock}{note}",
    "release": "releases{lock}",
    "released": "released{lock}{note}",
    "write": "writes: accepted",
    "refused": "writes: REFUSED{fence}",
    "crashed": "CRASHES",
    "paused": "is stopped",
    "resumed": "goes on",
    "granted": "grants{lock} {attempt} {until}{note}",
    "extended": "extends{lock} {attempt} {until}",
    "freed": "frees{lock} {attempt}",
    "fault": "* {words}{lasting}",
    "healed": "* over{note}",
    "left": "left behind{note}",
    "sent": "> {words}",
    "served": ". {words}",
    "answered": "< {words}",
}

NOBODY: Final[Mapping[str, str]] = MappingProxyType({})


class Lane:
    """A column of the drawing, for a worker or server.

    ``until`` is the end of the worker's lease, as the worker believes. None: the worker does not believe that it holds
    the lock.
    """

    def __init__(self, who: str, title: str) -> None:
        self.who = who
        self.title = title
        self.until: float | None = None
        self.stopped = False

    @property
    def bar(self) -> str:
        if self.until is None:
            return "┊" if self.stopped else " "
        return "╏" if self.stopped else "┃"


def draw(events: Iterable[Event], violations: Iterable[Violation] = (), *, names: Mapping[str, str] = NOBODY) -> str:
    """Return the drawing of a history. ``names`` has the titles of the lanes, by worker or server."""
    events = list(events)
    return _Drawing(events, list(violations), names).draw()


class _Drawing:
    def __init__(self, events: list[Event], violations: list[Violation], names: Mapping[str, str]) -> None:
        self.events = events
        self.violations = violations
        self.names = names
        self.start = events[0].at if events else 0.0
        self.accused = {event for violation in violations for event in violation.events}
        self.fences = sorted({event.fence for event in events if event.fence})
        self.numbered = bool(self.fences) and self.fences[-1] >= 10**6
        """True if the fences are large. The drawing then shows them as 1, 2, 3, and explains these numbers below."""
        self.several = len({event.lock for event in events if event.lock}) > 1
        self.servers = [Lane(who, names.get(who, who)) for who in _unique(e.who for e in events if e.kind in SERVER)]
        self.lanes = self._workers() + (self.servers or [Lane("", "")])
        self.width = (WIDTH - TIME) // max(2, min(4, len(self.lanes)))
        self.rows: list[str] = []

    def _workers(self) -> list[Lane]:
        servers = {lane.who for lane in self.servers}
        about_servers = {e.who for e in self.events if e.kind in {"fault", "healed"}}
        workers = _unique(e.who for e in self.events if e.who and e.lock and e.who not in servers)
        have_lanes = {process_of(who) for who in workers} | servers | about_servers
        others = _unique(e.who for e in self.events if e.who and process_of(e.who) not in have_lanes)
        return [Lane(who, self.names.get(who, who)) for who in workers + others]

    def draw(self) -> str:
        self._row(" " * (TIME - 4) + "ms", [lane.title for lane in self.lanes], [" "] * len(self.lanes))
        for event in self.events:
            self._run_out(event.at)
            self._event(event)
        lines = self.rows
        if self.numbered:
            lines += ["", "fences: " + ", ".join(f"{n} is {fence}" for n, fence in enumerate(self.fences, 1))]
        if self.violations:
            lines.append("")
        for violation in self.violations:
            text = self._with_ranks(str(violation))
            lines += textwrap.wrap(f"! {text}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)
        return "\n".join(line.rstrip() for line in lines)

    def _with_ranks(self, text: str) -> str:
        if self.numbered:
            for rank, fence in enumerate(self.fences, 1):
                text = text.replace(str(fence), str(rank))
        return text

    # Rows

    def _row(self, margin: str, texts: list[str], bars: list[str]) -> None:
        columns = [textwrap.wrap(text, self.width - 2, break_on_hyphens=False) or [""] for text in texts]
        for n in range(max(len(column) for column in columns)):
            cells = [column[n] if n < len(column) else "" for column in columns]
            line = "".join(f"{bar} {cell:<{self.width - 2}}" for bar, cell in zip(bars, cells, strict=True))
            self.rows.append(f"{margin if not n else '':<{TIME}}{line}")

    def _say(self, at: float, where: list[Lane], text: str, mark: str = " ") -> None:
        texts = [text if lane in where else "" for lane in self.lanes]
        self._row(f"{mark}{self._ms(at):>{TIME - 3}}", texts, [lane.bar for lane in self.lanes])

    def _run_out(self, now: float) -> None:
        """Append a row for each lease that its holder believes to have ended by ``now``."""
        for lane in sorted((lane for lane in self.lanes if lane.until is not None), key=lambda lane: lane.until or 0.0):
            if lane.until is not None and lane.until < now:
                at, lane.until = lane.until, None
                self._say(at, [lane], "the lease ends")

    def _event(self, event: Event) -> None:
        where = self._where(event)
        for lane in where:
            match event.kind:
                case "taken" | "renewed":
                    lane.until = event.until
                case "release" | "lost" | "crashed":
                    lane.until = None
                    lane.stopped = lane.stopped and event.kind != "crashed"
                case "paused" | "resumed":
                    lane.stopped = event.kind == "paused"
        told_twice = (event.kind == "fault" and event.note.startswith(("pause", "crash"))) or (
            event.kind == "healed" and event.note.startswith("pause")
        )
        if not told_twice:
            self._say(event.at, where, self._text(event), "!" if event in self.accused else " ")

    def _where(self, event: Event) -> list[Lane]:
        own = [lane for lane in self.lanes if lane.who == event.who]
        if own:
            return own
        of_process = [lane for lane in self.lanes if event.who and process_of(lane.who) == event.who]
        if event.kind in {"crashed", "paused", "resumed"}:
            return of_process
        return of_process[:1] or self.lanes[-1:]

    def _ms(self, at: float, digits: int = 3) -> str:
        return f"{(at - self.start) * 1000:.{digits}f}"

    def _rank(self, fence: int) -> int:
        return self.fences.index(fence) + 1 if self.numbered else fence

    def _text(self, event: Event) -> str:
        wait, kind = event.until - event.at, event.kind
        if kind == "write" and event.note != "accepted":
            kind = "refused"
        return WORDS.get(kind, "{kind}{lock}{note}").format(
            kind=kind,
            lock=f" {event.lock}" if self.several and event.lock else "",
            note=f": {event.note}" if event.note else "",
            words=event.note,
            attempt=event.attempt,
            until="forever" if event.until == float("inf") else f"until {self._ms(event.until, 1)}",
            wait="forever" if wait == float("inf") else f"{wait * 1000:.0f} ms",
            fence=f", fence {self._rank(event.fence)}" if event.fence else "",
            lasting=f" for {wait * 1000:.0f} ms" if wait > 0 else "",
        )


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
