"""The common base of `once` in both APIs: its options, running calls, and how results are stored and returned again."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar

from holdfast import codecs
from holdfast._api import options
from holdfast._api.annotations import refuse_unstorable
from holdfast._api.cache.options import checked_size
from holdfast._api.error_map import told
from holdfast._api.functions import refuse_generator
from holdfast._api.templates import Filled, checked_ignore, fields_of
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.records import Attempt, answer_within
from holdfast._core.names import start
from holdfast._core.requests import Refused, WireError
from holdfast._core.single_flight import flight
from holdfast._core.single_flight.flight import EntrySpec, Load, Loading, LookupPolicy, Record
from holdfast._log import of_the_user
from holdfast._runtime.process import Process, describe
from holdfast.errors import ConfigError, HoldfastError, HoldfastWarning, InProgress, LeaseLost, NotHeld, ResultNotKept

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MIN_KEEP = 0.001

TRIES = 2
"""Tries of each request. A connection that was idle while the function ran may have died unnoticed, so the next
one is tried."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T_co]):
    """The outcome of a call of a `once` function: its value, and how the value came about."""

    value: T_co
    """The result; None if the call was skipped."""
    how: Literal["ran", "replayed", "skipped"]
    """``"ran"``: the function ran now; ``"replayed"``: the stored result of an earlier run; ``"skipped"``: it runs elsewhere
    now."""
    fence: int
    """Fence of the run that returned the value; 0 if the call was skipped."""


class Job(NamedTuple):
    """A key of `once`, and the entry on the server where its lease and its result are stored."""

    name: str
    """The key, filled in, without the prefix."""
    entry: EntrySpec
    server: str
    """Address of the server that has the key."""

    @property
    def what(self) -> str:
        """A description of the call, for messages."""
        return f"once {self.name!r}"

    @property
    def facts(self) -> dict[str, Any]:
        """Attributes of errors about the call: name and key."""
        return {"name": self.name, "key": self.entry.value.decode(errors="backslashreplace")}


class Running:
    """A running call of a `once` function, as `Once.current` returns it inside of the function. No method asks a server."""

    def __init__(self, me: object, job: Job, attempt: Attempt, load: Load, process: Process) -> None:
        self.me = me
        """The thread or task that makes the call."""
        self.outer = _running.get()
        """The running call of a `once` function around this one, or None."""
        self.job, self.load = job, load
        self.attempt = attempt
        """The attempt that holds the lease; on the server until the outcome of the call is stored there."""
        self._process = process

    def __enter__(self) -> Self:
        _running.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _running.set(self.outer)

    @property
    def over(self) -> bool:
        """True once the call has ended, and always in a forked child, to which it does not belong."""
        return not (self.attempt.may_be_on_server and self.here)

    @property
    def here(self) -> bool:
        """True in the process that makes the call; False in a child forked from it."""
        return self._process.here

    def __repr__(self) -> str:
        return f"<holdfast {self.job.what}, fence {self.fence}, {self.remaining():.1f} s left>"

    @property
    def name(self) -> str:
        """The key, filled in from the arguments of the call."""
        return self.job.name

    @property
    def fence(self) -> int:
        """Number of this run, greater than that of every earlier run of the key. Send it along with the writes of the function,
        so that the resource can refuse writes with a lower fence."""
        return self.load.fence

    def check(self) -> None:
        """Raise LeaseLost if the lease is lost, so that the function may run again elsewhere; NotHeld if the call has ended."""
        if self.over:
            why = "is over" if self.here else "belongs to the process that forked this one"
            raise NotHeld(f"this call of {self.job.what} (fence {self.fence}) {why}", **self.job.facts)
        if not self.remaining():
            raise lease_lost(self.job, self.load)

    def remaining(self) -> float:
        """Return the seconds for which the lease is still valid if it is not renewed; 0.0 after a loss or the
        end of the call."""
        return 0.0 if self.over else self.load.remaining(self._process.clock())


def lease_lost(job: Job, load: Load) -> LeaseLost:
    """Return the LeaseLost for a call that lost its lease while the function ran."""
    reason = load.lost or load.held_lease.why_over
    return LeaseLost(
        f"{job.what} (fence {load.fence}) lost its lease while it ran: {reason}; its result is not stored, and another call "
        "may run it again",
        fence=load.fence,
        reason=reason,
        **job.facts,
    )


_running: ContextVar[Running | None] = ContextVar("holdfast_once", default=None)


def _calls() -> Iterator[Running]:
    """Yield the running calls that this code is inside of, innermost first. After an interrupt, ended ones are skipped."""
    running = _running.get()
    while running is not None:
        if not running.over:
            yield running
        running = running.outer


