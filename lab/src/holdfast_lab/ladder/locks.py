"""The locks of the ladder: small locks as tutorials show them, with their defects.

As in production, their methods are operations, which await requests. If ``take`` returns None, the client has not acquired the
lock, and tries again after a while.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Protocol

from holdfast._core.requests import AskPlace, Command, NewToken, Now, Unknown, WireError

KEY = "x"
TTL = 2.0
"""Lease time of the locks, in seconds."""
TTL_MS = 2000
FOR_EVER = float("inf")
TIMEOUT = 1.0
"""Seconds to wait for a reply."""

HERE = Path(__file__).parent
DEL_IF_MINE = (HERE / "del_if_mine.lua").read_text("ascii")
SET_WITH_FENCE = (HERE / "set_with_fence.lua").read_text("ascii")


class Lease(NamedTuple):
    """The lease of a lock, as its holder knows it."""

    until: float = FOR_EVER
    """Time at which the lease ends, by the holder's clock in seconds."""
    token: str = ""
    fence: int = 0


class LockOfLadder(Protocol):
    """The methods that every lock of the ladder has."""

    async def take(self) -> Lease | None:
        """Try once to acquire the lock. Return None if this fails, for example because another client holds it."""

    async def give_back(self, held: Lease) -> None:
        """Release the lock."""


async def call(*args: bytes | str | int) -> Any:
    return (await Command(args, TIMEOUT)).value


class Flag:
    """A flag: read it with GET, and if it is not set, set it with SET."""

    async def take(self) -> Lease | None:
        if await call("GET", KEY) == b"1":
            return None
        await call("SET", KEY, 1)
        return Lease()

    async def give_back(self, _held: Lease) -> None:
        await call("SET", KEY, 0)


class SetNx:
    """SETNX: set the key if it does not exist, in one command."""

    async def take(self) -> Lease | None:
        return Lease() if await call("SETNX", KEY, 1) else None

    async def give_back(self, _held: Lease) -> None:
        await call("DEL", KEY)


class SetNxExpire:
    """SETNX, and then EXPIRE, so that the lock does not stay forever if its holder crashes."""

    async def take(self) -> Lease | None:
        began = await Now()
        if not await call("SETNX", KEY, 1):
            return None
        await call("PEXPIRE", KEY, TTL_MS)
        return Lease(until=began + TTL)

    async def give_back(self, _held: Lease) -> None:
        await call("DEL", KEY)


class Timestamp:
    """SETNX of the time at which the lock expires. A client that sees an expired time deletes the key and tries SETNX again."""

    async def take(self) -> Lease | None:
        now_ms = int(await Now() * 1000)
        mine = now_ms + TTL_MS + 1
        if await call("SETNX", KEY, mine):
            return Lease(until=mine / 1000)
        seen = await call("GET", KEY)
        if not seen or int(seen) >= now_ms:
            return None
        await call("DEL", KEY)
        return Lease(until=mine / 1000) if await call("SETNX", KEY, mine) else None

    async def give_back(self, held: Lease) -> None:
        if await Now() < held.until:
            await call("DEL", KEY)


class TimestampGetSet:
    """SETNX of the expiry time. A client that sees an expired time swaps in its own time with GETSET, and wins if GETSET
    returns the time that it saw."""

    async def take(self) -> Lease | None:
        return await self.try_at(int(await Now() * 1000))

    async def try_at(self, now_ms: int) -> Lease | None:
        mine = now_ms + TTL_MS + 1
        if await call("SETNX", KEY, mine):
            return Lease(until=mine / 1000)
        seen = await call("GET", KEY)
        if not seen or int(seen) >= now_ms:
            return None
        return Lease(until=mine / 1000) if await call("GETSET", KEY, mine) == seen else None

    async def give_back(self, held: Lease) -> None:
        if await Now() < held.until:
            await call("DEL", KEY)


class TimestampIsMine(TimestampGetSet):
    """SETNX and GETSET of the expiry time. A client that got no reply reads the key, and wins if it finds its own time
    there."""

    async def try_at(self, now_ms: int) -> Lease | None:
        try:
            return await super().try_at(now_ms)
        except Unknown:
            mine = now_ms + TTL_MS + 1
            return Lease(until=mine / 1000) if await call("GET", KEY) == b"%d" % mine else None


class SetNxPx:
    """SET NX PX: set the key with an expiry if it does not exist, in one command. Only the server's clock decides when the
    key expires."""

    async def take(self) -> Lease | None:
        began = await Now()
        return Lease(until=began + TTL) if await call("SET", KEY, 1, "NX", "PX", TTL_MS) else None

    async def give_back(self, _held: Lease) -> None:
        await call("DEL", KEY)


class Token:
    """SET NX PX of a random token. Release the lock only if the token is still there: GET, compare, DEL."""

    async def take(self) -> Lease | None:
        token = await NewToken()
        began = await Now()
        try:
            taken = await call("SET", KEY, token, "NX", "PX", TTL_MS)
        except Unknown:
            taken = await call("GET", KEY) == token.encode()
        return Lease(began + TTL, token) if taken else None

    async def give_back(self, held: Lease) -> None:
        if await call("GET", KEY) == held.token.encode():
            await call("DEL", KEY)


class TokenScript(Token):
    """SET NX PX of a random token. To release the lock, a script compares the token and deletes the key, in one step."""

    async def give_back(self, held: Lease) -> None:
        await call("EVAL", DEL_IF_MINE, 1, KEY, held.token)


class Redlock:
    """SET NX PX of a token on three independent servers. A client that succeeds on two of them, a majority, holds the lock."""

    SERVERS = 3
    DRIFT = 0.01 * TTL + 0.002
    """Seconds subtracted from a lease, because the clocks of client and servers may run at different rates."""

    async def take(self) -> Lease | None:
        token = await NewToken()
        held = Lease(await Now() + TTL - self.DRIFT, token)
        votes = 0
        for server in range(self.SERVERS):
            votes += bool(await self.ask(server, "SET", KEY, token, "NX", "PX", TTL_MS))
        if votes > self.SERVERS / 2 and await Now() < held.until:
            return held
        await self.give_back(held)
        return None

    async def give_back(self, held: Lease) -> None:
        for server in range(self.SERVERS):
            await self.ask(server, "EVAL", DEL_IF_MINE, 1, KEY, held.token)

    async def ask(self, server: int, *args: str | int) -> Any:
        """Send a command to one server. Return None if there was no reply."""
        try:
            return (await AskPlace(server, Command(args, TIMEOUT))).value
        except WireError:
            return None


class Fenced(TokenScript):
    """SET NX PX of a random token, in a script that also returns a fence, a number greater than all earlier fences."""

    async def take(self) -> Lease | None:
        token = await NewToken()
        began = await Now()
        fence = await call("EVAL", SET_WITH_FENCE, 2, KEY, "fence", token, TTL_MS)
        return Lease(began + TTL, token, fence) if fence else None
