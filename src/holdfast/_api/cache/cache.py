"""`Cache` stores values on the server, each loaded by one caller.

`BaseCache` has the options, the flows of all calls, and the statistics. See `holdfast._api.flow`.
"""

from __future__ import annotations

import functools
import inspect
import math
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, ParamSpec, TypeVar

from holdfast import codecs
from holdfast._api import error_map, options
from holdfast._api.cache.memoize import AioMemoized, Inside, Memoized
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
from holdfast._api.caller import AioCaller, BaseCaller, Caller
from holdfast._api.flow import InTasks, InThreads, Steps, complete, hides_frames, of_asyncio
from holdfast._api.foreign_words import CACHE_CALL, CACHE_ITEM, CACHE_METHODS, ForeignMethods
from holdfast._api.functions import refuse_bare
from holdfast._api.templates import checked_ignore
from holdfast._clock import clock
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.requests import WireError
from holdfast._core.single_flight import flight
from holdfast._core.single_flight.entry import MAX_SIZE
from holdfast._core.single_flight.flight import EntrySpec, Failed, FoundValue, Load, Loading, LookupPolicy, StoredValue
from holdfast._durations import Seconds
from holdfast._log import logger
from holdfast._net.clients import AsyncClient, Client, SyncClient
from holdfast._net.redaction import hides_client
from holdfast._runtime.process import current, describe
from holdfast.errors import ConfigError, HoldfastError, LockTimeout, ServerError

__all__ = ["AioCache", "AioMemoized", "Cache", "CacheStatistics", "Memoized"]

P = ParamSpec("P")
T = TypeVar("T")

log = logger("holdfast.cache")

ANSWER = 1.0
"""Maximum seconds to wait for an answer of the server. The timeout of the client, or a third of ``load_ttl``, may be
shorter."""


class _Under:
    """The key that a running loader loads. The loader, and the tasks and threads that it starts, must not ask for this key."""

    __slots__ = ("key", "where")

    def __init__(self, where: tuple[object, bytes], key: str) -> None:
        self.where: object = where
        self.key = key


_running: ContextVar[tuple[_Under, ...]] = ContextVar("holdfast_cache_running", default=())


def _counted(found: FoundValue) -> tuple[str, ...]:
    """Return the names of the counters of `CacheStatistics` to increase for a value that was found."""
    return ("misses", "waits") if found.waited else ("stale_hits",) if found.stale else ("hits",)


def _is_for_all(error: Exception) -> bool:
    """Return True if the loader's exception is raised for all callers that wait for the value.

    Return False for an error of holdfast, such as a LockTimeout in the loader, and for a cancellation. One of the waiters then
    loads the value.
    """
    return not isinstance(error, HoldfastError) and all(cls.__name__ != "CancelledError" for cls in type(error).__mro__)


