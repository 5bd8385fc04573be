"""Deliberate defects in the gate of a process, where a lock is passed on and kept, see `mutations`."""

from __future__ import annotations

from sim.script_defects import Mutation


def _gate(name: str, old: str, new: str, breaks: str, file: str = "_core/gate.py") -> Mutation:
    return Mutation(name, file, old, new, breaks)


def _sharing(name: str, old: str, new: str, breaks: str) -> Mutation:
    return Mutation(name, "_core/sharing.py", old, new, breaks)


PASSING = (
    _sharing(
        "passed-after-loss",
        "            if tenure.lost:\n                given = gate_of(attempt).lost()\n            elif given",
        "            if given",
        "who is passed a lease that is lost takes it for a lock",
    ),
    _sharing(
        "passed-and-woken-too-late",
        "elif given.fence and now < tenure.deadline:",
        "elif given.fence:",
        "who wakes up when the lease that he was passed is over takes it for a lock",
    ),
    _gate(
        "passed-beyond-the-block",
        "if self.fence < self.last and (left",
        "if (left",
        "a lock is passed on under fences that the server has not issued",
    ),
    _gate(
        "passed-under-one-fence",
        "fence = self.fence = self.fence + 1",
        "fence = self.fence + 1",
        "two who are passed a lock have the same fence",
    ),
    _gate(
        "passed-for-ever",
        "return not self.asked or (self.passes < spec.max_passes and now < self.taken + spec.max_pass_time)",
        "return True",
        "a lock is passed on although another process is known to wait",
    ),
    _gate(
        "passed-too-often",
        "(self.passes < spec.max_passes and now",
        "(now",
        "the number of passes has no bound when another process waits",
    ),
    _gate(
        "passed-for-too-long",
        " and now < self.taken + spec.max_pass_time)",
        ")",
        "the time for which a lock is passed on has no bound when another process waits",
    ),
    _gate(
        "passed-without-limit",
        "now >= min(self.taken + LIMIT, tenure.deadline)",
        "now >= tenure.deadline",
        "a lock is passed on for ever when nobody is known to wait",
    ),
    _gate(
        "asked-forgotten",
        "        self.asked = True\n        if self.who",
        "        if self.who",
        "a process forgets that it was asked for the lock",
    ),
    _gate(
        "asked-when-deaf",
        "            gate.on_asked()  # somebody",
        "            pass  # somebody",
        "who takes a lock before his inbox listens believes that nobody waits",
        file="_core/node.py",
    ),
    _gate(
        "asked-while-asking",
        "self.asked |= self.crowded",
        "self.asked = self.crowded",
        "what was heard while the lock was being asked for is forgotten when it is given",
    ),
    _gate(
        "last-in-line-first",
        "        self.line.append(attempt)\n",
        "        self.line.appendleft(attempt)\n",
        "who comes last to the line of a process is served first",
    ),
    _gate(
        "freshened-from-answer",
        "max(tenure.deadline, sent + tenure.ttl - margin(tenure.ttl))",
        "max(tenure.deadline, self.clock() + tenure.ttl - margin(tenure.ttl))",
        "a lease that is made longer before it is passed on counts from when the answer came",
    ),
    _gate(
        "freshened-fences-overlap",
        "self.fence, self.last = held.fence - 1, held.last",
        "self.fence, self.last = held.fence - 2, held.last",
        "after more fences were asked for, the last of the old ones is given once more",
    ),
)

LEAVING = (
    _gate(
        "withdrawn-pass-dropped",
        "or not self._pass(tenure, now):\n            self._give_back(tenure)\n",
        "or not self._pass(tenure, now):\n            pass\n",
        "who is cancelled when he was passed the lock keeps it for ever",
    ),
    _gate(
        "withdrawn-leader-stays",
        "delist(given.place)\n                self.tenure = None\n                self._lead(None)\n",
        "delist(given.place)\n                self.tenure = None\n",
        "who asked for all and is cancelled leaves the others waiting",
    ),
    _gate(
        "place-not-bequeathed",
        "if attempt.gate is None or not attempt.gate.bequeath(attempt, waiter):",
        "if True:",
        "who gives up takes the place of his process with him",
        file="_core/acquire.py",
    ),
    _gate(
        "loss-not-told-to-the-line",
        "            self._attempt.gate.left(self._attempt)\n",
        "            pass\n",
        "when a lease is lost, the others of the process wait until the holder has noticed",
        file="_lease.py",
    ),
    _gate(
        "failure-leaves-the-line",
        "                    self._fail(other, error)\n                self._lead(None)\n",
        "                    self._fail(other, error)\n                self.who = None\n",
        "when who asks for all has failed, nobody else asks",
    ),
)

KEEPING = (
    _gate(
        "kept-when-asked",
        "        if self.who is None and self.tenure is not None:\n            self._give_back(self.tenure)\n",
        "",
        "a lease that is only kept does not go to who asks for it",
    ),
    _gate(
        "kept-for-ever",
        "and now >= self.linger_until:",
        "and now >= self.linger_until + 5.0:",
        "a lease is kept for longer than its lock says",
    ),
    _gate(
        "kept-given-back-once",
        "if isinstance(answer, WireError) and now < due.until:",
        "if isinstance(answer, WireError) and now < 0:",
        "a lease that nobody uses is not given back if the server is away at that moment",
        file="_core/node.py",
    ),
    _gate(
        "given-back-and-not-told",
        "                due.gate.left()",
        "                pass",
        "when the keeper has given a lock back, nobody asks for it any more",
        file="_core/node.py",
    ),
)

GATES = PASSING + LEAVING + KEEPING
