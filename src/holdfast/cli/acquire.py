"""``holdfast acquire``: take a lock for what comes after this command. Prints a ticket, for ``release``."""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from typing import TYPE_CHECKING

from holdfast.cli import output, servers
from holdfast.cli.durations import duration, positive_duration
from holdfast.cli.supervise import Interrupted, Signals
from holdfast.errors import HoldfastError, LockTimeout

if TYPE_CHECKING:
    from holdfast._tickets import Ticket


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = (
        "Nothing renews it: it ends after --ttl, whatever happens. To run a command under a lock, use run.\n"
        "Exit codes: 0 taken, 75 busy, 64 bad usage, 69 no server, 71 the ticket cannot be written: it is given back."
    )
    add = parser.add_argument
    add("name", metavar="NAME", help="of the lock")
    add("--ttl", metavar="TIME", type=positive_duration, required=True, help="how long it stays taken, unless it is given back")
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument("-w", "--wait", metavar="TIME", type=duration, help="wait this long if it is busy (default: for ever)")
    waiting.add_argument("-n", "--nonblock", dest="wait", action="store_const", const=0.0, help="do not wait")
    add("--ticket-file", metavar="PATH", help="write the ticket there, for nobody else to read, and not to stdout")
    add("--label", default="acquire", help="shown to others as the holder (default: acquire)")
    servers.add_options(parser, local=True)
    add("--prefix", default="hf:", help="of the locks' keys (default: hf:)")


def main(args: argparse.Namespace) -> int:
    """Run it; returns the exit code."""
    url = servers.one(args)
    if args.ticket_file is None and sys.stdout is None:
        args.parser.error("stdout is closed: nobody would have the ticket; give --ticket-file")
    try:
        out = _open(args.ticket_file) if args.ticket_file is not None else 1
    except OSError as error:
        output.say(f"acquire: {args.ticket_file}: {error.strerror}")
        return output.EX_USAGE
    try:
        from holdfast.locks import FairLock

        signals = Signals()
        signals.start_raising()
        with FairLock(url, args.name, wait=args.wait, label=args.label, prefix=args.prefix) as lease:
            signals.raising = False  # a ticket that is made is handed out, or nobody could give the lock back
            ticket = lease.ticket(args.ttl)
    except Interrupted as interrupt:
        return 128 + interrupt.signum
    except LockTimeout as error:
        output.say(f"acquire: {error}")
        return output.EX_TEMPFAIL
    except HoldfastError as error:
        return output.failed("acquire", error)
    return _hand_out(url, ticket, out, args.ttl)


def _hand_out(url: str, ticket: Ticket, out: int, ttl: float) -> int:
    try:
        os.write(out, f"{ticket.reveal()}\n".encode())
        if out != 1:
            os.close(out)
    except OSError as error:
        from holdfast.tickets import redeem

        with redeem(url, ticket):  # nobody has it
            output.say(f"acquire: the ticket cannot be written: {error.strerror}")
        return output.EX_OSERR
    _leave_word(url, ttl)
    return 0


def _open(path: str) -> int:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    if stat.S_ISREG(os.fstat(file).st_mode):  # no device, or pipe
        os.fchmod(file, 0o600)  # it may have been there before
    return file


def _leave_word(url: str, ttl: float) -> None:
    """Who took it, for others to see: this process ends, and would take that with it."""
    from holdfast import close
    from holdfast._caller import Caller
    from holdfast._core.attempt import milliseconds
    from holdfast._core.names import record_key
    from holdfast._core.requests import Command, WireError
    from holdfast._drive.process import current

    process = current()
    key = record_key(process.id)
    close()
    try:
        Caller(url).ask(Command(("SET", key, json.dumps(process.facts()), "PX", milliseconds(ttl)), 1.0), key.encode())
    except WireError as error:
        output.say(f"acquire: others cannot be told who has it: {error}")
