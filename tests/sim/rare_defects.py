"""Deliberate defects that only histories under a rare theme can catch."""

from __future__ import annotations

from mutants.defects import Mutation
from mutants.operators import Instead

RARE = (
    Mutation(
        "barrier-forgotten-in-silence",
        "_lua/barrier.lua",
        "begin",
        Instead("if not broken then destroy('lost', '') end", ""),
        "who waits at a barrier that the server has lost is not told, and waits for what is not there",
        "meetings+forgetful",
    ),
    Mutation(
        "run-fence-by-clock",
        "_lua/serve.lua",
        "serve",
        Instead("now, whole(fields[5]))", "now, nil)"),
        "the fence of a run is what the clock says, though that was set back",
        "schedule+jumping",
    ),
    Mutation(
        "observer-goes-back",
        "_core/leading.py",
        "Watch.is_news",
        Instead("found.term < self.highest", "False"),
        "an observer sees a leader again whose term is over, when the server has lost the last of its memory",
        "election+forgetful",
    ),
    Mutation(
        "message-with-any-number",
        "_core/node.py",
        "Node._on_push",
        Instead("what == '1' and more.isdigit()", "what == '1'"),
        "who reads a message takes for granted that there is a number in it",
        "lock+stranger",
    ),
    Mutation(
        "transfer-not-taken-back",
        "_lua/transfer.lua",
        "",
        Instead("redis.call('SET', lock, token, 'PX', math.max(1, left))", ""),
        "who is elected does not hear of it, and whoever handed over has lost the election all the same",
        "election+forbidden",
    ),
)
