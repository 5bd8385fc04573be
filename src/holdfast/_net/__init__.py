"""Connections to one server: where it is (`endpoint`), the bytes of its protocol (`protocol`), connections for threads
(`sync_connection`, `sync_pool`) and for asyncio (`aio_connection`).

Ours, not the user's: opened with the settings of the client that was given, outside its pool, without its retries. So a
lock never competes with the application for pooled connections, and nothing is sent twice behind our back.
"""
