"""The implementation of `holdfast.testing.memory` (a server in memory) and of `holdfast.testing.clock`.

backend       `Memory`: the server in memory, as a test uses it
serving       the thread that serves the connections of a server in memory
front         one connection to a server in memory: commands and replies of the Redis protocol
timekeeping   `Clock`: the clock that a test moves forward
inside        access to the internals of the keeper (the background thread of the library)
"""
