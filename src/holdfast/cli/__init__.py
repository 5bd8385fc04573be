"""The command line: ``holdfast SUBCOMMAND ...``.

Each subcommand has a line in `COMMANDS`, and a module with two functions. ``configure(parser)`` declares its arguments and
options, and ``main(args)`` runs it and returns its exit code. The module is imported only when its subcommand is called, so
that each subcommand starts quickly. If the module sets ``TAKES_COMMAND = True``, the words of a command are not parsed. They
are in the list ``args.command``, which is None if there is no command (`holdfast.cli.parser.Parser.split`).
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from holdfast.cli import output
from holdfast.cli.parser import Parser

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "run": ("holdfast.cli.run", "run a command while holding a lock"),
    "elect": ("holdfast.cli.elect", "run a command while elected as the leader, or show who leads"),
    "schedule": ("holdfast.cli.schedule", "run jobs on a schedule, each tick once across all machines"),
    "jobs": ("holdfast.cli.jobs", "list schedules and their jobs; pause, resume or run a job"),
    "acquire": ("holdfast.cli.acquire", "acquire a lock that outlives this command; print its ticket"),
    "release": ("holdfast.cli.release", "release a lock, using the ticket that `acquire` printed"),
    "ls": ("holdfast.cli.ls", "list the held locks with their holders, times and waiters"),
    "show": ("holdfast.cli.show", "show one lock: its holder, and its waiters in order"),
    "watch": ("holdfast.cli.watch", "watch the held locks, in full screen or as a line per change"),
    "wait": ("holdfast.cli.wait", "wait until nobody holds a lock, without acquiring it"),
    "break": ("holdfast.cli.break_lock", "revoke a lock from its holder, and notify the holder"),
    "server": ("holdfast.cli.server", "show or stop this machine's own server, or run a new one"),
    "doctor": ("holdfast.cli.doctor", "check whether a server is fit for locks, and print the remedies"),
    "nodes": ("holdfast.cli.nodes", "show which servers of a Redlock vote, or declare new servers"),
    "acl": ("holdfast.cli.acl", "print an ACL rule that grants a server user the rights for locks"),
    "bench": ("holdfast.cli.bench", "measure locks on this machine, next to other lock libraries"),
    "demo": ("holdfast.cli.demo", "show what locks do, with real processes and servers"),
    "completion": ("holdfast.cli.completion", "print the script that completes words of `holdfast` in a shell"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the console script ``holdfast`` with these arguments (default: ``sys.argv``), and return its exit code."""
    if argv is None:
        gc.set_threshold(10_000)  # imports create thousands of objects, and their garbage collection takes 4 % of the start
    arguments = list(sys.argv[1:] if argv is None else argv)
    _set_up_standard_streams()
    try:
        code = _call(arguments[0], arguments[1:]) if arguments and arguments[0] in COMMANDS else _top(arguments)
        output.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of the output has closed it, as head does
        _discard_output()
        return 128 + signal.SIGPIPE
    except Exception as error:  # noqa: BLE001 (the last resort; anything in the message might be a secret)
        return _failed(error)


def _failed(error: Exception) -> int:
    """Print an exception as one line, with file and line number if it is a defect of holdfast. Return the exit code."""
    if isinstance(error, OSError) and error.errno in output.OUTPUT_REFUSED:
        output.say(f"cannot write the output: {error.strerror}")
        _discard_output()
        return output.EX_OSERR
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):  # CPython has no type for it
        output.say("cannot start a thread: the system has no more processes for this user")
        return output.EX_OSERR
    if isinstance(error, OSError) and error.errno in output.EXHAUSTED:
        output.say(f"cannot start: the operating system refused a process, memory or a file: {error.strerror}")
        return output.EX_OSERR
    frames = error.__traceback__
    while frames and frames.tb_next:
        frames = frames.tb_next
    where = f"{frames.tb_frame.f_code.co_filename}:{frames.tb_lineno}" if frames else "?"
    why = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
    output.say(f"internal error: {type(error).__name__}{why} at {where}")
    return output.EX_SOFTWARE


def _set_up_standard_streams() -> None:
    """Open /dev/null for each closed standard stream. Otherwise a socket could get descriptor 1, and output would go to the
    server."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):  # a test may replace stdout
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 cannot show every lock name


def _discard_output() -> None:
    """Redirect stdout to /dev/null after a failed write. Otherwise Python would try to write the same output again when it
    exits."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser_of(name: str) -> tuple[ModuleType, Parser]:
    module_name, summary = COMMANDS[name]
    module = importlib.import_module(module_name)
    parser = Parser(f"holdfast {name}", f"{summary[0].upper()}{summary[1:]}.")
    module.configure(parser)
    return module, parser


def top_parser() -> Parser:
    """Return the parser of ``holdfast`` itself, whose help lists the subcommands."""
    lines = "\n".join(f"  {name:11}{summary}" for name, (_, summary) in COMMANDS.items())
    parser = Parser(
        "holdfast",
        "Distributed locks on Redis or Valkey.",
        usage="holdfast SUBCOMMAND ...",
        epilog=f"subcommands:\n{lines}\n\n`holdfast help SUBCOMMAND` shows the options of a subcommand.",
    )
    parser.add_argument("-V", "--version", action="store_true", help="show the version and exit")
    return parser


def _call(name: str, arguments: list[str]) -> int:
    module, parser = parser_of(name)
    command: list[str] | None = None
    if getattr(module, "TAKES_COMMAND", False):
        arguments, command = parser.split(arguments)
    else:
        parser.check_options(arguments)
    args = parser.parse_args(arguments)
    args.command = command
    args.parser = parser  # the subcommand reports usage errors that argparse cannot find
    code: int = module.main(args)
    return code


def _top(arguments: list[str]) -> int:
    """Print help, the version or an error, for a command line that does not begin with a subcommand."""
    parser = top_parser()
    if not arguments:
        parser.print_help(sys.stderr)
        return output.EX_USAGE  # nothing was done, and a script with an empty variable must not go on as if it was
    first, *rest = arguments
    if first in {"help", "-h", "--help"}:
        if not rest:
            parser.print_help()
            return 0
        if rest[0] in COMMANDS:
            return _call(rest[0], ["--help"])
        first = rest[0]
    elif first in {"-V", "--version"}:
        from holdfast import __version__

        print(f"holdfast {__version__}")
        return 0
    elif first.startswith("-"):
        if subcommand := next((word for word in rest if word in COMMANDS), None):
            parser.error(f"options stand after the subcommand: holdfast {subcommand} {first} ...")
        if first in parser_of("run")[1].known:
            parser.error(f"a subcommand stands first: holdfast run {first} ...")
        parser.check_options([first])
    from holdfast.cli import hints

    hint = hints.for_subcommand(first, COMMANDS)
    if not hint and rest and first is arguments[0]:
        hint = "; to run a command under a lock: holdfast run NAME COMMAND"
    return parser.error(f"no such subcommand: {first}{hint}")
