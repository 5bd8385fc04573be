"""``holdfast run [options] NAME -- CMD...``: a command under a lock.

The order of things: options are checked, the guardian is forked (`holdfast._local.guardian.parent`; this process has one thread
and holds nothing then), the lock is waited for, the command runs (`holdfast.cli.supervise`), the lock is given back.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import math
import os
import signal
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast._local.guardian import program
from holdfast._local.guardian.parent import Guard, launch, scrubbed
from holdfast.cli import output, servers
from holdfast.cli.contact import Patience
from holdfast.cli.durations import duration, positive_duration
from holdfast.cli.supervise import Interrupted, Result, Signals, Supervisor, Terms
from holdfast.cli.terminal import Terminal
from holdfast.errors import (
    ConfigError,
    HoldfastError,
    HoldfastWarning,
    LeaseLost,
    LockTimeout,
    QuorumError,
    ServerError,
)

if TYPE_CHECKING:
    from holdfast._api.sync_election import Election
    from holdfast._api.sync_lock import Lock
    from holdfast.cli.supervise import Lease

TAKES_COMMAND = True

DESCRIPTORS = 9
DESCRIPTORS_OF_SERVER = 3
"""File descriptors that a run has open at the same time: its own, and those for each server."""
_EPILOG = """\
Times are seconds, or 500ms, 5m, 2h, 1d. Exit codes: the command's own, 128 + the signal that ended it; 75 the lock is
busy, 76 the lock was lost and the command ended, 124 --max-runtime, 69 no server, 64 bad usage, 126 and 127 the command
cannot be executed or found."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.usage = "holdfast run [options] NAME -- COMMAND [ARGUMENT ...]"
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("name", metavar="NAME", help="name of the lock")
    add("-c", dest="shell", metavar="STRING", help="run this string with /bin/sh instead of a command after --")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--limit", metavar="N", type=_limit, help="at most N at a time: a permit of the semaphore NAME")
    kind.add_argument("--shared", action="store_true", help="together with others that share it: read-write lock NAME, reading")
    kind.add_argument("--exclusive", action="store_true", help="alone: the same read-write lock, writing")
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument(
        "-w", "--wait", metavar="TIME", type=duration, help="wait this long if busy (default: for ever, or 0 with --skip)"
    )
    waiting.add_argument("-n", "--nonblock", action="store_true", help="do not wait: the same as --wait 0")
    busy = parser.add_mutually_exclusive_group()
    busy.add_argument("-E", "--conflict-exit-code", metavar="N", type=_exit_code, default=output.EX_TEMPFAIL)
    busy.add_argument("--skip", action="store_true", help="if busy, exit with 0 at once, or after --wait; print nothing")
    add("--ttl", metavar="TIME", type=positive_duration, default=30.0, help="lease, renewed while held (default: 30)")
    add_options_of_the_end(parser)
    add(
        "--max-runtime",
        metavar="TIME",
        type=positive_duration,
        default=math.inf,
        help="end the command after this time",
    )
    add("--label", help="shown to others as the holder (default: the command's name)")
    add_options_of_place(parser)
    add("--json", action="store_true", help="a summary as the last line on stderr")


def add_options_of_the_end(parser: argparse.ArgumentParser) -> None:
    """How the command is ended. Of `holdfast elect`, too."""
    add = parser.add_argument
    add("--kill-after", metavar="TIME", type=duration, help="from TERM to KILL (default: 10 or a third of ttl)")
    add("--on-lost", choices=("term", "kill", "warn"), default="term", help="what to do to the command (default: term)")
    add("--keep-daemons", action="store_true", help="leave daemons of a command alone that has ended normally")


def add_options_of_place(parser: argparse.ArgumentParser) -> None:
    """The lock, and the messages about it. Of `holdfast elect`, too."""
    servers.add_options(parser, local=True)
    add = parser.add_argument
    add("--prefix", help="of all keys on the server (default: hf:)")
    add(
        "--max-ttl",
        metavar="TIME",
        type=positive_duration,
        help="with several servers: the longest lease on them, the same for all who use them (default: 60)",
    )
    add("--pass-url", action="store_true", help="leave a URL with a password in the command's environment")
    loudness = parser.add_mutually_exclusive_group()
    loudness.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    loudness.add_argument("-v", "--verbose", action="store_true", help="say what happens")


def main(args: argparse.Namespace) -> int:
    """Run it; returns the exit code."""
    return carry_out(args, Run)


def carry_out(args: argparse.Namespace, kind: type[Run]) -> int:
    """Run the command as this kind of run does; returns the exit code."""
    argv = _command(args)
    _check_times(args)
    urls = _urls(args)
    env = {**scrubbed(os.environ, args.pass_url), "HOLDFAST_NAME": args.name}
    needed = DESCRIPTORS + DESCRIPTORS_OF_SERVER * len(urls)
    if not _are_free(needed):
        output.say(f"{args.name}: cannot run the command: fewer than {needed} file descriptors are free; raise `ulimit -n`")
        return output.EX_OSERR
    atexit.register(_die)  # registered first, so called last
    try:
        guard = launch(argv, env)
    except OSError as error:
        output.say(f"cannot start a process: {error.strerror}")
        return output.EX_OSERR
    try:
        code = kind(args, urls, guard).run()
    finally:
        guard.close()
    return _leave(code)


