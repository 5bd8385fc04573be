"""``holdfast schedule FILE.toml`` or ``MODULE:object``: run the jobs of a schedule, shared with all processes that serve it."""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import logging
import os
import traceback
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import holdfast
from holdfast._clock import clock, wall
from holdfast.cli import output, servers, tables
from holdfast.cli.durations import duration, moment
from holdfast.cli.servers import LONGEST
from holdfast.errors import ConfigError, HoldfastWarning, ServerError
from holdfast.schedule.command import Command, JobFailed
from holdfast.schedule.engine import takes_run
from holdfast.schedule.origin import RUNS
from holdfast.schedule.run import Cancelled

if TYPE_CHECKING:
    from holdfast.schedule import Run, Schedule, Timetable
    from holdfast.schedule.schedule import BaseSchedule

_EPILOG = """\
Example of a file, jobs.toml:

  [schedule]
  name = "ops"
  tz = "Europe/Berlin"

  [jobs.backup]
  cron = "0 3 * * *"
  command = ["./backup.sh", "--full"]
  max_runtime = "2h"

  [jobs.clean-up]
  every = "5m"
  command = "rm -f /tmp/shop-*"
  shell = true

Durations are seconds, or "500ms", "30s", "5m", "2h", "1d".
A job has cron (with tz) or every, and jitter. It has command (with shell, env,
directory, kill_after, pass_url), or python = "module:function". It may have
ttl, max_runtime, min_runtime, overlap, misfire, grace, on_crash, on, history.
[schedule] may also have features, concurrency, prefix, strict.

Run it on as many machines as you like: each tick of a job runs once, on one of
them. After SIGTERM, SIGINT or SIGHUP no new run begins; running jobs may finish
within --finish-within and are ended then, or at a second SIGTERM or SIGINT."""


_OURS = os.path.dirname(holdfast.__file__)  # noqa: PTH120


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "holdfast schedule [options] FILE.toml|MODULE:object"
    parser.epilog = _EPILOG
    add = parser.add_argument
    add(
        "target",
        metavar="TARGET",
        help="TOML file with jobs, or the import path of a\nholdfast.Schedule or holdfast.aio.Schedule",
    )
    servers.add_options(parser, several=False)
    add("--name", help="name of the schedule (default: the file's); processes\nwith the same name share its jobs")
    add("--strict", action="store_true", help="do not start if another program serves a job of the\nsame name")
    add("--prefix", help="start of all keys on the server (default: the file's,\nor hf:)")
    add("--feature", action="append", default=[], help="also serve jobs with on = FEATURE; may be repeated")
    add(
        "--finish-within",
        metavar="TIME",
        type=duration,
        default=10.0,
        help="time for running jobs to finish when stopping\n(default: 10)",
    )
    add(
        "--check",
        action="store_true",
        help="print when each job is due next, by the clock of this\nmachine, and exit without asking a server",
    )
    servers.add_loudness(parser, "also print the output of the commands", "print errors only")
    add(
        "--json",
        action="store_true",
        help="print a line of JSON when a run begins and ends; with\n--check, print the jobs as JSON",
    )


def main(args: argparse.Namespace) -> int:
    warnings.simplefilter("ignore")
    warnings.simplefilter("once", HoldfastWarning)
    warnings.showwarning = lambda message, *_, **__: output.say(str(message))
    try:
        schedule = _of_file(args) if args.target.endswith(".toml") else _of_module(args)
        return _check(schedule, args) if args.check else _serve(schedule, args)
    except ConfigError as error:
        for mistake in str(error).splitlines():
            output.say(f"schedule: {mistake}")
        return output.EX_USAGE
    except ServerError as error:
        return output.failed("schedule", error)


def _of_file(args: argparse.Namespace) -> Schedule:
    from holdfast.schedule import Schedule
    from holdfast.schedule.file import read

    plan = read(args.target, args.name)
    url = "redis://nobody.is.asked" if args.check else servers.one(args)
    given = {"concurrency": plan.concurrency, "prefix": plan.prefix if args.prefix is None else args.prefix}
    options: dict[str, Any] = {option: value for option, value in given.items() if value is not None}
    strict = args.strict or plan.strict
    schedule = Schedule(url, plan.name, features=[*plan.features, *args.feature], strict=strict, **options)
    for job in plan.jobs:
        if isinstance(job.what, Command) and args.verbose:
            job.what.echo = functools.partial(_echo, job.name)
        what = job.what if args.quiet and not args.json else told(job.name, job.what, as_json=args.json)
        schedule.add(what, job.when, name=job.name, **job.options)
    return schedule


