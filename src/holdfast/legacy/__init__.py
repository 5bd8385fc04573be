"""The timestamp lock, as many programs use it (SETNX, GET, GETSET), and the migration to `holdfast.Lock`.

The locks of this module are for threads; `holdfast.legacy.aio` has the same names for asyncio. ``docs/legacy-faults.md``
shows how such locks break.

_shared      the methods of both locks, and the flows (coroutines that serve the sync and the asyncio API)
_timestamp   the timestamp lock
_migrating   one lock composed of a new and an old one
"""

from typing import TYPE_CHECKING

from holdfast._lazy import later
from holdfast.legacy._migrating import Migrating, MigratingLease
from holdfast.legacy._timestamp import TimestampLease, TimestampLock

__all__ = ["Migrating", "MigratingLease", "TimestampLease", "TimestampLock"]

if not TYPE_CHECKING:
    __getattr__ = later(globals(), {"aio": "holdfast.legacy.aio"})
