"""`once` for threads: run a function once for each key and store its result. `holdfast.aio` has it for asyncio."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, Literal, Never, ParamSpec, Protocol, TypeVar, overload

from holdfast import codecs
from holdfast._api import error_map, options
from holdfast._api import once as once_base
from holdfast._api.caller import Caller
from holdfast._api.flow import complete
from holdfast._api.functions import is_async, named
from holdfast._api.once import Job, Outcome, Running
from holdfast._clock import clock
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.records import Attempt
from holdfast._core.requests import WireError
from holdfast._core.single_flight import flight
from holdfast._core.single_flight.entry import MAX_SIZE
from holdfast._core.single_flight.flight import Found, Load, Loading
from holdfast._net.redaction import hides_client
from holdfast._runtime.drivers.sync import Runner
from holdfast.errors import ConfigError

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Function(Protocol[P, T_co]):
    """A function decorated with `once`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Return the function's result: from this run, or the stored one of an earlier run."""

    def run(self, *args: P.args, **kwargs: P.kwargs) -> Outcome[T_co]:
        """Call the function as usual, and return its `Outcome`: the result, and how it came about."""

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Delete the stored result for these arguments. Return False if there was none."""

    @overload
    def __get__(self, instance: None, owner: type) -> Function[P, T_co]: ...
    @overload
    def __get__(self: Function[Concatenate[S, Q], T_co], instance: S, owner: type) -> Callable[Q, T_co]: ...


class Once(once_base.BaseOnce):
    """A decorator that runs a function once for each key, as `once` returns it. Its `run` and `forget` work
    without decorating."""

    current = staticmethod(once_base.current)

    def __call__(self, function: Callable[P, T]) -> Function[P, T]:
        """Decorate a function. Raises ConfigError if its arguments cannot fill the key, or its results cannot be stored."""
        _refuse_coroutine(function)
        filled = self._filled(function)

        def run(*args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
            return self._run(self._job(filled(args, kwargs)[0]), functools.partial(function, *args, **kwargs))

        def forget(*args: P.args, **kwargs: P.kwargs) -> bool:
            return self._forget(self._job(filled(args, kwargs)[0]))

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return run(*args, **kwargs).value

        decorated: Any = call
        decorated.run, decorated.forget = run, forget
        return decorated  # type: ignore[no-any-return]

    def run(self, function: Callable[[], T], /, **fields: object) -> Outcome[T]:
        """Call ``function`` without arguments, unless it ran before for the same key, and return the `Outcome`. ``fields``:
        values to fill into the key.

        Raises InProgress if another call runs now, LeaseLost if the lease was lost while the function ran, ServerError if the
        server cannot be reached. Raises the stored exception of an earlier run, or ResultNotKept if its result was not kept.
        """
        _refuse_coroutine(function)
        return self._run(self._named(fields), function)

    def forget(self, **fields: object) -> bool:
        """Delete the stored result. Return False if there was none. A call that runs now loses its lease.
        Raises ServerError."""
        return self._forget(self._named(fields))

    def _forget(self, job: Job) -> bool:
        dropped: bool = complete(self._caller.run(flight.delete(job.entry), job.entry.value, job.what))
        return dropped

    def _run(self, job: Job, function: Callable[[], T]) -> Outcome[T]:
        attempt = Attempt(job.entry.spec)
        try:
            return self._outcome(job, attempt, function)
        except BaseException:
            if attempt.may_be_on_server:
                # An exception of an interrupt or a signal handler can come at any line.
                complete(self._caller.run(flight.abandon(job.entry, attempt), job.entry.value, job.what))
            raise

    def _outcome(self, job: Job, attempt: Attempt, function: Callable[[], T]) -> Outcome[T]:
        me, started = threading.get_ident(), clock()
        self._refuse_itself(me, job)
        driver, found = self._look(job, attempt)
        if isinstance(found, Found):
            return self._replayed(job, found.record)
        if isinstance(found, Loading):
            return self._in_progress(
                job, found, driver.run(error_map.record_of(found.process, job.entry.spec.keys[0])), clock() - started
            )
        with Running(me, job, attempt, found, driver.process) as running:
            try:
                value = function()
            except BaseException as error:
                driver.run(self._failed(running, error))
                raise
        driver.run(self._succeeded(running, value))
        return Outcome(value, "ran", found.fence)

    def _look(self, job: Job, attempt: Attempt) -> tuple[Runner, Found | Load | Loading]:
        try:
            driver = complete(self._caller.driver(job.entry.value))
            found = driver.run(flight.get_or_lease(job.entry, self._policy, attempt))
        except (WireError, KeyConflict) as error:
            raise once_base.refuse(job, error) from error
        assert not isinstance(found, flight.Absent)
        return driver, found


@hides_client()
def once(
    client: object,
    template: str,
    *,
    keep: float,
    busy: Literal["raise", "skip", "wait"] = "raise",
    wait: float | None = None,
    ttl: float = 30.0,
    max_hold: float | None = None,
    errors: type[Exception] | tuple[type[Exception], ...] = (),
    codec: str | codecs.Serializer = "json",
    prefix: str = "hf:",
    ignore: str | Iterable[str] = (),
    max_size: int = MAX_SIZE,
    **mistaken: Never,
) -> Once:
    """Decorate a function to run once for each key. Later calls get the stored result; calls meanwhile raise InProgress.

    ``template`` is the key. It is filled from the function's arguments, including defaults: ``"copy:{question_id}"``. It may
    contain names of arguments, but no attributes or indexes. Calls with the same key count as the same work, even of different
    functions, so the key must contain every argument except those in ``ignore``.

    The decorated function has a method ``run``, which also returns how the result came about (`Outcome`), and ``forget``, which
    deletes the stored result. If the process that runs the function crashes, the key is free when the lease expires; after an
    exception it is free at once.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL.
        template: the key; 1 to 512 bytes when it is filled in.
        keep: seconds for which the result is kept.
        busy: what happens to a call while another one runs. "raise": it raises InProgress; "skip": it returns None; "wait": it
            waits for the result, and raises InProgress after ``wait`` seconds.
        wait: seconds to wait for the running call. None: without limit for "wait", else not at all.
        ttl: length of the running call's lease in seconds; renewed while the function runs.
        max_hold: seconds after which renewal stops, so that a function that hangs cannot keep the key forever.
        errors: types of exceptions that are stored like results: later calls raise them again.
        codec: how results become bytes, as for `Cache`.
        prefix: start of all keys on the server.
        ignore: names of arguments that the key leaves out because they do not change what is done, such as ``"self"``.
        max_size: largest result in bytes after encoding, up to 512 MiB. For a larger result, only the fact of the run is
            stored. All calls that share the key have to pass the same number.

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


def _refuse_coroutine(function: Callable[..., object]) -> None:
    """Raise ConfigError for a coroutine function: a plain call would only create the coroutine, without running it."""
    if is_async(function):
        raise ConfigError(f"{named(function)} is a coroutine function: use holdfast.aio.once", parameter="function")
