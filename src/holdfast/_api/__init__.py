"""The classes that users hold, for threads (``sync_*``) and for asyncio (``aio_*``)."""
