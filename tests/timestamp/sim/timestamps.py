"""The weaknesses of the timestamp lock, as falls of the ladder: each with what survives the same."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from holdfast._core import timestamp
from holdfast._core.requests import NewToken, Now
from holdfast._core.timestamp import Stamp, TimestampState
from holdfast_lab.ladder import Rung, Scenario
from holdfast_lab.ladder.locks import KEY, TIMEOUT, TTL, TTL_MS, Lease, Timestamp, TimestampIsMine, call
from holdfast_lab.ladder.rungs import CLOCKS, CRASH_OF_THREE, LOST_REPLY, Fall, by_name
from holdfast_lab.sim.state import same_in_all_states

AHEAD = 300.0
"""Seconds."""

STARVING = Scenario("clocks, crash", "the first client's clock is 300 s ahead; one may crash", faults=("crash",), ahead=-AHEAD)
SHORTER = replace(CRASH_OF_THREE, name="another ttl", about="three clients, of which the third takes it for less", retry=1.0)

SHORT = 0.25
"""The part of the usual lease for which the third client takes the lock."""


class Ours:
    """Wrap `holdfast.legacy.TimestampLock`, in milliseconds. ``server``: by the server's clock."""

    def __init__(self, *, server: bool = False) -> None:
        self._stamp = Stamp(KEY.encode(), TTL, 1000, server, TIMEOUT)

    async def take(self) -> Lease | None:
        hold = TimestampState()
        if await timestamp.attempt(self._stamp, hold):
            return None
        (value,) = hold.values
        return Lease(hold.until, value.decode())

    async def give_back(self, held: Lease) -> None:
        await timestamp.release(self._stamp, TimestampState((held.token.encode(),), held.until, float("inf")))


class AnotherTtl:
    """SETNX, GET, GETSET, as deployed; but the third client takes the lock for a shorter time than the others."""

    async def take(self) -> Lease | None:
        ttl_ms = int(TTL_MS * SHORT) if (await NewToken()).startswith("c3") else TTL_MS
        now_ms = int(await Now() * 1000)
        mine = now_ms + ttl_ms + 1
        held = Lease(until=mine / 1000, token=str(mine))
        if await call("SETNX", KEY, mine):
            return held
        seen = await call("GET", KEY)
        if not seen or int(seen) >= now_ms:
            return None
        return held if await call("GETSET", KEY, mine) == seen else None

    async def give_back(self, held: Lease) -> None:
        if await Now() < held.until:
            await call("DEL", KEY)


OURS = Rung("TimestampLock", "holdfast's", Ours())
OURS_BY_SERVER = Rung('TimestampLock with clock="server"', "the same, by the server's clock", Ours(server=True))

SAME_TTL = by_name("timestamp-getset")


class Weakness(NamedTuple):
    """How the lock falls, and what survives the same; None: nothing that could be tried in a moment."""

    rung: Rung
    cure: Rung | None


FALLS = {
    weakness.rung.name: weakness
    for weakness in (
        Weakness(Rung("naive", "", Timestamp(), Fall(CRASH_OF_THREE, "R1", "", 500, "")), SAME_TTL),
        Weakness(Rung("clock-ahead", "", Ours(), Fall(CLOCKS, "R1", "", 10, "")), OURS_BY_SERVER),
        Weakness(Rung("clock-ahead-crash", "", Ours(), Fall(STARVING, "R7", "", 100, "")), OURS_BY_SERVER),
        Weakness(Rung("same-value", "", TimestampIsMine(), Fall(LOST_REPLY, "R1", "", 100, "")), OURS),
        Weakness(Rung("another-ttl", "", AnotherTtl(), Fall(SHORTER, "R1", "", 1000, "")), None),
    )
}

same_in_all_states(Ours, AnotherTtl)
