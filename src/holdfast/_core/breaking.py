"""Taking a lock away from its holder, by order of a person who has seen him hold it; and waiting until it is free.

Who had it is told, and loses his lease as by any other loss; what he does until he stops, fences keep out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast._core.attempt import GUARD
from holdfast._core.insist import insist
from holdfast._core.inspecting import Ask, Field, keys_of, look
from holdfast._core.leading import VACATE
from holdfast._core.names import side_key
from holdfast._core.requests import Conflict, Now, Run, Sleep, WireError
from holdfast._lua import Script

POLL = 1.0
"""Seconds between two looks at a lock that somebody waits to see free, at most: nothing tells who takes nothing."""


class Broken(NamedTuple):
    """It is taken away."""

    fence: int
    told: bool
    """His process was listening."""
    heir: str
    """Id of the process that was given the lock; empty: nobody waited."""


class Free(NamedTuple):
    """Nobody has it."""


class Changed(NamedTuple):
    """Somebody else has it by now."""


Answer = Broken | Free | Changed | Conflict


def _read(raw: Any) -> Answer:
    match raw:
        case [1, int(fence), int(told), bytes(heir)]:
            return Broken(fence, told == 1, heir.decode())
        case [0]:
            return Free()
        case [-1]:
            return Changed()
        case [-2, bytes(key), bytes(kind)]:
            return Conflict(f"key {key.decode(errors='backslashreplace')!r} holds a {kind.decode()}, not a lock")
        case [-3, bytes(version)]:
            return Conflict(f"its state has format {version.decode(errors='replace')!r}, this release knows format 1")
        case _:
            return Conflict(f"unexpected answer {raw!r}")


BREAK: Script[Answer] = Script("break", _read)
BREAK_PERMITS: Script[Answer] = Script("permit_break", _read)


async def break_lock(where: Field, key: bytes, mark: str, by: str, *, leads: bool = False) -> list[Answer | WireError]:
    """Take it away from the holder with this mark: what each server answers. Raises WireError if none does.

    ``leads``: as far as is known he was elected, so there may be observers.
    """
    keys = keys_of(key)
    if where.slot_of is None:  # in a Cluster no lock is guarded
        keys += (GUARD,)
    answers = await _everywhere(where, Run(BREAK, keys, (mark, by), where.timeout))
    if leads:
        try:
            await Ask(0, Run(VACATE, (side_key(key, b"observers"),), (), where.timeout))
        except WireError:
            pass  # they look by themselves, in a while
    return answers


async def break_permits(where: Field, key: bytes, marks: list[str], by: str) -> list[Answer | WireError]:
    """Take away what the holders with these marks have of what several share."""
    return await _everywhere(where, Run(BREAK_PERMITS, keys_of(key)[:3], (by, *marks), where.timeout))


async def _everywhere(where: Field, call: Run[Answer]) -> list[Answer | WireError]:
    answers: list[Answer | WireError] = []
    for place in range(where.places):
        try:
            answers.append((await insist(Ask(place, call))).value)
        except WireError as error:
            answers.append(error)
    failure = answers[-1]
    if isinstance(failure, WireError) and all(isinstance(answer, WireError) for answer in answers):
        raise failure
    return answers


async def wait(where: Field, key: bytes, seconds: float | None) -> bool:
    """Until nobody has the lock; False: that took longer. Takes nothing: somebody else may have it again. Raises WireError."""
    until = None if seconds is None else await Now() + seconds
    while True:
        (seen,) = await look(where, [key])
        votes = [sight for sight in seen.sights if sight is not None and sight.holds]
        free = sum(sight is not None and not sight.holds for sight in seen.sights)
        if free > where.places // 2:
            return True
        left = min([POLL, *(hold.remaining + 0.001 for sight in votes for hold in sight.holds if hold.remaining is not None)])
        if until is not None:
            left = min(left, until - await Now())
            if left <= 0:
                return False
        await Sleep(max(left, 0.02))
