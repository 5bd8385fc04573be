"""A Redis server's data in memory, under a time that the caller gives: runs commands, and the real Lua scripts.

`Keyspace` is a thin shell over Lua, in which a server runs its scripts too: `engine.py` starts it, `base.lua` says how keys
are kept, `scripts.lua` how scripts run, `calls.lua` is what this module calls; the other files hold the commands by kind.

Differences from a server, on purpose (the conformance tests compare all else with real ones):

- Time stands still during a call, in every command. Expired keys are gone at once, for DBSIZE, SCAN and FLUSHALL too.
- Replies without an order on a server are sorted: HGETALL, SMEMBERS, KEYS, SCAN, and `pairs` in a script. SCAN gives all.
- Whole numbers are exact up to 2^53, as in every script: INCR and its kin refuse to go beyond.
- One database. No users: AUTH succeeds. MULTI, WATCH, SUBSCRIBE and all that blocks belong to connections, not to data.
- Errors have the words of Redis 7.0; so have the texts of numbers that are not whole (``%.17g``).
- A script has no cjson, cmsgpack, struct, bit, os or load, no math.random, and no time limit; ``#!lua`` is not known. Under
  LuaJIT (see `engine.py`) it may use ``goto`` and a few more things that a server refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast._lua import Script
from holdfast.testing.keyspace.engine import Engine, ReplyError, Status, kinds

Value = bytes | str | int


class Keyspace:
    """One database of a server. For one thread at a time; making one costs a few microseconds.

    ``now``        server time in microseconds; set it before each call: it stands still during the call
    ``full``       memory is full: commands that may need memory are refused, in scripts until the script has written
    ``published``  (channel, message) of each PUBLISH; the caller empties the list
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
        """The run id that INFO shows: a restarted server has another."""
        return self._run_id

    @run_id.setter
    def run_id(self, value: bytes) -> None:
        self._run_id = value
        self._engine.set_run_id(self._data, value)

    def execute(self, *args: Value) -> Any:
        """One command. The reply is an int, bytes, None, a list, a Status, or a ReplyError (returned, not raised)."""
        engine = self._engine
        return engine.reply(engine.execute(self._data, self.now, self.full, *_texts(args)))

    def run(self, script: Script[Any], keys: Sequence[bytes], args: Sequence[Value]) -> Any:
        """Raw reply of a script, as `execute` gives it. The quick way: the script need not be loaded."""
        engine = self._engine
        lua = engine.scripts.get(script.sha) or engine.compiled(script)
        texts = [arg if isinstance(arg, bytes) else arg.encode() if isinstance(arg, str) else b"%d" % arg for arg in args]
        raw = engine.run(self._data, lua, self.now, self.full, len(keys), *keys, *texts)
        if type(raw) is tuple:
            return list(raw[1:]) if raw[0] else engine.reply(raw)
        return [] if raw is True else raw

    def peek(self, key: bytes) -> tuple[bytes, int | None]:
        """Return a string's value, and when it expires (server ms; None: never); None if there is no such string."""
        found = self._engine.peek(self._data, self.now, key)
        return (b"", None) if found is None else (found[0], None if found[1] is False else int(found[1]))

    def subscribe(self, channel: bytes, by: int) -> None:
        """A listener more (1) or less (-1) on a channel: what PUBLISH counts and PUBSUB NUMSUB says."""
        self._engine.subscribe(self._data, channel, by)

    def forbid(self, command: str) -> None:
        """Access control: from now on no script may run this command (in lower case)."""
        self._engine.forbid(self._data, command.encode())

    @property
    def forbidden(self) -> int:
        """How often a command was refused for that."""
        return int(self._engine.forbidden(self._data))

    def version(self, key: bytes) -> int:
        """A number that is another one after each change of the key, its expiry included: what WATCH needs."""
        version: int = self._engine.version(self._data, self.now, key)
        return version

    def clear(self) -> None:
        """FLUSHALL. Scripts and listeners stay."""
        self._engine.clear(self._data)

    def dump(self) -> tuple[Any, ...]:
        """Return the content: ((key, type, value, expiry in ms or None), ...), hashable, equal for equal content.

        The value of a string is bytes; of a hash, pairs in order of the fields; of a sorted set, (member, score) in its
        order; of a list and of a set, a tuple. Expired keys are left out.
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
        """Becomes exactly what `dump` has told. Scripts and listeners stay."""
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
    """Not a method: Lua would hold the keyspace for ever, and the keyspace holds Lua's table."""

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