def _of_module(args: argparse.Namespace) -> BaseSchedule[Any]:
    from holdfast.schedule.file import imported, of_crontab
    from holdfast.schedule.schedule import BaseSchedule

    for option in ("url", "url_file", "local", "name", "strict", "feature", "prefix"):
        if getattr(args, option) not in (None, False, []):
            args.parser.error(f"--{option.replace('_', '-')} is for TOML files: set it on the Schedule object in the module")
    if os.path.isfile(args.target):  # noqa: PTH113
        raise ConfigError(f"{args.target}: {_not_toml(args.target)}", parameter="target")
    if ":" not in args.target:
        hint = of_crontab(args.target) or "; a file of jobs is in TOML, and its name ends with .toml"
        raise ConfigError(f"{args.target!r} is neither a FILE.toml nor a MODULE:object{hint}", parameter="target")
    found = imported(args.target)
    if not isinstance(found, BaseSchedule):
        raise ConfigError(f"{args.target!r} is a {type(found).__name__}, not a holdfast.Schedule", parameter="target")
    return found


def _not_toml(path: str) -> str:
    """Return the error text for a path that does not end with .toml."""
    from holdfast.schedule.file import of_crontab

    if path.endswith(".py"):
        module = os.path.basename(path).removesuffix(".py")  # noqa: PTH119
        return f"name the schedule in the module, as in {module}:schedule"
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 (pathlib imports slowly)
            text = file.read(LONGEST)
    except OSError as error:
        return str(error.strerror)
    return f"a file of jobs is in TOML, and its name ends with .toml{of_crontab(text)}"


def _check(schedule: BaseSchedule[Any], args: argparse.Namespace) -> int:
    now = wall()
    found = [(job.name, str(job.when), _due(job.when, now)) for job in schedule.jobs]
    if args.json:
        print(output.clean(json.dumps([{"job": name, "when": when, "due": due} for name, when, due in found])))
        return 0
    rows = [(name, when, ", ".join(moment(t) for t in due) or "never") for name, when, due in found]
    tables.show([("job", "when", "due next (UTC)"), *rows])
    return 0


def _due(when: Timetable, t: float, count: int = 3) -> list[float]:
    """Return the next ``count`` ticks after ``t``, in seconds since 1970; fewer if the timetable ends."""
    found: list[float] = []
    while len(found) < count and (t := when.after(t)) < float("inf"):
        found.append(t)
    return found


def _echo(name: str, line: str) -> None:
    print(output.clean(f"{name}: {line}") + "\n", end="", flush=True)  # one write, because each job prints from its own thread


def told(name: str, function: Callable[..., Any], *, as_json: bool = False) -> Callable[..., Any]:
    """Wrap the function of a job, so that each run prints its start and its end on stderr, or as JSON on stdout."""
    given = takes_run(function)

    def tell(text: str, run: Run, facts: dict[str, Any]) -> None:
        if as_json:
            about = {"job": name, "tick": run.scheduled, "attempt": run.attempt, "fence": run.fence}
            os.write(1, f"{output.clean(json.dumps({**about, **facts}))}\n".encode())  # one write, because jobs run in threads
        else:
            output.say(f"{name}: {text}")

    def begin(run: Run) -> float:
        again = f", attempt {run.attempt}" if run.attempt > 1 else ""
        tell(f"started, tick {moment(run.scheduled)}{again}, fence {run.fence}", run, {"event": "started"})
        return clock()

    def end(run: Run, started: float, error: BaseException | None = None) -> None:
        how = ""
        if error is not None:
            said = str(error) if isinstance(error, JobFailed | Cancelled) else f"{type(error).__name__}: {error}"
            how = output.one_line(said)
        took = clock() - started
        facts = {"event": "ended", "error": how or None, "seconds": round(took, 3)}
        tell(f"{how or 'done'}, after {took:.1f} s", run, facts)

    def told_function(run: Run) -> Any:
        started = begin(run)
        try:
            result = function(run=run) if given else function()
        except BaseException as error:
            end(run, started, error)
            raise
        end(run, started)
        return result

    setattr(told_function, RUNS, function)
    return told_function


def _serve(schedule: BaseSchedule[Any], args: argparse.Namespace) -> int:
    from holdfast.schedule.schedule import AioSchedule, Schedule

    logging.getLogger("holdfast").addHandler(_Lines(logging.WARNING))
    if not args.quiet:
        output.say(f"schedule {schedule.name!r}: {len(schedule.jobs)} jobs")
    if isinstance(schedule, Schedule):
        schedule.run(args.finish_within)
    elif isinstance(schedule, AioSchedule):
        asyncio.run(schedule.run(args.finish_within))
    if not args.quiet:
        output.say(f"schedule {schedule.name!r}: stopped")
    return 0


class _Lines(logging.Handler):
    """A log handler that prints warnings of holdfast, and tracebacks of failed job functions, on stderr.

    It does not print failures of commands, because the wrapper of `told` has printed them.
    """

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, JobFailed):
            return
        below: list[str] = []
        if error is not None:
            frames = error.__traceback__
            while frames and frames.tb_next and frames.tb_frame.f_code.co_filename.startswith(_OURS):
                frames = frames.tb_next
            below = "".join(traceback.format_exception(type(error), error, frames)).splitlines()
        output.say(record.getMessage(), *below)
