"""Deliberate defects in our scripts and operations, each one that a tired programmer could write. `mutate` puts them in, one
at a time, and the simulator has to catch each. Those of a part of the package are in a module of their own, the others here.

A text that is replaced stands exactly once in its file; when it changes, the defect has to be written anew.
"""

from __future__ import annotations

from sim.break_defects import BREAKING
from sim.election_defects import ELECTION
from sim.flight_defects import FLIGHT
from sim.gate_defects import GATES
from sim.hung_defects import HUNG
from sim.meeting_defects import MEETINGS
from sim.permit_defects import PERMITS
from sim.quorum_defects import QUORUM
from sim.reentrant_defects import REENTRANT
from sim.schedule_defects import SCHEDULES
from sim.script_defects import SCRIPTS, Mutation, _lua
from sim.several_defects import SEVERAL
from sim.ticket_defects import TICKETS


def _core(name: str, file: str, old: str, new: str, breaks: str) -> Mutation:
    return Mutation(name, f"_core/{file}.py", old, new, breaks)


HOLDING = (
    _core(
        "renewal-answer-unread",
        "renewing",
        "if answer == 1 and now < tenure.deadline:",
        "if now < tenure.deadline:",
        "a lock that is gone counts as renewed",
    ),
    _core(
        "renewed-without-margin",
        "renewing",
        "        self.deadline = sent + ttl - margin(ttl)\n",
        "        self.deadline = sent + ttl\n",
        "a renewed lease is believed without allowance for the drift of clocks",
    ),
    _core(
        "shorter-lease-not-believed",
        "renewing",
        "        self.deadline = min(self.deadline, now + ttl - margin(ttl))\n",
        "",
        "who asks for a shorter lease goes on believing in the longer one until it is answered",
    ),
    _core(
        "renewed-too-late",
        "renewing",
        "self.due_at(sent + ttl * self.spec.renew_part) if ttl >= self.ttl",
        "sent + ttl if ttl >= self.ttl",
        "a lease is renewed when it is over",
    ),
    _core(
        "by-hand-counted-from-answer",
        "renewing",
        "return state > 0, answer.sent if",
        "return state > 0, answer.came if",
        "a lease that is renewed by hand counts from when the answer came",
    ),
    _core(
        "keeper-counted-from-answer",
        "node",
        "self.renewing.on_answer(renew, answer, sent, now)",
        "self.renewing.on_answer(renew, answer, now, now)",
        "a lease that the keeper renews counts from when the answer came",
    ),
    Mutation(
        "watched-after-release",
        "_lease.py",
        "            self._forget()  # not before",
        "            pass  # not before",
        "a lease that was given back is still looked after",
    ),
)

ASKING = (
    _core(
        "counted-from-answer",
        "acquire",
        "deadline = result.sent + attempt",
        "deadline = result.came + attempt",
        "the lease counts from when the answer came",
    ),
    _core(
        "no-margin",
        "attempt",
        "return ttl * 0.01 + 0.002",
        "return 0.0",
        "there is no allowance for the drift of clocks",
    ),
    _core(
        "never-joins",
        "acquire",
        "spec.first_ms, int(join), *extra)",
        "spec.first_ms, 0, *extra)",
        "who waits does not stand in line",
    ),
    _core(
        "never-pending",
        "acquire",
        "attempt.doubt, attempt.pending = attempt.doubt, True, True",
        "attempt.doubt, attempt.pending = attempt.doubt, True, attempt.pending",
        "an attempt does not know that it may have left something on the server",
    ),
    _core(
        "unknown-is-no",
        "acquire",
        "attempt.doubt = doubt or isinstance(error, Unknown)",
        "attempt.doubt = doubt",
        "a request without an answer counts as not done",
    ),
    _core(
        "waiter-stays-listed",
        "acquire",
        "        await Delist(waiter)\n",
        "        pass\n",
        "who waits no more is still refreshed",
    ),
    _core(
        "release-buries-nothing",
        "mutex",
        'how = "bury" if doubt else "release"\n                answer',
        'how = "release"\n                answer',
        "after the release, a late copy of the request takes the lock again",
    ),
)

