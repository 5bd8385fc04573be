"""`Cache` for threads and for asyncio, its options, and functions whose results are cached."""
