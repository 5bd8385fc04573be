"""``@locked``: a function that runs under a lock named after its arguments."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Literal, Never, ParamSpec, TypeVar

from holdfast._api.functions import is_async, refuse_generator
from holdfast._api.options import refuse_mistaken
from holdfast._api.rlock import depth, unfinished
from holdfast._api.templates import Filled
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import are_several
from holdfast.errors import ConfigError, LockTimeout

P = ParamSpec("P")
T = TypeVar("T")

_held: ContextVar[frozenset[tuple[object, ...]]] = ContextVar("holdfast_held", default=frozenset())
"""Locks that this very call stack holds through decorators: (thread or task, server, key)."""


@hides_client()
def locked(
    client: object,
    template: str,
    *,
    busy: Literal["wait", "raise", "skip"] = "wait",
    wait: float | None = None,
    ttl: float = 30.0,
    renew: bool = True,
    max_hold: float | None = None,
    on_lost: Callable[..., object] | None = None,
    label: str | None = None,
    prefix: str = "hf:",
    reentrant: bool = False,
    **mistaken: Never,
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Run a function, or a coroutine function, under the lock whose name ``template`` gives.

    ``template`` is filled from the function's arguments, defaults included: ``"report:{user_id}"``. Names only: no
    attributes, no indexes. Calls with different names do not wait for each other.

    Args:
        client: as for Lock; a coroutine function needs an asyncio client or a URL. A list or dictionary: as for Redlock.
        busy: what to do when the lock is busy after ``wait``: "wait" and "raise" raise LockTimeout, "skip" returns None
            without running. "raise" and "skip" do not wait unless ``wait`` says so; "wait" waits for ever unless it does.
        wait, ttl, renew, max_hold, on_lost, label, prefix: as for Lock.
        reentrant: the function may call itself, or others under the same lock: it runs under an `RLock`.

    Raises:
        ConfigError: at decoration for bad options and templates; at the call if the name is empty or too long, or if the
            same call stack holds this lock already and may not take it again, which would wait for itself.
    """
    refuse_mistaken(mistaken, "locked")
    if busy not in {"wait", "raise", "skip"}:
        raise ConfigError(f"busy must be 'wait', 'raise' or 'skip', not {busy!r}", parameter="busy")
    if busy != "wait" and wait is None:
        wait = 0.0
    options: dict[str, Any] = {
        "ttl": ttl, "wait": wait, "renew": renew, "max_hold": max_hold, "on_lost": on_lost, "label": label, "prefix": prefix,
    }  # fmt: skip

    @hides_client()
    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        refuse_generator(function, "it would run after the lock is given back; use with inside it")
        filled = Filled(function, template)
        awaited = is_async(function)
        make = _lock_type(client, awaited, reentrant)
        make(client, template, **options)  # refuses bad options, and a client of the other face, now and not at the first call

        def lock(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return make(client, filled(args, kwargs)[0], **options)

        return _wrapped_async(function, lock, busy, reentrant) if awaited else _wrapped(function, lock, busy)

    return decorate


def _wrapped(function: Callable[P, T], lock: Callable[..., Any], busy: str) -> Callable[P, T]:
    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> Any:
        own, lease = lock(args, kwargs), None
        marked, before = _held.get(), depth(own)
        try:
            _mark(own, threading.get_ident(), marked)
            with own as lease:
                return function(*args, **kwargs)
        except LockTimeout:
            if busy != "skip" or lease is not None:
                raise  # "skip" is about our own lock, not about what the function raises
            return None
        except BaseException as error:
            if unfinished(own, lease, before):
                own.__exit__(type(error), error, error.__traceback__)
            raise
        finally:
            _held.set(marked)

    return run


def _wrapped_async(function: Callable[P, T], lock: Callable[..., Any], busy: str, reentrant: bool) -> Callable[P, T]:
    import asyncio  # here: a command line without asyncio starts in half the time

    @functools.wraps(function)
    async def run(*args: P.args, **kwargs: P.kwargs) -> Any:
        own, lease = lock(args, kwargs), None
        marked, before = _held.get(), depth(own)
        try:
            _mark(own, asyncio.current_task(), marked)
            async with own as lease:
                return await function(*args, **kwargs)  # type: ignore[misc]
        except LockTimeout:
            if busy != "skip" or lease is not None:
                raise  # "skip" is about our own lock, not about what the function raises
            return None
        except GeneratorExit:
            raise  # dropped with its event loop, where nothing can be awaited
        except BaseException as error:
            if unfinished(own, lease, before):
                # It may have come so far that a Lock has forgotten whose end it is.
                await (own.__aexit__(type(error), error, None) if reentrant else own._leave(lease, error))  # noqa: SLF001
            raise
        finally:
            _held.set(marked)

    return run  # type: ignore[return-value]


def _lock_type(client: object, awaited: bool, reentrant: bool) -> Any:
    several = are_several(client)
    if awaited:
        from holdfast._api import aio_lock

        if reentrant:
            from holdfast._api import aio_rlock

            return aio_rlock.RLock
        if several:
            from holdfast._api import aio_redlock

            return aio_redlock.Redlock
        return aio_lock.Lock
    if reentrant:
        from holdfast._api.sync_rlock import RLock

        return RLock
    if several:
        from holdfast._api.sync_redlock import Redlock

        return Redlock
    from holdfast._api.sync_lock import Lock

    return Lock


def _mark(own: Any, owner: object, before: frozenset[tuple[object, ...]]) -> None:
    """Note that this call stack, which holds what it held ``before``, is about to hold a lock."""
    entry = owner, own._endpoint, own.key  # noqa: SLF001
    if entry in before and own.lease is None:  # an RLock that it has may be taken again
        raise ConfigError(
            f"lock {own.name!r} is held by this very call already: calling it again inside would wait for itself; "
            "say reentrant=True, or move what both need into a function without the decorator",
            parameter="template",
        )
    _held.set(before | {entry})
