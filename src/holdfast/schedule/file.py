"""Read a schedule from a TOML file into a `Plan`. Errors name the file and the key.

The table ``[schedule]`` has options of `Schedule`. Each table ``[jobs.NAME]`` has ``cron`` or ``every`` (when the job runs),
``command`` or ``python`` (what it runs), and options of the job. Durations are numbers of seconds, or text such as ``"500ms"``,
``"30s"``, ``"5m"``, ``"2h"``, ``"1d"``.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast._core.names import encoded
from holdfast._durations import parsed
from holdfast.errors import ConfigError
from holdfast.schedule.command import Command
from holdfast.schedule.definition import checked
from holdfast.schedule.schedule import Options
from holdfast.schedule.timetable import Cron, Every, Timetable

_TIMES = {"ttl", "min_runtime", "grace", "max_runtime", "jitter", "kill_after", "every"}
_OPTIONS = {field.name for field in dataclasses.fields(Options)}
_OF_COMMANDS = {"shell", "env", "directory", "kill_after", "pass_url"}
_OF_JOBS = _OPTIONS | _OF_COMMANDS | {"cron", "every", "tz", "jitter", "command", "python"}
_OF_SCHEDULE = {"name", "features", "concurrency", "tz", "prefix", "strict"}


@dataclasses.dataclass
class Planned:
    """A job in a schedule file: its name, timetable, command or function, and options."""

    name: str
    when: Timetable
    what: Command | Callable[..., Any]
    options: dict[str, Any]


@dataclasses.dataclass
class Plan:
    """The contents of a schedule file."""

    name: str = ""
    """Name of the schedule; empty if the file has none."""
    features: list[str] = dataclasses.field(default_factory=list)
    concurrency: int | None = None
    jobs: list[Planned] = dataclasses.field(default_factory=list)
    prefix: str | None = None
    strict: bool = False


def read(path: str) -> Plan:
    """Read a schedule file. Raises ConfigError, which names file and key."""
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", parameter="file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}", parameter="file") from error
    table = _Table(path, "", document, {"schedule", "jobs"})
    about = table.table("schedule", _OF_SCHEDULE)
    concurrency, prefix = about.get("concurrency", int, None), about.get("prefix", str, None)
    strict = about.get("strict", bool, False)
    plan = Plan(about.get("name", str, ""), about.texts("features"), concurrency, prefix=prefix, strict=strict)
    jobs = table.table("jobs", None)
    for name in jobs.values:
        plan.jobs.append(_job(jobs.table(name, _OF_JOBS), name, about.get("tz", str, "UTC")))
    if not plan.jobs:
        raise ConfigError(
            f"{path}: there is no job in the file: add [jobs.NAME], with command= and every= or cron=", parameter="file"
        )
    return plan


class _Table:
    """A table of the TOML file. Its ``name`` is for error messages. Raises ConfigError if it has an unknown key."""

    def __init__(self, path: str, name: str, values: dict[str, Any], known: set[str] | None) -> None:
        self.path, self.name, self.values = path, name, values
        for key in values:
            if known is not None and key not in known:
                raise self.wrong(key, f"there is no such key; known keys: {', '.join(sorted(known))}")

    def wrong(self, key: str, why: str) -> ConfigError:
        """Return a ConfigError that names the file and the key; ``why`` is the reason."""
        return ConfigError(f"{self.path}: {'.'.join(filter(None, (self.name, key)))}: {why}", parameter=key)

    def table(self, key: str, known: set[str] | None) -> _Table:
        """Return a table inside this one; empty if it is missing. ``known``: the keys that it may have; None: any."""
        return _Table(self.path, ".".join(filter(None, (self.name, key))), self.get(key, dict, {}), known)

    def get(self, key: str, kind: type, default: Any) -> Any:
        value = self.values.get(key, default)
        if key in self.values and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            names = {str: "text", dict: "a table", int: "a whole number", bool: "true or false"}
            raise self.wrong(key, f"{value!r} is not {names[kind]}")
        return value

    def texts(self, key: str) -> list[str]:
        value = self.values.get(key, [])
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise self.wrong(key, f"{value!r} is neither text nor a list of texts")
        return found

    def seconds(self, key: str) -> float:
        value = self.values[key]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        duration = parsed(value) if isinstance(value, str) else None
        if duration is None:
            raise self.wrong(key, f'{value!r} is not a duration: write 30 (seconds), "500ms", "30s", "5m", "2h" or "1d"')
        return duration

    def option(self, key: str) -> Any:
        if key in _TIMES:
            return self.seconds(key)
        if key == "on":
            return tuple(self.texts(key))
        return self.get(key, int if key == "history" else str, None)


def _job(table: _Table, name: str, tz: str) -> Planned:
    try:
        options = {key: table.option(key) for key in table.values if key in _OPTIONS}
        checked(name, options)
        encoded(name, "name of a job")
        return Planned(name, _when(table, name, tz), _what(table), options)
    except ConfigError as error:
        if str(error).startswith(table.path):
            raise
        raise ConfigError(f"{table.path}: {table.name}: {error}", parameter=error.parameter) from error


def _when(table: _Table, name: str, tz: str) -> Timetable:
    jitter = table.seconds("jitter") if "jitter" in table.values else 0.0
    if ("cron" in table.values) == ("every" in table.values):
        raise table.wrong("cron", "set either cron or every")
    if "cron" in table.values:
        return Cron(table.get("cron", str, ""), table.get("tz", str, tz), jitter=jitter, salt=name)
    if "tz" in table.values:
        raise table.wrong("tz", "is an option for cron only")
    return Every(table.seconds("every"), jitter=jitter, salt=name)


def _what(table: _Table) -> Command | Callable[..., Any]:
    if ("command" in table.values) == ("python" in table.values):
        raise table.wrong("command", 'set either command = ["./backup.sh"] or python = "module:function"')
    if "python" in table.values:
        for key in sorted(_OF_COMMANDS & set(table.values)):
            raise table.wrong(key, "is an option for commands only")
        try:
            found = imported(table.get("python", str, ""))
        except ConfigError as error:
            raise table.wrong("python", str(error)) from error
        if not callable(found):
            raise table.wrong("python", f"{table.values['python']!r} is not a function")
        return found  # type: ignore[no-any-return]
    shell = table.get("shell", bool, False)
    argv = table.get("command", str, "") if shell else table.values["command"]
    if not shell and (not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv)):
        raise table.wrong("command", 'write it as a list, as in ["./backup.sh", "--full"], or as text with shell = true')
    env = table.get("env", dict, {})
    if not all(isinstance(value, str) for value in env.values()):
        raise table.wrong("env", "its values must be text")
    options: dict[str, Any] = {"directory": table.get("directory", str, None), "pass_url": table.get("pass_url", bool, False)}
    if "kill_after" in table.values:
        options["kill_after"] = table.seconds("kill_after")
    return Command(["/bin/sh", "-c", argv] if shell else argv, env=env, **options)


def imported(target: str) -> Any:
    """Import and return the object named by ``target``, a text ``package.module:name``. The current directory is searched last.

    Raises ConfigError if there is no such module or name. Errors that the module itself raises are passed on.
    """
    module, _, name = target.partition(":")
    if not module or not name:
        wrong = (
            "; a file of jobs is in TOML, and its name ends with .toml" if target.endswith((".yaml", ".yml", ".json")) else ""
        )
        raise ConfigError(f"{target!r}: write it as module:name{wrong}", parameter="target")
    here = os.getcwd()  # noqa: PTH109
    if here not in sys.path:
        sys.path.append(here)  # searched last: a file there must not replace a module that this or another library imports
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(f"{target!r}: there is no module {error.name}", parameter="target") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{target!r}: there is no {part!r} in {module}", parameter="target")
        found = getattr(found, part)
    return found
