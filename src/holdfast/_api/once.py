"""The common part of `once` in both APIs: its options, the meaning of stored results, and the facts for a running call."""

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
"""A connection that was idle while the function ran may be dead without a word: what gets no answer is asked on another one."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T_co]):
    """The outcome of a call."""

    value: T_co
    """None if it was skipped."""
    how: Literal["ran", "replayed", "skipped"]
    """It ran now; or it ran before, and this is what was stored; or it runs elsewhere, with ``busy="skip"``."""
    fence: int
    """Fence of the run that made the value; 0 if the call was skipped."""


class Job(NamedTuple):
    """The subject of one call."""

    name: str
    """The key as the user knows it: filled in."""
    entry: EntrySpec
    server: str
    """Which one has the key."""

    @property
    def what(self) -> str:
        """Describe the call, for messages."""
        return f"once {self.name!r}"

    @property
    def facts(self) -> dict[str, Any]:
        """Attributes of errors about the call."""
        return {"name": self.name, "key": self.entry.value.decode(errors="backslashreplace")}


class Running:
    """The running call of a `once` function, which `Once.current` returns inside of it. No method asks a server."""

    def __init__(self, me: object, job: Job, attempt: Attempt, load: Load, process: Process) -> None:
        self.me = me
        """The thread or task whose call it is."""
        self.outer = _running.get()
        """The call that this one was made in."""
        self.job, self.load = job, load
        self.attempt = attempt
        """Pending until what came of the call is told to the server."""
        self._process = process

    def __enter__(self) -> Self:
        _running.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _running.set(self.outer)

    @property
    def over(self) -> bool:
        """The call has ended; or this is in a forked child, to which it does not belong."""
        return not (self.attempt.may_be_on_server and self.here)

    @property
    def here(self) -> bool:
        """False in a forked child."""
        return self._process.here

    def __repr__(self) -> str:
        return f"<holdfast {self.job.what}, fence {self.fence}, {self.remaining():.1f} s left>"

    @property
    def name(self) -> str:
        """The key, filled in."""
        return self.job.name

    @property
    def fence(self) -> int:
        """Greater than that of every earlier run. Pass it on to what the function writes to, which refuses lower ones."""
        return self.load.fence

    def check(self) -> None:
        """Raise LeaseLost if the lease is lost, so that it may run again elsewhere; NotHeld if the call is over."""
        if self.over:
            why = "is over" if self.here else "belongs to the process that forked this one"
            raise NotHeld(f"this call of {self.job.what} (fence {self.fence}) {why}", **self.job.facts)
        if not self.remaining():
            raise lease_lost(self.job, self.load)

    def remaining(self) -> float:
        """Seconds for which the lease may still be relied on; 0.0 when it is lost or the call is over."""
        return 0.0 if self.over else self.load.remaining(self._process.clock())


def lease_lost(job: Job, load: Load) -> LeaseLost:
    """The user's error for it."""
    reason = load.lost or load.held_lease.why_over
    return LeaseLost(
        f"{job.what} (fence {load.fence}) has lost its lease while it ran: {reason}; its result is not stored, and it may run "
        "again elsewhere",
        fence=load.fence,
        reason=reason,
        **job.facts,
    )


_running: ContextVar[Running | None] = ContextVar("holdfast_once", default=None)


def _calls() -> Iterator[Running]:
    """The calls that this is part of, the innermost first. Those that are over may be among them where an interrupt hit us."""
    running = _running.get()
    while running is not None:
        if not running.over:
            yield running
        running = running.outer


def current() -> Running:
    """The innermost call that this is part of: its fence, and whether its lease is lost. Raises NotHeld outside of any."""
    for running in _calls():
        return running
    raise NotHeld("no function of once runs here", name="", key="")


