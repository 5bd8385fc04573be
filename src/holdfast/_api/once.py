"""`once` runs a function once for each key, stores its result, and returns it again later. For threads and for asyncio."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Concatenate, Generic, Literal, NamedTuple, Never, ParamSpec, Protocol, Self, TypeVar, overload

from holdfast import codecs
from holdfast._api import error_map, options
from holdfast._api.annotations import refuse_unstorable
from holdfast._api.cache.options import checked_size
from holdfast._api.caller import AioCaller, Caller
from holdfast._api.error_map import told
from holdfast._api.flow import InTasks, InThreads, Steps, complete, of_asyncio
from holdfast._api.functions import is_async, named, refuse_generator, takes_options
from holdfast._api.templates import Filled, checked_ignore, fields_of
from holdfast._clock import clock
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.records import Attempt
from holdfast._core.lock.spec import answer_within
from holdfast._core.names import start
from holdfast._core.requests import Refused, WireError
from holdfast._core.single_flight import flight
from holdfast._core.single_flight.entry import MAX_SIZE
from holdfast._core.single_flight.flight import EntrySpec, FoundValue, Load, Loading, LookupPolicy, StoredValue
from holdfast._durations import Seconds
from holdfast._log import of_the_user
from holdfast._net.clients import AsyncClient, Connected, SyncClient
from holdfast._net.redaction import hides_client
from holdfast._runtime.process import Process, describe
from holdfast.errors import ConfigError, HoldfastError, HoldfastWarning, InProgress, LeaseLost, NotHeld, ResultNotKept

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Skipped_co = TypeVar("Skipped_co", covariant=True)
"""The result of a call that is skipped: None, or Never if no call is skipped."""

MIN_KEEP = 0.001
"""Shortest ``keep``, in seconds."""

TRIES = 2
"""Maximum number of times that each request is sent. While the function runs, the connection is idle and may die unnoticed, so
a second try uses another connection."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T_co]):
    """The outcome of a call of a `once` function: its value, and how the value came about."""

    value: T_co
    """The result; None if the call was skipped."""
    how: Literal["ran", "replayed", "skipped"]
    """``"ran"``: the function ran now. ``"replayed"``: this is the stored result of an earlier run. ``"skipped"``: the function
    is running in another call."""
    fence: int
    """Fence of the run that returned the value; 0 if the call was skipped."""


class OnceCall(NamedTuple):
    """A key of `once`, and the entry on the server where its lease and its result are stored."""

    name: str
    """The key with its fields filled in, without the prefix."""
    entry: EntrySpec
    server: str
    """Address of the server that has the key."""

    @property
    def what(self) -> str:
        return f"once {self.name!r}"

    @property
    def facts(self) -> dict[str, Any]:
        return {"name": self.name, "key": self.entry.value.decode(errors="backslashreplace")}


class Running:
    """A running call of a `once` function, as `Once.current` returns it inside of the function. No method asks a server."""

    outer: Running | None

    def __init__(self, me: object, job: OnceCall, attempt: Attempt, load: Load, process: Process) -> None:
        self.me = me
        """The thread or task that makes the call."""
        self.outer = _running.get()
        """The running call of a `once` function around this one, or None."""
        self.job = job
        """The key of the call, and its entry on the server."""
        self.load = load
        """The lease of the call, as the server knows it."""
        self.attempt = attempt
        """The attempt that holds the lease until the outcome of the call is stored on the server."""
        self._process = process

    def __enter__(self) -> Self:
        _running.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _running.set(self.outer)

    @property
    def over(self) -> bool:
        """True once the call has ended. Always True in a forked child, because the call belongs to the parent."""
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
        """Raise LeaseLost if the lease is lost (the function may then run again elsewhere), NotHeld if the call has ended."""
        if self.over:
            why = "is over" if self.here else "belongs to the process that forked this one"
            raise NotHeld(f"this call of {self.job.what} (fence {self.fence}) {why}", **self.job.facts)
        if not self.remaining():
            raise lease_lost(self.job, self.load)

    def remaining(self) -> float:
        """Return the seconds until the lease ends unless it is renewed; 0.0 after a loss or the end of the call."""
        return 0.0 if self.over else self.load.remaining(self._process.clock())


