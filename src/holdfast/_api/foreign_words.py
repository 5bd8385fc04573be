"""Hints that name the right option or method for a word of another library, and for ``with`` in place of ``async with``.

Users arrive from redis-py, python-redis-lock, redlock-py, pottery, Redisson, `threading` and Django's caches. An error that
names the right word is the documentation that they read first. The tables are looked up only when a word is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

Words = Mapping[str, str]
"""Words of other libraries, with what to use instead."""

_LEASE = "pass ttl= for how long the lock outlives a crashed holder; a live holder renews it"
_WAIT = "pass wait= for how long to wait for the lock"
_AT_ONCE = "pass wait=0 to fail at once, or call acquire(blocking=False)"
_POLLING = "leave it out: a waiter is notified, and does not poll"
_TOKEN = "leave it out: each acquisition has a token of its own; pass label= for a name that others see"  # noqa: S105 (a hint)
_RENEW = "leases are renewed by default; pass renew=False to renew them yourself"
_THREADS = "leave it out: any thread may release the lock through this object"
CLIENT = "pass the client or its URL as the first argument"
_PREFIX = "pass prefix= for the start of all keys"
_TIMEOUT = (
    "pass ttl= for how long the lock outlives a crashed holder (redis-py's timeout), "
    "or wait= for how long to wait for the lock (threading's timeout)"
)

_EVERYWHERE = {
    **dict.fromkeys(("redis", "redis_client", "connection", "conn", "masters", "url", "server"), CLIENT),
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
    "skip": "pass busy='skip' to locked or once, or call acquire(blocking=False)",
    "raise_on_release_error": "leave it out: the end of `with` raises LeaseLost after a loss, and warns if the server is away",
    "reentrant": "use holdfast.RLock",
    "fair": "use holdfast.FairLock",
    "value": "pass limit= for the number of permits of a Semaphore",
    "permits": "pass limit= for the number of permits of a Semaphore",
    "on_expire": "pass on_lost= for a function to call when the lease is lost",
    "labels": "pass label= for a text that other clients see beside host and pid",
}
"""Hints for unknown options of locks, of `locked`, and of the other classes and functions that have no table of their own."""

_UNPOLLED = dict.fromkeys(
    ("sleep", "retry", "retries", "retry_times", "retry_count", "retry_delay", "interval", "lock_sleep"), _POLLING
)

_FRESH = "pass ttl= for how long a stored value stays fresh, or wait= for how long to wait for another caller's load"
_BUSY_LOAD = "pass busy='raise' or busy='load' to the Cache"
_LOAD_WAIT = "pass wait= for how long to wait for another caller's load"
CACHES = {
    **_EVERYWHERE,
    **dict.fromkeys(("timeout", "expire", "expires", "expiration", "ex", "px", "default_timeout", "expiration_time"), _FRESH),
    **dict.fromkeys(("lock_timeout", "lease_time", "lease"), "pass load_ttl= for how long a load outlives a crashed process"),
    **dict.fromkeys(("blocking_timeout", "lock_wait"), _LOAD_WAIT),
    **dict.fromkeys(("serializer", "pickler"), "pass codec= for how values are stored"),
    **_UNPOLLED,
    **dict.fromkeys(("acquire_timeout", "wait_timeout", "wait_time", "max_wait"), _LOAD_WAIT),
    **dict.fromkeys(("blocking", "block", "nonblocking", "non_blocking", "skip"), _BUSY_LOAD),
    "maxsize": "leave it out: the server limits its memory (maxmemory); max_size= limits one value",
}
_KEPT = "pass keep= for how long the result is kept, ttl= for how long a run outlives a crashed process, or wait= for how long"
_BUSY_RUN = "pass busy='wait', busy='raise' or busy='skip'"
_RUN_WAIT = "pass busy='wait', and wait= for how long to wait for a run elsewhere"
ONCE = {
    **_EVERYWHERE,
    **_UNPOLLED,
    **dict.fromkeys(("timeout", "expire", "expires", "ex", "px", "expiration"), f"{_KEPT} to wait for a run elsewhere"),
    **dict.fromkeys(("blocking_timeout", "acquire_timeout", "wait_timeout", "wait_time", "max_wait"), _RUN_WAIT),
    **dict.fromkeys(("lease_time", "lease", "lock_timeout"), "pass ttl= for how long a run outlives a crashed process"),
    **dict.fromkeys(("blocking", "block", "nonblocking", "non_blocking", "skip"), _BUSY_RUN),
    **dict.fromkeys(("id", "idempotency_key"), "the template names the key, such as 'pay:{order_id}'"),
    **dict.fromkeys(("serializer", "pickler"), "pass codec= for how results are stored"),
}
_LEADS = "pass ttl= for how long the leadership outlives a crashed leader, or wait= for how long to campaign"
_CANDIDATE = "pass candidate= for the name of this candidate"
_CAMPAIGN = "pass wait= for how long to campaign"
ELECTIONS = {
    **_EVERYWHERE,
    **_UNPOLLED,
    **dict.fromkeys(("timeout", "expire", "expires", "expiration", "ex", "px", "lease_time", "lease"), _LEADS),
    **dict.fromkeys(("blocking_timeout", "acquire_timeout", "wait_timeout", "wait_time", "max_wait"), _CAMPAIGN),
    **dict.fromkeys(("blocking", "block", "nonblocking", "non_blocking"), "call campaign(), and pass wait=0 to the Election"),
    "on_expire": "pass on_lost= for a function to call when the term ends by a loss",
    **dict.fromkeys(("id", "identifier", "node", "owner", "token", "lock_id"), _CANDIDATE),
}
_OF_RUN = "pass ttl= to a job, for how long a run outlives a crashed process"
SCHEDULES = {
    **_EVERYWHERE,
    "timeout": (
        "pass max_runtime= of a job for how long a run may take, ttl= of a job for how long the lease of a run outlives a "
        "crashed process, or finish_within= of run() and stop() for how long runs may go on"
    ),
    **dict.fromkeys(("timezone", "tz"), "pass tz= to the timetable, as in cron(..., tz='Europe/Berlin')"),
    **dict.fromkeys(("limit", "max_workers", "max_instances", "executors"), "pass concurrency= for the runs of this process"),
    **dict.fromkeys(("expire", "expires", "expiration", "ex", "px", "lease_time", "lease"), _OF_RUN),
    **dict.fromkeys(("interval", "sleep"), 'declare a job with @schedule.every("5m")'),
    **dict.fromkeys(("retry", "retries"), "pass on_crash= to a job, for what happens after a crash"),
    **dict.fromkeys(("id", "node", "identifier"), "leave it out: a process is shown by host and pid"),
}
_LASTS = "nobody holds it; pass keep= for how long the server keeps it after the last call"
_WAITS = "pass timeout= to wait(), for how long to wait"
EVENTS = {
    **_EVERYWHERE,
    **_UNPOLLED,
    **dict.fromkeys(
        ("expire", "expires", "expiration", "ex", "px", "lease_time", "lease", "auto_release_time", "lock_timeout"), _LASTS
    ),
    **dict.fromkeys(("blocking_timeout", "acquire_timeout", "wait_timeout", "wait_time", "max_wait"), _WAITS),
    **dict.fromkeys(("blocking", "block", "nonblocking", "non_blocking"), "pass timeout=0 to wait()"),
}
LATCHES = {**EVENTS, **dict.fromkeys(("value", "permits"), "pass count, the third argument, for how many calls open the latch")}
BARRIERS = {
    **EVENTS,
    **dict.fromkeys(
        ("expire", "expires", "expiration", "ex", "px", "lease_time", "lease", "auto_release_time", "lock_timeout"),
        "pass ttl= for how long a crashed participant counts, or keep= for how long the server keeps an unused barrier",
    ),
    **dict.fromkeys(
        ("blocking_timeout", "acquire_timeout", "wait_timeout", "wait_time", "max_wait"),
        "pass timeout= for how long to wait for the other participants",
    ),
    **dict.fromkeys(("value", "permits"), "pass parties, the third argument, for the number of participants"),
}
_NO_LEASE = "a transaction holds no lock, so nothing expires: EXEC fails if another client has changed a watched key"
_TRIES = "pass tries= to transactional or run(), for how often to try"
TRANSACTIONS = {
    **_EVERYWHERE,
    **dict.fromkeys(("expire", "expires", "expiration", "ex", "px", "lease_time", "lease", "ttl", "lock_timeout"), _NO_LEASE),
    **dict.fromkeys(
        ("timeout", "wait", "blocking_timeout", "acquire_timeout", "wait_timeout", "wait_time", "max_wait"),
        "pass wait= to transactional or run(), for how long to try again after conflicts",
    ),
    **dict.fromkeys(("retry", "retries", "retry_times", "retry_count", "tries"), _TRIES),
    **dict.fromkeys(
        ("retry_delay", "sleep", "interval", "watch_delay"), "leave it out: run() chooses the pauses between tries"
    ),
    **dict.fromkeys(("namespace", "key_prefix", "global_prefix", "prefix"), "leave it out: the keys have no prefix"),
    "watches": "pass the keys to watch after the client",
}
_IN_URL = 'pass a URL that contains it; write connect("redis://HOST:PORT/DB", ttl=...)'
CONNECTIONS = {
    **LOCKS,
    **dict.fromkeys(("host", "port", "db", "password", "username", "ssl"), _IN_URL),
}
_OF_LOCK = "to the lock itself, as in Lock(client, name"
ACQUIRES = {
    **dict.fromkeys(
        ("blocking_timeout", "acquire_timeout", "wait", "wait_timeout", "wait_time", "max_wait"),
        f"pass timeout= for how long to wait for the lock, or wait= {_OF_LOCK}, wait=5)",
    ),
    **dict.fromkeys(("block", "nonblocking", "non_blocking"), "pass blocking=False to fail at once"),
    **dict.fromkeys(("ttl", "expire", "expires", "ex", "px", "lease_time", "lease"), f"pass ttl= {_OF_LOCK}, ttl=30)"),
    **dict.fromkeys(("sleep", "retry_delay", "retry_times", "interval"), _POLLING),
    **dict.fromkeys(("token", "id", "owner", "identifier"), "leave it out: each acquisition has a token of its own"),
    **dict.fromkeys(("n", "count", "permits", "weight"), "pass weight= to the Semaphore itself"),
}
"""Arguments of ``acquire`` of other libraries."""

_NO_TOKEN = "leave it out: the object has the token of its own acquisition"  # noqa: S105 (a hint)
WAITS = {
    **dict.fromkeys(
        ("blocking_timeout", "acquire_timeout", "wait", "wait_timeout", "wait_time", "max_wait", "seconds", "expire", "ttl"),
        "pass timeout= for how long to wait",
    ),
    **dict.fromkeys(("blocking", "block", "nonblocking", "non_blocking"), "pass timeout=0 to return at once"),
    **_UNPOLLED,
}
RENEWALS = {
    **dict.fromkeys(
        ("additional_time", "expire", "expires", "ex", "px", "timeout", "lease_time", "seconds", "duration", "extend_by"),
        "pass ttl= for how long the lease lasts from now on",
    ),
    **dict.fromkeys(("replace_ttl", "replace"), "leave it out: ttl= replaces the time that is left"),
    **dict.fromkeys(("token", "owner", "id", "identifier"), _NO_TOKEN),
    **_UNPOLLED,
}
RELEASES = {
    **dict.fromkeys(("count", "permits", "value", "weight"), "pass n= for the number of acquisitions to release"),
    **dict.fromkeys(("token", "owner", "id", "identifier"), _NO_TOKEN),
    "force": "call holdfast.Inspector(...).break_lock(), or `holdfast break NAME`, to end the lease of another holder",
}
TICKETS = dict.fromkeys(
    ("expire", "ttl", "ex", "px", "timeout", "lease_time", "max_age", "valid_for"),
    "pass expires= for how long the ticket can be redeemed",
)
COUNTS = {
    **dict.fromkeys(("count", "permits", "value"), "pass n= for how much to count down"),
    **dict.fromkeys(("id", "token", "name", "owner"), "pass by= for a name that counts only once"),
}
READS = {
    **dict.fromkeys(
        ("timeout", "ttl", "expire", "expires", "ex", "px", "expiration", "expiration_time"),
        "reading does not change how long a value stays fresh; pass ttl= to set, to get_or_load or to the Cache",
    ),
    **dict.fromkeys(("loader", "creator", "func", "function"), "call get_or_load(key, loader)"),
    **dict.fromkeys(("wait", "blocking_timeout", "lock_timeout"), "get loads nothing; pass wait= to get_or_load"),
    "ignore_expiration": "pass stale= to the Cache, for how long an expired value may be returned",
}
DROPS = {
    **dict.fromkeys(("key", "pattern", "prefix"), "pass the keys themselves, or tags= of get_or_load for groups of values"),
    "tag": "pass tags=, even for one tag",
    "keys": "pass the keys as separate arguments, as in invalidate(*keys)",
}
LOOKS = {"prefix": "pass prefix= to the Inspector", "lock": "pass the name as the first argument"}
BREAKS = {
    **LOOKS,
    "name": "pass the name as the first argument",
    **dict.fromkeys(("force", "yes"), "leave it out: the lease always ends at once"),
    **dict.fromkeys(("owner", "token", "id"), "pass holder= of what show(name) returns, to end the lease of one holder"),
    **dict.fromkeys(("reason", "label", "who"), "pass by= for your name, which the former holder is told"),
}
SERVES = dict.fromkeys(
    ("timeout", "wait", "drain", "grace", "grace_period", "graceful_timeout", "shutdown_timeout", "block"),
    "pass finish_within= for how long runs may go on",
)
HISTORIES = dict.fromkeys(("limit", "n", "count", "size", "max"), "pass last= for the number of entries")
FENCES = {
    **_EVERYWHERE,
    **dict.fromkeys(("token", "fencing_token", "lease", "version"), "pass fence=lease.fence"),
    **dict.fromkeys(("ex", "expire", "expires", "timeout", "px"), "pass ttl= to fenced_set, for the expiry of the key"),
    **dict.fromkeys(("name", "resource"), "pass key= for the resource"),
    "prefix": "leave it out: the key is used as it is passed",
    "ttl": "accept stores no value; pass keep= for how long the server keeps the fence",
}

_INTERVAL, _CRON = 'write @schedule.every("5m") for an interval', 'write @schedule.cron("0 3 * * *") for a time of day'
JOBS = {
    **dict.fromkeys(("timeout", "time_limit"), "pass max_runtime= for how long a run may take"),
    **dict.fromkeys(("max_instances", "concurrency"), "pass overlap= for what happens if a run is due during another"),
    "misfire_grace_time": "pass grace= for how late a run may begin",
    "coalesce": "pass misfire= for what happens to missed ticks",
    "timezone": "pass tz= to cron",
    **dict.fromkeys(("retries", "max_retries"), "pass on_crash= for what happens after a crash"),
    "queue": "pass on= for the features that a process must have",
    **dict.fromkeys(("seconds", "minutes", "hours", "days", "weeks"), _INTERVAL),
    **dict.fromkeys(("second", "minute", "hour", "day", "month", "day_of_week"), _CRON),
}
"""Options of jobs of other schedulers."""

SCHEDULE_FILE = {
    **dict.fromkeys(("job", "task", "tasks"), "write [jobs.NAME] for a job"),
    **dict.fromkeys(("timeout", "time_limit"), 'write max_runtime = "1h" for how long a run may take'),
    **dict.fromkeys(("interval", "period", "seconds", "minutes", "hours", "days"), 'write every = "5m"'),
    **dict.fromkeys(("schedule", "when", "crontab", "at", "expression", "hour", "minute"), 'write cron = "0 3 * * *"'),
    **dict.fromkeys(("cmd", "run", "exec", "script", "args", "argv"), 'write command = ["./backup.sh"]'),
    **dict.fromkeys(("function", "func", "callable"), 'write python = "module:function"'),
    **dict.fromkeys(("cwd", "dir", "workdir", "working_directory"), 'write directory = "/srv"'),
    "environment": 'write env = { LEVEL = "9" }',
    "timezone": 'write tz = "Europe/Berlin"',
    **dict.fromkeys(("retries", "max_retries"), 'write on_crash = "again" to run it again after a crash'),
    **dict.fromkeys(("queue", "label", "labels", "tags"), 'write on = "gpu" for the features that a process must have'),
}
"""Keys of files of other schedulers."""

_OF = {
    "Cache": CACHES,
    "Cache.set": CACHES,
    "Cache.get_or_load": CACHES,
    "Cache.memoize": CACHES,
    "once": ONCE,
    "Election": ELECTIONS,
    "campaign": ELECTIONS,
    "Schedule": SCHEDULES,
    "Event": EVENTS,
    "CountDownLatch": LATCHES,
    "Barrier": BARRIERS,
    "Transaction": TRANSACTIONS,
    "transactional": TRANSACTIONS,
    "connect": CONNECTIONS,
    "Inspector": _EVERYWHERE,
    "find_deadlocks": _EVERYWHERE,
    "declare_new": _EVERYWHERE,
    "job": JOBS,
    "schedule file": SCHEDULE_FILE,
    "acquire": ACQUIRES,
    "Event.wait": WAITS,
    "CountDownLatch.wait": WAITS,
    "CountDownLatch.count_down": COUNTS,
    "Barrier.wait": WAITS,
    "Inspector.show": LOOKS,
    "Inspector.wait": WAITS | LOOKS,
    "Inspector.break_lock": BREAKS,
    "Lease.renew": RENEWALS,
    "MultiLease.renew": RENEWALS,
    "Lock.ticket": TICKETS,
    "LockLease.ticket": TICKETS,
    "Semaphore.release": RELEASES,
    "Cache.get": READS,
    "Cache.delete": DROPS,
    "Cache.invalidate": DROPS,
    "Schedule.run": SERVES,
    "Schedule.stop": SERVES,
    "Schedule.history": HISTORIES,
    "Transaction.run": TRANSACTIONS,
    "accept": FENCES,
    "fenced_set": FENCES,
}
"""Tables of hints, by the name of the class or function that uses the table instead of `LOCKS`."""

_SHOW = "call holdfast.Inspector(...).show(name), or `holdfast show NAME`, which name the holder"
LOCK_METHODS: Words = {
    **dict.fromkeys(
        ("extend", "reacquire", "renew", "refresh", "touch", "expire", "keepalive", "heartbeat"),
        "call lock.lease.renew(); a lease is renewed by itself unless renew=False",
    ),
    **dict.fromkeys(
        ("owned", "is_owned", "is_held", "acquired", "is_acquired"),
        "use lock.lease, which is None unless this object holds the lock; lease.verify() asks the server",
    ),
    **dict.fromkeys(("owner", "get_owner", "get_owner_id", "holder", "held_by", "info", "status", "queue"), _SHOW),
    **dict.fromkeys(("is_locked", "exists"), "call locked()"),
    **dict.fromkeys(("try_lock", "tryLock", "try_acquire"), "call acquire(blocking=False)"),
    "held": "use lock.lease, which is None unless this object holds the lock; lease.check() raises if it was lost",
    "fence": "use lock.lease.fence, the fence of the lease",
    "token": "use lock.lease.fence, the fence of the lease",
    "local": "use lock.lease.fence, the fence of the lease",
    "lock": "call acquire(), or use the lock in a `with` statement",
    "unlock": "call release()",
    "reset": "call holdfast.Inspector(...).break_lock(), or `holdfast break NAME`, to end the lease of its holder",
    "force_release": "call holdfast.Inspector(...).break_lock(), or `holdfast break NAME`, to end the lease of its holder",
    "ttl": "use lock.lease.remaining()",
}
"""Methods and attributes that locks of other libraries have, each with its replacement in a lock or lease of holdfast. The
tables below are for the other classes of holdfast."""

SEMAPHORE_METHODS: Words = {**LOCK_METHODS} | dict.fromkeys(
    ("value", "permits", "capacity", "size"), "call limit() for the number of permits, or available() for the free ones"
)
LEASE_METHODS: Words = {
    **dict.fromkeys(
        ("extend", "reacquire", "refresh", "touch", "keepalive"),
        "call renew(ttl); the lease is renewed by itself unless the lock has renew=False",
    ),
    **dict.fromkeys(
        ("owned", "held", "is_held", "valid", "is_valid", "locked", "is_lost", "status"),
        "call check(), which raises LeaseLost if the lease is lost, or verify(), which asks the server; or read lost.is_set()",
    ),
    **dict.fromkeys(("ttl", "expires", "expires_at", "expiration", "validity", "timeout"), "call remaining(), in seconds"),
    **dict.fromkeys(("token", "fencing_token", "id", "version"), "use fence, a number that rises with each acquisition"),
    **dict.fromkeys(("acquire", "lock"), "a lease is one acquisition; to acquire the lock again meanwhile, use holdfast.RLock"),
    **dict.fromkeys(("owner", "holder", "info"), _SHOW),
    "unlock": "call release()",
}
MULTILEASE_METHODS: Words = {**LEASE_METHODS, "fence": "use fences, the fence of each lock by the name of the lock"}
_BOTH_SIDES = "use one of the two sides, as in `with lock.read:` or `lock.write.acquire()`"
RWLOCK_METHODS: Words = {
    **dict.fromkeys(("acquire", "release", "locked", "lease", "statistics"), _BOTH_SIDES),
    **dict.fromkeys(("read_lock", "reader", "shared", "acquire_read", "gen_rlock"), "use read, as in `with lock.read:`"),
    **dict.fromkeys(("write_lock", "writer", "exclusive", "acquire_write", "gen_wlock"), "use write, as in `with lock.write:`"),
}
CACHE_METHODS: Words = {
    **dict.fromkeys(("get_or_set", "get_or_create", "get_or_compute", "remember", "fetch"), "call get_or_load(key, loader)"),
    **dict.fromkeys(("cached", "cache", "cache_on_arguments", "wrap"), 'decorate with @cache.memoize("price:{sku}")'),
    **dict.fromkeys(("add", "put"), "call set(key, value)"),
    **dict.fromkeys(("pop", "remove", "evict", "expire"), "call delete(key)"),
    **dict.fromkeys(("flush", "flush_all", "reset"), "call clear()"),
    **dict.fromkeys(("stats", "info"), "call statistics()"),
}
MEMOIZED_METHODS: Words = {
    **dict.fromkeys(("cache_clear", "clear", "delete", "delete_memoized"), "call invalidate() with the arguments of a call"),
    **dict.fromkeys(("cache_info", "info"), "call statistics() of the cache"),
    **dict.fromkeys(("uncached", "original", "func"), "use __wrapped__"),
}
_READ, _QUEUE, _EXEC = (
    "use read, as in tx.read.get(key)",
    "use queue, as in tx.queue.set(key, value)",
    "EXEC is sent at the end of `with`",
)
TRANSACTION_METHODS: Words = {
    **dict.fromkeys(("get", "mget", "hget", "hgetall", "exists", "lrange", "smembers"), _READ),
    **dict.fromkeys(("set", "hset", "incr", "decr", "incrby", "delete", "expire", "lpush", "rpush", "sadd", "zadd"), _QUEUE),
    **dict.fromkeys(("write", "multi", "pipeline", "pipe"), _QUEUE),
    **dict.fromkeys(("execute", "commit"), _EXEC),
    **dict.fromkeys(("rollback", "discard", "unwatch", "reset"), f"{_EXEC}, unless the block raises"),
}
ELECTION_METHODS: Words = {
    **dict.fromkeys(("run", "start", "elect", "lead", "acquire"), "use `with election as term:`, or call campaign()"),
    **dict.fromkeys(("stop", "release", "step_down", "abdicate"), "call resign()"),
    **dict.fromkeys(("elected", "is_elected", "leading"), "use is_leader"),
    **dict.fromkeys(("get_leader", "current_leader"), "call leader()"),
    **dict.fromkeys(("watch", "subscribe", "listen"), "iterate over observe()"),
    **dict.fromkeys(("id", "identifier"), "use candidate"),
}
_DECLARE = 'decorate a function with @schedule.every("5m") or @schedule.cron("0 3 * * *"), or call add()'
SCHEDULE_METHODS: Words = {
    **dict.fromkeys(("add_job", "job", "task", "scheduled_job", "interval", "repeat", "do"), _DECLARE),
    **dict.fromkeys(("run_forever", "run_pending", "serve", "loop"), "call run()"),
    **dict.fromkeys(("shutdown", "close"), "call stop()"),
    **dict.fromkeys(("get_jobs", "list_jobs"), "use jobs for those of this process, or status() for all"),
    **dict.fromkeys(("trigger", "execute", "run_job"), "call run_now(job)"),
    **dict.fromkeys(("pause_job", "resume_job", "remove_job"), "leave out _job: call pause(job), resume(job) or remove(job)"),
}
INSPECTOR_METHODS: Words = {
    **dict.fromkeys(("ls", "list", "all", "keys", "scan", "find", "search"), "iterate over locks(), or locks(pattern)"),
    **dict.fromkeys(("get", "info", "holder", "lock", "inspect"), "call show(name)"),
    **dict.fromkeys(("kill", "revoke", "force_release", "unlock", "delete"), "call break_lock(name)"),
}
CONNECTION_METHODS: Words = {
    **dict.fromkeys(("mutex", "acquire", "Lock"), "call lock(name)"),
    **dict.fromkeys(("rw_lock", "read_lock", "write_lock"), "call rwlock(name), whose read and write are the two sides"),
    **dict.fromkeys(("leader", "leader_election"), "call election(name)"),
    **dict.fromkeys(("memoize", "cached"), 'call cache(name), and decorate with @cache.memoize("price:{sku}")'),
    **dict.fromkeys(("inspect", "locks", "ls", "show", "break_lock"), "call inspector(), which has the methods for all locks"),
    **dict.fromkeys(("every", "cron"), "call schedule(name), which has the decorators"),
    **dict.fromkeys(("disconnect", "aclose", "quit"), "call close()"),
    **dict.fromkeys(("fencing", "guard", "fence"), "call fenced_set(key, value, lease.fence) or accept(key, lease.fence)"),
    **dict.fromkeys(
        ("declare_new", "nodes", "init"),
        "run `holdfast nodes init` once for new servers, or call holdfast.declare_new(servers); never at each start",
    ),
    **dict.fromkeys(
        ("get", "set", "delete", "execute_command", "pipeline", "eval", "publish", "ping"),
        "a connection makes locks and the like; for other commands, use your own client",
    ),
}

_SUBMODULES = ("django", "doctor", "schedule", "sqlalchemy", "testing")
NAMES = {
    **dict.fromkeys(("Mutex", "RedisLock", "DistributedLock", "NamedLock", "TTLLock"), "use holdfast.Lock"),
    **dict.fromkeys(("AsyncLock", "AioLock", "AIOLock", "asyncio"), "use holdfast.aio.Lock"),
    **dict.fromkeys(("RedLock", "QuorumLock"), "use holdfast.Redlock"),
    **dict.fromkeys(("ReentrantLock", "RecursiveLock"), "use holdfast.RLock"),
    **dict.fromkeys(("ReadWriteLock", "ReaderWriterLock", "SharedLock"), "use holdfast.RWLock"),
    **dict.fromkeys(("Leader", "LeaderElection", "Candidate"), "use holdfast.Election"),
    **dict.fromkeys(("Scheduler", "every", "cron"), "use holdfast.Schedule"),
    **dict.fromkeys(("cached", "memoize", "cache"), "use holdfast.Cache, whose method memoize decorates functions"),
    **dict.fromkeys(
        ("synchronized", "synchronize", "with_lock", "lock", "mutex"), "use holdfast.Lock, or the decorator holdfast.locked"
    ),
    **dict.fromkeys(("idempotent", "run_once"), "use holdfast.once"),
    **dict.fromkeys(("inspect", "ls", "break_lock"), "use holdfast.Inspector"),
    **dict.fromkeys(
        ("guard", "fence", "accept", "fenced_set"),
        "use accept or fenced_set of holdfast.fencing, in asyncio those with aio_ before their names",
    ),
    **dict.fromkeys(("Redis", "Valkey", "Client", "from_url"), "use holdfast.connect, or pass a URL to Lock"),
    **dict.fromkeys(
        (
            "LockError",
            "LockException",
            "Timeout",
            "LockNotOwnedError",
            "NotAcquired",
            "AlreadyAcquired",
            "AlreadyLocked",
            "ReleaseUnlockedLock",
            "ExtendUnlockedLock",
            "QuorumNotAchieved",
            "QuorumIsImpossible",
        ),
        "use holdfast.HoldfastError, or one of its subclasses: LockTimeout, NotHeld, LeaseLost, ServerError, ConfigError",
    ),
    **{name: f"write `import holdfast.{name}`" for name in _SUBMODULES},
}
"""Names that a user may expect in `holdfast` or `holdfast.aio`, and what there is instead."""


def hint_for(option: str, cls: str) -> str:
    """Return what to pass instead of another library's option; empty if the option is not known. ``cls``: name of the class
    or function that was called with the option."""
    return _OF.get(cls, LOCKS).get(option, "")


def is_foreign(option: str) -> bool:
    """Return whether any of the tables has ``option`` as a word of another library."""
    return any(option in table for table in (LOCKS, *_OF.values()))


def hint_for_name(name: str, module: str = "holdfast", there: Collection[str] = ()) -> str:
    """Return the end of the error for a name that a module of ours does not have; empty if the name is not known.

    ``module``: name of the module. ``there``: names that it has. Of these, the hint shows the ones in this module.
    """
    import re  # imported here, because only errors need it

    hint = re.sub(
        r"\bholdfast\.(\w+)", lambda found: f"{module}.{found[1]}" if found[1] in there else found[0], NAMES.get(name, "")
    )
    return f": {hint}" if hint else ""


class ForeignMethods:
    """A base class whose objects raise a helpful error if a user looks up a method of another library."""

    _foreign: ClassVar[Words] = LOCK_METHODS
    """Methods and attributes of other libraries, and what this class has instead."""

    if not TYPE_CHECKING:  # a type checker must refuse these names

        def __getattr__(self, name: str) -> Any:
            hint = f": {self._foreign[name]}" if name in self._foreign else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def __dir__(self) -> list[str]:
        """Return the names without private ones, so that Python's "Did you mean" never suggests one of these."""
        return [name for name in super().__dir__() if not name.startswith("_") or name.startswith("__")]


