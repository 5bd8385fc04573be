"""Reply codes and message kinds: the one table of the numbers that scripts and Python exchange.

A line ``-- CODES  NO_CLAIM LOST`` in a script stands for the constants of these names, and Python uses them by the same names.
Tests hold that a code has one meaning, that both sides name it, and that `docs/design/protocol.md` lists it.

The reply of a script is a number, or a list that begins with one. 1 is yes: held, done, there. 0 is no: busy, gone, not there.
A code below 0 says why nothing can come of the request, a code above 1 is another kind of yes or no, and each means the same
in all scripts.

Only the process that has sent a script reads the reply, so a later release may renumber these. Processes of different releases
read each other's messages, so their kinds never change.
"""

from __future__ import annotations

# Replies

NO_CLAIM = -1
"""The token has no claim: it was revoked, its place in the queue has gone, or somebody else has what it is about."""

TAKEN_AWAY = -2
"""A person took it away from this token."""

OTHER_FORMAT = -3
"""``format``: the name is used for something else, or by an incompatible release."""

SERVER_ERROR = -4
"""``message``: the server refused this one of several requests in a script."""

QUARANTINED = -5
"""``ms``: the server may have forgotten what it granted, and grants nothing for so long."""

OTHER_LEASE = -6
"""``ms``: the users of this server have agreed on another longest lease."""

OTHER_SERVERS = -7
"""``digest``: the users of this server have agreed on another list of servers."""

NO_NUMBER = -8
"""``key, field, text``: a number is to stand there, and something else does."""

WRONG_TYPE = -9
"""``key, type``: the key holds data of another type, which is somebody else's."""

LOST = -10
"""The token lost the lock before its time was over."""

OTHER_COUNT = -11
"""``count``: there is another number of permits, parties or calls than the request says; 0: nobody has said how many."""

TOO_MANY = -12
"""``limit``: the request is for more permits than there are."""

INVALIDATED = -13
"""The load began before one of its tags was invalidated, so its value is not stored."""

NO_JOB = -14
"""The schedule has no such job."""

OTHER_CODE = -15
"""``job, origin, process``: other code is served under the name of this job."""

NOT_NEWEST = 2
"""It is held, but a later renewal came first, and counts."""

STALE = 3
"""``value, ms``: the value is stale since that time, and others load a new one, or nobody is to."""

LEASED = 4
"""``fence, value, ms``: the caller loads the value, under a lease."""

ABSENT = 5
"""There is no value, and the caller was not to load it."""

TOO_LONG = 6
"""``bytes``: there is a value, and it is longer than the caller takes."""

STILL_VALID = 7
"""The load is cancelled, and nothing was invalidated since it began."""

ACTING = 8
"""All have come to the barrier, and the caller runs its action."""

BROKEN_UP = 9
"""``why, process``: the barrier is broken."""

STANDING = 10
"""``count, broken``: so many wait at the barrier, which is broken (1) or not (0)."""

OCCUPIED = 11
"""``ms``: the action of the barrier is being run for those who came before."""

NEW_SERVER = 12
"""The server is new, or has forgotten everything."""

NO_CANDIDATE = 13
"""``name, name, ...``: no candidate of the wanted name can be told; these wait."""

UNPROCLAIMED = 14
"""``ms``: somebody holds the lock of the election, and has not said who it is."""

REDEFINED = 15
"""``revision, definition, tick, origin``: the job is something else by now."""

QUEUE_FULL = 16
"""Too many runs of the job wait already."""

# Messages

GRANTED = "1"
"""``token fence``: the lock was handed over to this token."""

WANTED = "2"
"""``token``: others wait for what this token holds."""

CHANGED = "3"
"""``listener``: there may be something to look at."""

BROKEN = "4"
"""``token by``: a person took away what this token held."""


def declared(names: list[str]) -> str:
    """Return the line of Lua that defines these constants."""
    values = ", ".join(repr(globals()[name]) for name in names)
    return f"local {', '.join(names)} = {values}\n"
