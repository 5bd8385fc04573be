"""Read and write control records, which are JSON texts: process records, job definitions and tickets.

Any client with access to the keys can store arbitrary bytes there, which each waiter and `holdfast ls` then read. So the size
of a record is checked on the server, before its bytes are sent (`fetch`, and `_lua/inspect/control_records.lua`). `parse` is
the only function that decodes the text. It raises Malformed for every text that is not a valid record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from holdfast._core.requests import Command
from holdfast._core.struct import NamedTuple
from holdfast._lua import Script, sha1_hex

LONGEST = 4096
"""Maximum size of a control record, in bytes. `_lua/inspect/control_records.lua` has the same limit."""

DIGITS = 19
"""Number of digits of the largest signed 64-bit number, the largest number that a control record needs."""

_INFINITY = float("inf")

MARK = 10
"""Number of hex digits of the hash of a lock's key. Process records contain this hash, because the key might be too long."""

MOST_LABELS, LABELS = 32, 2000
"""Maximum number of labels of locks in one process record, and maximum number of bytes of all these labels."""

HOLDS = 1200
"""Maximum number of bytes, in a process record, for the keys of the locks that one waiting thread or task holds."""

MOST_WAITS = 100
"""Maximum number of waits that are read from one process record."""


class Malformed(ValueError):
    """Raised if a text is not a valid control record."""


def parse(raw: object, longest: int = LONGEST) -> Any:
    """Return the JSON value in ``raw``. Raises Malformed if ``raw`` is not a valid control record.

    A valid record is a text in UTF-8 of at most ``longest`` bytes. It is valid JSON, is not nested too deeply, and contains no
    half of a surrogate pair. Each number in it is finite. A whole number has at most `DIGITS` + 1 characters, another number
    at most 40.
    """
    import json  # here, because most commands never read a record

    if isinstance(raw, str):
        raw = raw.encode("utf-8", "surrogatepass")
    if not isinstance(raw, bytes):
        raise Malformed(f"the record is of type {type(raw).__name__}, not text")
    if len(raw) > longest:
        raise Malformed(f"the record is longer than {longest} bytes")
    try:
        value = json.loads(raw.decode(), parse_int=_whole, parse_float=_finite, parse_constant=_finite)
        if b"\\u" in raw:  # a lone surrogate, which cannot be printed, can only be written with this escape
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise Malformed("the record is not valid JSON") from None
    return value


def _whole(text: str) -> int:
    if len(text) > DIGITS + 1:
        raise Malformed("a number in the record has too many digits")
    return int(text)


def _finite(text: str) -> float:
    if len(text) > 40 or not abs(number := float(text)) < _INFINITY:
        raise Malformed("a number in the record is not finite")
    return number


def table(raw: object, longest: int = LONGEST) -> dict[str, Any]:
    value = parse(raw, longest)
    if not isinstance(value, dict):
        raise Malformed("the record is not a JSON object")
    return value


def text(value: object, longest: int) -> str:
    if not isinstance(value, str) or len(value) > longest:
        raise Malformed("a value in the record is not a string, or is too long")
    return value


