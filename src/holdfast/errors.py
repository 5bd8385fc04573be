"""Every error holdfast raises: one tree, facts as attributes, whole sentences as messages.

HoldfastError
├── LockTimeout (also TimeoutError)   busy for as long as we were willing to wait
│   └── InProgress                    the same call is running already
├── Deadlock                          those who wait for each other would wait for ever, and this one gives way
├── ResultNotKept                     the call has run before, and its result could not be stored: nothing runs again
├── LeaseLost                         held once, not any more: somebody else may hold it now
├── NotHeld (also RuntimeError)       release or renewal of something this process does not hold
│   └── ReleasedTooOften              (also ValueError) more permits of a semaphore than this object holds
├── HolderChanged                     somebody else has the lock than was seen to: it was not taken away
├── NoCandidate (also LookupError)     nobody of that name is campaigning; the leader goes on leading
├── TicketRefused                     a ticket that is not good any more: used, expired, or the lock was taken away
├── QuorumError                       too few servers agreed; ``nodes`` says what each one answered
├── TransactionConflict               somebody else was quicker: nothing of the transaction was carried out
├── CommandFailed                     a command of a transaction failed inside EXEC; the others were carried out
├── ServerError                       the server cannot be reached, or refused; the cause is attached
├── ConfigError (also ValueError)     bad input, refused before anything was sent
├── barrier.BrokenBarrier             not all of those come who are to meet (also threading.BrokenBarrierError)
├── schedule.JobFailed                the command of a job ended with another exit code than 0, or could not be run
└── schedule.Cancelled                a job ended early because it was told to

All of them survive pickling with their facts. None carries a token or a password.
"""

from __future__ import annotations

from typing import Any


class HoldfastError(Exception):
    """Root of all errors of this package. Keyword facts become attributes: ``name``, ``key``, ``waited`` (seconds), …"""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.__dict__.update(facts)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[HoldfastError], args: tuple[Any, ...], facts: dict[str, Any]) -> HoldfastError:
    error = cls.__new__(cls, *args)
    Exception.__init__(error, *args)
    error.__dict__.update(facts)
    return error


class LockTimeout(HoldfastError, TimeoutError):
    """The lock was busy until ``wait`` ran out. The message says who holds it, where that is known."""

    name: str
    key: str
    waited: float
    """Seconds spent waiting."""
    holder: str | None
    """The holder of the lock, as ``host:pid (label)``; None when unknown, as with a client of another library."""
    foreign: bool = False
    """The holder is a client of another library."""
    remaining: float | None
    """Seconds until the holder's lease ends unless renewed; None when it has no end, or when the holder is unknown."""


class InProgress(LockTimeout):
    """The same call is running already, and no result came within ``wait``. A second click may try again later."""

    since: float
    """Seconds since that call began."""


class ResultNotKept(HoldfastError):
    """A call of `once` has run before, and its result was not stored: it is too large, or the codec or the server refused it.
    So nothing has run now. ``reason`` says why. The caller of that run got its result, and a warning."""

    name: str
    key: str
    fence: int
    """Fence of the run that has happened."""
    reason: str


class Deadlock(HoldfastError):
    """The wait for the lock closed a cycle: each of several clients waits for a lock that another one holds.

    The client that began to wait last gets this error, if its lock has ``deadlock="raise"``. The others go on when it releases
    the locks that it holds.
    """

    name: str
    key: str
    cycle: Any
    """The clients of the cycle, with the locks that each holds and waits for: a `holdfast._api.sync_deadlock.Cycle`."""


class LeaseLost(HoldfastError):
    """The lease ended or was taken away while it was held. ``reason`` says how that was noticed."""

    name: str
    key: str
    fence: int
    reason: str


class NotHeld(HoldfastError, RuntimeError):
    """Release or renewal of a lock that is not held here: never taken, given back already, or taken before a fork."""

    name: str
    key: str


class HolderChanged(HoldfastError):
    """A lock was to be taken away from somebody who does not have it any more: somebody else does, and keeps it."""

    name: str
    key: str


class ReleasedTooOften(NotHeld, ValueError):
    """More permits were given back than are held here. A ValueError, as threading.BoundedSemaphore's."""


class NoCandidate(HoldfastError, LookupError):
    """Leadership was to be handed over to somebody who is not campaigning. Nothing has changed."""

    name: str
    key: str
    candidate: str
    """The candidate that was named."""
    candidates: tuple[str, ...]
    """The candidates that campaign, in the order of the queue."""


class TicketRefused(HoldfastError):
    """A ticket that cannot be redeemed any more."""

    name: str
    key: str
    reason: str
    """``used``; ``expired``; ``gone``: the lock was taken away from it before its time; ``late``: the answer came too late."""


class QuorumError(HoldfastError):
    """Too few of several servers agreed."""

    name: str
    nodes: dict[str, str]
    """The answer of each server, by its address."""


class TransactionConflict(HoldfastError):
    """Another client changed a key that the transaction watches before EXEC. No command of the transaction was executed."""

    keys: tuple[str, ...]
    """Keys that were watched."""
    tries: int
    waited: float
    """Seconds from the first try on."""


class CommandFailed(HoldfastError):
    """EXEC carried out a transaction, and some of its commands failed. The others were carried out: there is no rollback."""

    keys: tuple[str, ...]
    """Keys that were watched."""
    results: list[Any]
    """The replies of EXEC, command by command; for a failed command, its error."""
    failed: dict[int, str]
    """The failed commands: their numbers, from 0, and the reasons."""


class ServerError(HoldfastError):
    """The server could not be reached, or it refused the command. The client's own error is the ``__cause__``."""

    address: str
    """The address at which the server was expected, without the password."""


class ConfigError(HoldfastError, ValueError):
    """Bad input, named by its parameter and refused before anything was sent."""

    parameter: str


class HoldfastWarning(UserWarning):
    """Something worth knowing that is no reason to stop: a release that could not be confirmed, a lease too short to renew."""
