"""Deliberate defects in serving a schedule, see `mutations`."""

from __future__ import annotations

from sim.script_defects import Mutation


def _serve(name: str, old: str, new: str, breaks: str) -> Mutation:
    return Mutation(name, "_lua/serve.lua", old, new, breaks, of="schedule")


def _core(name: str, file: str, old: str, new: str, breaks: str) -> Mutation:
    return Mutation(name, f"_core/{file}.py", old, new, breaks, of="schedule")


CLAIMING = (
    _serve(
        "tick-claimed-twice",
        "    last = due[#due]\n",
        "",
        "a tick that somebody has dealt with is claimed again",
    ),
    _serve(
        "tick-too-early",
        "    if tonumber(tick) > now then break end\n",
        "",
        "a tick is given before its time",
    ),
    _serve(
        "claim-not-idempotent",
        "    if slots[i].token and slots[i].token == wanted then\n",
        "    if false then\n",
        "a claim that is sent again does not find what it was given",
    ),
    _serve(
        "late-claim-obeyed",
        " or number <= before then",
        " then",
        "a late copy of a request is carried out, and what it is given nobody knows of",
    ),
    _serve(
        "run-beside-a-run",
        "  local ready = free and head and",
        "  free = free or 0\n  local ready = head and",
        "a run is given although another one goes on",
    ),
)

LATE = (
    _serve(
        "claim-of-a-past-moment",
        "  return due, after ~= '' and tonumber(after) <= now and tonumber(after) > tonumber(last)\n",
        "  return due, false\n",
        "a claim that was long on its way runs a tick though a later one is due",
    ),
    _serve(
        "late-ticks-all-run",
        "    elseif late or (i < #due and not all) then\n",
        "    elseif late then\n",
        "of ticks that are due at the same moment, each is run",
    ),
    _serve(
        "waits-beside-a-later-one",
        "  if not each then  -- no tick waits",
        "  if false then  -- no tick waits",
        "a tick that waits for room is run although a later one is due",
    ),
)

ENDING = (
    _serve(
        "end-of-anybody",
        "  if slot and slot.token == ARGV[a + 4] then\n",
        "  if slot and slot.token then\n",
        "the end of an earlier run ends the one that goes on",
    ),
    _serve(
        "crashed-while-it-runs",
        "    if slots[i].token and slots[i].token ~= slots[i].holder then close(",
        "    if slots[i].token then close(",
        "a run counts as crashed although its lease has not run out",
    ),
    _serve(
        "end-not-written-down",
        "    redis.call('HDEL', job, 'run:' .. i)\n",
        "",
        "what has ended goes on being written down as running",
    ),
    _serve(
        "again-for-ever",
        " and attempt < ATTEMPTS) then",
        ") then",
        "a tick whose runs crash is run again and again",
    ),
)

SERVING = (
    _core(
        "run-counted-from-answer",
        "book",
        "answer.sent + seat.options.ttl - margin(",
        "answer.came + seat.options.ttl - margin(",
        "the lease of a run counts from when the answer came",
    ),
    _core(
        "claim-forgotten",
        "book",
        "        for item in self._unanswered or ():\n            item.due =",
        "        items, self._unanswered = self._unanswered, None\n        for item in items or ():\n            item.due =",
        "a claim without an answer is not asked about again",
    ),
    _core(
        "answer-not-awaited",
        "book",
        "        if self._unanswered is not None or self._ended or self.unregistered():\n            return self.retry_at\n",
        "",
        "what got no answer is asked again when something else happens",
    ),
    _core(
        "looking-while-stopping",
        "book",
        "        if not self.stopping:\n            at.append(self._look_all_at)\n",
        "        if True:\n            at.append(self._look_all_at)\n",
        "a process that stops wakes up for what it does no more, again and again",
    ),
    _core(
        "grace-loses-ticks",
        "misfires",
        "    if ticks[0] > first:\n",
        "    if ticks[0] > first and len(ticks) > 1:\n",
        "ticks that were late are neither run nor missed",
    ),
    _core(
        "begun-too-late",
        "book",
        "        if self.stopping or answer.came >= grant.deadline:\n",
        "        if self.stopping:\n",
        "a run is begun although its lease is over when the answer comes",
    ),
)

SCHEDULES = (*CLAIMING, *LATE, *ENDING, *SERVING)
