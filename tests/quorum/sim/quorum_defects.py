"""Deliberate defects of the lock on several servers, see `mutations`.

A confirmation checks the token and the counter. No defect here removes these checks, because they matter only if a vote is lost
between grant and confirmation. The model `quorum_fence` shows what goes wrong without them (variants NAIVE and NO_COMPARE).
"""

from __future__ import annotations

from functools import partial

from lab.mutants.defects import Mutation
from lab.mutants.operators import Instead, Nth

_defect = partial(Mutation, of="quorum")

FENCES = (
    _defect(
        "vote-same-fence",
        "_lua/quorum/vote.lua",
        "issue",
        Instead("last + 1", "last - count + 1"),
        "two holders get the same fences from a server",
    ),
    _defect(
        "vote-fence-not-written", "_lua/quorum/vote.lua", "issue", Nth("dropped"), "a server forgets which fence it has issued"
    ),
    _defect(
        "vote-fence-without-clock",
        "_lua/quorum/vote.lua",
        "issue",
        Instead("math.max(last + 1, math.min(hint == 0 and now or hint, now + AHEAD))", "last + 1"),
        "the fence is a counter alone: a server that has lost its data starts again from one",
    ),
    _defect(
        "fence-unconfirmed",
        "_core/quorum/acquire.py",
        "_agree",
        Instead("sum((vote.fence == best.fence for vote in votes)) < server_set.majority", "not votes"),
        "the highest reply is the fence, and no majority confirms it",
    ),
    _defect(
        "fence-confirmed-by-one",
        "_core/quorum/acquire.py",
        "_agree",
        Instead("YesCount(len(granted), server_set.majority)", "YesCount(len(granted), 1)"),
        "one server's confirmation is enough",
    ),
    _defect(
        "fence-is-the-lowest", "_core/quorum/acquire.py", "_agree", Nth("constant changed"), "the lowest reply is the fence"
    ),
    _defect(
        "fences-of-another",
        "_core/quorum/acquire.py",
        "_agree",
        Nth("constant changed", 4),
        "a lock is handed on in a process under fences that others may have, too",
    ),
)

MAJORITY = (
    _defect(
        "half-is-enough",
        "_core/quorum/votes.py",
        "ServerSet.majority",
        Nth("term dropped"),
        "less than half of the servers are enough",
    ),
    _defect(
        "quorum-without-drift",
        "_core/quorum/acquire.py",
        "_settle",
        Nth("term dropped"),
        "no margin is taken off the lease for the drift of clocks",
    ),
    _defect(
        "quorum-from-answer",
        "_core/quorum/acquire.py",
        "_settle",
        Nth("time swapped"),
        "the lease counts from the replies",
    ),
    _defect(
        "votes-from-answer",
        "_core/quorum/acquire.py",
        "_settle",
        Nth("time swapped", 2),
        "each vote counts from its reply",
    ),
    _defect(
        "until-the-last-vote-ends",
        "_core/quorum/lease.py",
        "QuorumLease.deadline",
        Instead("self.majority - 1", "0"),
        "the lease lasts as long as the last of its votes, even if the majority has expired",
    ),
    _defect(
        "unanswered-counts",
        "_core/quorum/lease.py",
        "NodeLease.counts",
        Nth("operand dropped"),
        "a server that has not replied counts as one that has granted",
    ),
    _defect(
        "a-vote-too-few",
        "_core/quorum/lease.py",
        "QuorumLease.lost_majority",
        Instead("self.majority", "self.majority - 1"),
        "the lease is still held when only a minority has it",
    ),
    _defect(
        "too-late-to-be-believed",
        "_core/quorum/acquire.py",
        "_settle",
        Nth("operand dropped", 2),
        "a majority that replied after the end of the lease counts",
    ),
    _defect(
        "shorter-votes-not-believed",
        "_core/quorum/lease.py",
        "QuorumLease.note_request",
        Nth("dropped", 3),
        "a holder that asks for a shorter lease goes on believing in the longer one until the reply",
    ),
    _defect(
        "vote-whoever-has-it",
        "_lua/quorum/vote.lua",
        "vote",
        Instead("holder ~= token", "holder ~= token and redis.call('PTTL', lock) > ttl"),
        "a server grants a lock that another client has",
    ),
    _defect(
        "renewal-writes-the-lock",
        "_lua/lock/renew.lua",
        "renew",
        Instead(
            "if holder ~= token then return missed(state, token, holder) end",
            "if holder and holder ~= token then return -1 end\nredis.call('SET', lock, token)",
        ),
        "a renewal writes the lock although it is gone",
    ),
)

