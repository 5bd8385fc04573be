"""Reply codes and message kinds: the only table of the numbers that scripts and Python exchange.

A line ``-- CODES  NO_CLAIM LOST`` in a script stands for the constants of these names; Python uses them by the same names.
Tests check that a code has one meaning, that both sides use it, and that `docs/design/protocol.md` lists it.

The reply of a script is a number, or a list that begins with one. 1 is yes: held, done, present. 0 is no: busy, gone, absent. A
code below 0 says why the request cannot succeed; a code above 1 is another kind of yes or no. A code means the same in all
scripts.

Only the process that has sent a script reads the reply, so a later release may renumber these. Processes of different releases
read each other's messages, so their kinds never change.
"""

from __future__ import annotations

# Replies

NO_CLAIM = -1
"""The token was revoked, its place in the queue is gone, or another token has the lock or key."""

TAKEN_AWAY = -2
"""A person has revoked the lock from this token (break)."""

OTHER_FORMAT = -3
"""``format``: the name is used for another kind of object, or by an incompatible release."""

SERVER_ERROR = -4
"""``message``: the server has refused this one of several requests in a script."""

QUARANTINED = -5
"""``ms``: the server may have lost its data, and grants nothing for that time (quarantine)."""

OTHER_LEASE = -6
"""``ms``: the clients of this server have agreed on another longest lease (`max_ttl`)."""

OTHER_SERVERS = -7
"""``digest``: the clients of this server have agreed on another list of servers."""

NO_NUMBER = -8
"""``key, field, text``: the field must be a number, but has this text."""

WRONG_TYPE = -9
"""``key, type``: the key has data of another type, which another application has written."""

LOST = -10
"""The token lost the lock before its lease expired."""

OTHER_COUNT = -11
"""``count``: the object has another number of permits, parties or calls than the request says; 0: none was set yet."""

TOO_MANY = -12
"""``limit``: the request is for more permits than the semaphore has."""

INVALIDATED = -13
"""The load began before one of its tags was invalidated, so its value is not stored."""

NO_JOB = -14
"""The schedule has no job of this name."""

OTHER_CODE = -15
"""``job, origin, process``: a process serves other code under the name of this job."""

NOT_NEWEST = 2
"""The lease is held, but a later renewal arrived first, and counts."""

STALE = 3
"""``value, ms``: the value is stale since that time; another caller loads a new one, or the caller asked not to."""

LEASED = 4
"""``fence, value, ms``: the caller has to load the value, under a lease with this fence."""

ABSENT = 5
"""There is no value, and the caller asked not to load it."""

TOO_LONG = 6
"""``bytes``: there is a value, but it is longer than the caller accepts."""

STILL_VALID = 7
"""The load is cancelled, and nothing was invalidated since it began."""

ACTING = 8
"""All participants have come to the barrier, and the caller has to run its action."""

BROKEN_UP = 9
"""``why, process``: the barrier is broken, for this reason and by this process."""

STANDING = 10
"""``count, broken``: number of participants waiting at the barrier, and whether it is broken (1) or not (0)."""

OCCUPIED = 11
"""``ms``: the barrier's action is being run for the participants of the round before."""

NEW_SERVER = 12
"""The server is new, or has lost all its data."""

NO_CANDIDATE = 13
"""``name, name, ...``: no candidate of the wanted name can be notified; these candidates wait."""

UNPROCLAIMED = 14
"""``ms``: a candidate holds the lock of the election, but has not proclaimed its name yet."""

REDEFINED = 15
"""``revision, definition, tick, origin``: the job was redefined; this is its present definition."""

QUEUE_FULL = 16
"""Too many runs of the job wait already."""

# Messages

GRANTED = "1"
"""``token fence``: the lock was handed over to this token."""

WANTED = "2"
"""``token``: other clients wait for the lock that this token holds."""

CHANGED = "3"
"""``listener``: the object that this listener watches may have changed."""

BROKEN = "4"
"""``token by``: a person (``by``) has revoked the lock that this token held."""


def declared(names: list[str]) -> str:
    """Return the line of Lua that defines these constants."""
    values = ", ".join(repr(globals()[name]) for name in names)
    return f"local {', '.join(names)} = {values}\n"
