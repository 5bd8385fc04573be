"""The output of the command line: lines on stderr, and what is printed; without passwords and without control characters."""

from __future__ import annotations

import errno
import os
import re
import select
import sys

from holdfast.errors import ConfigError

# Up to the last @ of the word: a password may contain anything, and hiding too much is no harm.
_CREDENTIALS = re.compile(r"://\S*@")

EX_USAGE, EX_UNAVAILABLE, EX_SOFTWARE, EX_OSERR, EX_TEMPFAIL = 64, 69, 70, 71, 75
"""Exit codes as in sysexits.h; the last one says that something is busy."""

OUTPUT_REFUSED = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""Errors of a file on stdout that end with exit code EX_OSERR. Other outputs have handlers of their own."""

EXHAUSTED = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
"""The system has no process, memory or descriptor left for us, or for the command: exit code EX_OSERR."""

EX_LOST = 76
"""A lock was lost."""


def clean(text: str) -> str:
    """Without credentials, and with all escaped that a terminal might obey: names of locks are other people's."""
    text = _CREDENTIALS.sub("://***@", text)
    if text.isprintable():
        return text  # nearly always: a hundred thousand lines are to be cleaned, too
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def flush() -> None:
    """Write out what was printed, unless there is no stdout."""
    if sys.stdout is not None:
        sys.stdout.flush()


def say(text: str, *below: str) -> None:
    """One line on stderr, and others below it, in one piece. A stderr that is closed or full is no reason to fail."""
    _write("".join([f"holdfast: {clean(text)}\n", *(f"  {clean(line)}\n" for line in below)]))


def say_raw(text: str) -> None:
    """The same without the prefix."""
    _write(clean(text) + "\n")


def summary(text: str) -> None:
    """The line on stderr that was asked for with ``--json``. Raises OSError if it cannot be written: it is no mere message."""
    left = f"{clean(text)}\n".encode(errors="backslashreplace")
    while left:
        try:
            left = left[os.write(2, left) :]
        except BlockingIOError:
            select.select([], [2], [])


def failed(command: str, error: Exception) -> int:
    """Say what is wrong; the exit code: of bad usage, or of a server that cannot be had."""
    say(f"{command}: {error}")
    return EX_USAGE if isinstance(error, ConfigError) else EX_UNAVAILABLE


def one_line(text: str) -> str:
    """A text of several lines as one."""
    return " | ".join(part.strip() for part in text.splitlines() if part.strip())


def _write(line: str) -> None:
    try:
        os.write(2, line.encode(errors="backslashreplace"))
    except OSError:
        pass
