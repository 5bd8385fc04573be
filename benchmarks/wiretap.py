"""What really arrives at the server, and in which order: MONITOR, read by a thread. It slows the server down, so nothing
is timed while it runs."""

from __future__ import annotations

import re
import threading
from collections import Counter
from typing import NamedTuple, Self

from benchmarks.bare import Bare

_LINE = re.compile(rb'^(\d+\.\d+) \[\d+ (\S+)\] "((?:[^"\\]|\\.)*)"(.*)$', re.DOTALL)
_ARGUMENT = re.compile(rb' "((?:[^"\\]|\\.)*)"')


class Seen(NamedTuple):
    """One command, as the server began to carry it out."""

    at: float
    """Server time in seconds."""
    source: str
    """Address of the client; ``lua`` for a command inside a script."""
    name: str
    arguments: list[str]


class Wiretap:
    """Records the commands of everybody between entering and leaving the ``with``."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.seen: list[Seen] = []

    def __enter__(self) -> Self:
        self._bare = Bare(self._url)
        self._bare("MONITOR")
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        end = Bare(self._url)
        end("ECHO", "end of the recording")
        end.close()
        self._thread.join()
        self._bare.close()

    def _read(self) -> None:
        while True:
            found = _LINE.match(self._bare.read())
            if found is None:
                continue
            name = found[3].decode().upper()
            arguments = [argument.decode() for argument in _ARGUMENT.findall(found[4])]
            if name == "ECHO" and arguments == ["end of the recording"]:
                return
            self.seen.append(Seen(float(found[1]), found[2].decode(), name, arguments))

    def from_clients(self) -> Counter[str]:
        """How often each command came from a client, not counting those inside scripts."""
        return Counter(seen.name for seen in self.seen if seen.source != "lua")
