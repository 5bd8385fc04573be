"""Reply codes and message kinds: the only table of the numbers that scripts and Python exchange.

A line ``-- CODES  NO_CLAIM LOST`` in a script stands for the constants of these names; Python uses them by the same names.
Tests check that a code has one meaning, that both sides use it, and that `docs/design/protocol.md` lists it.

The reply of a script is a number, or a list that begins with one. 1 is yes: held, done, present. 0 is no: busy, gone, absent. A
code below 0 says why the request cannot succeed; a code above 1 is another kind of yes or no. A code has the same meaning in
all scripts. Words in double backquotes name the values that follow the code in the list.

Only the process that has sent a script reads the reply, so a later release may renumber these codes. Processes of different
releases read each other's messages, so the kinds of messages never change.
"""

from __future__ import annotations

# Replies

NO_CLAIM = -1
"""The token was revoked, its position in the queue is lost, or another token has the lock or key."""

TAKEN_AWAY = -2
"""A person has revoked the lock from this token (break)."""

OTHER_FORMAT = -3
"""The name is used for another kind of object, or by an incompatible release: its data has the format ``format``."""

SERVER_ERROR = -4
"""The server has refused one of several requests in a script, with the error ``message``."""

QUARANTINED = -5
"""The server may have lost its data, and grants nothing for the next ``ms`` milliseconds (quarantine)."""

OTHER_LEASE = -6
"""The clients of this server have agreed on another longest lease (`max_ttl`), which is ``ms`` milliseconds."""

OTHER_SERVERS = -7
"""The clients of this server have agreed on another list of servers, whose digest is ``digest``."""

NO_NUMBER = -8
"""The field ``field`` of the key ``key`` (no field: the key itself) must be a number, but is ``text``."""

WRONG_TYPE = -9
"""The key ``key`` has data of another type, ``type``, which another application has written."""

LOST = -10
"""The token lost the lock before its lease expired."""

OTHER_COUNT = -11
"""The object has ``count`` permits, parties or calls, another number than the request says; 0: the number was never set."""

TOO_MANY = -12
"""The request is for more permits than the limit of the semaphore, ``limit``."""

INVALIDATED = -13
"""The load began before one of its tags was invalidated, so its value is not stored."""

NO_JOB = -14
"""The schedule has no job of this name."""

OTHER_CODE = -15
"""The process ``process`` serves other code, ``origin``, under the name of job number ``job`` of the request."""

NOT_NEWEST = 2
"""The lease is held, but a later renewal arrived before this one and determines its end."""

STALE = 3
"""The value ``value`` has been stale for ``-ms`` milliseconds; another caller loads a new one, or the caller asked not to."""

LEASED = 4
"""The caller has to load the value, under a lease with the fence ``fence``; the old value is ``value``, fresh for ``ms``."""

ABSENT = 5
"""There is no value, and the caller asked not to load it."""

TOO_LONG = 6
"""There is a value of ``bytes`` bytes, which is longer than the caller accepts."""

STILL_VALID = 7
"""The load is cancelled, and nothing was invalidated since it began."""

ACTING = 8
"""All participants have come to the barrier, and the caller has to run its action."""

BROKEN_UP = 9
"""The barrier was broken for the reason ``why`` by the process ``process``."""

STANDING = 10
"""The number of participants waiting at the barrier is ``count``; ``broken`` is 1 if the barrier is broken, otherwise 0."""

OCCUPIED = 11
"""The barrier's action is still being run for the previous round; that lease expires in ``ms`` milliseconds."""

NEW_SERVER = 12
"""The server is new, or has lost all its data."""

NO_CANDIDATE = 13
"""No candidate of the wanted name can be notified; the waiting candidates are ``name, name, ...``."""

UNPROCLAIMED = 14
"""A candidate holds the lock of the election, for another ``ms`` milliseconds, but has not proclaimed its name yet."""

REDEFINED = 15
"""The job was redefined: ``revision, definition, tick, origin`` are of its present definition."""

QUEUE_FULL = 16
"""Too many runs of the job wait already."""

# Messages

GRANTED = "1"
"""The lock was handed over to the token ``token``, with the fence ``fence``."""

WANTED = "2"
"""Other clients wait for the lock that the token ``token`` holds."""

CHANGED = "3"
"""The object that the listener ``listener`` watches may have changed."""

BROKEN = "4"
"""A person, ``by``, has revoked the lock that the token ``token`` held."""


def declared(names: list[str]) -> str:
    """Return the line of Lua that defines the constants with these names."""
    values = ", ".join(repr(globals()[name]) for name in names)
    return f"local {', '.join(names)} = {values}\n"
