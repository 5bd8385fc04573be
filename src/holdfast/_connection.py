"""`connect` returns a connection, which has a client and the default options for all locks of a program."""

# mypy: disable-error-code="arg-type"
# mypy sees that a constructor's ``client`` might be passed by name, too. `Method` always passes it by position.
# ruff: noqa: TC004
# At run time, the names of classes below (such as ``Lock``) are strings, so that each class is imported at its first use.

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, NoReturn, ParamSpec, Self, TypeVar, overload

from holdfast._api import decorator
from holdfast._api.flow import of_asyncio
from holdfast._api.foreign_words import ASYNC_WITH, CLIENT, CONNECTION_METHODS, WITH, ForeignMethods
from holdfast._api.options import MIN_TTL, checked_wait, explain_words, seconds
from holdfast._core.names import start
from holdfast._durations import Seconds
from holdfast._lazy import later
from holdfast._net.clients import AsyncClient, Servers, SyncClient
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import listed, resolve
from holdfast._runtime.process import current
from holdfast._usage import replace_usage, usage_of
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast._api.barrier import AioBarrier, Barrier
    from holdfast._api.cache.cache import AioCache, Cache
    from holdfast._api.election import AioElection, Election
    from holdfast._api.event import AioCountDownLatch, AioEvent, CountDownLatch, Event
    from holdfast._api.inspector import AioInspector, Inspector
    from holdfast._api.lock import AioFairLock, AioLock, FairLock, Lock
    from holdfast._api.multilock import AioMultiLock, MultiLock
    from holdfast._api.redeem import AioRedeemedLock, RedeemedLock
    from holdfast._api.redlock import AioRedlock, Redlock
    from holdfast._api.rlock import AioRLock, RLock
    from holdfast._api.rwlock import AioRWLock, RWLock
    from holdfast._api.semaphore import AioBoundedSemaphore, AioSemaphore, BoundedSemaphore, Semaphore
    from holdfast._api.transaction import AioTransaction, Transaction
    from holdfast.schedule.schedule import AioSchedule, Schedule

P = ParamSpec("P")
T = TypeVar("T")


_HOMES = {
    "accept": "holdfast.fencing",
    "aio_accept": "holdfast.fencing",
    "aio_fenced_set": "holdfast.fencing",
    "aio_find_deadlocks": "holdfast._api.deadlock",
    "aio_once": "holdfast._api.once",
    "AioBarrier": "holdfast._api.barrier",
    "AioBoundedSemaphore": "holdfast._api.semaphore",
    "AioCache": "holdfast._api.cache.cache",
    "AioCountDownLatch": "holdfast._api.event",
    "AioElection": "holdfast._api.election",
    "AioEvent": "holdfast._api.event",
    "AioFairLock": "holdfast._api.lock",
    "AioInspector": "holdfast._api.inspector",
    "AioLock": "holdfast._api.lock",
    "AioMultiLock": "holdfast._api.multilock",
    "AioRedeemedLock": "holdfast._api.redeem",
    "AioRedlock": "holdfast._api.redlock",
    "AioRLock": "holdfast._api.rlock",
    "AioRWLock": "holdfast._api.rwlock",
    "AioSchedule": "holdfast.schedule.schedule",
    "AioSemaphore": "holdfast._api.semaphore",
    "AioTransaction": "holdfast._api.transaction",
    "Barrier": "holdfast._api.barrier",
    "BoundedSemaphore": "holdfast._api.semaphore",
    "Cache": "holdfast._api.cache.cache",
    "CountDownLatch": "holdfast._api.event",
    "Election": "holdfast._api.election",
    "Event": "holdfast._api.event",
    "FairLock": "holdfast._api.lock",
    "fenced_set": "holdfast.fencing",
    "find_deadlocks": "holdfast._api.deadlock",
    "Inspector": "holdfast._api.inspector",
    "Lock": "holdfast._api.lock",
    "locked": "holdfast._api.decorator",
    "MultiLock": "holdfast._api.multilock",
    "once": "holdfast._api.once",
    "RedeemedLock": "holdfast._api.redeem",
    "Redlock": "holdfast._api.redlock",
    "RLock": "holdfast._api.rlock",
    "RWLock": "holdfast._api.rwlock",
    "Schedule": "holdfast.schedule.schedule",
    "Semaphore": "holdfast._api.semaphore",
    "Transaction": "holdfast._api.transaction",
    "transactional": "holdfast._api.transactional",
}
"""Maps classes and functions to their modules. A module is imported when a connection's method for it is first looked up."""


