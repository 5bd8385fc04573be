"""What a job is, as text on the server, so that all processes and `holdfast jobs` mean the same."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from holdfast._core.jobs import Options
from holdfast._core.seats import Seat
from holdfast.errors import ConfigError
from holdfast.schedule.timetable import Timetable, from_text


def write(when: Timetable, options: Options) -> bytes:
    """Only what differs from the defaults, so that it can be read."""
    given = {name: value for name, value in dataclasses.asdict(options).items() if value != getattr(DEFAULTS, name)}
    return json.dumps({"when": when.text, **given}, sort_keys=True).encode()


def parse(definition: bytes) -> tuple[Timetable, Options]:
    """The inverse. Raises ConfigError, where a later release has written it."""
    try:
        facts: dict[str, Any] = json.loads(definition)
        when = from_text(facts.pop("when"))
        if "on" in facts:
            facts["on"] = tuple(facts["on"])
        return when, Options(**facts)
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"a job cannot be read: {definition!r}: {error}", parameter="definition") from error


def read(definition: bytes, seat: Seat) -> tuple[Any, Options]:
    """The same; as it is here, where it cannot be read."""
    try:
        return parse(definition)
    except ConfigError:
        return seat.when, seat.options


DEFAULTS = Options()
