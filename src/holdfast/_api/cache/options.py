"""The options of a cache and of its calls, their checks, and the statistics of a cache."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from holdfast._api import options
from holdfast._core.single_flight.entry import HEAD, MAX_TAGS, marks
from holdfast.errors import ConfigError


class Unset(enum.Enum):
    """The type of `UNSET`, the default of options for which None is a valid value."""

    UNSET = "as the cache says"

    def __repr__(self) -> str:
        return "UNSET"


MOST = 512 * 1024 * 1024 - HEAD
"""Maximum size of a value, in bytes, that a server can store."""

UNSET: Final = Unset.UNSET

Busy = Literal["raise", "load"]


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Counts of one cache object since its creation."""

    hits: int
    """Number of calls that found a fresh value."""
    stale_hits: int
    """Number of calls that returned a stale value: calls of `get`, and calls during which another caller loaded a new value."""
    misses: int
    """Number of all other calls: those that loaded a value, waited for one, or found none."""
    loads: int
    """Number of runs of a loader."""
    waits: int
    """Number of calls that waited for the load of another caller."""
    timeouts: int
    """Number of calls whose ``wait`` passed before the load of another caller ended."""
    load_errors: int
    """Number of loads, under a load lease, in which the loader raised an exception. A load whose caller has no load lease, for
    example because the server is unreachable, does not count."""
    refused_writes: int
    """Number of loaded values that were not stored. Either the key was invalidated meanwhile, or the load lease was lost, or
    the value was too large, or the server did not store the value."""
    unreadable: int
    """Number of stored values that could not be decoded."""
    uncached: int
    """Number of calls that worked without the server, because it was unreachable."""


class Figures:
    """The counters behind `CacheStatistics`, which threads may change at the same time."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(CacheStatistics.__slots__, 0)

    def count(self, *what: str) -> None:
        counts = self._counts
        for name in what:
            counts[name] += 1  # No mutex: CPython switches no threads here, and a signal handler that counts must not wait.

    def now(self) -> CacheStatistics:
        return CacheStatistics(**self._counts)


class How(NamedTuple):
    """The options of one call of a cache; see `Cache` for their meaning."""

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
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise ConfigError(f"max_size must be a whole number of bytes from 1 to {MOST:,}, not {value!r}", parameter="max_size")
    return value


def checked_own_tags(given: Iterable[str]) -> tuple[str, ...]:
    """Return the tags of one value. Raises ConfigError also if they are too long together."""
    tags = checked_tags(given)
    size = sum(1 + len(mark) for mark in marks(tags))
    if size > MAX_TAGS:
        raise ConfigError(f"the tags of one value may take {MAX_TAGS:,} bytes; these take {size:,}", parameter="tags")
    return tags


def checked_tags(given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise ConfigError(f"tags must be a list or tuple, such as ({given!r},)", parameter="tags")
    found = tuple(given)
    for tag in found:
        if not isinstance(tag, str) or not tag:
            raise ConfigError(f"a tag must be a str that is not empty, not {tag!r}", parameter="tags")
    return found
