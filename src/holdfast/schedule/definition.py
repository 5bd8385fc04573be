"""What a job is, as text on the server, so that all processes and `holdfast jobs` mean the same."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from holdfast._core import control_records
from holdfast._core.schedule.job import Options
from holdfast._core.schedule.records import Seat
from holdfast.errors import ConfigError
from holdfast.schedule.timetable import Timetable, from_text


def write(when: Timetable, options: Options) -> bytes:
    """Only what differs from the defaults, so that it can be read."""
    given = {name: value for name, value in dataclasses.asdict(options).items() if value != getattr(DEFAULTS, name)}
    text = json.dumps({"when": when.text, **given}, sort_keys=True).encode()
    if len(text) > control_records.LONGEST:
        raise ConfigError(
            f"a job with all its options has {len(text)} bytes as JSON: {control_records.LONGEST} is the limit",
            parameter="definition",
        )
    return text


def parse(definition: bytes) -> tuple[Timetable, Options]:
    """The inverse. Raises ConfigError, where a later release has written it."""
    from holdfast.schedule.schedule import checked  # here: that imports this

    try:
        facts = control_records.table(definition)
        return from_text(control_records.text(facts.pop("when", None), control_records.LONGEST)), checked("", facts)
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigError(f"a job cannot be read: {definition[:200]!r}: {error}", parameter="definition") from error


def read(definition: bytes, seat: Seat) -> tuple[Any, Options]:
    """The same; as it is here, where it cannot be read."""
    try:
        return parse(definition)
    except ConfigError:
        return seat.when, seat.options


DEFAULTS = Options()
