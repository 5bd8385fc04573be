"""``holdfast elect [options] NAME [-- CMD...]``: campaign in an election, and lead; with ``--observe``, print who leads.

If a command is given, it runs while this candidate leads. It has ended before another candidate can lead, unless ``--on-lost``
is ``warn``. Without a command, a line is printed whenever this candidate begins or ceases to lead.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import warnings
from typing import TYPE_CHECKING, Any

from holdfast.cli import output, run, servers
from holdfast.cli.contact import Patience
from holdfast.cli.durations import duration, positive_duration
from holdfast.cli.supervise import Interrupted, Signals
from holdfast.errors import ConfigError, HoldfastError, HoldfastWarning, LeaseLost, LockTimeout, QuorumError, ServerError

if TYPE_CHECKING:
    from holdfast._api.election import Election
    from holdfast._core.election import Elected
    from holdfast.cli.supervise import Lease

TAKES_COMMAND = True

POLL_EVERY_S = 0.5
"""Maximum seconds between two checks for signals, while this candidate leads."""

_AS_IF_NOT_GIVEN: dict[str, Any] = {
    "shell": None,
    "skip": False,
    "conflict_exit_code": output.EX_TEMPFAIL,
    "nonblock": False,
    "max_runtime": math.inf,
    "label": None,
}
"""Values of options that `run.carry_out` reads. ``holdfast elect`` calls that function, but does not have these options."""

_CODES = {LockTimeout: output.EX_TEMPFAIL, ConfigError: output.EX_USAGE, HoldfastError: output.EX_UNAVAILABLE}
_EPILOG = """\
Without a command, a line is printed when this candidate begins to lead and when
it stops; with --observe, a line for each leader. Both go on until a signal ends
them. If the leadership is lost, the command is ended and holdfast exits; start
holdfast again for a new campaign."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "holdfast elect [options] NAME [[--] COMMAND [ARGUMENT ...]]"
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("name", metavar="NAME", help="name of the election")
    add("--observe", action="store_true", help="do not campaign, but print the leader now and after\neach change")
    add("--as", dest="candidate", metavar="NAME", help="name of this candidate (default: host:pid)")
    add("--value", default="", metavar="TEXT", help="text that observers see while you lead, such as a URL")
    add("-w", "--wait", metavar="TIME", type=duration, help="campaign for at most this long (default: until elected)")
    add("--ttl", metavar="TIME", type=positive_duration, default=30.0, help="lease time, renewed while leading (default: 30)")
    run.add_options_of_the_end(parser)
    run.add_options_of_place(parser)
    add(
        "--json",
        action="store_true",
        help="print lines as JSON; with a command, print a summary in\nJSON as the last line on stderr",
    )
    parser.set_defaults(**_AS_IF_NOT_GIVEN)


def main(args: argparse.Namespace) -> int:
    if args.observe:
        given = {"a command": args.command, "--wait": args.wait, "--as": args.candidate, "--value": args.value or None}
        if vain := next((what for what, value in given.items() if value is not None), ""):
            args.parser.error(f"--observe does not campaign, so it does not take {vain}")
    if args.command is not None:
        return run.carry_out(args, LeaderRun)
    urls = servers.settled(args)
    warnings.simplefilter("ignore")
    warnings.simplefilter("ignore" if args.quiet else "once", HoldfastWarning)
    warnings.showwarning = lambda message, *_, **__: output.say(f"{args.name}: {message}")
    try:
        signals = Signals()
        signals.start_raising()
        return (_observe if args.observe else _campaign)(args, urls)
    except Interrupted as interrupt:
        return 128 + interrupt.signum
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    except HoldfastError as error:
        output.say(str(error))
        return next(code for kind, code in _CODES.items() if isinstance(error, kind))


def leader(args: argparse.Namespace, urls: list[str], wait: float | None) -> Election:
    """Return an `Election` (one candidate) with the settings of the options. ``wait``: seconds to campaign; None: no limit."""
    from holdfast._api.election import Election

    options = {name: value for name in ("prefix", "max_ttl") if (value := getattr(args, name)) is not None}
    servers = urls[0] if len(urls) == 1 else urls
    return Election(servers, args.name, candidate=args.candidate, value=args.value, ttl=args.ttl, wait=wait, **options)


class LeaderRun(run.CommandRun):
    """A run of a command while this candidate leads."""

    fences: tuple[str, ...] = ("HOLDFAST_FENCE", "HOLDFAST_TERM")

    def _acquire(self, stack: contextlib.ExitStack, wait: float | None) -> Lease:
        from holdfast._runtime.process import current

        candidate = leader(self.args, self.urls, wait)
        current().set_label(self.args.label)
        self.locks.append(candidate)
        self.signals.start_raising()
        self.detail(f"{candidate.candidate} campaigns")
        return stack.enter_context(candidate)


def _observe(args: argparse.Namespace, urls: list[str]) -> int:
    for elected in leader(args, urls, args.wait).observe():
        _print(args, _leading(elected), {"leader": elected._asdict() if elected else None})
    return 0


def _leading(elected: Elected | None) -> str:
    if elected is None:
        return "nobody leads"
    return f"{elected.name} leads, term {elected.term}" + (f", {elected.value}" if elected.value else "")


def _campaign(args: argparse.Namespace, urls: list[str]) -> int:
    """Campaign, lead until the term is lost, and campaign again, until a signal interrupts.

    Raises LockTimeout if this candidate is not elected within ``--wait``, and ServerError or QuorumError.
    """

    def tell(text: str) -> None:
        output.say(f"{args.name}: {text}")

    patience, who = Patience(args.wait, tell), leader(args, urls, args.wait).candidate
    role = "campaigns"
    try:
        _print(args, f"{who} campaigns", {"role": "candidate", "name": who})
        while True:
            candidate = leader(args, urls, patience.left())
            try:
                with candidate as term:
                    role = "leads"
                    _print(args, f"{who} leads, term {term.fence}", {"role": "leader", "name": who, "term": term.fence})
                    while not term.lost.wait(POLL_EVERY_S):
                        pass
            except LeaseLost as lost:
                role = "campaigns"
                facts = {"role": "candidate", "name": who, "lost": lost.fence, "reason": lost.reason}
                _print(args, f"{who} no longer leads: {lost.reason}; it campaigns again", facts)
                patience = Patience(args.wait, tell)
            except (ServerError, QuorumError) as error:
                if not patience.outlasts(error):
                    raise
            except Interrupted:
                if (term_left := candidate.lease) is not None:
                    with contextlib.suppress(HoldfastError):
                        term_left.release()
                raise
    except Interrupted as interrupt:
        why = signal.Signals(interrupt.signum).name
        _print(args, f"{who} no longer {role}: {why}", {"role": None, "name": who, "reason": why})
        raise


def _print(args: argparse.Namespace, text: str, facts: dict[str, Any]) -> None:
    line = output.clean(json.dumps(facts) if args.json else text)
    os.write(1, f"{line}\n".encode())  # unbuffered, so that nothing is left to write at the end if the reader has gone