def current() -> Running:
    """Return the innermost running call of a `once` function around this code: for its fence, and to check its lease.

    Raises NotHeld outside of such a function.
    """
    for running in _calls():
        return running
    raise NotHeld("this code does not run inside a function decorated with once", name="", key="")


class BaseOnce:
    """The options of `once`: the part that the sync and the asyncio API share."""

    def __init__(
        self,
        caller: Any,
        template: str,
        *,
        keep: float,
        busy: str,
        wait: float | None,
        ttl: float,
        max_hold: float | None,
        errors: Any,
        codec: Any,
        prefix: str,
        ignore: Any,
        max_size: int,
    ) -> None:
        if busy not in {"wait", "raise", "skip"}:
            raise ConfigError(f"busy must be 'raise', 'skip' or 'wait', not {busy!r}", parameter="busy")
        self._caller, self._template, self._busy, self._prefix = caller, template, busy, prefix
        self._fields = list(dict.fromkeys(fields_of(template, None)))
        self._keep = options.seconds(keep, "keep", MIN_KEEP)
        patience = options.checked_wait(0.0 if wait is None and busy != "wait" else wait)
        self._policy = LookupPolicy(wait=patience, fast_read=False)
        self._ttl = options.seconds(ttl, "ttl", options.MIN_TTL)
        if self._ttl < options.SHORT:
            options.warn_of_short(self._ttl)
        self._max_hold = None if max_hold is None else options.seconds(max_hold, "max_hold", options.MIN_TTL)
        self._timeout = min(self._caller.timeout, answer_within(self._ttl))
        self._errors = codecs.exception_types(errors, "errors")
        self._codec = codecs.find(codec)
        self._ignore = checked_ignore(ignore)
        self._max_size = checked_size(max_size)
        start(prefix)
        self._job: Callable[[str], Job] = functools.lru_cache(1024)(self._made)
        """Function that returns the (cached) job of a filled-in key. Raises ConfigError if the key is empty or too long."""
        self._job(template)  # Refuses a bad key now, not at the first call.

    def __repr__(self) -> str:
        return f"<holdfast once {self._template!r} on {self._caller.address}>"

    def _made(self, name: str) -> Job:
        prefix = f"{self._prefix}once:"
        entry = flight.entry_spec(
            prefix,
            name,
            lease=self._ttl,
            timeout=self._timeout,
            max_hold=self._max_hold,
            tries=TRIES,
            max_size=self._max_size,
            keeps=True,
        )
        return Job(name, entry, self._caller.address)

    def _filled(self, function: Callable[..., object]) -> Filled:
        """Return an object that fills the key from the arguments of a call. Raises ConfigError if it cannot do that."""
        refuse_generator(function, "its body would run after the call, and there is no result to store")
        refuse_unstorable(function, self._codec.kind)
        return Filled(function, self._template, ignore=self._ignore)

    def _named(self, fields: dict[str, object]) -> Job:
        """Return the job for a call that passes the fields of the key by name. Raises TypeError if other fields are passed."""
        if fields.keys() != set(self._fields):
            raise TypeError(f"the key {self._template!r} is filled from {self._fields}, not from {sorted(fields)}")
        return self._job(self._template.format(**fields))

    def _refuse_itself(self, me: object, job: Job) -> None:
        """Raise ConfigError if the function is called inside itself with the same key: it would wait for itself."""
        ours = (me, job.server, job.entry.value)
        if any((running.me, running.job.server, running.job.entry.value) == ours for running in _calls()):
            raise ConfigError(
                f"{job.what} runs in the same call stack already, so this call would wait for itself; move the shared code "
                "into a function without the decorator",
                parameter="template",
            )

    # Results of earlier runs

    def _replayed(self, job: Job, record: Record) -> Outcome[Any]:
        """Return the outcome of a call whose result is stored.

        Raises the exception that was stored; ResultNotKept if only the fact of the run was stored; HoldfastError if the stored
        value cannot be decoded.
        """
        if record.kind == flight.MARK:
            reason = record.data.decode(errors="replace")
            raise ResultNotKept(
                f"{job.what} ran before, and its result was not kept: {reason}; the function has not run now, and will not "
                "until this expires or you call forget()",
                fence=record.fence,
                reason=reason,
                **job.facts,
            )
        try:
            if record.kind != codecs.ERROR:
                return Outcome(self._codec.decode(record.kind, record.data), "replayed", record.fence)
            error: Exception = codecs.decode_error(record.data, self._errors)
        except codecs.Undecodable as unreadable:
            raise HoldfastError(
                f"{job.what} ran before, and its stored result cannot be read here: {unreadable}; the function has not run "
                "now, and will not until the result expires or you call forget()",
                **job.facts,
            ) from None
        error.add_note(f"{job.what} ran before, and this exception was stored: the function has not run now")
        raise error

    def _in_progress(self, job: Job, loading: Loading, who: bytes | None, waited: float) -> Outcome[Any]:
        """Return or raise the answer to a call whose key is in progress elsewhere: "skipped", or InProgress."""
        if self._busy == "skip":
            return Outcome(None, "skipped", 0)
        holder = describe(who, loading.process)
        raise InProgress(
            f"{job.what} is in progress: {holder or 'another client'} has run it for {loading.since:.1f} s; waited "
            f"{waited:.1f} s, try again later",
            waited=waited,
            holder=holder,
            remaining=loading.remaining,
            since=loading.since,
            **job.facts,
        )

    # Operations on a run

    async def _succeeded(self, running: Running, value: object) -> bool:
        """Store the result, or only the fact of the run if it cannot be stored. Return False if it is unknown whether that
        worked.

        Raises LeaseLost if the lease was lost, so that the result must not be stored.
        """
        if not running.here:
            return False
        try:
            kind, data = self._codec.kind, self._codec.encode(value, running.job.what)
        except ConfigError as error:
            # The function has run and must not run again, so the fact is stored. Later callers are told why there is no result.
            kind, data = flight.MARK, _cut(str(error).removeprefix(f"{running.job.what}: "))
        kept = await self._stored(running, kind, data)
        if kept is False:
            raise lease_lost(running.job, running.load)
        return bool(kept)

    async def _failed(self, running: Running, error: BaseException) -> None:
        """Store the exception if its type is in ``errors``, else free the key. Raises nothing; the caller
        re-raises ``error``."""
        if not running.here:
            return
        kept: bool | None = not running.load.lost
        if isinstance(error, self._errors):
            kept = await self._stored(running, codecs.ERROR, codecs.encode_error(error))
        else:
            await flight.cancel_load(running.load)
            running.attempt.may_be_on_server = False
        if kept is False and not isinstance(error, LeaseLost):
            error.add_note(str(lease_lost(running.job, running.load)))

    async def _stored(self, running: Running, kind: str, data: bytes) -> bool | None:
        """Store a result or an exception; if it is too large, store only the fact of the run, and warn.

        Return False if the lease was lost, so that nothing was stored; None, with a warning, if the outcome is unknown.
        """
        job, load, kept = running.job, running.load, None
        if kind != flight.MARK and len(data) > self._max_size:
            kind, data = flight.MARK, _cut(f"it has {len(data):,} bytes, and max_size is {self._max_size:,}")
        warning, mark = "", data if kind == flight.MARK else _cut(f"the server refused to store its {len(data):,} bytes")
        try:
            kept = await flight.store_loaded(load, kind, data, ttl=self._keep, mark=mark)
            if kind == flight.MARK:
                warning = f"{job.what}: the result is not kept: {data.decode()}"
        except flight.Marked as refused:
            kept, warning = True, f"{job.what}: the result is not kept: {mark.decode()}: {refused}"
        except WireError as error:
            refused_too = isinstance(error, Refused) and not error.transient
            what = (
                "the result is not stored: it may"
                if refused_too
                else ("it is unknown whether the result is stored: if storing does not succeed before the lease ends, it may")
            )
            warning = f"{told(error, job.what, **job.facts)}; the function has run, and {what} run again"
        running.attempt.may_be_on_server = False
        if kept is False:
            load.held_lease.lost = load.lost or "its result was dropped by forget(), or its lease ran out"
        elif warning:
            ends = "; the function has run, and later calls raise ResultNotKept" if kept else ""
            warnings.warn(warning + ends, HoldfastWarning, of_the_user())
        return kept


def _cut(reason: str) -> bytes:
    """Return a reason as short bytes, so that it can be stored even if the server's memory is full."""
    return reason.encode(errors="backslashreplace")[:500].decode(errors="ignore").encode()


def refuse(job: Job, error: WireError | KeyConflict) -> HoldfastError:
    """Return the user's error for a call that failed before the function ran."""
    if isinstance(error, WireError):
        return told(error, job.what, **job.facts)
    if isinstance(error, flight.TooLong):
        return ConfigError(
            f"{job.what} ran before, and {error}: pass a max_size of at least that to read it; the function has not run now",
            parameter="max_size",
        )
    return ConfigError(f"{job.what} cannot be used: {error}; nothing was changed", parameter="template")
