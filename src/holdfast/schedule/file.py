"""Read a schedule from a TOML file into a `ScheduleFile`. All mistakes are reported at once, with the file and the key.

The table ``[schedule]`` has options of `Schedule`. Each table ``[jobs.NAME]`` has ``cron`` or ``every`` (when the job runs),
``command`` or ``python`` (what it runs), and options of the job. Durations are numbers of seconds, or text such as ``"500ms"``,
``"30s"``, ``"5m"``, ``"2h"``, ``"1d"``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from holdfast._api.foreign_words import hint_for
from holdfast._api.functions import is_async, refuse_generator
from holdfast._core.names import encoded
from holdfast._durations import parsed
from holdfast.errors import ConfigError
from holdfast.schedule.command import Command
from holdfast.schedule.definition import checked
from holdfast.schedule.schedule import IDLE, Options
from holdfast.schedule.timetable import Cron, Every, Timetable

_TIMES = {"ttl", "min_runtime", "grace", "max_runtime", "jitter", "kill_after", "every"}
_OPTIONS = {field.name for field in dataclasses.fields(Options)}
_OF_COMMANDS = {"shell", "env", "directory", "kill_after", "pass_url"}
_OF_JOBS = _OPTIONS | _OF_COMMANDS | {"cron", "every", "tz", "jitter", "command", "python"}
_OF_SCHEDULE = {"name", "features", "concurrency", "tz", "prefix", "strict"}
KEYS = _OF_JOBS | _OF_SCHEDULE
"""All keys of the tables ``[schedule]`` and ``[jobs.NAME]``."""

_CRONTAB = re.compile(r"^[ \t]*(@[a-z]+|[\d*][\d*/,-]*([ \t]+[\w*/,-]+){4})[ \t]+\S", re.MULTILINE)
_SYNOPSIS = "`holdfast schedule --help` has an example"


@dataclasses.dataclass
class Planned:
    """A job in a schedule file: its name, timetable, command or function, and options."""

    name: str
    when: Timetable
    what: Command | Callable[..., Any]
    options: dict[str, Any]


@dataclasses.dataclass
class ScheduleFile:
    """The contents of a schedule file."""

    name: str = ""
    """Name of the schedule; empty if the file has none."""
    features: list[str] = dataclasses.field(default_factory=list)
    concurrency: int | None = None
    jobs: list[Planned] = dataclasses.field(default_factory=list)
    prefix: str | None = None
    strict: bool = False


def read(path: str, name: str | None = None) -> ScheduleFile:
    """Read a schedule file.

    ``name``: replaces the name of the schedule in the file. Raises one ConfigError with a line for each mistake; the line names
    file and key. The error's ``parameter`` is that of the first mistake.
    """
    table = _Table(path, "", _document(path), {"schedule", "jobs"}, _Mistakes())
    about = table.table("schedule", _OF_SCHEDULE)
    with table.mistakes.kept(path):
        name = name or about.get("name", str, "")
        if not name:
            how = 'write name = "..." under [schedule], or pass --name; all processes that use the same name share its jobs'
            raise about.wrong("name", f"the schedule needs a name: {how}")
    plan = ScheduleFile(
        name or "", concurrency=about.setting("concurrency", int, None), prefix=about.setting("prefix", str, None)
    )
    plan.strict = about.setting("strict", bool, False)
    with table.mistakes.kept(path):
        plan.features = about.texts("features")
    tz = about.setting("tz", str, "UTC")
    jobs = table.table("jobs", None)
    plan.jobs = [job for key in jobs.values if (job := _job(jobs, key, tz)) is not None]
    if not table.values.get("jobs"):
        how = f"add [jobs.NAME], with command= and every= or cron=; {_SYNOPSIS}"
        table.mistakes.append(ConfigError(f"{path}: there is no job in the file: {how}", parameter="file"))
    if table.mistakes:
        raise ConfigError("\n".join(map(str, table.mistakes)), parameter=table.mistakes[0].parameter)
    return plan


def _document(path: str) -> dict[str, Any]:
    """Return the contents of the file. Raises ConfigError if it cannot be read, or is not in TOML."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", parameter="file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: {error}", parameter="file") from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}{of_crontab(text)}", parameter="file") from error


