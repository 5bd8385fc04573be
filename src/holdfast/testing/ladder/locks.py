"""The locks of the ladder, as small as they are written down in tutorials, and as wrong.

Each is an operation as those of production are: it awaits requests, and whoever drives it carries them out. ``take`` tries
once, and is called again after a while if it answers None.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Protocol

from holdfast._core.requests import Command, NewToken, Now, Unknown, WireError
from holdfast.testing.sim.worker import At

KEY = "x"
TTL = 2.0
"""The lease, in seconds."""
TTL_MS = 2000
FOR_EVER = float("inf")
TIMEOUT = 1.0
"""Seconds that an answer may take."""

HERE = Path(__file__).parent
DEL_IF_MINE = (HERE / "del_if_mine.lua").read_text("ascii")
SET_WITH_FENCE = (HERE / "set_with_fence.lua").read_text("ascii")


class Held(NamedTuple):
    """A holder's knowledge of its lock."""

    until: float = FOR_EVER
    """End of the lease, by its own clock."""
    token: str = ""
    fence: int = 0


class LockOfLadder(Protocol):
    """The methods of every lock of the ladder."""

    async def take(self) -> Held | None:
        """Try once."""

    async def give_back(self, held: Held) -> None:
        """It is not needed any more."""


async def call(*args: bytes | str | int) -> Any:
    """The reply to one command."""
    return (await Command(args, TIMEOUT)).value


class Flag:
    """Read a flag; if it is not set, set it."""

    async def take(self) -> Held | None:
        if await call("GET", KEY) == b"1":
            return None
        await call("SET", KEY, 1)
        return Held()

    async def give_back(self, _held: Held) -> None:
        await call("SET", KEY, 0)


class SetNx:
    """SETNX: set the key if it is not there, in one command."""

    async def take(self) -> Held | None:
        return Held() if await call("SETNX", KEY, 1) else None

    async def give_back(self, _held: Held) -> None:
        await call("DEL", KEY)


class SetNxExpire:
    """SETNX, and then EXPIRE, so that a crash does not leave the lock behind."""

    async def take(self) -> Held | None:
        began = await Now()
        if not await call("SETNX", KEY, 1):
            return None
        await call("PEXPIRE", KEY, TTL_MS)
        return Held(until=began + TTL)

    async def give_back(self, _held: Held) -> None:
        await call("DEL", KEY)


class Timestamp:
    """SETNX of the time at which the lock expires. A client that finds that time past deletes the key, and tries again."""

    async def take(self) -> Held | None:
        now_ms = int(await Now() * 1000)
        mine = now_ms + TTL_MS + 1
        if await call("SETNX", KEY, mine):
            return Held(until=mine / 1000)
        seen = await call("GET", KEY)
        if not seen or int(seen) >= now_ms:
            return None
        await call("DEL", KEY)
        return Held(until=mine / 1000) if await call("SETNX", KEY, mine) else None

    async def give_back(self, held: Held) -> None:
        if await Now() < held.until:
            await call("DEL", KEY)


class TimestampGetSet:
    """The same, but who finds the time past swaps it for its own, and wins if what comes back is still what it saw."""

    async def take(self) -> Held | None:
        return await self.try_at(int(await Now() * 1000))

    async def try_at(self, now_ms: int) -> Held | None:
        mine = now_ms + TTL_MS + 1
        if await call("SETNX", KEY, mine):
            return Held(until=mine / 1000)
        seen = await call("GET", KEY)
        if not seen or int(seen) >= now_ms:
            return None
        return Held(until=mine / 1000) if await call("GETSET", KEY, mine) == seen else None

    async def give_back(self, held: Held) -> None:
        if await Now() < held.until:
            await call("DEL", KEY)


class TimestampIsMine(TimestampGetSet):
    """The same, and who got no answer looks into the key: if the time in it is its own, it has the lock."""

    async def try_at(self, now_ms: int) -> Held | None:
        try:
            return await super().try_at(now_ms)
        except Unknown:
            mine = now_ms + TTL_MS + 1
            return Held(until=mine / 1000) if await call("GET", KEY) == b"%d" % mine else None


class SetNxPx:
    """SET NX PX: set the key if it is not there, with an expiry, in one command; the server's clock counts."""

    async def take(self) -> Held | None:
        began = await Now()
        return Held(until=began + TTL) if await call("SET", KEY, 1, "NX", "PX", TTL_MS) else None

    async def give_back(self, _held: Held) -> None:
        await call("DEL", KEY)


class Token:
    """SET NX PX of a random token. Give it back only if the token is still there: GET, compare, DEL."""

    async def take(self) -> Held | None:
        token = await NewToken()
        began = await Now()
        try:
            taken = await call("SET", KEY, token, "NX", "PX", TTL_MS)
        except Unknown:
            taken = await call("GET", KEY) == token.encode()
        return Held(began + TTL, token) if taken else None

    async def give_back(self, held: Held) -> None:
        if await call("GET", KEY) == held.token.encode():
            await call("DEL", KEY)


class TokenScript(Token):
    """SET NX PX of a random token; a script compares it and deletes the key, in one step."""

    async def give_back(self, held: Held) -> None:
        await call("EVAL", DEL_IF_MINE, 1, KEY, held.token)


class Redlock:
    """The same on three servers that know nothing of each other: two of them make a majority."""

    SERVERS = 3
    DRIFT = 0.01 * TTL + 0.002
    """By which clocks may differ, in seconds."""

    async def take(self) -> Held | None:
        token = await NewToken()
        held = Held(await Now() + TTL - self.DRIFT, token)
        votes = 0
        for server in range(self.SERVERS):
            votes += bool(await self.ask(server, "SET", KEY, token, "NX", "PX", TTL_MS))
        if votes > self.SERVERS / 2 and await Now() < held.until:
            return held
        await self.give_back(held)
        return None

    async def give_back(self, held: Held) -> None:
        for server in range(self.SERVERS):
            await self.ask(server, "EVAL", DEL_IF_MINE, 1, KEY, held.token)

    async def ask(self, server: int, *args: str | int) -> Any:
        """The reply of one server; None if there is none."""
        try:
            return (await At(server, Command(args, TIMEOUT))).value
        except WireError:
            return None


class Fenced(TokenScript):
    """The token and the script, and each holder has a number greater than all before: the fence."""

    async def take(self) -> Held | None:
        token = await NewToken()
        began = await Now()
        fence = await call("EVAL", SET_WITH_FENCE, 2, KEY, "fence", token, TTL_MS)
        return Held(began + TTL, token, fence) if fence else None
