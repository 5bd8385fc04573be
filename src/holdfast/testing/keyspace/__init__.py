"""The data of a Redis server in memory, on which commands and the library's real Lua scripts are executed.

The caller sets the clock of the data.

`Keyspace` is a thin layer over Lua. `engine.py` starts the Lua runtime, `base.lua` stores the keys, `scripts.lua` runs
scripts, and `calls.lua` has the functions that this module calls. The other Lua files have the commands, grouped by their
type of data (strings, hashes, and so on).

The conformance tests compare a keyspace with real servers. These differences are intended:

- Time stands still while a command runs. An expired key disappears at once, for DBSIZE, SCAN and FLUSHALL, too.
- Replies whose order a server leaves open are sorted: those of HGETALL, SMEMBERS, KEYS and SCAN, and `pairs` in a script.
  SCAN returns all keys at once.
- Integers are exact up to 2^53, as in every script. INCR and related commands refuse larger numbers.
- There is one database, and there are no users, so AUTH always succeeds. MULTI, WATCH, SUBSCRIBE and blocking commands are
  missing, because they belong to connections, not to data.
- Error texts, and the format of fractional numbers (``%.17g``), are those of Redis 7.0.
- A script cannot use cjson, cmsgpack, struct, bit, os, load and math.random, has no time limit, and cannot begin with
  ``#!lua``. Under LuaJIT (see `engine.py`), a script may use ``goto`` and a few more features that a server refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast._lua import Script
from holdfast.testing.keyspace.engine import LuaEngine, ReplyError, Status, kinds

Value = bytes | str | int


class Keyspace:
    """The single database of a server in memory. One thread may use it at a time. It is created within a few microseconds.

    - ``now``: the server time in microseconds, which the caller sets before each call
    - ``full``: True if memory is full. Commands that may need memory are then refused. A script that has already written
      something may still run such commands.
    - ``published``: a list of (channel, message), to which each PUBLISH appends; the caller empties the list
    """

    __slots__ = ("_data", "_run_id", "full", "now", "published")

    now: int
    full: bool
    _engine = LuaEngine(kinds()[0])

    def __init__(self, now: int = 0) -> None:
        self.now = now
        self.full = False
        self.published: list[tuple[bytes, bytes]] = []
        self._data = self._engine.new(_into(self.published))
        self.run_id = b"0" * 40

    @property
    def run_id(self) -> bytes:
        """The run id that INFO shows. A server gets a new run id at each start."""
        return self._run_id

    @run_id.setter
    def run_id(self, value: bytes) -> None:
        self._run_id = value
        self._engine.set_run_id(self._data, value)

    def execute(self, *args: Value) -> Any:
        """Execute a command and return its reply: an int, bytes, None, a list, a Status, or a ReplyError (not raised)."""
        engine = self._engine
        return engine.reply(engine.execute(self._data, self.now, self.full, *_texts(args)))

    def run(self, script: Script[Any], keys: Sequence[bytes], args: Sequence[Value]) -> Any:
        """Run a script and return its raw reply. Unlike EVALSHA through `execute`, this loads the script, and is faster."""
        engine = self._engine
        lua = engine.scripts.get(script.sha) or engine.compiled(script)
        texts = [arg if isinstance(arg, bytes) else arg.encode() if isinstance(arg, str) else b"%d" % arg for arg in args]
        raw = engine.run(self._data, lua, self.now, self.full, len(keys), *keys, *texts)
        if type(raw) is tuple:
            return list(raw[1:]) if raw[0] else engine.reply(raw)
        return [] if raw is True else raw

    def peek(self, key: bytes) -> tuple[bytes, int | None]:
        """Return the value of a string key, and the server time in ms at which the key expires, or None if it never expires.

        Return ``(b"", None)`` if there is no string key of this name.
        """
        found = self._engine.peek(self._data, self.now, key)
        return (b"", None) if found is None else (found[0], None if found[1] is False else int(found[1]))

    def subscribe(self, channel: bytes, by: int) -> None:
        """Add a subscriber to a channel if ``by`` is 1, or remove one if it is -1, for PUBLISH and PUBSUB NUMSUB to count."""
        self._engine.subscribe(self._data, channel, by)

    def forbid(self, command: str) -> None:
        """Forbid scripts to run this command from now on, as access control (ACL) does; ``command`` is in lower case."""
        self._engine.forbid(self._data, command.encode())

    @property
    def forbidden(self) -> int:
        """Number of commands that were refused because of `forbid`."""
        return int(self._engine.forbidden(self._data))

    def version(self, key: bytes) -> int:
        """Return a number that changes with each change of a key's value or expiry. WATCH compares such numbers."""
        version: int = self._engine.version(self._data, self.now, key)
        return version

    def clear(self) -> None:
        """Delete all keys, as FLUSHALL does. Loaded scripts and subscribers are kept."""
        self._engine.clear(self._data)

    def dump(self) -> tuple[Any, ...]:
        """Return all keys as a hashable tuple of (key, type, value, expiry), equal for equal data. Expired keys are omitted.

        The expiry is the server time in ms, or None. The value of a string is bytes. The value of a hash is a tuple of
        pairs, sorted by field. The value of a sorted set is a tuple of (member, score) pairs in order. The value of a list
        or a set is a tuple.
        """
        raw = self._engine.dump(self._data, self.now)
        if raw is True:
            return ()
        flat = raw if raw[0] else (False, *self._engine.items(raw[1]))
        found = []
        at = 1
        while at < len(flat):
            key, kind, expires, count = flat[at : at + 4]
            at += 4 + count
            found.append((key, kind, _contents(kind, flat[at - count : at]), None if expires is False else expires))
        found.sort()
        return tuple(found)

    def load(self, dump: tuple[Any, ...]) -> None:
        """Replace all keys by the content of a `dump`. Loaded scripts and subscribers are kept."""
        self._engine.clear(self._data)
        for key, kind, value, expires in dump:
            flat = [value] if kind == b"string" else value
            if kind in {b"hash", b"zset"}:
                flat = [part for pair in value for part in pair]
            for start in range(0, len(flat), 1000):
                self._engine.load(self._data, key, kind, False if expires is None else expires, *flat[start : start + 1000])


def _texts(args: Sequence[Value]) -> list[bytes]:
    return [arg if isinstance(arg, bytes) else arg.encode() if isinstance(arg, str) else b"%d" % arg for arg in args]


def _into(published: list[tuple[bytes, bytes]]) -> Callable[[bytes, bytes], None]:
    """Return a function that appends each published message to the list, as (channel, message).

    The function is not a method, because Lua would then refer to the keyspace, which refers to Lua's table. Such a cycle
    is never freed.
    """

    def publish(channel: bytes, message: bytes) -> None:
        published.append((channel, message))

    return publish


def _contents(kind: bytes, items: tuple[Any, ...]) -> Any:
    match kind:
        case b"string":
            return items[0]
        case b"hash":
            return tuple(sorted(zip(items[::2], items[1::2], strict=True)))
        case b"zset":
            return tuple(zip(items[::2], items[1::2], strict=True))
        case b"set":
            return tuple(sorted(items))
        case _:
            return items


__all__ = ["Keyspace", "ReplyError", "Status"]
