"""Connections to one server: where it is (`endpoint`), the bytes of its protocol (`resp`), for threads (`blocking`, `shared`)
and for asyncio (`multiplex`).

Ours, not the user's: opened with the settings of the client that was given, outside its pool, without its retries. So a
lock never competes with the application for pooled connections, and nothing is sent twice behind our back.
"""