_imported = later({"__name__": __name__}, _HOMES)


class Method(Generic[P, T]):
    """A method of a connection, which calls a class or function with the connection's client, and passes on all options.

    Its signature is that of the class or function, without the client. ``name``: a name in `_HOMES`. ``defaults``: names of
    the options for which the connection has the default.
    """

    def __init__(self, name: str, *defaults: str, doc: str | None = None) -> None:
        self.name = name
        self.defaults = defaults
        self.__doc__ = doc
        self._function: Callable[..., T] | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self._called = f"{owner.__name__}.{name}"

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[Concatenate[Any, P], T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[P, T]: ...
    def __get__(self, instance: object, owner: type) -> Any:
        if self._function is None:
            self._function = self._made()
        return self._function if instance is None else self._function.__get__(instance, owner)

    def _made(self) -> Callable[..., T]:
        target, defaults = _imported(self.name), self.defaults
        signature = inspect.signature(target)
        client, *others = signature.parameters.values()
        busy = signature.parameters["busy"].default if "busy" in signature.parameters else "wait"

        def method(self: BaseConnection, *args: Any, **options: Any) -> Any:
            try:
                return target(self._client, *args, **self._filled(options, defaults, busy))
            except TypeError as error:
                replace_usage(error, usage_of(target, target.__name__), usage_of(target, method.__name__, 1))
                if str(error).endswith(CLIENT):
                    error.args = (str(error).removesuffix(CLIENT) + "leave it out: the connection has the client",)
                raise error.with_traceback(None)  # noqa: B904 (it is the same error)

        method.__name__, method.__qualname__ = self._called.partition(".")[2], self._called
        method.__doc__ = "\n\n".join(filter(None, [self.__doc__, inspect.getdoc(target)]))
        method.__signature__ = signature.replace(  # type: ignore[attr-defined]  # read by `inspect`
            parameters=[client.replace(name="self", annotation=client.empty), *others],
            return_annotation=target.__name__ if inspect.isclass(target) else signature.return_annotation,
        )
        return method


def makes(cls: Callable[Concatenate[Any, P], T], *defaults: str) -> Callable[[Callable[[Any], object]], Method[P, T]]:
    """Replace the decorated method by a `Method` that creates objects of ``cls``. Only the method's docstring is kept.

    ``defaults``: names of the options for which the connection has the default. At run time, ``cls`` is a name in `_HOMES`.
    """
    return lambda described: Method(str(cls), *defaults, doc=inspect.getdoc(described))


if TYPE_CHECKING:
    # A type checker sees each function as a method, with all its overloads, and the connection as its argument ``client``.
    _locked = decorator.locked
    from holdfast._api.deadlock import aio_find_deadlocks as _aio_find_deadlocks
    from holdfast._api.deadlock import find_deadlocks as _find_deadlocks
    from holdfast._api.once import aio_once as _aio_once
    from holdfast._api.once import once as _once
    from holdfast._api.transactional import transactional as _transactional
    from holdfast.fencing import accept as _accept
    from holdfast.fencing import aio_accept as _aio_accept
    from holdfast.fencing import aio_fenced_set as _aio_fenced_set
    from holdfast.fencing import fenced_set as _fenced_set
else:
    globals().update({name: name for name in _HOMES})
    _locked = Method("locked", "prefix", "ttl", "wait")
    _once = Method("once", "prefix", "ttl", "wait")
    _aio_once = Method("aio_once", "prefix", "ttl", "wait")
    _find_deadlocks = Method("find_deadlocks", "prefix")
    _aio_find_deadlocks = Method("aio_find_deadlocks", "prefix")
    _transactional = Method("transactional")
    _accept, _aio_accept = Method("accept"), Method("aio_accept")
    _fenced_set, _aio_fenced_set = Method("fenced_set"), Method("aio_fenced_set")


class BaseConnection(ForeignMethods):
    """The client and the defaults of a connection. Base class for threads and for asyncio."""

    _foreign = CONNECTION_METHODS

    _api: Literal["sync", "asyncio"]

    @hides_client("connect")
    def __init__(self, client: object, prefix: str, ttl: Seconds, wait: Seconds | None) -> None:
        self._client: Any = _from_environment() if client is None else client
        self._endpoints = [resolve(one, self._api) for one in listed(self._client)]
        start(prefix)
        self._options = {"prefix": prefix, "ttl": seconds(ttl, "ttl", MIN_TTL), "wait": checked_wait(wait)}

    def _filled(self, options: dict[str, Any], defaults: Iterable[str], busy: str) -> dict[str, Any]:
        """Return ``options``, with the options named in ``defaults`` added if they are missing.

        ``busy``: the default of the option ``busy``. If a call does not wait for a busy lock, ``wait`` is not added.
        """
        waits = options.get("busy", busy) == "wait"
        return {**{name: self._options[name] for name in defaults if waits or name != "wait"}, **options}

    @property
    def _where(self) -> str:
        return ", ".join(endpoint.address for endpoint in self._endpoints)

    def __repr__(self) -> str:
        return f"<holdfast{'.aio' if self._api == 'asyncio' else ''} connection to {self._where}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a connection cannot be pickled: call connect() in the other process")


