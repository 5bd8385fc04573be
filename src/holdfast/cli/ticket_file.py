"""The file to which `acquire` writes its ticket: private, and never half written.

The ticket is written to a new file beside the named one, and synced, before the server is asked for it: if this process is
killed at any later moment, the ticket is on disk. The file is renamed once the lock is held, and removed otherwise, so an
earlier ticket stays where it is until then.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress

_OWN = re.compile(r"/dev/std(out|err)|/dev/fd/([0-9]{1,9})|/proc/self/fd/([0-9]{1,9})")
"""Names of what this process has open. They are links, and lead to what others may own."""


class TicketFile:
    """A regular file: written beside it, and renamed."""

    def __init__(self, path: str) -> None:
        self._path = path
        folder, base = os.path.split(path)
        self._folder = folder or "."
        self._beside = os.path.join(self._folder, f".{base[:200]}.{os.urandom(6).hex()}")  # noqa: PTH118 (pathlib imports slowly)
        self._fd = -1

    def create(self) -> None:
        """Make the new file. Raises OSError. In every other case `discard` removes the file."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self._beside, flags, 0o600)
        os.fchmod(self._fd, 0o600)  # whatever the umask

    def prepare(self, ticket: str) -> None:
        """Write the ticket down before the server is asked for it. Raises OSError."""
        _write_all(self._fd, ticket)
        self._sync()

    def finish(self, ticket: str) -> None:
        """Write the ticket that the server has granted in its place: it is as long. Raises OSError."""
        os.lseek(self._fd, 0, os.SEEK_SET)
        _write_all(self._fd, ticket)
        os.fsync(self._fd)
        os.rename(self._beside, self._path)  # noqa: PTH104 (pathlib imports slowly)
        self._sync()
        os.close(self._fd)

    def discard(self) -> None:
        """There is no ticket."""
        if self._fd >= 0:
            os.close(self._fd)
        with suppress(OSError):  # it was never made; or it was renamed, and only the sync of the directory failed
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
    """A pipe, a terminal, /dev/stdout: written once, and neither renamed nor removed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def create(self) -> None:
        """Nothing: it is there."""

    def prepare(self, ticket: str) -> None:
        """Nothing: what is written there cannot be taken back."""

    def finish(self, ticket: str) -> None:
        """Write the ticket. Raises OSError."""
        _write_all(self._fd, ticket)
        self.discard()

    def discard(self) -> None:
        """There is no ticket, or it is written."""
        if self._fd > 2:
            os.close(self._fd)


def open_for(path: str) -> TicketFile | Stream:
    """Return where the ticket for ``--ticket-file`` goes. Raises OSError."""
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
        raise OSError(errno.ELOOP, "is a link; name the file itself")
    if not (stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode)):
        raise OSError(errno.EINVAL, "is neither a file, nor a pipe or terminal")
    if found.st_uid not in {0, os.geteuid()}:
        raise OSError(errno.EPERM, "belongs to another user, who could read the ticket")
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
    if not os.path.samestat(found, os.fstat(fd)):
        os.close(fd)
        raise OSError(errno.EBUSY, "was replaced meanwhile")
    return Stream(fd)


def _write_all(fd: int, ticket: str) -> None:
    rest = f"{ticket}\n".encode()
    while rest:
        rest = rest[os.write(fd, rest) :]
