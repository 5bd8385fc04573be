"""The data of a Redis server in memory: executes commands and the library's real Lua scripts, with a clock that the
caller sets.

`Keyspace` is a thin layer over Lua. `engine.py` starts the Lua runtime, `base.lua` stores the keys, `scripts.lua` runs scripts,
`calls.lua` has the functions that this module calls, and the other files have the commands by kind.

Intended differences from a real server (the conformance tests compare everything else with real ones):

- Time stands still during every command. Expired keys are gone at once, also for DBSIZE, SCAN and FLUSHALL.
- Replies that have no order on a server are sorted: HGETALL, SMEMBERS, KEYS, SCAN, and `pairs` in a script. SCAN returns all
  keys at once.
- Integers are exact up to 2^53, as in every script: INCR and related commands refuse larger numbers.
- There is one database, and there are no users: AUTH succeeds. MULTI, WATCH, SUBSCRIBE and blocking commands are missing,
  because they belong to connections, not to data.
- Error texts, and the texts of fractional numbers (``%.17g``), are those of Redis 7.0.
- A script has no cjson, cmsgpack, struct, bit, os or load, no math.random, and no time limit; ``#!lua`` is unknown. Under
  LuaJIT (see `engine.py`) it may use ``goto`` and a few more features that a server refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast._lua import Script
from holdfast.testing.keyspace.engine import Engine, ReplyError, Status, kinds

Value = bytes | str | int


class Keyspace:
    """The one database of a server in memory, for one thread at a time; creating it takes a few microseconds.

    ``now``        server time in microseconds; the caller sets it before each call
    ``full``       True if memory is full: commands that may need memory are refused, in scripts until the script has written
    ``published``  list of (channel, message), one for each PUBLISH; the caller empties the list
    """

    __slots__ = ("_data", "_run_id", "full", "now", "published")
    _engine = Engine(kinds()[0])

    def __init__(self, now: int = 0) -> None:
        self.now = now
        self.full = False
        self.published: list[tuple[bytes, bytes]] = []
        self._data = self._engine.new(_into(self.published))
        self.run_id = b"0" * 40

    @property
    def run_id(self) -> bytes:
        """The run id that INFO shows; a restarted server has another one."""
        return self._run_id

    @run_id.setter
    def run_id(self, value: bytes) -> None:
        self._run_id = value
        self._engine.set_run_id(self._data, value)

    def execute(self, *args: Value) -> Any:
        """Execute a command; return its reply: an int, bytes, None, a list, a Status, or a ReplyError (not raised)."""
        engine = self._engine
        return engine.reply(engine.execute(self._data, self.now, self.full, *_texts(args)))

    def run(self, script: Script[Any], keys: Sequence[bytes], args: Sequence[Value]) -> Any:
        """Run a script and return its raw reply, as `execute` does for EVALSHA, but faster and without loading it before."""
        engine = self._engine
        lua = engine.scripts.get(script.sha) or engine.compiled(script)
        texts = [arg if isinstance(arg, bytes) else arg.encode() if isinstance(arg, str) else b"%d" % arg for arg in args]
        raw = engine.run(self._data, lua, self.now, self.full, len(keys), *keys, *texts)
        if type(raw) is tuple:
            return list(raw[1:]) if raw[0] else engine.reply(raw)
        return [] if raw is True else raw

    def peek(self, key: bytes) -> tuple[bytes, int | None]:
        """Return the value of a string key, and its expiry in ms of server time, or None if it never expires.

        Returns ``(b"", None)`` if there is no such string.
        """
        found = self._engine.peek(self._data, self.now, key)
        return (b"", None) if found is None else (found[0], None if found[1] is False else int(found[1]))

    def subscribe(self, channel: bytes, by: int) -> None:
        """Add (1) or remove (-1) a subscriber of a channel, as counted by PUBLISH and PUBSUB NUMSUB."""
        self._engine.subscribe(self._data, channel, by)

    def forbid(self, command: str) -> None:
        """Forbid scripts to run this command (name in lower case) from now on, as access control does."""
        self._engine.forbid(self._data, command.encode())

    @property
    def forbidden(self) -> int:
        """Number of commands that were refused because of `forbid`."""
        return int(self._engine.forbidden(self._data))

    def version(self, key: bytes) -> int:
        """Return the version number of a key, which differs after each change of its value or expiry; WATCH compares it."""
        version: int = self._engine.version(self._data, self.now, key)
        return version

    def clear(self) -> None:
        """Delete all keys, as FLUSHALL does; scripts and subscribers stay."""
        self._engine.clear(self._data)

    def dump(self) -> tuple[Any, ...]:
        """Return all keys as ((key, type, value, expiry in ms or None), ...): hashable, and equal for equal data.

        The value of a string is bytes; that of a hash, pairs sorted by field; that of a sorted set, (member, score) pairs in
        order; that of a list or set, a tuple. Expired keys are left out.
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
        """Replace all keys by the content of a `dump`; scripts and subscribers stay."""
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
    """Return a function that appends each published message, as (channel, message), to the list.

    A method would not do: Lua would refer to the keyspace, which refers to Lua's table, and neither could be freed.
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
