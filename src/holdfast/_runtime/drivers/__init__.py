"""Drivers, which carry out the requests of an operation on the calling thread or in the calling asyncio task."""