class BaseOnce:
    """Options of `once`, and what they mean for a call, for both faces."""

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
        self._wish = LookupPolicy(wait=options.checked_wait(0.0 if wait is None and busy != "wait" else wait), fast_read=False)
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
        """Return the (cached) job of a key. Raises ConfigError."""
        self._job(template)  # refuses a bad key now, and not at the first call

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
        """Return the function that fills the key from a call's arguments. Raises ConfigError where that cannot be done."""
        refuse_generator(function, "it would run after the call, and has no result to be kept")
        refuse_unstorable(function, self._codec.kind)
        return Filled(function, self._template, ignore=self._ignore)

    def _named(self, fields: dict[str, object]) -> Job:
        """Return the subject of a call whose fields are passed by name."""
        if fields.keys() != set(self._fields):
            raise TypeError(f"once {self._template!r} is filled from {self._fields}, not from {sorted(fields)}")
        return self._job(self._template.format(**fields))

    def _refuse_itself(self, me: object, job: Job) -> None:
        """A call inside itself would wait for itself."""
        ours = (me, job.server, job.entry.value)
        if any((running.me, running.job.server, running.job.entry.value) == ours for running in _calls()):
            raise ConfigError(
                f"{job.what} runs in this very call already: calling it again inside would wait for itself; move what both "
                "need into a function without the decorator",
                parameter="template",
            )

    # The present state

    def _replayed(self, job: Job, record: Record) -> Outcome[Any]:
        """Return the meaning of a stored result. Raises what was remembered; ResultNotKept where there is only a mark."""
        if record.kind == flight.MARK:
            reason = record.data.decode(errors="replace")
            raise ResultNotKept(
                f"{job.what} ran before, and its result was not kept: {reason}; nothing has run now, nor will until the mark "
                "expires or you forget it",
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
                f"{job.what} ran before, and what was stored cannot be read here: {unreadable}; nothing has run now, nor "
                "will until that is over or you forget it",
                **job.facts,
            ) from None
        error.add_note(f"{job.what} ran before, and this was remembered: nothing has run now")
        raise error

    def _in_progress(self, job: Job, loading: Loading, who: bytes | None, waited: float) -> Outcome[Any]:
        """Return the answer for a call that another one keeps out."""
        if self._busy == "skip":
            return Outcome(None, "skipped", 0)
        holder = describe(who, loading.process)
        raise InProgress(
            f"{job.what} is in progress: {holder or 'somebody'} has been at it for {loading.since:.1f} s; waited {waited:.1f} "
            "s, try again later",
            waited=waited,
            holder=holder,
            remaining=loading.remaining,
            since=loading.since,
            **job.facts,
        )

    # Operations on a run

    async def _succeeded(self, running: Running, value: object) -> bool:
        """Store the result, or a mark that it was not kept; False if nobody knows. Raises LeaseLost if it may not be stored."""
        if not running.here:
            return False
        try:
            kind, data = self._codec.kind, self._codec.encode(value, running.job.what)
        except ConfigError as error:
            # It has run, and is not to run again: whoever calls it is told why there is no result.
            kind, data = flight.MARK, _cut(str(error).removeprefix(f"{running.job.what}: "))
        kept = await self._stored(running, kind, data)
        if kept is False:
            raise lease_lost(running.job, running.load)
        return bool(kept)

    async def _failed(self, running: Running, error: BaseException) -> None:
        """Remember the exception, or let the next one run. Raises nothing of its own: the exception goes on."""
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
        """Store what came of it, or a mark, with a warning; False if that is not for this run to say any more. None, with a
        warning, if nobody knows."""
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
                "what came of it is not stored: it may"
                if refused_too
                else ("nobody knows whether what came of it is stored: if that does not succeed before its lease ends, it may")
            )
            warning = f"{told(error, job.what, **job.facts)}; the function has run, and {what} run again"
        running.attempt.may_be_on_server = False
        if kept is False:
            load.held_lease.lost = load.lost or "it was forgotten meanwhile, or its time ran out"
        elif warning:
            ends = "; the function has run, and later calls raise ResultNotKept" if kept else ""
            warnings.warn(warning + ends, HoldfastWarning, of_the_user())
        return kept


def _cut(reason: str) -> bytes:
    """The text of a mark, which is stored even if memory is full: a short one."""
    return reason.encode(errors="backslashreplace")[:500].decode(errors="ignore").encode()


def refuse(job: Job, error: WireError | KeyConflict) -> HoldfastError:
    """The user's error, where nothing has run."""
    if isinstance(error, WireError):
        return told(error, job.what, **job.facts)
    if isinstance(error, flight.TooLong):
        return ConfigError(
            f"{job.what} ran before, and {error}: pass a max_size of at least that to read it; nothing has run now",
            parameter="max_size",
        )
    return ConfigError(f"{job.what} cannot be used: {error}; nothing was changed", parameter="template")
