"""The commands that really arrive at the server, in their order: MONITOR, read by a thread. It slows the server down, so
nothing is timed while it runs."""

from __future__ import annotations

import re
import threading
from functools import cached_property
from typing import NamedTuple, Self

from holdfast.bench.bare import Bare

_LINE = re.compile(rb'^(\d+\.\d+) \[\d+ (\S+)\] "((?:[^"\\]|\\.)*)"(.*)$', re.DOTALL)
_ARGUMENT = re.compile(rb' "((?:[^"\\]|\\.)*)"')
_END = b"end of the recording"


class Seen(NamedTuple):
    """One command, as the server began to carry it out."""

    at: float
    """Server time in seconds."""
    source: str
    """Address of the client; ``lua`` for a command inside a script."""
    name: str
    arguments: list[str]


class Wiretap:
    """Records the commands of everybody between entering and leaving the ``with``. Lines are taken apart afterwards: until
    then nobody shall be slowed down more than by the server's own work."""

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
    def seen(self) -> list[Seen]:
        """All commands, those inside scripts too."""
        return [_parsed(found) for line in self._lines if (found := _LINE.match(line))]

    @cached_property
    def from_clients(self) -> list[Seen]:
        """Commands as clients sent them."""
        lines = (line for line in self._lines if b" lua] " not in line[:64])
        return [_parsed(found) for line in lines if (found := _LINE.match(line))]


def _parsed(found: re.Match[bytes]) -> Seen:
    arguments = [argument.decode(errors="replace") for argument in _ARGUMENT.findall(found[4])]
    return Seen(float(found[1]), found[2].decode(), found[3].decode().upper(), arguments)
