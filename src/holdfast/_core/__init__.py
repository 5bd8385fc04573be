"""The algorithms, as coroutines that await request objects. They use no clock, no randomness, no thread and no network."""
