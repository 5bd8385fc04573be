"""``holdfast acquire``: acquire a lock that outlives this command, and print the ticket that ``release`` needs."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from typing import TYPE_CHECKING

from holdfast._clock import clock
from holdfast.cli import output, servers, ticket_file
from holdfast.cli.contact import Patience
from holdfast.cli.durations import duration, positive_duration
from holdfast.cli.supervise import Interrupted, Signals
from holdfast.errors import HoldfastError, LockTimeout, ServerError

if TYPE_CHECKING:
    from holdfast._api.ticket import Ticket
    from holdfast.cli.ticket_file import Stream, TicketFile


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "The lease is not renewed: it ends after --ttl. To run a command under a lock,\nuse `holdfast run`."
    add = parser.add_argument
    add("name", metavar="NAME", help="name of the lock")
    add(
        "--ttl",
        metavar="TIME",
        type=positive_duration,
        required=True,
        help="time after which the lease ends, unless released before",
    )
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument(
        "-w", "--wait", metavar="TIME", type=duration, help="wait this long for a busy lock (default: no limit)"
    )
    waiting.add_argument("-n", "--nonblock", dest="wait", action="store_const", const=0.0, help="do not wait for a busy lock")
    told = "write the ticket to this file (mode 0600); an existing\nfile is replaced once the lock is held"
    add("--ticket-file", metavar="PATH", help=told)
    add("--label", default="acquire", help="name of the holder, shown to others (default: acquire)")
    servers.add_options(parser, several=False)
    add("--prefix", default="hf:", help="start of the locks' keys (default: hf:)")
    servers.add_loudness(parser, "also print how long it took to acquire the lock")
    add("--json", action="store_true", help="print the answer as JSON, with the ticket if it is not in\na file")


def main(args: argparse.Namespace) -> int:
    url = servers.one(args)
    if args.ticket_file is None and sys.stdout is None:
        args.parser.error("stdout is closed, so the ticket would be lost: pass --ticket-file")
    signals = Signals()
    file: TicketFile | Stream | None = None
    try:
        signals.start_raising()
        file = ticket_file.open_for(args.ticket_file) if args.ticket_file is not None else ticket_file.Stream(1)
        file.create()
    except Interrupted as interrupt:
        code, ticket = 128 + interrupt.signum, None
    except OSError as error:
        output.say(f"acquire: {args.ticket_file}: {error.strerror}")
        code, ticket = output.EX_USAGE, None
    else:
        code, ticket = _take(args, url, file, signals)
    signals.raising = False
    if ticket is not None and file is not None:
        return _hand_out(args, url, ticket, file)
    if file is not None:
        file.discard()
    return code


def _take(args: argparse.Namespace, url: str, file: TicketFile | Stream, signals: Signals) -> tuple[int, Ticket | None]:
    try:
        from holdfast._api import ticket as tickets
        from holdfast._api.base_lock import member_of
        from holdfast._api.lease import core_of
        from holdfast._api.lock import FairLock
        from holdfast._runtime.process import current

        began = clock()
        patience, token = Patience(args.wait, functools.partial(_notice, args)), current().token()
        while True:
            lock = FairLock(url, args.name, wait=patience.left(), label=args.label, prefix=args.prefix)
            file.prepare(tickets.write(member_of(lock).spec, token, tickets.UNKNOWN_END).reveal())
            try:
                with lock as lease:
                    signals.raising = False  # from here on the ticket must be written, or nobody could release the lock
                    if args.verbose:
                        output.say(f"{args.name}: acquired after {clock() - began:.2f} s, fence {lease.fence}")
                    return 0, tickets.issue(core_of(lease), args.ttl, token)
            except ServerError as error:
                if not signals.raising or not patience.outlasts(error):
                    raise
    except Interrupted as interrupt:
        return 128 + interrupt.signum, None
    except LockTimeout as error:
        return _busy(args, error), None
    except HoldfastError as error:
        return output.failed("acquire", error), None
    except OSError as error:
        output.say(f"acquire: the ticket cannot be written: {error.strerror}; the lock was not acquired")
        return output.EX_OSERR, None


def _busy(args: argparse.Namespace, error: LockTimeout) -> int:
    _notice(args, str(error))
    if args.json:
        _answer({"name": args.name, "acquired": False, "holder": error.holder, "waited": round(error.waited, 3)})
    return output.EX_TEMPFAIL


def _notice(args: argparse.Namespace, text: str) -> None:
    if not args.quiet:
        output.say(f"acquire: {text}")


def _hand_out(args: argparse.Namespace, url: str, ticket: Ticket, file: TicketFile | Stream) -> int:
    from holdfast._api import ticket as tickets

    facts = {"name": args.name, "acquired": True, "expires_at": tickets.read(ticket.reveal()).ends / 1000}
    try:
        if args.json and args.ticket_file is None:
            file.finish(json.dumps({**facts, "ticket": ticket.reveal()}))
        else:
            file.finish(ticket.reveal())
    except OSError as error:
        from holdfast._api.redeem import redeem

        output.say(f"acquire: the ticket cannot be written: {error.strerror}")
        try:
            with redeem(url, ticket, prefix=args.prefix):  # release the lock, because nobody has the ticket
                pass
        except HoldfastError as why:
            output.say(f"acquire: the lock could not be released; its lease ends after --ttl: {why}")
        finally:
            file.discard()
        return output.EX_OSERR
    _leave_word(args, url)
    if args.json and args.ticket_file is not None:
        _answer({**facts, "ticket_file": args.ticket_file})
    return 0


def _answer(facts: dict[str, object]) -> None:
    print(output.clean(json.dumps(facts)))


def _leave_word(args: argparse.Namespace, url: str) -> None:
    """Store the record of this process (host, pid and label) on the server, where it expires after ``--ttl`` with the lease.

    The record that each process stores for itself would be deleted when this process ends.
    """
    from holdfast import close
    from holdfast._api.caller import Caller
    from holdfast._api.flow import complete
    from holdfast._core import control_records
    from holdfast._core.lock.spec import milliseconds
    from holdfast._core.names import lock_keys, record_key, start
    from holdfast._core.requests import Command, WireError
    from holdfast._runtime.process import current

    process = current()
    key = record_key(start(args.prefix), process.id)
    labels = {lock_keys(args.name, args.prefix, None)[0]: args.label}
    close()
    try:
        record = control_records.write(process.facts(), [], labels)
        complete(Caller(url).ask(Command(("SET", key, record, "PX", milliseconds(args.ttl)), 1.0), key))
    except WireError as error:
        output.say(f"acquire: the lock was acquired, but `holdfast ls` cannot show its holder: {error}")
