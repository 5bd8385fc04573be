"""`Cache` for threads: values on the server, each loaded by one caller. `holdfast.aio` has the class for asyncio."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Literal, Never, ParamSpec, TypeVar

from holdfast._api import options
from holdfast._api.cache.cache import BaseCache
from holdfast._api.cache.memoize import BaseMemoized, Inside
from holdfast._api.cache.options import UNSET, CacheStatistics, Unset, checked_tags
from holdfast._api.caller import Caller
from holdfast._api.templates import checked_ignore
from holdfast._core.requests import WireError
from holdfast._core.single_flight.entry import MAX_SIZE
from holdfast._core.single_flight.flight import EntrySpec
from holdfast._net.redaction import hides_client
from holdfast.errors import ConfigError

__all__ = ["Cache", "CacheStatistics", "Memoized"]

P = ParamSpec("P")
T = TypeVar("T")


class Memoized(BaseMemoized[P, T]):
    """A function whose results are stored in a cache, as `Cache.memoize` returns it."""

    _is_async = False

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result for these arguments: the cached one, or that of a call of the function now."""
        assert self._inside.run is not None
        value: T = self._inside.run(self._call(args, kwargs))
        return value

    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Drop the cached result for these arguments; one that is being computed now is not stored. Raises ServerError."""
        self._cache.invalidate(self.cache_key(*args, **kwargs))


class Cache(BaseCache):
    """A cache on the server that loads each value once: one caller in all processes loads it, others wait or get a stale one.

    ``cache.get_or_load(key, loader)`` is the main method; ``@cache.memoize("price:{sku}")`` does the same for the calls of a
    function. Threads may share a cache.

    A loaded value is stored only if its key was not invalidated meanwhile, so no value is older than the last `invalidate`.
    The page docs/cache.md lists what is guaranteed and what is not.

    Args:
        client: as for `Lock`.
        name: name of the cache. Caches of the same name share their values. In a Cluster, all of them are on one shard.
        ttl: seconds for which a value is fresh.
        stale: seconds for which a value may be returned after that, while another caller loads a new one or if loading fails.
        codec: how values become bytes: "json", "bytes", "str", "msgpack", or an object with ``dumps`` and ``loads``. "pickle"
            only if nobody else can write to the server.
        wait: seconds to wait for the load of another caller. None: without limit.
        busy: what happens after that: "raise" raises LockTimeout, "load" calls the loader without storing its value.
        beta: how eagerly one caller loads a new value before the old one is stale, so that nobody has to wait. 1 is a good
            choice, 0 turns this off (XFetch: A. Vattani, F. Chierichetti, K. Lowenstein, "Optimal Probabilistic Cache Stampede
            Prevention", VLDB 2015).
        errors: types of exceptions that are stored like values, for ``error_ttl`` seconds, and raised for all callers.
        error_ttl: seconds for which a stored exception, or the fact that a value is too large, is kept.
        load_ttl: seconds of the lease of a load, which is renewed while the loader runs. If its process dies, the next caller
            can load when the lease has expired.
        max_hold: seconds after which this lease is no longer renewed, so that a loader that hangs does not block the key. None:
            renewed as long as the loader runs.
        down: what happens while the server is unreachable: "load" calls loaders without the cache, "raise" raises ServerError.
        prefix: start of all keys on the server.
        max_size: largest value in bytes after encoding, up to 512 MiB. A larger one is not stored: for ``error_ttl`` seconds,
            each caller loads it for itself. All users of the cache have to pass the same number.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    _face = "sync"

    @hides_client()
    def __init__(
        self,
        client: object,
        name: str,
        *,
        ttl: float = 60.0,
        stale: float = 0.0,
        codec: object = "json",
        wait: float | None = 30.0,
        busy: Literal["raise", "load"] = "raise",
        beta: float = 0.0,
        errors: type[Exception] | tuple[type[Exception], ...] = (),
        error_ttl: float = 5.0,
        load_ttl: float = 5.0,
        max_hold: float | None = None,
        down: Literal["load", "raise"] = "load",
        prefix: str = "hf:",
        max_size: int = MAX_SIZE,
        **mistaken: Never,
    ) -> None:
        options.refuse_mistaken(mistaken, type(self).__name__)
        super().__init__(
            Caller(client),
            name,
            ttl=ttl,
            stale=stale,
            codec=codec,
            wait=wait,
            busy=busy,
            beta=beta,
            errors=errors,
            error_ttl=error_ttl,
            load_ttl=load_ttl,
            max_hold=max_hold,
            down=down,
            prefix=prefix,
            max_size=max_size,
        )

    def get_or_load(
        self,
        key: str,
        loader: Callable[[], T],
        *,
        ttl: float | None = None,
        stale: float | None = None,
        tags: Iterable[str] = (),
        wait: float | Unset | None = UNSET,
        busy: Literal["raise", "load"] | None = None,
        default: Any = UNSET,
    ) -> T:
        """Return the value of a key. If there is none, one caller in all processes runs ``loader`` and stores its result.

        ``loader`` is called without arguments (a function). Other options default to those of the cache. `invalidate` finds the
        value later by its ``tags``. ``default`` is returned if ``wait`` has passed, in place of what ``busy`` demands.

        Raises LockTimeout if ``wait`` has passed. Raises the exception of the loader, even if it ran in another thread or task
        of this process. Raises ConfigError if the codec cannot encode the value, or if the loader asks for its own key. Raises
        ServerError if the server cannot be reached and ``down`` is "raise".
        """
        how = self._options(ttl, stale, tags, wait=wait, busy=busy, default=default)
        value: T = self._run(self._get_or_load(key, loader, how))
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or ``default``. Loads nothing. A stale value is returned if ``stale`` seconds allow it."""
        return self._run(self._get(key, default))

    def set(
        self, key: str, value: Any, *, ttl: float | None = None, stale: float | None = None, tags: Iterable[str] = ()
    ) -> None:
        """Store a value. A load that runs now and an earlier call whose request arrives late do not replace it.

        Raises ServerError if the server cannot be reached, ConfigError if the codec cannot encode the value or it is too large.
        """
        self._run(self._set(key, value, self._options(ttl, stale, tags)))

    def delete(self, key: str) -> bool:
        """Drop the value of one key, as `invalidate` does. Return True if there was a value. Raises ServerError."""
        return self._run(self._delete(key))

    def invalidate(self, *keys: str, tags: Iterable[str] = ()) -> None:
        """Drop the values of these keys, and all values stored with one of these tags. Loads of them that run now are not
        stored.

        Raises ServerError if the server cannot be reached: it is then unknown whether the values were dropped.
        """
        self._run(self._invalidate(keys, tags))

    def clear(self) -> None:
        """Drop all values of the cache. Raises ServerError."""
        self._run(self._clear())

    def memoize(
        self,
        template: str,
        *,
        ttl: float | None = None,
        stale: float | None = None,
        tags: Iterable[str] = (),
        ignore: str | Iterable[str] = (),
        wait: float | Unset | None = UNSET,
        busy: Literal["raise", "load"] | None = None,
        default: Any = UNSET,
    ) -> Callable[[Callable[P, T]], Memoized[P, T]]:
        """Decorate a function to cache its results under the key that ``template`` gives, such as ``"price:{sku}"``.

        ``template`` and ``tags`` are filled from the function's arguments, including defaults. Calls with the same key get the
        same value, so ``template`` must name every argument, except those in ``ignore``: arguments that do not change the
        result, such as ``"self"`` or a connection. The decorated function has the methods ``invalidate`` and ``cache_key``,
        which take the same arguments. Options and errors are those of `get_or_load`. Raises ConfigError if the template leaves
        an argument out.
        """
        how = self._options(ttl, stale, (), wait=wait, busy=busy, default=default)
        templates, ignored = (template, *checked_tags(tags)), checked_ignore(ignore)

        def decorate(function: Callable[P, T]) -> Memoized[P, T]:
            inside = Inside(self._codec.kind, self._get_or_load, self._run)
            return Memoized(self, function, templates, how=how, ignore=ignored, inside=inside)

        return decorate

    def _run(self, flow: Coroutine[Any, Any, T]) -> T:
        try:
            flow.send(None)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        raise AssertionError  # The coroutine never waits, since its requests are done when they return.

    async def _do(self, operation: Coroutine[Any, Any, T], entry: EntrySpec) -> T:
        answer: T = await self._caller.run(operation, entry.value, self._about(entry.spec.name))
        return answer

    async def _read(self, entry: EntrySpec) -> list[bytes | None] | None:
        try:
            return await self._caller.ask(entry.reading, entry.value)  # type: ignore[no-any-return]
        except WireError:
            return None

    async def _call(self, function: Callable[[], Any]) -> Any:
        result = function()
        if inspect.iscoroutine(result):
            result.close()
            raise ConfigError("the loader is a coroutine function: use holdfast.aio.Cache for it", parameter="loader")
        return result
