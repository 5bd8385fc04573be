"""The algorithms, as coroutines that await request objects, which a driver carries out.

The coroutines themselves read no clock, and use no randomness, no thread and no network.
"""
