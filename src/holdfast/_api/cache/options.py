"""The options of a cache and their checks, the options of a call, the figures."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from holdfast._api import options
from holdfast._core.single_flight.entry import HEAD, MAX_TAGS, marks
from holdfast.errors import ConfigError


class Unset(enum.Enum):
    """Says that an option was not given, where None means something."""

    UNSET = "as the cache says"

    def __repr__(self) -> str:
        return "UNSET"


MOST = 512 * 1024 * 1024 - HEAD
"""Bytes of a value that any server stores."""

UNSET: Final = Unset.UNSET

Busy = Literal["raise", "load"]


@dataclass(frozen=True, slots=True)
class Statistics:
    """The counts of a cache object since it was made."""

    hits: int
    """Calls that found a value whose time was not over."""
    stale_hits: int
    """Calls that were given one whose time was over, because somebody else was loading a new one."""
    misses: int
    """All other calls: those that loaded, or waited, or found nothing."""
    loads: int
    """How often a loader ran."""
    waits: int
    """Calls that waited for somebody else's load."""
    timeouts: int
    """Those of them that waited in vain."""
    load_errors: int
    """Loaders that raised."""
    refused_writes: int
    """Loaded values that were not stored: their key was invalidated meanwhile, or the lease was lost."""
    unreadable: int
    """Stored values that could not be decoded."""
    uncached: int
    """Calls that did without the server, because it was away."""


class Figures:
    """Counts. Threads may."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(Statistics.__slots__, 0)

    def count(self, *what: str) -> None:
        """One more of each."""
        counts = self._counts
        for name in what:
            counts[name] += 1  # without a mutex: the interpreter switches threads elsewhere, and signal handlers count, too

    def now(self) -> Statistics:
        """All of them at this moment."""
        return Statistics(**self._counts)


class How(NamedTuple):
    """The options of one call: see `Cache`."""

    ttl: float
    stale: float
    tags: tuple[str, ...]
    wait: float | None
    busy: str
    default: Any = UNSET


def checked_ttl(value: object, parameter: str = "ttl") -> float:
    return options.seconds(value, parameter, 0.001)


def checked_stale(value: object) -> float:
    return options.seconds(value, "stale", 0.0)


def checked_busy(value: object) -> str:
    if value not in {"raise", "load"}:
        raise ConfigError(f"busy must be 'raise' or 'load', not {value!r}", parameter="busy")
    return str(value)


def checked_size(value: object) -> int:
    """The option ``max_size=``: no server takes more than 512 MiB."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise ConfigError(f"max_size must be a whole number of bytes from 1 to {MOST:,}, not {value!r}", parameter="max_size")
    return value


def checked_own_tags(given: Iterable[str]) -> tuple[str, ...]:
    """The tags of one value. Raises ConfigError, also where they are too long together."""
    tags = checked_tags(given)
    size = sum(1 + len(mark) for mark in marks(tags))
    if size > MAX_TAGS:
        raise ConfigError(f"the tags of one value may take {MAX_TAGS:,} bytes; these take {size:,}", parameter="tags")
    return tags


def checked_tags(given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise ConfigError(f"tags must be several: ({given!r},)", parameter="tags")
    found = tuple(given)
    for tag in found:
        if not isinstance(tag, str) or not tag:
            raise ConfigError(f"a tag must be a str that is not empty, not {tag!r}", parameter="tags")
    return found
