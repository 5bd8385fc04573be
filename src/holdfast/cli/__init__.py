"""The command line: ``holdfast SUBCOMMAND ...``.

A subcommand is a line in `COMMANDS` and a module with ``configure(parser)`` and ``main(args) -> exit code``. The module
is imported only when its subcommand is called: a lock before every cron job has to start quickly. If the module says
``TAKES_COMMAND = True``, what follows the first ``--`` is not parsed but handed over as ``args.command``: a list, or
None without ``--``.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from holdfast.cli import output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import SupportsWrite

COMMANDS = {
    "run": ("holdfast.cli.run", "run a command under a lock"),
    "elect": ("holdfast.cli.elect", "run a command while elected as the leader, or show who leads"),
    "schedule": ("holdfast.cli.schedule", "run commands or functions on time, each tick once on all machines together"),
    "jobs": ("holdfast.cli.jobs", "list scheduled jobs with their runs and results; pause, resume or run them"),
    "acquire": ("holdfast.cli.acquire", "take a lock for the steps that follow, as in CI; prints a ticket"),
    "release": ("holdfast.cli.release", "release a lock, with the ticket that acquire has printed"),
    "ls": ("holdfast.cli.ls", "list the locks that are held: by whom, for how long, and how many wait"),
    "show": ("holdfast.cli.show", "show one lock: its holder, and its waiters in order"),
    "watch": ("holdfast.cli.watch", "follow changes of locks, in full screen or as lines"),
    "wait": ("holdfast.cli.wait", "wait until nobody holds a lock, without acquiring it"),
    "break": ("holdfast.cli.break_lock", "take a lock away from its holder, and notify the holder"),
    "server": ("holdfast.cli.server", "manage this machine's own server: status, stop, or run one in the foreground"),
    "doctor": ("holdfast.cli.doctor", "check whether a server is fit for locks, and print the remedies"),
    "nodes": ("holdfast.cli.nodes", "show which of the servers that hold locks together vote; init declares new ones"),
    "acl": ("holdfast.cli.acl", "print the server rights that locks need, as a line for its access control"),
    "bench": ("holdfast.cli.bench", "measure locks here, against the bare server and other lock libraries"),
    "demo": ("holdfast.cli.demo", "see what locks do, on servers of their own, in 20 seconds each"),
}


class Parser(argparse.ArgumentParser):
    """argparse with the exit code of sysexits.h for bad usage, one line of error, and no abbreviated options."""

    def __init__(self, prog: str, description: str, usage: str | None = None, epilog: str | None = None) -> None:
        # Asked for its own width, argparse imports shutil with all compression formats, at the first option it is told of.
        formatter = functools.partial(argparse.RawTextHelpFormatter, width=78)
        super().__init__(prog, usage, description, epilog, formatter_class=formatter, allow_abbrev=False)

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Write it out at once. argparse itself keeps quiet where that fails, and exits with 0."""
        print(self.format_help(), end="", file=file)
        output.flush()

    def error(self, message: str) -> NoReturn:
        """Say it in one line, exit 64."""
        output.say(f"{message} (see {self.prog} --help)")
        sys.exit(output.EX_USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """The console script; returns the exit code."""
    if argv is None:
        gc.set_threshold(10_000)  # imports make thousands of objects that stay: collecting meanwhile costs 4 % of the start
    arguments = list(sys.argv[1:] if argv is None else argv)
    _set_up_standard_streams()
    try:
        code = _call(arguments[0], arguments[1:]) if arguments and arguments[0] in COMMANDS else _top(arguments)
        output.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever reads has seen enough
        _discard_output()
        return 128 + signal.SIGPIPE
    except Exception as error:  # noqa: BLE001 (the last resort; anything in the message might be a secret)
        return _failed(error)


def _failed(error: Exception) -> int:
    """Say what failed, and where if it is a defect of ours; the exit code."""
    if isinstance(error, OSError) and error.errno in output.OUTPUT_REFUSED:
        output.say(f"cannot write the output: {error.strerror}")
        _discard_output()
        return output.EX_OSERR
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):  # CPython has no type for it
        output.say("cannot start a thread: the system has no more processes for this user")
        return output.EX_OSERR
    if isinstance(error, OSError) and error.errno in output.EXHAUSTED:
        output.say(f"the operating system refused what is needed to start: {error.strerror}")
        return output.EX_OSERR
    frames = error.__traceback__
    while frames and frames.tb_next:
        frames = frames.tb_next
    where = f"{frames.tb_frame.f_code.co_filename}:{frames.tb_lineno}" if frames else "?"
    why = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
    output.say(f"internal error: {type(error).__name__}{why} at {where}")
    return output.EX_SOFTWARE


def _set_up_standard_streams() -> None:
    """Were we started with one of them closed, the next socket would take its place, and get what is printed."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):  # not so where a test reads it
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 can show less than a name may have


def _discard_output() -> None:
    """The rest of the output cannot be written, and Python would try once more at its end."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _call(name: str, arguments: list[str]) -> int:
    module_name, summary = COMMANDS[name]
    module = importlib.import_module(module_name)
    command: list[str] | None = None
    if getattr(module, "TAKES_COMMAND", False) and "--" in arguments:
        at = arguments.index("--")
        arguments, command = arguments[:at], arguments[at + 1 :]
    parser = Parser(f"holdfast {name}", f"{summary[0].upper()}{summary[1:]}.")
    module.configure(parser)
    args = parser.parse_args(arguments)
    args.command = command
    args.parser = parser  # for what only the subcommand can find wrong
    code: int = module.main(args)
    return code


def _top(arguments: list[str]) -> int:
    lines = "\n".join(f"  {name:8} {summary}" for name, (_, summary) in COMMANDS.items())
    parser = Parser(
        "holdfast",
        "Distributed locks on Redis or Valkey.",
        usage="holdfast SUBCOMMAND ...",
        epilog=f"subcommands:\n{lines}\n\nholdfast SUBCOMMAND --help tells more.",
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    args, rest = parser.parse_known_args(arguments)
    if args.version:
        from holdfast import __version__

        sys.stdout.write(f"holdfast {__version__}\n")
        return 0
    return parser.error(f"no such subcommand: {rest[0]}" if rest else "which subcommand? " + ", ".join(COMMANDS))