def lease_lost(job: OnceCall, load: Load) -> LeaseLost:
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
    """Yield the running calls that this code is inside of, innermost first. Calls that are over are skipped."""
    running = _running.get()
    while running is not None:
        if not running.over:
            yield running
        running = running.outer


def current() -> Running:
    """Return the innermost running `once` call around this code. It has the fence, and can check the lease.

    Raises NotHeld outside of a `once` function.
    """
    for running in _calls():
        return running
    raise NotHeld("this code does not run inside a function decorated with once", name="", key="")


class BaseOnce(Steps):
    """The options and the flows of `once`. Base class for threads and for asyncio."""

    @staticmethod
    def current() -> Running:
        """Return the innermost running `once` call around this code. It has the fence, and can check the lease.

        Raises NotHeld outside of a `once` function.
        """
        return current()

    @staticmethod
    async def _call_leased(job: OnceCall, load: Load, function: Callable[[], Any]) -> Any:
        """Call the function of the user under its lease. In asyncio, await it, and cancel it if the lease is lost."""
        raise NotImplementedError

    def __init__(
        self,
        caller: Any,
        template: str,
        *,
        keep: Seconds,
        busy: str,
        wait: Seconds | None,
        ttl: Seconds,
        max_hold: Seconds | None,
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
        self._job: Callable[[str], OnceCall] = functools.lru_cache(1024)(self._made)
        """Function that returns the (cached) job of a filled-in key. Raises ConfigError if the key is empty or too long."""
        self._job(template)  # Refuses a bad key now, not at the first call.

    def __repr__(self) -> str:
        return f"<holdfast once {self._template!r} on {self._caller.address}>"

    def _made(self, name: str) -> OnceCall:
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
        return OnceCall(name, entry, self._caller.address)

    def _decorated(self, function: Callable[..., Any]) -> Any:
        filled = self._filled(function)

        async def run(*args: Any, **kwargs: Any) -> Outcome[Any]:
            return await self._run(self._job(filled(args, kwargs)[0]), functools.partial(function, *args, **kwargs))

        async def forget(*args: Any, **kwargs: Any) -> bool:
            return await self._forget(self._job(filled(args, kwargs)[0]))

        async def call(*args: Any, **kwargs: Any) -> Any:
            return (await run(*args, **kwargs)).value

        decorated: Any = self._as_function(call, function)
        decorated.run, decorated.forget = self._as_function(run), self._as_function(forget)
        return decorated

    def _filled(self, function: Callable[..., object]) -> Filled:
        refuse_generator(function, "its body would run after the call, and there is no result to store")
        refuse_unstorable(function, self._codec.kind)
        return Filled(function, self._template, ignore=self._ignore)

    def _named(self, fields: dict[str, object]) -> OnceCall:
        """Return the job for a call that passes the fields of the key by name. Raises TypeError if other fields are passed."""
        if fields.keys() != set(self._fields):
            raise TypeError(f"the key {self._template!r} is filled from {self._fields}, not from {sorted(fields)}")
        return self._job(self._template.format(**fields))

    def _refuse_itself(self, me: object, job: OnceCall) -> None:
        """Raise ConfigError if the function is called inside itself with the same key. The call would wait for itself."""
        ours = (me, job.server, job.entry.value)
        if any((running.me, running.job.server, running.job.entry.value) == ours for running in _calls()):
            raise ConfigError(
                f"{job.what} runs in the same call stack already, so this call would wait for itself; move the shared code "
                "into a function without the decorator",
                parameter="template",
            )

    # Flows

    async def _forget(self, job: OnceCall) -> bool:
        dropped: bool = await self._caller.run(flight.delete(job.entry), job.entry.value, job.what)
        return dropped

    async def _run(self, job: OnceCall, function: Callable[[], Any]) -> Outcome[Any]:
        attempt = Attempt(job.entry.spec)
        try:
            return await self._outcome(job, attempt, function)
        except self._dropped:
            raise  # The keeper (background thread) releases the lease.
        except BaseException:
            if attempt.may_be_on_server:
                # An exception of an interrupt or a signal handler can come at any line.
                await self._caller.run(flight.abandon(job.entry, attempt), job.entry.value, job.what)
            raise

    async def _outcome(self, job: OnceCall, attempt: Attempt, function: Callable[[], Any]) -> Outcome[Any]:
        me, started = self._this_task(), clock()
        self._refuse_itself(me, job)
        driver, found = await self._look(job, attempt)
        if isinstance(found, FoundValue):
            return self._replayed(job, found.record)
        if isinstance(found, Loading):
            record = await self._run_on(driver, error_map.record_of(found.process, job.entry.spec.keys[0]))
            return self._in_progress(job, found, record, clock() - started)
        with Running(me, job, attempt, found, driver.process) as running:
            try:
                value = await self._call_leased(job, found, function)
            except self._dropped:
                raise
            except BaseException as error:
                await self._run_on(driver, self._failed(running, error))
                raise
        await self._run_on(driver, self._succeeded(running, value))
        return Outcome(value, "ran", found.fence)

    async def _look(self, job: OnceCall, attempt: Attempt) -> tuple[Any, FoundValue | Load | Loading]:
        """Find a stored result or a running call; else acquire the lease."""
        try:
            driver = await self._caller.driver(job.entry.value)
            found = await self._run_on(driver, flight.get_or_lease(job.entry, self._policy, attempt))
        except (WireError, KeyConflict) as error:
            raise refuse(job, error) from error_map.cause(error)
        assert isinstance(found, FoundValue | Load | Loading)
        return driver, found

    # Results of earlier runs

    def _replayed(self, job: OnceCall, record: StoredValue) -> Outcome[Any]:
        """Return the outcome of an earlier run, or raise its stored exception. Raises ResultNotKept and HoldfastError."""
        if record.kind == flight.MARK:
            reason = record.data.decode(errors="replace")
            raise ResultNotKept(
                f"{job.what} ran before, and its result was not kept: {reason}; the function has not run now, and will not "
                "until this record expires or you call forget()",
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

    def _in_progress(self, job: OnceCall, loading: Loading, who: bytes | None, waited: float) -> Outcome[Any]:
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
        """Store the result. If the codec refuses it, store only that the function has run.

        Return True if something was stored. Return False after an error of the server, and in a forked child.
        Raises LeaseLost if the lease was lost.
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
        """Store the exception if its type is in ``errors``, else give up the lease. The caller re-raises ``error``."""
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
        """Store a result or an exception. If it is too large, store only that the function has run, and warn.

        Return True if something was stored, False if the lease was lost. After an error of the server, warn and return None.
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
                "the result is not stored, so the function may"
                if refused_too
                else "it is unknown whether the result is stored: if not, the function may"
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


def refuse(job: OnceCall, error: WireError | KeyConflict) -> HoldfastError:
    if isinstance(error, WireError):
        return told(error, job.what, **job.facts)
    if isinstance(error, flight.TooLong):
        return ConfigError(
            f"{job.what} ran before, and {error}: pass at least this max_size to read the result; the function has not run now",
            parameter="max_size",
        )
    return ConfigError(f"{job.what} cannot be used: {error}; nothing was changed", parameter="template")


def _refuse_coroutine(function: Callable[..., object]) -> None:
    """Raise ConfigError for a coroutine function, because a plain call would only create the coroutine, and not run it."""
    if is_async(function):
        raise ConfigError(f"{named(function)} is a coroutine function: use holdfast.aio.once", parameter="function")


class Function(Protocol[P, T_co]):
    """A function decorated with `once`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Return the function's result, from this run or stored by an earlier run; None if ``busy`` skips the call."""

    def run(self, *args: P.args, **kwargs: P.kwargs) -> Outcome[T_co]:
        """Call the function as usual, and return its `Outcome`: the result, and how it came about."""

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Delete the stored result for these arguments. Return False if there was none."""

    @overload
    def __get__(self, instance: None, owner: type) -> Function[P, T_co]: ...
    @overload
    def __get__(self: Function[Concatenate[S, Q], T_co], instance: S, owner: type) -> Callable[Q, T_co]: ...


class Once(InThreads, BaseOnce, Generic[Skipped_co]):
    """A decorator that runs a function once for each key, as `once` returns it. Its methods `run` and `forget` need no
    decorated function."""

    def __call__(self, function: Callable[P, T]) -> Function[P, T | Skipped_co]:
        """Decorate a function. Raises ConfigError if its arguments cannot fill the key, or its results cannot be stored."""
        _refuse_coroutine(function)
        return self._decorated(function)  # type: ignore[no-any-return]

    def run(self, function: Callable[[], T], /, **fields: object) -> Outcome[T | Skipped_co]:
        """Call ``function`` without arguments, unless it ran before for the same key, and return the `Outcome`. ``fields``:
        values to fill into the key.

        If another call with the key is running, ``busy`` of the decorator decides: the call raises InProgress, returns an
        `Outcome` whose ``how`` is "skipped", or waits. Raises LeaseLost if the lease was lost while the function ran,
        ServerError if the server cannot be reached. Raises the stored exception of an earlier run, or ResultNotKept if its
        result was not kept.
        """
        _refuse_coroutine(function)
        return complete(self._run(self._named(fields), function))

    def forget(self, **fields: object) -> bool:
        """Delete the stored result. Return False if there was none. A call that is running loses its lease. Raises
        ServerError."""
        return complete(self._forget(self._named(fields)))

    @staticmethod
    async def _call_leased(job: OnceCall, load: Load, function: Callable[[], Any]) -> Any:  # noqa: ARG004 - of asyncio
        return function()


@overload
def once(
    client: SyncClient | Connected,
    template: str,
    *,
    keep: Seconds,
    busy: Literal["raise", "wait"] = "raise",
    wait: Seconds | None = None,
    ttl: Seconds = 30.0,
    max_hold: Seconds | None = None,
    errors: type[Exception] | tuple[type[Exception], ...] = (),
    codec: str | codecs.Serializer = "json",
    prefix: str = "hf:",
    ignore: str | Iterable[str] = (),
    max_size: int = MAX_SIZE,
) -> Once[Never]: ...
@overload
def once(
    client: SyncClient | Connected,
    template: str,
    *,
    keep: Seconds,
    busy: Literal["skip"],
    wait: Seconds | None = None,
    ttl: Seconds = 30.0,
    max_hold: Seconds | None = None,
    errors: type[Exception] | tuple[type[Exception], ...] = (),
    codec: str | codecs.Serializer = "json",
    prefix: str = "hf:",
    ignore: str | Iterable[str] = (),
    max_size: int = MAX_SIZE,
) -> Once[None]: ...
@takes_options('@once(client, "copy:{question_id}", keep=86400)')
@hides_client(words=options.explain_words)
def once(
    client: SyncClient | Connected,
    template: str,
    *,
    keep: Seconds,
    busy: Literal["raise", "skip", "wait"] = "raise",
    wait: Seconds | None = None,
    ttl: Seconds = 30.0,
    max_hold: Seconds | None = None,
    errors: type[Exception] | tuple[type[Exception], ...] = (),
    codec: str | codecs.Serializer = "json",
    prefix: str = "hf:",
    ignore: str | Iterable[str] = (),
    max_size: int = MAX_SIZE,
    **mistaken: Never,
) -> Once[Any]:
    """Decorate a function to run once for each key. Later calls get the stored result.

    ``template`` is the key, such as ``"copy:{question_id}"``. It is filled from the function's arguments, including defaults.
    It may contain names of arguments, but no attributes or indexes. Calls with the same key count as the same work, even if
    the functions differ, so the key must contain every argument except those in ``ignore``.

    The decorated function has a method ``run``, which also returns how the result came about (`Outcome`), and ``forget``, which
    deletes the stored result. If the process that runs the function crashes, another call can run it when the lease expires.
    After an exception whose type is not in ``errors``, another call can run it at once.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL.
        template: the key; 1 to 512 bytes when it is filled in.
        keep: seconds for which the result is kept.
        busy: what happens to a call while another one runs. "raise": it raises InProgress; "skip": it returns None; "wait": it
            waits for the result, and raises InProgress after ``wait`` seconds.
        wait: seconds to wait for the running call. None: no limit if ``busy`` is "wait", else 0.
        ttl: length of the running call's lease in seconds; renewed while the function runs.
        max_hold: seconds after which renewal stops, so that a function that hangs cannot keep the key forever.
        errors: types of exceptions that are stored like results: later calls raise them again.
        codec: how results become bytes, as for `Cache`.
        prefix: start of all keys on the server.
        ignore: names of arguments that the key leaves out because they do not change what is done, such as ``"self"``.
        max_size: largest result in bytes after encoding, up to 512 MiB. A larger result is not stored, and later calls raise
            ResultNotKept. All calls that share the key have to pass the same number.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """
    options.refuse_mistaken(mistaken, "once")
    return Once(
        Caller(client),
        template,
        keep=keep,
        busy=busy,
        wait=wait,
        ttl=ttl,
        max_hold=max_hold,
        errors=errors,
        codec=codec,
        prefix=prefix,
        ignore=ignore,
        max_size=max_size,
    )


@of_asyncio
class AioFunction(Protocol[P, T_co]):
    """A coroutine function decorated with `once`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T_co]:
        """Return the function's result, from this run or stored by an earlier run; None if ``busy`` skips the call."""

    def run(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Outcome[T_co]]:
        """Call the function as usual, and return its `Outcome`: the result, and how it came about."""

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, bool]:
        """Delete the stored result for these arguments. Return False if there was none."""

    @overload
    def __get__(self, instance: None, owner: type) -> AioFunction[P, T_co]: ...
    @overload
    def __get__(
        self: AioFunction[Concatenate[S, Q], T_co], instance: S, owner: type
    ) -> Callable[Q, Coroutine[Any, Any, T_co]]: ...


