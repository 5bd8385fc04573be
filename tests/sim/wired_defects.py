"""Deliberate defects in the drivers and the connections, which the histories of `holdfast.testing.wired` have to catch.

Run as a script, it plants each and searches: one JSON line for each defect, with the seed that has caught it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sim.mutate import Copy, copied
from sim.script_defects import Mutation

SEEDS = 300
"""Histories in which a defect has to be caught."""


def _wired(name: str, file: str, old: str, new: str, breaks: str) -> Mutation:
    return Mutation(name, file, old, new, breaks, of="wired")


WIRED = (
    _wired(
        "sync-sent-at-answer",
        "_drive/sync.py",
        "return Answer(parsed(call, reply), sent, self._clock())",
        "return Answer(parsed(call, reply), self._clock(), self._clock())",
        "the sync driver takes the time of a request when its answer has come",
    ),
    _wired(
        "asyncio-sent-at-answer",
        "_drive/aio.py",
        "return Answer(parsed(call, reply), sent, self._clock())",
        "return Answer(parsed(call, reply), self._clock(), self._clock())",
        "the asyncio driver takes the time of a request when its answer has come",
    ),
    _wired(
        "connecting-sent-at-answer",
        "_wire/multiplex.py",
        "            return await future, request.sent\n",
        "            return await future, self._clock()\n",
        "a request that had to wait for its connection counts from its answer",
    ),
    _wired(
        "link-sent-at-answer",
        "_drive/link.py",
        "            request.then(answer, request.sent)\n        elif",
        "            request.then(answer, self._clock())\n        elif",
        "a request of the keeper counts from its answer",
    ),
    _wired(
        "link-keeps-unsent",
        "_drive/link.py",
        '        self._out, self._due = b"", float("inf")\n',
        '        self._due = float("inf")\n',
        "what was not sent on a connection that is lost goes out first on the next one",
    ),
    _wired(
        "link-keeps-half-a-reply",
        "_drive/link.py",
        "        self.sock = result\n        self._reader = Reader()\n",
        "        self.sock = result\n",
        "half a reply of a connection that is lost is read before those of the next one",
    ),
    _wired(
        "link-keeps-in-flight",
        "_drive/link.py",
        "        sent, self._sent = self._sent, deque()\n",
        "        sent = list(self._sent)\n",
        "what awaits an answer when a connection is lost awaits it on the next one, too",
    ),
    _wired(
        "link-drops-the-rest",
        "_drive/link.py",
        "        self._out = self._out[sent:]\n",
        '        self._out = b"" if sent else self._out\n',
        "what the kernel does not take of a write is never sent",
    ),
    _wired(
        "link-sends-the-latest-first",
        "_drive/link.py",
        "bool(self._out), self._out + request.packed\n",
        "bool(self._out), request.packed + self._out\n",
        "a request goes in front of the rest of the one before",
    ),
    _wired(
        "asyncio-skips-cancelled",
        "_wire/multiplex.py",
        "                future, _ = next_one()\n                if not future.done():\n",
        "                future, _ = next_one()\n"
        "                while future.done():\n"
        "                    future, _ = next_one()\n"
        "                if not future.done():\n",
        "the answer to a request that nobody awaits any more goes to the next one",
    ),
)


def search(copy: Copy, defect: Mutation) -> tuple[int, str] | None:
    """The first seed that catches a defect, and what it says."""
    with copy.mutated(defect):
        simulate = copy.part("wired.histories").simulate
        for seed in range(SEEDS):
            for violation in simulate(seed).violations:
                return seed, str(violation)
    return None


def main() -> None:
    """Search for each."""
    with copied() as copy:
        for defect in WIRED:
            found = search(copy, defect)
            print(json.dumps({"name": defect.name, "found": found}), flush=True)


if __name__ == "__main__":
    main()
