"""Hints that name the right option or method for a word of another library, and for ``with`` in place of ``async with``.

Users arrive from redis-py, python-redis-lock, redlock-py, pottery, Redisson, `threading` and Django's caches. An error that
names the right word is the documentation that they read first. The tables are looked up only when a word is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_LEASE = "pass ttl= for how long the lock outlives a crashed holder; a live holder renews it"
_WAIT = "pass wait= for how long to wait for the lock"
_AT_ONCE = "pass wait=0 to fail at once, or call acquire(blocking=False)"
_POLLING = "leave it out: a waiter is notified, and does not poll"
_TOKEN = "leave it out: each acquisition has a token of its own; pass label= for a name that others see"  # noqa: S105 (a hint)
_RENEW = "leases are renewed by default; pass renew=False to renew them yourself"
_THREADS = "leave it out: any thread may release the lock through this object"
_CLIENT = "pass the client or its URL as the first argument"
_PREFIX = "pass prefix= for the start of all keys"
_TIMEOUT = (
    "pass ttl= for how long the lock outlives a crashed holder (redis-py's timeout), "
    "or wait= for how long to wait for the lock (threading's timeout)"
)

_EVERYWHERE = {
    **dict.fromkeys(("redis", "redis_client", "connection", "conn", "masters", "url", "server"), _CLIENT),
    **dict.fromkeys(("namespace", "key_prefix", "global_prefix"), _PREFIX),
}

LOCKS = {
    **_EVERYWHERE,
    "timeout": _TIMEOUT,
    **dict.fromkeys(("expire", "expires", "expiration", "ex", "px", "lease_time", "lease", "auto_release_time"), _LEASE),
    **dict.fromkeys(("blocking_timeout", "acquire_timeout", "wait_timeout", "wait_time", "max_wait"), _WAIT),
    **dict.fromkeys(("blocking", "nonblocking", "non_blocking", "block"), _AT_ONCE),
    **dict.fromkeys(("sleep", "retry", "retries", "retry_times", "retry_count", "retry_delay", "interval"), _POLLING),
    **dict.fromkeys(("id", "token", "owner", "lock_id", "identifier"), _TOKEN),
    **dict.fromkeys(("auto_renewal", "auto_renew", "auto_extend", "watchdog", "num_extensions"), _RENEW),
    "thread_local": _THREADS,
    "reentrant": "use holdfast.RLock",
    "fair": "use holdfast.FairLock",
    "value": "pass limit= for the number of permits of a Semaphore",
    "permits": "pass limit= for the number of permits of a Semaphore",
    "on_expire": "pass on_lost= for a function to call when the lease is lost",
}
"""Hints for unknown options of locks, of `locked`, and of the other classes and functions that have no table of their own."""

_FRESH = "pass ttl= for how long a stored value stays fresh, or wait= for how long to wait for another caller's load"
CACHES = {
    **_EVERYWHERE,
    **dict.fromkeys(("timeout", "expire", "expires", "expiration", "ex", "px", "default_timeout", "expiration_time"), _FRESH),
    **dict.fromkeys(("lock_timeout", "lease_time", "lease"), "pass load_ttl= for how long a load outlives a crashed process"),
    **dict.fromkeys(("blocking_timeout", "lock_wait"), "pass wait= for how long to wait for another caller's load"),
    **dict.fromkeys(("sleep", "lock_sleep"), _POLLING),
    **dict.fromkeys(("serializer", "pickler"), "pass codec= for how values are stored"),
    "maxsize": "leave it out: the server limits its memory (maxmemory); max_size= limits one value",
}
_KEPT = "pass keep= for how long the result is kept, ttl= for how long a run outlives a crashed process, or wait= for how long"
ONCE = {
    **_EVERYWHERE,
    **dict.fromkeys(("timeout", "expire", "expires", "ex", "px"), f"{_KEPT} to wait for a run elsewhere"),
    **dict.fromkeys(("blocking_timeout", "acquire_timeout"), "pass wait= for how long to wait for a run elsewhere"),
    **dict.fromkeys(("key", "id", "idempotency_key"), "the template names the key, such as 'pay:{order_id}'"),
}
_LEADS = "pass ttl= for how long the leadership outlives a crashed leader, or wait= for how long to campaign"
ELECTIONS = {
    **_EVERYWHERE,
    **dict.fromkeys(("timeout", "expire", "lease_time", "lease"), _LEADS),
    "blocking_timeout": "pass wait= for how long to campaign",
    **dict.fromkeys(("id", "identifier", "label", "node"), "pass candidate= for the name of this candidate"),
    "sleep": _POLLING,
}
SCHEDULES = {
    **_EVERYWHERE,
    **dict.fromkeys(("timezone", "tz"), "pass tz= to the timetable, as in cron(..., tz='Europe/Berlin')"),
    **dict.fromkeys(("max_workers", "max_instances", "executors"), "pass concurrency= for the runs of this process"),
    **dict.fromkeys(("expire", "lease_time"), "pass ttl= to a job, for how long a run outlives a crashed process"),
}
_OF = {"Cache": CACHES, "once": ONCE, "Election": ELECTIONS, "Schedule": SCHEDULES}
"""Tables of hints of the classes and functions that do not use `LOCKS`, by their name."""

METHODS = {
    "extend": "call renew() of the lease that `with` or acquire() returns; it is renewed by itself unless renew=False",
    "reacquire": "call renew() of the lease that `with` or acquire() returns; it is renewed by itself unless renew=False",
    "renew": "call renew() of the lease that `with` or acquire() returns; it is renewed by itself unless renew=False",
    "owned": "use lock.lease, which is None unless this object holds the lock; lease.verify() asks the server",
    "held": "use lock.lease, which is None unless this object holds the lock; lease.check() raises if it was lost",
    "fence": "use the fence of the lease that `with` or acquire() returns: lease.fence",
    "token": "use the fence of the lease that `with` or acquire() returns: lease.fence",
    "lock": "call acquire(), or use the lock in a `with` statement",
    "unlock": "call release()",
    "reset": "call holdfast.Inspector(...).break_lock(), or `holdfast break NAME`, to revoke the lock from its holder",
    "force_release": "call holdfast.Inspector(...).break_lock(), or `holdfast break NAME`, to revoke the lock from its holder",
    "ttl": "use remaining() of the lease that `with` or acquire() returns",
}
"""Methods and attributes of locks of other libraries, and what a lock or its lease has instead."""


def hint_for(option: str, cls: str) -> str:
    """Return what to pass instead of another library's option; empty if the option is not known. ``cls``: name of the class
    or function that was called with the option."""
    return _OF.get(cls, LOCKS).get(option, "")


class ForeignMethods:
    """A base class whose error names the right method when a user looks up a method of another library."""

    if not TYPE_CHECKING:  # a type checker must refuse these names

        def __getattr__(self, name: str) -> Any:
            hint = f": {METHODS[name]}" if name in METHODS else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)


class WrongWithError(TypeError, AttributeError):
    """Raised by ``with`` on an object of `holdfast.aio`, and by ``async with`` on one of `holdfast`.

    It is an AttributeError, too: for ``hasattr``, the object does not have the method.
    """


class NoWith:
    """A descriptor in the place of ``__enter__`` or ``__aenter__``. Looking the method up raises, so that the object does not
    count as a context manager of that kind."""

    def __init__(self, hint: str) -> None:
        self._hint = hint

    def __get__(self, instance: object, owner: type) -> Any:
        raise WrongWithError(f"{owner.__name__}: {self._hint}")


WITH = NoWith("this class is for asyncio: use `async with`, or the class of the same name in holdfast for threads")
ASYNC_WITH = NoWith("this class is for threads: use `with`, or the class of the same name in holdfast.aio for asyncio")