def _from_environment() -> str | list[str]:
    from holdfast._local import environment  # imported here, because most programs pass a client

    found = environment.urls()
    if not found:
        raise ConfigError(f"no server: set HOLDFAST_URL, or pass a client or a URL{_local()}", parameter="client")
    return found if len(found) > 1 else found[0]


def _local() -> str:
    """Return advice to use this machine's own server, if stderr is a terminal and the server program is installed; else ""."""
    from holdfast._local.server import binary

    try:
        return "; connect('local://') uses this machine's own server" if os.isatty(2) and binary.find() else ""
    except ConfigError:
        return ""


class Connection(BaseConnection):
    """A client, and the options that are the same for all locks of a program. `connect` returns it.

    Its methods make the objects that the classes of `holdfast` make, without passing the client each time. An option that is
    passed to a method replaces that of the connection. Threads may share a connection.
    """

    if not TYPE_CHECKING:
        __aenter__ = ASYNC_WITH

    _api = "sync"

    @makes(Lock, "prefix", "ttl", "wait")
    def lock(self) -> object:
        """Return a `Lock`, which only one thread or task of one process holds at a time."""

    @makes(FairLock, "prefix", "ttl", "wait")
    def fair_lock(self) -> object:
        """Return a `FairLock`: a `Lock` that is granted in the strict order of arrival, across all processes."""

    @makes(RLock, "prefix", "ttl", "wait")
    def rlock(self) -> object:
        """Return an `RLock`: a lock that its holder may acquire again."""

    @makes(Redlock, "prefix", "ttl", "wait")
    def redlock(self) -> object:
        """Return a `Redlock`: a lock on a majority of the independent servers that were passed to `connect`."""

    @makes(RWLock, "prefix", "ttl", "wait")
    def rwlock(self) -> object:
        """Return an `RWLock`: many readers, or one writer."""

    @makes(Semaphore, "prefix", "ttl", "wait")
    def semaphore(self) -> object:
        """Return a `Semaphore`: at most ``limit`` permits are held at a time."""

    @makes(BoundedSemaphore, "prefix", "ttl", "wait")
    def bounded_semaphore(self) -> object:
        """Return a `BoundedSemaphore`: a `Semaphore` that raises ValueError if it is released too often."""

    @makes(MultiLock, "prefix", "ttl", "wait")
    def multilock(self) -> object:
        """Return a `MultiLock`: several locks, acquired together without deadlock."""

    @makes(RedeemedLock, "prefix", "ttl")
    def redeem(self) -> object:
        """Return the lock of a ticket that another process has sent. Acquiring the lock takes over its lease."""

    @makes(Election, "prefix", "ttl")
    def election(self) -> object:
        """Return an `Election`: one of the candidates leads at a time. The connection's ``wait`` is not used."""

    @makes(Cache, "prefix")
    def cache(self) -> object:
        """Return a `Cache`: one caller loads a missing value for all.

        The connection's ``ttl`` and ``wait`` are not used, because the options of a cache with these names have another
        meaning.
        """

    @makes(Schedule, "prefix")
    def schedule(self) -> object:
        """Return a `Schedule`: each tick of a job is run by one process. The connection's ``ttl`` is not used."""

    @makes(Event, "prefix")
    def event(self) -> object:
        """Return an `Event`: processes wait until a process sets the event."""

    @makes(Barrier, "prefix")
    def barrier(self) -> object:
        """Return a `Barrier`: processes wait for each other. The connection's ``ttl`` is not used."""

    @makes(CountDownLatch, "prefix")
    def count_down_latch(self) -> object:
        """Return a `CountDownLatch`: processes wait until a count has reached 0."""

    @makes(Inspector, "prefix")
    def inspector(self) -> object:
        """Return an `Inspector`, which lists the locks with the prefix, their holders and waiters, and can break a lock."""

    @makes(Transaction)
    def transaction(self) -> object:
        """Return a `Transaction`: it reads keys, and writes only if no other client has changed these keys meanwhile."""

    locked = _locked
    once = _once
    transactional = _transactional
    find_deadlocks = _find_deadlocks
    fenced_set = _fenced_set
    accept = _accept

    def close(self) -> None:
        """Close the connections that this process has opened to the servers and does not use now.

        Locks that are held stay held, and are renewed. The next use opens a connection again. A client that was passed to
        `connect` stays open, because it belongs to the caller.
        """
        current().close_idle(self._endpoints)

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the connections, as `close` does."""
        self.close()


@of_asyncio
class AioConnection(BaseConnection):
    """A client, and the options that are the same for all locks of a program. `connect` returns it.

    Its methods make the objects that the classes of `holdfast.aio` make, without passing the client each time. An option that
    is passed to a method replaces that of the connection. Tasks may share a connection.
    """

    if not TYPE_CHECKING:
        __enter__ = WITH

    _api = "asyncio"

    @makes(AioLock, "prefix", "ttl", "wait")
    def lock(self) -> object:
        """Return a `Lock`, which only one thread or task of one process holds at a time."""

    @makes(AioFairLock, "prefix", "ttl", "wait")
    def fair_lock(self) -> object:
        """Return a `FairLock`: a `Lock` that is granted in the strict order of arrival, across all processes."""

    @makes(AioRLock, "prefix", "ttl", "wait")
    def rlock(self) -> object:
        """Return an `RLock`: a lock that its holder may acquire again."""

    @makes(AioRedlock, "prefix", "ttl", "wait")
    def redlock(self) -> object:
        """Return a `Redlock`: a lock on a majority of the independent servers that were passed to `connect`."""

    @makes(AioRWLock, "prefix", "ttl", "wait")
    def rwlock(self) -> object:
        """Return an `RWLock`: many readers, or one writer."""

    @makes(AioSemaphore, "prefix", "ttl", "wait")
    def semaphore(self) -> object:
        """Return a `Semaphore`: at most ``limit`` permits are held at a time."""

    @makes(AioBoundedSemaphore, "prefix", "ttl", "wait")
    def bounded_semaphore(self) -> object:
        """Return a `BoundedSemaphore`: a `Semaphore` that raises ValueError if it is released too often."""

    @makes(AioMultiLock, "prefix", "ttl", "wait")
    def multilock(self) -> object:
        """Return a `MultiLock`: several locks, acquired together without deadlock."""

    @makes(AioRedeemedLock, "prefix", "ttl")
    def redeem(self) -> object:
        """Return the lock of a ticket that another process has sent. Acquiring the lock takes over its lease."""

    @makes(AioElection, "prefix", "ttl")
    def election(self) -> object:
        """Return an `Election`: one of the candidates leads at a time. The connection's ``wait`` is not used."""

    @makes(AioCache, "prefix")
    def cache(self) -> object:
        """Return a `Cache`: one caller loads a missing value for all.

        The connection's ``ttl`` and ``wait`` are not used, because the options of a cache with these names have another
        meaning.
        """

    @makes(AioSchedule, "prefix")
    def schedule(self) -> object:
        """Return a `Schedule`: each tick of a job is run by one process. The connection's ``ttl`` is not used."""

    @makes(AioEvent, "prefix")
    def event(self) -> object:
        """Return an `Event`: processes wait until a process sets the event."""

    @makes(AioBarrier, "prefix")
    def barrier(self) -> object:
        """Return a `Barrier`: processes wait for each other. The connection's ``ttl`` is not used."""

    @makes(AioCountDownLatch, "prefix")
    def count_down_latch(self) -> object:
        """Return a `CountDownLatch`: processes wait until a count has reached 0."""

    @makes(AioInspector, "prefix")
    def inspector(self) -> object:
        """Return an `Inspector`, which lists the locks with the prefix, their holders and waiters, and can break a lock."""

    @makes(AioTransaction)
    def transaction(self) -> object:
        """Return a `Transaction`: it reads keys, and writes only if no other client has changed these keys meanwhile."""

    locked = _locked
    once = _aio_once
    transactional = _transactional
    find_deadlocks = _aio_find_deadlocks
    fenced_set = _aio_fenced_set
    accept = _aio_accept

    async def close(self) -> None:
        """Close the connections that this event loop has opened to the servers. A request that is under way fails.

        Locks that are held stay held, and are renewed. The next use opens a connection again. A client that was passed to
        `connect` stays open, because it belongs to the caller.
        """
        from holdfast._runtime.drivers.aio import close_to  # imported late: programs of threads need no asyncio

        await close_to(self._endpoints)

    async def __aenter__(self) -> Self:
        """Return this object."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections, as `close` does."""
        await self.close()


