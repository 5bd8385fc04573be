"""What users hold: locks, leases, elections, caches and their kin; for threads (``sync_*``) and for asyncio (``aio_*``)."""
