"""The decorator `locked` runs a function under a lock, whose name may contain the function's arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Literal, Never, ParamSpec, Protocol, TypeVar, overload

from holdfast._api.base_lock import member_of
from holdfast._api.flow import InTasks, InThreads, Steps
from holdfast._api.functions import is_async, refuse_class, refuse_generator, takes_options
from holdfast._api.lease import core_of
from holdfast._api.options import refuse_mistaken
from holdfast._api.rlock import depth, unfinished
from holdfast._api.templates import Filled
from holdfast._durations import Seconds, as_number
from holdfast._net.clients import AsyncClient, Connected, Servers, SyncClient
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import are_several
from holdfast.errors import ConfigError, LockTimeout

P = ParamSpec("P")
T = TypeVar("T")

_held: ContextVar[frozenset[tuple[object, ...]]] = ContextVar("holdfast_held", default=frozenset())
"""Locks that the current call stack holds through `locked`, each as (thread or task, server, key)."""


class Skipping(Protocol):
    """The type of the decorator that ``locked(busy="skip")`` returns. A call that is skipped returns None."""

    @overload  # For a coroutine function, it is the awaited result that may be None.
    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> Callable[P, Coroutine[Any, Any, T | None]]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> Callable[P, T | None]: ...


@overload
def locked(
    client: SyncClient | AsyncClient | Servers[SyncClient | AsyncClient] | Connected,
    template: str,
    *,
    busy: Literal["wait", "raise"] = "wait",
    wait: Seconds | None = None,
    ttl: Seconds = 30.0,
    renew: bool = True,
    max_hold: Seconds | None = None,
    on_lost: Callable[..., object] | None = None,
    label: str | None = None,
    prefix: str = "hf:",
    reentrant: bool = False,
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...
@overload
def locked(
    client: SyncClient | AsyncClient | Servers[SyncClient | AsyncClient] | Connected,
    template: str,
    *,
    busy: Literal["skip"],
    wait: Seconds | None = None,
    ttl: Seconds = 30.0,
    renew: bool = True,
    max_hold: Seconds | None = None,
    on_lost: Callable[..., object] | None = None,
    label: str | None = None,
    prefix: str = "hf:",
    reentrant: bool = False,
) -> Skipping: ...
@takes_options('@locked(client, "report:{user_id}")')
@hides_client()
def locked(
    client: SyncClient | AsyncClient | Servers[SyncClient | AsyncClient] | Connected,
    template: str,
    *,
    busy: Literal["wait", "raise", "skip"] = "wait",
    wait: Seconds | None = None,
    ttl: Seconds = 30.0,
    renew: bool = True,
    max_hold: Seconds | None = None,
    on_lost: Callable[..., object] | None = None,
    label: str | None = None,
    prefix: str = "hf:",
    reentrant: bool = False,
    **mistaken: Never,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run the decorated function, plain or coroutine, under the lock that ``template`` names.

    ``template`` is filled from the function's arguments, including defaults: ``"report:{user_id}"``. It may contain names of
    arguments, but no attributes or indexes. Calls with different lock names do not wait for each other.

    Args:
        client: as for `Lock`; for a coroutine function, an asyncio client or a URL. A list or dictionary: as for `Redlock`.
        busy: what happens if the lock is busy. "wait": wait, and raise LockTimeout after ``wait`` seconds. "raise": raise
            LockTimeout. "skip": return None without running the function.
        wait: seconds to wait for a busy lock. None: no limit if ``busy`` is "wait", else 0.
        ttl: as for `Lock`.
        renew: as for `Lock`.
        max_hold: as for `Lock`.
        on_lost: as for `Lock`.
        label: as for `Lock`.
        prefix: as for `Lock`.
        reentrant: True if the function may call itself, or other functions under the same lock. The lock is then an `RLock`.

    Raises:
        ConfigError: at decoration, if an option or the template is invalid. At a call, if the name is empty or too long. Also
            at a call, if ``reentrant`` is False and the calling code already holds the lock through `locked`, so that the call
            would wait for itself.
    """
    refuse_mistaken(mistaken, "locked")
    if busy not in {"wait", "raise", "skip"}:
        raise ConfigError(f"busy must be 'wait', 'raise' or 'skip', not {busy!r}", parameter="busy")
    if busy != "wait" and wait is None:
        wait = 0.0
    options: dict[str, Any] = {
        "ttl": as_number(ttl), "wait": as_number(wait), "renew": renew, "max_hold": as_number(max_hold), "on_lost": on_lost,
        "label": label, "prefix": prefix,
    }  # fmt: skip

    @hides_client()
    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        refuse_class(function)
        refuse_generator(function, "its body would run after the lock is released; use a with statement inside it")
        awaited = is_async(function)
        kind = _OfTasks if awaited else _OfThreads
        make = _lock_type(client, awaited, reentrant)
        # Refuses bad options and a client of the other API now, not at the first call.
        servers = member_of(make(client, template, **options)).endpoint()
        filled = Filled(function, template)
        return kind(
            function, lambda *call: make(client, filled(*call)[0], **options), servers, busy=busy, reentrant=reentrant
        ).decorated()

    return decorate