def whole(value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise Malformed("a value in the record is not a whole number, or is out of range")
    return value


def digits(value: str) -> int:
    """Return the whole number in ``value``, a word of a plain-text record. Raises Malformed if it is not a whole number."""
    figures = value.removeprefix("-")
    if not (figures.isascii() and figures.isdigit() and len(figures) <= DIGITS):
        raise Malformed("a word in the record is not a whole number")
    return int(value)


def number(value: object) -> float:
    if type(value) not in {int, float}:
        raise Malformed("a value in the record is not a number")
    return float(value)  # type: ignore[arg-type]


# Process records


class WaitRecord(NamedTuple):
    """A wait for a lock, as read from a process record. The waiting thread or task holds other locks."""

    lock: str
    """Key of the lock for which the thread or task waits."""
    since: float
    """Unix time, in seconds, at which the wait began, by the clock of the waiter's machine."""
    owner: str
    """Id of the thread or task, unique in its process."""
    who: str
    """Name of the thread or task."""
    holds: tuple[str, ...]
    """Keys of the locks that the thread or task holds."""
    yields: bool
    """True if this wait may be ended with an error, to break a deadlock."""


class ProcessRecord(NamedTuple):
    """A process record: host, pid and label of a process, and the waits of its threads and tasks for locks."""

    host: str
    pid: int
    label: str
    """Label (text for people) for locks of this process that have no label of their own; empty: no label."""
    waits: tuple[WaitRecord, ...] = ()
    labels: Mapping[str, str] = MappingProxyType({})
    """Labels of the locks that the process holds or waits for, by the short hash of the lock's key (`mark_of`)."""

    def label_of(self, key: bytes) -> str:
        """Return the label that this process has given to the lock ``key``, or else to all its locks; empty: none."""
        return (self.labels and self.labels.get(mark_of(key))) or self.label


def read(raw: object) -> ProcessRecord | None:
    """Return the process record in ``raw``; None if ``raw`` is empty or not a valid record."""
    if not raw:
        return None
    try:
        facts = table(raw)
        label = facts.get("label")
        told, labels = facts.get("waits", []), facts.get("labels")
        return ProcessRecord(
            text(facts.get("host"), 255),
            whole(facts.get("pid"), 0, 2**53),
            "" if label is None else text(label, 200),
            tuple(map(_waiting, told[:MOST_WAITS])) if isinstance(told, list) else (),
            {text(mark, MARK): text(name, 200) for mark, name in labels.items()} if isinstance(labels, dict) else {},
        )
    except Malformed:
        return None


def _waiting(told: object) -> WaitRecord:
    if not isinstance(told, dict) or not isinstance(holds := told.get("holds"), list):
        raise Malformed("a wait in the record is not an object with a list of keys")
    return WaitRecord(
        text(told.get("lock"), LONGEST),
        number(told.get("since")),
        text(told.get("id"), 40),
        text(told.get("who"), 200),
        tuple(text(key, LONGEST) for key in holds),
        told.get("yields") is True,
    )


def mark_of(key: bytes) -> str:
    """Return the short hash that stands for the key of a lock in a process record."""
    return sha1_hex(key)[:MARK]


def write(facts: Mapping[str, Any], waits: list[dict[str, Any]], labels: Mapping[bytes, str] = MappingProxyType({})) -> str:
    """Return the text of a process record, with these facts (such as host and pid), waits, and labels of locks by key.

    A label is left out if the record would otherwise have more than `MOST_LABELS` labels, or more than `LABELS` bytes of
    labels. A wait is left out if the record would otherwise have more than `MOST_WAITS` waits or `LONGEST` bytes.
    """
    told: dict[str, str] = {}
    room = min(LABELS, LONGEST - _bytes({**facts, "labels": {}}))
    for key, label in list(labels.items())[:MOST_LABELS]:
        needs = _bytes({mark_of(key): label})
        if needs <= room:  # otherwise a shorter label may still fit
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
    """Return as many of the keys as a process record may list for one wait (`HOLDS` bytes), in the same order."""
    room, told = HOLDS, []
    for key in keys:
        needs = _bytes(key) + 2
        if needs <= room:  # otherwise a shorter key may still fit
            told.append(key)
            room -= needs
    return told


def _json(value: object) -> str:
    """Return a value as JSON without escapes of non-ASCII characters, which would take up to three times the bytes.

    Half of a surrogate pair, which no reader accepts, is replaced by a question mark.
    """
    import json

    return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()


def _bytes(value: object) -> int:
    return len(_json(value).encode())


def fetch(key: bytes, timeout: float) -> Command:
    """Return the command that reads the process record ``key``. ``timeout``: maximum seconds to wait for the reply.

    Of a record that is too long, the command reads only `LONGEST` + 1 bytes, so that `read` refuses it.
    """
    return Command(("GETRANGE", key, 0, LONGEST), timeout)


def _records(raw: object) -> list[bytes]:
    assert isinstance(raw, list)
    return raw


CONTROL_RECORDS: Script[list[bytes]] = Script("inspect/control_records", _records)
"""The script that reads the records of several processes. The reply has an empty text for each missing record."""