UNDOING = (
    _defect(
        "undo-only-what-answered",
        "_core/quorum/acquire.py",
        "_vote",
        Instead("'bury'", "''"),
        "a server that has not replied is not told that the round is over",
    ),
    _defect(
        "undo-before-its-do",
        "_core/quorum/acquire.py",
        "_vote",
        Instead("'bury'", "'leave'"),
        "an undo on another connection does not refuse the request that it has overtaken",
    ),
    _defect(
        "undo-that-failed-later",
        "_core/quorum/acquire.py",
        "_undo",
        Instead(
            "Poll(calls, heard, timeout if heard.awaited else 0.0, otherwise=lambda number: GiveBack(revoke, number, until))",
            "Poll(calls, heard, timeout if heard.awaited else 0.0)",
        ),
        "when the connection breaks before a server learns that the round is over, it is not told again",
    ),
    _defect(
        "release-that-failed-later",
        "_core/quorum/acquire.py",
        "release",
        Instead(
            "Poll(calls, yes_count, attempt.spec.timeout, "
            "otherwise=lambda number: GiveBack(*quorum_lease.giving_back_to(number)))",
            "Poll(calls, yes_count, attempt.spec.timeout)",
        ),
        "when the connection breaks before a server learns of the release, it is not told again",
    ),
    _defect(
        "release-vote-whoever-has-it",
        "_lua/quorum/release_vote.lua",
        "",
        Instead("holder == token", "holder"),
        "a release frees the lock of any client",
    ),
    _defect(
        "vote-for-a-revoked-token",
        "_lua/quorum/vote.lua",
        "vote",
        Nth("never", 4),
        "a copy of a request that was given up acquires the lock",
    ),
    _defect(
        "vote-without-expiry",
        "_lua/quorum/vote.lua",
        "vote",
        Instead("redis.call('SET', lock, token, 'PX', ttl)", "redis.call('SET', lock, token)"),
        "a vote never expires",
    ),
    _defect(
        "listener-stays",
        "_lua/quorum/release_vote.lua",
        "",
        Nth("dropped", 7),
        "a client that has given up is still notified when the lock is free",
    ),
    _defect(
        "listener-not-removed",
        "_core/quorum/acquire.py",
        "_settle",
        Nth("dropped", 5),
        "a process listens for a lock that it has got",
    ),
    _defect(
        "nobody-is-notified",
        "_lua/quorum/release_vote.lua",
        "",
        Nth("operand dropped", 13),
        "a release notifies nobody that the lock is free",
    ),
)

FORGETTING = (
    _defect(
        "marker-ignored",
        "_lua/quorum/vote.lua",
        "",
        Nth("operand dropped", 17),
        "a server that has lost its data votes at once",
    ),
    _defect(
        "run-id-ignored",
        "_lua/shared/_marker.lua",
        "quarantine",
        Nth("operand dropped", 5),
        "a server that was restarted without the end of its log votes at once",
    ),
    _defect(
        "quarantine-too-short",
        "_lua/shared/_marker.lua",
        "ends_in",
        Instead("longest * 1.01", "longest / 20"),
        "a server that has lost its data votes before the longest lease is over",
    ),
)

QUORUM = FENCES + MAJORITY + UNDOING + FORGETTING
