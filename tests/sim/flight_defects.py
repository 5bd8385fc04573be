"""Deliberate defects of single flight, see `mutations`.

That a value is stored only under the fence of its lease matters where a lease was lost, and taken again by a late copy of its
loader's own request: what is wrong without that is shown by the model `flight` (its variant NO_BOUND), not here.
"""

from __future__ import annotations

from functools import partial

from sim.script_defects import Mutation

_lua_file, _core_file = "_lua/{}.lua", "_core/{}.py"


def _defect(where: str, name: str, file: str, old: str, new: str, breaks: str) -> Mutation:
    return Mutation(name, where.format(file), old, new, breaks, of="flight")


_lua = partial(_defect, _lua_file)
_core = partial(_defect, _core_file)

LANDING = (
    _lua(
        "drop-leaves-the-load",
        "drop",
        "redis.call('DEL', value, fresh, load)\nredis.pcall('HDEL', state, 'of:' .. load)\n",
        "redis.call('DEL', value, fresh)\n",
        "what was being loaded when the key was deleted is stored",
    ),
    _lua(
        "land-without-lease",
        "land",
        "if loaded and (holder ~= token or whole(redis.call('HGET', state, 'of:' .. load)) ~= fence) then",
        "if false then",
        "who has lost his lease stores what he has loaded, and ends the load of another",
    ),
    _lua(
        "land-though-void",
        "land",
        "local stored = not loaded or not void(floors, floor, fence, tags)",
        "local stored = true",
        "what was being loaded when its tag was invalidated is stored",
    ),
    _core(
        "load-counted-from-answer",
        "flight",
        "deadline = answer.sent + attempt",
        "deadline = answer.came + attempt",
        "the lease of a load counts from when the answer came",
    ),
    _core(
        "load-not-renewed",
        "flight",
        "            await Tend(load)\n",
        "",
        "a load that takes longer than its lease loses it",
    ),
    _core(
        "load-looked-after-for-ever",
        "flight",
        "    tenure.end()\n    await Leave(tenure)\n",
        "    tenure.end()\n",
        "a load that is over is still looked after",
    ),
)

LOOKING = (
    _lua(
        "look-finds-the-void",
        "look",
        " or not void(floors, floor, fence, tags) then",
        " or true then",
        "a value is found whose tag was invalidated",
    ),
    _lua(
        "look-at-first-tag",
        "_flight",
        "  for tag in string.gmatch(tags, '%S+') do\n",
        "  for tag in string.gmatch(tags, '^%S+') do\n",
        "of the tags of a value none counts but that of all",
    ),
    _core(
        "glance-finds-the-void",
        "site",
        " or _whole(floor) >= number",
        "",
        "the plain command finds a value whose tag was invalidated",
    ),
    _core(
        "glance-finds-the-stale",
        "site",
        '(mark is None and kept != b"0") or ',
        "",
        "the plain command finds a stale value, and calls it fresh",
    ),
    _lua(
        "stale-for-everybody",
        "look",
        "usable = left + stale > 0",
        "usable = true",
        "a stale value is found by who wants none",
    ),
    _lua(
        "stale-for-nobody",
        "look",
        "if usable then return {left > 0 and 1 or 2, found, left} end",
        "if usable and lease == 0 then return {left > 0 and 1 or 2, found, left} end",
        "who would take a stale value waits for the new one",
    ),
    _lua(
        "always-early",
        "look",
        "if left > 0 and not hurry then",
        "if left > 0 and hurry == nil then",
        "a fresh value is loaded again",
    ),
    _lua(
        "two-load",
        "look",
        "if holder and holder ~= token then\n",
        "if false then\n",
        "who finds that somebody loads, loads, too",
    ),
)

TELLING = (
    _lua("abort-tells-nobody", "abort", "  tell(waiters)\n", "", "when a load fails, who waits does not learn of it"),
    _lua(
        "land-tells-nobody", "land", "tell(waiters)\nreturn", "return", "when a value is stored, who waits does not learn of it"
    ),
    _lua("drop-tells-nobody", "drop", "tell(waiters)\n", "", "who waits goes on waiting for a load that has lost its lease"),
    _lua("told-one", "_tell", "ZRANGE', waiters, 0, -1", "ZRANGE', waiters, 0, 0", "of all who wait, one is told"),
    _lua(
        "waits-unlisted",
        "look",
        "  if hope ~= '' then\n",
        "  if false then\n",
        "who waits is not listed among those to be told",
    ),
    _core(
        "waits-beyond-the-lease",
        "flight",
        "await hear(me, min(until, now + left))",
        "await hear(me, until)",
        "who waits does not look when the loader's lease has ended",
    ),
    _core(
        "crowd-without-leader",
        "crowd",
        "                if self._members:\n",
        "                if False:\n",
        "when who looks for all has what he wanted, nobody looks for the others",
    ),
    _core(
        "look-leaves-the-load",
        "flight",
        "    if attempt.pending:\n",
        "    if False:\n",
        "who is cancelled while he looks leaves a lease behind",
    ),
)

FLIGHT = LANDING + LOOKING + TELLING
