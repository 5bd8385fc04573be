"""Connections to servers: addresses, the wire protocol, and connections for threads and for asyncio.

Holdfast opens its own connections, with the settings of the user's client, but without that client's connection pool and
retries. So a lock never waits for a connection that the application uses, and no request is silently sent twice.
"""
