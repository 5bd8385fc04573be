"""``holdfast jobs``: list schedules or the jobs of one; pause, resume, run, cancel or remove a job."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from holdfast._api.flow import complete
from holdfast.cli import output, servers, tables
from holdfast.cli.durations import moment
from holdfast.errors import ConfigError, ServerError

if TYPE_CHECKING:
    from holdfast.schedule.schedule import JobStatus, Overview, Record, Schedule

_COLUMNS = ("job", "when", "next (UTC)", "last tick (UTC)", "took", "result", "on", "now")
_HISTORY = ("tick (UTC)", "status", "took", "on", "attempt", "fence", "text")
_ORDERS = {
    "pause": ("pause", "paused"),
    "resume": ("resume", "resumed"),
    "run": ("run_now", "will run now"),
    "cancel": ("cancel", "its runs were told to end"),
    "remove": ("remove", "removed"),
}
"""For each action of the command line, the method of `Schedule` to call, and the text printed after the job's name."""

_ACTIONS = """\
action on a job; if omitted, list all jobs
history  show its last runs
pause    start no more runs, until resume
resume   start runs again
run      run it now, whether it is due or not
cancel   tell its runs to end
remove   delete it from the server"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "holdfast jobs [options] [--schedule NAME [ACTION JOB]]"
    parser.add_argument("action", nargs="?", choices=("history", *_ORDERS), metavar="ACTION", help=_ACTIONS)
    parser.add_argument("job", nargs="?", metavar="JOB", help="name of the job for the action")
    parser.add_argument("--schedule", metavar="NAME", help="name of the schedule; if omitted, list the schedules")
    parser.add_argument("--prefix", default="hf:", help="start of the schedule's keys (default: hf:)")
    parser.add_argument("--last", metavar="N", type=int, default=20, help="show the last N runs, for history (default: 20)")
    servers.add_options(parser, several=False)
    servers.add_loudness(parser)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def main(args: argparse.Namespace) -> int:
    if args.action and not args.job:
        args.parser.error(f"{args.action}: pass the name of a job after the action")
    if args.action and args.schedule is None:
        args.parser.error("--schedule NAME is missing: `holdfast jobs` lists the schedules")
    url = servers.one(args)
    try:
        if args.schedule is None:
            return _list_schedules(url, args)
        from holdfast.schedule.schedule import Schedule

        return _act(Schedule(url, args.schedule, prefix=args.prefix), args)
    except (ConfigError, ServerError) as error:
        return output.failed("jobs", error)


def _act(schedule: Schedule, args: argparse.Namespace) -> int:
    if args.action == "history":
        found = schedule.history(args.job, args.last)
        _show([dataclasses.asdict(record) for record in found], (_HISTORY, [_entry(record) for record in found]), args)
    elif args.action:
        method, done = _ORDERS[args.action]
        getattr(schedule, method)(args.job)
        print(output.clean(json.dumps({"job": args.job, "done": args.action}) if args.json else f"{args.job}: {done}"))
    else:
        _list(complete(schedule._overview()), args)  # noqa: SLF001 - jobs and processes by one request
    return 0


def _list_schedules(url: str, args: argparse.Namespace) -> int:
    from holdfast._api.inspector import Inspector

    found = complete(Inspector(url, prefix=args.prefix)._schedules())  # noqa: SLF001 - no one else needs it yet
    if args.json:
        print(output.clean(json.dumps({"schedules": found})))
    elif found:
        tables.show([("schedule",), *((name,) for name in found)])
    if not args.quiet and not args.json:
        known = "to list the jobs of a schedule, pass --schedule NAME"
        output.say(known if found else "no schedules; the server knows a schedule once a process has served it")
    return 0


def _list(found: Overview, args: argparse.Namespace) -> None:
    """Print all jobs of the schedule, and the processes that serve it. Raises ConfigError if there is no such schedule."""
    if not found.exists:
        where = f" with prefix {args.prefix!r}" if args.prefix != "hf:" else ""
        how = "check --schedule, --prefix and the URL; the server knows a schedule once a process has served it"
        raise ConfigError(f"there is no schedule {args.schedule!r}{where} on this server: {how}", parameter="schedule")
    if args.json:
        runners = [dataclasses.asdict(runner) for runner in found.runners]
        facts = {"schedule": args.schedule, "runners": runners, "jobs": [_facts(job) for job in found.jobs]}
        print(output.clean(json.dumps(facts)))
        return
    _show([], (_COLUMNS, [_row(job, bool(found.runners)) for job in found.jobs]), args)
    for runner in found.runners:
        print(output.clean(f"served by {runner.host} since {moment(runner.since)}"))
    if not found.runners:
        print(output.clean(f"no process serves schedule {args.schedule!r}, so its jobs do not run"))


def _show(facts: list[dict[str, Any]], table: tuple[tuple[str, ...], list[tuple[str, ...]]], args: argparse.Namespace) -> None:
    head, rows = table
    if args.json:
        print(output.clean(json.dumps(facts)))
    elif rows:
        tables.show([head, *rows])
    else:
        print(output.clean(f"there are no {'runs of the job' if args.action else 'jobs'} in schedule {args.schedule!r}"))


def _facts(job: JobStatus) -> dict[str, Any]:
    return {**dataclasses.asdict(job), "last": job.last and {**dataclasses.asdict(job.last), "duration": job.last.duration}}


def _row(job: JobStatus, others: bool) -> tuple[str, ...]:
    now = [f"since {moment(run.started)} on {run.host}" for run in job.running]
    now += [f"{job.queued} waiting"] * bool(job.queued) + ["paused"] * job.paused
    now += ["no process serves it"] * (others and not job.served)
    last = job.last
    about = (moment(last.scheduled), _took(last), _short(last), last.host or "-") if last else ("-",) * 4
    return (job.name, job.when, "-" if job.next is None else moment(job.next), *about, ", ".join(now) or "-")


def _entry(record: Record) -> tuple[str, ...]:
    tick = moment(record.scheduled) + (f" and {record.count - 1} more" if record.count > 1 else "")
    text = _line(record.error or record.result)
    return (tick, record.status, _took(record), record.host or "-", str(record.attempt), str(record.fence or "-"), text)


def _took(record: Record) -> str:
    return f"{record.duration:.1f} s" if record.ended else "-"


def _short(record: Record) -> str:
    text = _line(record.error) if record.status != "ok" else ""
    return f"{record.status}: {text}" if text else record.status


def _line(text: str, longest: int = 60) -> str:
    line = output.one_line(text)
    return line if len(line) <= longest else line[: longest - 1] + "…"
