"""The algorithms of the library, as coroutines that await request objects. A driver carries the requests out.

The coroutines themselves read no clock and use no random numbers, no threads and no network.
"""