@of_asyncio
class AioOnce(InTasks, BaseOnce, Generic[Skipped_co]):
    """A decorator that runs a function once for each key, as `once` returns it. Its methods `run` and `forget` need no
    decorated function."""

    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]]) -> AioFunction[P, T | Skipped_co]:
        """Decorate a function. Raises ConfigError if its arguments cannot fill the key, or its results cannot be stored."""
        if not is_async(function):
            raise ConfigError(f"{named(function)} must be a coroutine function, or use holdfast.once", parameter="function")
        return self._decorated(function)  # type: ignore[no-any-return]

    async def run(self, function: Callable[[], Awaitable[T]], /, **fields: object) -> Outcome[T | Skipped_co]:
        """Call ``function`` without arguments, unless it ran before for the same key, and return the `Outcome`. ``fields``:
        values to fill into the key.

        If another call with the key is running, ``busy`` of the decorator decides: the call raises InProgress, returns an
        `Outcome` whose ``how`` is "skipped", or waits. Raises LeaseLost if the lease was lost while the function ran,
        ServerError if the server cannot be reached. Raises the stored exception of an earlier run, or ResultNotKept if its
        result was not kept.
        """
        return await self._run(self._named(fields), function)

    async def forget(self, **fields: object) -> bool:
        """Delete the stored result. Return False if there was none. A call that is running loses its lease. Raises
        ServerError."""
        return await self._forget(self._named(fields))

    @staticmethod
    async def _call_leased(job: OnceCall, load: Load, function: Callable[[], Any]) -> Any:
        """Await the function. If the lease is lost, cancel the function and raise LeaseLost."""
        import asyncio  # Imported late: programs of threads need no asyncio.

        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        cancelled = False

        def cancel() -> None:
            nonlocal cancelled
            if load.on_lost is not None and task is not None:
                cancelled = task.cancel(f"lease of {job.what} lost")

        def tell(_load: Load) -> None:
            try:
                loop.call_soon_threadsafe(cancel)
            except RuntimeError:
                pass  # The event loop is closed: no code is left that could be notified.

        load.on_lost = tell
        try:
            value = await function()
        except asyncio.CancelledError:
            # If other code has cancelled the task, too, that cancellation goes on. asyncio.timeout does the same.
            if cancelled and task is not None and not task.uncancel():
                cancelled = False
                raise lease_lost(job, load) from None
            cancelled = False
            raise
        finally:
            load.on_lost = None
            if cancelled and task is not None:
                task.uncancel()  # The function ended before the cancellation reached it.
        return value


