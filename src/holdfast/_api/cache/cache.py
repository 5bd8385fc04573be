"""The common base of `Cache` in both APIs: its options, the steps of a call, and its statistics.

The steps are written once, as coroutines that await only requests to the server (`BaseCache._do`) and the user's function
(`BaseCache._call`). In the sync API, both methods return only when their work is done, so such a coroutine runs to its end
without being suspended.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Coroutine, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from holdfast import codecs
from holdfast._api import error_map, options
from holdfast._api.cache.options import (
    UNSET,
    CacheStatistics,
    Figures,
    How,
    Unset,
    checked_busy,
    checked_own_tags,
    checked_size,
    checked_stale,
    checked_tags,
    checked_ttl,
)
from holdfast._api.cache.outage import Away, Outage
from holdfast._clock import clock
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.single_flight import flight
from holdfast._core.single_flight.flight import EntrySpec, Failed, Found, Load, Loading, LookupPolicy, Record
from holdfast._log import logger
from holdfast._runtime.process import current, describe
from holdfast.errors import ConfigError, HoldfastError, LockTimeout, ServerError

if TYPE_CHECKING:
    from holdfast._api.caller import AioCaller, Caller

T = TypeVar("T")

log = logger("holdfast.cache")

ANSWER = 1.0
"""Most seconds to wait for an answer of the server; less if its client has a shorter timeout."""


class _Under:
    """A running loader, and the key it loads, for the call stack (and tasks and threads) that it started."""

    __slots__ = ("key", "where")

    def __init__(self, where: tuple[object, bytes], key: str) -> None:
        self.where: object = where
        self.key = key


_running: ContextVar[tuple[_Under, ...]] = ContextVar("holdfast_cache_running", default=())


def _counted(found: Found) -> tuple[str, ...]:
    """Return the name under which the statistics count a value that was found."""
    return ("misses", "waits") if found.waited else ("stale_hits",) if found.stale else ("hits",)


def _is_for_all(error: Exception) -> bool:
    """Return True if all callers that wait for the value get the loader's exception, too.

    Return False for an error of holdfast about a lock that the loader needs, and for a cancellation: another caller may then
    load the value.
    """
    return not isinstance(error, HoldfastError) and all(cls.__name__ != "CancelledError" for cls in type(error).__mro__)


class BaseCache:
    """The options, counters and steps of calls of a cache: the part that the sync and the asyncio API share."""

    _face: Literal["sync", "asyncio"]

    def __init__(
        self,
        caller: Caller | AioCaller,
        name: str,
        *,
        ttl: float,
        stale: float,
        codec: object,
        wait: float | None,
        busy: str,
        beta: float,
        errors: object,
        error_ttl: float,
        load_ttl: float,
        max_hold: float | None,
        down: str,
        prefix: str,
        max_size: int,
    ) -> None:
        self._caller: Any = caller
        if not prefix or not isinstance(prefix, str):
            raise ConfigError(f"prefix must be a str that is not empty, not {prefix!r}", parameter="prefix")
        self._codec = codecs.find(codec)
        self._max_size = checked_size(max_size)
        self._how = How(checked_ttl(ttl), checked_stale(stale), (), options.checked_wait(wait), checked_busy(busy))
        self._beta = 1000 * options.seconds(beta, "beta", 0.0, 1000.0)
        self._errors = codecs.exception_types(errors, "errors")
        self._error_ttl = checked_ttl(error_ttl, "error_ttl")
        self._outage = Outage(f"cache {name!r}", down)
        self._name = name
        self._figures = Figures()
        self._count = self._figures.count
        self._prefix = prefix
        self._load_ttl = options.seconds(load_ttl, "load_ttl", options.MIN_TTL)
        self._max_hold = None if max_hold is None else options.seconds(max_hold, "max_hold", options.MIN_TTL)
        self._timeout = min(caller.timeout, ANSWER, self._load_ttl / 3)  # Leaves time for a retry before a lease expires.
        self._entry_of: Callable[[str | bytes], EntrySpec] = functools.lru_cache(1024)(self._describe)
        self._about: Callable[[str | bytes], str] = functools.lru_cache(1024)(self._named)
        self._all = self._describe("*")  # The entry of the whole cache. A bad name or prefix is refused here.

    @property
    def name(self) -> str:
        """The name of the cache. Caches of the same name share their values."""
        return self._name

    def __repr__(self) -> str:
        face = "aio." if self._face == "asyncio" else ""
        return f"<holdfast.{face}Cache {self._name!r} on {self._caller.address}>"

    def statistics(self) -> CacheStatistics:
        """Return the counts of this cache object: hits, stale hits, misses, loads, waits and others. Asks no server."""
        return self._figures.now()

    def _options(
        self,
        ttl: float | None,
        stale: float | None,
        tags: Iterable[str],
        *,
        wait: float | Unset | None = UNSET,
        busy: str | None = None,
        default: Any = UNSET,
    ) -> How:
        own = self._how
        if ttl is None and stale is None and busy is None and wait is UNSET and default is UNSET and not tags:
            return own  # A shortcut for nearly all calls, as the checks take as long as the rest of a hit.
        return How(
            own.ttl if ttl is None else checked_ttl(ttl),
            own.stale if stale is None else checked_stale(stale),
            checked_own_tags(tags) if tags else (),
            own.wait if wait is UNSET else options.checked_wait(wait),
            own.busy if busy is None else checked_busy(busy),
            default,
        )

    def _describe(self, key: str | bytes) -> EntrySpec:
        if not key:
            raise ConfigError("key must not be empty", parameter="key")
        return flight.entry_spec(
            f"{self._prefix}cache:",
            self._name,
            key,
            lease=self._load_ttl,
            timeout=self._timeout,
            max_hold=self._max_hold,
            max_size=self._max_size,
        )

    def _named(self, key: str | bytes) -> str:
        return f"cache {self._name!r}, key {key!r}"

    # Steps that differ in the two APIs

    async def _do(self, operation: Coroutine[Any, Any, T], entry: EntrySpec) -> T:
        """Run an operation about a key on the server. Raises ServerError or KeyConflict."""
        raise NotImplementedError

    async def _read(self, entry: EntrySpec) -> list[bytes | None] | None:
        """Send `EntrySpec.reading` and return its reply; None if the server cannot be reached."""
        raise NotImplementedError

    async def _call(self, function: Callable[[], Any]) -> Any:
        """Call a function of the user, and await it in the asyncio API."""
        raise NotImplementedError

    # The steps of a call

    async def _get_or_load(self, key: str | bytes, loader: Callable[[], Any], how: How) -> Any:
        entry = self._entry_of(key)
        if _running.get():
            self._refuse_own(entry, key)
        early = int(-self._beta * math.log(1.0 - random.random())) if self._beta else 0  # noqa: S311 (no secret)
        if not early and self._outage.error is None:
            value = self._hit(await self._read(entry))
            if value is not UNSET:
                return value
        policy = LookupPolicy(how.wait, how.stale, early, fast_read=False)
        try:
            for _ in range(2):
                answer = await self._ask(flight.get_or_lease(entry, policy), entry)
                if type(answer) is not Found or answer.record.kind == flight.MARK:
                    break
                try:
                    return self._given(answer.record, _counted(answer))
                except codecs.Undecodable as why:
                    self._note_unreadable(key, why)
                    await self._ask(flight.delete(entry), entry)
            else:  # Another client stores values with a codec that this one cannot read.
                self._count("misses")
                return await self._load_unstored(entry, key, loader)
        except Away:
            self._count("misses", "uncached")
            return await self._load_unstored(entry, key, loader)
        return await self._go_on(answer, entry, key, loader, how)

    async def _go_on(self, answer: object, entry: EntrySpec, key: str | bytes, loader: Callable[[], Any], how: How) -> Any:
        """Continue a `get_or_load` call that found no value: run the loader, or return or raise what the waiting has led to."""
        if isinstance(answer, Load):
            return await self._load(answer, key, loader, how)
        if isinstance(answer, Failed):
            self._count("misses", "waits")
            raise codecs.copied(answer.error) or answer.error
        if isinstance(answer, Loading):
            return await self._on_wait_timeout(answer, entry, key, loader, how)
        self._count("misses")  # A mark: the value is too large to be stored, so waiting for it is useless.
        return await self._load_unstored(entry, key, loader)

    def _hit(self, read: list[bytes | None] | None) -> Any:
        """Return the value if the reply shows that it is fresh and readable; else UNSET, and the caller looks closer."""
        record = None if read is None else flight.fresh(read)
        if record is not None:
            try:
                return self._given(record, ("hits",))
            except codecs.Undecodable:
                pass
        return UNSET

    async def _get(self, key: str | bytes, default: Any) -> Any:
        entry = self._entry_of(key)
        if self._outage.error is None:
            value = self._hit(await self._read(entry))
            if value is not UNSET:
                return value
        try:
            answer = await self._ask(
                flight.get_or_lease(entry, LookupPolicy(0.0, self._how.stale, load=False, fast_read=False)), entry
            )
        except Away:
            self._count("misses", "uncached")
            return default
        if isinstance(answer, Found) and answer.record.kind != flight.MARK:
            try:
                return self._given(answer.record, _counted(answer))
            except codecs.Undecodable as why:
                self._note_unreadable(key, why)
        self._count("misses")
        return default

    async def _set(self, key: str | bytes, value: Any, how: How) -> None:
        entry = self._entry_of(key)
        data = self._codec.encode(value, self._about(key))
        if len(data) > self._max_size:
            raise ConfigError(f"{self._about(key)}: {self._too_large(data)}", parameter="max_size")
        operation = flight.store(entry, self._codec.kind, data, ttl=how.ttl, stale=how.stale, tags=how.tags)
        await self._ask_anyway(operation, entry)

    async def _invalidate(self, keys: tuple[str | bytes, ...], tags: Iterable[str]) -> None:
        for key in keys:
            entry = self._entry_of(key)
            await self._ask_anyway(flight.delete(entry), entry)
        if tags := checked_tags(tags):
            await self._ask_anyway(flight.invalidate(self._all, tags), self._all)

    async def _clear(self) -> None:
        await self._ask_anyway(flight.invalidate(self._all), self._all)

    async def _delete(self, key: str | bytes) -> bool:
        return await self._ask_anyway(flight.delete(self._entry_of(key)), self._entry_of(key))

    def _given(self, record: Record, counted: tuple[str, ...]) -> Any:
        """Decode and return a stored value. Raises the exception if that was stored, Undecodable if the value
        cannot be read."""
        if record.kind == codecs.ERROR:
            error = codecs.decode_error(record.data, self._errors)
            self._count(*counted)
            raise error
        if len(record.data) > self._max_size:
            raise codecs.Undecodable(self._too_large(record.data))
        value = self._codec.decode(record.kind, record.data)
        self._count(*counted)
        return value

    def _note_unreadable(self, key: str | bytes, why: codecs.Undecodable) -> None:
        self._count("unreadable")
        log.warning("%s: the stored value is ignored: %s", self._about(key), why)

    # Loading

    async def _load(self, load: Load, key: str | bytes, loader: Callable[[], Any], how: How) -> Any:
        self._count("loads", "misses", *(("waits",) if load.waited else ()))
        started = clock()
        try:
            value = await self._invoke(load.entry, key, loader)
        except GeneratorExit:
            raise  # The coroutine is dropped with its event loop, where nothing can be awaited: the lease expires.
        except self._errors as error:
            self._count("load_errors")
            await self._store(load, codecs.ERROR, codecs.encode_error(error), how, clock() - started)
            raise
        except Exception as error:  # noqa: BLE001 (it is raised again, unless there is a stale value)
            self._count("load_errors")
            await self._abort(load, how, error if _is_for_all(error) else None)
            return self._stale_on_error(load, key, error, how.stale - (clock() - started))
        except BaseException:
            await self._abort(load, how)
            raise
        try:
            data = self._codec.encode(value, self._about(key))
        except BaseException as error:
            await self._abort(load, how, error if isinstance(error, Exception) else None)
            raise
        if len(data) > self._max_size:
            log.warning("%s: loaded, but not stored: %s", self._about(key), self._too_large(data))
            self._count("refused_writes")
            await self._store(load, flight.MARK, b"", how, clock() - started)
        else:
            await self._store(load, self._codec.kind, data, how, clock() - started)
        return value

    def _too_large(self, data: bytes) -> str:
        return f"the value has {len(data):,} bytes, and max_size is {self._max_size:,}"

    async def _load_unstored(self, entry: EntrySpec, key: str | bytes, loader: Callable[[], Any]) -> Any:
        self._count("loads")
        return await self._invoke(entry, key, loader)

    async def _invoke(self, entry: EntrySpec, key: str | bytes, loader: Callable[[], Any]) -> Any:
        under = _Under(self._where(entry), self._about(key))
        before = _running.set((*_running.get(), under))
        try:
            return await self._call(loader)
        finally:
            under.where = None  # For tasks and threads that the loader has started, and that go on.
            _running.reset(before)

    async def _store(self, load: Load, kind: str, data: bytes, how: How, cost: float) -> None:
        ttl, stale = (self._error_ttl, 0.0) if kind in {codecs.ERROR, flight.MARK} else (how.ttl, how.stale)
        operation = flight.store_loaded(load, kind, data, ttl=ttl, stale=stale, tags=how.tags, cost=cost)
        try:
            landed = await self._ask(operation, load.entry)
        except Away:
            landed = False
        except ServerError as error:
            log.warning("%s: loaded, but not stored: %s", self._about(load.entry.spec.name), error)
            landed = False
        if not landed:
            self._count("refused_writes")

    async def _abort(self, load: Load, how: How, failure: Exception | None = None) -> None:
        """Free the key after a failed load. ``failure`` is raised for the waiters of this process; None: one of them loads."""
        if load.held_lease.token.startswith(current().id):  # Not in a child process that the loader has forked.
            if failure is not None and codecs.copied(failure) is None:
                failure = None
            await self._do(flight.cancel_load(load, failure, how.tags), load.entry)

    def _stale_on_error(self, load: Load, key: str | bytes, error: Exception, stale: float) -> Any:
        """Return the value from before the failed load, if ``stale`` seconds allow it. Raises ``error`` if there is none."""
        record = load.record
        if record is None or record.kind == codecs.ERROR or record.left < -stale:
            raise error
        try:
            value = self._codec.decode(record.kind, record.data)
        except codecs.Undecodable:
            raise error from None
        log.warning("%s: loading failed, the last value is returned again: %r", self._about(key), error, exc_info=error)
        return value

    async def _on_wait_timeout(
        self, loading: Loading, entry: EntrySpec, key: str | bytes, loader: Callable[[], Any], how: How
    ) -> Any:
        """End a call whose ``wait`` has passed while another caller loads: return a value, or raise LockTimeout."""
        self._count("misses", "waits", "timeouts")
        if how.default is not UNSET:
            return how.default
        if how.busy == "load":
            return await self._load_unstored(entry, key, loader)
        try:
            record = await self._do(error_map.record_of(loading.process, entry.spec.keys[0]), entry)
        except ServerError:
            record = None
        who = describe(record, loading.process) or "another client"
        raise LockTimeout(
            f"{self._about(key)}: {who} has been loading it for {loading.since:.1f} s; waited {how.wait:g} s, try again later",
            name=self._name,
            key=str(key),
            waited=how.wait,
            holder=who,
            remaining=loading.remaining,
        )

    def _where(self, entry: EntrySpec) -> tuple[object, bytes]:
        return self._caller.address, entry.value

    def _refuse_own(self, entry: EntrySpec, key: str | bytes) -> None:
        if any(under.where == self._where(entry) for under in _running.get()):
            raise ConfigError(f"{self._about(key)}: its own loader asks for it, so it would wait for itself", parameter="key")

    # A server that is unreachable

    async def _ask(self, operation: Coroutine[Any, Any, T], entry: EntrySpec) -> T:
        """Run an operation on the server, unless the server was unreachable a moment ago.

        Raises Away if the cache goes on without the server, else ServerError.
        """
        outage = self._outage
        error = outage.error  # Read once: another thread can find the server reachable at any time.
        if error is not None:
            try:
                outage.keep_off(error)
            except BaseException:
                operation.close()
                raise
        try:
            answer = await self._do(operation, entry)
        except ServerError as failed:
            outage.begins(failed)
            raise
        except KeyConflict as conflict:
            raise self._in_the_way(conflict) from conflict
        if outage.error is not None:
            outage.ends()
        return answer

    async def _ask_anyway(self, operation: Coroutine[Any, Any, T], entry: EntrySpec) -> T:
        """Run an operation on the server even if it was unreachable a moment ago: an invalidation must not be skipped."""
        try:
            return await self._do(operation, entry)
        except KeyConflict as conflict:
            raise self._in_the_way(conflict) from conflict

    def _in_the_way(self, conflict: KeyConflict) -> ConfigError:
        return ConfigError(f"cache {self._name!r} cannot be used: {conflict}; nothing was changed", parameter="name")
