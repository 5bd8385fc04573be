"""Functions whose results are stored in a cache, for threads and for asyncio."""

from __future__ import annotations

import copy
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

from holdfast._api.annotations import refuse_unstorable
from holdfast._api.cache.options import How, checked_own_tags
from holdfast._api.flow import complete, of_asyncio
from holdfast._api.foreign_words import MEMOIZED_METHODS, ForeignMethods
from holdfast._api.functions import is_async, named, refuse_class, refuse_generator
from holdfast._api.templates import Filled
from holdfast.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")


class Inside(NamedTuple):
    """The internals of a cache that its decorated functions use."""

    codec: str
    """Word for the format in which the cache stores values, such as "json"."""
    get_or_load: Callable[[str, Callable[[], Any], How], Coroutine[Any, Any, Any]]


class BaseMemoized(ForeignMethods, Generic[P, T]):
    """A function whose results are stored in a cache. Base class for threads and for asyncio."""

    _foreign = MEMOIZED_METHODS
    _is_async: bool

    def __init__(
        self,
        cache: Any,
        function: Callable[P, T],
        templates: tuple[str, ...],
        *,
        how: How,
        ignore: tuple[str, ...],
        inside: Inside,
    ) -> None:
        refuse_class(function)
        refuse_generator(function, "there is no value to store")
        if is_async(function) is not self._is_async:
            what, whose = ("not a", "holdfast.Cache") if self._is_async else ("a", "holdfast.aio.Cache")
            raise ConfigError(f"{named(function)} is {what} coroutine function: use {whose} for it", parameter="function")
        functools.update_wrapper(self, function)  # type: ignore[arg-type]  # It is callable in both APIs.
        self._cache, self._function, self._how, self._inside = cache, function, how, inside
        refuse_unstorable(function, inside.codec)
        self._filled = Filled(function, *templates, ignore=ignore)
        self._bound: tuple[Any, ...] = ()

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return a method bound to ``instance``, as functions defined in a class do."""
        if instance is None:
            return self
        bound = copy.copy(self)
        bound._bound = (instance,)  # noqa: SLF001 - a copy of this object
        return bound

    def cache_key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return the key under which the result of a call with these arguments is stored."""
        return self._filled((*self._bound, *args), kwargs)[0]

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        args = (*self._bound, *args)
        key, *tags = self._filled(args, kwargs)
        how = self._how._replace(tags=checked_own_tags(tags)) if tags else self._how
        return self._inside.get_or_load(key, functools.partial(self._function, *args, **kwargs), how)


class Memoized(BaseMemoized[P, T]):
    """A function whose results are stored in a cache, as `Cache.memoize` returns it."""

    _is_async = False

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the cached result for these arguments. If there is none, call the function."""
        value: T = complete(self._call(args, kwargs))
        return value

    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Drop the cached result for these arguments. A call that is running now will not store its result. Raises
        ServerError."""
        self._cache.invalidate(self.cache_key(*args, **kwargs))


@of_asyncio
class AioMemoized(BaseMemoized[P, Awaitable[T]], Generic[P, T]):
    """A function whose results are stored in a cache, as `Cache.memoize` returns it."""

    _is_async = True

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the cached result for these arguments. If there is none, call the function."""
        value: T = await self._call(args, kwargs)
        return value

    async def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Drop the cached result for these arguments. A call that is running now will not store its result. Raises
        ServerError."""
        await self._cache.invalidate(self.cache_key(*args, **kwargs))
