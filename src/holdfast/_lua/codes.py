"""The codes in the replies of the Lua scripts, and the kinds of messages, as used by the scripts and by Python.

A line ``-- CODES NO_CLAIM LOST`` in a script is replaced by the definitions of these constants. Python imports the constants
from here. Tests check that the scripts and Python use each code, and that `docs/design/protocol.md` lists it.

The reply of a script is a whole number, or a list that begins with one. In all scripts, 1 means yes (the lock is held, the
work is done) and 0 means no (the lock is busy, the key is missing). The other numbers are the codes here, and each code means
the same in all scripts. A code below 0 is the reason why a request cannot succeed. If other values follow a code in the list,
the docstring of the code names them in double backquotes.

Only the process that runs a script reads its reply, so a later release may change the codes. Processes of different releases
read each other's messages, so the kinds of messages never change.
"""

from __future__ import annotations

# Replies

NO_CLAIM = -1
"""The token was revoked or has lost its position in the queue, or another token holds the lock or the key."""

TAKEN_AWAY = -2
"""A person has broken the lock, so this token no longer holds it."""

OTHER_FORMAT = -3
"""The name is used for another kind of object, or by an incompatible release, with data in the format ``format``."""

SERVER_ERROR = -4
"""The server has replied to a command in the script with the error ``message``."""

QUARANTINED = -5
"""The server may have lost its data, so it grants nothing for another ``ms`` milliseconds (quarantine)."""

OTHER_LEASE = -6
"""Other clients of this server use another longest lease (``max_ttl``), which is ``ms`` milliseconds."""

OTHER_SERVERS = -7
"""Other clients of this server use another list of servers, whose hash is ``digest``."""

NO_NUMBER = -8
"""A value is not a number: the key ``key`` (or its field ``field``, unless that is empty) holds the text ``text``."""

WRONG_TYPE = -9
"""The key ``key`` holds data of the Redis type ``type``, which another application has written."""

LOST = -10
"""The token has lost the lock before the lease expired."""

OTHER_COUNT = -11
"""The semaphore, barrier or latch has the count ``count`` (0: not set yet), not the count in the request."""

TOO_MANY = -12
"""The request is for more permits than the limit of the semaphore, which is ``limit``."""

INVALIDATED = -13
"""The value is not stored, because one of its tags or the whole cache was invalidated after its load had begun."""

NO_JOB = -14
"""The schedule has no job of this name."""

OTHER_CODE = -15
"""The job with the index ``job`` in the request runs other code, ``origin``, in the process ``process``."""

NOT_NEWEST = 2
"""The lease is held. This renewal changed nothing, because a later renewal had arrived before it."""

STALE = 3
"""The stored value ``value`` has been stale for ``-ms`` milliseconds, and this caller does not have to load a new one."""

LEASED = 4
"""The caller has to load the value, with the fence ``fence``. The old value is ``value``. It is stale if ``ms`` is below 1."""

ABSENT = 5
"""There is no value, and the caller has asked not to load it."""

TOO_LONG = 6
"""The stored value has ``bytes`` bytes, which is more than the caller accepts."""

STILL_VALID = 7
"""The load was ended without a value, and nothing was invalidated since it began."""

ACTING = 8
"""All participants have arrived at the barrier, and this caller has to run its action."""

BROKEN_UP = 9
"""The barrier was broken for the reason ``why`` by the process ``process``."""

STANDING = 10
"""At the barrier, ``count`` participants wait; ``broken`` is 1 if the barrier is broken, otherwise 0."""

OCCUPIED = 11
"""The action of the barrier's last round is still running, under a lease that expires in ``ms`` milliseconds."""

NEW_SERVER = 12
"""The server has never voted, or has lost all its data."""

NO_CANDIDATE = 13
"""No candidate of this name waits, or the candidate cannot be notified. The waiting candidates are ``name, name, ...``."""

UNPROCLAIMED = 14
"""A candidate holds the election's lock, for another ``ms`` milliseconds, but has not proclaimed itself as the leader yet."""

REDEFINED = 15
"""The job has another definition now. Its values are ``revision, definition, tick, origin``."""

QUEUE_FULL = 16
"""The job is not run, because too many of its runs wait to begin already."""

UNNUMBERED = 17
"""The lease is held, at least as long as requested. An earlier renewal that arrives later may still shorten it."""

# Messages

GRANTED = "1"
"""The lock was handed over to the token ``token``, with the fence ``fence``."""

WANTED = "2"
"""Another client waits for the lock that the token ``token`` holds."""

CHANGED = "3"
"""The object that the listener ``listener`` watches may have changed."""

BROKEN = "4"
"""The person ``by`` has broken the lock that the token ``token`` held."""


def declared(names: list[str]) -> str:
    """Return a line of Lua that defines the constants with these names."""
    values = ", ".join(repr(globals()[name]) for name in names)
    return f"local {', '.join(names)} = {values}\n"