class BaseCache(ForeignMethods, Steps, Generic[Client]):
    """The options, the counters and the flows of a cache. Base class for threads and for asyncio."""

    _foreign = CACHE_METHODS
    if not TYPE_CHECKING:
        __call__ = CACHE_CALL
        __getitem__ = __setitem__ = __delitem__ = CACHE_ITEM

    _caller_type: type[BaseCaller]
    """Class that sends the requests of this API (sync or asyncio)."""
    _memoized: Callable[..., Any]
    """Class of the functions whose results this API stores."""

    @hides_client("Cache.__init__")
    def __init__(
        self,
        client: Client,
        name: str,
        *,
        ttl: Seconds = 60.0,
        stale: Seconds = 0.0,
        codec: object = "json",
        wait: Seconds | None = 30.0,
        busy: Literal["raise", "load"] = "raise",
        beta: float = 0.0,
        errors: type[Exception] | tuple[type[Exception], ...] = (),
        error_ttl: Seconds = 5.0,
        load_ttl: Seconds = 5.0,
        max_hold: Seconds | None = None,
        down: Literal["load", "raise"] = "load",
        prefix: str = "hf:",
        max_size: int = MAX_SIZE,
        **mistaken: Never,
    ) -> None:
        options.refuse_mistaken(mistaken, type(self).__name__)
        self._caller = self._caller_type(client)
        if not prefix or not isinstance(prefix, str):
            raise ConfigError(f"prefix must be a str that is not empty, not {prefix!r}", parameter="prefix")
        self._codec = codecs.find(codec)
        self._max_size = checked_size(max_size)
        self._how = How(checked_ttl(ttl), checked_stale(stale), (), options.checked_wait(wait), checked_busy(busy))
        self._beta = 1000 * options.plain_number(beta, "beta", 1000)
        self._errors = codecs.exception_types(errors, "errors")
        self._error_ttl = checked_ttl(error_ttl, "error_ttl")
        self._outage = Outage(f"cache {name!r}", down)
        self._name = name
        self._figures = Figures()
        self._count = self._figures.count
        self._prefix = prefix
        self._load_ttl = options.seconds(load_ttl, "load_ttl", options.MIN_TTL)
        self._max_hold = None if max_hold is None else options.seconds(max_hold, "max_hold", options.MIN_TTL)
        self._timeout = min(self._caller.timeout, ANSWER, self._load_ttl / 3)  # Leaves time for a retry before a lease expires.
        self._entry_of: Callable[[str | bytes], EntrySpec] = functools.lru_cache(1024)(self._describe)
        self._about: Callable[[str | bytes], str] = functools.lru_cache(1024)(self._named)
        self._all = self._describe("*")  # The entry of the whole cache. A bad name or prefix is refused here.

    @property
    def name(self) -> str:
        """The name of the cache. Caches of the same name share their values."""
        return self._name

    def __repr__(self) -> str:
        api = "aio." if self._api == "asyncio" else ""
        return f"<holdfast.{api}Cache {self._name!r} on {self._caller.address}>"

    def statistics(self) -> CacheStatistics:
        """Return the counts of this cache object: hits, stale hits, misses, loads, waits and others. Asks no server."""
        return self._figures.now()

    def _options(
        self,
        ttl: Seconds | None,
        stale: Seconds | None,
        tags: Iterable[str],
        *,
        wait: Seconds | Unset | None = UNSET,
        busy: str | None = None,
        default: Any = UNSET,
    ) -> How:
        own = self._how
        if ttl is None and stale is None and busy is None and wait is UNSET and default is UNSET and not tags:
            return own  # A shortcut for nearly all calls: the checks take as long as the rest of a hit.
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

    def _decorator(self, template: str, how: How, tags: Iterable[str], ignore: str | Iterable[str]) -> Callable[..., Any]:
        refuse_bare(template, '@cache.memoize("price:{sku}")')
        templates, ignored = (template, *checked_tags(tags)), checked_ignore(ignore)
        inside = Inside(self._codec.kind, self._get_or_load)
        return lambda function: self._memoized(self, function, templates, how=how, ignore=ignored, inside=inside)

    # Steps

    async def _do(self, operation: Coroutine[Any, Any, T], entry: EntrySpec) -> T:
        return await self._caller.run(operation, entry.value, self._about(entry.spec.name))

    async def _read(self, entry: EntrySpec) -> list[bytes | None] | None:
        """Send `EntrySpec.reading` and return its reply; None if the request fails."""
        try:
            return await self._caller.ask(entry.reading, entry.value)  # type: ignore[no-any-return]
        except WireError:
            return None

    @staticmethod
    async def _call_loader(loader: Callable[[], Any]) -> Any:
        """Call a loader, and await it in asyncio. Raises ConfigError if the loader is one for the other API."""
        raise NotImplementedError

    # Flows

    async def _get_or_load(self, key: str | bytes, loader: Callable[[], Any], how: How) -> Any:
        entry = self._entry_of(key)
        if not callable(loader):
            raise ConfigError(f"loader must be a function without arguments, not {loader!r}", parameter="loader")
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
                if type(answer) is not FoundValue or answer.record.kind == flight.MARK:
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
            answer = None
        if answer is None:  # outside of the except clause, so that an error of the loader has no context
            self._count("misses", "uncached")
            return await self._load_unstored(entry, key, loader)
        return await self._go_on(answer, entry, key, loader, how)

    async def _go_on(self, answer: object, entry: EntrySpec, key: str | bytes, loader: Callable[[], Any], how: How) -> Any:
        """Continue a `get_or_load` call that found no value: run the loader, or return the outcome of another caller's load."""
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
        """Return the value if the reply shows that it is fresh and readable; UNSET if the caller has to run the script."""
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
        if isinstance(answer, FoundValue) and answer.record.kind != flight.MARK:
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

    def _given(self, record: StoredValue, counted: tuple[str, ...]) -> Any:
        """Return a stored value, or raise a stored exception. Raises Undecodable if the data cannot be read."""
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
        except self._dropped:
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
            return await self._call_loader(loader)
        finally:
            under.where = None  # Tasks and threads that the loader has started may go on.
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
        """Free the key after a failed load. The waiters of this process get ``failure``; if it is None, one of them loads the
        value."""
        if load.held_lease.token.startswith(current().id):  # Not in a child process that the loader has forked.
            if failure is not None and codecs.copied(failure) is None:
                failure = None
            await self._do(flight.cancel_load(load, failure, how.tags), load.entry)

    def _stale_on_error(self, load: Load, key: str | bytes, error: Exception, stale: float) -> Any:
        """After a failed load, return the old value if it expired at most ``stale`` seconds ago; otherwise raise ``error``."""
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
            raise ConfigError(
                f"{self._about(key)}: this call is made inside the loader of the same key, so it would wait for itself; "
                "a loader must not ask for its own key",
                parameter="key",
            )

    # A server that is unreachable

    @hides_frames
    async def _ask(self, operation: Coroutine[Any, Any, T], entry: EntrySpec) -> T:
        """Run an operation on the server, unless the server was unreachable a moment ago.

        If the server is unreachable, raises Away with ``down="load"``, and ServerError with ``down="raise"``. Raises
        ConfigError if a key holds other data.
        """
        outage = self._outage
        error = outage.error  # Read only once, because another thread may set it to None at any time.
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
            raise self._in_the_way(conflict) from None
        if outage.error is not None:
            outage.ends()
        return answer

    @hides_frames
    async def _ask_anyway(self, operation: Coroutine[Any, Any, T], entry: EntrySpec) -> T:
        """Run an operation even if the server was unreachable a moment ago, because an invalidation must not be skipped."""
        try:
            return await self._do(operation, entry)
        except KeyConflict as conflict:
            raise self._in_the_way(conflict) from None

    def _in_the_way(self, conflict: KeyConflict) -> ConfigError:
        return ConfigError(f"cache {self._name!r} cannot be used: {conflict}; nothing was changed", parameter="name")