class _Locked(Steps):
    """A function that runs under a lock, and the flow of its calls. Base class for plain and coroutine functions."""

    def __init__(
        self,
        function: Callable[..., Any],
        lock: Callable[[tuple[Any, ...], dict[str, Any]], Any],
        servers: object,
        *,
        busy: str,
        reentrant: bool,
    ) -> None:
        self._function, self._lock_for, self._busy, self._reentrant = function, lock, busy, reentrant
        self._servers = servers
        """The server or servers of the locks, which are the same for all calls."""

    def decorated(self) -> Callable[..., Any]:
        return self._as_function(self._call, self._function)

    async def _call(self, *args: Any, **kwargs: Any) -> Any:
        own = self._lock_for(args, kwargs)
        leases: list[Any] = []
        marked, before = _held.get(), depth(own)
        try:
            _mark(own, (self._this_task(), self._servers, own.key), marked)
            return await self._call_under(own, leases, functools.partial(self._function, *args, **kwargs))
        except LockTimeout:
            if self._busy != "skip" or leases:
                raise  # "skip" concerns only our own lock: this error comes from the function.
            return None
        except self._dropped:
            raise  # The coroutine is dropped with its event loop, where nothing can be awaited.
        except BaseException as error:
            if leases and unfinished(own, leases[0], before):
                await self._finish(own, leases[0], error)
            raise
        finally:
            _held.set(marked)

    async def _call_under(self, own: Any, leases: list[Any], function: Callable[[], Any]) -> Any:
        """Call the function under the lock ``own``, whose lease is put into ``leases``.

        Each API uses its own ``with`` statement, instead of calling ``__enter__``, because CPython runs no signal handler
        between the ``__enter__`` and the body of a ``with`` statement. So an interrupt there cannot leave the lock held.
        """
        raise NotImplementedError

    async def _finish(self, own: Any, lease: Any, error: BaseException) -> None:
        """Release the lock ``own``, because an interrupt kept the end of the ``with`` statement from doing so."""
        raise NotImplementedError


class _OfThreads(InThreads, _Locked):
    async def _call_under(self, own: Any, leases: list[Any], function: Callable[[], Any]) -> Any:
        with own as lease:
            leases.append(lease)
            return function()

    async def _finish(self, own: Any, lease: Any, error: BaseException) -> None:  # noqa: ARG002 - of asyncio
        own.__exit__(type(error), error, error.__traceback__)


class _OfTasks(InTasks, _Locked):
    async def _call_under(self, own: Any, leases: list[Any], function: Callable[[], Any]) -> Any:
        async with own as lease:
            leases.append(lease)
            return await function()

    async def _finish(self, own: Any, lease: Any, error: BaseException) -> None:
        # An interrupted __aexit__ of a Lock may have removed the lease from the lock's list, so this very lease is released.
        if self._reentrant:
            await own.__aexit__(type(error), error, None)
        else:
            await member_of(own).leave(core_of(lease), error)


def _lock_type(client: object, awaited: bool, reentrant: bool) -> Any:
    several = are_several(client)
    if awaited:
        from holdfast._api.lock import AioLock

        if reentrant:
            from holdfast._api import rlock

            return rlock.AioRLock
        if several:
            from holdfast._api import redlock

            return redlock.AioRedlock
        return AioLock
    if reentrant:
        from holdfast._api.rlock import RLock

        return RLock
    if several:
        from holdfast._api.redlock import Redlock

        return Redlock
    from holdfast._api.lock import Lock

    return Lock


def _mark(own: Any, entry: tuple[object, ...], before: frozenset[tuple[object, ...]]) -> None:
    """Record that the call stack is about to hold the lock ``own``. Raises ConfigError if the stack would wait for itself.

    ``entry``: the calling thread or task, the lock's servers and its key. ``before``: the entries of the locks that the call
    stack holds already.
    """
    if entry in before and own.lease is None:  # An RLock with a lease can be acquired again.
        raise ConfigError(
            f"lock {own.name!r} is held by the same call stack already, so this call would wait for itself; pass "
            "reentrant=True, or move the shared code into a function without the decorator",
            parameter="template",
        )
    _held.set(before | {entry})
