"""Fence checks, by which a protected resource refuses a late write of a holder whose lock has passed to another client.

For keys of Redis or Valkey, use `fenced_set` and `accept`, or, with asyncio, `aio_fenced_set` and `aio_accept`. For an SQL
table, use the predicate `SQL`. Source: M. Kleppmann, "How to do distributed locking" (2016).
"""

from __future__ import annotations

from typing import Any

from holdfast._api import options
from holdfast._api.caller import AioCaller, BaseCaller, Caller, resolves_client
from holdfast._api.flow import complete
from holdfast._core.lock.replies import KEEP_S
from holdfast._core.lock.spec import milliseconds
from holdfast._core.names import raw_key, side_key
from holdfast._core.requests import Conflict, RunScript, in_the_way
from holdfast._core.retry import retry_idempotent
from holdfast._durations import Seconds
from holdfast._lua import Script
from holdfast._net.clients import AsyncClient, Connected, SyncClient
from holdfast._net.redaction import hides_client
from holdfast.errors import ConfigError

__all__ = ["KEEP_FENCE", "SQL", "accept", "aio_accept", "aio_fenced_set", "fenced_set"]

SQL = "fence <= :fence"
"""Fence check for an SQL table with a column ``fence``. It is false if a later holder has written the row.

Example: ``UPDATE t SET value = :value, fence = :fence WHERE id = :id AND fence <= :fence``. If no row was updated,
refuse the write.
"""

KEEP_FENCE = 7 * 86400.0
"""Default of ``keep``, the number of seconds for which the server keeps the highest fence of a key after its last use."""


def _read(raw: object) -> bool | Conflict:
    return in_the_way(raw) if isinstance(raw, list) else raw == 1


FENCE_CHECK: Script[bool | Conflict] = Script("fencing/check", _read)


def _call(key: str | bytes, fence: int, keep: Seconds, *value: Any) -> RunScript[bool | Conflict]:
    if isinstance(fence, bool) or not isinstance(fence, int) or fence < 0:
        raise ConfigError(f"fence must be the number lease.fence, not {fence!r}", parameter="fence")
    data = raw_key(key)
    times = (fence, milliseconds(options.seconds(keep, "keep", KEEP_S)))
    return RunScript(FENCE_CHECK, (data, side_key(data, b"fence")), (*times, *value), 1.0)


def _call_to_set(
    key: str | bytes, value: str | bytes, fence: int, ttl: Seconds | None, keep: Seconds
) -> RunScript[bool | Conflict]:
    if not isinstance(value, str | bytes):
        raise ConfigError(f"value must be str or bytes, not {type(value).__name__}", parameter="value")
    expiry = "" if ttl is None else milliseconds(options.seconds(ttl, "ttl", 0.001))
    return _call(key, fence, keep, value, expiry)


async def _run(caller: BaseCaller, call: RunScript[bool | Conflict]) -> bool:
    found = await caller.run(retry_idempotent(call), call.keys[0], f"fence of {call.keys[0]!r}")
    answer: bool | Conflict = found.value
    if isinstance(answer, Conflict):
        raise ConfigError(f"the fence check wrote nothing: {answer.why}", parameter="key")
    return answer


@hides_client(words=options.explain_words)
def fenced_set(
    client: SyncClient | Connected,
    key: str | bytes,
    value: str | bytes,
    fence: int,
    *,
    ttl: Seconds | None = None,
    keep: Seconds = KEEP_FENCE,
) -> bool:
    """Run ``SET key value``, unless a higher fence than ``fence`` was used for the key before. Return True if written.

    This function and `accept` record each fence that is used for a key. ``ttl``: expiry of the key in seconds; None: the key
    does not expire. ``keep``: seconds for which the server keeps the highest fence. Raises ServerError if the server is
    unreachable. Raises ConfigError if an argument is invalid, or if the key that stores the fence has another kind of value.
    """
    return complete(_run(Caller(client), _call_to_set(key, value, fence, ttl, keep)))


@hides_client(words=options.explain_words)
def accept(client: SyncClient | Connected, key: str | bytes, fence: int, *, keep: Seconds = KEEP_FENCE) -> bool:
    """Record that the holder with this fence is about to use the resource ``key``, and return True.

    Return False if a higher fence was recorded before, because the holder must not use the resource then. ``keep``: seconds
    for which the server keeps the record. Raises ServerError and ConfigError as `fenced_set` does.
    """
    return complete(_run(Caller(client), _call(key, fence, keep)))


@resolves_client
@hides_client("fenced_set", words=options.explain_words)
async def aio_fenced_set(
    client: AsyncClient | Connected,
    key: str | bytes,
    value: str | bytes,
    fence: int,
    *,
    ttl: Seconds | None = None,
    keep: Seconds = KEEP_FENCE,
) -> bool:
    """Do what `fenced_set` does, for asyncio. ``client``: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL."""
    return await _run(AioCaller(client), _call_to_set(key, value, fence, ttl, keep))


@resolves_client
@hides_client("accept", words=options.explain_words)
async def aio_accept(client: AsyncClient | Connected, key: str | bytes, fence: int, *, keep: Seconds = KEEP_FENCE) -> bool:
    """Do what `accept` does, for asyncio. ``client``: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL."""
    return await _run(AioCaller(client), _call(key, fence, keep))
