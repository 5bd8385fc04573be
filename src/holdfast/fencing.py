"""Fences put to use: what a lock protects refuses writes of a holder who has been overtaken.

For Redis or Valkey keys, `fenced_set` and `accept`; for a table, the predicate `SQL`. After M. Kleppmann, "How to do
distributed locking" (2016).
"""

from __future__ import annotations

from typing import Any

from holdfast._api import options
from holdfast._api.caller import Caller
from holdfast._core.lock.records import milliseconds
from holdfast._core.lock.replies import KEEP_S
from holdfast._core.names import raw_key, side_key
from holdfast._core.requests import Conflict, Run, in_the_way
from holdfast._core.retry import retry_idempotent
from holdfast._lua import Script
from holdfast._net.redaction import hides_client
from holdfast.errors import ConfigError

__all__ = ["KEEP_FENCE", "SQL", "accept", "fenced_set"]

SQL = "fence <= :fence"
"""For a table with a column ``fence``: ``UPDATE t SET value = :value, fence = :fence WHERE id = :id AND fence <= :fence``. No
row updated means that a later holder has been there."""

KEEP_FENCE = 7 * 86400.0
"""Seconds for which the highest fence seen is remembered after the last write."""


def _read(raw: object) -> bool | Conflict:
    return in_the_way(raw) if isinstance(raw, list) else raw == 1


FENCE_CHECK: Script[bool | Conflict] = Script("fencing/check", _read)


def _call(key: str | bytes, fence: int, keep: float, *value: Any) -> Run[bool | Conflict]:
    if isinstance(fence, bool) or not isinstance(fence, int) or fence < 0:
        raise ConfigError(f"fence must be a lease's fence, not {fence!r}", parameter="fence")
    data = raw_key(key)
    times = (fence, milliseconds(options.seconds(keep, "keep", KEEP_S)))
    return Run(FENCE_CHECK, (data, side_key(data, b"fence")), (*times, *value), 1.0)


def fenced_set(
    client: object,
    key: str | bytes,
    value: str | bytes,
    fence: int,
    *,
    ttl: float | None = None,
    keep: float = KEEP_FENCE,
) -> bool:
    """``SET key value`` unless a holder with a higher fence has written or been accepted before. True if written.

    ``ttl``: expiry of the key in seconds; ``keep``: seconds to remember the fence. Raises ConfigError, also where the key that
    remembers the fence holds something that is no number; ServerError.
    """
    if not isinstance(value, str | bytes):
        raise ConfigError(f"value must be str or bytes, not {type(value).__name__}", parameter="value")
    expiry = "" if ttl is None else milliseconds(options.seconds(ttl, "ttl", 0.001))
    return _run(client, _call(key, fence, keep, value, expiry))


@hides_client()
def accept(client: object, key: str | bytes, fence: int, *, keep: float = KEEP_FENCE) -> bool:
    """Note that the holder with this fence is about to touch what ``key`` stands for; False if a higher one was here."""
    return _run(client, _call(key, fence, keep))


def _run(client: object, call: Run[bool | Conflict]) -> bool:
    answer = Caller(client).run(retry_idempotent(call), call.keys[0], f"fence of {call.keys[0]!r}").value
    if isinstance(answer, Conflict):
        raise ConfigError(f"nothing was written: {answer.why}", parameter="key")
    return answer
