"""The rooms that each room may import. `docs.architecture` prints this table in docs/design/architecture.md."""

from __future__ import annotations

ROOMS = {
    # The ground: each stands on nothing, or on the one before.
    "errors": "",
    "_clock": "",
    "_durations": "",
    "_lazy": "",
    "_log": "",
    "_usage": "",
    "_lua": "",
    # Decides: pure.
    "_core": "_lua errors",
    # Servers and guardians of this machine.
    "_local": "_clock errors",
    # Bytes.
    "_net": "_clock _core _local _log _lua _usage errors",
    # Acts: one per process.
    "_runtime": "_clock _core _log _net errors",
    # Rooms of the objects that users hold.
    "codecs": "_log errors",
    "_api": "_clock _core _durations _local _log _lua _net _runtime codecs errors",
    "fencing": "_api _core _durations _lua _net errors",
    "doctor": "_api _clock _core _durations _lua _net errors",
    "schedule": "_api _core _durations _local _log _net _runtime _usage errors",
    "_connection": "_api _core _durations _lazy _local _net _runtime _usage errors fencing schedule",
    "aio": "_api _connection _lazy _runtime errors schedule",
    "legacy": "_api _clock _core _durations _lazy _log _net _runtime errors",
    "django": "_api errors",
    "sqlalchemy": "_api",
    "holdfast": "_api _connection _durations _lazy _net _runtime aio errors fencing legacy schedule",
    # Test tools, the command line.
    "testing": "_api _clock _core _durations _local _lua _net _runtime errors",
    "cli": "_api _clock _core _durations _local _net _runtime doctor errors fencing holdfast schedule",
    "__main__": "cli",
    # The other distribution: the judge, benchmarks, further shows.
    "lab": "_api _core _local _lua _net _runtime aio cli errors fencing holdfast schedule testing",
}
"""Each room, from the ground up, and the rooms that its modules may import. It is the whole list: there are no exceptions."""
