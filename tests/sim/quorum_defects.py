"""Deliberate defects of the lock over several servers, see `mutations`.

That a confirmation looks at the token, and at the counter, matters only where a vote vanishes between the two: what is wrong
without that is shown by the model `quorum_fence` (its variants NAIVE and NO_COMPARE), not here.
"""

from __future__ import annotations

from functools import partial

from sim.script_defects import Mutation

_lua_file, _core_file = "_lua/{}.lua", "_core/{}.py"


def _defect(where: str, name: str, file: str, old: str, new: str, breaks: str) -> Mutation:
    return Mutation(name, where.format(file), old, new, breaks, of="quorum")


_lua = partial(_defect, _lua_file)
_core = partial(_defect, _core_file)

FENCES = (
    _lua(
        "vote-same-fence",
        "vote",
        "math.max(last + 1, ",
        "math.max(last - count + 1, ",
        "two holders get the same fences from a server",
    ),
    _lua(
        "vote-fence-not-written",
        "vote",
        "  redis.call('HSET', state, 'fence', first + count - 1)\n",
        "",
        "a server forgets which fence it has issued",
    ),
    _lua(
        "vote-fence-without-clock",
        "vote",
        "  local first = math.max(last + 1, math.min(hint == 0 and now or hint, now + AHEAD))\n",
        "  local first = last + 1\n",
        "the fence is a counter alone: a server that has forgotten starts again from one",
    ),
    _core(
        "fence-unconfirmed",
        "quorum",
        "    if sum(vote.fence == best.fence for vote in votes) < panel.majority:\n",
        "    if not votes:\n",
        "the highest answer is the fence, and no majority confirms it",
    ),
    _core(
        "fence-confirmed-by-one",
        "quorum",
        "Count(len(granted), panel.majority)",
        "Count(len(granted), 1)",
        "one server's confirmation is enough",
    ),
    _core(
        "fence-is-the-lowest",
        "quorum",
        "best = max(votes, key=",
        "best = min(votes, key=",
        "the lowest answer is the fence",
    ),
    _core(
        "fences-of-another",
        "quorum",
        "return Held(max(vote.first for vote in votes), best.fence)",
        "return Held(min(vote.first for vote in votes), best.fence)",
        "what is passed on in a process has fences that others may have, too",
    ),
)

MAJORITY = (
    _core("half-is-enough", "ballot", "return len(self.names) // 2 + 1", "return len(self.names) // 2", "less than half win"),
    _core(
        "quorum-without-drift",
        "quorum",
        "length = spec.first_ttl - margin(spec.first_ttl)",
        "length = spec.first_ttl",
        "nothing is taken off the lease for the drift of clocks",
    ),
    _core(
        "quorum-from-answer",
        "quorum",
        "deadline = sorted((answer.sent for",
        "deadline = sorted((answer.came for",
        "the lease counts from when the answers came",
    ),
    _core(
        "votes-from-answer",
        "quorum",
        "end = granted[number].sent + length if",
        "end = granted[number].came + length if",
        "each vote counts from when its answer came",
    ),
    _core(
        "until-the-last-vote-ends",
        "votes",
        "return ends[self.majority - 1] if",
        "return ends[0] if",
        "the lease lasts as long as the last of its votes, whatever the majority does",
    ),
    _core(
        "unanswered-counts",
        "votes",
        "return self.believed and not self.lost",
        "return not self.lost",
        "a server that has not answered counts as one that has granted",
    ),
    _core(
        "a-vote-too-few",
        "votes",
        "for vote in self.votes.values()) >= self.majority:",
        "for vote in self.votes.values()) >= self.majority - 1:",
        "the lease is held on to when only a minority has it",
    ),
    _core(
        "more-time-than-was-asked-for",
        "quorum",
        "            if vote.answered_at >= vote.asked_at:\n",
        "            if vote:\n",
        "a lease that is made longer counts, though a renewal for less is under way and may come last",
    ),
    _core(
        "too-late-to-be-believed",
        "quorum",
        "if fences is None or now >= deadline:",
        "if fences is None:",
        "a majority that came when the lease was over counts",
    ),
    _core(
        "shorter-votes-not-believed",
        "votes",
        "            vote.deadline = min(vote.deadline, now + ttl - margin(ttl))\n",
        "",
        "who asks for a shorter lease goes on believing in the longer one until it is answered",
    ),
    _lua(
        "vote-whoever-has-it",
        "vote",
        "if (holder and holder ~= token) or kept then",
        "if (holder and holder ~= token and redis.call('PTTL', lock) > ttl) or kept then",
        "a server gives a lock away that somebody has",
    ),
    _lua(
        "renewal-writes-the-lock",
        "renew",
        "  if holder ~= token then return missed(state, token, holder) end\n",
        "  if holder and holder ~= token then return -1 end\n  redis.call('SET', lock, token)\n",
        "a renewal writes the lock where it is gone",
    ),
)

