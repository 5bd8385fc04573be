"""Control records: what processes say about themselves, job definitions, tickets. JSON that anybody may have written.

Everybody who can write such a key chooses its bytes, and each waiter, and `holdfast ls`, read them. So the size is checked on
the server, before a byte is sent (`fetch`, and `_lua/inspect/control_records.lua`). `parse` is the only function that reads the
text: it either returns what the format allows or raises `Malformed`, whatever stands there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from holdfast._core.requests import Command
from holdfast._lua import Script, sha1_hex

LONGEST = 4096
"""Bytes of a control record. The same number stands in `_lua/inspect/control_records.lua`."""

DIGITS = 19
"""Of a whole number: what 64 bits hold."""

_INFINITY = float("inf")

MARK = 10
"""Number of hex digits by which a record names a key. A record has no room for long keys."""

MOST_LABELS, LABELS = 32, 2000
"""Locks of one process whose labels are told, and how many bytes of the record they take, at most."""

HOLDS = 1200
"""Bytes of a record, at most, that name the locks that a waiter holds: the same ones however many others wait."""

MOST_WAITS = 100
"""Waits of one process that are read."""


class Malformed(ValueError):
    """The text is not a control record."""


def parse(raw: object, longest: int = LONGEST) -> Any:
    """Return the JSON value in ``raw``. Raises Malformed for text that is too long, is not UTF-8 or JSON, is nested too deeply,
    or contains a number that is not finite or has more than `DIGITS` digits, or half a surrogate pair."""
    import json  # here: most commands never read one

    if isinstance(raw, str):
        raw = raw.encode("utf-8", "surrogatepass")
    if not isinstance(raw, bytes):
        raise Malformed(f"not text, but {type(raw).__name__}")
    if len(raw) > longest:
        raise Malformed(f"longer than {longest} bytes")
    try:
        value = json.loads(raw.decode(), parse_int=_whole, parse_float=_finite, parse_constant=_finite)
        if b"\\u" in raw:  # the only way to write a lone surrogate, which nothing can print
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise Malformed("not JSON that a control record may contain") from None
    return value


def _whole(text: str) -> int:
    if len(text) > DIGITS + 1:
        raise Malformed("a number has too many digits")
    return int(text)


def _finite(text: str) -> float:
    if len(text) > 40 or not abs(number := float(text)) < _INFINITY:
        raise Malformed("a number is not finite")
    return number


def table(raw: object, longest: int = LONGEST) -> dict[str, Any]:
    """The same where it has to be a JSON object."""
    value = parse(raw, longest)
    if not isinstance(value, dict):
        raise Malformed("not a JSON object")
    return value


def text(value: object, longest: int) -> str:
    """A string of at most ``longest`` characters. Raises Malformed."""
    if not isinstance(value, str) or len(value) > longest:
        raise Malformed("not a string, or too long")
    return value


def whole(value: object, least: int, most: int) -> int:
    """A whole number in these limits. Raises Malformed."""
    if type(value) is not int or not least <= value <= most:
        raise Malformed("not a whole number, or out of range")
    return value


def digits(value: str) -> int:
    """A whole number as scripts write it, between the words of a record that is not JSON. Raises Malformed."""
    figures = value.removeprefix("-")
    if not (figures.isascii() and figures.isdigit() and len(figures) <= DIGITS):
        raise Malformed("not a whole number")
    return int(value)


def number(value: object) -> float:
    """A number. Raises Malformed."""
    if type(value) not in {int, float}:
        raise Malformed("not a number")
    return float(value)  # type: ignore[arg-type]


# Process records


class Waiting(NamedTuple):
    """A thread or task that waits for a lock while holding others, as its process tells it."""

    lock: str
    """Key of the lock that it waits for."""
    since: float
    """Unix time of its machine."""
    owner: str
    """Tells the threads and tasks of a process apart."""
    who: str
    """Name of the thread or task."""
    holds: tuple[str, ...]
    """Keys of the locks that it holds."""
    yields: bool
    """Its wait may be ended."""


class Record(NamedTuple):
    """The record of a process about itself."""

    host: str
    pid: int
    label: str
    """Of locks that have none of their own; empty if there is none."""
    waits: tuple[Waiting, ...] = ()
    labels: Mapping[str, str] = MappingProxyType({})
    """Of locks that it holds or waits for, by `mark_of` their keys."""

    def label_of(self, key: bytes) -> str:
        """Return what the users of this lock in that process call themselves; empty if they do not say."""
        return (self.labels and self.labels.get(mark_of(key))) or self.label


def read(raw: object) -> Record | None:
    """Return what a process record says; None where there is none yet, or something else is there."""
    if not raw:
        return None
    try:
        facts = table(raw)
        label = facts.get("label")
        told, labels = facts.get("waits", []), facts.get("labels")
        return Record(
            text(facts.get("host"), 255),
            whole(facts.get("pid"), 0, 2**53),
            "" if label is None else text(label, 200),
            tuple(map(_waiting, told[:MOST_WAITS])) if isinstance(told, list) else (),
            {text(mark, MARK): text(name, 200) for mark, name in labels.items()} if isinstance(labels, dict) else {},
        )
    except Malformed:
        return None


def _waiting(told: object) -> Waiting:
    if not isinstance(told, dict) or not isinstance(holds := told.get("holds"), list):
        raise Malformed("not a wait")
    return Waiting(
        text(told.get("lock"), LONGEST),
        number(told.get("since")),
        text(told.get("id"), 40),
        text(told.get("who"), 200),
        tuple(text(key, LONGEST) for key in holds),
        told.get("yields") is True,
    )


def mark_of(key: bytes) -> str:
    """Return what stands for the key of a lock in a record."""
    return sha1_hex(key)[:MARK]


def write(facts: Mapping[str, Any], waits: list[dict[str, Any]], labels: Mapping[bytes, str] = MappingProxyType({})) -> str:
    """Return the record of a process, with the labels of locks by their keys. Parts that do not fit are left out: labels beyond
    `MOST_LABELS` or `LABELS` bytes, and waits beyond `LONGEST` bytes in all."""
    told: dict[str, str] = {}
    room = min(LABELS, LONGEST - _bytes({**facts, "labels": {}}))
    for key, label in list(labels.items())[:MOST_LABELS]:
        needs = _bytes({mark_of(key): label})
        if needs <= room:  # else a shorter one may
            told[mark_of(key)] = label
            room -= needs
    facts = {**facts, "labels": told} if told else facts
    room, fitting = LONGEST - _bytes({**facts, "waits": []}), []
    for wait in waits[:MOST_WAITS]:
        needs = _bytes(wait) + 2
        if needs <= room:
            fitting.append(wait)
            room -= needs
    return _json({**facts, "waits": fitting} if fitting else facts)


def first_of(keys: Iterable[str]) -> list[str]:
    """Return the first of the locks that a waiter holds, as many as a record tells: `HOLDS` bytes. A key without room is left
    out."""
    room, told = HOLDS, []
    for key in keys:
        needs = _bytes(key) + 2
        if needs <= room:  # else a shorter one may
            told.append(key)
            room -= needs
    return told


def _json(value: object) -> str:
    """As text without escapes, which take up to three times the bytes. Half a surrogate pair, which no reader accepts, becomes
    a question mark."""
    import json

    return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()


def _bytes(value: object) -> int:
    return len(_json(value).encode())


def fetch(key: bytes, timeout: float) -> Command:
    """Ask for the process record under a key: `LONGEST` bytes of it and one more, which tells that it is too long."""
    return Command(("GETRANGE", key, 0, LONGEST), timeout)


def _records(raw: object) -> list[bytes]:
    assert isinstance(raw, list)
    return raw


CONTROL_RECORDS: Script[list[bytes]] = Script("inspect/control_records", _records)
"""The records of several processes, each empty where there is none, or something else."""