class WrongWithError(TypeError, AttributeError):
    """Raised by ``with`` on an object of `holdfast.aio`, and by ``async with`` on an object of `holdfast`.

    It is an AttributeError, too, so that ``hasattr`` finds no such method. Users see it as a TypeError.
    """


WrongWithError.__module__, WrongWithError.__qualname__ = "builtins", "TypeError"


class NoWith:
    """A descriptor in the place of a special method, such as ``__enter__``. Looking it up raises WrongWithError with ``hint``.

    So the object does not count as one that has the method.
    """

    def __init__(self, hint: str) -> None:
        self._hint = hint

    def __get__(self, instance: object, owner: type) -> Any:
        raise WrongWithError(f"{owner.__name__}: {self._hint}")


WITH = NoWith("this class is for asyncio: use `async with`, or the class of the same name in holdfast for threads")
ASYNC_WITH = NoWith("this class is for threads: use `with`, or the class of the same name in holdfast.aio for asyncio")

LOCK_CALL = NoWith("a lock is not callable; to run a function under a lock, decorate it with @locked(client, name)")
CACHE_CALL = NoWith('a cache is not callable; to cache the results of a function, decorate it with @cache.memoize("sku:{sku}")')
CACHE_ITEM = NoWith("a cache has no items; call get(key) or get_or_load(key, loader), set(key, value) and delete(key)")
SIDES = NoWith("use one of the two sides: `with lock.read:` or `with lock.write:`, in asyncio with `async with`")
