"""``holdfast run [options] NAME -- CMD...``: run a command under a lock.

After checking the options, this process forks the guardian, a process that starts and ends the command
(`holdfast._local.guardian.guardian`). At this time, this process has only one thread, and holds no lock. Then this process
acquires the lock, runs the command while it watches the lease (`holdfast.cli.supervise`), and releases the lock.
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

from holdfast._clock import clock
from holdfast._local.environment import scrubbed
from holdfast._local.guardian.channel import GuardianChannel, launch
from holdfast.cli import output, servers
from holdfast.cli.contact import Patience
from holdfast.cli.durations import duration, positive_duration
from holdfast.cli.supervise import CommandOptions, CommandResult, Interrupted, Signals, Supervisor
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
    from holdfast._api.acquisition import BaseSyncLock
    from holdfast._api.election import Election
    from holdfast.cli.supervise import Lease

TAKES_COMMAND = True

DESCRIPTORS = 9
DESCRIPTORS_OF_SERVER = 3
"""Numbers of file descriptors that ``holdfast run`` needs: `DESCRIPTORS` for itself, and `DESCRIPTORS_OF_SERVER` for each
server."""
_EPILOG = "A TIME is in seconds, or 500ms, 5m, 2h, 1d. The -- may be omitted if COMMAND\ncontains none."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "holdfast run [options] NAME [--] COMMAND [ARGUMENT ...]"
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("name", metavar="NAME", help="name of the lock")
    add("-c", dest="shell", metavar="STRING", help="run this string with /bin/sh, instead of a command\nafter --")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--limit",
        metavar="N",
        type=_limit,
        help="let at most N commands run at the same time: acquire a\npermit of the semaphore NAME",
    )
    kind.add_argument(
        "--shared", action="store_true", help="acquire the read-write lock NAME for reading, shared\nwith other readers"
    )
    kind.add_argument("--exclusive", action="store_true", help="acquire the read-write lock NAME for writing")
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument(
        "-w",
        "--wait",
        metavar="TIME",
        type=duration,
        help="wait this long for a busy lock (default: no limit, or 0\nwith --skip)",
    )
    waiting.add_argument("-n", "--nonblock", action="store_true", help="do not wait for a busy lock, as with --wait 0")
    busy = parser.add_mutually_exclusive_group()
    busy.add_argument(
        "-E",
        "--conflict-exit-code",
        metavar="N",
        type=_exit_code,
        default=output.EX_TEMPFAIL,
        help="exit with N instead of 75 if the lock stays busy",
    )
    busy.add_argument(
        "--skip", action="store_true", help="if the lock is busy, or still busy after --wait, exit\nwith 0 and print nothing"
    )
    add(
        "--ttl",
        metavar="TIME",
        type=positive_duration,
        default=30.0,
        help="lease time, renewed while the command runs\n(default: 30)",
    )
    add_options_of_the_end(parser)
    add(
        "--max-runtime",
        metavar="TIME",
        type=positive_duration,
        default=math.inf,
        help="end the command after it has run for this long",
    )
    add("--label", help="name of the holder, shown to others (default: the\ncommand's name)")
    add_options_of_place(parser)
    add("--json", action="store_true", help="print a summary in JSON as the last line on stderr")


def add_options_of_the_end(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `holdfast run` and `holdfast elect` that control how the command is ended."""
    add = parser.add_argument
    add(
        "--kill-after",
        metavar="TIME",
        type=duration,
        help="time from SIGTERM to SIGKILL when a command is ended\n(default: a third of --ttl, at most 10)",
    )
    add(
        "--on-lost",
        choices=("term", "kill", "warn"),
        default="term",
        help="send SIGTERM or SIGKILL to the command when the lock\nis lost, or only warn (default: term)",
    )
    add(
        "--keep-daemons", action="store_true", help="do not end the daemons that a command leaves behind\nwhen it ends normally"
    )