def _are_free(descriptors: int) -> bool:
    """Return whether so many file descriptors can be opened. A run that notices later might hold a lock that it cannot renew,
    or might have run the command already."""
    opened: list[int] = []
    try:
        while len(opened) < descriptors:
            opened += os.pipe()
    except OSError:
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return True


def _exit_code(text: str) -> int:
    code = int(text) if text.isascii() and text.isdigit() else -1
    if not 0 <= code <= 255:
        raise argparse.ArgumentTypeError(f"{text!r} is not an exit code: 0 to 255")
    return code


def _limit(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a limit: a whole number, 1 or more")
    return number


def _command(args: argparse.Namespace) -> list[str]:
    """The command's argv; settles the label, too."""
    if args.shell is not None and args.command is not None:
        args.parser.error("either -c or a command after --, not both")
    if args.shell is None and not args.command:
        args.parser.error("no command: write it after --, as in: holdfast run NAME -- COMMAND")
    argv: list[str] = ["/bin/sh", "-c", args.shell] if args.shell is not None else args.command
    if args.label is None:
        name = os.path.basename(argv[0])[:200]  # noqa: PTH119 (pathlib imports slowly)
        # As long as a label may be, and printable: nobody reads a record that has another one, and `elect` checks none.
        args.label = "".join(char if char.isprintable() else "?" for char in name)
    return argv


def _check_times(args: argparse.Namespace) -> None:
    if args.nonblock or (args.skip and args.wait is None):
        args.wait = 0.0
    if args.kill_after is None:
        args.kill_after = min(10.0, args.ttl / 3)
    if args.kill_after > args.ttl / 2:
        args.parser.error(
            f"--kill-after {args.kill_after:g} is more than half of --ttl {args.ttl:g}: "
            "a single late renewal would end the command"
        )


def _urls(args: argparse.Namespace) -> list[str]:
    urls = servers.settled(args, quiet=args.quiet)
    if args.max_ttl is not None and len(urls) == 1:
        args.parser.error("--max-ttl is for several servers: name them with --url, each")
    return urls


class Run:
    """One run, from the guardian's start to the exit code."""

    fences: tuple[str, ...] = ("HOLDFAST_FENCE",)

    def __init__(self, args: argparse.Namespace, urls: list[str], guard: Guard) -> None:
        self.args, self.urls, self.guard = args, urls, guard
        self.signals = Signals()
        self.terminal = Terminal()
        self.locks: list[Lock | Election] = []
        self.attempts = 0
        self.started = False
        """The guardian was told to start the command, in the latest attempt."""
        self.summary: dict[str, Any] = {"name": args.name, "outcome": "", "exit_code": 0}
        warnings.simplefilter("ignore")
        warnings.simplefilter("once", HoldfastWarning)
        warnings.showwarning = lambda message, *_, **__: self.notice(str(message))

    def error(self, text: str) -> None:
        """Something the caller has to know."""
        output.say(f"{self.args.name}: {text}")

    def notice(self, text: str) -> None:
        """Something most callers want to know."""
        if not self.args.quiet:
            self.error(text)

    def detail(self, text: str) -> None:
        """Something for those who watch."""
        if self.args.verbose:
            self.error(text)

    def run(self) -> int:
        """Everything; the exit code."""
        try:
            code = self._locked()
        except Interrupted as interrupt:
            self.detail("interrupted while waiting")
            if interrupt.signum == signal.SIGINT and self.terminal.fd >= 0:
                _last_signal.append(False)
            code = self._ended("interrupted", 128 + interrupt.signum)
        except LockTimeout as busy:
            code = self._busy(busy)
        except ConfigError as error:
            code = self._failed("usage", str(error), output.EX_USAGE)
        except (ServerError, QuorumError) as error:
            code = self._failed("unreachable", str(error), output.EX_UNAVAILABLE)
        except OSError as error:
            code = self._failed("failed", error.strerror or type(error).__name__, output.EX_OSERR)
        if self.args.json:
            import json

            output.summary(json.dumps(self.summary))
        return code

    def _locked(self) -> int:
        """Ask for the lock until the command was started under it, or the wait is over.

        On a machine that is busy enough, the server's answers come late; and a lease may run out between the grant and the
        start, and then nothing has run. Once the wait is over the lock is asked for one last time, since it may be free.
        """
        began, patience = program.clock(), Patience(self.args.wait, self.notice)
        while True:
            left = patience.left()
            try:
                result = self._attempt(began, left)
            except (ServerError, QuorumError) as error:
                if self.started or not patience.outlasts(error):
                    raise
                self.attempts += 1
                continue
            if not result.late:
                break
            if left == 0 and self.attempts:
                self.error("the lease had run out before the command could be started")
                result.cause, result.lost = "lost", True
                break
            self.attempts += 1
            self.detail("the lease had run out before the command could be started: asking again")
        return self._report(result)

    def _attempt(self, began: float, wait: float | None) -> Result:
        result, ran = Result(), False
        acquired = program.clock()
        self.locks.clear()
        self.started = False
        try:
            with contextlib.ExitStack() as stack:
                lease = self._acquire(stack, wait)
                self.signals.raising = False
                acquired = program.clock()
                self.summary |= {"fence": lease.fence, "waited": round(acquired - began, 3)}
                self.detail(f"acquired after {acquired - began:.2f} s, fence {lease.fence}")
                result = self._supervise(lease)
                ran = not result.late
        except Interrupted:
            for lock in self.locks:
                if (taken := lock.lease) is not None:  # it came after the lock was taken, and before anything knew of that
                    with contextlib.suppress(HoldfastError):
                        taken.release()
            raise
        except LeaseLost as error:
            result.late = not ran
            if ran and not result.lost and not result.cause:
                self.error(f"{error}; noticed when the command had ended")
            result.lost = True
            if self.args.on_lost != "warn":
                result.cause = result.cause or "lost"
        held = program.clock() - acquired
        self.summary["held"] = round(held, 3)
        if not result.late:
            self.detail(f"{'lost' if result.lost else 'released'} after {held:.2f} s")
        return result

    def _acquire(self, stack: contextlib.ExitStack, wait: float | None) -> Lease:
        """Only a refusal says who holds the lock: to tell, the very first attempt is one that does not wait."""
        args = self.args
        options = {name: value for name in ("prefix", "max_ttl") if (value := getattr(args, name)) is not None}
        for each in (0, wait) if args.verbose and wait != 0 and not self.attempts else (wait,):
            self.locks.append(self._lock(args.name, ttl=args.ttl, wait=each, label=args.label, **options))
        self.signals.start_raising()
        for lock in self.locks[:-1]:
            try:
                return stack.enter_context(lock)
            except LockTimeout as busy:
                nameless = "a client of another library" if busy.foreign else "an unknown holder"
                self.detail(f"waiting, held by {busy.holder or nameless}")
        return stack.enter_context(self.locks[-1])

    def _lock(self, *args: Any, **options: Any) -> Lock:
        """On one server, or on a majority of several; or something that several may hold."""
        if self.args.limit or self.args.shared or self.args.exclusive:
            from holdfast.cli.permits import lock

            return lock(self.args, self.urls, *args, **options)
        if len(self.urls) == 1:
            from holdfast._api.sync_lock import Lock

            return Lock(self.urls[0], *args, **options)
        from holdfast._api.sync_redlock import Redlock

        return Redlock(self.urls, *args, **options)

    def _supervise(self, lease: Lease) -> Result:
        args = self.args
        supervisor = Supervisor(
            guard=self.guard,
            signals=self.signals,
            terminal=self.terminal,
            lease=lease,
            terms=Terms(args.ttl, args.kill_after, args.on_lost, args.max_runtime, args.keep_daemons, self.fences),
            error=self.error,
            notice=self.notice,
        )
        try:
            return supervisor.run()
        finally:
            self.started = supervisor.started

    def _report(self, result: Result) -> int:
        if result.exec_errno:
            self.error(f"cannot run the command: {os.strerror(result.exec_errno)}")
        if result.died_of(signal.SIGINT) and self.terminal.fd >= 0:
            _last_signal.append(result.borrowed_terminal)
        code = result.exit_code()
        status = None if result.status is None else os.waitstatus_to_exitcode(result.status)
        self.summary |= {
            "lost": result.lost,
            "command_exit_code": status if status is not None and status >= 0 else None,
            "command_signal": -status if status is not None and status < 0 else None,
        }
        return self._ended(result.cause or ("exec" if result.exec_errno else "finished"), code)

    def _busy(self, busy: LockTimeout) -> int:
        # cron mails every line: a run that was skipped as it was told to is no news, unless the caller asks for all.
        if self.args.verbose or not (self.args.quiet or self.args.skip):
            output.say(str(busy))
        self.summary |= {"holder": busy.holder, "waited": round(busy.waited, 3)}
        return self._ended("skipped", 0) if self.args.skip else self._ended("busy", self.args.conflict_exit_code)

    def _failed(self, outcome: str, message: str, code: int) -> int:
        output.say(message)
        return self._ended(outcome, code)

    def _ended(self, outcome: str, code: int) -> int:
        self.summary |= {"outcome": outcome, "exit_code": code}
        return code


_last_signal: list[bool] = []
"""Not empty: end by SIGINT, as the command did; True: and let the rest of our job have it."""


def _leave(code: int) -> NoReturn:
    """End at once. The interpreter would free its objects one by one, which takes longer than the lock took."""
    atexit._run_exitfuncs()  # noqa: SLF001 (as multiprocessing does at the end of its processes)
    os._exit(code)


def _die() -> None:
    """At the very end of the process: after a Ctrl-C, end by it.

    To a shell the exit code is 130 either way, but only from a process that died of SIGINT does it learn that the loop
    or script we are part of shall end, too. And a command that had the terminal was the only one to get the signal.
    """
    if _last_signal:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if _last_signal[0]:
            os.killpg(0, signal.SIGINT)
        else:
            os.kill(os.getpid(), signal.SIGINT)