UNDOING = (
    _core(
        "undo-only-what-answered",
        "quorum",
        'candidate.voted = ["bury"] * len(panel.names)',
        'candidate.voted = [""] * len(panel.names)',
        "who has not answered is not told that the round is over",
    ),
    _core(
        "undo-before-its-do",
        "quorum",
        'candidate.voted = ["bury"] * len(panel.names)',
        'candidate.voted = ["leave"] * len(panel.names)',
        "an undo on another connection does not refuse what it has overtaken",
    ),
    _core(
        "undo-that-failed-later",
        "quorum",
        ", otherwise=lambda number: GiveBack(bury, number, until))",
        ")",
        "who has not heard that the round is over, as the connection broke, is not told again",
    ),
    _core(
        "release-that-failed-later",
        "quorum",
        ", otherwise=lambda number: GiveBack(*mandate.giving_back_to(number)))",
        ")",
        "who has not heard that the lock was given back, as the connection broke, is not told again",
    ),
    _lua(
        "yield-whoever-has-it",
        "yield",
        "if holder == token then\n  redis.call('DEL', lock)\n",
        "if holder then\n  redis.call('DEL', lock)\n",
        "who gives back frees whatever lock is there",
    ),
    _lua(
        "vote-for-the-dead",
        "vote",
        "  if fields[2] and string.find(fields[2], token, 1, true) then return {-1} end\n",
        "",
        "a copy of a request that was given up takes the lock",
    ),
    _lua(
        "vote-without-expiry",
        "vote",
        "else redis.call('SET', lock, token, 'PX', ttl) end",
        "else redis.call('SET', lock, token) end",
        "a vote never ends",
    ),
    _lua(
        "hope-stays",
        "yield",
        "  redis.call('ZREM', hopefuls, hope)\n  gone",
        "  gone",
        "who has given up is still told when the lock is free",
    ),
    _core(
        "hope-not-withdrawn",
        "quorum",
        "    await Withdraw(candidate)\n    return grant\n",
        "    return grant\n",
        "a process listens for a lock that it has got",
    ),
    _lua(
        "nobody-is-told",
        "yield",
        "if (mode ~= 'leave' and answer == 1) or",
        "if",
        "a release tells nobody that the lock is free",
    ),
)

FORGETTING = (
    _lua(
        "marker-ignored",
        "vote",
        "local answer = refusal or vote()",
        "local answer = vote()",
        "a server that has forgotten votes at once",
    ),
    _lua(
        "run-id-ignored",
        "_marker",
        "  if fields[1] ~= run or not since or since > now_ms then",
        "  if not since or since > now_ms then",
        "a server that was restarted without the end of its log votes at once",
    ),
    _lua(
        "quarantine-too-short",
        "_marker",
        "math.ceil(longest * 1.01)",
        "math.ceil(longest / 20)",
        "a server that has forgotten votes before the longest lease is over",
    ),
)

QUORUM = FENCES + MAJORITY + UNDOING + FORGETTING
