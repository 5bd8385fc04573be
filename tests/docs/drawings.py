"""Draw the pictures in docs/drawings: what clients and servers send to each other, from top to bottom in the order of time.

python -m docs.drawings

Each picture has a background of its own, so it can be read on light and on dark pages. Its colours follow the system's theme.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "drawings"
WIDTH = 760
STEP = 30
"""Pixels from one moment to the next."""
TOP = 62
"""Pixels above the first moment: the names of the lanes."""
CHARACTER = 6.3
"""Pixels of a character at most, on average over a line of text."""

STYLE = """
text { font: 13px sans-serif; fill: #1c2330; paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }
.back { fill: #ffffff; stroke: #c8ced8; }
.name { font-weight: bold; }
.small { fill: #4b5566; }
.lane { stroke: #a9b1bf; stroke-dasharray: 3 4; }
.arrow { stroke: #35507a; stroke-width: 1.4; }
.tip { fill: #35507a; }
.lost { stroke-dasharray: 5 4; }
.bad { stroke: #b3261e; }
text.bad { fill: #b3261e; stroke: #ffffff; }
.held { fill: #bcd3f5; stroke: #35507a; }
.kept { fill: #d3e8cf; stroke: #3f7a35; }
.risk { fill: #f6d3ce; stroke: #b3261e; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ef; stroke: #1b1f27; }
  .back { fill: #1b1f27; stroke: #3d4554; }
  .small { fill: #aeb6c4; }
  .lane { stroke: #5a6475; }
  .arrow { stroke: #9db8e6; }
  .tip { fill: #9db8e6; }
  .bad { stroke: #ff8a80; }
  text.bad { fill: #ff8a80; stroke: #1b1f27; }
  .held { fill: #2f4a75; stroke: #9db8e6; }
  .kept { fill: #2f5a2a; stroke: #8fce84; }
  .risk { fill: #6b2a25; stroke: #ff8a80; }
}
"""


class Drawing:
    """Lanes next to each other, and what happens in and between them. A moment is a line of the picture, counted from 0."""

    def __init__(self, title: str, lanes: dict[str, int], moments: int) -> None:
        self.title, self.lanes = title, lanes
        self.height = TOP + STEP * moments + 18
        self._back: list[str] = []
        self._front: list[str] = []
        for name, x in lanes.items():
            first, _, second = name.partition("\n")
            self._text(x, 26, first, "name", "middle")
            self._text(x, 43, second, "small", "middle")
            self._back.append(f'<line class="lane" x1="{x}" y1="{TOP - 10}" x2="{x}" y2="{self.height - 10}"/>')

    def _y(self, moment: float) -> float:
        return TOP + STEP * moment + STEP / 2

    def _text(self, x: float, y: float, text: str, css: str = "", anchor: str = "start") -> None:
        if text:
            left = x - len(text) * CHARACTER * {"start": 0, "middle": 0.5, "end": 1}[anchor]
            if left < 0 or left + len(text) * CHARACTER > WIDTH:
                raise ValueError(f"{self.title}: does not fit: {text}")
            css = f' class="{css}"' if css else ""
            self._front.append(f'<text{css} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>')

    def send(self, moment: float, source: str, target: str, text: str, *, lost: bool = False, bad: bool = False) -> None:
        """Draw a message between two lanes. One that is lost ends halfway."""
        start, end, y = self.lanes[source], self.lanes[target], self._y(moment)
        sign = 1 if end > start else -1
        start, end = start + 7 * sign, end - 7 * sign
        if lost:
            end = (start + end) // 2
        css = "arrow" + " lost" * lost + " bad" * (bad or lost)
        self._front.append(f'<line class="{css}" x1="{start}" y1="{y:g}" x2="{end}" y2="{y:g}"/>')
        if lost:
            self._text(end, y + 4, "✕", "bad", "middle")
        else:
            points = f"{end},{y:g} {end - 8 * sign},{y - 4:g} {end - 8 * sign},{y + 4:g}"
            self._front.append(f'<polygon class="tip" points="{points}"/>')
        self._text((self.lanes[source] + self.lanes[target]) / 2, y - 5, text, "bad" if bad or lost else "", "middle")

    def bar(self, lane: str, start: float, end: float, css: str) -> None:
        """Draw how long something lasts in a lane: ``held`` by a client, ``kept`` by a server, or at ``risk``."""
        box = f'x="{self.lanes[lane] - 6}" y="{self._y(start):g}" width="12" height="{(end - start) * STEP:g}" rx="3"'
        self._back.append(f'<rect class="{css}" {box}/>')

    def say(self, moment: float, lane: str, text: str, css: str = "small", *, left: bool = False) -> None:
        """Write next to a lane, on its right or its left."""
        x = self.lanes[lane] + (-13 if left else 13)
        self._text(x, self._y(moment) + 4, text, css, "end" if left else "start")

    def svg(self) -> str:
        """Return the picture."""
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" role="img">'
        back = f'<rect class="back" x="0.5" y="0.5" width="{WIDTH - 1}" height="{self.height - 1}" rx="8"/>'
        title = f"<title>{escape(self.title)}</title>"
        return "\n".join([head, title, f"<style>{STYLE}</style>", back, *self._back, *self._front, "</svg>", ""])


def lease() -> Drawing:
    """Return one acquisition over time, and what ends it when the connection is lost."""
    d = Drawing("One lease over time: what the holder believes, and what the server keeps", {
        "Holder\nbelieves that it holds the lock": 250, "Server\nkeeps the lock": 520,
    }, 15)  # fmt: skip
    holder, server = d.lanes
    d.bar(holder, 0, 11, "held")
    d.bar(server, 0.6, 12.6, "kept")
    d.send(0, holder, server, "acquire, ttl=30")
    d.say(0, holder, "0 s", left=True)
    d.send(1, server, holder, "granted, fence 41")
    d.say(1.8, server, "expires at 30 s")
    d.say(1.8, holder, "until 29.7 s: counted from before the", left=True)
    d.say(2.4, holder, "request, less 1 % and 2 ms", left=True)
    d.send(4, holder, server, "renew")
    d.say(4, holder, "10 s: every third of the lease", left=True)
    d.send(5, server, holder, "renewed")
    d.say(4.6, server, "expires at 40 s")
    d.say(5.6, holder, "until 39.7 s", left=True)
    d.send(7, holder, server, "renew", lost=True)
    d.say(7, holder, "20 s: the connection is lost", left=True)
    d.send(9, holder, server, "renew", lost=True)
    d.say(9, holder, "tried again until the lease ends", left=True)
    d.say(11, holder, "39.7 s: lease.lost is set", "bad", left=True)
    d.say(12.6, server, "40 s: the lock expires")
    d.say(13.4, server, "the next client may get it, fence 42")
    return d


def hand_over() -> Drawing:
    """Return a release that hands the lock to the first waiter."""
    d = Drawing("Hand-over: one script releases the lock and grants it to the first waiter", {
        "Process A\nholds the lock": 90, "Server\nlock and queue": 320, "Process B\nwaits": 520, "Process C\nwaits": 670,
    }, 14)  # fmt: skip
    a, server, b, c = d.lanes
    d.bar(a, -0.5, 5, "held")
    d.send(0, b, server, "acquire")
    d.send(1, server, b, "busy: 1st in the queue")
    d.send(2, c, server, "acquire")
    d.send(3, server, c, "busy: 2nd in the queue")
    d.say(4, c, "no polling", left=True)
    d.send(5, a, server, "release")
    d.say(5.9, server, "one script: A is out, B is in", left=True)
    d.send(6.4, server, b, "notify: yours, fence 42")
    d.bar(b, 6.4, 11, "held")
    d.send(7.4, server, a, "released")
    d.say(8, b, "without asking", left=True)
    d.send(9, b, server, "renew")
    d.say(9.7, server, "after 50 ms: a full lease", left=True)
    d.send(11, b, server, "release")
    d.send(12.4, server, c, "notify: yours, fence 43")
    d.bar(c, 12.4, 13.6, "held")
    return d


def quorum() -> Drawing:
    """Return a lock over three servers, one of them down, and a late write that the fence refuses."""
    d = Drawing("A lock over three servers: a majority grants it, and the fence refuses a late write", {
        "Client A": 70, "Server 1": 190, "Server 2": 290, "Server 3\nis down": 390, "Client B": 520,
        "Resource\nchecks fences": 665,
    }, 16)  # fmt: skip
    a, one, two, three, b, resource = d.lanes
    d.send(0, a, one, "acquire")
    d.send(0.8, a, two, "acquire")
    d.send(1.6, a, three, "acquire", lost=True)
    d.send(2.6, one, a, "yes, 41")
    d.send(3.4, two, a, "yes, 41")
    d.bar(one, 2.6, 7.4, "kept")
    d.bar(two, 3.4, 7.4, "kept")
    d.bar(a, 3.4, 5, "held")
    d.say(4.3, a, "2 of 3: a majority")
    d.bar(a, 5, 13, "risk")
    d.say(5.4, a, "A is paused", "bad")
    d.say(7.4, two, "the lease expires")
    d.send(8.4, b, one, "acquire (to all three)")
    d.send(9.2, one, b, "yes, 42")
    d.send(10, two, b, "yes, 42")
    d.bar(one, 9.2, 15, "kept")
    d.bar(two, 10, 15, "kept")
    d.bar(b, 10, 15, "held")
    d.send(11.4, b, resource, "write, fence 42")
    d.say(12.2, resource, "highest fence: 42", left=True)
    d.say(12.6, a, "A resumes", "bad")
    d.send(13.6, a, resource, "late write, fence 41", bad=True)
    d.say(14.4, resource, "refused: 41 < 42", "bad", left=True)
    return d


def stampede() -> Drawing:
    """Return four calls for a value that has expired: one of them loads it."""
    d = Drawing("A hot key expires: one caller loads the value, the others wait for it or get the old one", {
        "Caller 1\nloads": 80, "Callers 2 to 100\nother threads, tasks, hosts": 260, "Server\nkeeps values": 460,
        "Database": 660,
    }, 12)  # fmt: skip
    first, others, server, database = d.lanes
    d.say(-0.2, server, "the value expires")
    d.send(1, first, server, "get: none there")
    d.send(2, server, first, "you load it: a lease for the key")
    d.bar(first, 2, 8, "held")
    d.send(3, first, database, "one query")
    d.bar(database, 3, 6, "risk")
    d.send(4, others, server, "get")
    d.send(5, server, others, "with stale: the old value")
    d.say(5.8, others, "without: wait, no polling")
    d.send(7, database, first, "result")
    d.send(8, first, server, "store, if the lease still stands")
    d.send(9.2, server, others, "the new value is there")
    d.say(10.4, others, "all of them have it; the database saw one query")
    return d


DRAWINGS = {"lease.svg": lease, "hand-over.svg": hand_over, "quorum.svg": quorum, "stampede.svg": stampede}


if __name__ == "__main__":
    for name, draw in DRAWINGS.items():
        (FOLDER / name).write_text(draw().svg(), encoding="utf-8")
