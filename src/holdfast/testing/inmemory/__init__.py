"""The implementation of `holdfast.testing.memory` (a server in memory) and of `holdfast.testing.clock`.

backend      `Memory`: the server in memory, as a test uses it
serving      the thread of a server in memory, which serves its connections
front        one connection to a server in memory: commands and replies of the Redis protocol
timekeeping  `Clock`: the clock that a test moves forward
inside       access to the keeper (background thread) of the library, which the other modules need
"""
