"""The output of the command line: messages on stderr and results on stdout, without passwords and control characters."""

from __future__ import annotations

import errno
import os
import re
import select
import sys

from holdfast.errors import ConfigError

# The match extends to the last @ of the word, because a password may contain any character. Hiding too much does no harm.
_CREDENTIALS = r"://\S*@"

EX_USAGE, EX_UNAVAILABLE, EX_SOFTWARE, EX_OSERR, EX_TEMPFAIL = 64, 69, 70, 71, 75
"""Exit codes as in sysexits.h. EX_TEMPFAIL is used when a lock is busy."""

OUTPUT_REFUSED = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""errno values of a failed write to stdout, such as ENOSPC for a full disk. The command then ends with EX_OSERR."""

EXHAUSTED = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
"""errno values of a machine that can create no more processes, memory or file descriptors. The command then ends with
EX_OSERR."""

EX_LOST = 76
"""Exit code of a command whose lock was lost."""


def clean(text: str) -> str:
    """Return the text with URL credentials hidden and unprintable characters escaped, because other users choose lock names."""
    if "://" in text:
        text = re.sub(_CREDENTIALS, "://***@", text)
    if text.isprintable():
        return text  # the usual case is fast, because `ls` may clean a hundred thousand lines
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def say(text: str, *below: str) -> None:
    """Print a message on stderr, with indented lines below it, in one write. A closed or full stderr is ignored."""
    _write("".join([f"holdfast: {clean(text)}\n", *(f"  {clean(line)}\n" for line in below)]))


def say_raw(text: str) -> None:
    """Print a line on stderr without the prefix ``holdfast:``. A closed or full stderr is ignored."""
    _write(clean(text) + "\n")


def summary(text: str) -> None:
    """Write the JSON summary of ``--json`` as one line on stderr. Raises OSError if it cannot be written completely."""
    left = f"{clean(text)}\n".encode(errors="backslashreplace")
    while left:
        try:
            left = left[os.write(2, left) :]
        except BlockingIOError:
            select.select([], [2], [])


def failed(command: str, error: Exception) -> int:
    """Print the error of a subcommand, and return the exit code."""
    say(f"{command}: {error}")
    return EX_USAGE if isinstance(error, ConfigError) else EX_UNAVAILABLE


def one_line(text: str) -> str:
    """Return a text of several lines as one line, with `` | `` between the lines."""
    return " | ".join(part.strip() for part in text.splitlines() if part.strip())


def _write(line: str) -> None:
    try:
        os.write(2, line.encode(errors="backslashreplace"))
    except OSError:
        pass
