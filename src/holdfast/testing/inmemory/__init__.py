"""The parts of `holdfast.testing.memory` and `clock`.

backend       `Memory`: the server in memory, as a test sees it
serving       its thread
front         its connections: the protocol, over a keyspace
timekeeping   `Clock`: the clock that a test moves
inside        the only place that reaches into the keeper
"""
