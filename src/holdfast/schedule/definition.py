"""Check a job's options, and read and write its definition, the JSON text on the server that all processes share."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from holdfast._api.foreign_words import hint_for
from holdfast._api.options import MIN_TTL, seconds
from holdfast._core import control_records
from holdfast._core.schedule.job import Options
from holdfast._core.schedule.records import ServedJob
from holdfast.errors import ConfigError
from holdfast.schedule.timetable import Timetable, from_text

HISTORY = 1000
"""Maximum number of past runs that a job's history may keep."""

ON_THE_SERVER = {"min_runtime": "keep"}
"""Maps the Python name of an option to its name in the definition stored on the server, if the two differ."""

CHOICES: dict[str, tuple[str, ...]] = {
    "overlap": ("skip", "queue", "allow"),
    "misfire": ("skip", "once", "all"),
    "on_crash": ("leave", "again"),
}


def checked(name: str, options: dict[str, Any]) -> Options:
    """Return the options of a job after checking them. Raises ConfigError, which names the parameter."""
    unknown = sorted(set(options) - set(Options.__dataclass_fields__))
    if unknown:
        meant = hint_for(unknown[0], "job") or f"options are {', '.join(Options.__dataclass_fields__)}"
        raise ConfigError(f"job {name!r}: there is no option {unknown[0]!r}; {meant}", parameter=unknown[0])
    given = dict(options)
    for option, choices in CHOICES.items():
        if given.get(option, choices[0]) not in choices:
            raise ConfigError(
                f"job {name!r}: {option} must be one of {', '.join(choices)}, not {given[option]!r}", parameter=option
            )
    for option, least in (("ttl", MIN_TTL), ("min_runtime", 0.0), ("grace", 0.0), ("max_runtime", 0.001)):
        if given.get(option) is not None or (option in given and option != "max_runtime"):
            given[option] = seconds(given[option], option, least)
    given["on"] = tuple(sorted(fit_for(given.get("on", ()), "on")))
    history = given.get("history", 50)
    if isinstance(history, bool) or not isinstance(history, int) or not 1 <= history <= HISTORY:
        raise ConfigError(
            f"job {name!r}: history must be a whole number from 1 to {HISTORY}, not {history!r}", parameter="history"
        )
    return Options(**given)


def fit_for(given: Any, parameter: str) -> set[str]:
    """Return the features in ``given``, which is one text, such as "gpu", or several. Raises ConfigError."""
    found = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    if not all(isinstance(feature, str) for feature in found):
        raise ConfigError(
            f'{parameter} must be text or a list of texts, such as "gpu" or ["gpu", "disk"], not {given!r}', parameter=parameter
        )
    return set(found)


def write(when: Timetable, options: Options) -> bytes:
    """Return a job's definition as JSON, without options that have their default. Raises ConfigError if it is too long."""
    given = {name: value for name, value in dataclasses.asdict(options).items() if value != getattr(DEFAULTS, name)}
    given = {ON_THE_SERVER.get(name, name): value for name, value in given.items()}
    text = json.dumps({"when": when.text, **given}, sort_keys=True).encode()
    if len(text) > control_records.LONGEST:
        raise ConfigError(
            f"the job's definition as JSON has {len(text)} bytes; the limit is {control_records.LONGEST}",
            parameter="definition",
        )
    return text


def parse(definition: bytes) -> tuple[Timetable, Options]:
    """Return the timetable and options from a job's definition.

    Raises ConfigError if they cannot be read, for example because a later release of holdfast wrote the definition.
    """
    try:
        facts = control_records.table(definition)
        for name, there in ON_THE_SERVER.items():
            if there in facts:
                facts[name] = facts.pop(there)
        return from_text(control_records.text(facts.pop("when", None), control_records.LONGEST)), checked("", facts)
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigError(f"job definition cannot be read: {definition[:200]!r}: {error}", parameter="definition") from error


def read(definition: bytes, job: ServedJob) -> tuple[Any, Options]:
    """Return the timetable and options from a job's definition; if it cannot be read, those that this process declared."""
    try:
        return parse(definition)
    except ConfigError:
        return job.when, job.options


DEFAULTS = Options()
