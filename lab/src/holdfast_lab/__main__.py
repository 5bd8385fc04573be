"""``python -m holdfast_lab``: run the simulator from the command line.

``swarm``    simulate random histories, from many seeds and with faults, on all cores
``explore``  try every schedule (order of events and faults) of a small scenario
``replay``   draw the history of one seed, or of one schedule, as a timeline
``check``    judge histories that live processes have recorded
"""

from __future__ import annotations

import argparse
import sys
import time

OK, VIOLATED, INVALID = 0, 1, 2
"""Exit codes: no violation; a violation; too little happened for a verdict, or the command line was wrong."""

KINDS = {
    "quorum": "simulate a lock on several servers",
    "multilock": "simulate clients that acquire several locks at once",
    "permit": "simulate semaphores and read-write locks",
    "election": "simulate elections and their observers",
    "ticket": "simulate locks that are handed over by tickets",
    "break_lock": "simulate locks that an operator breaks",
    "rendezvous": "simulate barriers, latches and events",
    "single_flight": "simulate loads of a cached value",
    "schedule": "simulate jobs that run once per tick",
    "wired": "run the real drivers over scripted sockets",
}
"""Options of ``swarm``, each with its help text. Without any option, the histories are about a plain lock on one server."""


def main() -> int:
    """Run the subcommand that the command line names, and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m holdfast_lab",
        description="The simulator of holdfast: it runs the locks under virtual time, with all kinds of faults.",
        epilog="Exit codes: 0 no violation, 1 a rule is violated, 2 too little happened for a verdict, or bad usage.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    parser_swarm = commands.add_parser("swarm", help="simulate random histories from many seeds")
    parser_swarm.add_argument("--seconds", type=float, metavar="SECONDS", help="stop after this many seconds")
    parser_swarm.add_argument("--histories", type=int, metavar="N", help="stop after N histories")
    parser_swarm.add_argument("--from", type=int, default=0, dest="first", metavar="SEED", help="first seed (default: 0)")
    parser_swarm.add_argument("--jobs", type=int, metavar="N", help="number of processes (default: one per core)")
    kind = parser_swarm.add_mutually_exclusive_group()
    for of, about in KINDS.items():
        kind.add_argument(f"--{of.replace('_', '-')}", dest="of", action="store_const", const=of, help=about)
    parser_swarm.add_argument("--theme", metavar="THEME", help="add this rare fault to each history; ? lists all faults")
    parser_swarm.set_defaults(run=_swarm, of="lock")

    parser_explore = commands.add_parser("explore", help="try every schedule of a small scenario")
    parser_explore.add_argument("scenario", nargs="*", metavar="SCENARIO", help="name, or `all`; without a name, list all")
    parser_explore.add_argument("--most", type=int, default=1_000_000, metavar="N", help="stop after N schedules")
    parser_explore.set_defaults(run=_explore)

    parser_replay = commands.add_parser("replay", help="draw the history of a seed or schedule as a timeline")
    parser_replay.add_argument(
        "which", metavar="SEED|SCENARIO:CHOICES", help="seed or schedule: 17, quorum:17, election+jumping:17, two-crash:0.0.3.1"
    )
    parser_replay.add_argument("--requests", action="store_true", help="also show each request")
    parser_replay.set_defaults(run=_replay)

    parser_check = commands.add_parser("check", help="judge recorded histories")
    parser_check.add_argument("file", nargs="+", help="file of JSON lines, as a Recorder writes it")
    parser_check.set_defaults(run=_check)

    args = parser.parse_args()
    return int(args.run(args))


def _swarm(args: argparse.Namespace) -> int:
    from holdfast_lab.runner import RunnerTotals, run_seeds
    from holdfast_lab.sim.rare import THEMES

    if args.theme is not None:
        if args.theme not in THEMES or args.of not in THEMES[args.theme].swarms:
            for theme in THEMES.values():
                about = (theme.__doc__ or "").splitlines()[0]
                print(f"{theme.name:12} {about} In: {', '.join(theme.swarms)}.", file=sys.stderr)
            return INVALID
        args.of = f"{args.of}+{args.theme}"
    if args.seconds is None and args.histories is None:
        args.seconds = 10.0
    started = time.monotonic()

    def rate(tally: RunnerTotals) -> str:
        wall = max(1e-9, time.monotonic() - started)
        return (
            f"{tally.histories} histories ({tally.histories / wall:.0f} a second), {tally.calls} script calls "
            f"({tally.calls / wall:.0f} a second), {len(tally.failed)} with violations"
        )

    tally = run_seeds(
        first=args.first,
        histories=args.histories,
        seconds=args.seconds,
        jobs=args.jobs,
        progress=lambda tally: _progress(rate(tally)),
        of=args.of,
    )
    _progress("")
    print(rate(tally))
    print(f"seeds from {args.first}; each core {tally.histories / max(1e-9, tally.seconds):.0f} histories a second")
    print(tally.coverage if args.of in {"lock", "quorum"} else dict(tally.counts))
    print(f"judged (excused): {tally.coverage.docket}")
    prefix = "" if args.of == "lock" else f"{args.of}:"
    for seed, what in tally.failed[:20]:
        print(f"seed {seed}: {what}\n  python -m holdfast_lab replay {prefix}{seed}")
    if tally.failed:
        _show(f"{prefix}{tally.failed[0][0]}", requests=False)
    missing = tally.missing(args.of)
    if missing:
        print(f"INVALID, too little happened: {', '.join(missing)}")
    return VIOLATED if tally.failed else INVALID if missing else OK


def _explore(args: argparse.Namespace) -> int:
    from holdfast_lab.scenarios.quorum import WITHOUT_QUARANTINE
    from holdfast_lab.scenarios.table import ALL

    if not args.scenario:
        for scenario in ALL.values():
            print(f"{scenario.name:28} {scenario.about}")
        return OK
    unknown = set(args.scenario) - set(ALL) - {"all"}
    if unknown:
        print(f"no such scenario: {', '.join(sorted(unknown))}", file=sys.stderr)
        return INVALID
    verdict = OK
    for name in ALL.keys() - {WITHOUT_QUARANTINE.name} if "all" in args.scenario else args.scenario:
        started = time.monotonic()
        report = ALL[name].explore(
            most=args.most,
            progress=lambda report, name=name: _progress(f"{name}: {report.schedules} schedules"),  # type: ignore[misc]
        )
        _progress("")
        took = time.monotonic() - started
        covered = "all covered" if report.covered else "NOT all covered"
        print(f"{name:28} {report.states} states, {report.schedules} schedules, {report.steps} steps, {covered}, {took:.1f} s")
        for found in report.found:
            which = f"{name}:{'.'.join(map(str, found.choices))}"
            print(f"  {found.violations[0]}\n  python -m holdfast_lab replay {which}")
            _show(which, requests=False)
            verdict = VIOLATED
        if not report.covered and verdict == OK:
            verdict = INVALID
    return verdict


def _replay(args: argparse.Namespace) -> int:
    from holdfast_lab.scenarios.table import ALL

    name, _, choices = args.which.partition(":")
    if not _is_seed(args.which) and not (name in ALL and choices.replace(".", "0").isdigit()):
        print(
            f"{args.which!r} is neither a seed (17, quorum:17, ...) nor a scenario with choices (two-crash:0.0.3.1)",
            file=sys.stderr,
        )
        return INVALID
    return VIOLATED if _show(args.which, requests=args.requests) else OK


def _is_seed(which: str) -> bool:
    """Return True for a seed, such as ``17`` or ``quorum:17``, and False for a schedule, such as ``two-crash:0.0.3.1``."""
    from holdfast_lab.runner import swarm_of

    name, _, seed = which.partition(":")
    if not seed.isdigit():
        return which.isdigit()
    try:
        swarm_of(name)
    except KeyError:
        return False
    return True


def _show(which: str, *, requests: bool) -> bool:
    """Print the timeline of a seed or a schedule. Return True if a rule is violated."""
    from holdfast_lab import timeline
    from holdfast_lab.runner import swarm_of
    from holdfast_lab.scenarios.table import ALL

    name, _, choices = which.partition(":")
    if not _is_seed(which):
        history, violations = ALL[name].replay([int(choice) for choice in choices.split(".") if choice], trace=requests)
    else:
        run = swarm_of(name if choices else "lock").simulate(int(choices or name), trace=requests)
        history, violations = run.history, run.violations
        print(f"seed {run.seed}: {run.profile}")
    print(timeline.draw(history, violations))
    return bool(violations)


def _check(args: argparse.Namespace) -> int:
    from holdfast_lab import checkers

    return checkers.main(args.file)


def _progress(text: str) -> None:
    """Overwrite the progress line on stderr, if stderr is a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
