"""Deliberate defects in the drivers and the connections, which the histories of `holdfast_lab.wired` have to catch.

Run as a script, it plants each and searches: one JSON line for each defect, with the seed that has caught it.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from lab.mutants.defects import Mutation
from lab.mutants.operators import Instead, Nth
from lab.sim.mutate import Copy, copied

_defect = partial(Mutation, of="wired")

SEEDS = 300
"""Histories in which a defect has to be caught."""

WIRED = (
    _defect(
        "sync-sent-at-answer",
        "_runtime/drivers/sync.py",
        "Driver._answer",
        Instead(
            "Answer(parsed(call, reply), sent, self._clock())", "Answer(parsed(call, reply), self._clock(), self._clock())"
        ),
        "the sync driver reads the send time of a request after its reply has arrived",
    ),
    _defect(
        "sync-took-sent-at-answer",
        "_runtime/drivers/sync.py",
        "Driver.acquire",
        Instead("took(attempt, reply, now, self._clock())", "took(attempt, reply, self._clock(), self._clock())"),
        "the sync driver takes the time of the request for a free lock when its answer has come",
    ),
    _defect(
        "asyncio-took-sent-at-answer",
        "_runtime/drivers/aio.py",
        "Driver.finish",
        Instead(
            "took(attempt, asked.result(), attempt.began, self._clock())",
            "took(attempt, asked.result(), self._clock(), self._clock())",
        ),
        "the asyncio driver takes the time of the request for a free lock when its answer has come",
    ),
    _defect(
        "asyncio-sent-at-answer",
        "_runtime/drivers/aio.py",
        "Driver.call",
        Instead(
            "Answer(parsed(call, reply), sent, self._clock())", "Answer(parsed(call, reply), self._clock(), self._clock())"
        ),
        "the asyncio driver reads the send time of a request after its reply has arrived",
    ),
    _defect(
        "connecting-sent-at-answer",
        "_net/aio_connection.py",
        "AioConnection.exchange",
        Instead("request.sent", "self._clock()"),
        "a request that had to wait for its connection counts from its answer",
    ),
    _defect(
        "link-sent-at-answer",
        "_net/pipelined_connection.py",
        "PipelinedConnection._settle",
        Instead("request.then(answer, request.sent)", "request.then(answer, self._clock())"),
        "a request of the keeper counts from its answer",
    ),
    _defect(
        "link-keeps-unsent",
        "_net/pipelined_connection.py",
        "PipelinedConnection.fail",
        Instead("self._out, self._due = (b'', float('inf'))", "self._due = float('inf')"),
        "what was not sent on a connection that is lost goes out first on the next one",
    ),
    _defect(
        "link-keeps-half-a-reply",
        "_net/pipelined_connection.py",
        "PipelinedConnection._opened",
        Nth("dropped", 12),
        "half a reply of a connection that is lost is read before those of the next one",
    ),
    _defect(
        "link-keeps-in-flight",
        "_net/pipelined_connection.py",
        "PipelinedConnection.fail",
        Instead("sent, self._sent = (self._sent, deque())", "sent = list(self._sent)"),
        "what awaits an answer when a connection is lost awaits it on the next one, too",
    ),
    _defect(
        "link-drops-the-rest",
        "_net/pipelined_connection.py",
        "PipelinedConnection.on_writable",
        Instead("self._out[sent:]", "b'' if sent else self._out"),
        "what the kernel does not take of a write is never sent",
    ),
    _defect(
        "link-sends-the-latest-first",
        "_net/pipelined_connection.py",
        "PipelinedConnection._write",
        Instead("self._out + request.packed", "request.packed + self._out"),
        "a request goes in front of the rest of the one before",
    ),
    _defect(
        "asyncio-skips-cancelled",
        "_net/aio_connection.py",
        "_Protocol.buffer_updated",
        Instead("future, _ = next_one()", "future, _ = next_one()\nwhile future.done():\n    future, _ = next_one()"),
        "the answer to a request that nobody awaits any more goes to the next one",
    ),
    _defect(
        "lane-answer-of-another",
        "_net/sync_pool.py",
        "_SharedConnection.exchange",
        Instead("connection is None or self._queue or self._in_flight", "connection is None or self._queue"),
        "who finds the shared connection free reads the answer that another one has not had in time",
    ),
    _defect(
        "lane-in-another-order",
        "_net/sync_pool.py",
        "_SharedConnection._batch",
        Instead("self._in_flight.append(request)", "self._in_flight.appendleft(request)"),
        "those who ask on the shared connection at the same time get each other's answers",
    ),
    _defect(
        "link-waits-for-the-first",
        "_net/pipelined_connection.py",
        "PipelinedConnection._first_deadline",
        Instead(
            "min((request.deadline for request in self._sent), default=float('inf'))",
            "self._sent[0].deadline if self._sent else float('inf')",
        ),
        "the limit of the oldest request is taken for the earliest one",
    ),
    _defect(
        "link-forgets-a-partial-write",
        "_net/pipelined_connection.py",
        "PipelinedConnection.on_writable",
        Instead("idle and not self._out", "idle"),
        "after a partial write the selector is not asked to report room",
    ),
    _defect(
        "connection-keeps-its-first-limit",
        "_net/sync_connection.py",
        "Connection.set_timeout",
        Instead("self._timeout = seconds", "self._timeout = seconds if self._polls else self._timeout"),
        "the time limit of the first request stays that of the connection",
    ),
    _defect(
        "lane-sends-again",
        "_net/sync_pool.py",
        "_SharedConnection._end",
        Instead("self._in_flight[0].settle(None, Unknown(why, address))", "self._in_flight[0].settle(_AGAIN)"),
        "requests in flight are sent again on the next connection",
    ),
    _defect(
        "asyncio-keeps-the-stillborn",
        "_net/aio_connection.py",
        "AioConnection._opened",
        Instead("not (protocol.lost or protocol.ends())", "True"),
        "a connection that has ended while it was being opened is used for ever",
    ),
    Mutation(
        "voting-sent-at-answer",
        "_runtime/drivers/aio_quorum.py",
        "Driver._ask.on_reply",
        Instead(
            "Answer(value(call, reply, endpoint), at, self.process.clock())",
            "Answer(value(call, reply, endpoint), self.process.clock(), self.process.clock())",
        ),
        "the asyncio driver of several servers reads the send time of a request after its reply has arrived",
        "wired+voting",
    ),
    Mutation(
        "late-undo-not-repeated",
        "_runtime/drivers/aio_quorum.py",
        "Driver._poll.tell",
        Instead(
            "poll.otherwise is not None and isinstance(answer, WireError)",
            "poll.otherwise is not None and isinstance(answer, WireError) and (not enough.done())",
        ),
        "the undo of a vote that fails when nobody waits for it any more is not left to the keeper",
        "wired+voting",
    ),
    Mutation(
        "polling-sent-at-answer",
        "_runtime/fanout.py",
        "_Count.expect.then",
        Instead("Answer(reply, sent, self._clock())", "Answer(reply, self._clock(), self._clock())"),
        "a thread that asks several servers reads the send time of a request after its reply has arrived",
        "wired+polling",
    ),
    Mutation(
        "polling-late-undo-not-repeated",
        "_runtime/fanout.py",
        "_Count.expect.then",
        Instead(
            "self._otherwise is not None and isinstance(reply, WireError)",
            "self._otherwise is not None and isinstance(reply, WireError) and (not self.decided)",
        ),
        "the undo of a vote that fails when the poll is over is not left to the keeper",
        "wired+polling",
    ),
    Mutation(
        "closed-loop-drops-undos",
        "_runtime/drivers/aio_quorum.py",
        "Driver.end",
        Instead("operation.servers", "()"),
        "undos of votes that nobody awaits are dropped with their event loop when it is closed",
        "wired+closing",
    ),
    Mutation(
        "client-sent-at-answer",
        "_net/client_adapter.py",
        "AioClientCalls.exchange",
        Instead("return (await asyncio.shield(task), sent)", "return (await asyncio.shield(task), self._clock())"),
        "a request by an asyncio client of the user counts from its reply",
        "wired+foreign",
    ),
    Mutation(
        "asking-reply-unread",
        "_runtime/drivers/sync_cluster.py",
        "_ask",
        Instead("connection.exchange(pack(ASKING))", "connection._send(pack(ASKING))"),
        "the reply to ASKING is taken for the reply to the request that follows it",
        "wired+redirecting",
    ),
    Mutation(
        "redirected-sent-at-answer",
        "_runtime/keeper/cluster_connection.py",
        "ShardLine._go_on.on_answer",
        Instead("Answer(answer, sent, self._clock())", "Answer(answer, self._clock(), self._clock())"),
        "the keeper's request in a Cluster counts from its answer",
        "wired+redirecting",
    ),
    Mutation(
        "asked-sent-at-answer",
        "_runtime/drivers/aio_cluster.py",
        "_ask",
        Instead(
            "Answer(value(hop.call, reply, hop.endpoint), sent, system.clock())",
            "Answer(value(hop.call, reply, hop.endpoint), system.clock(), system.clock())",
        ),
        "a request of asyncio that is redirected by ASK counts from its answer",
        "wired+redirecting",
    ),
    Mutation(
        "late-renewal-forgotten",
        "_core/lock/records.py",
        "HeldLease.renewed",
        Instead("min(ttl, self.shortest)", "ttl"),
        "a lease renewed while its slot is moved is believed in full, though an earlier renewal may still shorten it",
        "wired+redirecting",
    ),
    Mutation(
        "closed-loop-not-ended",
        "_runtime/closed_loops.py",
        "Loops._look",
        Instead("self.end()", "pass"),
        "the operations of an event loop that was closed are not ended by the keeper",
        "wired+closing",
    ),
    Mutation(
        "released-by-nobody",
        "_runtime/drivers/aio.py",
        "Driver.release",
        Instead("if asked is None: return None", "if asked is None: return False"),
        "a release for which no connection is open counts as not begun, though the lease has ended here",
        "wired+objects",
    ),
    Mutation(
        "interrupted-with-a-reply-owed",
        "_net/sync_connection.py",
        "ConnectionPool.exchange",
        Instead(
            "if connection is not None:\n    connection.close()",
            "from sys import exception\n"
            "if connection is not None and isinstance(exception(), Exception):\n"
            "    connection.close()\n"
            "elif connection is not None:\n"
            "    idle.append(connection)",
        ),
        "a connection whose request was interrupted serves the next one, and gets the reply to the earlier one",
        "wired+objects",
    ),
    Mutation(
        "unsent-with-the-oldest-futures",
        "_net/aio_connection.py",
        "_Protocol._fail",
        Instead("unsent.append((out.pop(), *in_flight.pop()))", "unsent.append((out.pop(), *in_flight.popleft()))"),
        "requests that did not leave before their connection was lost are answered to the oldest ones that did",
        "wired+objects",
    ),
    Mutation(
        "dead-connections-stay-idle",
        "_net/sync_pool.py",
        "Pool.exchange",
        Instead("self._close_idle()", "pass"),
        "after an error, the other idle connections are used, although they are most likely dead too",
        "wired+objects",
    ),
    Mutation(
        "registered-without-a-look",
        "_core/lock/renewal.py",
        "register",
        Instead("at < keeper.wake_at or keeper.collected or not keeper.looks", "at < keeper.wake_at or keeper.collected"),
        "a lease that lasts gets no connection for its renewal before it is due, if the keeper is awake for another reason",
        "wired+objects",
    ),
    Mutation(
        "led-with-nothing-in-flight",
        "_core/lock/uncontended.py",
        "lead",
        Instead("attempt.may_be_on_server = attempt.maybe_in_flight = True", "attempt.may_be_on_server = True"),
        "an interrupted attempt is undone without a revocation, so its late request acquires the lock for nobody",
        "wired+objects",
    ),
    Mutation(
        "released-without-the-error",
        "_runtime/drivers/aio.py",
        "Driver.release",
        Instead("attempt.first = error", "pass"),
        "a release whose reply is lost counts as not sent, so a release that was carried out is reported as a loss",
        "wired+objects",
    ),
    Mutation(
        "room-for-one-unused",
        "_net/aio_connection.py",
        "_Protocol.buffer_updated",
        Instead("self._on_room()", "if asked - len(self.in_flight) > 1: self._on_room()"),
        "requests that wait for room on their connection are not sent when a single reply makes room",
        "wired+objects",
    ),
    Mutation(
        "woken-by-an-old-clock",
        "_runtime/drivers/sync.py",
        "Driver.acquire",
        Instead("woken(attempt, self._clock())", "woken(attempt, sent)"),
        "a lease that is handed on is judged by the time before the wait",
        "wired+stalling",
    ),
    Mutation(
        "late-grant-sent-now",
        "_runtime/drivers/aio.py",
        "Driver.finish",
        Instead(
            "self._note_first(attempt, attempt.spec.acquire_frame.run(attempt.token), asked.result(), attempt.began)",
            "self._note_first(attempt, attempt.spec.acquire_frame.run(attempt.token), asked.result(), self._clock())",
        ),
        "a grant that was read too late counts from its reply",
        "wired+stalling",
    ),
)


def search(copy: Copy, defect: Mutation) -> tuple[int, str] | None:
    """The first seed that catches a defect, and what it says."""
    with copy.swapped(defect):
        simulate = copy.part("runner").swarm_of(defect.of).simulate
        for seed in range(SEEDS):
            for violation in simulate(seed).violations:
                return seed, str(violation)
    return None


def main(names: list[str]) -> None:
    """Search for those that are named; for all, if none is."""
    with copied() as copy:
        for defect in WIRED:
            if names and defect.name not in names:
                continue
            found = search(copy, defect)
            print(json.dumps({"name": defect.name, "found": found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
