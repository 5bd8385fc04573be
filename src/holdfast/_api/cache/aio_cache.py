"""A cache for asyncio that loads each value once: `holdfast.aio.Cache`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Generic, Literal, Never, ParamSpec, TypeVar

from holdfast._api import options
from holdfast._api.cache.cache import BaseCache
from holdfast._api.cache.memoize import BaseMemoized
from holdfast._api.cache.options import UNSET, Unset, checked_tags
from holdfast._api.caller import AioCaller
from holdfast._api.templates import checked_ignore
from holdfast._core.requests import WireError
from holdfast._core.single_flight.entry import MAX_SIZE
from holdfast._core.single_flight.flight import EntrySpec
from holdfast._net.redaction import hides_client
from holdfast.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")


class Memoized(BaseMemoized[P, Awaitable[T]], Generic[P, T]):
    """A function whose results are kept in a cache: what `Cache.memoize` makes."""

    _is_async = True

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """The result for these arguments: kept, or made now."""
        value: T = await self._call(args, kwargs)
        return value

    async def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """The result for these arguments is void, and so is one that is being made now. Raises ServerError."""
        await self._cache.invalidate(self.cache_key(*args, **kwargs))


class Cache(BaseCache):
    """Values on the server, each loaded by one caller of all processes, while the others wait for it or take an older one.

    ``cache.get_or_load(key, loader)`` is the heart of it; ``@cache.memoize("price:{sku}")`` makes a function's calls such.
    Tasks may share a cache.

    A loaded value is stored only if its key was not invalidated meanwhile, so no value is older than the last `invalidate`. The
    promises, and what is not promised, are on the page docs/cache.md.

    Args:
        client: as for `Lock`.
        name: of the cache; its values are shared by all who give the same name. In a Cluster all of it is on one shard.
        ttl: seconds for which a value is good.
        stale: for how many more seconds it may be given to those who come while somebody loads a new one, or if loading fails.
        codec: how values become bytes: "json", "bytes", "str", "msgpack", an object with ``dumps`` and ``loads``; or "pickle",
            where nobody else can write to the server.
        wait: seconds to wait for somebody else's load; None: for ever.
        busy: what happens then: "raise" LockTimeout, or "load" it oneself, without storing it.
        beta: how eagerly one caller loads a value before its time is over, so that nobody has to wait; 1 is a good choice, 0
            never does (XFetch: A. Vattani, F. Chierichetti, K. Lowenstein, "Optimal Probabilistic Cache Stampede Prevention",
            VLDB 2015).
        errors: types of exceptions that are kept like values, for ``error_ttl`` seconds, and raised for all who ask.
        load_ttl: seconds of the lease of a load, which is renewed while the loader runs: when its process dies, the next caller
            loads after this time.
        max_hold: seconds after which the lease of a load is no longer renewed, so that a loader that hangs does not keep the
            key; None: it is renewed as long as the loader runs.
        down: what happens while the server is away: "load" without it, or "raise" ServerError.
        prefix: start of the keys on the server.
        max_size: bytes that a value may have when the codec has made them, up to 512 MiB. A larger one is not stored: for
            ``error_ttl`` seconds, each caller loads it for itself. All who share the cache have to pass the same.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
    """

    _face = "asyncio"

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
            AioCaller(client),
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

    async def get_or_load(
        self,
        key: str,
        loader: Callable[[], Awaitable[T]],
        *,
        ttl: float | None = None,
        stale: float | None = None,
        tags: Iterable[str] = (),
        wait: float | Unset | None = UNSET,
        busy: Literal["raise", "load"] | None = None,
        default: Any = UNSET,
    ) -> T:
        """The value of a key; ``loader`` is called, by one caller of all, if there is none; a coroutine function.

        Options that are not given are the cache's. ``tags``: names under which `invalidate` finds it later. ``default``: given
        when ``wait`` is over, instead of what ``busy`` says. Raises LockTimeout when it is; what the loader raises, this call's
        own or the one in this process that it has waited for; ConfigError for a value that the codec cannot keep, and for a
        loader that asks for its own key; ServerError, as ``down`` says.
        """
        how = self._options(ttl, stale, tags, wait=wait, busy=busy, default=default)
        value: T = await self._get_or_load(key, loader, how)
        return value

    async def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or ``default``; nothing is loaded. A stale one is given as long as ``stale`` allows."""
        return await self._get(key, default)

    async def set(
        self, key: str, value: Any, *, ttl: float | None = None, stale: float | None = None, tags: Iterable[str] = ()
    ) -> None:
        """Store a value; what is being loaded for the key now is not stored over it. Raises ServerError, ConfigError."""
        await self._set(key, value, self._options(ttl, stale, tags))

    async def delete(self, key: str) -> bool:
        """As `invalidate` for one key. True if there was a value. Raises ServerError."""
        return await self._delete(key)

    async def invalidate(self, *keys: str, tags: Iterable[str] = ()) -> None:
        """The values of these keys, and all that were stored with one of these tags, are void; and so is what is being loaded
        for them now. Raises ServerError: then nobody knows whether they are."""
        await self._invalidate(keys, tags)

    async def clear(self) -> None:
        """All values are void. Raises ServerError."""
        await self._clear()

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
    ) -> Callable[[Callable[P, Awaitable[T]]], Memoized[P, T]]:
        """Keep the results of a function, under the key that ``template`` gives: ``"price:{sku}"``.

        Templates, also those of ``tags``, are filled from the function's arguments, defaults included. Calls with the same key
        get the same value, so ``template`` has to name every argument. ``ignore``: names of arguments that do not decide the
        result, such as ``"self"`` or a connection. The function gets ``invalidate`` and ``cache_key``, which take the arguments
        that it takes. Options and errors are those of `get_or_load`; ConfigError for a template that leaves an argument out.
        """
        how = self._options(ttl, stale, (), wait=wait, busy=busy, default=default)
        templates, ignored = (template, *checked_tags(tags)), checked_ignore(ignore)

        def decorate(function: Callable[P, Awaitable[T]]) -> Memoized[P, T]:
            return Memoized(self, function, templates, how, ignored)

        return decorate

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
        if not inspect.isawaitable(result):
            raise ConfigError("the loader is no coroutine function: those are for holdfast.Cache", parameter="loader")
        return await result
