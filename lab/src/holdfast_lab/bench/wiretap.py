"""Record the commands that reach the server, from the output of MONITOR.

MONITOR slows the server down, so no time is measured meanwhile.
"""

from __future__ import annotations

import re
import threading
from functools import cached_property
from typing import NamedTuple, Self

from holdfast_lab.bench.bare import Bare

_LINE = re.compile(rb'^(\d+\.\d+) \[\d+ (\S+)\] "((?:[^"\\]|\\.)*)"(.*)$', re.DOTALL)
_ARGUMENT = re.compile(rb' "((?:[^"\\]|\\.)*)"')
_END = b"end of the recording"


class SeenCommand(NamedTuple):
    """A command, as MONITOR shows it."""

    at: float
    """Server time in seconds at which the command began."""
    source: str
    """Address of the client; ``lua`` for a command inside a script."""
    name: str
    arguments: list[str]


class Wiretap:
    """A recorder of the commands of all clients during a ``with`` block. It parses them afterwards, to save time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lines: list[bytes] = []

    def __enter__(self) -> Self:
        self._bare, self._end = Bare(self._url), Bare(self._url)
        self._bare("MONITOR")
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end("ECHO", _END)
        self._end.close()
        self._thread.join()
        self._bare.close()

    def _read(self) -> None:
        while _END not in (line := self._bare.read()):
            self._lines.append(line)

    @cached_property
    def seen(self) -> list[SeenCommand]:
        """All commands, including those inside scripts."""
        return [_parsed(found) for line in self._lines if (found := _LINE.match(line))]

    @cached_property
    def from_clients(self) -> list[SeenCommand]:
        """The commands that clients sent."""
        lines = (line for line in self._lines if b" lua] " not in line[:64])
        return [_parsed(found) for line in lines if (found := _LINE.match(line))]


def _parsed(found: re.Match[bytes]) -> SeenCommand:
    arguments = [argument.decode(errors="replace") for argument in _ARGUMENT.findall(found[4])]
    return SeenCommand(float(found[1]), found[2].decode(), found[3].decode().upper(), arguments)