WAITING = (
    _core(
        "joined-before-listening",
        "waiting",
        "        self._waiters[token] = waiter\n        return listens",
        "        self._waiters[token] = waiter\n        return True",
        "who waits stands in line before its inbox listens",
    ),
    _core(
        "message-counted-from-reading",
        "waiting",
        "deadline = waiter.told + CLAIM",
        "deadline = now + CLAIM",
        "the claim window counts from when the message was read",
    ),
    _core(
        "message-for-the-full-lease",
        "waiting",
        "deadline = waiter.told + CLAIM - margin(CLAIM)",
        "deadline = waiter.told + waiter.attempt.spec.ttl - margin(waiter.attempt.spec.ttl)",
        "a hand-over is believed for the full lease",
    ),
    _core(
        "message-gives-back-a-held-lock",
        "waiting",
        "if attempt is None or (attempt.token == token and attempt.pending):",
        "if attempt is None:",
        "the message of a hand-over that was learnt by asking gives the lock back",
    ),
    _core(
        "refreshed-too-rarely",
        "waiting",
        "REFRESH_EVERY = 1.0",
        "REFRESH_EVERY = 10.0",
        "a sign of life is sent less often than a place counts",
    ),
    _core(
        "refreshed-once",
        "waiting",
        "        for waiter, reply in zip(batch, replies, strict=True):\n            waiter.in_flight = False\n",
        "        for waiter, reply in zip(batch, replies, strict=True):\n",
        "after the first refresh there is no second",
    ),
    _core(
        "refresh-not-repeated",
        "waiting",
        "        for waiter in batch:\n            waiter.in_flight = False\n            waiter.down = error\n",
        "        for waiter in batch:\n            waiter.down = error\n",
        "after a refresh without an answer there is no other",
    ),
    _core(
        "refresh-counted-from-answer",
        "waiting",
        "self._settle(waiter, Granted(fence, sent + ttl - margin(ttl), claim=False))",
        "self._settle(waiter, Granted(fence, now + ttl - margin(ttl), claim=False))",
        "a grant by refresh counts from when the answer came",
    ),
)

MORE = (
    _lua(
        "release-without-hand-over",
        "release",
        "if waiters > 0 and answer ~= -1 then",
        "if waiters > 0 and answer == 0 then",
        "who gives a lock back leaves it to the others to find out",
    ),
    _lua(
        "leave-keeps-place",
        "release",
        "if mode ~= 'release' then leave",
        "if mode == 'bury' then leave",
        "who gives up stays in line",
    ),
    _lua(
        "renew-overtaken",
        "renew",
        "whole(last, 0) > tonumber(number)",
        "tonumber(last) < 0",
        "of two renewals the server goes by the one that comes last, not the one that was made last",
    ),
    _core(
        "late-answer-accepted",
        "acquire",
        "if result.came < deadline:",
        "if True:",
        "an answer that came when the lease was over is taken for a lock",
    ),
    _core(
        "late-message-accepted",
        "acquire",
        "if now >= deadline or (claim and not attempt.spec.renew):",
        "if claim and not attempt.spec.renew:",
        "a hand-over that is read when the claim window is over is taken for a lock",
    ),
    _core(
        "joins-unasked",
        "acquire",
        "spec.first_ms, int(join), *extra)",
        "spec.first_ms, 1, *extra)",
        "who only asks stands in line already",
    ),
    _core(
        "time-out-leaves-place",
        "acquire",
        "            await give_up(attempt)\n            if waiter.down:",
        "            if waiter.down:",
        "who runs out of time stays in line",
    ),
    _core(
        "old-message-believed",
        "waiting",
        "elif fence > waiter.busy.last_fence:",
        "else:",
        "the fence of a message is not compared with the last one known",
    ),
)

MUTATIONS = (
    *SCRIPTS,
    *HOLDING,
    *ASKING,
    *WAITING,
    *MORE,
    *GATES,
    *HUNG,
    *SEVERAL,
    *QUORUM,
    *FLIGHT,
    *SCHEDULES,
    *ELECTION,
    *MEETINGS,
    *TICKETS,
    *PERMITS,
    *REENTRANT,
    *BREAKING,
)
