"""Deliberate defects of semaphores and read-write locks, see `mutations`."""

from __future__ import annotations

from functools import partial

from sim.script_defects import Mutation


def _defect(file: str, name: str, old: str, new: str, breaks: str) -> Mutation:
    return Mutation(name, file, old, new, breaks, of="permits")


_shared = partial(_defect, "_lua/_permit.lua")
_acquire = partial(_defect, "_lua/permit_acquire.lua")
_release = partial(_defect, "_lua/permit_release.lua")
_refresh = partial(_defect, "_lua/permit_refresh.lua")
_renew = partial(_defect, "_lua/permit_renew.lua")
_change = partial(_defect, "_lua/permit_change.lua")

PERMITS = (
    _acquire(
        "permit-barging",
        "if not fence and not blocked and p.used",
        "if not fence and p.used",
        "what is free goes to who asks, past those in line who want more",
    ),
    _acquire(
        "permit-limit-ignored",
        "and used + many <= there then",
        "then",
        "who finds nobody in line takes permits, however many are held",
    ),
    _shared(
        "permit-used-stays-at-expiry",
        "    p.used = math.max(0, p.used - permits)\n",
        "    p.used = math.max(0, p.used - 0 * permits)\n",
        "permits that come back are counted as held still",
    ),
    _shared(
        "permit-blocked-passed-over",
        "      elseif p.used + many > p.limit then\n        blocked = true\n        break\n",
        "      elseif p.used + many > p.limit then\n        from = from + 1\n",
        "who wants more than is free is passed over, again and again",
    ),
    _shared(
        "permit-place-kept",
        "          leaving[#leaving + 1] = token\n",
        "",
        "who was served stands in line still, and is served again",
    ),
    _release(
        "permit-release-serves-nobody",
        "if p.limit then serve(p, false) end\n",
        "",
        "what is given back is handed over to nobody",
    ),
    _release(
        "permit-release-without-look",
        "if redis.call('ZSCORE', p.holders, token) then\n  remove(p, {token})",
        "if true then\n  remove(p, {token})",
        "who gives back what is not his any more makes room for one too many",
    ),
    _release(
        "permit-left-in-line",
        "if mode ~= 'release' then leave(p.state, p.queue, token) end\n",
        "",
        "who gives up stays in line",
    ),
    _release(
        "permit-not-buried",
        "  bury(p.state, p.dead, token)\n",
        "",
        "a late copy of a request that was given up takes permits for nobody",
    ),
    _refresh(
        "permit-refresh-inserts",
        "  if not p.place then return {-1} end\n",
        "  redis.call('ZADD', queue, 'NX', p.now, token)\n",
        "a late sign of life puts somebody in line who has left it",
    ),
    _renew(
        "permit-renewal-revives",
        "if not p or not redis.call('ZSCORE', holders, token) then return missed(p, token) end",
        "if not p then return 0 end",
        "who is late renews what is somebody else's by now",
    ),
    _change(
        "permit-downgrade-serves-nobody",
        "  serve(p, false)\n",
        "",
        "a writer becomes a reader, and the readers who wait stay outside",
    ),
    _change(
        "permit-downgrade-not-counted",
        "  p.used = p.used - had + permits\n",
        "",
        "a writer who becomes a reader is counted as a writer still",
    ),
)