def add_options_of_place(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `holdfast run` and `holdfast elect` about servers, keys and messages."""
    servers.add_options(parser)
    add = parser.add_argument
    add("--prefix", help="start of all keys on the server (default: hf:)")
    add(
        "--max-ttl",
        metavar="TIME",
        type=positive_duration,
        help="longest lease on these servers, if there are several;\nall their clients must agree on it (default: 60)",
    )
    add("--pass-url", action="store_true", help="leave a server URL with a password in the environment\nof the command")
    servers.add_loudness(parser, "also print each step, such as acquire and release", "print errors only")


def main(args: argparse.Namespace) -> int:
    return carry_out(args, CommandRun)


def carry_out(args: argparse.Namespace, kind: type[CommandRun]) -> int:
    """Check the options, start the guardian, run the command, and return the exit code. ``kind``: class that runs the
    command."""
    argv = _command(args)
    _check_times(args)
    urls = _urls(args)
    env = {**scrubbed(os.environ, args.pass_url), "HOLDFAST_NAME": args.name}
    needed = DESCRIPTORS + DESCRIPTORS_OF_SERVER * len(urls)
    if not _are_free(needed):
        output.say(f"{args.name}: cannot run the command: fewer than {needed} file descriptors are free; raise `ulimit -n`")
        return output.EX_OSERR
    atexit.register(_die)  # registered first, so that this function is called last
    try:
        guardian = launch(argv, env)
    except OSError as error:
        output.say(f"cannot start a process: {error.strerror}")
        return output.EX_OSERR
    try:
        code = kind(args, urls, guardian).run()
    finally:
        guardian.close()
    return _leave(code)


def _are_free(descriptors: int) -> bool:
    """Return True if this number of file descriptors can be opened now.

    If the process ran out of file descriptors later, it could hold a lock that it cannot renew.
    """
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
        raise argparse.ArgumentTypeError(f"{text!r} is not an exit code: pass a number from 0 to 255")
    return code


def _limit(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a limit: pass a whole number, 1 or more")
    return number


def _command(args: argparse.Namespace) -> list[str]:
    if args.shell is not None and args.command is not None:
        args.parser.error("two commands: pass either -c STRING or a command after the name, not both")
    if args.shell is None and not args.command:
        from holdfast.cli import hints

        hint = hints.for_no_command(args.name)
        args.parser.error(f"no command: pass it after the name, as in: holdfast run NAME -- COMMAND{hint}")
    argv: list[str] = ["/bin/sh", "-c", args.shell] if args.shell is not None else args.command
    if args.label is None:
        name = os.path.basename(argv[0])[:200]  # noqa: PTH119 (pathlib imports slowly)
        # The label must be short and printable, because readers refuse a record with any other label. `elect` does not check
        # its label.
        args.label = "".join(char if char.isprintable() else "?" for char in name)
    return argv


def _check_times(args: argparse.Namespace) -> None:
    if args.nonblock or (args.skip and args.wait is None):
        args.wait = 0.0
    if args.kill_after is None:
        args.kill_after = min(10.0, args.ttl / 3)
    if args.kill_after > args.ttl / 2:
        args.parser.error(
            f"--kill-after {args.kill_after:g} is more than half of --ttl {args.ttl:g}, so that "
            "a single late renewal would end the command: pass a longer --ttl"
        )


def _urls(args: argparse.Namespace) -> list[str]:
    urls = servers.settled(args)
    if args.max_ttl is not None and len(urls) == 1:
        args.parser.error("--max-ttl is for several servers: pass --url for each of them")
    return urls


class CommandRun:
    """One call of ``holdfast run``, from the start of the guardian to the exit code."""

    args: argparse.Namespace
    guardian: GuardianChannel
    urls: list[str]
    signals: Signals
    terminal: Terminal
    attempts: int
    started: bool
    fences: tuple[str, ...] = ("HOLDFAST_FENCE",)

    def __init__(self, args: argparse.Namespace, urls: list[str], guardian: GuardianChannel) -> None:
        self.args, self.urls, self.guardian = args, urls, guardian
        self.signals = Signals()
        self.terminal = Terminal()
        self.locks: list[BaseSyncLock[Any] | Election] = []
        self.attempts = 0
        self.started = False
        """True if the guardian was told to start the command in the latest attempt to acquire the lock."""
        self.summary: dict[str, Any] = {"name": args.name, "outcome": "", "exit_code": 0}
        warnings.simplefilter("ignore")
        warnings.simplefilter("once", HoldfastWarning)
        warnings.showwarning = lambda message, *_, **__: self.notice(str(message))

    def error(self, text: str) -> None:
        """Print a message, even if --quiet was passed."""
        output.say(f"{self.args.name}: {text}")

    def notice(self, text: str) -> None:
        """Print a message, unless --quiet was passed."""
        if not self.args.quiet:
            self.error(text)

    def detail(self, text: str) -> None:
        """Print a message if --verbose was passed."""
        if self.args.verbose:
            self.error(text)

    def run(self) -> int:
        """Acquire the lock, run the command, report the outcome, and return the exit code."""
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
        """Acquire the lock, run the command, and return the exit code.

        On an overloaded machine, the lease may expire before the command is started. In that case, the lock is acquired again.
        When the time of --wait has passed, the lock is tried one last time, without waiting.
        """
        began, patience = clock(), Patience(self.args.wait, self.notice)
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
                self.error("the lease expired before the command could be started")
                result.cause, result.lost = "lost", True
                break
            self.attempts += 1
            self.detail("the lease expired before the command could be started; acquiring the lock again")
        return self._report(result)

    def _attempt(self, began: float, wait: float | None) -> CommandResult:
        result, ran = CommandResult(), False
        acquired = clock()
        self.locks.clear()
        self.started = False
        try:
            with contextlib.ExitStack() as stack:
                lease = self._acquire(stack, wait)
                self.signals.raising = False
                acquired = clock()
                self.summary |= {"fence": lease.fence, "waited": round(acquired - began, 3)}
                self.detail(f"acquired after {acquired - began:.2f} s, fence {lease.fence}")
                result = self._supervise(lease)
                ran = not result.late
        except Interrupted:
            for lock in self.locks:
                if (taken := lock.lease) is not None:  # the signal came after the grant, before the `with` block began
                    with contextlib.suppress(HoldfastError):
                        taken.release()
            raise
        except LeaseLost as error:
            result.late = not ran
            if ran and not result.lost and not result.cause:
                self.error(f"{error}; this was noticed after the command had ended")
            result.lost = True
            if self.args.on_lost != "warn":
                result.cause = result.cause or "lost"
        held = clock() - acquired
        self.summary["held"] = round(held, 3)
        if not result.late:
            self.detail(f"{'lost' if result.lost else 'released'} after {held:.2f} s")
        return result

    def _acquire(self, stack: contextlib.ExitStack, wait: float | None) -> Lease:
        """Acquire the lock, waiting for up to ``wait`` seconds (None: without limit), and return its lease.

        The lock is released when ``stack`` is closed. With --verbose, the first attempt does not wait. If the lock is busy, its
        holder is printed, and the second attempt waits.
        """
        args = self.args
        options = {name: value for name in ("prefix", "max_ttl") if (value := getattr(args, name)) is not None}
        for each in (0, wait) if args.verbose and wait != 0 and not self.attempts else (wait,):
            self.locks.append(self._lock(args.name, ttl=args.ttl, wait=each, label=args.label, **options))
        self.signals.start_raising()
        for lock in self.locks[:-1]:
            try:
                lease: Lease = stack.enter_context(lock)
                return lease
            except LockTimeout as busy:
                nameless = "a client of another library" if busy.foreign else "an unknown holder"
                self.detail(f"waiting, held by {busy.holder or nameless}")
        last: Any = self.locks[-1]
        return stack.enter_context(last)  # type: ignore[no-any-return]

    def _lock(self, *args: Any, **options: Any) -> BaseSyncLock[Any]:
        """Return the lock object that the command-line options select."""
        if self.args.limit or self.args.shared or self.args.exclusive:
            from holdfast.cli.permits import lock

            shared: BaseSyncLock[Any] = lock(self.args, self.urls, *args, **options)
            return shared
        if len(self.urls) == 1:
            from holdfast._api.lock import Lock

            return Lock(self.urls[0], *args, **options)
        from holdfast._api.redlock import Redlock

        return Redlock(self.urls, *args, **options)

    def _supervise(self, lease: Lease) -> CommandResult:
        args = self.args
        supervisor = Supervisor(
            guardian=self.guardian,
            signals=self.signals,
            terminal=self.terminal,
            lease=lease,
            terms=CommandOptions(args.ttl, args.kill_after, args.on_lost, args.max_runtime, args.keep_daemons, self.fences),
            error=self.error,
            notice=self.notice,
        )
        try:
            return supervisor.run()
        finally:
            self.started = supervisor.started

    def _report(self, result: CommandResult) -> int:
        if result.exec_errno:
            program = "/bin/sh" if self.args.command is None else self.args.command[0]
            hint = "; pass its words separately, or the whole command with -c" if " " in program else ""
            self.error(f"cannot run the command {program!r}: {os.strerror(result.exec_errno)}{hint}")
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
        # cron mails every line that is printed, so a run that --skip has skipped prints nothing without --verbose.
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
"""One entry if SIGINT has ended the command or the wait for the lock, otherwise empty.

If there is an entry, this process must end by SIGINT too. The entry is True if SIGINT goes to its whole process group.
"""


def _leave(code: int) -> NoReturn:
    """End the process at once. To free all objects, as the interpreter does, takes longer than to acquire the lock."""
    atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing does at the end of its processes
    os._exit(code)


def _die() -> None:
    """End this process by SIGINT if Ctrl-C has ended the command or the wait for the lock.

    This is called at the very end of the process. A shell ends the loop or script around ``holdfast run`` only if the process
    died of SIGINT, so exit code 130 is not enough. If only the command's group got the signal, because it was in the
    foreground, send SIGINT to this process's whole group.
    """
    if _last_signal:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if _last_signal[0]:
            os.killpg(0, signal.SIGINT)
        else:
            os.kill(os.getpid(), signal.SIGINT)
