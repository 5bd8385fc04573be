"""``holdfast watch``: show held locks and changes of their holders.

On a terminal, it fills the screen. Otherwise, it prints a line for each change."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast._clock import clock, wall
from holdfast.cli import lock_view, output, tables
from holdfast.cli.durations import moment, positive_duration
from holdfast.cli.terminal import stop_job
from holdfast.errors import ConfigError, ServerError

if TYPE_CHECKING:
    from holdfast._api.inspect import LockInfo

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
"""Escape sequences (xterm) that enter and leave the alternate screen, without cursor and line wrapping."""

HOME, REST, LINE_END = "\x1b[H", "\x1b[J", "\x1b[K"

STEP = 0.1
"""Seconds between two checks of the terminal's size."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "The server is asked once per --interval. Changes between two requests are\n"
        "missed, so the printed number of hand-overs is a minimum. Ctrl-C ends `watch`."
    )
    parser.add_argument(
        "pattern", nargs="?", default="*", metavar="PATTERN", help="pattern of lock names, as for ls (default: all)"
    )
    parser.add_argument(
        "--interval", metavar="TIME", type=positive_duration, default=1.0, help="time between two requests (default: 1)"
    )
    parser.add_argument("--count", metavar="N", type=int, default=0, help="end after N requests (default: no limit)")
    lock_view.add_options(parser, key=False)


def main(args: argparse.Namespace) -> int:
    watch = WatchedLocks(args)
    try:
        if os.isatty(1) and not args.json:
            with screen():
                watch.run(watch.draw)
        else:
            watch.run(watch.tell)
    except (ConfigError, ServerError) as error:
        return output.failed("watch", error)
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:  # the reader of the output has closed it, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


@contextmanager
def screen() -> Iterator[None]:
    """Use the terminal's alternate screen inside a ``with`` block.

    Restore the terminal at the end of the block, and while this process is stopped by Ctrl-Z.
    """

    def end(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    def pause(signum: int, _frame: object) -> None:
        os.write(1, LEAVE.encode())
        stop_job(signum)
        os.write(1, ENTER.encode())  # the next request draws the screen again

    before = signal.signal(signal.SIGTERM, end), signal.signal(signal.SIGTSTP, pause)
    try:
        sys.stdout.write(ENTER)
        yield
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGTSTP, before[1])


class WatchedLocks:
    """The locks that the last request to the server found, and the changes of holder since the previous request."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._locks: dict[bytes, LockInfo] = {}
        self._changes: list[tuple[str, LockInfo]] = []
        self._looked = 0.0
        self._rate = 0.0
        self._trouble = ""
        self._size = os.terminal_size((80, 24))

    def run(self, show: Callable[[], None]) -> None:
        """Ask the server for the locks and call ``show``, once per interval, until ``--count`` requests were made.

        On a terminal, also call ``show`` when the size changes. Raises ServerError if the first request fails.
        """
        see = lock_view.inspector(self._args)
        for number in itertools.count(1):
            began = clock()
            try:
                self._take_in({lock.key: lock for lock in see.locks(self._args.pattern)}, began)
                self._trouble = ""
            except ServerError as error:
                if number == 1:
                    raise
                self._trouble, self._changes = str(error), []
            show()
            if number == self._args.count:
                return
            while (left := began + self._args.interval - clock()) > 0:
                time.sleep(min(left, STEP))
                if os.isatty(1) and not self._args.json and os.get_terminal_size(1) != self._size:
                    show()

    def _take_in(self, locks: dict[bytes, LockInfo], now: float) -> None:
        self._changes = []
        for key in {**self._locks, **locks}:
            before, after = self._locks.get(key), locks.get(key)
            had, has = (_mark(lock) for lock in (before, after))
            if had != has and after is not None:
                self._changes.append(("taken" if not had else "handed over" if has else "free", after))
            elif had and after is None and before is not None:
                self._changes.append(("free", before))
        passed = sum(what == "handed over" for what, _ in self._changes)
        self._rate = passed / (now - self._looked) if self._locks and now > self._looked else 0.0
        self._locks, self._looked = locks, now

    def tell(self) -> None:
        """Print a line for each change of holder, or the error of the last request if it failed."""
        if self._trouble:
            output.say(f"watch: {self._trouble}")
        for what, lock in self._changes:
            if self._args.json:
                print(output.clean(json.dumps({"change": what, "at": round(wall(), 3), **lock.facts()})), flush=True)
                continue
            whom = "" if what == "free" else f" {'by' if what == 'taken' else 'to'} {lock_view.who(lock)}"
            waiting = f", {lock.waiters} wait" if lock.waiters and what != "free" else ""
            print(output.clean(f"{moment(int(wall()))} {lock.name}: {what}{whom}{waiting}"), flush=True)

    def draw(self) -> None:
        """Draw the whole screen: a summary line, a table of the locks, and the number of locks that do not fit."""
        self._size = size = os.get_terminal_size(1)
        locks = sorted(self._locks.values(), key=lambda lock: (-lock.waiters, -_age(lock), lock.name))
        waiting = sum(lock.waiters for lock in locks)
        head = f"holdfast {self._args.pattern}  {len(locks)} held, {waiting} wait, at least {self._rate:.1f} hand-overs/s"
        rows = [lock_view.COLUMNS, *(lock_view.row(lock) for lock in locks[: max(0, size.lines - 3)])]
        foot = f"and {len(locks) - len(rows) + 1} more" if len(locks) >= len(rows) else ""
        shown = [output.clean(self._trouble or head), *tables.aligned(rows), foot]
        text = "\r\n".join(line.rstrip()[: size.columns] + LINE_END for line in shown[: size.lines])
        sys.stdout.write(HOME + text + REST)
        sys.stdout.flush()


def _mark(lock: LockInfo | None) -> tuple[str, ...]:
    """Return the values that identify the current holders of a lock. Two results differ if a holder has changed."""
    return tuple(holder.mark for holder in lock.holders) if lock is not None else ()


def _age(lock: LockInfo) -> float:
    return (lock.holder.held_for if lock.holder is not None else None) or 0.0
