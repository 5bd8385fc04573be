"""`once` for threads. `_api.aio_once` is the same for asyncio; `_api.once` is what they share."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, Literal, Never, ParamSpec, Protocol, TypeVar, overload

from holdfast import codecs
from holdfast._api import error_map, options
from holdfast._api import once as once_base
from holdfast._api.caller import Caller
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
    """A function that runs once."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """The result, of this run or of the one before."""

    def run(self, *args: P.args, **kwargs: P.kwargs) -> Outcome[T_co]:
        """The same call, and how its result came about."""

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Forget the result for these arguments; False if there was none."""

    @overload
    def __get__(self, instance: None, owner: type) -> Function[P, T_co]: ...
    @overload
    def __get__(self: Function[Concatenate[S, Q], T_co], instance: S, owner: type) -> Callable[Q, T_co]: ...


class Once(once_base.BaseOnce):
    """A decorator that runs a function once for each key, made by `once`; `run` and `forget` do the same without a function
    to decorate."""

    current = staticmethod(once_base.current)

    def __call__(self, function: Callable[P, T]) -> Function[P, T]:
        """Decorate a function. Raises ConfigError if the key cannot be filled from its arguments, or it can have no result."""
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
        """Call ``function`` without arguments, unless it ran before; ``fields`` fill the key. Raises InProgress, LeaseLost,
        ServerError."""
        _refuse_coroutine(function)
        return self._run(self._named(fields), function)

    def forget(self, **fields: object) -> bool:
        """Forget the result; False if there was none. A call that runs just now loses its lease. Raises ServerError."""
        return self._forget(self._named(fields))

    def _forget(self, job: Job) -> bool:
        dropped: bool = self._caller.run(flight.delete(job.entry), job.entry.value, job.what)
        return dropped

    def _run(self, job: Job, function: Callable[[], T]) -> Outcome[T]:
        attempt = Attempt(job.entry.spec)
        try:
            return self._outcome(job, attempt, function)
        except BaseException:
            if attempt.may_be_on_server:
                # Interrupted (KeyboardInterrupt, or what a signal handler raises), at whatever line.
                self._caller.run(flight.abandon(job.entry, attempt), job.entry.value, job.what)
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
            driver = self._caller.driver(job.entry.value)
            found = driver.run(flight.get_or_lease(job.entry, self._wish, attempt))
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
    """Decorate a function to run once for each key: a call at the same time is told so, a later call gets the stored result.

    ``template`` is the key, filled from the function's arguments, defaults included: ``"copy:{question_id}"``. Names only: no
    attributes, no indexes. Calls with the same key are the same thing to do, whatever function it is. So the key has to name
    every argument, but those in ``ignore``.

    The decorated function has ``run``, which says how the result came about (`Outcome`), and ``forget``. A crash of whoever
    runs it frees the key when the lease ends; an exception frees it at once.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL.
        template: the key; 1 to 512 bytes when it is filled.
        keep: seconds for which the result is kept.
        busy: what a call gets while another one runs: "raise" raises InProgress, "skip" returns None, "wait" waits for the
            result, and raises InProgress when ``wait`` is over.
        wait: seconds to wait for the one that runs; None: for ever with "wait", else not at all.
        ttl: seconds of the lease of the one that runs, renewed meanwhile.
        max_hold: seconds after which the renewal stops, so that a function that hangs does not keep the key for ever.
        errors: types of exceptions that are stored like results: later calls raise them again.
        codec: how results become bytes: as for `Cache`.
        prefix: start of the keys on the server.
        ignore: names of arguments that the key leaves out, because they do not decide what is done, such as ``"self"``.
        max_size: bytes that a result may have when the codec has made them, up to 512 MiB. Of a larger one, only that the call
            has run is kept. All calls that share the key have to pass the same.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
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
    """It would only be made, not run; and that would be remembered as a result that cannot be stored."""
    if is_async(function):
        raise ConfigError(f"{named(function)} is a coroutine function: use holdfast.aio.once", parameter="function")
