"""The errors that holdfast raises, as one tree of classes. The facts of an error, such as the lock's name, are attributes.

HoldfastError
├── LockTimeout (also TimeoutError)   the lock stayed busy for the whole time of ``wait``
│   └── InProgress                    the same call is running already
├── Deadlock                          several clients wait for each other's locks; this one gave up, so that the others go on
├── ResultNotKept                     the call ran earlier and its result could not be stored; the function is not run again
├── LeaseLost                         the lease has ended although it was not released, so another client may hold the lock now
├── NotHeld (also RuntimeError)       release or renewal of a lock that this object does not hold
│   └── ReleasedTooOften              (also ValueError) release of more permits of a semaphore than this object holds
├── HolderChanged                     the lock was not broken, because another client than the expected one holds it
├── NoCandidate (also LookupError)    no candidate of that name is campaigning; the leader continues to lead
├── TicketRefused                     a ticket that is no longer valid: used, expired, or its lock was broken
├── QuorumError                       too few servers agreed; ``nodes`` has the answer of each server
├── TransactionConflict               a watched key was changed, or the connection lost, before EXEC: no command was executed
├── CommandFailed                     a command of a transaction failed inside EXEC; the others were carried out
├── ServerError                       the server cannot be reached, or it refused the command; ``code`` is its error code
├── ConfigError (also ValueError)     an argument is invalid, or does not fit the data on the server; nothing was changed there
├── holdfast.BrokenBarrier            a barrier is broken, so waits at it fail until a reset (also threading.BrokenBarrierError)
├── schedule.JobFailed                the command of a job ended with an exit code other than 0, or could not be started
└── schedule.Cancelled                a job ended early because it was cancelled

Every error keeps its facts when it is pickled. No error contains a token or a password.
"""

from __future__ import annotations

from typing import Any


class HoldfastError(Exception):
    """Base class of all errors of this package. Facts passed by keyword become attributes, such as ``name`` or ``key``."""

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
    """The lock could not be acquired within ``wait`` seconds. The message names the holder, if the holder is known."""

    name: str
    key: str
    waited: float
    """Seconds spent waiting for the lock."""
    holder: str | None
    """The holder of the lock, as ``host:pid (label)``; None if it is unknown, for example a client of another library."""
    foreign: bool = False
    """True if the holder is a client of another library."""
    remaining: float | None
    """Seconds until the holder's lease ends unless it is renewed. During a quarantine, this is the number of seconds until the
    server grants locks again. None if the lease has no end, or if nothing is known about the holder."""


class InProgress(LockTimeout):
    """Another call of a `once` function with the same key is running, and did not end within ``wait`` seconds. The caller may
    try again later."""

    since: float
    """Seconds since the running call began."""


class ResultNotKept(HoldfastError):
    """An earlier `once` call with the same key ran, but its result could not be stored. The function was not run again.

    Either the result was too large, or the codec or the server refused it; ``reason`` is the cause, as text. The earlier caller
    got the result, and a HoldfastWarning.
    """

    name: str
    key: str
    fence: int
    """Fence of the earlier call."""
    reason: str


class Deadlock(HoldfastError):
    """The wait for the lock closed a cycle, in which each of several clients waits for a lock that another client holds.

    The client that began to wait last gets this error, if its lock has ``deadlock="raise"``. The other clients can go on once
    this client releases the locks that it holds.
    """

    name: str
    key: str
    cycle: Any
    """The clients of the cycle, each with the lock that it holds and the lock for which it waits. A
    `holdfast._core.deadlock.cycles.Cycle`."""


class LeaseLost(HoldfastError):
    """The lease ended, or the lock was broken, while the holder used the lock. ``reason`` says how the loss was noticed."""

    name: str
    key: str
    fence: int
    reason: str


class NotHeld(HoldfastError, RuntimeError):
    """Release or renewal of a lock that is not held here: never acquired, already released, or acquired before a fork."""

    name: str
    key: str


class HolderChanged(HoldfastError):
    """A lock was not broken, because another client than the named holder has the lock now, and keeps it."""

    name: str
    key: str


class ReleasedTooOften(NotHeld, ValueError):
    """More permits of a semaphore were released than this object holds. This error is also a ValueError, which
    threading.BoundedSemaphore raises in this case."""


class NoCandidate(HoldfastError, LookupError):
    """Leadership was to be handed over to a candidate that is not campaigning. The leader continues to lead."""

    name: str
    key: str
    candidate: str
    """Name of the candidate that was to be the next leader."""
    candidates: tuple[str, ...]
    """The candidates that campaign, in the order of the queue."""


class TicketRefused(HoldfastError):
    """A ticket (text that hands a held lock over to another process) that can no longer be redeemed."""

    name: str
    key: str
    reason: str
    """Reason why the ticket is refused: ``used`` (redeemed before); ``expired``; ``gone`` (the lock was broken or deleted, the
    server lost its data, or it is another server); ``late`` (the server's answer came too late)."""


class QuorumError(HoldfastError):
    """Too few of several servers granted the lock, or agreed to another request."""

    name: str
    nodes: dict[str, str]
    """The answer of each server, by the server's address."""
    _silent: bool = False
    """True if some servers did not reply in time, so that the missing votes might be theirs."""


class TransactionConflict(HoldfastError):
    """Before EXEC, another client changed a key that the transaction watches, or the connection that watches the keys was lost.
    No command of the transaction was executed."""

    keys: tuple[str, ...]
    """Keys that the transaction watched."""
    tries: int
    waited: float
    """Seconds from the first try of `Transaction.run` to this error; 0.0 if a ``with`` statement raised it."""


class CommandFailed(HoldfastError):
    """EXEC carried out a transaction, and some of its commands failed.

    The other commands took effect, because EXEC has no rollback.
    """

    keys: tuple[str, ...]
    """Keys that the transaction watched."""
    results: list[Any]
    """The replies to the commands, in order. The reply to a failed command is its error."""
    failed: dict[int, str]
    """Reason of each failed command, by the index of the command in the transaction, from 0."""


class ServerError(HoldfastError):
    """The server could not be reached, or it refused the command. The error of the operating system or of the client library is
    the ``__cause__``, if there was one."""

    address: str
    """Address at which the server was expected, without the password."""
    code: str = ""
    """First word of the server's error reply, such as ``NOPERM`` or ``LOADING``; empty if there was no reply."""
    _transient: bool = False
    """True if the server refused the command only for now, for example because it was still starting."""
    _silent: bool = False
    """True if no reply came in time, so that the server may be either busy or unreachable."""


class ConfigError(HoldfastError, ValueError):
    """An argument, URL or client is invalid, or does not fit the data on the server. ``parameter`` is the parameter's name."""

    parameter: str


class HoldfastWarning(UserWarning):
    """Warning of a problem that does not stop the call, such as an unconfirmed release, or a lease too short to renew."""