@hides_client(usage='connect("redis://HOST:PORT/DB", ttl=...)', words=explain_words)
def connect(
    client: SyncClient | Servers[SyncClient] | None = None,
    *,
    prefix: str = "hf:",
    ttl: Seconds = 30.0,
    wait: Seconds | None = None,
) -> Connection:
    """Return an object with a client and defaults. Its methods make locks, caches and the other objects. Nothing is sent yet.

    Args:
        client: a client, a URL, or a list or dictionary of several independent servers, as for `Lock` and `Redlock`. None: the
            URL in HOLDFAST_URL or, if that is not set, in REDIS_URL. Several URLs, separated by blanks, are several servers.
        prefix: start of all keys on the server.
        ttl: length of the leases of locks, elections, `locked` and `once`, in seconds or as a text such as ``"5m"``.
        wait: seconds to wait for a busy lock; None: without limit. `locked` and `once` use it only with ``busy="wait"``.

    Raises:
        ConfigError: an option is out of range, or there is no URL in the environment.
    """
    return Connection(client, prefix, ttl, wait)


@of_asyncio
@hides_client("connect", 'connect("redis://HOST:PORT/DB", ttl=...)', explain_words)
def aio_connect(
    client: AsyncClient | Servers[AsyncClient] | None = None,
    *,
    prefix: str = "hf:",
    ttl: Seconds = 30.0,
    wait: Seconds | None = None,
) -> AioConnection:
    """Return an object with a client and defaults. Its methods make locks, caches and the other objects. Nothing is sent yet.

    Args:
        client: a client, a URL, or a list or dictionary of several independent servers, as for `Lock` and `Redlock`. None: the
            URL in HOLDFAST_URL or, if that is not set, in REDIS_URL. Several URLs, separated by blanks, are several servers.
        prefix: start of all keys on the server.
        ttl: length of the leases of locks, elections, `locked` and `once`, in seconds or as a text such as ``"5m"``.
        wait: seconds to wait for a busy lock; None: without limit. `locked` and `once` use it only with ``busy="wait"``.

    Raises:
        ConfigError: an option is out of range, or there is no URL in the environment.
    """
    return AioConnection(client, prefix, ttl, wait)
