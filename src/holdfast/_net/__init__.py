"""Connections to servers: addresses, the wire protocol, and connections for threads and for asyncio.

Addresses are in `endpoint`, the protocol is in `protocol`, the connections are in `sync_connection`, `sync_pool` and
`aio_connection`. Holdfast opens connections of its own, with the settings of the user's client. It does not use the client's
connection pool or retries. So a lock never waits for a pooled connection that the application uses, and no request is sent
twice unnoticed.
"""
