"""Hand over a held lock by a ticket. Its holder issues a ticket, and the process that redeems the ticket holds the lock.

On the server, a lock is held by a token. Issuing a ticket replaces the holder's token by the ticket's token, and redeeming it
replaces the ticket's token by that of the new holder. Each exchange is one script, so exactly one token holds the lock at any
time. The script also revokes the old token. So a ticket can be redeemed only once, and late requests of the old holder have no
effect.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast._core.lock.acquire import ON_ONE_SERVER, KeyConflict, abandon, key_conflict, register_lease
from holdfast._core.lock.records import Attempt, Grant
from holdfast._core.lock.release import give_up
from holdfast._core.lock.replication import acknowledged
from holdfast._core.lock.replies import read_reply
from holdfast._core.lock.spec import Spec, margin, milliseconds
from holdfast._core.requests import Answer, Conflict, NewToken, NotSent, Refused, RunScript, Sleep, Unknown, WireError
from holdfast._lua import Script, codes

TRIES = 3
"""Maximum number of times that a request without a reply is sent."""


class Exchanged(NamedTuple):
    """The reply that the lock is now held under the new token."""

    fence: int
    last: int
    ends: int
    """Server time, in milliseconds, at which the new lease ends."""


class NotExchanged(NamedTuple):
    """The reply that the old token does not hold the lock, so that nothing was exchanged.

    ``why`` is "expired" if the lease of the token has expired, "used" if the token was exchanged before, and "gone" if the lock
    was lost before its lease expired. It is "late" if the reply came after the new lease had ended.
    """

    why: str


class Paused(NamedTuple):
    """The reply that the server exchanges no token for ``seconds`` seconds, because it may have lost data (``quarantine=``)."""

    seconds: float


_VOID = {0: NotExchanged("expired"), codes.NO_CLAIM: NotExchanged("used"), codes.LOST: NotExchanged("gone")}


Reply = Exchanged | NotExchanged | Paused | Conflict


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


async def issue(ticket: Attempt, token: str, seconds: float) -> Exchanged | NotExchanged:
    """Replace the holder's ``token`` by the token of ``ticket``, an attempt that stands for the ticket.

    The ticket gets a lease of ``seconds`` seconds. Return NotExchanged if ``token`` does not hold the lock. Raises WireError or
    KeyConflict. If the outcome of the exchange is unknown, or the operation is interrupted, ``ticket.maybe_in_flight`` is True.
    The ticket is then revoked, and the lock released. After any other error, the holder still holds the lock.
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
    """Revoke a ticket that nobody has received, and release the lock that it was issued for."""
    if ticket.token:
        await give_up(_in_doubt(ticket.spec, ticket.token))  # first, as a late copy of the request could still issue it
    await give_up(_in_doubt(ticket.spec, token))


def _in_doubt(spec: Spec, token: str) -> Attempt:
    return Attempt(spec, token, may_be_on_server=True, maybe_in_flight=True)


async def redeem(attempt: Attempt, ticket: str, ends: int) -> Grant | NotExchanged:
    """Acquire the lock by replacing the token ``ticket`` of a ticket.

    ``ends``: server time, in milliseconds, at which the ticket expires. Return NotExchanged if the ticket is no longer valid.
    Raises WireError or KeyConflict. After an error, this process does not hold the lock. If the server has carried out the
    request by then, the lock is released; otherwise the ticket can still be used.
    """
    spec = attempt.spec
    try:
        attempt.token = spec.signed(await NewToken())
        answer = await _exchange(attempt, ticket, spec.first_ttl, ends)
        found = answer.value
        if isinstance(found, NotExchanged):
            return found
        deadline = answer.sent + spec.first_ttl - margin(spec.first_ttl)
        if answer.came >= deadline:
            await give_up(attempt)
            return NotExchanged("late")
        grant = await acknowledged(Grant(attempt, found.fence, answer.came, deadline, last=found.last))
        assert isinstance(grant, Grant)
        return register_lease(attempt, grant)
    except BaseException:
        await abandon(attempt, ON_ONE_SERVER)
        raise


async def _exchange(heir: Attempt, token: str, seconds: float, ends: int) -> Answer[Exchanged | NotExchanged]:
    """Replace ``token`` by the token of ``heir`` on the server, in up to `TRIES` tries. Return the reply.

    ``ends``: end of the ticket's lease, in milliseconds of server time; 0: ``token`` is not a ticket's. Afterwards
    ``heir.may_be_on_server`` is True if ``heir`` holds the lock. ``heir.maybe_in_flight`` is True if that is unknown.
    """
    spec = heir.spec
    args = (token, heir.token, milliseconds(seconds), ends)
    for left in reversed(range(TRIES)):
        doubt, heir.maybe_in_flight, heir.may_be_on_server = heir.maybe_in_flight, True, True
        try:
            answer = await RunScript(EXCHANGE_TOKEN, spec.granting, (*args, *spec.quarantine_args), spec.timeout)
        except WireError as error:
            heir.maybe_in_flight = heir.may_be_on_server = doubt or isinstance(error, Unknown)
            if not left or not isinstance(error, NotSent | Unknown):
                raise
            await Sleep(0.02)
        else:
            # A late copy of the request is harmless, because the token that it would replace is revoked.
            heir.maybe_in_flight, heir.may_be_on_server = False, isinstance(answer.value, Exchanged)
            match answer.value:
                case Conflict() as conflict:
                    raise await key_conflict(conflict, spec)
                case Paused(wait):
                    raise Refused(f"the server may have lost its data (quarantine): it grants nothing for another {wait:.1f} s")
                case found:
                    return Answer(found, answer.sent, answer.came)
    raise AssertionError("unreachable")
