"""The algorithms of the library, as coroutines that await request objects, which a driver carries out.

The coroutines themselves read no clock and use no random numbers, no threads and no network.
"""