def of_crontab(text: str) -> str:
    """Return the advice that is appended to an error if ``text`` looks like a crontab; otherwise an empty text."""
    return f"; this looks like a crontab: write each line as a table [jobs.NAME]; {_SYNOPSIS}" if _CRONTAB.search(text) else ""


class _Mistakes(list[ConfigError]):
    """The mistakes found in the file so far."""

    @contextlib.contextmanager
    def kept(self, where: str) -> Iterator[None]:
        """Add a ConfigError of the ``with`` block to this list. If its text does not name the file, put ``where`` before it."""
        try:
            yield
        except ConfigError as error:
            named = str(error).startswith(where.partition(": ")[0])
            self.append(error if named else ConfigError(f"{where}: {error}", parameter=error.parameter))


class _Table:
    """A table of the TOML file, with its name for error messages. Unknown keys are mistakes."""

    def __init__(self, path: str, name: str, values: dict[str, Any], known: set[str] | None, mistakes: _Mistakes) -> None:
        self.path, self.name, self.values, self.mistakes = path, name, values, mistakes
        for key in values:
            if known is not None and key not in known:
                meant = hint_for(key, "schedule file") or f"known keys: {', '.join(sorted(known))}"
                mistakes.append(self.wrong(key, f"there is no such key; {meant}"))

    def wrong(self, key: str, why: str) -> ConfigError:
        """Return a ConfigError that names the file and the key; ``why`` is the reason."""
        return ConfigError(f"{self.path}: {'.'.join(filter(None, (self.name, key)))}: {why}", parameter=key)

    def table(self, key: str, known: set[str] | None) -> _Table:
        """Return a table inside this one; empty if it is missing or not a table. ``known``: the keys it may have; None: any."""
        found = self.setting(key, dict, {})
        return _Table(self.path, ".".join(filter(None, (self.name, key))), found, known, self.mistakes)

    def setting(self, key: str, kind: type, default: Any) -> Any:
        """Return the value of a key as `get` does. A value of another type is a mistake, and ``default`` is returned."""
        with self.mistakes.kept(self.path):
            return self.get(key, kind, default)
        return default

    def get(self, key: str, kind: type, default: Any) -> Any:
        value = self.values.get(key, default)
        if key in self.values and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            if isinstance(value, list) and not self.name:
                raise self.wrong(key, "write [schedule]" if key == "schedule" else "write a table [jobs.NAME] for each job")
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


def _job(jobs: _Table, name: str, tz: str) -> Planned | None:
    """Return the job in the table of this name; None if it has mistakes."""
    mistakes = jobs.mistakes
    before = len(mistakes)
    table = jobs.table(name, _OF_JOBS)
    if not isinstance(jobs.values[name], dict):
        return None
    where = f"{table.path}: {table.name}"
    options: dict[str, Any] = {}
    for key in table.values:
        if key in _OPTIONS:
            with mistakes.kept(where):
                options[key] = table.option(key)
                checked(name, {key: options[key]})
    with mistakes.kept(where):
        encoded(name, "name of a job")
    with mistakes.kept(where):
        when = _when(table, name, tz)
    with mistakes.kept(where):
        what = _what(table)
    return None if len(mistakes) > before else Planned(name, when, what, options)


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
            if not callable(found):
                raise table.wrong("python", f"{table.values['python']!r} is not a function")
            refuse_generator(found, IDLE)
        except ConfigError as error:
            raise table.wrong("python", str(error)) from error
        if is_async(found):
            how = "add it to a holdfast.aio.Schedule, and pass the import path of that schedule"
            raise table.wrong("python", f"must be a plain function, not a coroutine function: {how}")
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
        raise ConfigError(f"{target!r}: write it as module:name", parameter="target")
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
