"""A held lock that is handed over: its holder makes a ticket of it, and who redeems the ticket has the lock.

On the server a token holds the lock. The holder's is exchanged for the ticket's, and the ticket's for that of who redeems
it: one script does both, so there is no moment at which nobody has the lock, or two. The giver's token is revoked in the same
run; so a ticket works once, and requests that the giver may still send do nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast._core.lock.acquire import KeyConflict, key_conflict
from holdfast._core.lock.records import Attempt, Grant, Spec, margin, milliseconds
from holdfast._core.lock.release import give_up
from holdfast._core.lock.replication import acknowledged
from holdfast._core.lock.replies import read_reply
from holdfast._core.requests import Answer, Conflict, NewToken, NotSent, Refused, Run, Sleep, Unknown, WireError
from holdfast._lua import Script, codes

TRIES = 3
"""How often a request is made that gets no answer."""


class Exchanged(NamedTuple):
    """The lock was handed on."""

    fence: int
    last: int
    ends: int
    """When the new lease ends (server ms)."""


class Void(NamedTuple):
    """It cannot be handed on: who was to do it has it no more. ``why``: ``expired``, ``used``, or ``gone``, before its time."""

    why: str


class Paused(NamedTuple):
    """Nothing is handed on for so many seconds: the server may have forgotten who has the lock (``quarantine=``)."""

    seconds: float


_VOID = {0: Void("expired"), codes.NO_CLAIM: Void("used"), codes.LOST: Void("gone")}


Reply = Exchanged | Void | Paused | Conflict


def _read(raw: object) -> Reply:
    match raw:
        case [1, int(first), int(last), int(ends)]:
            return Exchanged(first, last, ends)
        case [int(code)] if code in _VOID:
            return _VOID[code]
        case [codes.QUARANTINED, int(ms)]:
            return Paused(ms / 1000)
        case _:
            reply = read_reply(raw)
            return reply if isinstance(reply, Conflict) else Conflict(f"unexpected answer {raw!r}")


EXCHANGE_TOKEN: Script[Reply] = Script("lock/exchange_token", _read)


async def issue(ticket: Attempt, token: str, seconds: float) -> Exchanged | Void:
    """Exchange the holder's ``token`` for a ticket that is good for ``seconds``; its own token is drawn first, if it has none.

    Raises WireError or KeyConflict. If nobody knows then whether there is a ticket, and however else it is ended, all is given
    up, the lock itself too, and ``ticket.doubt`` says so. Otherwise nothing has changed.
    """
    try:
        ticket.token = ticket.token or ticket.spec.signed(await NewToken())
        return (await _exchange(ticket, token, seconds, 0)).value
    except (WireError, KeyConflict):
        if ticket.maybe_in_flight:
            await take_back(ticket, token)
        raise
    except BaseException:
        ticket.maybe_in_flight = True
        await take_back(ticket, token)
        raise


async def take_back(ticket: Attempt, token: str) -> None:
    """Leave nothing behind of a ticket that nobody was given, nor of what it was made of."""
    if ticket.token:
        await give_up(_in_doubt(ticket.spec, ticket.token))  # first: or a late copy of the request could still make a ticket
    await give_up(_in_doubt(ticket.spec, token))


def _in_doubt(spec: Spec, token: str) -> Attempt:
    return Attempt(spec, token, may_be_on_server=True, maybe_in_flight=True)


async def redeem(attempt: Attempt, ticket: str, ends: int) -> Grant | Void:
    """Take the lock with a ticket's token, whose time ends at ``ends`` (server ms).

    Raises WireError or KeyConflict. Any end but a Grant leaves nothing behind: the ticket is as good as it was,
    if the server has not seen it; if it has, the lock is given back.
    """
    spec = attempt.spec
    try:
        attempt.token = spec.signed(await NewToken())
        answer = await _exchange(attempt, ticket, spec.first_ttl, ends)
        found = answer.value
        if isinstance(found, Void):
            return found
        deadline = answer.sent + spec.first_ttl - margin(spec.first_ttl)
        if answer.came >= deadline:
            await give_up(attempt)
            return Void("late")
        grant = await acknowledged(Grant(attempt, found.fence, answer.came, deadline, last=found.last))
    except BaseException:
        await give_up(attempt)
        raise
    assert isinstance(grant, Grant)
    return grant


async def _exchange(heir: Attempt, token: str, seconds: float, ends: int) -> Answer[Exchanged | Void]:
    """Ask until there is an answer, so many times. ``heir``: who is to have what ``token`` has; afterwards it is pending if it
    has it, and in doubt if nobody knows."""
    spec = heir.spec
    args = (token, heir.token, milliseconds(seconds), ends)
    for left in reversed(range(TRIES)):
        doubt, heir.maybe_in_flight, heir.may_be_on_server = heir.maybe_in_flight, True, True
        try:
            answer = await Run(EXCHANGE_TOKEN, spec.granting, (*args, *spec.guarded), spec.timeout)
        except WireError as error:
            heir.maybe_in_flight = heir.may_be_on_server = doubt or isinstance(error, Unknown)
            if not left or not isinstance(error, NotSent | Unknown):
                raise
            await Sleep(0.02)
        else:
            # No doubt any more: a late copy does nothing, as the token it hands on is dead.
            heir.maybe_in_flight, heir.may_be_on_server = False, isinstance(answer.value, Exchanged)
            match answer.value:
                case Conflict() as conflict:
                    raise await key_conflict(conflict, spec)
                case Paused(wait):
                    raise Refused(f"the server may have forgotten who has the lock: it grants nothing for another {wait:.1f} s")
                case found:
                    return Answer(found, answer.sent, answer.came)
    raise AssertionError("unreachable")
