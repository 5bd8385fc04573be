"""The file to which ``holdfast acquire`` writes its ticket. Only its owner can read it, and it is never partly written.

Before the lock is requested, the ticket is written to a new file in the same directory, and synced to disk. So the ticket of a
held lock is on disk even if this process is killed. Once the lock is held, the new file is renamed to the path that the user
has passed. If the lock is not acquired, the new file is removed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress

_OWN = re.compile(r"/dev/std(out|err)|/dev/fd/([0-9]{1,9})|/proc/self/fd/([0-9]{1,9})")
"""Pattern of the paths that stand for an open file of this process, such as /dev/stdout."""


class TicketFile:
    """A regular file for the ticket. A new file in the same directory replaces it when the lock is held."""

    def __init__(self, path: str) -> None:
        self._path = path
        folder, base = os.path.split(path)
        self._folder = folder or "."
        self._beside = os.path.join(self._folder, f".{base[:200]}.{os.urandom(6).hex()}")  # noqa: PTH118 (pathlib imports slowly)
        self._fd = -1

    def create(self) -> None:
        """Create the new file, in the directory of the final one. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self._beside, flags, 0o600)
        os.fchmod(self._fd, 0o600)  # independent of the umask

    def prepare(self, ticket: str) -> None:
        """Write a ticket to the new file, and sync it to disk, before the lock is requested. Raises OSError.

        The end of the lease is not known yet, so `finish` writes another ticket.
        """
        _write_all(self._fd, ticket)
        self._sync()

    def finish(self, ticket: str) -> None:
        """Overwrite the ticket of `prepare` with the final one, which has the same length, and rename the file. Raises
        OSError."""
        os.lseek(self._fd, 0, os.SEEK_SET)
        _write_all(self._fd, ticket)
        os.fsync(self._fd)
        os.rename(self._beside, self._path)  # noqa: PTH104 (pathlib imports slowly)
        self._sync()
        os.close(self._fd)

    def discard(self) -> None:
        """Close and remove the new file, because the lock was not acquired or the ticket could not be written."""
        if self._fd >= 0:
            os.close(self._fd)
        with suppress(OSError):  # the file was never created, or it was renamed and only the sync of its directory failed
            os.unlink(self._beside)  # noqa: PTH108 (pathlib imports slowly)

    def _sync(self) -> None:
        os.fsync(self._fd)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        except OSError as error:
            if error.errno != errno.EINVAL:  # some file systems cannot sync a directory
                raise
        finally:
            os.close(folder)


class Stream:
    """A pipe, a terminal or /dev/stdout for the ticket. It is written once, and never renamed or removed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def create(self) -> None:
        """Do nothing, because the stream exists already."""

    def prepare(self, ticket: str) -> None:
        """Do nothing. If a ticket were written before the lock is held, it could not be withdrawn from the stream."""

    def finish(self, ticket: str) -> None:
        """Write the ticket of the held lock, and close the stream. Raises OSError."""
        _write_all(self._fd, ticket)
        self.discard()

    def discard(self) -> None:
        """Close the stream, unless it is stdout or stderr."""
        if self._fd > 2:
            os.close(self._fd)


def open_for(path: str) -> TicketFile | Stream:
    """Return the file or stream for the path of ``--ticket-file``. Raises OSError if the path is unsafe or cannot be opened."""
    own = _OWN.fullmatch(path)
    if own is not None:
        number = own[2] or own[3] or {"out": "1", "err": "2"}[own[1]]
        return Stream(os.dup(int(number)))
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return TicketFile(path)
    if stat.S_ISREG(found.st_mode):
        return TicketFile(path)
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "the path is a symbolic link; name the file itself")
    if not (stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode)):
        raise OSError(errno.EINVAL, "the path is neither a file, a pipe nor a terminal")
    if found.st_uid not in {0, os.geteuid()}:
        raise OSError(errno.EPERM, "the path belongs to another user, who could read the ticket")
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
    if not os.path.samestat(found, os.fstat(fd)):
        os.close(fd)
        raise OSError(errno.EBUSY, "the path was replaced while it was opened")
    return Stream(fd)


def _write_all(fd: int, ticket: str) -> None:
    rest = f"{ticket}\n".encode()
    while rest:
        rest = rest[os.write(fd, rest) :]
