"""Deliberate defects that only histories under a rare theme can catch."""

from __future__ import annotations

from mutants.defects import Mutation
from mutants.operators import Instead

RARE = (
    Mutation(
        "barrier-forgotten-in-silence",
        "_lua/rendezvous/barrier.lua",
        "begin",
        Instead("if not broken then destroy('lost', '') end", ""),
        "who waits at a barrier that the server has lost is not told, and waits for what is not there",
        "meetings+forgetful",
    ),
    Mutation(
        "run-fence-by-clock",
        "_lua/schedule/serve.lua",
        "serve",
        Instead("now, whole(fields[5]))", "now, nil)"),
        "the fence of a run is what the clock says, though that was set back",
        "schedule+jumping",
    ),
    Mutation(
        "observer-goes-back",
        "_core/election.py",
        "LeaderWatch.is_news",
        Instead("found.term < self.highest", "False"),
        "an observer sees a leader again whose term is over, when the server has lost the last of its memory",
        "election+forgetful",
    ),
    Mutation(
        "message-with-any-number",
        "_core/lock/node.py",
        "Node._on_push",
        Instead("what == codes.GRANTED and more.isdigit()", "what == codes.GRANTED"),
        "who reads a message takes for granted that there is a number in it",
        "lock+stranger",
    ),
    Mutation(
        "transfer-not-taken-back",
        "_lua/election/transfer.lua",
        "",
        Instead("redis.call('SET', lock, token, 'PX', math.max(1, left))", ""),
        "who is elected does not hear of it, and whoever handed over has lost the election all the same",
        "election+forbidden",
    ),
    Mutation(
        "the-oldest-tokens-stay-dead",
        "_lua/shared/_state.lua",
        "revoke",
        Instead(
            "string.sub((dead or '') .. token .. ' ', -100 * (#token + 1))",
            "string.sub((dead or '') .. token .. ' ', 1, 100 * (#token + 1))",
        ),
        "of more than a hundred tokens that are declared dead, the newest are not refused",
        "lock+revoked",
    ),
    Mutation(
        "latch-reset-again",
        "_lua/rendezvous/latch.lua",
        "",
        Instead("not repeated()", "what == 'reset' or not repeated()"),
        "a late copy of a reset takes back what was counted since",
        "meetings+reset",
    ),
    Mutation(
        "waiting-keeps-no-latch",
        "_lua/rendezvous/latch.lua",
        "",
        Instead("redis.call('PEXPIRE', state, keep)", "if what ~= 'look' then redis.call('PEXPIRE', state, keep) end"),
        "a latch that is only waited for ends after its time",
        "meetings+long",
    ),
    Mutation(
        "leads-without-the-lock",
        "_core/election.py",
        "_take_up",
        Instead("not answer.value or answer.came >= deadline", "answer.came >= deadline"),
        "a candidate leads whose lock was another one's when it said so",
        "election+laden",
    ),
    Mutation(
        "hand-over-to-the-hung",
        "_lua/lock/_handover.lua",
        "hand_over",
        Instead("lively and not silent[process]", "not silent[process]"),
        "a lock is handed over to a process that hangs",
        "lock+unrenewed",
    ),
    Mutation(
        "permits-for-the-hung",
        "_lua/permit/_permits.lua",
        "serve",
        Instead("(at - p.now_ms < PLACE - CLAIM or not listening[process])", "not listening[process]"),
        "permits are handed over to a process that hangs",
        "permits+unrenewed",
    ),
    Mutation(
        "refresh-counted-for-the-heir",
        "_core/lock/server_queue.py",
        "Waiting.on_refreshed",
        Instead("ttl = min(waiter.requested_ttl, wanted)", "ttl = wanted"),
        "an attempt that inherits a place during a refresh believes in its own lease, not in the requested one",
        "lock+unequal",
    ),
    Mutation(
        "lease-passed-to-the-bounded",
        "_core/lock/records.py",
        "HeldLease.compatible_with",
        Instead(
            "spec.is_passable and spec.ttl == self.ttl and (spec.replicas <= mine.replicas)",
            "spec.ttl == self.ttl and spec.replicas <= mine.replicas",
        ),
        "a lease that is renewed without limit is passed on to a lock with max_hold= or progress_within=",
        "lock+mixed",
    ),
    Mutation(
        "lingering-lease-for-the-bounded",
        "_core/lock/local_queue.py",
        "LocalQueue._enter",
        Instead("held_lease.compatible_with(attempt.spec)", "True"),
        "a lease that lingers is given to a lock of the process whose options it does not fit",
        "lock+mixed",
    ),
    Mutation(
        "crash-judged-by-the-old-definition",
        "_lua/schedule/serve.lua",
        "serve",
        Instead(
            "if fields[2] ~= ARGV[a + 1] then",
            "for i = 0, count - 1 do if slots[i].token and slots[i].token ~= slots[i].holder then close(i, 'crashed', '') end "
            "end if fields[2] ~= ARGV[a + 1] then",
        ),
        "a process that knows an old definition of a job decides by it whether a crashed run begins again",
        "schedule+redefined",
    ),
    Mutation(
        "abandoned-run-keeps-its-lease",
        "_core/schedule/state.py",
        "ScheduleState.tick",
        Instead("self.todo.append(AbandonRun(run))", "pass"),
        "a run that does not end in time is reported as ended, and goes on believing in its lease",
        "schedule+stubborn",
    ),
)