@overload
def aio_once(
    client: AsyncClient | Connected,
    template: str,
    *,
    keep: Seconds,
    busy: Literal["raise", "wait"] = "raise",
    wait: Seconds | None = None,
    ttl: Seconds = 30.0,
    max_hold: Seconds | None = None,
    errors: type[Exception] | tuple[type[Exception], ...] = (),
    codec: str | codecs.Serializer = "json",
    prefix: str = "hf:",
    ignore: str | Iterable[str] = (),
    max_size: int = MAX_SIZE,
) -> AioOnce[Never]: ...
@overload
def aio_once(
    client: AsyncClient | Connected,
    template: str,
    *,
    keep: Seconds,
    busy: Literal["skip"],
    wait: Seconds | None = None,
    ttl: Seconds = 30.0,
    max_hold: Seconds | None = None,
    errors: type[Exception] | tuple[type[Exception], ...] = (),
    codec: str | codecs.Serializer = "json",
    prefix: str = "hf:",
    ignore: str | Iterable[str] = (),
    max_size: int = MAX_SIZE,
) -> AioOnce[None]: ...
@of_asyncio
@takes_options('@once(client, "copy:{question_id}", keep=86400)')
@hides_client("once", words=options.explain_words)
def aio_once(
    client: AsyncClient | Connected,
    template: str,
    *,
    keep: Seconds,
    busy: Literal["raise", "skip", "wait"] = "raise",
    wait: Seconds | None = None,
    ttl: Seconds = 30.0,
    max_hold: Seconds | None = None,
    errors: type[Exception] | tuple[type[Exception], ...] = (),
    codec: str | codecs.Serializer = "json",
    prefix: str = "hf:",
    ignore: str | Iterable[str] = (),
    max_size: int = MAX_SIZE,
    **mistaken: Never,
) -> AioOnce[Any]:
    """Decorate a function to run once for each key. Later calls get the stored result.

    ``template`` is the key, such as ``"copy:{question_id}"``. It is filled from the function's arguments, including defaults.
    It may contain names of arguments, but no attributes or indexes. Calls with the same key count as the same work, even if
    the functions differ, so the key must contain every argument except those in ``ignore``.

    The decorated function has a method ``run``, which also returns how the result came about (`Outcome`), and ``forget``, which
    deletes the stored result. If the process that runs the function crashes, another call can run it when the lease expires.
    After an exception whose type is not in ``errors``, another call can run it at once.

    If the lease is lost, the function is cancelled and LeaseLost is raised.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL.
        template: the key; 1 to 512 bytes when it is filled in.
        keep: seconds for which the result is kept.
        busy: what happens to a call while another one runs. "raise": it raises InProgress; "skip": it returns None; "wait": it
            waits for the result, and raises InProgress after ``wait`` seconds.
        wait: seconds to wait for the running call. None: no limit if ``busy`` is "wait", else 0.
        ttl: length of the running call's lease in seconds; renewed while the function runs.
        max_hold: seconds after which renewal stops, so that a function that hangs cannot keep the key forever.
        errors: types of exceptions that are stored like results: later calls raise them again.
        codec: how results become bytes, as for `Cache`.
        prefix: start of all keys on the server.
        ignore: names of arguments that the key leaves out because they do not change what is done, such as ``"self"``.
        max_size: largest result in bytes after encoding, up to 512 MiB. A larger result is not stored, and later calls raise
            ResultNotKept. All calls that share the key have to pass the same number.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """
    options.refuse_mistaken(mistaken, "once")
    return AioOnce(
        AioCaller(client),
        template,
        keep=keep,
        busy=busy,
        wait=wait,
        ttl=ttl,
        max_hold=max_hold,
        errors=errors,
        codec=codec,
        prefix=prefix,
        ignore=ignore,
        max_size=max_size,
    )
