"""Deliberate defects of handing a lock over by a ticket, see `mutations`."""

from __future__ import annotations

from functools import partial

from sim.script_defects import Mutation


def _defect(file: str, name: str, old: str, new: str, breaks: str) -> Mutation:
    return Mutation(name, file, old, new, breaks, of="ticket")


_rotate = partial(_defect, "_lua/rotate.lua")
_core = partial(_defect, "_core/tickets.py")
_face = partial(_defect, "_tickets.py")

TICKETS = (
    _rotate(
        "ticket-takes-what-is-free",
        "if holder ~= giver then",
        "if holder and holder ~= giver then",
        "a ticket whose time is over, or that was used, takes the lock when it is free",
    ),
    _rotate(
        "ticket-of-anybody",
        "if holder ~= giver then",
        "if not holder then",
        "a ticket takes the lock from whoever has it",
    ),
    _rotate(
        "ticket-giver-not-dead",
        "bury(state, dead, giver)\n",
        "",
        "who has handed the lock on is not declared dead: a late copy of what he has sent takes it again",
    ),
    _rotate(
        "ticket-answered-once",
        "if holder == heir and last then",
        "if false then",
        "the answer gets lost, and who asks again is told that somebody else was quicker",
    ),
    _rotate(
        "ticket-same-fence",
        "first, last = take(lock, state, heir, ttl, now, last)",
        "redis.call('SET', lock, heir, 'PX', ttl)\nfirst = last - BLOCK + 1",
        "who redeems a ticket gets the fences of who gave it",
    ),
    _rotate(
        "ticket-drawn-again",
        "  return {1, last - BLOCK + 1, last, math",
        "  last = last + BLOCK\n  redis.call('HSET', state, 'fence', last)\n  return {1, last - BLOCK + 1, last, math",
        "a request that is sent again is answered with another fence",
    ),
    _core(
        "ticket-counted-from-answer",
        "deadline = answer.sent + spec.first_ttl",
        "deadline = answer.came + spec.first_ttl",
        "the lease of who redeems a ticket counts from when the answer came",
    ),
    _core(
        "ticket-of-nobody",
        "        ticket.doubt = True\n        await take_back(ticket, token)\n        raise\n",
        "        ticket.doubt = True\n        raise\n",
        "who is cancelled while he makes a ticket leaves one behind that nobody has",
    ),
    _core(
        "ticket-taken-back-last",
        "    if ticket.token:\n        await give_up(",
        "    if not ticket.token:\n        await give_up(",
        "of a ticket that nobody was given, only what it was made of is given up",
    ),
    _face(
        "ticket-giver-goes-on",
        "        lease._forget()\n\n    def _go_on",
        "\n    def _go_on",
        "a lease that was handed over is looked after still",
    ),
    _face(
        "ticket-line-not-told",
        "self._lease._attempt.gate.left(self._lease._attempt)",
        "pass",
        "those of the giver's process who wait are not told that the lock has left it",
    ),
    _face(
        "ticket-lock-held-twice",
        "            self._begun = tenure.over = True\n",
        "            self._begun = True\n",
        "who has handed his lock over can still give it back, or use it",
    ),
)
