"""The timestamp lock for asyncio, with the same names and the same behaviour as in `holdfast.legacy`."""

from holdfast.legacy._migrating import AioMigrating as Migrating
from holdfast.legacy._migrating import AioMigratingLease as MigratingLease
from holdfast.legacy._timestamp import AioTimestampLease as TimestampLease
from holdfast.legacy._timestamp import AioTimestampLock as TimestampLock

__all__ = ["Migrating", "MigratingLease", "TimestampLease", "TimestampLock"]
