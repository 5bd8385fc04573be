"""Connections to servers: addresses, the wire protocol, and connections for threads and for asyncio.

Addresses are in `endpoint`, the protocol is in `protocol`, the connections are in `sync_connection`, `sync_pool` and
`aio_connection`. Holdfast opens them itself, with the settings of the user's client, but outside its pool and without
its retries. So a lock never competes with the application for pooled connections, and no request is sent twice
unnoticed.
"""
