"""The public classes and functions, for threads (modules ``sync_*``) and for asyncio (modules ``aio_*``)."""