class Cache(InThreads, BaseCache[SyncClient]):
    """A cache on the server that loads each value once: one caller in all processes loads it, others wait or get a stale one.

    ``cache.get_or_load(key, loader)`` is the main method; ``@cache.memoize("price:{sku}")`` does the same for the calls of a
    function. Threads may share a cache.

    A loaded value is stored only if its key was not invalidated meanwhile, so no value is older than the last `invalidate`.
    The page docs/cache.md lists what is guaranteed and what is not.

    Args:
        client: as for `Lock`.
        name: name of the cache. Caches of the same name share their values. In a Cluster, all values of a cache are on one
            shard.
        ttl: seconds for which a value is fresh.
        stale: seconds after ``ttl`` for which the old value may be returned, while another caller loads a new one or if
            loading fails.
        codec: how values become bytes: "json", "bytes", "str", "msgpack", or an object with ``dumps`` and ``loads``. Use
            "pickle" only if nobody else can write to the server.
        wait: seconds to wait for the load of another caller. None: without limit.
        busy: what happens after ``wait``: "raise" raises LockTimeout, "load" calls the loader without storing its value.
        beta: how eagerly one caller loads a new value before the ``ttl`` of the old one has passed, so that nobody has to wait.
            1 is a good choice, 0 turns this off (XFetch: A. Vattani, F. Chierichetti, K. Lowenstein, "Optimal Probabilistic
            Cache Stampede Prevention", VLDB 2015).
        errors: types of exceptions that are stored like values, for ``error_ttl`` seconds, and raised for all callers.
        error_ttl: seconds for which a stored exception, or the fact that a value is too large, is kept.
        load_ttl: seconds of the lease of a load, which is renewed while the loader runs. If its process dies, the next caller
            can load when the lease has expired.
        max_hold: seconds after which the lease of a load is no longer renewed, so that a loader that hangs does not block the
            key. None: it is renewed as long as the loader runs.
        down: what `get_or_load` and `get` do while the server is unreachable. "load": call the loader, or return the default;
            "raise": raise ServerError.
        prefix: start of all keys on the server.
        max_size: largest value in bytes after encoding, up to 512 MiB. A larger one is not stored: for ``error_ttl`` seconds,
            each caller loads it for itself. All users of the cache have to pass the same number.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    _caller_type = Caller
    _memoized = Memoized

    def get_or_load(
        self,
        key: str,
        loader: Callable[[], T],
        *,
        ttl: Seconds | None = None,
        stale: Seconds | None = None,
        tags: Iterable[str] = (),
        wait: Seconds | Unset | None = UNSET,
        busy: Literal["raise", "load"] | None = None,
        default: Any = UNSET,
        **mistaken: Never,
    ) -> T:
        """Return the value of a key. If there is none, one caller in all processes runs ``loader`` and stores its result.

        ``loader`` is a function without arguments. Other options default to those of the cache. `invalidate` finds the
        value later by its ``tags``. If ``default`` is passed, the call returns it after ``wait`` seconds, whatever ``busy`` is.

        Raises LockTimeout if ``wait`` has passed, ``busy`` is "raise" and no ``default`` was passed. Raises the exception of
        the loader, even if it ran in another thread or task of this process, unless a stale value can be returned. Raises
        ConfigError if the codec cannot encode the value, or if the loader asks for its own key. Raises ServerError if the
        server cannot be reached and ``down`` is "raise".
        """
        options.refuse_mistaken(mistaken, "Cache.get_or_load")
        how = self._options(ttl, stale, tags, wait=wait, busy=busy, default=default)
        return complete(self._get_or_load(key, loader, how))  # type: ignore[no-any-return]

    def get(self, key: str, default: Any = None, **mistaken: Never) -> Any:
        """Return the value of a key, or ``default``. Loads nothing. A stale value is returned if ``stale`` seconds allow it. If
        an exception is stored, it is raised."""
        options.refuse_mistaken(mistaken, "Cache.get")
        return complete(self._get(key, default))

    def set(
        self,
        key: str,
        value: Any,
        *,
        ttl: Seconds | None = None,
        stale: Seconds | None = None,
        tags: Iterable[str] = (),
        **mistaken: Never,
    ) -> None:
        """Store a value. A load that is running does not replace it, nor does an earlier request that arrives late.

        Raises ServerError if the server cannot be reached, ConfigError if the codec cannot encode the value or it is too large.
        """
        options.refuse_mistaken(mistaken, "Cache.set")
        complete(self._set(key, value, self._options(ttl, stale, tags)))

    def delete(self, key: str, **mistaken: Never) -> bool:
        """Drop the value of one key, as `invalidate` does. Return True if there was a value. Raises ServerError."""
        options.refuse_mistaken(mistaken, "Cache.delete")
        return complete(self._delete(key))

    def invalidate(self, *keys: str, tags: Iterable[str] = (), **mistaken: Never) -> None:
        """Drop the values of these keys, and all values stored with one of these tags. Running loads of these keys, or of
        values with these tags, do not store their results.

        Raises ServerError if the server cannot be reached: it is then unknown whether the values were dropped.
        """
        options.refuse_mistaken(mistaken, "Cache.invalidate")
        complete(self._invalidate(keys, tags))

    def clear(self) -> None:
        """Drop all values of the cache. Raises ServerError."""
        complete(self._clear())

    def memoize(
        self,
        template: str,
        *,
        ttl: Seconds | None = None,
        stale: Seconds | None = None,
        tags: Iterable[str] = (),
        ignore: str | Iterable[str] = (),
        wait: Seconds | Unset | None = UNSET,
        busy: Literal["raise", "load"] | None = None,
        default: Any = UNSET,
        **mistaken: Never,
    ) -> Callable[[Callable[P, T]], Memoized[P, T]]:
        """Decorate a function to cache its results under the key that ``template`` gives, such as ``"price:{sku}"``.

        ``template`` and ``tags`` are filled from the function's arguments, including defaults. Calls with the same key get the
        same value, so ``template`` must name every argument, except those in ``ignore``: arguments that do not change the
        result, such as ``"self"`` or a connection. The decorated function has the methods ``invalidate`` and ``cache_key``,
        which take the same arguments. Options and errors are those of `get_or_load`. Raises ConfigError if the template leaves
        an argument out.
        """
        options.refuse_mistaken(mistaken, "Cache.memoize")
        how = self._options(ttl, stale, (), wait=wait, busy=busy, default=default)
        return self._decorator(template, how, tags, ignore)

    @staticmethod
    async def _call_loader(loader: Callable[[], Any]) -> Any:
        result = loader()
        if inspect.iscoroutine(result):
            result.close()
            raise ConfigError("the loader is a coroutine function: use holdfast.aio.Cache for it", parameter="loader")
        return result


@of_asyncio
class AioCache(InTasks, BaseCache[AsyncClient]):
    """A cache on the server that loads each value once: one caller in all processes loads it, others wait or get a stale one.

    ``cache.get_or_load(key, loader)`` is the main method; ``@cache.memoize("price:{sku}")`` does the same for the calls of a
    function. Tasks may share a cache.

    A loaded value is stored only if its key was not invalidated meanwhile, so no value is older than the last `invalidate`.
    The page docs/cache.md lists what is guaranteed and what is not.

    Args:
        client: as for `Lock`.
        name: name of the cache. Caches of the same name share their values. In a Cluster, all values of a cache are on one
            shard.
        ttl: seconds for which a value is fresh.
        stale: seconds after ``ttl`` for which the old value may be returned, while another caller loads a new one or if
            loading fails.
        codec: how values become bytes: "json", "bytes", "str", "msgpack", or an object with ``dumps`` and ``loads``. Use
            "pickle" only if nobody else can write to the server.
        wait: seconds to wait for the load of another caller. None: without limit.
        busy: what happens after ``wait``: "raise" raises LockTimeout, "load" calls the loader without storing its value.
        beta: how eagerly one caller loads a new value before the ``ttl`` of the old one has passed, so that nobody has to wait.
            1 is a good choice, 0 turns this off (XFetch: A. Vattani, F. Chierichetti, K. Lowenstein, "Optimal Probabilistic
            Cache Stampede Prevention", VLDB 2015).
        errors: types of exceptions that are stored like values, for ``error_ttl`` seconds, and raised for all callers.
        error_ttl: seconds for which a stored exception, or the fact that a value is too large, is kept.
        load_ttl: seconds of the lease of a load, which is renewed while the loader runs. If its process dies, the next caller
            can load when the lease has expired.
        max_hold: seconds after which the lease of a load is no longer renewed, so that a loader that hangs does not block the
            key. None: it is renewed as long as the loader runs.
        down: what `get_or_load` and `get` do while the server is unreachable. "load": call the loader, or return the default;
            "raise": raise ServerError.
        prefix: start of all keys on the server.
        max_size: largest value in bytes after encoding, up to 512 MiB. A larger one is not stored: for ``error_ttl`` seconds,
            each caller loads it for itself. All users of the cache have to pass the same number.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    _caller_type = AioCaller
    _memoized = AioMemoized

    async def get_or_load(
        self,
        key: str,
        loader: Callable[[], Awaitable[T]],
        *,
        ttl: Seconds | None = None,
        stale: Seconds | None = None,
        tags: Iterable[str] = (),
        wait: Seconds | Unset | None = UNSET,
        busy: Literal["raise", "load"] | None = None,
        default: Any = UNSET,
        **mistaken: Never,
    ) -> T:
        """Return the value of a key. If there is none, one caller in all processes runs ``loader`` and stores its result.

        ``loader`` is a coroutine function without arguments. Other options default to those of the cache. `invalidate`
        finds the value later by its ``tags``. If ``default`` is passed, the call returns it after ``wait`` seconds, whatever
        ``busy`` is.

        Raises LockTimeout if ``wait`` has passed, ``busy`` is "raise" and no ``default`` was passed. Raises the exception of
        the loader, even if it ran in another thread or task of this process, unless a stale value can be returned. Raises
        ConfigError if the codec cannot encode the value, or if the loader asks for its own key. Raises ServerError if the
        server cannot be reached and ``down`` is "raise".
        """
        options.refuse_mistaken(mistaken, "Cache.get_or_load")
        how = self._options(ttl, stale, tags, wait=wait, busy=busy, default=default)
        return await self._get_or_load(key, loader, how)  # type: ignore[no-any-return]

    async def get(self, key: str, default: Any = None, **mistaken: Never) -> Any:
        """Return the value of a key, or ``default``. Loads nothing. A stale value is returned if ``stale`` seconds allow it. If
        an exception is stored, it is raised."""
        options.refuse_mistaken(mistaken, "Cache.get")
        return await self._get(key, default)

    async def set(
        self,
        key: str,
        value: Any,
        *,
        ttl: Seconds | None = None,
        stale: Seconds | None = None,
        tags: Iterable[str] = (),
        **mistaken: Never,
    ) -> None:
        """Store a value. A load that is running does not replace it, nor does an earlier request that arrives late.

        Raises ServerError if the server cannot be reached, ConfigError if the codec cannot encode the value or it is too large.
        """
        options.refuse_mistaken(mistaken, "Cache.set")
        await self._set(key, value, self._options(ttl, stale, tags))

    async def delete(self, key: str, **mistaken: Never) -> bool:
        """Drop the value of one key, as `invalidate` does. Return True if there was a value. Raises ServerError."""
        options.refuse_mistaken(mistaken, "Cache.delete")
        return await self._delete(key)

    async def invalidate(self, *keys: str, tags: Iterable[str] = (), **mistaken: Never) -> None:
        """Drop the values of these keys, and all values stored with one of these tags. Running loads of these keys, or of
        values with these tags, do not store their results.

        Raises ServerError if the server cannot be reached: it is then unknown whether the values were dropped.
        """
        options.refuse_mistaken(mistaken, "Cache.invalidate")
        await self._invalidate(keys, tags)

    async def clear(self) -> None:
        """Drop all values of the cache. Raises ServerError."""
        await self._clear()

    def memoize(
        self,
        template: str,
        *,
        ttl: Seconds | None = None,
        stale: Seconds | None = None,
        tags: Iterable[str] = (),
        ignore: str | Iterable[str] = (),
        wait: Seconds | Unset | None = UNSET,
        busy: Literal["raise", "load"] | None = None,
        default: Any = UNSET,
        **mistaken: Never,
    ) -> Callable[[Callable[P, Awaitable[T]]], AioMemoized[P, T]]:
        """Decorate a function to cache its results under the key that ``template`` gives, such as ``"price:{sku}"``.

        ``template`` and ``tags`` are filled from the function's arguments, including defaults. Calls with the same key get the
        same value, so ``template`` must name every argument, except those in ``ignore``: arguments that do not change the
        result, such as ``"self"`` or a connection. The decorated function has the methods ``invalidate`` and ``cache_key``,
        which take the same arguments. Options and errors are those of `get_or_load`. Raises ConfigError if the template leaves
        an argument out.
        """
        options.refuse_mistaken(mistaken, "Cache.memoize")
        how = self._options(ttl, stale, (), wait=wait, busy=busy, default=default)
        return self._decorator(template, how, tags, ignore)

    @staticmethod
    async def _call_loader(loader: Callable[[], Any]) -> Any:
        result = loader()
        if not inspect.isawaitable(result):
            raise ConfigError("the loader is not a coroutine function: use holdfast.Cache for it", parameter="loader")
        return await result
