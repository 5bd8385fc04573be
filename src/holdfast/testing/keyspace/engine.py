"""The Lua runtime that stores the data of all servers in memory of a process, and conversions between Python and Lua.

A real server runs its scripts in Lua 5.1. This module uses LuaJIT 2.1, which accepts the same language and is twice as fast.
If the installed lupa lacks LuaJIT, the module uses Lua 5.1. The conformance tests compare both with real servers.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast._lua import Script, sha1_hex

_HERE = Path(__file__).parent
_SHARED = ("base", "scripts")
_APART = ("strings", "keys", "hashes", "lines", "server", "calls")


class ReplyError(Exception):
    """An error reply of the server. ``str()`` returns its text, which begins with the error code."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReplyError) and self.args == other.args

    def __hash__(self) -> int:
        return hash(self.args)

    @property
    def code(self) -> str:
        """The error code, which is the first word of the text, such as ``ERR`` or ``NOSCRIPT``."""
        return str(self).split(" ", 1)[0]


class Status(bytes):
    """A status reply of the server. For example, ``+OK`` is ``Status(b"OK")``."""

    __slots__ = ()


def kinds() -> list[str]:
    """Return the names of the usable Lua runtimes of the installed lupa, the faster one first. Raises ImportError."""
    found = [kind for kind in ("luajit21", "lua51") if importlib.util.find_spec(f"lupa.{kind}")]
    if not found:
        raise ImportError("the installed lupa has neither LuaJIT 2.1 nor Lua 5.1, one of which the scripts need")
    return found


class LuaEngine:
    """A Lua runtime with the functions of `calls.lua`, and the scripts that it has compiled."""

    clear: Any
    execute: Any
    new: Any
    run: Any
    dump: Any
    load: Any
    version: Any
    peek: Any
    set_run_id: Any
    subscribe: Any
    forbid: Any
    forbidden: Any

    def __init__(self, kind: str) -> None:
        lupa: Any = importlib.import_module(f"lupa.{kind}")
        lua = lupa.LuaRuntime(encoding=None, register_eval=False, register_builtins=False)
        lua.execute(b"collectgarbage('setpause', 400) if jit then jit.off() end")  # short scripts are slower when compiled
        text = "".join((_HERE / f"{name}.lua").read_text("ascii") for name in _SHARED)
        text += "".join(f"do {(_HERE / f'{name}.lua').read_text('ascii')} end " for name in _APART)
        calls = lua.execute(text.encode())
        calls[b"redis"][b"sha1hex"] = lambda text: sha1_hex(text).encode()
        self.new, self.run, self.execute, self.clear = calls[b"new"], calls[b"run"], calls[b"execute"], calls[b"clear"]
        self.dump, self.load, self.version = calls[b"dump"], calls[b"load"], calls[b"version"]
        self.subscribe, self.set_run_id, self.peek = calls[b"subscribe"], calls[b"set_run_id"], calls[b"peek"]
        self.forbid, self.forbidden = calls[b"forbid"], calls[b"forbidden"]
        self.scripts: dict[str, Any] = {}
        self._compile, self._part = calls[b"compile"], lua.eval(b"unpack")

    def compiled(self, script: Script[Any]) -> Any:
        found = self._compile(script.body, script.sha.encode())
        if isinstance(found, tuple):
            raise ValueError(found[1].decode(errors="replace"))  # noqa: TRY004 -- its text is wrong, not its type
        self.scripts[script.sha] = found
        return found

    def items(self, table: Any) -> list[Any]:
        """Return the items of a Lua list, however long, as a Python list."""
        found: list[Any] = []
        size = len(table)
        for start in range(1, size + 1, 1000):
            part = self._part(table, start, min(start + 999, size))
            found += part if isinstance(part, tuple) else (part,)
        return found

    def reply(self, raw: Any) -> Any:
        """Return the value of a reply that `give` in calls.lua has prepared."""
        if type(raw) is tuple:
            return list(raw[1:]) if raw[0] else _spelled(iter(self.items(raw[1])))
        return [] if raw is True else raw


def _spelled(parts: Iterator[Any]) -> Any:
    """Build a reply from its tags and values, in the order in which `spell` in calls.lua returns them."""
    tag, value = next(parts), next(parts)
    match tag:
        case b"*":
            return [_spelled(parts) for _ in range(value)]
        case b"-":
            return ReplyError(value.decode(errors="replace"))
        case b"+":
            return Status(value)
        case _:
            return None if tag == b"_" else value
